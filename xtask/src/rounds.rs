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

/// Ways to run the end-to-end tests anew, what each is, for a person, and what tests run on that run on two back ends
/// elsewhere: what kernels compute does not hang on how a graph came about.
const MODES: &[(&str, &str, &str)] = &[
    ("wrap", "one more frame", "eager"),
    ("leaf", "breaks at leaf returns", "cpu"),
    ("flat", "nested breaks off", "eager"),
    ("warm", "from the disk cache", "cpu"),
];

/// The same for further versions of Python, in turn.
const BACKENDS: [&str; 2] = ["cpu", "eager"];

/// End-to-end tests that ask little of the version of Python: the command line, back ends, reports, recordings, and large
/// models.
const OF_ANY_VERSION: &[&str] = &[
    "breaks_hf",
    "broken_plugins",
    "cli",
    "cuda",
    "cuda_source",
    "devices",
    "opencl",
    "own_memory",
    "plugin_check",
    "replay",
    "report",
    "swap",
    "trace_log",
];

impl Round {
    /// All tests, as they are.
    pub fn plain(python: Python) -> Round {
        Round { name: "plain".into(), title: "Python tests".into(), python, args: Vec::new() }
    }

    /// The end-to-end tests in each mode.
    pub fn modes(python: Python) -> impl Iterator<Item = Round> {
        MODES.iter().map(move |(mode, what, backend)| Round {
            name: (*mode).to_owned(),
            title: format!("Python tests, {what}"),
            python,
            // `-rs` says which tests a mode leaves out by themselves, and why.
            args: ["-rs", "tests/e2e", "--flambeau-mode", mode, "--flambeau-backends", backend]
                .map(str::to_owned)
                .to_vec(),
        })
    }

    /// Assembled code and most end-to-end tests with another version of Python.
    pub fn version(python: Python) -> Round {
        let left_out = OF_ANY_VERSION.iter().map(|name| format!("--ignore=tests/e2e/test_{name}.py"));
        let backend = BACKENDS[usize::from(python.minor()) % BACKENDS.len()];
        let kept = ["tests/bytecode", "tests/e2e", "--flambeau-backends", backend].map(str::to_owned);
        let args = kept.into_iter().chain(left_out).collect();
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
        pytest.args(["-m", "pytest", "-q", "-n", "2", "--dist", "worksteal"]).args(&self.args);
        pytest
    }
}
