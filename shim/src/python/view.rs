//! Calls of compiled views of modules: what `_compile._call` says in Python, without a frame and dicts of its own.

use crate::python::gil::GilOnce;
use crate::python::raw::{self, Raw};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;
use smallvec::SmallVec;
use std::ptr::null_mut;

/// `_compile._call`.
static CALL: GilOnce<Py<PyAny>> = GilOnce::new();

/// Lets instances of a class whose `__call__` is `call` be called from C. An assignment to `__call__` ends that, as it sets
/// the class's slot anew.
#[pyfunction]
pub fn call_natively(cls: &Bound<'_, PyType>, call: Bound<'_, PyAny>) {
    CALL.get_or_init(cls.py(), || call.unbind());
    // SAFETY: a live heap type that nobody calls instances of yet.
    unsafe { (*cls.as_type_ptr()).tp_call = Some(self::call) };
}

/// The compiled function and the module of a view; null unless the module's class has the `__call__` that was compiled.
unsafe fn parts(py: Python<'_>, view: Raw) -> [Raw; 2] {
    // SAFETY: a live object; slots hold live objects or nulls.
    unsafe {
        let slot = |name: &Bound<'_, PyAny>| raw::object_member(view, name.as_ptr()).map_or(null_mut(), |at| *at);
        let module = slot(crate::python::gil::interned!(py, "_flambeau_module"));
        let known = slot(crate::python::gil::interned!(py, "_flambeau_call"));
        if module.is_null() || known.is_null() || ffi::PyFunction_Check(known) == 0 {
            return [null_mut(); 2];
        }
        let found = raw::type_lookup(raw::class_of(module), crate::python::gil::interned!(py, "__call__").as_ptr());
        if found == known {
            [slot(crate::python::gil::interned!(py, "_flambeau_compiled")), module]
        } else {
            [null_mut(); 2]
        }
    }
}

unsafe extern "C" fn call(view: Raw, args: Raw, kwargs: Raw) -> Raw {
    // SAFETY: called by CPython with the GIL held, a tuple, and a dict or null. What is called is kept alive meanwhile. Pyo3
    // is not told of the thread: no reference of its own is dropped here.
    unsafe {
        let py = Python::assume_attached();
        let [mut callee, mut first] = parts(py, view);
        if callee.is_null() {
            (callee, first) = (CALL.get(py).map_or(null_mut(), Py::as_ptr), view);
        }
        ffi::Py_INCREF(callee);
        ffi::Py_INCREF(first);
        let result = call_with(callee, first, args, kwargs);
        ffi::Py_DECREF(first);
        ffi::Py_DECREF(callee);
        result
    }
}

/// `callee(first, *args, **kwargs)`
unsafe fn call_with(callee: Raw, first: Raw, args: Raw, kwargs: Raw) -> Raw {
    // SAFETY: the caller's live objects.
    unsafe {
        let items = (0..ffi::PyTuple_GET_SIZE(args)).map(|i| ffi::PyTuple_GET_ITEM(args, i));
        if kwargs.is_null() || ffi::PyDict_Size(kwargs) == 0 {
            // The slot before the first argument may be used by the callee.
            let stack: SmallVec<[Raw; 8]> = [null_mut(), first].into_iter().chain(items).collect();
            let count = (stack.len() - 1) | ffi::PY_VECTORCALL_ARGUMENTS_OFFSET;
            return ffi::PyObject_Vectorcall(callee, stack.as_ptr().add(1), count, null_mut());
        }
        let whole = ffi::PyTuple_New(ffi::PyTuple_GET_SIZE(args) + 1);
        if whole.is_null() {
            return null_mut();
        }
        for (i, item) in std::iter::once(first).chain(items).enumerate() {
            ffi::Py_INCREF(item);
            ffi::PyTuple_SET_ITEM(whole, i as isize, item);
        }
        let result = ffi::PyObject_Call(callee, whole, kwargs);
        ffi::Py_DECREF(whole);
        result
    }
}
