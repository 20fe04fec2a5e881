//! Torch ops that are called through Python: all that [`super::direct`] has no function for.

use super::extents::size;
use super::regs::Regs;
use crate::guard::Expr;
use crate::python::consts;
use crate::torch::ambient::GradMode;
use crate::torch::outside::outside;
use flambeau_ir::plan::{CALLED, DETACH, PlanArg, PlanStep, TAPED, TAPED_BACKWARD, WARNED};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

/// An argument ready to be made.
enum OpArg {
    Reg(usize),
    Object(Py<PyAny>),
    Dim(Expr),
    /// One of the objects that are given beside the inputs.
    Given(usize),
    List(Vec<OpArg>),
}

impl OpArg {
    fn new(py: Python<'_>, arg: &PlanArg) -> PyResult<OpArg> {
        Ok(match arg {
            PlanArg::Reg(reg) => OpArg::Reg(reg.0 as usize),
            PlanArg::Const(value) => OpArg::Object(consts::to_object(py, value)?.unbind()),
            PlanArg::Dim(dim) => OpArg::Dim(dim.into()),
            PlanArg::Object(at) => OpArg::Given(*at as usize),
            PlanArg::List(items) => OpArg::List(items.iter().map(|i| OpArg::new(py, i)).collect::<PyResult<_>>()?),
        })
    }

    fn object(&self, py: Python<'_>, regs: &mut Regs<'_>, symbols: &[i64]) -> Result<Py<PyAny>, OpError> {
        Ok(match self {
            OpArg::Reg(reg) => regs.python(py, *reg).map_err(OpError::Native)?,
            OpArg::Object(object) => object.clone_ref(py),
            OpArg::Given(at) => regs.given(py, *at).map_err(OpError::Native)?,
            OpArg::Dim(dim) => size(dim, symbols)?.into_pyobject(py).map_err(PyErr::from)?.into_any().unbind(),
            OpArg::List(items) => {
                let items: Vec<_> = items.iter().map(|i| i.object(py, regs, symbols)).collect::<Result<_, _>>()?;
                PyList::new(py, items)?.into_any().unbind()
            }
        })
    }
}

/// A failed step.
pub enum OpError {
    /// Torch's message, from its C interface.
    Native(String),
    /// What a kernel found wrong with its tensors, where torch raises.
    Checked(String),
    /// A Python exception.
    Python(PyErr),
    /// Torch returned other metadata than the plan was made for: prediction and finding in words.
    Unexpected(String),
}

impl From<PyErr> for OpError {
    fn from(error: PyErr) -> Self {
        OpError::Python(error)
    }
}

/// An overload of `torch.ops`, or a function of our own, ready to be called.
pub struct Op {
    overload: Py<PyAny>,
    /// Names of the last arguments, those that its schema takes by keyword only.
    names: Option<Py<PyTuple>>,
    args: Vec<OpArg>,
    results: Vec<usize>,
}

impl Op {
    /// From a call step. An op that returns (a view of) an argument is refused: memory of results is the plan's own.
    pub fn new(py: Python<'_>, step: &PlanStep) -> Result<Op, String> {
        let PlanStep::Call { op, overload, args, results } = step else {
            return Err("no call step".into());
        };
        let made = || {
            let (object, names) = find(py, op, overload, args.len(), !results.is_empty())?;
            let args = args.iter().map(|a| OpArg::new(py, a)).collect::<PyResult<_>>()?;
            Ok(Op { overload: object, names, args, results: results.iter().map(|r| r.0 as usize).collect() })
        };
        made().map_err(|e: PyErr| format!("{op}.{overload} cannot be called: {e}"))
    }

    /// Calls it.
    pub fn run(&self, py: Python<'_>, regs: &mut Regs<'_>, symbols: &[i64]) -> Result<(), OpError> {
        regs.hold();
        let named = self.names.as_ref().map_or(0, |n| n.bind(py).len());
        let positional = self.args.len() - named;
        let objects: Vec<_> = self.args.iter().map(|a| a.object(py, regs, symbols)).collect::<Result<_, _>>()?;
        let kwargs = match &self.names {
            None => None,
            Some(names) => {
                let kwargs = PyDict::new(py);
                for (name, value) in names.bind(py).iter().zip(&objects[positional..]) {
                    kwargs.set_item(name, value)?;
                }
                Some(kwargs)
            }
        };
        let positional = PyTuple::new(py, &objects[..positional])?;
        // The graph may take tensors that require grad where it has grad mode off.
        let _off = GradMode::new(regs.torch, false);
        let result = outside(|| self.overload.bind(py).call(positional, kwargs.as_ref()).map(Bound::unbind))?;
        if let [only] = self.results[..]
            && !result.bind(py).is_instance_of::<PyList>()
        {
            regs.keep(only, result);
        } else if !self.results.is_empty() {
            for (reg, item) in self.results.iter().zip(result.bind(py).try_iter()?) {
                let item = item?;
                // Torch gives none for a gradient that is not wanted.
                if !item.is_none() {
                    regs.keep(*reg, item.unbind());
                }
            }
        }
        Ok(())
    }
}

/// The overload object, and the names of its last arguments, those that its schema takes by keyword only.
fn find(
    py: Python<'_>,
    op: &str,
    overload: &str,
    args: usize,
    has_results: bool,
) -> PyResult<(Py<PyAny>, Option<Py<PyTuple>>)> {
    let (namespace, name) = op.split_once("::").unwrap_or(("aten", op));
    let own = match op {
        TAPED | TAPED_BACKWARD => Some("flambeau._training"),
        CALLED | WARNED => Some("flambeau._calls"),
        _ => None,
    };
    if let Some(module) = own {
        return Ok((py.import(module)?.getattr(name)?.unbind(), None));
    }
    let overload = py.import("torch")?.getattr("ops")?.getattr(namespace)?.getattr(name)?.getattr(overload)?;
    let schema = overload.getattr("_schema")?;
    let arguments: Vec<Bound<'_, PyAny>> = schema.getattr("arguments")?.extract()?;
    for returned in schema.getattr("returns")?.extract::<Vec<Bound<'_, PyAny>>>()? {
        if has_results && op != DETACH && !returned.getattr("alias_info")?.is_none() {
            return Err(PyRuntimeError::new_err("it returns its argument's memory"));
        }
    }
    let mut names = Vec::new();
    for argument in arguments.iter().take(args) {
        if argument.getattr("kwarg_only")?.is_truthy()? {
            names.push(argument.getattr("name")?);
        }
    }
    let names = if names.is_empty() { None } else { Some(PyTuple::new(py, names)?.unbind()) };
    Ok((overload.unbind(), names))
}
