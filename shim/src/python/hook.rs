//! The PEP 523 hook: a function of ours that CPython calls in place of its own evaluator of frames. It is set only while
//! somebody looks for frames, and forwards to the hook that was there before.

use crate::python::layout::InterpreterFrame;
use crate::python::raw::Raw;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Runs a frame: thread, frame, and whether an exception is thrown into it.
pub type Eval = extern "C" fn(*mut ffi::PyThreadState, *mut InterpreterFrame, c_int) -> Raw;

unsafe extern "C" {
    fn _PyEval_EvalFrameDefault(thread: *mut ffi::PyThreadState, frame: *mut InterpreterFrame, throws: c_int) -> Raw;
    fn _PyInterpreterState_GetEvalFrameFunc(interpreter: *mut ffi::PyInterpreterState) -> Eval;
    fn _PyInterpreterState_SetEvalFrameFunc(interpreter: *mut ffi::PyInterpreterState, eval: Eval);
}

/// Live [`Hook`] objects of all threads. Changed with the GIL held.
static USERS: AtomicUsize = AtomicUsize::new(0);
/// The evaluator that was set before ours.
static BEFORE: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
/// Ours, the same all the time.
static OURS: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// While one lives, the hook is set.
pub struct Hook(());

impl Hook {
    /// Has `eval`, the only one that this is ever called with, run the frames of this process.
    pub fn set(_: Python<'_>, eval: Eval) -> Hook {
        if USERS.fetch_add(1, Ordering::Relaxed) == 0 {
            OURS.store(eval as *mut c_void, Ordering::Relaxed);
            // SAFETY: the GIL is held; both functions take the current interpreter.
            unsafe {
                let interpreter = ffi::PyInterpreterState_Get();
                let before = _PyInterpreterState_GetEvalFrameFunc(interpreter);
                // Below a hook that somebody else set later, ours is in place already.
                let below = !BEFORE.load(Ordering::Relaxed).is_null()
                    && before as *const c_void != _PyEval_EvalFrameDefault as *const c_void;
                if before as *const c_void != eval as *const c_void && !below {
                    BEFORE.store(before as *mut c_void, Ordering::Relaxed);
                    _PyInterpreterState_SetEvalFrameFunc(interpreter, eval);
                }
            }
        }
        Hook(())
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        // A hook that somebody set after ours stays, and ours below it.
        if USERS.fetch_sub(1, Ordering::Relaxed) == 1 && exchange(ours(), before()) {
            BEFORE.store(null_mut(), Ordering::Relaxed);
        }
    }
}

/// The evaluator that ours forwards to; there is one while the hook is set.
pub fn before() -> Eval {
    // SAFETY: what was found set in `Hook::set`, a function of this type.
    unsafe { std::mem::transmute::<*mut c_void, Eval>(BEFORE.load(Ordering::Relaxed)) }
}

fn ours() -> Eval {
    // SAFETY: what `Hook::set` stored, a function of this type; asked for only after that.
    unsafe { std::mem::transmute::<*mut c_void, Eval>(OURS.load(Ordering::Relaxed)) }
}

/// While it lives, the hook is off, unless it is below somebody else's.
pub struct Off {
    instead: Eval,
    /// Whether the hook was on.
    changed: bool,
}

impl Off {
    /// Takes off a hook that is set.
    pub fn new() -> Off {
        let instead = before();
        Off { instead, changed: exchange(ours(), instead) }
    }

    /// Takes it off if it is set, whoever set it: Python then hands arguments on to the functions that it calls, where it
    /// would hold them below a hook.
    pub fn if_set(_: Python<'_>) -> Option<Off> {
        (USERS.load(Ordering::Relaxed) > 0).then(Off::new)
    }
}

impl Drop for Off {
    fn drop(&mut self) {
        // The thread that looked for frames may be done meanwhile.
        if self.changed && USERS.load(Ordering::Relaxed) > 0 {
            exchange(self.instead, ours());
        }
    }
}

/// Whether it was the one to exchange.
fn exchange(from: Eval, to: Eval) -> bool {
    // SAFETY: called with the GIL held; both functions take the current interpreter.
    unsafe {
        let interpreter = ffi::PyInterpreterState_Get();
        let set = _PyInterpreterState_GetEvalFrameFunc(interpreter) as *const c_void == from as *const c_void;
        if set {
            _PyInterpreterState_SetEvalFrameFunc(interpreter, to);
        }
        set
    }
}
