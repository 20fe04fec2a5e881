//! Layouts of CPython's own structs that are not part of its interface, and functions whose names differ between versions.
//! A module per version; nothing else here knows versions. What versions lay out alike stands once, in `dict` and `frame`, and each
//! version says that it is so by naming it.

pub mod cached;
mod counted;
pub mod deque;
mod dict;
#[cfg(Py_3_12)]
mod frame;
pub mod iterators;
pub mod parts;
#[cfg(Py_3_12)]
mod watched;

macro_rules! layouts {
    ($($from:ident $to:ident $file:literal;)*) => {
        $(#[cfg(all($from, not($to)))] #[path = $file] mod version;)*
        #[cfg(not(any($(all($from, not($to))),*)))]
        compile_error!("there is no layout for this version of CPython");
    };
}

// From this version on, to before that one.
layouts! {
    Py_3_11 Py_3_12 "v311.rs";
    Py_3_12 Py_3_13 "v312.rs";
    Py_3_13 Py_3_14 "v313.rs";
}

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
