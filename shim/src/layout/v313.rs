//! CPython 3.13: `_PyInterpreterFrame` of `Include/internal/pycore_frame.h`, how dicts are numbered, where objects and types
//! keep theirs.

pub use super::dict::{Dict, Ordered};
pub use super::watched::{FEW_DICTS, changes};

use super::watched;
use crate::raw::Raw;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::{offset_of, replace};
use std::ptr::null_mut;

/// The version that this layout is for.
pub const VERSION: (u8, u8) = (3, 13);

/// What a dict's change adds to the number of its state. One counter numbers the states of all dicts.
pub const DICT_CHANGE: u64 = 1 << 12;
/// Bits of that number that are none of the count: who watches the dict, and how often its values changed.
pub const DICT_FLAGS: u64 = DICT_CHANGE - 1;

/// Where a code object has its instructions: `co_code_adaptive`.
const FIRST_INSTRUCTION: usize = 200;

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
        if !in_object() {
            return watched::watch(dict);
        }
        if ffi::PyDict_Size(dict) == 0 {
            let key = pyo3::intern!(Python::assume_attached(), "__dict__").as_ptr();
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
    unsafe { ffi::PyObject_CallMethodNoArgs(dict, pyo3::intern!(Python::assume_attached(), "popitem").as_ptr()) }
}

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

/// The code of `lambda x: x`, with an instruction before the first that a traceback knows.
static FIRST_ARGUMENT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Such a code: `NOP`, which has no location, then the lambda's instructions and location table.
const NOTHING_FIRST: &CStr = c"(lambda c: c.replace(co_code=b'\\x1e\\0' + c.co_code, co_linetable=b'\\xf8' + c.co_linetable))\
    ((lambda x: x).__code__)";

/// Whether [`end_frame`] can be used from now on.
pub fn can_end_frames(py: Python<'_>) -> bool {
    FIRST_ARGUMENT
        .get_or_try_init(py, || py.eval(NOTHING_FIRST, None, None).map(Bound::unbind))
        .is_ok()
}

/// What an evaluator gives back in place of running the frame. The evaluator has to clear the frame, which only CPython's own
/// can do: it is given `value` as the only local of a function that returns it, or raises the exception where no line of
/// that function has begun, which leaves no trace of it.
///
/// # Safety
/// As CPython calls evaluators, with a frame that has not begun and whose code has a local and a place on the stack.
/// `value` is a new reference, or null with an exception set. [`can_end_frames`] was true.
pub unsafe fn end_frame(thread: *mut ffi::PyThreadState, frame: *mut InterpreterFrame, value: Raw) -> Raw {
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
        (*frame).instruction = code.byte_add(FIRST_INSTRUCTION).cast::<u16>();
        *slots = value;
        (*frame).stack_top = 1;
        let throws = c_int::from(value.is_null());
        ffi::_PyEval_EvalFrameDefault(thread, frame.cast(), throws)
    }
}
