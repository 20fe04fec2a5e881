//! Tensor facts, on borrowed handles: about ten nanoseconds each.

use crate::raw::{self, Raw};
use crate::torch_abi::Torch;
use flambeau_ir::dim::Dim;
use flambeau_ir::guard::TensorGuard;
use pyo3::ffi;
use pyo3::prelude::*;
use smallvec::SmallVec;

/// What a tensor must be, ready to compare.
pub struct TensorFact {
    keys: u64,
    dtype: i32,
    device: flambeau_ir::tensor::Device,
    requires_grad: bool,
    is_leaf_or_view: Option<bool>,
    rank: usize,
    /// All sizes and then all strides; of those that differ from call to call zeros.
    extents: SmallVec<[i64; 8]>,
    /// Places in `extents` that are the same on every call, where not all are.
    known: Option<Box<[u8]>>,
    class: super::class::ClassFact,
    /// The class is `torch.Tensor`.
    is_plain: bool,
}

impl TensorFact {
    /// Ready to compare.
    pub fn new(guard: &TensorGuard) -> Self {
        let all = || guard.sizes.iter().chain(&guard.strides).map(Dim::as_const);
        let known = all().enumerate().filter_map(|(i, extent)| extent.map(|_| i as u8));
        TensorFact {
            class: super::class::ClassFact::new(&guard.class),
            is_plain: (&*guard.class.module, &*guard.class.qualname) == ("torch", "Tensor"),
            dtype: guard.dtype as i32,
            device: guard.device,
            keys: guard.dispatch_keys,
            requires_grad: guard.requires_grad,
            is_leaf_or_view: guard.is_leaf_or_view,
            rank: guard.sizes.len(),
            extents: all().map(Option::unwrap_or_default).collect(),
            known: all().any(|extent| extent.is_none()).then(|| known.collect()),
        }
    }

    /// Whether the object is such a tensor.
    ///
    /// # Safety
    /// A live object, GIL held.
    pub unsafe fn holds(&self, py: Python<'_>, torch: &Torch, object: Raw) -> bool {
        // SAFETY: the class is checked before the handle is used.
        unsafe {
            let class = raw::class_of(object);
            (self.is_plain && torch.is_tensor_class(class) || self.class.holds(class) && torch.is_tensor(object))
                && self.metadata(py, torch, object)
        }
    }

    /// As [`TensorFact::holds`] for an object known to be a tensor of the right class.
    ///
    /// # Safety
    /// A live tensor, GIL held.
    pub unsafe fn metadata(&self, py: Python<'_>, torch: &Torch, tensor: Raw) -> bool {
        // SAFETY: the caller's promise; the keys come first, so that only strided tensors are asked for strides.
        unsafe {
            let handle = torch.handle(tensor);
            torch.keys(handle) == self.keys
                && torch.dtype(handle) == self.dtype
                && self.device_is(torch, handle)
                && self.extents_are(torch.sizes(handle), torch.strides(handle))
                && torch.requires_grad(handle) == self.requires_grad
                && self.is_leaf_or_view.is_none_or(|expected| is_leaf_or_view(py, tensor) == Some(expected))
        }
    }

    fn extents_are(&self, sizes: &[i64], strides: &[i64]) -> bool {
        if sizes.len() != self.rank {
            return false;
        }
        // Word by word: for so few, a call of `memcmp` takes longer.
        let mut found = sizes.iter().chain(strides);
        match &self.known {
            None => self.extents.iter().all(|extent| found.next() == Some(extent)),
            Some(known) => {
                let at = |i: usize| if i < self.rank { sizes[i] } else { strides[i - self.rank] };
                known.iter().all(|i| at(usize::from(*i)) == self.extents[usize::from(*i)])
            }
        }
    }

    /// The key set already says CPU or not; other devices have an index to compare.
    unsafe fn device_is(&self, torch: &Torch, handle: crate::torch_abi::Handle) -> bool {
        // SAFETY: a live handle.
        let found = unsafe { torch.device(handle) };
        found.kind == self.device.kind && (found.kind == 0 || found.index == self.device.index)
    }
}

/// Whether the tensor is a leaf or a view, through torch's own getters.
unsafe fn is_leaf_or_view(py: Python<'_>, tensor: Raw) -> Option<bool> {
    let class = crate::paths::resolve(py, "torch._C.TensorBase").ok()?;
    let get = |name: &str| -> Option<Bound<'_, PyAny>> {
        let getter = class.getattr(name).ok()?;
        // SAFETY: a getset descriptor of tensors, called on a tensor.
        unsafe {
            let get = (*ffi::Py_TYPE(getter.as_ptr())).tp_descr_get?;
            Bound::from_owned_ptr_or_opt(py, get(getter.as_ptr(), tensor, raw::class_of(tensor)))
        }
    };
    Some(get("is_leaf")?.extract().ok()? || !get("_base")?.is_none())
}
