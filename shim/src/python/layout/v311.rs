//! CPython 3.11: `_PyInterpreterFrame` of `Include/internal/pycore_frame.h`, and how dicts are numbered.

pub use super::counted::changes;
pub use super::dict::{Dict, Ordered};
pub use pyo3::ffi::{
    _PyCode_GetExtra as code_extra, _PyCode_SetExtra as set_code_extra, _PyEval_RequestCodeExtraIndex as new_code_extra,
};

use crate::python::raw::Raw;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{c_char, c_int};
use std::mem::offset_of;

/// The version that this layout is for.
pub const VERSION: (u8, u8) = (3, 11);

/// Where the state of a thread has `c_tracefunc` (`struct _ts` of `Include/cpython/pystate.h`).
pub const TRACE_FUNCTION: usize = 72;

/// What a dict's change adds to the number of its state. One counter numbers the states of all dicts.
pub const DICT_CHANGE: u64 = 1;
/// Bits of that number that are none of the count.
pub const DICT_FLAGS: u64 = 0;

/// A frame that is about to run: its locals are the arguments, as the function's code names them.
#[repr(C)]
pub struct InterpreterFrame {
    /// The function. As all objects here, borrowed.
    pub function: Raw,
    globals: Raw,
    builtins: Raw,
    /// Null for a function's frame.
    pub locals: Raw,
    /// The code.
    pub code: Raw,
    frame_object: Raw,
    previous: *mut InterpreterFrame,
    previous_instruction: *mut u16,
    stack_top: c_int,
    is_entry: bool,
    owner: c_char,
    /// `localsplus`, as many as the code says.
    pub slots: [Raw; 1],
}

const _: () = {
    assert!(offset_of!(InterpreterFrame, function) == 0);
    assert!(offset_of!(InterpreterFrame, locals) == 24);
    assert!(offset_of!(InterpreterFrame, code) == 32);
    assert!(offset_of!(InterpreterFrame, previous_instruction) == 56);
    assert!(offset_of!(InterpreterFrame, owner) == 69);
    assert!(offset_of!(InterpreterFrame, slots) == 72);
};

/// So many dicts take as long to compare as [`changes`] takes.
pub const FEW_DICTS: usize = 24;

/// Whether from now on [`changes`] is another number whenever the dict changed or was freed: it always is.
///
/// # Safety
/// A live dict, GIL held.
pub unsafe fn watch(_: Raw) -> bool {
    true
}

/// The type's own dict, borrowed.
///
/// # Safety
/// A ready type, GIL held.
pub unsafe fn type_dict(class: Raw) -> Raw {
    // SAFETY: every ready type keeps its dict in this field.
    unsafe { (*class.cast::<ffi::PyTypeObject>()).tp_dict }
}

/// Whether [`end_frame`] can be used from now on.
pub fn can_end_frames(_: Python<'_>) -> bool {
    true
}

/// What an evaluator gives back in place of running the frame: its caller clears it.
///
/// # Safety
/// As CPython calls evaluators, with a frame that has not begun. `value` is a new reference, or null with an exception set.
pub unsafe fn end_frame(_: *mut ffi::PyThreadState, _: *mut InterpreterFrame, value: Raw) -> Raw {
    value
}
