//! `flambeaud`: the daemon and its command line. Stages live in crates of their own; this one has the actors that
//! connect them, sessions with clients, and the daemon's life as a process. Each folder uses only those above it in this list.

mod base;

mod plugins;

mod stages;

mod hub;

mod actors;

mod command;

use command::{cli, life};
use std::process::ExitCode;

fn main() -> ExitCode {
    life::forget_starter();
    cli::run().unwrap_or_else(|error| {
        eprintln!("flambeaud: {error:#}");
        ExitCode::FAILURE
    })
}
