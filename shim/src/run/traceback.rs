//! Frames of the user's code in the traceback of an exception that compiled code raises.

use flambeau_ir::graph::Location;
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTraceback};
use std::ffi::{CString, c_int};

/// The exception with the frames of `stack`, outermost first, before those that its traceback has. What cannot be made is
/// left out: the exception matters more.
#[cold]
pub fn with(py: Python<'_>, error: PyErr, stack: &[Location]) -> PyErr {
    let mut traceback = error.traceback(py);
    let value = error.into_value(py).into_bound(py);
    for place in stack.iter().rev() {
        if let Ok(longer) = entry(py, place, traceback.as_ref()) {
            traceback = Some(longer);
        }
    }
    if let Some(traceback) = traceback {
        // SAFETY: a live exception and a traceback.
        unsafe { ffi::PyException_SetTraceback(value.as_ptr(), traceback.as_ptr()) };
    }
    PyErr::from_value(value.into_any())
}

/// An entry of a traceback, with `next` as what it called.
fn entry<'py>(
    py: Python<'py>,
    place: &Location,
    next: Option<&Bound<'py, PyTraceback>>,
) -> PyResult<Bound<'py, PyTraceback>> {
    let line = c_int::try_from(place.line)?;
    let name = place.function.rsplit('.').next().unwrap_or(&place.function);
    let text = |text: &str| CString::new(text).map_err(|error| PyValueError::new_err(error.to_string()));
    let (file, name, globals) = (text(&place.file)?, text(name)?, PyDict::new(py));
    // SAFETY: strings that end in a null byte, a code object and a dict; each call gives a new reference or an exception.
    let frame = unsafe {
        let code = ffi::PyCode_NewEmpty(file.as_ptr(), name.as_ptr(), line);
        let code = Bound::from_owned_ptr_or_err(py, code.cast())?;
        let thread = ffi::PyThreadState_Get();
        let frame = ffi::PyFrame_New(thread, code.as_ptr().cast(), globals.as_ptr(), std::ptr::null_mut());
        Bound::from_owned_ptr_or_err(py, frame.cast())?
    };
    let made = py.get_type::<PyTraceback>().call1((next, frame, 0, line))?;
    Ok(made.cast_into::<PyTraceback>()?)
}
