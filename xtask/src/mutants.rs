//! `cargo xtask mutants`: which round of tests catches which mistake of the compiler. A mistake is a line of the source that
//! `flambeau_ir::mutated!("name")` changes, in a build with the feature `mutations`, while a variable names it.

use crate::check;
use crate::product;
use crate::rooms::Rooms;
use crate::rounds::Round;
use crate::run::{command, root};
use anyhow::{Context, Result, bail, ensure};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// What a mistake looks like in the source, before its name.
const MARK: &str = "mutated!(\"";

/// The build as it is, with no mistake chosen: it must pass.
const NONE: &str = "none";

/// The tests of `cargo xtask check` for the folder that a mistake is in.
const CHECK: &str = "check";

/// What the command line says.
#[derive(clap::Args)]
pub struct Options {
    /// Mutations to try, or `none` for the build as it is; all of them by default, `none` first.
    names: Vec<String>,
    /// A round of tests: plain, wrap, leaf, flat, warm, a further version of Python, or `check`, the files that `cargo xtask
    /// check` would run for the changed folder. May be given several times.
    #[arg(long, default_value = "plain")]
    round: Vec<String>,
    /// Arguments for pytest in each round, like `--args=-k --args=breaks`.
    #[arg(long, allow_hyphen_values = true)]
    args: Vec<String>,
    /// Print the results as JSON on standard output, a line each.
    #[arg(long)]
    json: bool,
    /// List the mutations and where they are, and run nothing.
    #[arg(long)]
    list: bool,
}

/// A mistake, and the file that it is in.
struct Mutation {
    name: String,
    file: PathBuf,
}

/// Runs each mutation through each round, which stops at its first failure.
pub fn run(options: &Options) -> Result<()> {
    let all = mutations()?;
    if options.list {
        all.iter().for_each(|mutation| println!("{:32} {}", mutation.name, mutation.file.display()));
        return Ok(());
    }
    let none = Mutation { name: NONE.to_owned(), file: PathBuf::new() };
    let known: Vec<&Mutation> = std::iter::once(&none).chain(&all).collect();
    for name in &options.names {
        ensure!(known.iter().any(|m| m.name == *name), "there is no mutation {name}: `--list` lists them");
    }
    let chosen = known.into_iter().filter(|m| options.names.is_empty() || options.names.contains(&m.name));
    let rounds = options.round.iter().map(|name| Ok((&**name, round(name)?)));
    let rounds = rounds.collect::<Result<Vec<(&str, Round)>>>()?;
    let mut packages = Vec::new();
    for (_, round) in &rounds {
        packages.push(product::build_mutated(round.python)?);
    }
    let mut wrong = Vec::new();
    for mutation in chosen {
        let mut caught = false;
        for ((name, round), package) in rounds.iter().zip(&packages) {
            let Some(tests) = tests(name, round, mutation)? else { continue };
            let (by, seconds) = first_failure(tests, &options.args, package, mutation)?;
            caught |= by.is_some();
            let said = by.as_deref().unwrap_or("-");
            if options.json {
                println!("{}", json!({"mutation": mutation.name, "round": name, "caught_by": by, "seconds": seconds}));
            } else {
                println!("{:32} {name:6} {seconds:5.0} s  {said}", mutation.name);
            }
        }
        if caught == (mutation.name == NONE) {
            wrong.push(&*mutation.name);
        }
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        bail!("`{NONE}` must pass, and all else be caught; not so: {}", wrong.join(", "))
    }
}

/// `check` runs with the first version of Python.
fn round(name: &str) -> Result<Round> {
    Round::named(if name == CHECK { "plain" } else { name })
}

/// The tests of a round; `None` where `check` has none, as no folder was changed.
fn tests(name: &str, round: &Round, mutation: &Mutation) -> Result<Option<Command>> {
    if name != CHECK {
        return Ok(Some(round.pytest()));
    }
    if mutation.name == NONE {
        return Ok(None);
    }
    Ok(Some(check::pytest(&Rooms::read()?.tests(std::slice::from_ref(&mutation.file)))))
}

/// The first test that fails, if one does, and how long it took.
fn first_failure(
    mut pytest: Command,
    args: &[String],
    package: &Path,
    mutation: &Mutation,
) -> Result<(Option<String>, f64)> {
    // A mistake may make a loop endless.
    pytest.args(["--exitfirst", "--timeout=60", "--disable-warnings"]).args(args);
    pytest.env("PYTHONPATH", package).env(product::MUTATION, &mutation.name).stderr(Stdio::inherit());
    let begun = Instant::now();
    let output = pytest.output().context("cannot start pytest")?;
    let seconds = begun.elapsed().as_secs_f64();
    if output.status.success() {
        return Ok((None, seconds));
    }
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let failed = said.lines().find_map(|line| line.strip_prefix("FAILED ").or_else(|| line.strip_prefix("ERROR ")));
    let failed = failed.map_or_else(|| output.status.to_string(), |line| line.chars().take(160).collect());
    Ok((Some(failed), seconds))
}

/// All mutations, in the order of the files they are in.
fn mutations() -> Result<Vec<Mutation>> {
    let listed = command("git").args(["ls-files", "abi", "daemon", "shim"]).output().context("git")?;
    let mut found: Vec<Mutation> = Vec::new();
    for file in
        String::from_utf8(listed.stdout)?.lines().filter(|file| Path::new(file).extension().is_some_and(|e| e == "rs"))
    {
        let text = fs::read_to_string(root().join(file)).unwrap_or_default();
        for name in text.split(MARK).skip(1).filter_map(|rest| rest.split('"').next()) {
            ensure!(found.iter().all(|known| known.name != name), "two mutations are named {name}");
            found.push(Mutation { name: name.to_owned(), file: PathBuf::from(file) });
        }
    }
    Ok(found)
}
