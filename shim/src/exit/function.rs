//! Functions that a trace made and that leave the frame: code objects by hash, cells, defaults.

use super::Given;
use super::build::{raised, value};
use crate::raw::Raw;
use flambeau_ir::code::Code;
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

/// A function to make; numbers are indices of earlier builds.
pub struct NewFunction {
    /// Its code object.
    pub code: Py<PyAny>,
    /// Slot of `__globals__`.
    pub globals: usize,
    /// `__qualname__`
    pub qualname: Py<PyAny>,
    /// Defaults tuple.
    pub defaults: Option<usize>,
    /// Keyword defaults dict.
    pub kwdefaults: Option<usize>,
    /// Cells.
    pub closure: Vec<usize>,
}

impl NewFunction {
    /// Makes it.
    pub fn make(&self, py: Python<'_>, given: &Given<'_>, made: &[Py<PyAny>]) -> PyResult<Py<PyAny>> {
        let globals = value(py, given, self.globals)?;
        // SAFETY: live objects of the kinds that each call takes; all take their own references.
        unsafe {
            let function: Py<PyAny> = Py::from_owned_ptr_or_err(
                py,
                ffi::PyFunction_NewWithQualName(self.code.as_ptr(), globals.as_ptr(), self.qualname.as_ptr()),
            )?;
            if let Some(defaults) = self.defaults {
                raised(py, ffi::PyFunction_SetDefaults(function.as_ptr(), made[defaults].as_ptr()))?;
            }
            if let Some(kwdefaults) = self.kwdefaults {
                raised(py, PyFunction_SetKwDefaults(function.as_ptr(), made[kwdefaults].as_ptr()))?;
            }
            if !self.closure.is_empty() {
                let cells = PyTuple::new(py, self.closure.iter().map(|i| made[*i].bind(py)))?;
                raised(py, ffi::PyFunction_SetClosure(function.as_ptr(), cells.as_ptr()))?;
            }
            Ok(function)
        }
    }
}

unsafe extern "C" {
    fn PyFunction_SetKwDefaults(function: Raw, defaults: Raw) -> i32;
}

/// The code object with this content: one that `function`'s code holds, else a new one.
pub fn code_object(py: Python<'_>, code: &Code, function: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
    let own = function.getattr("__code__")?;
    if let Some(found) = nested(py, &own, code)? {
        return Ok(found);
    }
    new_code(py, code)
}

fn nested(py: Python<'_>, within: &Bound<'_, PyAny>, code: &Code) -> PyResult<Option<Py<PyAny>>> {
    for constant in within.getattr("co_consts")?.cast::<PyTuple>()? {
        if !constant.is_exact_instance_of::<pyo3::types::PyCode>() {
            continue;
        }
        // SAFETY: a live code object.
        if unsafe { crate::code::hash(py, constant.as_ptr()) } == Some(code.hash) {
            return Ok(Some(constant.unbind()));
        }
        if let Some(found) = nested(py, &constant, code)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn new_code(py: Python<'_>, code: &Code) -> PyResult<Py<PyAny>> {
    const LOCAL: u8 = 0x20;
    const CELL: u8 = 0x40;
    const FREE: u8 = 0x80;
    let version = py.version_info();
    if (version.major, version.minor) != code.python {
        return Err(PyRuntimeError::new_err("a code object is of another Python version"));
    }
    let consts = code.consts.iter().map(|value| match value {
        flambeau_ir::code::Const::Code(inner) => Ok(new_code(py, inner)?.into_bound(py)),
        other => crate::consts::to_object(py, other),
    });
    let consts = PyTuple::new(py, consts.collect::<PyResult<Vec<_>>>()?)?;
    let named = |kind: u8| {
        let names = code.localsplusnames.iter().zip(&code.localspluskinds);
        PyTuple::new(py, names.filter(|(_, k)| **k & kind != 0).map(|(n, _)| n).collect::<Vec<_>>())
    };
    let bytes = |b: &[u8]| PyBytes::new(py, b);
    let varnames = named(LOCAL)?;
    macro_rules! objects {
        ($($value:expr),* $(,)?) => { [$($value.into_pyobject(py)?.into_any()),*] };
    }
    let args: [Bound<'_, PyAny>; 18] = objects![
        code.argcount,
        code.posonlyargcount,
        code.kwonlyargcount,
        varnames.len(),
        code.stacksize,
        code.flags,
        bytes(&code.bytecode),
        consts,
        PyTuple::new(py, &code.names)?,
        varnames,
        (&code.filename),
        (&code.name),
        (&code.qualname),
        code.firstlineno,
        bytes(&code.linetable),
        bytes(&code.exceptiontable),
        named(FREE)?,
        named(CELL)?,
    ];
    Ok(py.get_type::<pyo3::types::PyCode>().call1(PyTuple::new(py, args)?)?.unbind())
}
