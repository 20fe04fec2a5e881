//! What a change touches: files, by git; crates and what depends on them, by cargo.

use crate::run::{cargo, command};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Files of the root that each crate is built by.
const OF_ALL_CRATES: &[&str] = &["Cargo.toml", "Cargo.lock", ".cargo/config.toml"];

/// The revision that a change is seen against: the merge base with the main branch.
pub fn base() -> Result<String> {
    // Commits on a local main branch that were not pushed are part of the change.
    let answers = ["origin/main", "main"].map(|main| output(command("git").args(["merge-base", "HEAD", main])));
    let found = answers.into_iter().find_map(Result::ok).context("there is no main branch: say `--since REV`")?;
    Ok(found.trim().to_owned())
}

/// Files that differ from a revision, in commits or in the working tree, new ones with them; seen from the root.
pub fn files(since: &str) -> Result<Vec<PathBuf>> {
    let tracked = output(command("git").args(["diff", "--name-only", since, "--"]))?;
    let new = output(command("git").args(["ls-files", "--others", "--exclude-standard"]))?;
    let files: BTreeSet<PathBuf> = tracked.lines().chain(new.lines()).map(PathBuf::from).collect();
    Ok(files.into_iter().collect())
}

/// The crates of the workspace.
pub struct Crates(BTreeMap<String, Crate>);

struct Crate {
    folder: PathBuf,
    /// Ours that it is built or tested with.
    uses: Vec<String>,
}

impl Crates {
    /// As cargo lists them.
    pub fn read() -> Result<Crates> {
        let listed = output(cargo().args(["metadata", "--format-version=1", "--no-deps", "--offline"]))?;
        let listed: Value = serde_json::from_str(&listed).context("cargo metadata")?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let root = PathBuf::from(text(&listed["workspace_root"]));
        let mut crates = BTreeMap::new();
        for package in listed["packages"].as_array().context("cargo metadata lists no packages")? {
            let manifest = PathBuf::from(text(&package["manifest_path"]));
            let folder = manifest.parent().and_then(|f| f.strip_prefix(&root).ok()).context("a crate outside")?;
            let dependencies = package["dependencies"].as_array().into_iter().flatten();
            let uses = dependencies.filter(|d| !d["path"].is_null()).map(|d| text(&d["name"])).collect();
            crates.insert(text(&package["name"]), Crate { folder: folder.to_path_buf(), uses });
        }
        Ok(Crates(crates))
    }

    /// Those that hold one of the files.
    pub fn holding(&self, files: &[PathBuf]) -> BTreeSet<String> {
        let all = files.iter().any(|file| OF_ALL_CRATES.iter().any(|name| file == Path::new(name)));
        let held = |krate: &Crate| all || files.iter().any(|file| file.starts_with(&krate.folder));
        self.0.iter().filter(|(_, krate)| held(krate)).map(|(name, _)| name.clone()).collect()
    }

    /// These and all that use one of them, directly or not.
    pub fn reached_from(&self, changed: &BTreeSet<String>) -> BTreeSet<String> {
        let mut reached = changed.clone();
        loop {
            let using = self.0.iter().filter(|(_, krate)| krate.uses.iter().any(|used| reached.contains(used)));
            let more: Vec<String> =
                using.map(|(name, _)| name.clone()).filter(|name| !reached.contains(name)).collect();
            if more.is_empty() {
                return reached;
            }
            reached.extend(more);
        }
    }
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {}", command.get_program().display()))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8(output.stdout)?)
}
