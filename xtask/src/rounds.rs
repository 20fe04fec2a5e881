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
    /// What a commit draws of it: an option of pytest, and one test in how many.
    drawn: Option<(&'static str, u8)>,
}

/// Draws among all tests.
const ALL: &str = "--flambeau-slice";

/// Draws among those that are marked `slow`.
const SLOW: &str = "--flambeau-slow";

/// A way to run the end-to-end tests anew.
struct Mode {
    name: &'static str,
    /// What it is, for a person.
    title: &'static str,
    /// What tests run on that run on two back ends elsewhere: what kernels compute does not hang on how a graph came about.
    backend: &'static str,
    /// Which share of the tests a commit draws; `None`: all.
    one_in: Option<u8>,
}

/// One more frame finds what others do not: it runs whole.
const MODES: &[Mode] = &[
    Mode { name: "wrap", title: "one more frame", backend: "eager", one_in: None },
    Mode { name: "leaf", title: "breaks at leaf returns", backend: "cpu", one_in: Some(3) },
    Mode { name: "flat", title: "nested breaks off", backend: "eager", one_in: Some(3) },
    Mode { name: "warm", title: "from the disk cache", backend: "cpu", one_in: Some(3) },
];

/// Which share a commit draws of what runs with each further version of Python.
const OF_VERSIONS: u8 = 3;

/// Which share a commit draws of the tests that take long.
const OF_SLOW: u8 = 3;

/// What tests of two back ends run on with further versions of Python, in turn.
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
        Round {
            name: "plain".into(),
            title: "Python tests".into(),
            python,
            args: Vec::new(),
            drawn: Some((SLOW, OF_SLOW)),
        }
    }

    /// The end-to-end tests in each mode.
    pub fn modes(python: Python) -> impl Iterator<Item = Round> {
        MODES.iter().map(move |Mode { name, title, backend, one_in }| Round {
            name: (*name).to_owned(),
            title: format!("Python tests, {title}"),
            python,
            // `-rs` says which tests a mode leaves out by themselves, and why.
            args: ["-rs", "tests/e2e", "--flambeau-mode", name, "--flambeau-backends", backend]
                .map(str::to_owned)
                .to_vec(),
            drawn: one_in.map(|share| (ALL, share)),
        })
    }

    /// Assembled code and most end-to-end tests with another version of Python.
    pub fn version(python: Python) -> Round {
        let left_out = OF_ANY_VERSION.iter().map(|name| format!("--ignore=tests/e2e/test_{name}.py"));
        let backend = BACKENDS[usize::from(python.minor()) % BACKENDS.len()];
        let kept = ["tests/bytecode", "tests/e2e", "--flambeau-backends", backend].map(str::to_owned);
        let args = kept.into_iter().chain(left_out).collect();
        let title = format!("Python {python} tests");
        Round { name: python.to_string(), title, python, args, drawn: Some((ALL, OF_VERSIONS)) }
    }

    /// The round of this name.
    pub fn named(name: &str) -> Result<Round> {
        let versions = Python::all()?.into_iter().filter(|python| *python != FIRST).map(Round::version);
        let all: Vec<Round> = std::iter::once(Round::plain(FIRST)).chain(Round::modes(FIRST)).chain(versions).collect();
        let names: Vec<&str> = all.iter().map(|round| &*round.name).collect();
        let unknown = format!("there is no round {name}; there are {}", names.join(", "));
        all.into_iter().find(|round| round.name == name).context(unknown)
    }

    /// Pytest for the part that the commit draws; it is the round itself where that is run whole.
    pub fn slice(&self) -> Command {
        let mut pytest = self.pytest();
        if let Some((option, share)) = self.drawn {
            pytest.arg(option).arg(format!("commit/{share}"));
        }
        pytest
    }

    /// Pytest for all of it.
    pub fn pytest(&self) -> Command {
        let mut pytest = command(self.python.program());
        pytest.args(["-m", "pytest", "-q", "-n", "2", "--dist", "worksteal"]).args(&self.args);
        pytest
    }
}
