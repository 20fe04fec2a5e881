//! `flambeau._native.Compiled`: the object that `flambeau.compile` gives back. It takes calls through the vectorcall
//! protocol, binds as a method, has a `__dict__` (`__name__`, `__wrapped__`, ... go there), and is left alone by `copy`.

use crate::call::entry::Entry;
use crate::link::backends::Wanted;
use crate::process::compiled;
use crate::python::raw::Raw;
use pyo3::exceptions::{PyReferenceError, PyTypeError};
use pyo3::ffi;
use pyo3::impl_::trampoline;
use pyo3::prelude::*;
use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::ptr;

unsafe extern "C" {
    fn PyMethod_New(function: Raw, receiver: Raw) -> Raw;
}

type Compiled = compiled::Compiled<Entry>;

/// The type, made once.
pub fn class(py: Python<'_>) -> PyResult<&'static Py<PyAny>> {
    compiled::CLASS.get_or_try_init(py, || make(py))
}

fn make(py: Python<'_>) -> PyResult<Py<PyAny>> {
    fn slot(slot: c_int, function: *mut c_void) -> ffi::PyType_Slot {
        ffi::PyType_Slot { slot, pfunc: function }
    }
    let members = Box::leak(Box::new([
        member(c"__dictoffset__", offset_of!(Compiled, dict)),
        member(c"__weaklistoffset__", offset_of!(Compiled, weak)),
        member(c"__vectorcalloffset__", offset_of!(Compiled, vectorcall)),
        // SAFETY: a zeroed entry ends the list.
        unsafe { std::mem::zeroed() },
    ]));
    let getset = Box::leak(Box::new([
        ffi::PyGetSetDef {
            name: c"__dict__".as_ptr(),
            get: Some(ffi::PyObject_GenericGetDict),
            set: Some(ffi::PyObject_GenericSetDict),
            doc: ptr::null(),
            closure: ptr::null_mut(),
        },
        // SAFETY: a zeroed entry ends the list.
        unsafe { std::mem::zeroed() },
    ]));
    let methods = Box::leak(Box::new([
        method(c"__reduce__", reduce, ffi::METH_NOARGS),
        method(c"__copy__", itself, ffi::METH_NOARGS),
        method(c"__deepcopy__", itself, ffi::METH_O),
        method(c"__prepare_scriptable__", original, ffi::METH_NOARGS),
        // SAFETY: a zeroed entry ends the list.
        unsafe { std::mem::zeroed() },
    ]));
    let slots = Box::leak(Box::new([
        slot(ffi::Py_tp_new, new as *mut c_void),
        slot(ffi::Py_tp_dealloc, dealloc as *mut c_void),
        slot(ffi::Py_tp_traverse, traverse as *mut c_void),
        slot(ffi::Py_tp_clear, clear as *mut c_void),
        slot(ffi::Py_tp_call, ffi::PyVectorcall_Call as *mut c_void),
        slot(ffi::Py_tp_descr_get, bind as *mut c_void),
        slot(ffi::Py_tp_repr, repr as *mut c_void),
        slot(ffi::Py_tp_members, members.as_mut_ptr().cast()),
        slot(ffi::Py_tp_getset, getset.as_mut_ptr().cast()),
        slot(ffi::Py_tp_methods, methods.as_mut_ptr().cast()),
        slot(ffi::Py_tp_doc, c"A compiled Python function.".as_ptr().cast_mut().cast()),
        slot(0, ptr::null_mut()),
    ]));
    let flags = ffi::Py_TPFLAGS_DEFAULT
        | ffi::Py_TPFLAGS_HAVE_GC
        | ffi::Py_TPFLAGS_HAVE_VECTORCALL
        | ffi::Py_TPFLAGS_METHOD_DESCRIPTOR;
    let mut spec = ffi::PyType_Spec {
        name: c"flambeau._native.Compiled".as_ptr(),
        basicsize: size_of::<Compiled>() as c_int,
        itemsize: 0,
        flags: flags as u32,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: all that the spec points to is leaked or static.
    unsafe { Ok(Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpec(&raw mut spec))?.unbind()) }
}

fn member(name: &'static std::ffi::CStr, offset: usize) -> ffi::PyMemberDef {
    ffi::PyMemberDef {
        name: name.as_ptr(),
        type_code: ffi::Py_T_PYSSIZET,
        offset: offset as isize,
        flags: ffi::Py_READONLY,
        doc: ptr::null(),
    }
}

fn method(name: &'static std::ffi::CStr, function: ffi::PyCFunction, flags: c_int) -> ffi::PyMethodDef {
    ffi::PyMethodDef {
        ml_name: name.as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunction: function },
        ml_flags: flags,
        ml_doc: ptr::null(),
    }
}

