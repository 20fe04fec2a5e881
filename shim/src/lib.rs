//! The client: frame entry, snapshot, guard evaluator, plan executor.
//!
//! `callable` and `entry` take calls, `compile` gets compiled frames: `snapshot` and `answer` describe objects to the daemon
//! behind `link`, `installed` checks and runs what comes back. `raw`, `consts`, `code`, `paths` and `ambient` read Python
//! without running user code.
#![expect(unsafe_code, reason = "reads CPython objects and torch tensors through their C interfaces")]

mod account;
mod ambient;
mod answer;
mod assembled;
mod backends;
mod bind;
mod breaks;
mod callable;
mod code;
mod compile;
mod compiled;
mod consts;
mod counters;
mod discover;
mod entry;
mod evaluate;
mod exit;
mod fake;
mod fence;
mod fork;
mod fx;
mod gil;
mod guard;
mod hook;
mod installed;
mod launch;
mod layout;
mod leaves;
mod lines;
mod link;
mod module;
mod observers;
mod paths;
mod plugin;
mod probe;
mod raw;
mod record;
mod region;
mod report;
mod run;
mod say;
mod settings;
mod snapshot;
mod structure;
mod table;
mod testing;
mod testing_facts;
mod testing_hostile;
mod thread;
mod torch_abi;
mod view;
