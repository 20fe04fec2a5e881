//! A hash of what a receiver is made of. Every module is called through the same code object, so its structure is part of
//! the key that compiles are stored under; it only narrows look-ups, guards decide. A resume function has its receivers in
//! the state that it takes up.

use crate::python::code;
use crate::python::raw::{self, Raw};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::collections::HashMap;

/// Deeper children are left out.
const DEEPEST: usize = 32;

struct Walk<'py> {
    py: Python<'py>,
    hasher: blake3::Hasher,
    classes: HashMap<usize, [u8; 32]>,
}

/// The hash of a call's first argument: for a module its tree of child names and classes, for another instance its class,
/// for a tuple those of its items.
///
/// # Safety
/// A live object or null, under the GIL.
pub unsafe fn hash(py: Python<'_>, receiver: Raw) -> [u8; 32] {
    let mut walk = Walk { py, hasher: blake3::Hasher::new(), classes: HashMap::new() };
    if !receiver.is_null() {
        // SAFETY: the caller's promise.
        unsafe { walk.receiver(receiver, 0) };
    }
    *walk.hasher.finalize().as_bytes()
}

impl Walk<'_> {
    unsafe fn receiver(&mut self, object: Raw, depth: usize) {
        // SAFETY: a live object; a tuple's items do not change.
        unsafe {
            if raw::is_python_class(self.py, raw::class_of(object)) {
                self.object(object, 0);
            } else if ffi::PyTuple_CheckExact(object) != 0 && depth < DEEPEST {
                for i in 0..ffi::PyTuple_GET_SIZE(object) {
                    self.receiver(ffi::PyTuple_GET_ITEM(object, i), depth + 1);
                }
            }
        }
    }

    unsafe fn object(&mut self, object: Raw, depth: usize) {
        let modules = PyString::intern(self.py, "_modules");
        // SAFETY: a live object; its dicts do not change under the GIL while only raw reads happen.
        unsafe {
            let class = self.class(raw::class_of(object));
            self.hasher.update(&class);
            let children = raw::dict_get(raw::instance_dict(object), modules.as_ptr());
            if depth == DEEPEST || children.is_null() || ffi::PyDict_Check(children) == 0 {
                return;
            }
            let (mut position, mut key, mut value) = (0, std::ptr::null_mut(), std::ptr::null_mut());
            while ffi::PyDict_Next(children, &raw mut position, &raw mut key, &raw mut value) != 0 {
                let name = raw::utf8(key).unwrap_or_default();
                self.hasher.update(&(name.len() as u64).to_le_bytes()).update(name.as_bytes());
                self.object(value, depth + 1);
            }
            self.hasher.update(b"end");
        }
    }

    unsafe fn class(&mut self, class: Raw) -> [u8; 32] {
        if let Some(known) = self.classes.get(&(class as usize)) {
            return *known;
        }
        let forward = PyString::intern(self.py, "forward");
        // SAFETY: a live type, and what it finds.
        let hash = unsafe {
            let (module, qualname) = raw::class_names(class);
            let mut hasher = blake3::Hasher::new();
            hasher.update(module.as_bytes()).update(b":").update(qualname.as_bytes());
            let function = raw::type_lookup(class, forward.as_ptr());
            if !function.is_null() && ffi::PyFunction_Check(function) != 0 {
                let code = code::hash(self.py, (*function.cast::<ffi::PyFunctionObject>()).func_code);
                hasher.update(&code.map_or([0; 32], |c| c.0));
            }
            *hasher.finalize().as_bytes()
        };
        self.classes.insert(class as usize, hash);
        hash
    }
}