/// The compiled entry of a `Compiled` object; `None` for other objects.
pub fn entry_of<'a>(py: Python<'_>, object: &'a Bound<'_, PyAny>) -> Option<&'a Entry> {
    let class = class(py).ok()?;
    if object.get_type().as_ptr() != class.as_ptr() {
        return None;
    }
    // SAFETY: the type says the layout; the entry lives as long as the object.
    unsafe { (*object.as_ptr().cast::<Compiled>()).entry.as_ref() }
}

unsafe extern "C" fn new(class: *mut ffi::PyTypeObject, args: Raw, kwargs: Raw) -> Raw {
    // SAFETY: called by CPython with the GIL held and valid arguments.
    Python::attach(|py| unsafe {
        match build(py, class, args, kwargs) {
            Ok(object) => object,
            Err(error) => {
                error.restore(py);
                ptr::null_mut()
            }
        }
    })
}

/// Arguments of the type: function, back end, `f(gm, example_inputs)`, `fullgraph`, `dynamic`, whether plans are recorded.
type Args = (Py<PyAny>, Option<String>, Option<Py<PyAny>>, bool, Option<bool>, bool);

unsafe fn build(py: Python<'_>, class: *mut ffi::PyTypeObject, args: Raw, kwargs: Raw) -> PyResult<Raw> {
    // SAFETY: a tuple and a dict or null, by the `tp_new` protocol.
    let args = unsafe { Bound::from_borrowed_ptr(py, args) };
    if !kwargs.is_null() {
        return Err(PyTypeError::new_err("Compiled() takes no keyword arguments"));
    }
    let (function, backend, fx, fullgraph, dynamic, records): Args = args.extract()?;
    // SAFETY: a live object.
    if unsafe { ffi::PyFunction_Check(function.as_ptr()) } == 0 {
        return Err(PyTypeError::new_err("Compiled() takes a Python function"));
    }
    let backend = backend.map_or(Wanted::Default, Wanted::Named);
    let entry = Box::new(Entry::new(backend, fx, fullgraph, dynamic, records));
    crate::link::warm_up();
    crate::describe::probe::probe(py);
    // SAFETY: `class` is the type made above; its allocator zeroes the object.
    unsafe {
        let object = ffi::PyType_GenericAlloc(class, 0);
        if object.is_null() {
            return Err(PyErr::fetch(py));
        }
        let compiled = object.cast::<Compiled>();
        (*compiled).vectorcall = Some(call);
        (*compiled).function = function.into_ptr();
        (*compiled).entry = Box::into_raw(entry);
        Ok(object)
    }
}

unsafe extern "C" fn call(object: Raw, args: *const Raw, nargsf: usize, kwnames: Raw) -> Raw {
    // SAFETY: CPython calls this with a live `Compiled`, valid arguments and the GIL held, which `trampoline` takes its word
    // for: asking for the GIL costs more than all of an entry.
    unsafe { trampoline::fastcall_with_keywords(object, args, nargsf.cast_signed(), kwnames, enter) }
}

