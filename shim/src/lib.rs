//! The client: takes calls, describes objects to the daemon, checks guards and runs plans.
//!
//! Each folder uses only those above it in this list.
#![expect(unsafe_code, reason = "reads CPython objects and torch tensors through their C interfaces")]

mod python;

mod process;

mod torch;

mod link;

mod guard;

mod describe;

mod run;

mod exit;

mod frame;

mod call;

mod face;
