//! Layouts of CPython's own structs that are not part of its interface, and functions whose names differ between versions.
//! A module per version; nothing else here knows versions. What two versions lay out alike stands once, in `dict`, and each
//! version says that it is so by naming it.

mod dict;

#[cfg(all(Py_3_11, not(Py_3_12)))]
#[path = "v311.rs"]
mod version;
#[cfg(all(Py_3_12, not(Py_3_13)))]
#[path = "v312.rs"]
mod version;
#[cfg(not(all(Py_3_11, not(Py_3_13))))]
compile_error!("there is no layout for this version of CPython");

pub use version::*;

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;

/// Fails under another version of Python than this build is for.
pub fn check(py: Python<'_>) -> PyResult<()> {
    let found = py.version_info();
    if (found.major, found.minor) == VERSION {
        return Ok(());
    }
    let ((major, minor), found) = (VERSION, (found.major, found.minor));
    Err(PyImportError::new_err(format!(
        "this extension of flambeau is for CPython {major}.{minor}, not for {}.{}",
        found.0, found.1
    )))
}
