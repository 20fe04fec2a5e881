//! Wheels: one per version of Python with all that is compiled inside, and one of Python files alone, which pip takes where
//! none of the others fits. Each is tried in a fresh environment that has torch and what torch needs, and nothing else.

use crate::product;
use crate::python::{FIRST, PLAIN, Python};
use crate::run::{Step, command, root};
use crate::setup;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the names of all wheels begin with.
const RELEASE: &str = concat!("flambeau-", env!("CARGO_PKG_VERSION"));

/// Makes the wheels, those of these versions and the one without extension, and tries each.
pub fn all(pythons: &[Python], out: &Path) -> Result<()> {
    // The tools that make wheels are in its environment.
    setup::all(FIRST)?;
    let mut made = Vec::new();
    for python in pythons {
        setup::all(*python)?;
        eprintln!("==> Wheel for Python {python}");
        let wheel = compiled(*python, out)?;
        check(*python, &wheel, "full")?;
        made.push(wheel);
    }
    eprintln!("==> Wheel for every other Python");
    let plain = pack("py3-none-any", None, out)?;
    check(FIRST, &plain, "wrapper-only")?;
    if PLAIN.is_there() {
        check(PLAIN, &plain, "wrapper-only")?;
    } else {
        eprintln!("==> Python {PLAIN}: left out, this machine has none");
    }
    made.push(plain);
    for wheel in made {
        println!("{} ({:.1} MB)", wheel.display(), fs::metadata(&wheel)?.len() as f64 / 1e6);
    }
    Ok(())
}

/// The wheel for one version. Its tag says the oldest C library that all its files can do with; libraries that not every
/// Linux has are in it. Auditwheel finds out both.
fn compiled(python: Python, out: &Path) -> Result<PathBuf> {
    product::compile(python, &[])?;
    let files = work().join(format!("files-{python}"));
    product::lay_out(python, &files)?;
    needs_no_libpython(&files.join(format!("_native{}", python.extension_suffix()?)))?;
    let version = format!("cp{}", python.to_string().replace('.', ""));
    let unchecked = pack(&format!("{version}-{version}-linux_{}", std::env::consts::ARCH), Some(&files), &work())?;
    for old in found(out, &version)? {
        fs::remove_file(old)?;
    }
    // Names of functions and lines are most of the size.
    let repair = ["-m", "auditwheel", "repair", "--strip", "--wheel-dir"];
    Step::new("Platform tag and libraries").run(tool("python").args(repair).arg(out).arg(unchecked))?;
    let wheel = found(out, &version)?.pop().context("auditwheel wrote no wheel")?;
    seal_plugins(&wheel, out)?;
    Ok(wheel)
}

/// Puts the seals of plug-ins back, which auditwheel takes off by what it changes in the files.
fn seal_plugins(wheel: &Path, out: &Path) -> Result<()> {
    let folder = work().join("unpacked");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let unpack = ["-m", "wheel", "unpack", "--dest"];
    Step::new("Unpacking").run(tool("python").args(unpack).arg(&folder).arg(wheel))?;
    let content = folder.join(RELEASE);
    for entry in fs::read_dir(content.join("flambeau/_plugins"))? {
        product::seal(&entry?.path())?;
    }
    fs::remove_file(wheel)?;
    Step::new("Packing").run(tool("python").args(["-m", "wheel", "pack", "--dest-dir"]).arg(out).arg(content))?;
    ensure!(wheel.exists(), "the wheel got another name when it was packed again: {}", wheel.display());
    Ok(())
}

/// Auditwheel lets it pass, but many Pythons are programs without a library.
fn needs_no_libpython(extension: &Path) -> Result<()> {
    let answer = tool("patchelf").arg("--print-needed").arg(extension).output().context("cannot start patchelf")?;
    let shown = extension.display();
    ensure!(answer.status.success(), "patchelf cannot read {shown}: {}", String::from_utf8_lossy(&answer.stderr));
    let libpython = String::from_utf8_lossy(&answer.stdout).contains("libpython");
    ensure!(!libpython, "{shown} needs libpython: build it with PYO3_BUILD_EXTENSION_MODULE=1, as product.rs does");
    Ok(())
}

/// Wheels of this release in a folder for a version of Python, like "cp312".
fn found(folder: &Path, version: &str) -> Result<Vec<PathBuf>> {
    let front = format!("{RELEASE}-{version}-");
    let Ok(entries) = fs::read_dir(folder) else { return Ok(Vec::new()) };
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    Ok(paths.into_iter().filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(&front))).collect())
}

/// What hatchling makes of `pyproject.toml`, the Python files and these files.
fn pack(tag: &str, files: Option<&Path>, out: &Path) -> Result<PathBuf> {
    let mut hatchling = tool("python");
    hatchling.args(["-m", "hatchling", "build", "--target", "wheel", "--directory"]).arg(out);
    hatchling.env("FLAMBEAU_WHEEL_TAG", tag);
    if let Some(files) = files {
        hatchling.env("FLAMBEAU_WHEEL_FILES", files);
    }
    Step::new("Packing").run(&mut hatchling)?;
    Ok(out.join(format!("{RELEASE}-{tag}.whl")))
}

/// Installs the wheel in an environment of its own and tries it there.
fn check(python: Python, wheel: &Path, mode: &str) -> Result<()> {
    let environment = work().join(format!("environment-{python}"));
    if environment.exists() {
        fs::remove_dir_all(&environment)?;
    }
    let interpreter = python.interpreter()?;
    let make = ["-m", "venv", "--without-pip"];
    Step::new("Fresh environment").run(command(&interpreter).args(make).arg(&environment))?;
    if python != PLAIN {
        let packages = environment.join(format!("lib/python{python}/site-packages"));
        Step::new("Torch").run(command(interpreter).arg("tests/wheel/only_torch.py").arg(packages))?;
    }
    let inside = environment.join("bin/python");
    let install = ["install", "--isolated", "--no-index", "--no-deps", "--quiet"];
    Step::new("Installing")
        .run(tool("python").args(["-m", "pip", "--python"]).arg(&inside).args(install).arg(wheel))?;
    // Another copy of the package may be on the path of whoever runs this.
    let mut smoke = command(inside);
    Step::new("Smoke test").run(smoke.args(["tests/wheel/smoke.py", mode]).env_remove("PYTHONPATH"))
}

/// Where wheels are made and tried.
fn work() -> PathBuf {
    root().join("target/packaging")
}

/// A program of the first environment, where it finds the others.
fn tool(name: &str) -> Command {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let bin = root().join(".venv/bin");
    let folders = std::iter::once(bin.clone()).chain(std::env::split_paths(&folders));
    let mut tool = command(bin.join(name));
    tool.env("PATH", std::env::join_paths(folders).unwrap_or_default());
    tool
}
