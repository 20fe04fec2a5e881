//! CPython 3.13: where its frames begin, how dicts are numbered and where objects keep theirs.

pub use super::dict::{Dict, Ordered};
pub use super::frame::{InterpreterFrame, code_extra, new_code_extra, set_code_extra, type_dict};
pub use super::watched::{FEW_DICTS, changes};

use super::{frame, watched};
use crate::python::raw::Raw;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::CStr;

/// The version that this layout is for.
pub const VERSION: (u8, u8) = (3, 13);

/// Where the state of a thread has `c_tracefunc` (`struct _ts` of `Include/cpython/pystate.h`).
pub const TRACE_FUNCTION: usize = 88;

/// What a dict's change adds to the number of its state. One counter numbers the states of all dicts.
pub const DICT_CHANGE: u64 = 1 << 12;
/// Bits of that number that are none of the count: who watches the dict, and how often its values changed.
pub const DICT_FLAGS: u64 = DICT_CHANGE - 1;

/// Where in a code object its frames begin: at the first instruction of `co_code_adaptive`.
const START: usize = 200;

/// The start of `PyDictValues` of `Include/internal/pycore_dict.h`.
#[repr(C)]
struct Values {
    capacity: u8,
    size: u8,
    /// Whether they are a part of the object whose attributes they are.
    in_object: u8,
}

/// As [`watched::watch`]. What is stored into attributes of an object that keeps their values in itself is no change of its
/// dict (`_PyObject_StoreInstanceAttribute` in `Objects/dictobject.c` of 3.13.0), unless the dict has given up an item: that
/// gives it a table of its own, from which attributes are as quick to read.
///
/// # Safety
/// A live dict, GIL held.
pub unsafe fn watch(dict: Raw) -> bool {
    // SAFETY: a dict's values, where it has any, begin with their header. The keys of such a dict are exact strs: no code of
    // the user's runs. The last item is put back in its place.
    unsafe {
        let in_object = || {
            let values = (*dict.cast::<Dict>()).values.cast::<Values>();
            !values.is_null() && (*values).in_object != 0
        };
        if !in_object() || flambeau_ir::mutated!("values_in_objects_unwatched") {
            return watched::watch(dict);
        }
        if ffi::PyDict_Size(dict) == 0 {
            let key = crate::python::gil::interned!(Python::assume_attached(), "__dict__").as_ptr();
            ffi::PyDict_SetItem(dict, key, key);
            ffi::Py_XDECREF(pop_item(dict));
        } else {
            let item = pop_item(dict);
            if !item.is_null() {
                ffi::PyDict_SetItem(dict, ffi::PyTuple_GET_ITEM(item, 0), ffi::PyTuple_GET_ITEM(item, 1));
                ffi::Py_DECREF(item);
            }
        }
        if !ffi::PyErr_Occurred().is_null() {
            // There was no memory.
            ffi::PyErr_Clear();
        }
        !in_object() && watched::watch(dict)
    }
}

/// `dict.popitem()`: a new reference, or null with an exception set.
unsafe fn pop_item(dict: Raw) -> Raw {
    // SAFETY: a live dict, and not of a class of the user's, whose instances keep no values in an object.
    unsafe {
        ffi::PyObject_CallMethodNoArgs(dict, crate::python::gil::interned!(Python::assume_attached(), "popitem").as_ptr())
    }
}

/// The code of `lambda x: x`, with an instruction before the first that a traceback knows: `NOP`, which has no location, then
/// the lambda's instructions and location table.
const NOTHING_FIRST: &CStr =
    c"(lambda c: c.replace(co_code=b'\\x1e\\0' + c.co_code, co_linetable=b'\\xf8' + c.co_linetable))\
    ((lambda x: x).__code__)";

/// Whether [`end_frame`] can be used from now on.
pub fn can_end_frames(py: Python<'_>) -> bool {
    frame::keep_first_argument(py, NOTHING_FIRST)
}

/// As [`frame::end_frame`].
///
/// # Safety
/// As there; [`can_end_frames`] was true.
pub unsafe fn end_frame(thread: *mut ffi::PyThreadState, frame: *mut InterpreterFrame, value: Raw) -> Raw {
    // SAFETY: the caller's promise.
    unsafe { frame::end_frame(thread, frame, value, START) }
}
