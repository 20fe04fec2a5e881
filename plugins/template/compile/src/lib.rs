//! The compile half: an artifact is the kernel itself, for the other half to interpret. Runs in worker processes.
//!
//! To have code for a device instead, generate it in `artifact` from the kernel, which is documented in
//! `flambeau_plugin::kernel`.

use flambeau_plugin::export::{CompileBackend, backend_name};
use flambeau_plugin::kernel::Kernel;
use flambeau_plugin::reference::capabilities;
use flambeau_plugin::{Description, export_compile_half};

/// What artifacts of this back end begin with; as in the other half. Has to change with their form.
const MAGIC: &str = concat!(env!("CARGO_PKG_VERSION"), " interpreted");

/// What kernels are compiled for; as in the other half. Names all that shapes an artifact, like a device's features.
const TARGET: &str = "interpreter";

struct Backend;

impl CompileBackend for Backend {
    fn describe() -> Result<Description, String> {
        let name = backend_name(env!("CARGO_PKG_NAME"));
        // A device with no f64, say, takes it out of these; both halves say the same.
        Ok(Description::of_compile_half(&name, env!("CARGO_PKG_VERSION"), &[TARGET], &capabilities()))
    }

    fn compile(kernels: &[Kernel], target: &str) -> Result<Vec<Result<Vec<u8>, String>>, String> {
        if target != TARGET {
            return Err(format!("there is no target {target}, only {TARGET}"));
        }
        Ok(kernels.iter().map(artifact).collect())
    }
}

/// What the launch half needs to run the kernel, or a sentence that says why there is none.
fn artifact(kernel: &Kernel) -> Result<Vec<u8>, String> {
    capabilities().check(kernel)?;
    postcard::to_stdvec(&(MAGIC, kernel)).map_err(|error| error.to_string())
}

export_compile_half!(Backend);
