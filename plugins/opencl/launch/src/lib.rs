//! OpenCL back end, launch half: runs what the compile half made. No code generator here: every client loads this.
#![expect(unsafe_code, reason = "kernels are launched with the caller's pointers")]

use flambeau_opencl_device::{Kernel, NAME, capabilities, devices, explain};
use flambeau_plugin::abi;
use flambeau_plugin::export::LaunchBackend;
use flambeau_plugin::{Description, export_launch_half};
use std::ffi::c_void;

struct OpenCl;

impl LaunchBackend for OpenCl {
    type Executable = Kernel;

    fn describe() -> Result<Description, String> {
        let devices = devices()?.iter().map(|device| abi::Device::new(&device.name, &[&device.target])).collect();
        Ok(Description::of_launch_half(NAME, env!("CARGO_PKG_VERSION"), devices, &capabilities()))
    }

    fn load(artifact: &[u8], device: u32) -> Result<Kernel, String> {
        let known = devices()?;
        let device = known.get(device as usize).ok_or_else(|| format!("there is no device {device}"))?;
        Kernel::load(device, artifact)
    }

    unsafe fn launch(
        kernel: &Kernel,
        buffers: *const *mut c_void,
        scalars: *const i64,
        _stream: *mut c_void,
        threads: u32,
    ) -> i32 {
        // SAFETY: the caller's promise.
        unsafe { kernel.launch(buffers, scalars, threads) }
    }

    fn explain(status: i32) -> String {
        explain(status)
    }
}

export_launch_half!(OpenCl);
