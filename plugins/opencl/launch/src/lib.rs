//! OpenCL back end, launch half: runs what the compile half made. No code generator here: every client loads this.
#![expect(unsafe_code, reason = "kernels are launched with the caller's pointers")]

use flambeau_opencl_device::{Kernel, Memory, NAME, capabilities, devices, explain, memory};
use flambeau_plugin::abi::{self, MEMORY_EXTENSION};
use flambeau_plugin::export::{LaunchBackend, memory_table};
use flambeau_plugin::{Description, export_launch_half};
use std::ffi::c_void;
use std::ptr;

struct OpenCl;

impl LaunchBackend for OpenCl {
    type Executable = Kernel;

    fn describe() -> Result<Description, String> {
        let devices = devices()?.iter().map(|device| abi::Device::new(&device.name, &[&device.target])).collect();
        let said = Description::of_launch_half(NAME, env!("CARGO_PKG_VERSION"), devices, &capabilities());
        Ok(Description { memory: memory()?, ..said })
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

    fn extension(name: &str) -> *const c_void {
        if name == MEMORY_EXTENSION { ptr::from_ref(memory_table::<Memory>()).cast() } else { ptr::null() }
    }
}

export_launch_half!(OpenCl);
