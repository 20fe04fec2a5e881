//! CPython 3.12: where its frames begin and how dicts are numbered.

pub use super::dict::{Dict, Ordered};
pub use super::frame::{InterpreterFrame, code_extra, new_code_extra, set_code_extra, type_dict};
pub use super::watched::{FEW_DICTS, changes, watch};

use super::frame;
use crate::python::raw::Raw;
use pyo3::ffi;
use pyo3::prelude::*;

/// The version that this layout is for.
pub const VERSION: (u8, u8) = (3, 12);

/// Where the state of a thread has `c_tracefunc` (`struct _ts` of `Include/cpython/pystate.h`).
pub const TRACE_FUNCTION: usize = 72;

/// What a dict's change adds to the number of its state. One counter numbers the states of all dicts.
pub const DICT_CHANGE: u64 = 1 << 8;
/// Bits of that number that are none of the count: who watches the dict.
pub const DICT_FLAGS: u64 = DICT_CHANGE - 1;

/// Where in a code object its frames begin: before the first instruction of `co_code_adaptive`.
const START: usize = 192 - size_of::<u16>();

/// Whether [`end_frame`] can be used from now on.
pub fn can_end_frames(py: Python<'_>) -> bool {
    frame::keep_first_argument(py, c"(lambda x: x).__code__")
}

/// As [`frame::end_frame`].
///
/// # Safety
/// As there; [`can_end_frames`] was true.
pub unsafe fn end_frame(thread: *mut ffi::PyThreadState, frame: *mut InterpreterFrame, value: Raw) -> Raw {
    // SAFETY: the caller's promise.
    unsafe { frame::end_frame(thread, frame, value, START) }
}
