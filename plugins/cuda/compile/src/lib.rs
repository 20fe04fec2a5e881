//! CUDA back end, compile half: kernel IR to CUDA C (`flambeau_cuda_source`), and that to a cubin by NVRTC, which comes with the
//! user's torch. Needs neither a GPU nor a driver. Runs in a worker process.
#![expect(unsafe_code, reason = "NVRTC's functions are called")]

mod nvrtc;
#[cfg(test)]
mod tests;

use flambeau_cuda_artifact::{NAME, capabilities, encode};
use flambeau_cuda_source::source;
use flambeau_plugin::abi::MEMORY_TORCH;
use flambeau_plugin::export::CompileBackend;
use flambeau_plugin::kernel::Kernel;
use flambeau_plugin::{Description, export_compile_half};
use nvrtc::{Nvrtc, nvrtc};

struct Cuda;

impl CompileBackend for Cuda {
    fn describe() -> Result<Description, String> {
        let targets: Vec<&str> = nvrtc()?.targets().iter().map(String::as_str).collect();
        let description = Description::of_compile_half(NAME, env!("CARGO_PKG_VERSION"), &targets, &capabilities());
        Ok(Description { memory: MEMORY_TORCH, ..description })
    }

    fn compile(kernels: &[Kernel], target: &str) -> Result<Vec<Result<Vec<u8>, String>>, String> {
        let nvrtc = nvrtc()?;
        if !nvrtc.targets().iter().any(|known| known == target) {
            return Err(format!(
                "NVRTC {} compiles nothing for {target}, only for {}; install a torch whose CUDA has this GPU",
                nvrtc.version(),
                nvrtc.targets().join(", ")
            ));
        }
        Ok(kernels.iter().map(|kernel| compile(kernel, target, nvrtc)).collect())
    }
}

export_compile_half!(Cuda);

/// The artifact of one kernel.
fn compile(kernel: &Kernel, target: &str, nvrtc: &Nvrtc) -> Result<Vec<u8>, String> {
    let source = source(kernel, target)?;
    let cubin = nvrtc.compile(&source.text, target)?.cubin()?;
    Ok(encode(source.header, &cubin))
}
