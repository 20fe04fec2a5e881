//! The state of one trace: values met, guards, the graph so far, frames, and how a break leaves it.

pub(crate) mod autocast;
pub mod broken;
pub mod graph;
pub mod kind;
pub(crate) mod library;
mod log;
pub(crate) mod own_keys;
mod texts;
pub mod tracer;
