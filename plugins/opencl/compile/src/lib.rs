//! OpenCL back end, compile half: kernel IR to OpenCL C (`source`, with `prelude.cl`), which the device's driver makes
//! its own code of. Runs in a worker process.

mod source;
#[cfg(test)]
mod tests;

use flambeau_c_text::simplified;
use flambeau_opencl_device::artifact::Header;
use flambeau_opencl_device::{Device, Kernel as Compiled, NAME, capabilities, devices, memory};
use flambeau_plugin::export::CompileBackend;
use flambeau_plugin::kernel::Kernel;
use flambeau_plugin::simplify::is_free;
use flambeau_plugin::{Description, export_compile_half};

struct OpenCl;

impl CompileBackend for OpenCl {
    fn describe() -> Result<Description, String> {
        let targets: Vec<&str> = devices()?.iter().map(|device| device.target.as_str()).collect();
        let said = Description::of_compile_half(NAME, env!("CARGO_PKG_VERSION"), &targets, &capabilities());
        Ok(Description { memory: memory()?, ..said })
    }

    fn compile(kernels: &[Kernel], target: &str) -> Result<Vec<Result<Vec<u8>, String>>, String> {
        let device = devices()?.iter().find(|device| device.target == target).ok_or_else(|| {
            format!(
                "no OpenCL device here is {target}; if a driver was installed or upgraded since the daemon started, \
                 `flambeau stop` has it looked for again"
            )
        })?;
        Ok(kernels.iter().map(|kernel| compile(kernel, device)).collect())
    }
}

export_compile_half!(OpenCl);

/// The artifact of one kernel.
fn compile(kernel: &Kernel, device: &'static Device) -> Result<Vec<u8>, String> {
    capabilities().check(kernel)?;
    let kernel = simplified(kernel)?;
    // The last row dimension is what threads share where all points are alike.
    let split = if is_free(&kernel) { kernel.dims.len() } else { kernel.outer };
    let header = Header::new(&device.target, &kernel, split);
    Compiled::compile(device, &source::program(&kernel, split, device), header)
}
