//! Counts how often an object gets another `__dict__` or `__class__`. CPython tells nobody of it; so the setters behind these
//! two attributes (`subtype_setdict` and `object_set_class` of `Objects/typeobject.c`), which every class written in Python
//! has in common, are wrapped in ones that count.

use crate::python::layout;
use crate::python::raw::{self, Raw};
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

static USES: AtomicU64 = AtomicU64::new(0);
static COUNTING: AtomicBool = AtomicBool::new(false);

/// A clock that stands still while no pinned dict changes and neither setter is called. Both parts of the sum only grow.
pub fn clock(py: Python<'_>) -> u64 {
    layout::changes(py).wrapping_add(USES.load(Ordering::Relaxed))
}

/// Whether uses of the setter behind `__class__` are counted.
pub fn count() -> bool {
    COUNTING.load(Ordering::Relaxed)
}

/// Whether it is counted when this object gets another dict.
///
/// # Safety
/// A live object, GIL held.
pub unsafe fn count_dicts_of(object: Raw) -> bool {
    // SAFETY: the caller's promise; a getter's descriptor has a definition.
    unsafe {
        let name = crate::python::gil::interned!(Python::assume_attached(), "__dict__");
        let found = definition(raw::type_lookup(raw::class_of(object), name.as_ptr()));
        count() && found.and_then(|d| (*d).set).is_some_and(|set| std::ptr::fn_addr_eq(set, set_dict as ffi::setter))
    }
}

static SET_DICT: OnceLock<ffi::setter> = OnceLock::new();
static SET_CLASS: OnceLock<ffi::setter> = OnceLock::new();

unsafe extern "C" fn set_dict(object: Raw, value: Raw, closure: *mut c_void) -> c_int {
    // SAFETY: called as the setter that it stands for.
    unsafe { counted(&SET_DICT, object, value, closure) }
}

unsafe extern "C" fn set_class(object: Raw, value: Raw, closure: *mut c_void) -> c_int {
    // SAFETY: called as the setter that it stands for.
    unsafe { counted(&SET_CLASS, object, value, closure) }
}

/// Counts before and behind the call: the setter may run Python on both sides of the change.
unsafe fn counted(setter: &OnceLock<ffi::setter>, object: Raw, value: Raw, closure: *mut c_void) -> c_int {
    USES.fetch_add(1, Ordering::Relaxed);
    // SAFETY: what `wrap` found, called as it would have been; it was put there before the wrapper was.
    let done = setter.get().map_or(-1, |set| unsafe { set(object, value, closure) });
    USES.fetch_add(1, Ordering::Relaxed);
    done
}

/// Wraps the setters and finds out whether that works.
pub fn wrap(py: Python<'_>) {
    COUNTING.store(wrap_all(py).and_then(|()| works(py)).unwrap_or(false), Ordering::Relaxed);
}

/// Objects whose class has both of the attributes for a dict and weak references, and one with the dict only: their setters
/// have definitions of their own.
const CLASSES: &CStr = c"[type('C', (), {}), type('C', (), {'__slots__': ('__dict__',)})]";

fn wrap_all(py: Python<'_>) -> PyResult<()> {
    for class in py.eval(CLASSES, None, None)?.try_iter()? {
        let class = class?;
        // SAFETY: descriptors of live classes. CPython has the definitions in memory that can be written to, as it has types.
        unsafe {
            put(&SET_DICT, definition(class.getattr("__dict__")?.get_item("__dict__")?.as_ptr()), set_dict);
        }
    }
    // SAFETY: as above.
    unsafe {
        let object = py.import("builtins")?.getattr("object")?.getattr("__dict__")?.get_item("__class__")?;
        put(&SET_CLASS, definition(object.as_ptr()), set_class);
    }
    Ok(())
}

/// Puts a setter in place of a definition's own.
unsafe fn put(kept: &OnceLock<ffi::setter>, definition: Option<*mut ffi::PyGetSetDef>, wrapper: ffi::setter) {
    let Some(definition) = definition else { return };
    // SAFETY: the caller's promise: a definition that can be written to.
    unsafe {
        let Some(own) = (*definition).set else { return };
        // Where one was wrapped, the next is left alone unless it is the same.
        if std::ptr::fn_addr_eq(*kept.get_or_init(|| own), own) {
            (*definition).set = Some(wrapper);
        }
    }
}

/// What a getter's descriptor is made from.
unsafe fn definition(descriptor: Raw) -> Option<*mut ffi::PyGetSetDef> {
    // SAFETY: the caller gives a live object or null; the type says which layout it has.
    unsafe {
        let is_one = !descriptor.is_null() && ffi::Py_TYPE(descriptor) == &raw mut ffi::PyGetSetDescr_Type;
        is_one.then(|| (*descriptor.cast::<ffi::PyGetSetDescrObject>()).d_getset)
    }
}

/// Sets both attributes of objects and sees whether it is counted.
fn works(py: Python<'_>) -> PyResult<bool> {
    let mut counts = true;
    for class in py.eval(CLASSES, None, None)?.try_iter()? {
        let class = class?;
        let other = class.call_method1("__class__", ("D", (&class,), pyo3::types::PyDict::new(py)))?;
        let object = other.call0()?;
        for (name, value) in [("__dict__", pyo3::types::PyDict::new(py).into_any()), ("__class__", other)] {
            let before = USES.load(Ordering::Relaxed);
            object.setattr(name, value)?;
            counts &= USES.load(Ordering::Relaxed) != before;
        }
    }
    Ok(counts)
}
