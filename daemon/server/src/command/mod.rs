//! The command line, and the daemon's life as a process.

pub mod backend_cli;
pub mod cli;
mod control;
pub mod life;
mod settings;
