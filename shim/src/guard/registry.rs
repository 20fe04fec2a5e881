//! Abstract classes without virtual subclasses: `isinstance` then goes by inheritance alone.

use crate::gil::GilOnce;
use crate::raw::Raw;
use pyo3::ffi;
use pyo3::prelude::*;
use std::cell::Cell;

/// That no class is registered with an abstract class or with one of its subclasses. Looked at again only when something
/// was registered anywhere, which `abc` counts.
#[derive(Default)]
pub struct NoRegistered {
    /// The count when this was last seen to hold.
    held_at: Cell<Option<u64>>,
}

impl NoRegistered {
    /// Whether it holds of `class`.
    pub fn holds(&self, py: Python<'_>, class: Raw) -> bool {
        // SAFETY: a live object.
        let class = unsafe { Bound::from_borrowed_ptr(py, class) };
        let Ok(now) = count(py) else { return false };
        if self.held_at.get() == Some(now) {
            return true;
        }
        let holds = any_registered(&class).is_ok_and(|any| !any);
        if holds {
            self.held_at.set(Some(now));
        }
        holds
    }
}

/// `abc.get_cache_token()`
fn count(py: Python<'_>) -> PyResult<u64> {
    static TOKEN: GilOnce<Py<PyAny>> = GilOnce::new();
    let token =
        TOKEN.get_or_try_init(py, || Ok::<_, PyErr>(py.import("_abc")?.getattr("get_cache_token")?.unbind()))?;
    token.bind(py).call0()?.extract()
}

/// Whether a class is registered with an abstract class or with one of its subclasses, or one of these decides with a
/// `__subclasshook__` of its own. Runs no user code.
pub fn any_registered(class: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = class.py();
    let types = py.import("builtins")?.getattr("type")?;
    let mut waiting = vec![class.clone()];
    let mut first = true;
    while let Some(class) = waiting.pop() {
        // SAFETY: a live type; its dict is read raw.
        let hook = unsafe {
            let name = crate::gil::interned!(py, "__subclasshook__");
            crate::raw::dict_get(crate::raw::type_dict(class.as_ptr()), name.as_ptr())
        };
        if !first && !hook.is_null() {
            return Ok(true);
        }
        first = false;
        let (registry, ..): (Bound<'_, PyAny>, Py<PyAny>, Py<PyAny>, Py<PyAny>) =
            py.import("_abc")?.getattr("_get_dump")?.call1((&class,))?.extract()?;
        if registry.len()? > 0 {
            return Ok(true);
        }
        for below in types.call_method1("__subclasses__", (&class,))?.try_iter()? {
            let below = below?;
            // SAFETY: a live type. Where its metaclass is `ABCMeta`'s, its own checks are as well.
            if unsafe { ffi::Py_TYPE(below.as_ptr()) != ffi::Py_TYPE(class.as_ptr()) } {
                return Ok(true);
            }
            waiting.push(below);
        }
    }
    Ok(false)
}
