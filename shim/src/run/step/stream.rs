//! The stream of a device that a run's kernels are put into: torch's current one, so that they are in order with its own calls.

use crate::torch::{Status, Torch};
use flambeau_ir::tensor::Device;
use std::ffi::c_void;
use std::ptr::null_mut;

/// `aoti_torch_get_current_cuda_stream`
type CurrentStream = unsafe extern "C" fn(i32, *mut *mut c_void) -> Status;

/// Where the kernels of a plan go.
pub enum Stream {
    /// Nowhere: they run at once, on the processor.
    None,
    /// Torch's current stream of this CUDA device.
    Cuda { device: i32, current: CurrentStream },
}

impl Stream {
    /// For tensors of this device.
    pub fn of(torch: &Torch, device: Device) -> Result<Stream, String> {
        match device.kind {
            0 => Ok(Stream::None),
            Device::CUDA_KIND => {
                let address = torch.symbol(c"aoti_torch_get_current_cuda_stream");
                if address.is_null() {
                    return Err("this torch does not say which CUDA stream is its current one".into());
                }
                // SAFETY: the symbol has this signature in torch's public headers.
                let current = unsafe { std::mem::transmute::<*mut c_void, CurrentStream>(address) };
                Ok(Stream::Cuda { device: device.index.into(), current })
            }
            _ => Err(format!("plans do not run on {device}")),
        }
    }

    /// The stream that is current in this thread.
    #[inline]
    pub fn current(&self, torch: &Torch) -> Result<*mut c_void, String> {
        let Stream::Cuda { device, current } = self else { return Ok(null_mut()) };
        let mut stream = null_mut();
        // SAFETY: writes one pointer.
        torch.check(unsafe { current(*device, &raw mut stream) })?;
        Ok(stream)
    }
}
