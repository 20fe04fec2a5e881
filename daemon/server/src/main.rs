//! `flambeaud`: the daemon and its command line. Stages live in crates of their own; this one has the actors that
//! connect them, sessions with clients, and the daemon's life as a process.

mod actors;
mod backend_cli;
mod backends;
mod cli;
mod control;
mod encoded;
mod hub;
mod inspect;
mod job;
mod life;
mod limits;
mod log;
mod oracle;
mod pool;
mod record;
mod registry;
mod report;
mod settings;
mod stages;
mod swap;
mod wire_out;

use std::process::ExitCode;

fn main() -> ExitCode {
    life::forget_starter();
    cli::run().unwrap_or_else(|error| {
        eprintln!("flambeaud: {error:#}");
        ExitCode::FAILURE
    })
}