/// # Safety
/// The vectorcall protocol, for a live `Compiled`.
unsafe fn enter(py: Python<'_>, object: Raw, args: *const Raw, nargsf: isize, kwnames: Raw) -> PyResult<Raw> {
    // SAFETY: the caller's promise. The function is kept alive over the call by a reference of its own, since user code may
    // clear the object.
    unsafe {
        let compiled = object.cast::<Compiled>();
        let (function, entry) = ((*compiled).function, (*compiled).entry);
        if function.is_null() || entry.is_null() {
            return Err(PyReferenceError::new_err("the compiled function was cleared"));
        }
        if ffi::Py_IsInitialized() == 0 {
            // The interpreter shuts down.
            return Ok(ffi::PyObject_Vectorcall(function, args, nargsf.cast_unsigned(), kwnames));
        }
        ffi::Py_INCREF(object);
        ffi::Py_INCREF(function);
        let result = (*entry).call(py, function, args, nargsf.cast_unsigned(), kwnames);
        ffi::Py_DECREF(function);
        ffi::Py_DECREF(object);
        Ok(result)
    }
}

unsafe extern "C" fn bind(object: Raw, instance: Raw, _owner: Raw) -> Raw {
    // SAFETY: the descriptor protocol's arguments.
    unsafe {
        if instance.is_null() || instance == ffi::Py_None() {
            ffi::Py_INCREF(object);
            return object;
        }
        PyMethod_New(object, instance)
    }
}

unsafe extern "C" fn repr(object: Raw) -> Raw {
    // SAFETY: a live `Compiled`.
    unsafe { ffi::PyUnicode_FromFormat(c"<flambeau compiled %R>".as_ptr(), (*object.cast::<Compiled>()).function) }
}

/// By qualified name, as functions are pickled.
unsafe extern "C" fn reduce(object: Raw, _args: Raw) -> Raw {
    // SAFETY: a live `Compiled`; a new reference is returned.
    unsafe {
        let function = (*object.cast::<Compiled>()).function.cast::<ffi::PyFunctionObject>();
        let name = (*function).func_qualname;
        ffi::Py_INCREF(name);
        name
    }
}

unsafe extern "C" fn itself(object: Raw, _memo: Raw) -> Raw {
    // SAFETY: a live object.
    unsafe { ffi::Py_INCREF(object) };
    object
}

/// The Python function: what `torch.jit.script` compiles in the callable's place.
unsafe extern "C" fn original(object: Raw, _args: Raw) -> Raw {
    // SAFETY: called by Python with a `Compiled` object, whose function lives as long.
    unsafe { ffi::Py_NewRef((*object.cast::<Compiled>()).function) }
}

unsafe extern "C" fn traverse(object: Raw, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
    // SAFETY: the collector calls this for a live object; fields are null or owned.
    unsafe {
        let compiled = object.cast::<Compiled>();
        let class: Raw = ffi::Py_TYPE(object).cast();
        for part in [class, (*compiled).dict, (*compiled).function] {
            if !part.is_null() {
                let stop = visit(part, arg);
                if stop != 0 {
                    return stop;
                }
            }
        }
    }
    0
}

unsafe extern "C" fn clear(object: Raw) -> c_int {
    // SAFETY: fields are nulled before their references are given up.
    unsafe {
        let compiled = object.cast::<Compiled>();
        let parts = [
            std::mem::replace(&mut (*compiled).dict, ptr::null_mut()),
            std::mem::replace(&mut (*compiled).function, ptr::null_mut()),
        ];
        for part in parts {
            ffi::Py_XDECREF(part);
        }
    }
    0
}

unsafe extern "C" fn dealloc(object: Raw) {
    // SAFETY: the last reference is gone; the entry was made by `Box::into_raw`.
    unsafe {
        ffi::PyObject_GC_UnTrack(object.cast());
        let compiled = object.cast::<Compiled>();
        if !(*compiled).weak.is_null() {
            ffi::PyObject_ClearWeakRefs(object);
        }
        clear(object);
        let entry = std::mem::replace(&mut (*compiled).entry, ptr::null_mut());
        if !entry.is_null() {
            // Told that the thread is attached, pyo3 drops references at once; else they pile up until somebody says so. Once the
            // interpreter shuts down it cannot be told: what the entry refers to is left to the operating system.
            let mut entry = Some(Box::from_raw(entry));
            Python::try_attach(|_| drop(entry.take()));
            std::mem::forget(entry);
        }
        let class = ffi::Py_TYPE(object);
        ffi::PyObject_GC_Del(object.cast());
        ffi::Py_DECREF(class.cast());
    }
}
