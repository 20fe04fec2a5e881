//! Running commands with a line of progress each.

use crate::python::Python;
use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// What cargo-deny checks. Advisories are left out: their list is fetched from the network.
pub const DENIED: &[&str] = &["check", "bans", "licenses", "sources"];

/// What mypy checks: the public package.
pub const TYPED: &[&str] = &["--config-file", "pyproject.toml", "shim/python/flambeau"];

/// The project's root folder.
pub fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().map_or_else(|| manifest.to_path_buf(), Path::to_path_buf)
}

/// A command that runs in the root.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

/// Cargo, as the one that runs us.
pub fn cargo() -> Command {
    command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs Python of a test environment.
pub fn python(version: Python, title: &str, fixed: &[&str], args: &[String]) -> Result<()> {
    let mut python = command(version.program());
    python.args(fixed).args(args);
    Step::new(title).run(&mut python)
}

/// One named step; says when it begins and how long it took.
pub struct Step {
    title: String,
    begun: Instant,
}

impl Step {
    /// Announces the step.
    pub fn new(title: impl Into<String>) -> Self {
        let title = title.into();
        eprintln!("==> {title}");
        Step { title, begun: Instant::now() }
    }

    /// Runs it; its output goes straight to the terminal.
    pub fn run(self, command: &mut Command) -> Result<()> {
        let status = command.status().with_context(|| format!("cannot start {}", command.get_program().display()))?;
        if !status.success() {
            bail!("{} failed ({status}): {command:?}", self.title);
        }
        self.done();
        Ok(())
    }

    /// Says how long it took.
    pub fn done(self) {
        eprintln!("    {} took {:.0} s", self.title, self.begun.elapsed().as_secs_f64());
    }
}
