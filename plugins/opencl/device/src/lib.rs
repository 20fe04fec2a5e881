//! What the halves of the OpenCL back end share: the devices of this machine, the artifact format, and launches. No code
//! generator here.
//!
//! The library is `ocl-core`, and its raw functions where it has no others: for pointers of the host, and on the way of a launch.
#![expect(unsafe_code, reason = "OpenCL's functions are called, with kernels' arguments")]

pub mod artifact;
mod device;
mod loader;
mod memory;
mod own;
mod program;
mod scratch;

pub use device::{Device, capabilities, devices, memory};
pub use own::Memory;
pub use program::{ENTRY, Kernel, explain};

/// Name of the back end.
pub const NAME: &str = "opencl";

/// What it runs on, in sentences.
const DRIVER: &str = "OpenCL";
