//! Code objects of the functions that exits make: one per content, so that all functions with the same code share it, as
//! those that one `def` statement makes do.

use crate::python::gil::GilCell;
use flambeau_ir::code::{Code, CodeHash, Const};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use std::collections::HashMap;

/// Code objects by content. They hold constants and names only, nothing of the user's.
#[derive(Default)]
pub struct Codes(GilCell<HashMap<CodeHash, Py<PyAny>>>);

impl Codes {
    /// The code object with this content: one that is known, or one that `function`'s code holds, else a new one.
    pub fn object(&self, py: Python<'_>, code: &Code, function: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        if let Some(known) = self.known(py, code) {
            return Ok(known);
        }
        let own = function.getattr("__code__")?;
        let made = match nested(py, &own, code)? {
            Some(found) => found,
            None => self.new_code(py, code, Some(&own))?,
        };
        // Making objects may have run a finalizer that came here.
        Ok(self.0.borrow(py).entry(code.hash).or_insert(made).clone_ref(py))
    }

    /// Forgets all.
    pub fn clear(&self, py: Python<'_>) {
        let old = std::mem::take(&mut *self.0.borrow(py));
        drop(old);
    }

    fn known(&self, py: Python<'_>, code: &Code) -> Option<Py<PyAny>> {
        self.0.borrow(py).get(&code.hash).map(|code| code.clone_ref(py))
    }

    /// Sets among the constants are those that `of` has at the same place, as the order of their elements is their own.
    fn new_code(&self, py: Python<'_>, code: &Code, of: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
        let version = py.version_info();
        if (version.major, version.minor) != code.python {
            return Err(PyRuntimeError::new_err("a code object is of another Python version"));
        }
        let lent = of.map(|of| of.getattr("co_consts")).transpose()?;
        let lent = lent.as_ref().and_then(|consts| consts.cast::<PyTuple>().ok());
        let consts = code.consts.iter().enumerate().map(|(i, value)| match value {
            Const::Code(inner) => match self.known(py, inner) {
                Some(known) => Ok(known.into_bound(py)),
                None => Ok(self.new_code(py, inner, None)?.into_bound(py)),
            },
            Const::FrozenSet(_) => {
                let own = lent.and_then(|consts| consts.get_item(i).ok());
                match own.filter(|own| crate::python::consts::from_code_const(own).as_ref() == Some(value)) {
                    Some(own) => Ok(own),
                    None => crate::python::consts::to_object(py, value),
                }
            }
            other => crate::python::consts::to_object(py, other),
        });
        let consts = PyTuple::new(py, consts.collect::<PyResult<Vec<_>>>()?)?;
        let named = |kind: u8| {
            let names = code.localsplusnames.iter().zip(&code.localspluskinds);
            PyTuple::new(py, names.filter(|(_, k)| **k & kind != 0).map(|(n, _)| n).collect::<Vec<_>>())
        };
        let bytes = |b: &[u8]| PyBytes::new(py, b);
        let varnames = named(Code::LOCAL)?;
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
            named(Code::FREE)?,
            named(Code::CELL)?,
        ];
        Ok(py.get_type::<pyo3::types::PyCode>().call1(PyTuple::new(py, args)?)?.unbind())
    }
}

fn nested(py: Python<'_>, within: &Bound<'_, PyAny>, code: &Code) -> PyResult<Option<Py<PyAny>>> {
    for constant in within.getattr("co_consts")?.cast::<PyTuple>()? {
        if !constant.is_exact_instance_of::<pyo3::types::PyCode>() {
            continue;
        }
        // SAFETY: a live code object.
        if unsafe { crate::python::code::hash(py, constant.as_ptr()) } == Some(code.hash) {
            return Ok(Some(constant.unbind()));
        }
        if let Some(found) = nested(py, &constant, code)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}
