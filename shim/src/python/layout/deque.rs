//! `collections.deque`, by its own methods of C: they run no code of a user's.

use crate::python::gil::interned;
use crate::python::raw::Raw;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyList;
use std::ptr::null_mut;
use std::sync::OnceLock;

/// Whether an object is exactly a deque.
///
/// # Safety
/// A live object, GIL held.
pub unsafe fn is_deque(object: Raw) -> bool {
    static TYPE: OnceLock<usize> = OnceLock::new();
    // SAFETY: the caller's promise. Its module keeps the type alive for the life of the process.
    unsafe {
        let found = || crate::python::paths::resolve(Python::assume_attached(), "collections.deque");
        ffi::Py_TYPE(object) as usize == *TYPE.get_or_init(|| found().map_or(0, |class| class.into_ptr() as usize))
    }
}

/// An item, or null. The deque holds it.
///
/// # Safety
/// A live deque, GIL held.
pub unsafe fn item(deque: Raw, index: usize) -> Raw {
    // SAFETY: the caller's promise; the index is within bounds.
    unsafe {
        if index >= ffi::Py_SIZE(deque) as usize {
            return null_mut();
        }
        let item = ffi::PySequence_GetItem(deque, index as ffi::Py_ssize_t);
        ffi::Py_XDECREF(item);
        item
    }
}

/// How many items one may have; `None`: any number.
pub fn longest(deque: &Bound<'_, PyAny>) -> Option<usize> {
    deque.getattr(interned!(deque.py(), "maxlen")).ok()?.extract().ok()
}

/// Whether it is a deque that may have so many.
///
/// # Safety
/// A live object, GIL held.
pub unsafe fn is_bounded(py: Python<'_>, object: Raw, by: Option<usize>) -> bool {
    // SAFETY: the caller's promise.
    unsafe { is_deque(object) && longest(&Bound::from_borrowed_ptr(py, object)) == by }
}

/// Adds items to one.
pub fn extend(deque: &Bound<'_, PyAny>, items: &Bound<'_, PyList>) -> PyResult<()> {
    deque.call_method1(interned!(deque.py(), "extend"), (items,)).map(|_| ())
}

/// Replaces the items of one. Unless it `moved`, they are as many as before, and its iterators do not notice.
pub fn set(deque: &Bound<'_, PyAny>, items: &Bound<'_, PyList>, moved: bool) -> PyResult<()> {
    if !moved {
        return items.iter().enumerate().try_for_each(|(i, item)| deque.set_item(i, item));
    }
    deque.call_method0(interned!(deque.py(), "clear"))?;
    extend(deque, items)
}
