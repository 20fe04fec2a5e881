//! Building the product and laying it out inside the Python package, as a wheel would hold it.

use crate::python::{FIRST, Python};
use crate::run::{Step, cargo, root};
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;

/// Crates of the product but for the extension, and where their files go: below `target/release`, and below the Python
/// package.
const FILES: &[(&str, &str, &str)] = &[
    ("flambeau-server", "flambeaud", "_bin/flambeaud"),
    ("flambeau-cpu-compile", "libflambeau_cpu_compile.so", "_plugins/libflambeau_cpu_compile.so"),
    ("flambeau-cpu-launch", "libflambeau_cpu_launch.so", "_plugins/libflambeau_cpu_launch.so"),
];

/// The crate of `flambeau._native`.
const EXTENSION: &str = "flambeau-shim";

/// What an installed wheel says of itself; torch finds its back end "flambeau" here.
const DIST_INFO: &[(&str, &str)] = &[
    ("METADATA", concat!("Metadata-Version: 2.1\nName: flambeau\nVersion: ", env!("CARGO_PKG_VERSION"), "\n")),
    ("entry_points.txt", "[torch_dynamo_backends]\nflambeau = flambeau._dynamo:backend\n"),
];

/// Builds everything in release mode, the extension for one version of Python, and copies it in place.
pub fn build(python: Python) -> Result<()> {
    let mut build = release();
    for (package, _, _) in FILES {
        build.args(["--package", package]);
    }
    // Crates that ask for the version of Python are built anew when it changes: each has a folder for them.
    let target = python.target();
    if python == FIRST {
        build.args(["--package", EXTENSION]);
    }
    Step::new("Build").run(&mut build)?;
    if python != FIRST {
        let mut build = release();
        build.args(["--package", EXTENSION, "--target-dir"]).arg(&target).env("PYO3_PYTHON", python.program());
        Step::new("Extension").run(&mut build)?;
    }
    let package = root().join("shim/python/flambeau");
    for (_, built, placed) in FILES {
        place(&root().join("target/release").join(built), &package.join(placed))?;
    }
    let extension = format!("_native{}", python.extension_suffix()?);
    place(&target.join("release/lib_native.so"), &package.join(extension))?;
    // One that is named without a version would be loaded by all of them.
    let unnamed = package.join("_native.so");
    if unnamed.exists() {
        fs::remove_file(unnamed)?;
    }
    let info = root().join(concat!("shim/python/flambeau-", env!("CARGO_PKG_VERSION"), ".dist-info"));
    fs::create_dir_all(&info)?;
    for (name, text) in DIST_INFO {
        fs::write(info.join(name), text)?;
    }
    Ok(())
}

fn release() -> std::process::Command {
    let mut build = cargo();
    build.args(["build", "--release", "--quiet"]);
    build
}

/// Copies beside the target, then renames: a process that runs the old file keeps it.
fn place(from: &Path, to: &Path) -> Result<()> {
    if same(from, to) {
        return Ok(());
    }
    let folder = to.parent().context("no parent folder")?;
    fs::create_dir_all(folder)?;
    let fresh = to.with_extension("new");
    fs::copy(from, &fresh).with_context(|| format!("cannot copy {}", from.display()))?;
    fs::rename(&fresh, to).with_context(|| format!("cannot place {}", to.display()))
}

fn same(from: &Path, to: &Path) -> bool {
    matches!((fs::read(from), fs::read(to)), (Ok(a), Ok(b)) if a == b)
}
