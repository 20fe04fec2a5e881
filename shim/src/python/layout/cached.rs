//! What `functools.lru_cache` keeps: results by their calls' arguments, read without calling anything. Where its objects hold
//! them is found out by looking into one that was made for that (CPython's `Modules/_functoolsmodule.c`).

use crate::python::gil::GilOnce;
use crate::python::raw::Raw;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::ptr::null_mut;

/// A cache with more results is not looked into.
const MOST_RESULTS: isize = 64;

/// Where the objects hold what.
struct Layout {
    /// The type of functions with a cache.
    wrapper: Py<PyAny>,
    /// Where such a function has the dict of its results.
    results: usize,
    /// The type of the entries of a cache that is bounded; others hold the results themselves.
    entry: Py<PyAny>,
    /// Where an entry has its result.
    result: usize,
}

fn layout(py: Python<'_>) -> Option<&'static Layout> {
    static LAYOUT: GilOnce<Option<Layout>> = GilOnce::new();
    LAYOUT.get_or_init(py, || Layout::find(py).ok().flatten()).as_ref()
}

impl Layout {
    fn find(py: Python<'_>) -> PyResult<Option<Layout>> {
        let made =
            py.import("functools")?.call_method1("lru_cache", (2,))?.call1((py.get_type::<pyo3::types::PyList>(),))?;
        let result = made.call1((PyTuple::empty(py),))?;
        for held in py.import("gc")?.call_method1("get_referents", (&made,))?.try_iter()? {
            let held = held?;
            let Ok(results) = held.cast_exact::<PyDict>() else { continue };
            let Some((_, entry)) = results.iter().next().filter(|_| results.len() == 1) else { continue };
            if let (Some(at), Some(inner)) = (place(&made, &held), place(&entry, &result)) {
                let (wrapper, entry) = (made.get_type().into_any().unbind(), entry.get_type().into_any().unbind());
                return Ok(Some(Layout { wrapper, results: at, entry, result: inner }));
            }
        }
        Ok(None)
    }
}

/// The offset of the field that holds `value`.
fn place(object: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> Option<usize> {
    let size = object.get_type().getattr("__basicsize__").ok()?.extract::<usize>().ok()?;
    let word = size_of::<usize>();
    // SAFETY: all words lie within the object.
    (size_of::<ffi::PyObject>()..size - word + 1)
        .step_by(word)
        .find(|at| unsafe { *object.as_ptr().byte_add(*at).cast::<Raw>() } == value.as_ptr())
}

/// Whether it is a function with a cache.
pub fn is_cached(py: Python<'_>, function: Raw) -> bool {
    // SAFETY: a live object.
    layout(py).is_some_and(|layout| unsafe { ffi::Py_TYPE(function).cast() } == layout.wrapper.as_ptr())
}

/// The result that `function` keeps for the arguments behind `key`, borrowed; null if it keeps none, or has too many to look.
///
/// # Safety
/// Live objects, GIL held; `key` is made of exact built-in types.
pub unsafe fn result(py: Python<'_>, function: Raw, key: Raw) -> Raw {
    let Some(layout) = layout(py).filter(|_| is_cached(py, function)) else { return null_mut() };
    // SAFETY: the type says where the dict is; nothing runs while it is walked through.
    unsafe {
        let results = *function.byte_add(layout.results).cast::<Raw>();
        if results.is_null() || ffi::PyDict_CheckExact(results) == 0 || ffi::PyDict_Size(results) > MOST_RESULTS {
            return null_mut();
        }
        let (mut position, mut known, mut value) = (0, null_mut(), null_mut());
        while ffi::PyDict_Next(results, &raw mut position, &raw mut known, &raw mut value) != 0 {
            if same(known, key) {
                let is_entry = ffi::Py_TYPE(value).cast() == layout.entry.as_ptr();
                return if is_entry { *value.byte_add(layout.result).cast::<Raw>() } else { value };
            }
        }
        null_mut()
    }
}

/// Whether these are equal constants of the same types. Compares nothing that runs code of users.
///
/// # Safety
/// Live objects, GIL held.
unsafe fn same(a: Raw, b: Raw) -> bool {
    // SAFETY: the caller's promise; the type tests say what each look reads.
    unsafe {
        let class = ffi::Py_TYPE(a);
        if a == b || class != ffi::Py_TYPE(b) {
            return a == b;
        }
        if class == &raw mut ffi::PyTuple_Type {
            let len = ffi::PyTuple_GET_SIZE(a);
            return len == ffi::PyTuple_GET_SIZE(b)
                && (0..len).all(|i| same(ffi::PyTuple_GET_ITEM(a, i), ffi::PyTuple_GET_ITEM(b, i)));
        }
        let plain = class == &raw mut ffi::PyUnicode_Type
            || class == &raw mut ffi::PyLong_Type
            || class == &raw mut ffi::PyFloat_Type
            || class == &raw mut ffi::PyBytes_Type;
        plain && ffi::PyObject_RichCompareBool(a, b, ffi::Py_EQ) == 1
    }
}
