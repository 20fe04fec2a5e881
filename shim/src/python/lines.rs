//! Lines of the user's program, for messages: from what `linecache` holds (cells of a notebook are only there), else from
//! the file. Runs no Python.

use crate::python::raw;
use flambeau_ir::graph::Location;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use std::collections::HashMap;

/// Lines of files that were read for one message.
#[derive(Default)]
pub struct Lines(HashMap<String, Vec<String>>);

impl Lines {
    /// The line without its indentation; `None` where it cannot be had.
    pub fn get(&mut self, py: Python<'_>, place: &Location) -> Option<String> {
        let index = (place.line as usize).checked_sub(1)?;
        if let Some(line) = cached(py, &place.file, index) {
            return Some(line);
        }
        let read = || -> Vec<String> {
            let text = std::fs::read(&*place.file).unwrap_or_default();
            String::from_utf8_lossy(&text).lines().map(str::to_owned).collect()
        };
        let lines = self.0.entry(place.file.to_string()).or_insert_with(read);
        Some(lines.get(index)?.trim().to_owned()).filter(|line| !line.is_empty())
    }
}

/// From `linecache.cache[file][2]`, if the module is imported and the entry is of that form.
fn cached(py: Python<'_>, file: &str, index: usize) -> Option<String> {
    // SAFETY: borrowed references of dicts with the GIL held; the key is an exact str, so that no user code compares it.
    let entry = unsafe {
        let modules = Bound::from_borrowed_ptr(py, ffi::PyImport_GetModuleDict()).cast_into_exact::<PyDict>().ok()?;
        let module = Bound::from_borrowed_ptr_or_opt(
            py,
            raw::dict_get(modules.as_ptr(), PyString::new(py, "linecache").as_ptr()),
        )?;
        let space = Bound::from_borrowed_ptr_or_opt(py, ffi::PyModule_GetDict(module.as_ptr()))?;
        let cache = raw::dict_get(space.as_ptr(), PyString::new(py, "cache").as_ptr());
        let cache = Bound::from_borrowed_ptr_or_opt(py, cache)?.cast_into_exact::<PyDict>().ok()?;
        Bound::from_borrowed_ptr_or_opt(py, raw::dict_get(cache.as_ptr(), PyString::new(py, file).as_ptr()))?
    };
    let lines = entry.cast_into_exact::<PyTuple>().ok()?.get_item(2).ok()?.cast_into_exact::<PyList>().ok()?;
    let line: String = lines.get_item(index).ok()?.extract().ok()?;
    Some(line.trim().to_owned()).filter(|line| !line.is_empty())
}
