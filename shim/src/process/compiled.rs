//! The objects that `flambeau.compile` gives back, as the rest of the client sees them: their type and their layout.

use crate::python::gil::GilOnce;
use crate::python::raw::Raw;
use pyo3::ffi;
use pyo3::prelude::*;
use std::mem::offset_of;

/// The layout; `E` is what a call is made with.
#[repr(C)]
pub struct Compiled<E> {
    base: ffi::PyObject,
    /// Takes its calls.
    pub vectorcall: Option<ffi::vectorcallfunc>,
    /// Its `__dict__`.
    pub dict: Raw,
    /// Its weak references.
    pub weak: Raw,
    /// The Python function, never altered.
    pub function: Raw,
    /// Null until `__init__` is done; then owned.
    pub entry: *mut E,
}

/// Where a compiled callable keeps its Python function.
pub const FUNCTION: usize = offset_of!(Compiled<()>, function);

/// The type, once it is made.
pub static CLASS: GilOnce<Py<PyAny>> = GilOnce::new();

/// Whether this is a compiled callable. The GIL is held.
pub fn is_compiled(object: Raw) -> bool {
    // SAFETY: called with live objects only. `Python::attach` would drop what other threads left behind.
    let (found, py) = unsafe { (ffi::Py_TYPE(object).cast::<ffi::PyObject>(), Python::assume_attached()) };
    CLASS.get(py).is_some_and(|class| class.as_ptr() == found)
}
