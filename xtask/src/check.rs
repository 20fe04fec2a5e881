//! `cargo xtask check`: what a change most likely breaks, in minutes. The whole is `cargo xtask test`.

use crate::changed::{self, Crates};
use crate::product;
use crate::python::FIRST;
use crate::rooms::Rooms;
use crate::run::{self, cargo, command, root};
use crate::setup;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Instant;

/// Links LLVM, and its own tests compile many kernels.
const OF_LLVM: &str = "flambeau-cpu-compile";

/// The rules about the project itself, whatever was changed.
const TIDY: &str = "flambeau-tidy";

/// Graphs and guards as text, whatever was changed.
const TRACE_GOLDENS: &str = "tests/e2e/test_goldens.py";

/// Ten programs in each mode. They are always the same: what fails was broken by the change.
const PROGRAMS: &[&str] = &["-m", "tests.fuzz", "--seeds", "0:10", "--mode", "plain,wrap,leaf,flat", "--jobs", "2"];

/// Folders that the built product is made of.
const PRODUCT: &[&str] = &["abi", "daemon", "plugins", "shim", "storage"];

/// What the command line says.
#[derive(clap::Args)]
pub struct Options {
    /// Compare with this revision; by default with the merge base of HEAD and the main branch.
    #[arg(long, value_name = "REV")]
    since: Option<String>,
    /// Print a report as JSON on standard output: changed files, rooms, steps with seconds. Progress stays on standard error.
    #[arg(long)]
    json: bool,
    /// Say what would run, and run nothing.
    #[arg(long)]
    plan: bool,
}

/// One step of a check.
struct Part {
    name: &'static str,
    work: Work,
}

enum Work {
    /// Sets up and builds, as `cargo xtask develop`.
    Build,
    /// Dependencies: cargo-deny may have to be built first.
    Deny,
    Run(Command),
}

/// What a change touches.
struct Change {
    files: Vec<PathBuf>,
    rooms: BTreeSet<PathBuf>,
    crates: BTreeSet<String>,
    /// Changed crates and those that use them.
    reached: BTreeSet<String>,
    tests: BTreeSet<PathBuf>,
}

impl Change {
    fn since(revision: &str) -> Result<Change> {
        let files = changed::files(revision)?;
        let (rooms, crates) = (Rooms::read()?, Crates::read()?);
        let changed = crates.holding(&files);
        let reached = crates.reached_from(&changed);
        Ok(Change { rooms: rooms.of(&files), tests: rooms.tests(&files), crates: changed, reached, files })
    }

    /// Whether a file has one of the endings.
    fn has(&self, endings: &[&str]) -> bool {
        let ending = |file: &PathBuf| file.extension().and_then(|e| e.to_str().map(str::to_owned));
        self.files.iter().filter_map(ending).any(|found| endings.contains(&&*found))
    }

    fn is_below(&self, folder: &str) -> bool {
        self.files.iter().any(|file| file.starts_with(folder))
    }
}

/// Runs the steps for what changed; all of them, unless the build fails.
pub fn run(options: &Options) -> Result<()> {
    let since = options.since.clone().map_or_else(changed::base, Ok)?;
    let change = Change::since(&since)?;
    let parts = parts(&change);
    eprintln!("{} files changed since {since}, in: {}", change.files.len(), names(&change.rooms));
    if options.plan {
        parts.iter().for_each(|part| println!("{}: {}", part.name, part.work.text()));
        return Ok(());
    }
    let begun = Instant::now();
    let mut done = Vec::new();
    for mut part in parts {
        eprintln!("==> {}", part.name);
        let begun = Instant::now();
        let result = part.work.run();
        let seconds = begun.elapsed().as_secs_f64();
        eprintln!("    {} took {seconds:.0} s", part.name);
        let built = !matches!(part.work, Work::Build) || result.is_ok();
        done.push((part, seconds, result.err().map(|error| format!("{error:#}"))));
        if !built {
            break;
        }
    }
    if options.json {
        println!("{:#}", report(&since, &change, &done));
    }
    eprintln!("check took {:.0} s", begun.elapsed().as_secs_f64());
    let red: Vec<&str> = done.iter().filter(|(.., error)| error.is_some()).map(|(part, ..)| part.name).collect();
    if red.is_empty() { Ok(()) } else { bail!("failed: {}", red.join(", ")) }
}

