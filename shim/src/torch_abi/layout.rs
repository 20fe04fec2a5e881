//! Where a `c10::TensorImpl` keeps what guards compare, found on probe tensors at start-up: reading it takes a tenth of the
//! time that torch's functions take.

use flambeau_ir::tensor::Device;

/// Sizes and strides that lie in the `TensorImpl` itself.
const INLINE: usize = 5;

/// Offsets in a `TensorImpl`, whose addresses the functions take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    /// Word of the `SizesAndStrides`: the number of dimensions, then sizes and strides in place, or a pointer to both.
    pub sizes: usize,
    /// Byte of the dtype's number, two bytes; the device's type and index follow.
    pub typed: usize,
    /// Word of the number of elements.
    pub numel: usize,
    /// Word that is null while autograd knows nothing of the tensor.
    pub autograd: usize,
}

impl Layout {
    /// Sizes, in elements.
    ///
    /// # Safety
    /// A live `TensorImpl` of a strided tensor; so for all functions here.
    pub unsafe fn sizes<'a>(self, body: *const u64) -> &'a [i64] {
        // SAFETY: the layout was checked on probes.
        unsafe { std::slice::from_raw_parts(self.dims(body).0, *body.add(self.sizes) as usize) }
    }

    /// Strides, in elements.
    ///
    /// # Safety
    /// As [`Layout::sizes`].
    pub unsafe fn strides<'a>(self, body: *const u64) -> &'a [i64] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(self.dims(body).1, *body.add(self.sizes) as usize) }
    }

    unsafe fn dims(self, body: *const u64) -> (*const i64, *const i64) {
        // SAFETY: as above.
        unsafe {
            let (count, values) = (*body.add(self.sizes) as usize, body.add(self.sizes + 1).cast::<i64>());
            if count <= INLINE {
                return (values, values.add(INLINE));
            }
            let values = *values.cast::<*const i64>();
            (values, values.add(count))
        }
    }

    /// Number of elements.
    ///
    /// # Safety
    /// As [`Layout::sizes`].
    pub unsafe fn numel(self, body: *const u64) -> i64 {
        // SAFETY: as above.
        unsafe { *body.add(self.numel) as i64 }
    }

    /// Torch's number of the dtype.
    ///
    /// # Safety
    /// As [`Layout::sizes`].
    pub unsafe fn dtype(self, body: *const u64) -> i32 {
        // SAFETY: as above.
        unsafe { i32::from(*body.byte_add(self.typed).cast::<u16>()) }
    }

    /// The device; CPU has index -1.
    ///
    /// # Safety
    /// As [`Layout::sizes`].
    pub unsafe fn device(self, body: *const u64) -> Device {
        // SAFETY: as above.
        unsafe {
            let kind = *body.byte_add(self.typed + 2).cast::<u8>();
            let index = if kind == 0 { -1 } else { *body.byte_add(self.typed + 3).cast::<i8>() };
            Device { kind, index }
        }
    }

    /// Whether autograd knows something of the tensor: without, it requires no gradient.
    ///
    /// # Safety
    /// As [`Layout::sizes`].
    pub unsafe fn has_autograd(self, body: *const std::ffi::c_void) -> bool {
        // SAFETY: as above.
        unsafe { *body.cast::<u64>().add(self.autograd) != 0 }
    }
}
