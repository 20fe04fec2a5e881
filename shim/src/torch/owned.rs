//! A tensor handle that is deleted when it goes out of scope.

use super::{Handle, Status, Torch};
use crate::torch::outside::{ending, outside};
use flambeau_ir::kernel::DType;
use flambeau_ir::tensor::Device;
use std::fmt;

/// An owned `AtenTensorHandle`. Dropping it needs no GIL unless a Python object was made from it.
pub struct Owned {
    torch: &'static Torch,
    handle: Handle,
}

impl fmt::Debug for Owned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owned({:p})", self.handle)
    }
}

impl Owned {
    /// Takes ownership.
    ///
    /// # Safety
    /// `handle` is a new reference made by torch's C interface.
    pub unsafe fn new(torch: &'static Torch, handle: Handle) -> Owned {
        Owned { torch, handle }
    }

    /// Runs a constructor that writes a new handle.
    ///
    /// # Safety
    /// On success `make` has written a new reference.
    pub unsafe fn make(torch: &'static Torch, make: impl FnOnce(*mut Handle) -> Status) -> Result<Owned, String> {
        let [handle] = outside(|| {
            let mut handle = std::ptr::null_mut();
            torch.check(make(&raw mut handle)).map(|()| [handle])
        })?;
        Ok(Owned { torch, handle })
    }

    /// One more reference to a tensor.
    ///
    /// # Safety
    /// `handle` is a live tensor's.
    pub unsafe fn again(torch: &'static Torch, handle: Handle) -> Result<Owned, String> {
        // SAFETY: the caller's promise.
        unsafe { Self::make(torch, |ret| (torch.c.new_handle)(handle, ret)) }
    }

    /// An uninitialised tensor.
    pub fn empty(
        torch: &'static Torch,
        sizes: &[i64],
        strides: &[i64],
        dtype: DType,
        device: Device,
    ) -> Result<Owned, String> {
        let (dtype, kind) = (dtype as i32, i32::from(device.kind));
        // The CPU's index must be given as 0.
        let index = if device == Device::CPU { 0 } else { i32::from(device.index) };
        // SAFETY: both arrays have `sizes.len()` values; torch copies them.
        unsafe {
            Self::make(torch, |ret| {
                (torch.c.empty_strided)(sizes.len() as i64, sizes.as_ptr(), strides.as_ptr(), dtype, kind, index, ret)
            })
        }
    }

    /// A tensor over `base`'s storage; `offset` counts elements from `base`'s own first one.
    ///
    /// # Safety
    /// `base` is a live handle of a strided tensor.
    pub unsafe fn reinterpret(
        torch: &'static Torch,
        base: Handle,
        sizes: &[i64],
        strides: &[i64],
        offset: i64,
    ) -> Result<Owned, String> {
        // SAFETY: both arrays have `sizes.len()` values; torch copies them.
        unsafe {
            Self::make(torch, |ret| {
                (torch.c.reinterpret)(base, sizes.len() as i64, sizes.as_ptr(), strides.as_ptr(), offset, ret)
            })
        }
    }

    /// The handle, to be given up by whoever takes it.
    pub fn into_handle(self) -> Handle {
        std::mem::ManuallyDrop::new(self).handle
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: owned, and not used after this.
        ending(self.handle, || unsafe {
            (self.torch.c.delete)(self.handle);
        });
    }
}
