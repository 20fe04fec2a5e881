//! What is sent unasked: the globals a function's names use, the attributes of modules among them, and for `nn.Module`
//! classes the look-ups that a call makes. Wrong guesses cost bytes, never results.

use super::describe::Describer;
use crate::python::code;
use crate::python::gil::GilOnce;
use crate::python::raw::{self, Raw};
use flambeau_ir::code::{Code, Const};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::collections::HashSet;

/// What was followed already.
#[derive(Default)]
pub struct Prefetch {
    functions: HashSet<usize>,
    classes: HashSet<usize>,
    tensor_names: HashSet<String>,
}

/// Names looked up on a module's class by every call.
const MODULE_CALL: &[&str] = &[
    "__call__",
    "__getattr__",
    "__getattribute__",
    "__setattr__",
    "_wrapped_call_impl",
    "_call_impl",
    "forward",
    "_compiled_call_impl",
    "__dict__",
    "__class__",
];

/// Special methods of containers among modules.
const CONTAINER_CALLS: &[&str] = &["__iter__", "__len__", "__getitem__", "__contains__", "keys", "values", "items"];

struct Known {
    module_class: Py<PyAny>,
    tensor_class: Py<PyAny>,
}

fn known(py: Python<'_>) -> Option<&'static Known> {
    static KNOWN: GilOnce<Option<Known>> = GilOnce::new();
    let load = || -> PyResult<Known> {
        Ok(Known {
            module_class: py.import("torch.nn.modules.module")?.getattr("Module")?.unbind(),
            tensor_class: py.import("torch")?.getattr("Tensor")?.unbind(),
        })
    };
    KNOWN.get_or_init(py, || load().ok()).as_ref()
}

impl Describer<'_> {
    /// Sends the globals and built-ins that a function's names refer to, and attributes of the modules among them.
    pub(super) unsafe fn prefetch_function(&mut self, function: *mut ffi::PyFunctionObject, code: &Code, depth: u8) {
        if depth == 0 || !self.prefetch.functions.insert(function as usize) {
            return;
        }
        let py = self.py();
        // SAFETY: a live function's namespaces.
        let (globals, builtins) = unsafe { ((*function).func_globals, (*function).func_builtins) };
        let mut names = Vec::new();
        all_names(code, &mut names);
        let mut modules = Vec::new();
        for name in &names {
            let key = PyString::intern(py, name);
            // SAFETY: live namespaces.
            let (own, built_in) =
                unsafe { (raw::namespace_get(globals, key.as_ptr()), raw::namespace_get(builtins, key.as_ptr())) };
            if own.is_null() && built_in.is_null() {
                continue;
            }
            let value = self.prefetch_item(globals, &key, depth - 1);
            if value.is_null() {
                self.prefetch_item(builtins, &key, 0);
            // SAFETY: a live object.
            } else if unsafe { ffi::PyModule_Check(value) } != 0 {
                modules.push(value);
            }
        }
        while let Some(module) = modules.pop() {
            // SAFETY: a module has a dict.
            let dict = unsafe { ffi::PyModule_GetDict(module) };
            self.namespace(dict);
            for name in &names {
                let key = PyString::intern(py, name);
                // SAFETY: as above.
                if unsafe { raw::namespace_get(dict, key.as_ptr()) }.is_null() {
                    continue;
                }
                let known = self.seen_item(dict, name);
                let value = self.prefetch_item(dict, &key, depth - 1);
                // SAFETY: a live object.
                if !known && unsafe { ffi::PyModule_Check(value) } != 0 {
                    modules.push(value);
                }
            }
        }
        self.prefetch_tensor_names(&names);
    }

    /// Answers look-ups on `torch.Tensor` for attribute names that code uses.
    fn prefetch_tensor_names(&mut self, names: &[String]) {
        let py = self.py();
        let Some(known) = known(py) else { return };
        let class = known.tensor_class.as_ptr();
        for name in names {
            let key = PyString::intern(py, name);
            // SAFETY: a type.
            if !unsafe { raw::type_lookup(class, key.as_ptr()) }.is_null()
                && self.prefetch.tensor_names.insert(name.clone())
            {
                self.prefetch_lookup(class, &key, 0);
            }
        }
    }

    /// For any type: whether its instances have a finalizer, which a trace asks of all that it makes or lets go of.
    pub(super) fn prefetch_class(&mut self, class: Raw) {
        let py = self.py();
        self.prefetch_lookup(class, crate::python::gil::interned!(py, "__del__"), 0);
    }

    /// For an `nn.Module`: answers the look-ups of a call on its class and describes the functions found.
    pub(super) fn prefetch_instance(&mut self, object: Raw, class: Raw) {
        let py = self.py();
        let Some(known) = known(py) else { return };
        // SAFETY: both are live types.
        if unsafe {
            ffi::PyType_IsSubtype(class.cast(), known.module_class.as_ptr().cast()) == 0 || !raw::has_plain_names(class)
        } {
            return;
        }
        // SAFETY: a live object; its dict and the dicts of children are followed to full depth.
        let dict = unsafe { raw::instance_dict(object) };
        if !dict.is_null() {
            self.reach(dict, 4);
        }
        if !self.prefetch.classes.insert(class as usize) {
            return;
        }
        let mut names: Vec<String> = MODULE_CALL.iter().chain(CONTAINER_CALLS).map(|n| (*n).to_owned()).collect();
        let mut seen: HashSet<String> = names.iter().cloned().collect();
        while let Some(name) = names.pop() {
            let (owner, value) = self.prefetch_lookup(class, &PyString::intern(py, &name), 3);
            // SAFETY: live objects found on the class.
            let function = unsafe { !value.is_null() && ffi::PyFunction_Check(value) != 0 };
            let follow = owner != known.module_class.as_ptr() || MODULE_CALL.contains(&name.as_str());
            if !function || !follow {
                continue;
            }
            // SAFETY: a Python function.
            let code = unsafe { code::encode(py, (*value.cast::<ffi::PyFunctionObject>()).func_code) };
            let mut used = Vec::new();
            code.iter().for_each(|code| all_names(code, &mut used));
            names.extend(used.into_iter().filter(|n| seen.insert(n.clone())));
        }
    }
}

/// `co_names` of a code object and those nested in it, each once, in order.
fn all_names(code: &Code, names: &mut Vec<String>) {
    for name in &code.names {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    for constant in &code.consts {
        if let Const::Code(inner) = constant {
            all_names(inner, names);
        }
    }
}
