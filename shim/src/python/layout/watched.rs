//! A count of changes of the dicts that are watched (`PyDict_Watch`, from CPython 3.12 on).

use super::counted;
use crate::python::raw::Raw;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// So many dicts take as long to compare as [`changes`] takes.
pub const FEW_DICTS: usize = 1;

/// Called before a watched dict changes or is freed, with what happens, the dict, a key and its new value.
type Callback = unsafe extern "C" fn(c_int, Raw, Raw, Raw) -> c_int;

unsafe extern "C" {
    fn PyDict_AddWatcher(callback: Callback) -> c_int;
    fn PyDict_Watch(watcher: c_int, dict: Raw) -> c_int;
}

static CHANGES: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" fn changed(_: c_int, _: Raw, _: Raw, _: Raw) -> c_int {
    CHANGES.fetch_add(1, Ordering::Relaxed);
    0
}

/// Our number among those who watch dicts. There are eight at most.
fn watcher() -> Option<c_int> {
    static WATCHER: OnceLock<Option<c_int>> = OnceLock::new();
    *WATCHER.get_or_init(|| {
        // SAFETY: the callers hold the GIL.
        let number = unsafe { PyDict_AddWatcher(changed) };
        if number < 0 {
            // SAFETY: as above.
            unsafe { ffi::PyErr_Clear() };
        }
        (number >= 0).then_some(number)
    })
}

/// Whether from now on [`changes`] is another number whenever the dict changed or was freed.
///
/// # Safety
/// A live dict, GIL held.
pub unsafe fn watch(dict: Raw) -> bool {
    // SAFETY: the caller's promise.
    watcher().is_none_or(|number| unsafe {
        let watches = flambeau_ir::mutated!("dicts_unwatched") || PyDict_Watch(number, dict) == 0;
        if !watches {
            ffi::PyErr_Clear();
        }
        watches
    })
}

/// A number that is the same as long as no watched dict changes.
pub fn changes(py: Python<'_>) -> u64 {
    if watcher().is_some() { CHANGES.load(Ordering::Relaxed) } else { counted::changes(py) }
}
