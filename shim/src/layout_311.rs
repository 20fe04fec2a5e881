//! CPython 3.11's interpreter frame: `_PyInterpreterFrame` of `Include/internal/pycore_frame.h`.

use crate::raw::Raw;
use std::ffi::{c_char, c_int};
use std::mem::offset_of;

/// The version that this layout is for.
pub const VERSION: (u8, u8) = (3, 11);

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
