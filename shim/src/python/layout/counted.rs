//! A count that stands still while no dict of the process changes: CPython numbers the states of all dicts with one counter,
//! which a dict of our own shows when it is written to.

use super::{DICT_CHANGE, DICT_FLAGS, Dict};
use crate::python::gil::GilOnce;
use crate::python::raw::Raw;
use pyo3::ffi;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};

struct Clock {
    dict: Py<PyAny>,
    key: Py<PyAny>,
    /// How often we wrote to the dict: what others did is the rest of the count.
    written: AtomicU64,
}

/// A number that is the same as long as nobody creates or changes a dict.
pub fn changes(py: Python<'_>) -> u64 {
    static CLOCK: GilOnce<Clock> = GilOnce::new();
    let clock = CLOCK.get_or_init(py, || Clock {
        dict: pyo3::types::PyDict::new(py).into_any().unbind(),
        key: pyo3::types::PyString::intern(py, "time").into_any().unbind(),
        written: AtomicU64::new(0),
    });
    // With the GIL held, so no other thread comes between.
    let written = clock.written.load(Ordering::Relaxed) + 1;
    clock.written.store(written, Ordering::Relaxed);
    // SAFETY: a live dict and key. Storing another value than before always gives the dict a new number; if there is no
    // memory for the entry, there is one already or the number is an old one, which no other state has.
    unsafe {
        let value: Raw = if written.is_multiple_of(2) { ffi::Py_False() } else { ffi::Py_True() };
        if ffi::PyDict_SetItem(clock.dict.as_ptr(), clock.key.as_ptr(), value) != 0 {
            ffi::PyErr_Clear();
        }
        let state = (*clock.dict.as_ptr().cast::<Dict>()).version & !DICT_FLAGS;
        state.wrapping_sub(written.wrapping_mul(DICT_CHANGE))
    }
}
