//! Tensor facts, on borrowed handles: about ten nanoseconds each.

use crate::python::raw::{self, Raw};
use crate::torch::{Facts, Form, Handle, Torch};
use flambeau_ir::dim::Dim;
use flambeau_ir::guard::TensorGuard;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::c_void;
use std::ptr::null_mut;

/// What a tensor must be, ready to compare.
pub struct TensorFact {
    keys: u64,
    dtype: i32,
    device: flambeau_ir::tensor::Device,
    requires_grad: bool,
    is_leaf_or_view: Option<bool>,
    /// In elements; `None` where any will do.
    sizes: Box<[Option<i64>]>,
    strides: Box<[Option<i64>]>,
    /// All of that as words of torch's own structure, where it is known.
    form: Option<Form>,
    class: super::class::ClassFact,
    /// The class is `torch.Tensor`.
    is_plain: bool,
}

impl TensorFact {
    /// Ready to compare.
    pub fn new(torch: &Torch, guard: &TensorGuard) -> Self {
        let fixed = |dims: &[Dim]| dims.iter().map(Dim::as_const).collect::<Box<[_]>>();
        let (sizes, strides) = (fixed(&guard.sizes), fixed(&guard.strides));
        let facts = Facts {
            sizes: &sizes,
            strides: &strides,
            dtype: guard.dtype,
            device: guard.device,
            keys: Some(guard.dispatch_keys),
        };
        let form = torch.form(&facts);
        TensorFact {
            class: super::class::ClassFact::new(&guard.class),
            is_plain: (&*guard.class.module, &*guard.class.qualname) == ("torch", "Tensor"),
            dtype: guard.dtype as i32,
            device: guard.device,
            keys: guard.dispatch_keys,
            requires_grad: guard.requires_grad && !flambeau_ir::mutated!("gradients_not_asked_for"),
            is_leaf_or_view: guard.is_leaf_or_view.filter(|_| !flambeau_ir::mutated!("leaves_pass_as_others")),
            sizes,
            strides,
            form,
        }
    }

    /// If the object is such a tensor: the address of its first element, null where torch has to be asked for it.
    ///
    /// # Safety
    /// A live object, GIL held.
    #[expect(clippy::inline_always, reason = "a call costs a third of what it does")]
    #[inline(always)]
    pub unsafe fn read(&self, py: Python<'_>, torch: &Torch, object: Raw) -> Option<*mut c_void> {
        // SAFETY: the class is checked before the handle is used.
        unsafe {
            let class = raw::class_of(object);
            let is_one =
                self.is_plain && torch.is_tensor_class(class) || self.class.holds(class) && torch.is_tensor(object);
            if is_one { self.metadata(py, torch, object) } else { None }
        }
    }

    /// As [`TensorFact::read`] for an object known to be a tensor of the right class.
    ///
    /// # Safety
    /// A live tensor, GIL held.
    #[expect(clippy::inline_always, reason = "a call costs a third of what it does")]
    #[inline(always)]
    pub unsafe fn metadata(&self, py: Python<'_>, torch: &Torch, tensor: Raw) -> Option<*mut c_void> {
        // SAFETY: the caller's promise.
        unsafe {
            let handle = torch.handle(tensor);
            let data = match &self.form {
                Some(form) => torch.fit(handle, form, self.requires_grad)?,
                None if !self.fits(torch, handle) => return None,
                None => null_mut(),
            };
            let Some(expected) = self.is_leaf_or_view else { return Some(data) };
            (is_leaf_or_view(py, tensor) == Some(expected)).then_some(data)
        }
    }

    /// What [`Torch::fit`] says, fact by fact.
    #[inline(never)]
    unsafe fn fits(&self, torch: &Torch, handle: Handle) -> bool {
        // SAFETY: a live handle; the keys come first, so that only strided tensors are asked for strides.
        unsafe {
            torch.keys(handle) == self.keys
                && torch.dtype(handle) == self.dtype
                && self.device_is(torch, handle)
                && are(torch.sizes(handle), &self.sizes)
                && are(torch.strides(handle), &self.strides)
                && torch.requires_grad(handle) == self.requires_grad
        }
    }

    /// The key set already says CPU or not; other devices have an index to compare.
    unsafe fn device_is(&self, torch: &Torch, handle: Handle) -> bool {
        // SAFETY: a live handle.
        let found = unsafe { torch.device(handle) };
        found.kind == self.device.kind && (found.is_cpu() || found.index == self.device.index)
    }
}

/// Whether sizes or strides are the expected ones.
fn are(found: &[i64], expected: &[Option<i64>]) -> bool {
    found.len() == expected.len()
        && found.iter().zip(expected).all(|(found, known)| known.is_none_or(|it| it == *found))
}

/// Whether the tensor is a leaf or a view, through torch's own getters.
#[inline(never)]
unsafe fn is_leaf_or_view(py: Python<'_>, tensor: Raw) -> Option<bool> {
    let class = crate::python::paths::resolve(py, "torch._C.TensorBase").ok()?;
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
