//! Frames as the versions from CPython 3.12 on lay them out, which own what is in them (`_PyInterpreterFrame` of
//! `Include/internal/pycore_frame.h`), and what else these have in common.

use crate::python::gil::GilOnce;
use crate::python::raw::Raw;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::{offset_of, replace};
use std::ptr::null_mut;

unsafe extern "C" {
    /// Reads what [`set_code_extra`] put there: 0, or -1 with an exception set.
    #[link_name = "PyUnstable_Code_GetExtra"]
    pub fn code_extra(code: Raw, index: ffi::Py_ssize_t, extra: *mut *mut c_void) -> c_int;
    /// Keeps a pointer with a code object: 0, or -1 with an exception set.
    #[link_name = "PyUnstable_Code_SetExtra"]
    pub fn set_code_extra(code: Raw, index: ffi::Py_ssize_t, extra: *mut c_void) -> c_int;
    /// An index for these, or -1 if none is left.
    #[link_name = "PyUnstable_Eval_RequestCodeExtraIndex"]
    pub fn new_code_extra(free: ffi::freefunc) -> ffi::Py_ssize_t;
}

/// A frame that is about to run: its locals are the arguments, as the function's code names them.
#[repr(C)]
pub struct InterpreterFrame {
    /// The code. As the function and what is in the slots, owned by the frame.
    pub code: Raw,
    previous: *mut InterpreterFrame,
    /// The function.
    pub function: Raw,
    globals: Raw,
    builtins: Raw,
    /// Null for a function's frame.
    pub locals: Raw,
    frame_object: Raw,
    /// The next to run, but for 3.12: the one before it.
    instruction: *mut u16,
    stack_top: c_int,
    return_offset: u16,
    owner: c_char,
    /// `localsplus`, as many as the code says.
    pub slots: [Raw; 1],
}

const _: () = {
    assert!(offset_of!(InterpreterFrame, code) == 0);
    assert!(offset_of!(InterpreterFrame, function) == 16);
    assert!(offset_of!(InterpreterFrame, locals) == 40);
    assert!(offset_of!(InterpreterFrame, instruction) == 56);
    assert!(offset_of!(InterpreterFrame, stack_top) == 64);
    assert!(offset_of!(InterpreterFrame, owner) == 70);
    assert!(offset_of!(InterpreterFrame, slots) == 72);
};

/// The type's own dict, borrowed.
///
/// # Safety
/// A ready type, GIL held.
pub unsafe fn type_dict(class: Raw) -> Raw {
    // SAFETY: the interpreter keeps the dicts of built-in types, which have null in `tp_dict`. The new reference is given up at
    // once: the dict lives as long as the type.
    unsafe {
        let dict = ffi::PyType_GetDict(class.cast());
        ffi::Py_XDECREF(dict);
        dict
    }
}

/// The code of a function that returns its argument.
static FIRST_ARGUMENT: GilOnce<Py<PyAny>> = GilOnce::new();

/// Keeps the code of a function that returns its argument, which this expression gives; whether there is one.
pub fn keep_first_argument(py: Python<'_>, code: &CStr) -> bool {
    FIRST_ARGUMENT.get_or_try_init(py, || py.eval(code, None, None).map(Bound::unbind)).is_ok()
}

/// What an evaluator gives back in place of running the frame. The evaluator has to clear the frame, which only CPython's own
/// can do: it is given `value` as the only local of a function that returns it, or raises the exception where no line of
/// that function has begun, which leaves no trace of it.
///
/// # Safety
/// As CPython calls evaluators, with a frame that has not begun and whose code has a local and a place on the stack.
/// `value` is a new reference, or null with an exception set. [`keep_first_argument`] was true, and
/// `start` is where in a code object the frames of that function begin.
pub unsafe fn end_frame(
    thread: *mut ffi::PyThreadState,
    frame: *mut InterpreterFrame,
    value: Raw,
    start: usize,
) -> Raw {
    // SAFETY: the frame is not linked yet, so what is given up here is seen by nobody. Until the frame begins, its stack is
    // empty and `stack_top` counts its locals. The new code needs no more room than the caller promises.
    unsafe {
        let Some(code) = FIRST_ARGUMENT.get(Python::assume_attached()).map(Py::as_ptr) else { return null_mut() };
        let slots = (&raw mut (*frame).slots).cast::<Raw>();
        for i in 0..replace(&mut (*frame).stack_top, 0) as usize {
            ffi::Py_XDECREF(replace(&mut *slots.add(i), null_mut()));
        }
        ffi::Py_INCREF(code);
        ffi::Py_DECREF(replace(&mut (*frame).code, code));
        (*frame).instruction = code.byte_add(start).cast::<u16>();
        *slots = value;
        (*frame).stack_top = 1;
        let throws = c_int::from(value.is_null());
        ffi::_PyEval_EvalFrameDefault(thread, frame.cast(), throws)
    }
}
