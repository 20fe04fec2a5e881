//! Building the product and laying it out inside the Python package, as a wheel would hold it.

use crate::python::{FIRST, Python};
use crate::run::{Step, cargo, command, root};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};

/// Crates of the product but for the extension, and where their files go: below `target/release`, and below the Python
/// package.
const FILES: &[(&str, &str, &str)] = &[
    (DAEMON, "flambeaud", "_bin/flambeaud"),
    ("flambeau-cpu-compile", "libflambeau_cpu_compile.so", "_plugins/libflambeau_cpu_compile.so"),
    ("flambeau-cpu-launch", "libflambeau_cpu_launch.so", "_plugins/libflambeau_cpu_launch.so"),
    ("flambeau-opencl-compile", "libflambeau_opencl_compile.so", "_plugins/libflambeau_opencl_compile.so"),
    ("flambeau-opencl-launch", "libflambeau_opencl_launch.so", "_plugins/libflambeau_opencl_launch.so"),
    ("flambeau-cuda-compile", "libflambeau_cuda_compile.so", "_plugins/libflambeau_cuda_compile.so"),
    ("flambeau-cuda-launch", "libflambeau_cuda_launch.so", "_plugins/libflambeau_cuda_launch.so"),
];

/// What the seal of a plug-in adds to its file (`abi/plugin/src/file.rs`).
const SEAL_BYTES: usize = 40;

/// The crate of the daemon.
const DAEMON: &str = "flambeau-server";

/// The crate of `flambeau._native`.
pub const EXTENSION: &str = "flambeau-shim";

/// Builds everything, the extension for one version of Python, lays it out in the Python package of this folder, and
/// installs that, editable, in the environment.
pub fn build(python: Python) -> Result<()> {
    compile(python, &TESTED)?;
    lay_out(python, &root().join("shim/python/flambeau"))?;
    // One that is named without a version would be loaded by all of them.
    let unnamed = root().join("shim/python/flambeau/_native.so");
    if unnamed.exists() {
        fs::remove_file(unnamed)?;
    }
    python.install_package()
}

/// The feature of the extension that holds what tests and benchmarks use. None of it gets into a wheel.
pub const TESTED: [&str; 2] = ["--features", "flambeau-shim/testing"];

/// Builds everything in release mode, the extension for one version of Python with these features.
pub fn compile(python: Python, features: &[&str]) -> Result<()> {
    let mut build = release();
    for (package, _, _) in FILES {
        build.args(["--package", package]);
    }
    Step::new("Build").run(&mut build)?;
    // Its dependencies are built anew when what they ask of Python changes: it has a folder for each version, and none with
    // the unit tests, which are programs and so linked with Python. The extension is loaded by one that is.
    begin_with_first(python)?;
    Step::new("Extension").run(extension(python).args(features))
}

/// Most crates that the extension is built from ask nothing of Python: a further version's folder begins as a copy of the
/// first one's, and only the rest is built anew.
fn begin_with_first(python: Python) -> Result<()> {
    let (own, first) = (target(python), target(FIRST));
    if own.exists() || !first.exists() {
        return Ok(());
    }
    Step::new("Copy").run(command("cp").args(["--archive", "--reflink=auto"]).args([first, own]))
}

/// The build of the extension for one version of Python.
fn extension(python: Python) -> std::process::Command {
    let mut build = release();
    build.args(["--package", EXTENSION, "--target-dir"]).arg(target(python));
    build.env("PYO3_PYTHON", python.program()).env("PYO3_BUILD_EXTENSION_MODULE", "1");
    build
}

/// Builds the product, and beside it one with mistakes that can be switched on (`cargo xtask mutants`): a folder to import it
/// from, which has the name that tests look for.
pub fn build_mutated(python: Python) -> Result<PathBuf> {
    build(python)?;
    let folder = root().join("target/mutants/shim/python");
    let package = folder.join("flambeau");
    fs::create_dir_all(&folder)?;
    let shipped = root().join("shim/python/flambeau");
    Step::new("Copy").run(command("cp").args(["--archive", "--no-target-directory"]).args([&shipped, &package]))?;
    Step::new("Daemon with mutations").run(release().args(["--package", DAEMON, "--features", "mutations"]))?;
    Step::new("Extension with mutations").run(extension(python).args(TESTED).args(["--features", "mutations"]))?;
    place(&root().join("target/release/flambeaud"), &package.join("_bin/flambeaud"))?;
    place_extension(python, &package)?;
    Ok(folder)
}

/// Builds with and without mutations are made in the same folders: no file with some may get into the product.
fn makes_no_mistakes(built: &Path) -> Result<()> {
    let bytes = fs::read(built).with_context(|| format!("cannot read {}", built.display()))?;
    let mutated = bytes.windows(MUTATION.len()).any(|window| window == MUTATION.as_bytes());
    ensure!(!mutated, "{} was built with the feature `mutations`", built.display());
    Ok(())
}

fn place_extension(python: Python, package: &Path) -> Result<()> {
    let extension = format!("_native{}", python.extension_suffix()?);
    place(&target(python).join("release/lib_native.so"), &package.join(extension))
}

/// What chooses a mistake in a build that has some.
pub const MUTATION: &str = "FLAMBEAU_TEST_MUTATION";

/// Copies what was built into a folder that is the Python package or is merged with it.
pub fn lay_out(python: Python, package: &Path) -> Result<()> {
    for (_, built, placed) in FILES {
        let built = root().join("target/release").join(built);
        makes_no_mistakes(&built)?;
        place(&built, &package.join(placed))?;
    }
    makes_no_mistakes(&target(python).join("release/lib_native.so"))?;
    place_extension(python, package)
}

/// Where cargo builds the extension.
fn target(python: Python) -> PathBuf {
    root().join(format!("target/python{python}"))
}

fn release() -> std::process::Command {
    let mut build = cargo();
    build.args(["build", "--release", "--quiet"]);
    build
}

/// Copies beside the target, then renames: a process that runs the old file keeps it. Plug-ins are sealed.
fn place(from: &Path, to: &Path) -> Result<()> {
    let sealed = to.parent().is_some_and(|folder| folder.ends_with("_plugins"));
    if same(from, to, sealed) {
        return Ok(());
    }
    let folder = to.parent().context("no parent folder")?;
    fs::create_dir_all(folder)?;
    let fresh = to.with_extension("new");
    fs::copy(from, &fresh).with_context(|| format!("cannot copy {}", from.display()))?;
    if sealed {
        seal(&fresh)?;
    }
    fs::rename(&fresh, to).with_context(|| format!("cannot place {}", to.display()))
}

/// Seals a plug-in's file.
pub fn seal(file: &Path) -> Result<()> {
    Step::new("Seal").run(command(root().join("target/release/flambeaud")).arg("seal").arg(file))
}

/// Whether one is a copy of the other, which may have a seal more.
fn same(from: &Path, to: &Path, sealed: bool) -> bool {
    let seal = if sealed { SEAL_BYTES } else { 0 };
    matches!((fs::read(from), fs::read(to)), (Ok(a), Ok(b)) if b.len() == a.len() + seal && b.starts_with(&a))
}
