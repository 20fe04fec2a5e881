//! Call arguments to `localsplus` slots, as CPython's `initialize_locals` binds them. On any error the caller runs the
//! original function, which raises Python's own message.

use crate::python::raw::Raw;
use pyo3::ffi;
use smallvec::SmallVec;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

const CO_VARARGS: i32 = 0x04;
const CO_VARKEYWORDS: i32 = 0x08;

/// The parts of a code object that binding needs; read once per code object.
#[derive(Debug, Clone, Copy)]
pub struct Signature {
    argcount: usize,
    posonly: usize,
    kwonly: usize,
    flags: i32,
    /// `co_varnames`' names of parameters; alive while the code is.
    names: *mut ffi::PyObject,
}

/// Bound arguments. What was made for the call (`*args`, `**kwargs`) is owned here.
pub struct Bound {
    /// One per argument slot; null where absent (never the case after a successful bind).
    pub slots: SmallVec<[Raw; 8]>,
    made: SmallVec<[Raw; 2]>,
}

impl Drop for Bound {
    fn drop(&mut self) {
        for object in &self.made {
            // SAFETY: owned references, given up once, with the GIL held as during every call.
            unsafe {
                if !keep(*object) {
                    ffi::Py_DECREF(*object);
                }
            }
        }
    }
}

/// An empty `**kwargs` for the next call, or null. Guards compare the states of dicts, so one that stays as it is costs
/// less than a new one for each call. Touched with the GIL held.
static EMPTY: AtomicPtr<ffi::PyObject> = AtomicPtr::new(ptr::null_mut());
/// The state of that dict when it was made.
static EMPTY_STATE: AtomicU64 = AtomicU64::new(0);

/// A new reference to an empty dict that nobody else has; null if there is no memory.
fn empty_dict() -> Raw {
    let kept = EMPTY.swap(ptr::null_mut(), Ordering::Relaxed);
    if !kept.is_null() {
        return kept;
    }
    // SAFETY: the GIL is held.
    unsafe {
        let dict = ffi::PyDict_New();
        if !dict.is_null() {
            EMPTY_STATE.store(*crate::python::raw::dict_version(dict), Ordering::Relaxed);
        }
        dict
    }
}

/// Keeps a dict of [`empty_dict`] that nobody else refers to and nobody ever changed.
///
/// # Safety
/// A live object, one reference of which is given up where this is true.
unsafe fn keep(object: Raw) -> bool {
    // SAFETY: a live object.
    let unchanged = unsafe {
        ffi::Py_REFCNT(object) == 1
            && ffi::PyDict_CheckExact(object) != 0
            && *crate::python::raw::dict_version(object) == EMPTY_STATE.load(Ordering::Relaxed)
    };
    if unchanged {
        EMPTY.store(object, Ordering::Relaxed);
    }
    unchanged
}

impl Signature {
    /// Reads a code object. `names` must be its `co_varnames` and outlive the signature.
    pub fn new(argcount: usize, posonly: usize, kwonly: usize, flags: i32, names: Raw) -> Self {
        Signature { argcount, posonly, kwonly, flags, names }
    }

    /// Number of argument slots.
    pub fn slots(&self) -> usize {
        self.argcount
            + self.kwonly
            + usize::from(self.flags & CO_VARARGS != 0)
            + usize::from(self.flags & CO_VARKEYWORDS != 0)
    }

    /// Whether a call with this many positional and no keyword arguments needs no work.
    pub fn is_direct(&self, positional: usize) -> bool {
        positional == self.argcount && self.kwonly == 0 && self.flags & (CO_VARARGS | CO_VARKEYWORDS) == 0
    }

