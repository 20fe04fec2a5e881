//! The compile half of a back end for tests: the CUDA back end's text, as it is, compiled for the processor by g++.

#[path = "../../../../daemon/codegen/examples/faulty/own_file.rs"]
mod own_file;

use flambeau_cuda_artifact::{capabilities, encode};
use flambeau_cuda_source::source;
use flambeau_plugin::Description;
use flambeau_plugin::export::CompileBackend;
use flambeau_plugin::kernel::Kernel;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

const HEADER: &str = include_str!("on_cpu/cuda.h");

/// What the CUDA back end would compile for.
const TARGET: &str = "sm_90";

/// As many as `cuda.h` hands on.
const MOST_ARGUMENTS: usize = 32;

struct OnCpu;

impl CompileBackend for OnCpu {
    fn describe() -> Result<Description, String> {
        Ok(Description::of_compile_half(&own_file::name(), env!("CARGO_PKG_VERSION"), &[TARGET], &capabilities()))
    }

    fn compile(kernels: &[Kernel], target: &str) -> Result<Vec<Result<Vec<u8>, String>>, String> {
        if target != TARGET {
            return Err(format!("there is no {target}"));
        }
        Ok(kernels.iter().map(compile).collect())
    }
}

flambeau_plugin::export_compile_half!(OnCpu);

fn compile(kernel: &Kernel) -> Result<Vec<u8>, String> {
    if kernel.params.len() + kernel.scalars as usize + 1 > MOST_ARGUMENTS {
        return Err(format!("more than {MOST_ARGUMENTS} arguments"));
    }
    let source = source(kernel, TARGET)?;
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let library = folder.path().join("kernel.so");
    let mut compiler = Command::new("g++");
    compiler.args([
        "-std=c++17",
        "-O1",
        "-w",
        "-shared",
        "-fPIC",
        "-mf16c",
        "-ffp-contract=off",
        "-fno-strict-aliasing",
    ]);
    compiler.args(["-x", "c++", "-", "-o"]).arg(&library).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut running = compiler.spawn().map_err(|error| format!("g++: {error}"))?;
    let text = format!("{HEADER}\n{}", source.text);
    running.stdin.take().map(|mut input| input.write_all(text.as_bytes()));
    let done = running.wait_with_output().map_err(|error| error.to_string())?;
    if !done.status.success() {
        return Err(format!("g++: {}", String::from_utf8_lossy(&done.stderr).lines().take(5).collect::<String>()));
    }
    Ok(encode(source.header, &fs::read(library).map_err(|error| error.to_string())?))
}