impl Work {
    fn text(&self) -> String {
        let command = match self {
            Work::Build => return "cargo xtask develop".to_owned(),
            Work::Deny => {
                return std::iter::once("cargo-deny").chain(run::DENIED.iter().copied()).collect::<Vec<_>>().join(" ");
            }
            Work::Run(command) => command,
        };
        let arguments = command.get_args().map(|argument| argument.to_string_lossy());
        let program = Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy();
        std::iter::once(program).chain(arguments).collect::<Vec<_>>().join(" ")
    }

    fn run(&mut self) -> Result<()> {
        let command = match self {
            Work::Build => return crate::ready(FIRST),
            Work::Deny => match setup::cargo_deny() {
                Some(deny) => &mut with(command(deny), run::DENIED),
                None => return Ok(()),
            },
            Work::Run(command) => command,
        };
        // Standard output is the report's.
        let status: ExitStatus = command.stdout(std::io::stderr()).status().context("cannot start")?;
        if status.success() { Ok(()) } else { bail!("{status}") }
    }
}

/// The steps for a change, the quick ones first.
fn parts(change: &Change) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut add = |name, work| parts.push(Part { name, work });
    if change.has(&["rs"]) {
        add("rustfmt", Work::Run(with(cargo(), &["fmt", "--all", "--check"])));
    }
    if change.has(&["py"]) {
        add("ruff", Work::Run(with(tool("ruff"), &["check", "."])));
        add("ruff format", Work::Run(with(tool("ruff"), &["format", "--check", "."])));
    }
    if change.is_below("shim/python") {
        add("mypy", Work::Run(with(tool("mypy"), run::TYPED)));
    }
    if change.has(&["toml", "lock"]) {
        add("cargo-deny", Work::Deny);
    }
    if !change.crates.is_empty() {
        let mut clippy = packages(cargo(), &["clippy", "--release", "--quiet", "--all-targets"], &change.crates);
        if change.crates.contains(product::EXTENSION) {
            clippy.args(product::TESTED);
        }
        add("clippy", Work::Run(with(clippy, &["--", "-D", "warnings"])));
    }
    add("Build", Work::Build);
    let mut tested = change.reached.clone();
    tested.remove(OF_LLVM);
    tested.insert(TIDY.to_owned());
    add("Rust tests", Work::Run(packages(cargo(), &["test", "--release", "--quiet"], &tested)));
    let goldens = ["test", "--release", "--quiet", "--package", "flambeau-lower", "--test", "goldens"];
    add("Lowering goldens", Work::Run(with(cargo(), &goldens)));
    add("Python tests", Work::Run(pytest(&change.tests)));
    if PRODUCT.iter().any(|folder| change.is_below(folder)) {
        add("40 random programs", Work::Run(with(command(FIRST.program()), PROGRAMS)));
    }
    parts
}

/// Trace goldens and these tests.
pub fn pytest(tests: &BTreeSet<PathBuf>) -> Command {
    let mut pytest = with(command(FIRST.program()), &["-m", "pytest", "-q", "-n", "2", TRACE_GOLDENS]);
    pytest.args(tests.iter().filter(|test| *test != Path::new(TRACE_GOLDENS)));
    pytest
}

fn with(mut command: Command, arguments: &[&str]) -> Command {
    command.args(arguments);
    command
}

fn packages(command: Command, arguments: &[&str], packages: &BTreeSet<String>) -> Command {
    let mut command = with(command, arguments);
    for package in packages {
        command.args(["--package", package]);
    }
    command
}

/// A program of the first environment.
fn tool(name: &str) -> Command {
    command(root().join(".venv/bin").join(name))
}

fn names(rooms: &BTreeSet<PathBuf>) -> String {
    rooms.iter().map(|room| room.display().to_string()).collect::<Vec<_>>().join(", ")
}

fn report(since: &str, change: &Change, done: &[(Part, f64, Option<String>)]) -> Value {
    let steps = done.iter().map(|(part, seconds, error)| {
        json!({"name": part.name, "command": part.work.text(), "seconds": seconds, "error": error})
    });
    json!({
        "since": since,
        "changed": change.files,
        "rooms": change.rooms,
        "steps": steps.collect::<Vec<_>>(),
        "passed": done.iter().all(|(.., error)| error.is_none()),
    })
}
