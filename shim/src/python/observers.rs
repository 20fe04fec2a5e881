//! Who watches the calling thread run Python code: the functions set with `sys.settrace` and `sys.setprofile`, and from
//! Python 3.12 on the tools of `sys.monitoring`.
//!
//! Debuggers and coverage tools are to see the lines of the user's functions, which compiled frames do not run: while one
//! watches, compiled callables run as plain Python. Profilers see what runs, compiled frames among it.

use crate::python::gil::GilOnce;
use crate::python::layout;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether anybody ever registered a callback of `sys.monitoring`: only then are its tools asked for.
static MONITORED: AtomicBool = AtomicBool::new(false);
/// `sys.monitoring.DEBUGGER_ID` and `COVERAGE_ID`.
const LINE_TOOLS: [c_int; 2] = [0, 1];

/// Begins to listen for registrations.
pub fn listen(py: Python<'_>) {
    if py.version_info() >= (3, 12) {
        // SAFETY: the hook lives as long as the process; with the GIL held it may refuse nothing.
        unsafe { PySys_AddAuditHook(hear, std::ptr::null_mut()) };
    }
}

type Hook = unsafe extern "C" fn(*const c_char, *mut ffi::PyObject, *mut c_void) -> c_int;

unsafe extern "C" {
    fn PySys_AddAuditHook(hook: Hook, data: *mut c_void) -> c_int;
}

unsafe extern "C" fn hear(event: *const c_char, _: *mut ffi::PyObject, _: *mut c_void) -> c_int {
    // SAFETY: CPython gives a string that ends with zero.
    if unsafe { CStr::from_ptr(event) } == c"sys.monitoring.register_callback" {
        MONITORED.store(true, Ordering::Relaxed);
    }
    0
}

/// Whether a debugger or a coverage tool watches the lines that the calling thread runs.
#[inline]
pub fn lines_are_watched(py: Python<'_>) -> bool {
    // SAFETY: the calling thread's state, which is there as the GIL is held; the offset is that of this version.
    let traced = unsafe { *ffi::PyThreadState_Get().byte_add(layout::TRACE_FUNCTION).cast::<*mut c_void>() };
    !traced.is_null() || (MONITORED.load(Ordering::Relaxed) && tools_watch(py))
}

#[cold]
fn tools_watch(py: Python<'_>) -> bool {
    let asked = || -> PyResult<bool> {
        let tool = py.import("sys")?.getattr("monitoring")?.getattr("get_tool")?;
        Ok(LINE_TOOLS.iter().map(|id| tool.call1((id,))).collect::<PyResult<Vec<_>>>()?.iter().any(|t| !t.is_none()))
    };
    asked().unwrap_or(false)
}

/// What is set, by address. It is only compared with what is set later in the same call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Observers([usize; 2]);

impl Observers {
    /// Those set now.
    pub fn now(py: Python<'_>) -> Observers {
        static READERS: GilOnce<[Py<PyAny>; 2]> = GilOnce::new();
        let readers = READERS.get_or_try_init(py, || {
            let sys = py.import("sys")?;
            Ok::<_, PyErr>([sys.getattr("gettrace")?.unbind(), sys.getattr("getprofile")?.unbind()])
        });
        let Ok(readers) = readers else { return Observers([0; 2]) };
        Observers([0, 1].map(|i| {
            // SAFETY: built-in functions without arguments, which give new references. What they give lives on while it is set.
            unsafe {
                let set = ffi::PyObject_CallNoArgs(readers[i].as_ptr());
                ffi::Py_XDECREF(set);
                set as usize
            }
        }))
    }
}