    /// Binds a vectorcall to `function`'s parameters; `None` if Python would raise.
    ///
    /// # Safety
    /// `args` holds `positional` objects, then one per name of `kwnames` (a tuple of strs or null); `function` is the Python
    /// function with this signature's code; the GIL is held.
    pub unsafe fn bind(
        &self,
        function: *mut ffi::PyFunctionObject,
        args: *const Raw,
        positional: usize,
        kwnames: Raw,
    ) -> Option<Bound> {
        let mut bound = Bound { slots: SmallVec::from_elem(ptr::null_mut(), self.slots()), made: SmallVec::new() };
        let named = self.argcount + self.kwonly;
        // SAFETY: indices stay below the counts given; created objects go to `made`.
        unsafe {
            let taken = positional.min(self.argcount);
            for i in 0..taken {
                bound.slots[i] = *args.add(i);
            }
            if self.flags & CO_VARARGS != 0 {
                let rest = positional - taken;
                let tuple = ffi::PyTuple_New(rest as isize);
                if tuple.is_null() {
                    ffi::PyErr_Clear();
                    return None;
                }
                for i in 0..rest {
                    let item = *args.add(taken + i);
                    ffi::Py_INCREF(item);
                    ffi::PyTuple_SET_ITEM(tuple, i as isize, item);
                }
                bound.made.push(tuple);
                bound.slots[named] = tuple;
            } else if positional > self.argcount {
                return None;
            }
            self.keywords(&mut bound, args.add(positional), kwnames)?;
            self.defaults(&mut bound, function)?;
        }
        Some(bound)
    }

    unsafe fn keywords(&self, bound: &mut Bound, values: *const Raw, kwnames: Raw) -> Option<()> {
        let named = self.argcount + self.kwonly;
        // SAFETY: as for `bind`.
        unsafe {
            let mut extra = ptr::null_mut();
            if self.flags & CO_VARKEYWORDS != 0 {
                extra = empty_dict();
                if extra.is_null() {
                    ffi::PyErr_Clear();
                    return None;
                }
                bound.made.push(extra);
                bound.slots[named + usize::from(self.flags & CO_VARARGS != 0)] = extra;
            }
            let count = if kwnames.is_null() { 0 } else { ffi::PyTuple_GET_SIZE(kwnames) };
            for i in 0..count {
                let (key, value) = (ffi::PyTuple_GET_ITEM(kwnames, i), *values.add(i as usize));
                // A key of another type would need its own `__eq__`.
                if ffi::PyUnicode_CheckExact(key) == 0 {
                    return None;
                }
                match self.parameter(key, named) {
                    Some(slot) if bound.slots[slot].is_null() => bound.slots[slot] = value,
                    Some(_) => return None,
                    None if extra.is_null() => return None,
                    None => {
                        if ffi::PyDict_SetItem(extra, key, value) != 0 {
                            ffi::PyErr_Clear();
                            return None;
                        }
                    }
                }
            }
        }
        Some(())
    }

    /// The slot of the parameter called `key`, positional-only ones apart.
    unsafe fn parameter(&self, key: Raw, named: usize) -> Option<usize> {
        // SAFETY: `names` has at least `named` strs.
        unsafe {
            let name = |slot: usize| ffi::PyTuple_GET_ITEM(self.names, slot as isize);
            (self.posonly..named)
                .find(|slot| name(*slot) == key)
                .or_else(|| (self.posonly..named).find(|slot| ffi::PyUnicode_Compare(name(*slot), key) == 0))
        }
    }

    unsafe fn defaults(&self, bound: &mut Bound, function: *mut ffi::PyFunctionObject) -> Option<()> {
        // SAFETY: a Python function's default parts are a tuple and a dict, or null.
        unsafe {
            let defaults = (*function).func_defaults;
            let count = if defaults.is_null() { 0 } else { ffi::PyTuple_GET_SIZE(defaults) as usize };
            let first = self.argcount.saturating_sub(count);
            for slot in 0..self.argcount {
                if bound.slots[slot].is_null() {
                    if slot < first {
                        return None;
                    }
                    bound.slots[slot] = ffi::PyTuple_GET_ITEM(defaults, (slot + count - self.argcount) as isize);
                }
            }
            for slot in self.argcount..self.argcount + self.kwonly {
                if bound.slots[slot].is_null() {
                    let kwdefaults = (*function).func_kwdefaults;
                    let name = ffi::PyTuple_GET_ITEM(self.names, slot as isize);
                    let value = crate::python::raw::dict_get(kwdefaults, name);
                    if value.is_null() {
                        return None;
                    }
                    bound.slots[slot] = value;
                }
            }
        }
        Some(())
    }
}
