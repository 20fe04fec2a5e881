//! The stream of a device that a run's kernels are put into: torch's current one, so that they are in order with its own calls.

use crate::torch::{Status, Torch};
use flambeau_ir::device::{DeviceKind, Runs};
use flambeau_ir::tensor::Device;
use std::ffi::{CString, c_void};
use std::ptr::null_mut;

/// `aoti_torch_get_current_cuda_stream` and its like
type CurrentStream = unsafe extern "C" fn(i32, *mut *mut c_void) -> Status;

/// Where the kernels of a plan go.
pub enum Stream {
    /// Nowhere: they run at once, on the processor.
    None,
    /// Torch's current stream of the device with this number.
    Current { device: i32, current: CurrentStream },
}

impl Stream {
    /// For tensors of this device.
    pub fn of(torch: &Torch, device: Device) -> Result<Stream, String> {
        match device.known() {
            Some(DeviceKind { runs: Runs::OnHost, .. }) => Ok(Stream::None),
            Some(kind @ DeviceKind { runs: Runs::OnStream, .. }) => {
                let name = format!("aoti_torch_get_current_{}_stream", kind.name);
                let address = CString::new(name).map_or(null_mut(), |name| torch.symbol(&name));
                if address.is_null() {
                    return Err(format!("this torch does not say which {} stream is its current one", kind.name));
                }
                // SAFETY: the symbol has this signature in torch's public headers.
                let current = unsafe { std::mem::transmute::<*mut c_void, CurrentStream>(address) };
                Ok(Stream::Current { device: device.index.into(), current })
            }
            _ => Err(format!("plans do not run on {device}")),
        }
    }

    /// The stream that is current in this thread.
    #[inline]
    pub fn current(&self, torch: &Torch) -> Result<*mut c_void, String> {
        let Stream::Current { device, current } = self else { return Ok(null_mut()) };
        let mut stream = null_mut();
        // SAFETY: writes one pointer.
        torch.check(unsafe { current(*device, &raw mut stream) })?;
        Ok(stream)
    }
}
