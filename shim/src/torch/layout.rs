//! Where a `c10::TensorImpl` keeps what guards compare, found on probe tensors at start-up: reading it takes a tenth of the
//! time that torch's functions take.

use flambeau_ir::kernel::DType;
use flambeau_ir::tensor::Device;

/// Sizes and strides that lie in the `TensorImpl` itself.
pub(super) const INLINE: usize = 5;

/// Offsets in a `TensorImpl`, whose addresses the functions take.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Layout {
    /// Its words, or as many of them as were looked at.
    pub words: usize,
    /// Word of the `SizesAndStrides`: the number of dimensions, then sizes and strides in place, or a pointer to both.
    pub sizes: usize,
    /// Byte of the dtype's number, two bytes; the device's type and index follow.
    pub typed: usize,
    /// Word of the number of elements.
    pub numel: usize,
    /// Word that is null while autograd knows nothing of the tensor, else points to what it knows.
    pub autograd: usize,
    /// Byte of that which is 1 where a gradient was asked for.
    pub required: Option<usize>,
    /// Words of that for tensors that are no views.
    pub plain: Option<PlainAutograd>,
    /// Where the elements are.
    pub memory: Option<Memory>,
}

/// Where a tensor's elements are, if torch's own allocator gave their memory: other memory may have to be copied before it
/// is written to, which is torch's to do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Memory {
    /// Word of the `TensorImpl` that points to its `StorageImpl`.
    pub storage: usize,
    /// Word of the `TensorImpl`: elements before its first.
    pub offset: usize,
    /// Word of the `StorageImpl`: where its memory begins.
    pub start: usize,
    /// Word of the `StorageImpl`: the function that frees it.
    pub deleter: usize,
    /// That function of torch's own allocator.
    pub own: u64,
}

/// What autograd knows of a tensor that is no view, where a gradient was not asked for: one is required if the tensor is a
/// function's result.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlainAutograd {
    /// The first word, which that of a view differs in: the class.
    pub class: u64,
    /// Word that is null where the tensor is no function's result.
    pub function: usize,
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

    /// Address of the first element; `None` where torch has to be asked.
    ///
    /// # Safety
    /// As [`Layout::sizes`].
    #[expect(clippy::inline_always, reason = "a call costs a third of what it does")]
    #[inline(always)]
    pub unsafe fn data(self, body: *const u64) -> Option<*mut std::ffi::c_void> {
        let memory = self.memory?;
        // SAFETY: as above.
        unsafe {
            let storage = *body.add(memory.storage).cast::<*const u64>();
            if storage.is_null() || *body.add(self.numel) == 0 || *storage.add(memory.deleter) != memory.own {
                return None;
            }
            let start = *storage.add(memory.start).cast::<*mut std::ffi::c_void>();
            let offset = *body.add(memory.offset) as usize;
            if offset == 0 {
                return Some(start);
            }
            Some(start.byte_add(offset * DType::from_torch(self.dtype(body) as u8)?.size()))
        }
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

    /// Whether the tensor requires a gradient, if autograd knows nothing of it or it was set; else torch has to be asked.
    ///
    /// # Safety
    /// As [`Layout::sizes`].
    #[expect(clippy::inline_always, reason = "a call costs a third of what it does")]
    #[inline(always)]
    pub unsafe fn requires_grad(self, body: *const u64) -> Option<bool> {
        // SAFETY: as above.
        unsafe {
            let autograd = *body.add(self.autograd).cast::<*const u64>();
            if autograd.is_null() {
                return Some(false);
            }
            if *autograd.cast::<u8>().add(self.required?) == 1 {
                return Some(true);
            }
            let plain = self.plain?;
            (*autograd == plain.class && *autograd.add(plain.function) == 0).then_some(false)
        }
    }
}
