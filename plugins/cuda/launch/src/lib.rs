//! CUDA back end, launch half: hands cubins to the driver and puts their kernels into torch's streams. No code generator here,
//! and no runtime library of CUDA: every client loads this.
#![expect(unsafe_code, reason = "the driver's functions are called, with the caller's pointers")]

mod device;
mod driver;
mod kernel;
#[cfg(test)]
mod tests;

use device::{Device, devices};
use flambeau_cuda_artifact::{NAME, capabilities};
use flambeau_plugin::abi::{self, MEMORY_TORCH};
use flambeau_plugin::export::LaunchBackend;
use flambeau_plugin::{Description, export_launch_half};
use kernel::Kernel;
use std::ffi::c_void;

/// What it runs on, in sentences.
const DRIVER: &str = "CUDA";

struct Cuda;

impl LaunchBackend for Cuda {
    type Executable = Kernel;

    fn describe() -> Result<Description, String> {
        let device = |device: &Device| abi::Device::new(&device.name, &[&device.target]);
        let devices = devices()?.iter().map(device).collect();
        let said = Description::of_launch_half(NAME, env!("CARGO_PKG_VERSION"), devices, &capabilities());
        Ok(Description { memory: MEMORY_TORCH, ..said })
    }

    fn load(artifact: &[u8], device: u32) -> Result<Kernel, String> {
        let known = devices()?;
        let device = known.get(device as usize).ok_or_else(|| format!("there is no CUDA device {device}"))?;
        Kernel::load(device, artifact)
    }

    #[inline]
    unsafe fn launch(
        kernel: &Kernel,
        buffers: *const *mut c_void,
        scalars: *const i64,
        stream: *mut c_void,
        _threads: u32,
    ) -> i32 {
        // SAFETY: the caller's promise.
        unsafe { kernel.launch(buffers, scalars, stream) }
    }

    fn explain(status: i32) -> String {
        kernel::explain(status)
    }
}

export_launch_half!(Cuda);
