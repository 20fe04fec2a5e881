//! What a new machine lacks: system packages, the Python environments. Each part is skipped once it is there.

use crate::python::Python;
use crate::run::{Step, cargo, command, root};
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Debian packages and a file each of them brings.
const PACKAGES: &[(&str, &str)] = &[
    ("llvm-19-dev", "/usr/lib/llvm-19/bin/llvm-config"),
    ("libpolly-19-dev", "/usr/lib/llvm-19/lib/libPolly.a"),
    ("libzstd-dev", "/usr/include/zstd.h"),
    ("zlib1g-dev", "/usr/include/zlib.h"),
    ("libffi-dev", "/usr/include/x86_64-linux-gnu/ffi.h"),
    ("libxml2-dev", "/usr/include/libxml2/libxml/parser.h"),
    ("g++", "/usr/bin/g++"),
    // The OpenCL back end is tested on a driver for CPUs.
    ("ocl-icd-libopencl1", "/usr/lib/x86_64-linux-gnu/libOpenCL.so.1"),
    ("pocl-opencl-icd", "/etc/OpenCL/vendors/pocl.icd"),
    // A test reads the page of `flambeau explain --html` in it.
    ("chromium", "/usr/bin/chromium"),
];

/// The version of cargo-deny that `deny.toml` was written for.
const CARGO_DENY: &str = "0.20.2";

/// GB that the environments and the builds of all versions take in a fresh checkout.
const NEEDED: u64 = 20;

/// Everything that is needed to build for this version of Python and to test with it.
pub fn all(python: Python) -> Result<()> {
    system()?;
    python.set_up()
}

/// What is needed but for the Python environments.
pub fn system() -> Result<()> {
    warn_of_space();
    system_packages()
}

/// A fresh checkout looks for the space first: what fails for want of it later on does not say so.
fn warn_of_space() {
    if root().join(".venv").exists() {
        return;
    }
    let asked = command("df").args(["-Pk", "."]).output();
    let text = asked.map(|done| String::from_utf8_lossy(&done.stdout).into_owned()).unwrap_or_default();
    let free = text.lines().nth(1).and_then(|line| line.split_whitespace().nth(3)?.parse::<u64>().ok());
    if let Some(free) = free.map(|kilobytes| kilobytes >> 20).filter(|free| *free < NEEDED) {
        eprintln!(
            "    {free} GB are free on this disk. All of a fresh checkout takes {NEEDED}: make room if it runs out"
        );
    }
}

fn system_packages() -> Result<()> {
    let missing: Vec<&str> =
        PACKAGES.iter().filter(|(_, file)| !Path::new(file).exists()).map(|(name, _)| *name).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let line = format!("apt-get update && apt-get install -y --no-install-recommends {}", missing.join(" "));
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|o| o.stdout.trim_ascii() == b"0");
    if !is_root {
        bail!("system packages are missing. Run this, then try again:\n    sudo sh -c '{line}'");
    }
    Step::new("System packages").run(command("sh").args(["-c", &line]).env("DEBIAN_FRONTEND", "noninteractive"))
}

/// The program `cargo-deny`: an installed one, else one that is built at first use and kept in the user's cache, for other
/// checkouts. Where it cannot be built the check is left out, and a line says how to get it.
pub fn cargo_deny() -> Option<PathBuf> {
    let tools = tools();
    let own = tools.join("bin/cargo-deny");
    let answers = |program: &Path| Command::new(program).arg("--version").output().is_ok_and(|o| o.status.success());
    if let Some(found) = [PathBuf::from("cargo-deny"), own.clone()].into_iter().find(|p| answers(p)) {
        return Some(found);
    }
    let install = ["install", "cargo-deny", "--version", CARGO_DENY, "--locked"];
    let mut build = cargo();
    build.args(install).arg("--root").arg(&tools);
    // It runs for a second: to optimise it takes longer than all its runs do.
    build.envs(
        [("OPT_LEVEL", "0"), ("LTO", "off"), ("CODEGEN_UNITS", "16"), ("DEBUG", "0")]
            .map(|(name, value)| (format!("CARGO_PROFILE_RELEASE_{name}"), value)),
    );
    let built = Step::new("cargo-deny, once (two minutes)").run(&mut build);
    if let Err(error) = built {
        eprintln!("    cargo-deny is left out: {error:#}\n    To have it: cargo {}", install.join(" "));
        return None;
    }
    Some(own)
}

/// Where programs are kept that only this project's automation uses, by their versions.
fn tools() -> PathBuf {
    let home = std::env::home_dir().map(|home| home.join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute()).or(home);
    let of = |cache: PathBuf| cache.join(format!("flambeau-xtask/cargo-deny-{CARGO_DENY}"));
    cache.map_or_else(|| root().join("target/tools"), of)
}
