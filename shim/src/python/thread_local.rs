//! `threading.local` objects: what they hold for the calling thread, without running code of a subclass.

use crate::python::gil::GilOnce;
use crate::python::raw::Raw;
use pyo3::ffi;
use pyo3::prelude::*;

/// `_thread._local`; it is imported with the interpreter, and never goes.
fn class() -> *mut ffi::PyTypeObject {
    static CLASS: GilOnce<usize> = GilOnce::new();
    // SAFETY: all readers of objects hold the GIL.
    let py = unsafe { Python::assume_attached() };
    let find = || py.import("_thread").and_then(|m| m.getattr("_local")).map_or(0, |class| class.into_ptr() as usize);
    *CLASS.get_or_init(py, find) as *mut ffi::PyTypeObject
}

/// Whether an object is one, or of a subclass.
///
/// # Safety
/// A live object, GIL held.
pub unsafe fn is_one(object: Raw) -> bool {
    let class = class();
    // SAFETY: the caller's promise.
    !class.is_null() && unsafe { ffi::PyType_IsSubtype(ffi::Py_TYPE(object), class) != 0 }
}

/// The dict of an object for the calling thread, borrowed from what the thread keeps; null for other objects, and where a
/// subclass's `__init__` would have to run first, as it does when a thread first reads an attribute.
///
/// # Safety
/// A live object, GIL held.
pub unsafe fn dict(object: Raw) -> Raw {
    // SAFETY: the first field of a `localobject` (CPython's `Modules/_threadmodule.c`) is the key under which each thread keeps
    // its part. `tp_getattro` of the base class gives the dict before it looks at the object's type; the thread holds it.
    unsafe {
        if !is_one(object) {
            return std::ptr::null_mut();
        }
        let init = |class: *mut ffi::PyTypeObject| (*class).tp_init.map(|f| f as usize);
        if init(ffi::Py_TYPE(object)) != init(&raw mut ffi::PyBaseObject_Type) {
            let key = *object.byte_add(std::mem::size_of::<ffi::PyObject>()).cast::<Raw>();
            let kept = ffi::PyThreadState_GetDict();
            if kept.is_null() || key.is_null() || ffi::PyUnicode_CheckExact(key) == 0 {
                return std::ptr::null_mut();
            }
            if crate::python::raw::namespace_get(kept, key).is_null() {
                return std::ptr::null_mut();
            }
        }
        let Some(get) = (*class()).tp_getattro else { return std::ptr::null_mut() };
        let name = crate::python::gil::interned!(Python::assume_attached(), "__dict__");
        let dict = get(object, name.as_ptr());
        if dict.is_null() {
            ffi::PyErr_Clear();
            return dict;
        }
        let kept = ffi::Py_REFCNT(dict) > 1 && ffi::PyDict_CheckExact(dict) != 0;
        ffi::Py_DECREF(dict);
        if kept { dict } else { std::ptr::null_mut() }
    }
}
