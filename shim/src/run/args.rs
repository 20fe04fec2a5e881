//! Arguments of calls: a tree of constants, registers and sizes, made into Python objects on each call.

use crate::guard::Expr;
use crate::python::consts;
use flambeau_ir::graph::Arg;
use pyo3::exceptions::{PyRuntimeError, PyZeroDivisionError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PySlice, PyTuple};

/// Registers of a run.
pub type Regs = [Option<Py<PyAny>>];

/// An [`Arg`] ready to be made.
pub enum Template {
    /// A register.
    Reg(usize),
    /// An immutable object.
    Object(Py<PyAny>),
    /// A size.
    Dim(Expr),
    /// A new list.
    List(Vec<Template>),
    /// A tuple with parts that change.
    Tuple(Vec<Template>),
    /// A slice with parts that change.
    Slice(Box<[Template; 3]>),
    /// A new dict.
    Dict(Vec<(Py<PyAny>, Template)>),
}

impl Template {
    /// From a graph's argument.
    pub fn new(py: Python<'_>, arg: &Arg) -> PyResult<Template> {
        let all = |args: &[Arg]| args.iter().map(|a| Template::new(py, a)).collect::<PyResult<Vec<_>>>();
        let template = match arg {
            Arg::Node(id) => Template::Reg(id.0 as usize),
            Arg::Const(value) => Template::Object(consts::to_object(py, value)?.unbind()),
            Arg::Dim(dim) => Template::Dim(dim.into()),
            Arg::List(items) => Template::List(all(items)?),
            Arg::Tuple(items) => Template::Tuple(all(items)?),
            Arg::Slice(parts) => {
                let [start, stop, step] = &**parts;
                let new = |a| Template::new(py, a);
                Template::Slice(Box::new([new(start)?, new(stop)?, new(step)?]))
            }
            Arg::Dict(items) => Template::Dict(
                items
                    .iter()
                    .map(|(k, v)| Ok((consts::to_object(py, k)?.unbind(), Template::new(py, v)?)))
                    .collect::<PyResult<_>>()?,
            ),
        };
        Ok(match template {
            Template::Dim(Expr::Const(value)) => Template::Object(value.into_pyobject(py)?.into_any().unbind()),
            immutable @ (Template::Tuple(_) | Template::Slice(_)) if immutable.is_fixed() => {
                Template::Object(immutable.make(py, &[], &[])?)
            }
            other => other,
        })
    }

    /// No part changes from call to call.
    fn is_fixed(&self) -> bool {
        match self {
            Template::Object(_) => true,
            Template::Tuple(parts) => parts.iter().all(Template::is_fixed),
            Template::Slice(parts) => parts.iter().all(Template::is_fixed),
            _ => false,
        }
    }

    /// Calls `visit` with each register read.
    pub fn regs(&self, visit: &mut impl FnMut(usize)) {
        match self {
            Template::Reg(reg) => visit(*reg),
            Template::Object(_) | Template::Dim(_) => {}
            Template::List(parts) | Template::Tuple(parts) => parts.iter().for_each(|p| p.regs(visit)),
            Template::Slice(parts) => parts.iter().for_each(|p| p.regs(visit)),
            Template::Dict(items) => items.iter().for_each(|(_, p)| p.regs(visit)),
        }
    }

    /// The object.
    pub fn make(&self, py: Python<'_>, regs: &Regs, symbols: &[i64]) -> PyResult<Py<PyAny>> {
        let all = |parts: &[Template]| parts.iter().map(|p| p.make(py, regs, symbols)).collect::<PyResult<Vec<_>>>();
        Ok(match self {
            Template::Reg(reg) => {
                let value = regs.get(*reg).and_then(Option::as_ref);
                value.ok_or_else(|| PyRuntimeError::new_err("a graph reads a value that is gone"))?.clone_ref(py)
            }
            Template::Object(object) => object.clone_ref(py),
            Template::Dim(dim) => {
                let value = dim.eval(symbols).ok_or_else(|| PyZeroDivisionError::new_err("size expression"))?;
                value.into_pyobject(py)?.into_any().unbind()
            }
            Template::List(parts) => PyList::new(py, all(parts)?)?.into_any().unbind(),
            Template::Tuple(parts) => PyTuple::new(py, all(parts)?)?.into_any().unbind(),
            Template::Slice(parts) => {
                let parts = all(&**parts)?;
                py.get_type::<PySlice>().call1((&parts[0], &parts[1], &parts[2]))?.unbind()
            }
            Template::Dict(items) => {
                let dict = PyDict::new(py);
                for (key, value) in items {
                    dict.set_item(key, value.make(py, regs, symbols)?)?;
                }
                dict.into_any().unbind()
            }
        })
    }
}
