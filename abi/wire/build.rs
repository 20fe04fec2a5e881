//! Computes `FLAMBEAU_BUILD`: a hash of every source that shapes what the daemon answers and how it is said.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// Folders whose sources count. The shim is left out: it changes no stored result and speaks `abi/wire`.
const ROOTS: [&str; 4] = ["abi", "daemon", "plugins", "storage"];

fn main() {
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../..");
    let mut files = Vec::new();
    for folder in ROOTS {
        collect(&root.join(folder), &mut files);
    }
    files.push(root.join("Cargo.lock"));
    files.sort();
    let mut hasher = blake3::Hasher::new();
    for file in &files {
        println!("cargo::rerun-if-changed={}", file.display());
        let Ok(bytes) = fs::read(file) else { continue };
        let name = file.strip_prefix(&root).unwrap_or(file).to_string_lossy().into_owned();
        hasher.update(&(name.len() as u64).to_le_bytes()).update(name.as_bytes());
        hasher.update(&(bytes.len() as u64).to_le_bytes()).update(&bytes);
    }
    println!("cargo::rustc-env=FLAMBEAU_BUILD={}", &hasher.finalize().to_hex()[..16]);
}

/// What sources end in: Rust, tables, and what kernels are written in.
const ENDINGS: [&str; 5] = ["rs", "txt", "h", "cl", "cuh"];

/// Adds the sources and manifests below `folder`, tests apart; new files are noticed through `src` folders.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    if folder.ends_with("src") {
        println!("cargo::rerun-if-changed={}", folder.display());
    }
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            if !path.ends_with("tests") && !path.ends_with("target") {
                collect(&path, files);
            }
        } else if path.extension().is_some_and(|e| ENDINGS.iter().any(|ending| e == *ending))
            || path.ends_with("Cargo.toml")
        {
            files.push(path);
        }
    }
}
