//! Project automation: each command does all the set-up it needs, then its job. No product code lives here.

mod changed;
mod check;
mod mutants;
mod product;
mod python;
mod rooms;
mod rounds;
mod run;
mod setup;
mod wheel;

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};
use python::{FIRST, Python};
use rounds::Round;
use run::{Step, root};
use std::path::PathBuf;
use std::process::ExitCode;

/// Where wheels are put.
const WHEELS: &str = "target/wheels";

/// Set up, build, test and measure flambeau. Every command works on a machine that has cargo, Python 3.11 and apt.
#[derive(Parser)]
#[command(name = "cargo xtask", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Compile the example models and print times and errors next to eager.
    Demo {
        /// Arguments for examples/demo.py, e.g. `--json` or model names.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Check a change in minutes, before `cargo xtask test` checks everything: formatting, lint of the changed crates, rules about the
    /// project, Rust tests of the changed crates and of those that use them (without LLVM's), goldens of traces and
    /// lowering, the end-to-end files that `tests/rooms.txt` names for the changed folders, 40 random programs.
    #[command(after_help = HELP_CHECK)]
    Check(check::Options),
    /// Lint, then run every test: Rust unit and integration tests, pytest with a real daemon, end-to-end tests in modes, a
    /// slice of CPython's tests, a wheel, and end-to-end tests with the other versions of Python. Of modes, other versions and
    /// tests that take long a commit draws its slice.
    Test {
        /// The version of Python; the Rust tests, which ask nothing of it, run with the first one only.
        #[arg(long, default_value_t = FIRST)]
        python: Python,
        /// Leave no test out: as before a release, or to see what another commit would draw.
        #[arg(long)]
        whole: bool,
        /// Arguments for pytest, e.g. `-k resnet` or `tests/e2e --flambeau-mode leaf`; with any, it runs once.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Find out which tests catch which mistake of the compiler: builds the product with single wrong lines that a variable
    /// switches on, and runs rounds of tests with each of them, up to the first failure. Minutes each; no part of `test`.
    Mutants(mutants::Options),
    /// Measure flambeau against torch.compile, paired in one run, and print medians and ratios.
    Bench {
        /// Arguments for tests/bench/bench.py; `--help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Run a suite of other people's programs, compiled, against its checked-in table; red only where something is worse
    /// than the table says. `cpython`: every test method of CPython's `Lib/test` for the language and the library's types,
    /// on all versions of Python that this machine has, in the modes plain and wrap (hours; `--slice ID`: minutes).
    /// `packages`: programs that use packages in the way of their docs. `hf`: the architectures of transformers. `opdb`: torch's
    /// own operators with its samples, `--gradients` with those of their arguments.
    /// `programs`: small programs of what users ask about.
    Conformance {
        /// A version of Python, like 3.12; may be given several times. All that this machine has, by default; a slice runs
        /// on the first one.
        #[arg(long)]
        python: Vec<Python>,
        /// The suite, like `cpython`, and its arguments; `SUITE --help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        args: Vec<String>,
    },
    /// Check formatting, clippy, dependencies (cargo-deny), ruff and mypy.
    Lint,
    /// Write the pages of docs/ that are generated.
    Docs,
    /// Set up and build, so that `.venv/bin/flambeau` runs and `.venv/bin/python` can `import flambeau`.
    Develop {
        /// The version of Python; further ones have environments of their own, like `.venv-3.12`.
        #[arg(long, default_value_t = FIRST)]
        python: Python,
    },
    /// Make wheels, one per version of Python and one without extension for all others, and try each in a fresh environment
    /// that has torch and nothing else. To install the one that fits:
    /// `pip install --no-index --find-links target/wheels flambeau`.
    Wheel {
        /// A version of Python, like 3.12; may be given several times. All that this machine has, by default.
        #[arg(long)]
        python: Vec<Python>,
        /// The folder for the wheels, seen from the project's root.
        #[arg(long, default_value = WHEELS)]
        out: PathBuf,
    },
}

/// Examples for `cargo xtask check --help`.
const HELP_CHECK: &str = "Examples:
  cargo xtask check                 the branch and the working tree, against the main branch
  cargo xtask check --since HEAD    only what is not committed yet
  cargo xtask check --plan          which steps these are, and their commands
  cargo xtask check --json > report.json

All steps run, whatever one finds; a failed build ends the check. What it leaves out and `cargo xtask test` runs: other
end-to-end files, modes, versions of Python, wheels, hostile input.";

/// An error is said in a line: where in this program it came up helps nobody, and hides what the step itself has printed.
fn main() -> ExitCode {
    match execute(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn execute(command: Command) -> Result<()> {
    match command {
        Command::Demo { args } => {
            ready(FIRST)?;
            run::python(FIRST, "Demo", &["examples/demo.py"], &args)
        }
        Command::Check(options) => check::run(&options),
        Command::Test { python, whole, args } => {
            if python == FIRST && args.is_empty() {
                lint()?;
            } else {
                setup::all(python)?;
            }
            product::build(python)?;
            if python == FIRST {
                rust_tests()?;
            }
            let plain = Round::plain(python);
            let mut tests = pytest(&plain, whole || !args.is_empty());
            Step::new(plain.title.clone()).run(tests.args(&args))?;
            if !args.is_empty() {
                return Ok(());
            }
            for round in Round::modes(python) {
                Step::new(round.title.clone()).run(&mut pytest(&round, whole))?;
            }
            if python != FIRST {
                return Ok(());
            }
            let slice = [CONFORMANCE, &["cpython", "--slice", "commit"]].concat();
            run::python(python, "CPython's tests, a slice", &slice, &[])?;
            wheel::all(&[FIRST], &root().join(WHEELS))?;
            in_other_versions(whole)
        }
        Command::Mutants(options) => mutants::run(&options),
        Command::Bench { args } => {
            ready(FIRST)?;
            run::python(FIRST, "Benchmarks", &["tests/bench/bench.py"], &args)
        }
        Command::Conformance { python, args } => conformance(python, &args),
        Command::Lint => lint(),
        Command::Docs => {
            // The test that finds a stale page writes it where it is asked to.
            let test = ["test", "--release", "--quiet", "--package", "flambeau-tidy", "--", "pages"];
            Step::new("docs/breaks.md, docs/opcodes.md").run(run::cargo().args(test).env("BLESS", "1"))
        }
        Command::Develop { python } => ready(python),
        Command::Wheel { python, out } => {
            let pythons = if python.is_empty() { Python::here()? } else { python };
            wheel::all(&pythons, &root().join(out))
        }
    }
}

/// The program of the conformance suites.
const CONFORMANCE: &[&str] = &["-m", "tests.conformance"];

/// A conformance suite with each version of Python; all of them run, whatever one finds.
fn conformance(pythons: Vec<Python>, args: &[String]) -> Result<()> {
    // Other suites need packages that only the first environment has.
    let of_python = args.first().is_some_and(|suite| suite == "cpython");
    let first_only = !of_python || args.iter().any(|arg| arg.starts_with("--slice") || arg == "--help");
    let pythons = match pythons {
        given if !given.is_empty() => given,
        _ if first_only => vec![FIRST],
        _ => Python::here()?,
    };
    let mut red = Vec::new();
    for python in pythons {
        ready(python)?;
        if let Err(error) = run::python(python, "Conformance", CONFORMANCE, args) {
            red.push(format!("Python {python}: {error:#}"));
        }
    }
    if red.is_empty() {
        return Ok(());
    }
    bail!("{}", red.join("\n"))
}

/// Sets up and builds for one version of Python.
fn ready(python: Python) -> Result<()> {
    setup::all(python)?;
    product::build(python)
}

/// Assembled code and most end-to-end tests with each other version of Python that the machine has.
fn in_other_versions(whole: bool) -> Result<()> {
    for python in Python::all()?.into_iter().filter(|python| *python != FIRST) {
        if !python.is_there() {
            eprintln!("==> Python {python}: left out, this machine has none");
            continue;
        }
        eprintln!("==> Python {python}");
        ready(python)?;
        let round = Round::version(python);
        Step::new(round.title.clone()).run(&mut pytest(&round, whole))?;
    }
    Ok(())
}

fn pytest(round: &Round, whole: bool) -> std::process::Command {
    if whole { round.pytest() } else { round.slice() }
}

/// Without documentation's examples, of which there are none: looking for them takes a second for each crate. Programs that
/// tests run are examples of crates.
fn rust_tests() -> Result<()> {
    Step::new("Examples").run(run::cargo().args(["build", "--release", "--workspace", "--examples", "--quiet"]))?;
    let kinds = ["--lib", "--bins", "--tests"];
    Step::new("Rust tests").run(run::cargo().args(["test", "--release", "--workspace", "--quiet"]).args(kinds))
}

/// Sets up, then checks. The Python packages come, from network to disk, while Rust is checked.
fn lint() -> Result<()> {
    setup::system()?;
    FIRST.make()?;
    std::thread::scope(|scope| {
        let packages = scope.spawn(|| FIRST.set_up());
        lint_rust()?;
        packages.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    let bin = root().join(".venv/bin");
    Step::new("ruff").run(run::command(bin.join("ruff")).args(["check", "."]))?;
    Step::new("ruff format").run(run::command(bin.join("ruff")).args(["format", "--check", "."]))?;
    Step::new("mypy").run(run::command(bin.join("mypy")).args(run::TYPED))
}

fn lint_rust() -> Result<()> {
    Step::new("rustfmt").run(run::cargo().args(["fmt", "--all", "--check"]))?;
    let mut clippy = run::cargo();
    clippy.args(["clippy", "--release", "--workspace", "--all-targets"]).args(product::TESTED);
    Step::new("clippy").run(clippy.args(["--", "-D", "warnings"]))?;
    if let Some(deny) = setup::cargo_deny() {
        Step::new("cargo-deny").run(run::command(deny).args(run::DENIED))?;
    }
    Ok(())
}
