//! State of this process and of its threads: settings, counters, warnings, forks, fences against panics.

pub mod compiled;
pub mod counters;
pub mod fence;
pub mod fork;
pub mod region;
pub mod say;
pub mod settings;
pub mod thread;
