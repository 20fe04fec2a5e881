//! Building the product and laying it out inside the Python package, as a wheel would hold it.

use crate::run::{Step, cargo, root};
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;

/// Crates of the product, and where their files go: below `target/release`, and below the Python package.
const FILES: &[(&str, &str, &str)] = &[
    ("flambeau-shim", "lib_native.so", "_native.so"),
    ("flambeau-server", "flambeaud", "_bin/flambeaud"),
    ("flambeau-cpu-compile", "libflambeau_cpu_compile.so", "_plugins/libflambeau_cpu_compile.so"),
    ("flambeau-cpu-launch", "libflambeau_cpu_launch.so", "_plugins/libflambeau_cpu_launch.so"),
];

/// What an installed wheel says of itself; torch finds its back end "flambeau" here.
const DIST_INFO: &[(&str, &str)] = &[
    ("METADATA", concat!("Metadata-Version: 2.1\nName: flambeau\nVersion: ", env!("CARGO_PKG_VERSION"), "\n")),
    ("entry_points.txt", "[torch_dynamo_backends]\nflambeau = flambeau._dynamo:backend\n"),
];

/// Builds everything in release mode and copies it in place.
pub fn build() -> Result<()> {
    let mut build = cargo();
    build.args(["build", "--release", "--quiet"]);
    for (package, _, _) in FILES {
        build.args(["--package", package]);
    }
    Step::new("Build").run(&mut build)?;
    let package = root().join("shim/python/flambeau");
    for (_, built, placed) in FILES {
        place(&root().join("target/release").join(built), &package.join(placed))?;
    }
    let info = root().join(concat!("shim/python/flambeau-", env!("CARGO_PKG_VERSION"), ".dist-info"));
    fs::create_dir_all(&info)?;
    for (name, text) in DIST_INFO {
        fs::write(info.join(name), text)?;
    }
    Ok(())
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
