//! Who watches the calling thread run Python code: the functions set with `sys.settrace` and `sys.setprofile`.

use crate::gil::GilOnce;
use pyo3::ffi;
use pyo3::prelude::*;

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
