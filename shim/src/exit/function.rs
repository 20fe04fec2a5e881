//! Functions that a trace made and that leave the frame: cells, defaults. Their code objects come from `codes`.

use super::Given;
use super::build::{raised, value};
use crate::python::raw::Raw;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// A function to make; numbers are indices of earlier builds.
pub struct NewFunction {
    /// Its code object.
    pub code: Py<PyAny>,
    /// Slot of `__globals__`.
    pub globals: usize,
    /// `__qualname__`
    pub qualname: Py<PyAny>,
    /// Defaults tuple.
    pub defaults: Option<usize>,
    /// Keyword defaults dict.
    pub kwdefaults: Option<usize>,
    /// Cells.
    pub closure: Vec<usize>,
}

impl NewFunction {
    /// Makes it.
    pub fn make(&self, py: Python<'_>, given: &Given<'_>, made: &[Py<PyAny>]) -> PyResult<Py<PyAny>> {
        let globals = value(py, given, self.globals)?;
        // SAFETY: live objects.
        let cells = self.closure.iter().all(|i| unsafe { ffi::Py_TYPE(made[*i].as_ptr()) == &raw mut PyCell_Type });
        if !cells || !globals.bind(py).is_instance_of::<PyDict>() {
            return Err(PyTypeError::new_err("a function of the exit lacks its cells or its globals"));
        }
        // SAFETY: live objects of the kinds that each call takes; all take their own references.
        unsafe {
            let function: Py<PyAny> = Py::from_owned_ptr_or_err(
                py,
                ffi::PyFunction_NewWithQualName(self.code.as_ptr(), globals.as_ptr(), self.qualname.as_ptr()),
            )?;
            if let Some(defaults) = self.defaults {
                raised(py, ffi::PyFunction_SetDefaults(function.as_ptr(), made[defaults].as_ptr()))?;
            }
            if let Some(kwdefaults) = self.kwdefaults {
                raised(py, PyFunction_SetKwDefaults(function.as_ptr(), made[kwdefaults].as_ptr()))?;
            }
            if !self.closure.is_empty() {
                let cells = PyTuple::new(py, self.closure.iter().map(|i| made[*i].bind(py)))?;
                raised(py, ffi::PyFunction_SetClosure(function.as_ptr(), cells.as_ptr()))?;
            }
            Ok(function)
        }
    }
}

unsafe extern "C" {
    static mut PyCell_Type: ffi::PyTypeObject;
    fn PyFunction_SetKwDefaults(function: Raw, defaults: Raw) -> i32;
}
