//! Tensor facts, on borrowed handles: about ten nanoseconds each.

use crate::raw::{self, Raw};
use crate::torch_abi::Torch;
use flambeau_ir::guard::TensorGuard;
use pyo3::ffi;
use pyo3::prelude::*;

/// What a tensor must be, ready to compare.
pub struct TensorFact {
    class: super::class::ClassFact,
    dtype: i32,
    device: flambeau_ir::tensor::Device,
    keys: u64,
    requires_grad: bool,
    is_leaf_or_view: Option<bool>,
    rank: usize,
    sizes: Extents,
    strides: Extents,
}

/// Expected sizes or strides.
enum Extents {
    /// All known.
    All(Box<[i64]>),
    /// Only those at these dimensions.
    Some(Box<[(usize, i64)]>),
}

impl Extents {
    fn new(dims: &[flambeau_ir::dim::Dim]) -> Self {
        let known: Vec<(usize, i64)> = dims.iter().enumerate().filter_map(|(i, d)| Some((i, d.as_const()?))).collect();
        if known.len() == dims.len() {
            return Extents::All(known.into_iter().map(|(_, d)| d).collect());
        }
        Extents::Some(known.into())
    }

    fn hold(&self, found: &[i64]) -> bool {
        match self {
            // Word by word: for so few, a call of `memcmp` takes longer.
            Extents::All(expected) => expected.iter().zip(found).all(|(a, b)| a == b),
            Extents::Some(expected) => expected.iter().all(|(i, value)| found.get(*i) == Some(value)),
        }
    }
}

impl TensorFact {
    /// Ready to compare.
    pub fn new(guard: &TensorGuard) -> Self {
        TensorFact {
            class: super::class::ClassFact::new(&guard.class),
            dtype: guard.dtype as i32,
            device: guard.device,
            keys: guard.dispatch_keys,
            requires_grad: guard.requires_grad,
            is_leaf_or_view: guard.is_leaf_or_view,
            rank: guard.sizes.len(),
            sizes: Extents::new(&guard.sizes),
            strides: Extents::new(&guard.strides),
        }
    }

    /// Whether the object is such a tensor.
    ///
    /// # Safety
    /// A live object, GIL held.
    pub unsafe fn holds(&self, py: Python<'_>, torch: &Torch, object: Raw) -> bool {
        // SAFETY: the class is checked before the handle is used.
        unsafe {
            self.class.holds(raw::class_of(object)) && torch.is_tensor(object) && self.metadata(py, torch, object)
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
                && torch.sizes(handle).len() == self.rank
                && self.sizes.hold(torch.sizes(handle))
                && self.strides.hold(torch.strides(handle))
                && torch.requires_grad(handle) == self.requires_grad
                && self.is_leaf_or_view.is_none_or(|expected| is_leaf_or_view(py, tensor) == Some(expected))
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
