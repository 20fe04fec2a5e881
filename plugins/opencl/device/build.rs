//! `cl-sys` has whoever uses it linked with libOpenCL, which a machine without OpenCL lacks, and one that builds flambeau may
//! lack too. An empty library of that name is linked instead; `src/loader.rs` has the functions, from the real one.

use std::path::PathBuf;
use std::{env, fs};

fn main() {
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    fs::write(folder.join("libOpenCL.a"), "!<arch>\n").expect("cargo made the folder");
    println!("cargo:rustc-link-search=native={}", folder.display());
    println!("cargo:rerun-if-changed=build.rs");
}
