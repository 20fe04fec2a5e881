//! The order of a dict's keys. An `OrderedDict` keeps its own, which `move_to_end` changes without touching the dict's.

use crate::python::layout::Ordered;
use crate::python::raw::Raw;
use pyo3::ffi;
use std::ptr::null_mut;

unsafe extern "C" {
    static mut PyODict_Type: ffi::PyTypeObject;
}

/// Whether the dict is an `OrderedDict` or an instance of a subclass.
///
/// # Safety
/// A live object, GIL held; so for all functions here.
pub unsafe fn is_ordered(dict: Raw) -> bool {
    // SAFETY: the caller's promise.
    unsafe { ffi::PyType_IsSubtype(ffi::Py_TYPE(dict), &raw mut PyODict_Type) != 0 }
}

/// The word that counts changes of an `OrderedDict`'s order.
///
/// # Safety
/// As [`is_ordered`], which holds of `dict`.
pub unsafe fn state(dict: Raw) -> *const u64 {
    // SAFETY: the caller's promise.
    unsafe { &raw const (*dict.cast::<Ordered>()).state }
}

/// Calls `visit` with each key in order until it returns false.
///
/// # Safety
/// As [`is_ordered`]; `dict` is a dict; `visit` changes no dict.
pub unsafe fn each_key(dict: Raw, mut visit: impl FnMut(Raw) -> bool) {
    // SAFETY: nothing runs between two steps that could change the dict.
    unsafe {
        if is_ordered(dict) {
            let mut node = (*dict.cast::<Ordered>()).first;
            while !node.is_null() && visit((*node).key) {
                node = (*node).next;
            }
            return;
        }
        let (mut position, mut key, mut value) = (0, null_mut(), null_mut());
        while ffi::PyDict_Next(dict, &raw mut position, &raw mut key, &raw mut value) != 0 {
            if !visit(key) {
                return;
            }
        }
    }
}

/// The key at a position, or null.
///
/// # Safety
/// As [`each_key`].
pub unsafe fn key_at(dict: Raw, index: usize) -> Raw {
    let (mut at, mut found) = (0, null_mut());
    // SAFETY: the caller's promise.
    unsafe {
        each_key(dict, |key| {
            if at == index {
                found = key;
            }
            at += 1;
            found.is_null()
        });
    }
    found
}

/// The value of the key at a position, or null.
///
/// # Safety
/// As [`each_key`].
pub unsafe fn value_at(dict: Raw, index: usize) -> Raw {
    let (mut position, mut key, mut value) = (0, null_mut(), null_mut());
    // SAFETY: the caller's promise; an `OrderedDict` keeps the key objects of the dict.
    unsafe {
        let wanted = key_at(dict, index);
        while !wanted.is_null() && ffi::PyDict_Next(dict, &raw mut position, &raw mut key, &raw mut value) != 0 {
            if key == wanted {
                return value;
            }
        }
    }
    null_mut()
}
