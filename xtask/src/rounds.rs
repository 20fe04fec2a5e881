//! The rounds of Python tests: which files run how, and why these. `cargo xtask test` runs all rounds, `cargo xtask mutants`
//! finds out what each of them catches.

use crate::python::{FIRST, Python};
use crate::run::command;
use anyhow::{Context, Result};
use std::process::Command;

/// One round.
pub struct Round {
    /// Its name on the command line.
    pub name: String,
    /// What it is, for a person.
    pub title: String,
    /// The version of Python.
    pub python: Python,
    /// Arguments of pytest.
    args: Vec<String>,
}

/// A way to run the end-to-end tests anew, and the files that it leaves out.
struct Mode {
    name: &'static str,
    /// For a person.
    what: &'static str,
    left_out: &'static [&'static [&'static str]],
}

/// In all of them, a file is left out where what it finds does not hang on what the mode changes.
const MODES: &[Mode] = &[
    Mode { name: "wrap", what: "one more frame", left_out: &[OF_ANY_FRAME, LARGE] },
    Mode { name: "leaf", what: "breaks at leaf returns", left_out: &[OF_ANY_FRAME, LARGE] },
    // Frames below a break are found while models run: those of the user's, and the library's between them.
    Mode { name: "flat", what: "nested breaks off", left_out: &[OF_ANY_FRAME] },
    Mode { name: "warm", what: "from the disk cache", left_out: &[OF_ANY_FRAME, LARGE] },
];

/// Graphs and their ops, one frame each: how they are lowered and run is the same whatever frame they come from.
const OF_ANY_FRAME: &[&str] = &["devices", "models", "more_models"];

/// Large models that break: each of their breaks has a small program in another file.
const LARGE: &[&str] = &["breaks_hf"];

/// What asks little of the version of Python: the daemon and its command line, back ends, reports, recordings, models.
const OF_ANY_VERSION: &[&str] = &[
    "broken_plugins",
    "cli",
    "cuda",
    "cuda_source",
    "opencl",
    "own_memory",
    "plugin_check",
    "process",
    "replay",
    "report",
    "swap",
    "trace_log",
    // It starts all versions itself.
    "versions",
];

impl Round {
    /// All tests, as they are.
    pub fn plain(python: Python) -> Round {
        Round { name: "plain".into(), title: "Python tests".into(), python, args: Vec::new() }
    }

    /// The end-to-end tests in each mode.
    pub fn modes(python: Python) -> impl Iterator<Item = Round> {
        MODES.iter().map(move |mode| Round {
            name: mode.name.to_owned(),
            title: format!("Python tests, {}", mode.what),
            python,
            // `-rs` says which tests a mode leaves out by themselves, and why.
            args: without(&["-rs", "tests/e2e", "--flambeau-mode", mode.name], mode.left_out),
        })
    }

    /// Assembled code and most end-to-end tests with another version of Python.
    pub fn version(python: Python) -> Round {
        let args = without(&["tests/bytecode", "tests/e2e"], &[OF_ANY_VERSION, OF_ANY_FRAME, LARGE]);
        Round { name: python.to_string(), title: format!("Python {python} tests"), python, args }
    }

    /// The round of this name.
    pub fn named(name: &str) -> Result<Round> {
        let versions = Python::all()?.into_iter().filter(|python| *python != FIRST).map(Round::version);
        let all: Vec<Round> = std::iter::once(Round::plain(FIRST)).chain(Round::modes(FIRST)).chain(versions).collect();
        let names: Vec<&str> = all.iter().map(|round| &*round.name).collect();
        let unknown = format!("there is no round {name}; there are {}", names.join(", "));
        all.into_iter().find(|round| round.name == name).context(unknown)
    }

    /// Pytest for it.
    pub fn pytest(&self) -> Command {
        let mut pytest = command(self.python.program());
        pytest.args(["-m", "pytest", "-q", "-n", "2"]).args(&self.args);
        pytest
    }
}

/// Arguments of pytest that leave out end-to-end files.
fn without(args: &[&str], left_out: &[&[&str]]) -> Vec<String> {
    let left_out = left_out.concat().into_iter().map(|name| format!("--ignore=tests/e2e/test_{name}.py"));
    args.iter().map(|arg| (*arg).to_owned()).chain(left_out).collect()
}
