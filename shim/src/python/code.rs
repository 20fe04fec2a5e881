//! Code objects as `ir::code::Code`, through their attributes (`co_code`, never the adaptive bytecode), cached per object.

use crate::python::consts;
use crate::python::layout;
use crate::python::raw::Raw;
use flambeau_ir::code::{Code, CodeHash, Const};
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCode, PyTuple};
use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, OnceLock};

/// Flags of code whose frames are suspended: generators, coroutines and async generators, which are not compiled as a whole.
pub const SUSPENDS: i32 = 0x20 | 0x80 | 0x200;

/// The encoded code object; `None` if it holds a constant that has no encoding (a str with lone surrogates).
///
/// # Safety
/// `code` is a live code object and the GIL is held.
pub unsafe fn encode(py: Python<'_>, code: Raw) -> Option<Arc<Code>> {
    let index = extra_index();
    let mut found: *mut c_void = ptr::null_mut();
    // SAFETY: the index came from `new_code_extra`; what it holds was made by `Arc::into_raw` below.
    unsafe {
        if index >= 0 && layout::code_extra(code, index, &raw mut found) == 0 && !found.is_null() {
            let kept = found.cast::<Code>().cast_const();
            Arc::increment_strong_count(kept);
            return Some(Arc::from_raw(kept));
        }
    }
    // SAFETY: the caller's promise.
    let object = unsafe { Bound::from_borrowed_ptr(py, code) }.cast_into::<PyCode>().ok()?;
    let encoded = Arc::new(read(&object).ok()?);
    if index >= 0 {
        let kept = Arc::into_raw(encoded.clone()).cast_mut().cast::<c_void>();
        // SAFETY: as above; on failure the reference is taken back.
        unsafe {
            if layout::set_code_extra(code, index, kept) != 0 {
                ffi::PyErr_Clear();
                drop_extra(kept);
            }
        }
    }
    Some(encoded)
}

/// The hash of a code object, or `None` as for [`encode`].
///
/// # Safety
/// As [`encode`].
pub unsafe fn hash(py: Python<'_>, code: Raw) -> Option<CodeHash> {
    // SAFETY: the caller's promise.
    unsafe { encode(py, code) }.map(|c| c.hash)
}

/// Whether an object is a resume function: one that takes up a frame after a graph break, from a tuple of its live state.
///
/// # Safety
/// A live object and the GIL is held.
pub unsafe fn is_resume_function(py: Python<'_>, object: Raw) -> bool {
    // SAFETY: the caller's promise; the type test says which layout the object has.
    unsafe {
        if ffi::PyFunction_Check(object) == 0 {
            return false;
        }
        let code = encode(py, (*object.cast::<ffi::PyFunctionObject>()).func_code);
        code.is_some_and(|code| code.is_resume())
    }
}

fn extra_index() -> ffi::Py_ssize_t {
    static INDEX: OnceLock<ffi::Py_ssize_t> = OnceLock::new();
    // SAFETY: called with the GIL held; -1 means that no index was left.
    *INDEX.get_or_init(|| unsafe { layout::new_code_extra(drop_extra) } as ffi::Py_ssize_t)
}

unsafe extern "C" fn drop_extra(extra: *mut c_void) {
    if !extra.is_null() {
        // SAFETY: made by `Arc::into_raw` in `encode`.
        drop(unsafe { Arc::from_raw(extra.cast::<Code>().cast_const()) });
    }
}

fn read(code: &Bound<'_, PyCode>) -> PyResult<Code> {
    let py = code.py();
    let bytes = |name: &str| -> PyResult<Vec<u8>> { Ok(code.getattr(name)?.cast::<PyBytes>()?.as_bytes().to_vec()) };
    let number = |name: &str| -> PyResult<u32> { code.getattr(name)?.extract() };
    let names = |name: &str| -> PyResult<Vec<String>> { code.getattr(name)?.extract() };
    let consts = code.getattr("co_consts")?.cast_into::<PyTuple>()?;
    let consts: Option<Vec<Const>> = consts.iter().map(|c| consts::from_code_const(&c)).collect();
    let (localsplusnames, localspluskinds) = localsplus(code)?;
    let version = py.version_info();
    let mut encoded = Code {
        hash: CodeHash([0; 32]),
        python: (version.major, version.minor),
        name: code.getattr("co_name")?.extract()?,
        qualname: code.getattr("co_qualname")?.extract()?,
        filename: code.getattr("co_filename")?.extract()?,
        firstlineno: number("co_firstlineno")?,
        argcount: number("co_argcount")?,
        posonlyargcount: number("co_posonlyargcount")?,
        kwonlyargcount: number("co_kwonlyargcount")?,
        stacksize: number("co_stacksize")?,
        flags: number("co_flags")?,
        bytecode: bytes("co_code")?,
        consts: consts.ok_or_else(|| PyValueError::new_err("a constant has no encoding"))?,
        names: names("co_names")?,
        localsplusnames,
        localspluskinds,
        linetable: bytes("co_linetable")?,
        exceptiontable: bytes("co_exceptiontable")?,
    };
    encoded.hash = encoded.content_hash();
    Ok(encoded)
}

/// `localsplus` as CPython lays it out: locals (arguments first, those that are cells marked), then cells that are no
/// arguments, then free variables.
fn localsplus(code: &Bound<'_, PyCode>) -> PyResult<(Vec<String>, Vec<u8>)> {
    let varnames: Vec<String> = code.getattr("co_varnames")?.extract()?;
    let cellvars: Vec<String> = code.getattr("co_cellvars")?.extract()?;
    let freevars: Vec<String> = code.getattr("co_freevars")?.extract()?;
    let mut kinds: Vec<u8> = varnames
        .iter()
        .map(|name| if cellvars.contains(name) { Code::LOCAL | Code::CELL } else { Code::LOCAL })
        .collect();
    let mut all = varnames;
    for name in cellvars {
        if !all.contains(&name) {
            all.push(name);
            kinds.push(Code::CELL);
        }
    }
    kinds.extend(freevars.iter().map(|_| Code::FREE));
    all.extend(freevars);
    Ok((all, kinds))
}

/// The constant with this index of a function's code.
pub fn constant(function: &Bound<'_, PyAny>, index: usize) -> PyResult<Py<PyAny>> {
    let code = function.getattr(crate::python::gil::interned!(function.py(), "__code__"))?;
    let consts = code.getattr(crate::python::gil::interned!(function.py(), "co_consts"))?;
    Ok(consts.cast::<PyTuple>()?.get_item(index)?.unbind())
}
