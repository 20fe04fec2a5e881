//! A torch-level graph, op by op: callables found at installation, called with vectorcall, under autograd as in eager.

use super::args::Template;
use super::{Failure, Outputs, failure, generator, injected_failure, traceback};
use crate::python::paths;
use crate::torch::Torch;
use flambeau_ir::graph::{Effect, Graph, Location, NodeOp, Target};
use flambeau_ir::source::SourceId;
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use smallvec::SmallVec;

/// How often signals are looked at, in steps.
const SIGNAL_INTERVAL: usize = 16;

/// A graph ready to run.
pub struct EagerBody {
    /// Slot of each placeholder's value, and its register.
    inputs: Vec<(usize, usize)>,
    steps: Vec<Step>,
    outputs: Vec<usize>,
    regs: usize,
    /// First step that cannot be taken back.
    commit: usize,
    /// Whether grad mode changes on the way.
    grad_mode: bool,
    /// Whether autocast does.
    autocast: bool,
    /// Whether a failure takes back what was drawn.
    restores: bool,
}

struct Step {
    callable: Py<PyAny>,
    args: Vec<Template>,
    /// Names of the last arguments.
    names: Option<Py<PyTuple>>,
    dest: usize,
    /// Registers that no later step reads.
    free: Vec<usize>,
    /// The frames that a failure is seen in, outermost first.
    stack: Vec<Location>,
}

/// The object that a target names.
pub fn callable(py: Python<'_>, target: &Target) -> PyResult<Py<PyAny>> {
    Ok(match target {
        Target::Function(path) => {
            if let Some((module, _)) = path.rsplit_once('.').filter(|(module, _)| module.starts_with("flambeau.")) {
                py.import(module)?;
            }
            paths::resolve(py, path)?.unbind()
        }
        Target::Method(name) => paths::resolve(py, &format!("torch.Tensor.{name}"))?.unbind(),
    })
}

impl EagerBody {
    /// Makes a graph ready. `slot` gives the place of a source's value.
    pub fn new(py: Python<'_>, graph: &Graph, slot: &dyn Fn(SourceId) -> usize) -> Result<EagerBody, String> {
        let mut body = EagerBody {
            inputs: Vec::new(),
            steps: Vec::new(),
            outputs: graph.outputs.iter().map(|id| id.0 as usize).collect(),
            regs: graph.nodes.len(),
            commit: usize::MAX,
            grad_mode: false,
            autocast: false,
            restores: graph.restores,
        };
        for (dest, node) in graph.nodes.iter().enumerate() {
            match &node.op {
                NodeOp::Placeholder(source) => body.inputs.push((slot(*source), dest)),
                NodeOp::Call { target, args, kwargs } => {
                    let commits = node.effect == Effect::Commits || node.effect == Effect::Draws && !graph.restores;
                    if body.commit == usize::MAX && commits {
                        body.commit = body.steps.len();
                    }
                    body.grad_mode |= target.sets_grad_mode();
                    body.autocast |= target.sets_autocast();
                    let mut step = Step::new(py, target, args, kwargs, dest)
                        .map_err(|e| format!("{}: {target:?} cannot be called: {e}", node.name))?;
                    step.stack =
                        node.stack.iter().filter_map(|at| graph.locations.get(*at as usize)).cloned().collect();
                    body.steps.push(step);
                }
            }
        }
        body.plan_frees();
        Ok(body)
    }

    fn plan_frees(&mut self) {
        let mut last = vec![usize::MAX; self.regs];
        for (index, step) in self.steps.iter().enumerate() {
            last[step.dest] = index;
            step.args.iter().for_each(|a| a.regs(&mut |reg| last[reg] = index));
        }
        for output in &self.outputs {
            last[*output] = usize::MAX;
        }
        for (reg, index) in last.into_iter().enumerate() {
            if let Some(step) = self.steps.get_mut(index) {
                step.free.push(reg);
            }
        }
    }

    /// Whether a run, once done, cannot be taken back.
    pub fn commits(&self) -> bool {
        self.commit != usize::MAX || self.restores
    }

    /// Runs the graph, and gives its outputs.
    pub fn run(
        &self,
        py: Python<'_>,
        values: &[Option<Py<PyAny>>],
        symbols: &[i64],
        outputs: &mut Outputs,
    ) -> Result<(), Failure> {
        let mut steps = || self.run_steps(py, values, symbols, outputs);
        let in_mode = || if self.grad_mode { restoring_grad_mode(py, steps) } else { steps() };
        let in_autocast = || if self.autocast { restoring_autocast(py, in_mode) } else { in_mode() };
        if self.restores { generator::restoring(py, in_autocast) } else { in_autocast() }
    }

    fn run_steps(
        &self,
        py: Python<'_>,
        values: &[Option<Py<PyAny>>],
        symbols: &[i64],
        outputs: &mut Outputs,
    ) -> Result<(), Failure> {
        let mut regs: SmallVec<[Option<Py<PyAny>>; 16]> = SmallVec::new();
        regs.resize_with(self.regs, || None);
        for (slot, reg) in &self.inputs {
            regs[*reg] = values[*slot].as_ref().map(|v| v.clone_ref(py));
        }
        let injected = injected_failure();
        for (index, step) in self.steps.iter().enumerate() {
            let result = if injected == Some(index) {
                Err(PyRuntimeError::new_err("failure injected by a test"))
            } else {
                step.call(py, &regs, symbols)
            };
            let value = result.map_err(|error| {
                let committed = index >= self.commit;
                let error = if committed { traceback::with(py, error, &step.stack) } else { error };
                failure(py, error, committed)
            })?;
            regs[step.dest] = Some(value);
            for reg in &step.free {
                regs[*reg] = None;
            }
            if index % SIGNAL_INTERVAL == SIGNAL_INTERVAL - 1 {
                py.check_signals().map_err(Failure::After)?;
            }
        }
        for reg in &self.outputs {
            let value = regs[*reg].as_ref().ok_or_else(|| Failure::Before("a graph output is missing".into()))?;
            outputs.push(value.clone_ref(py));
        }
        Ok(())
    }
}

/// Runs a graph that switches grad mode, and puts it back if the run failed.
fn restoring_grad_mode(py: Python<'_>, run: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    let torch = Torch::get(py).map_err(Failure::Before)?;
    // SAFETY: reads a thread-local flag.
    let before = unsafe { (torch.c.grad_enabled)() };
    let done = run();
    if done.is_err() {
        // SAFETY: writes a thread-local flag.
        unsafe { (torch.c.set_grad_enabled)(before) };
    }
    done
}

/// The same of autocast.
fn restoring_autocast(py: Python<'_>, run: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    let failed = |error: PyErr| Failure::Before(error.to_string());
    let autocast = py.import("flambeau._autocast").map_err(failed)?;
    let before = autocast.call_method0("state").map_err(failed)?;
    let done = run();
    if done.is_err()
        && let Err(error) = autocast.call_method1("restore", (before,))
    {
        error.write_unraisable(py, Some(&autocast));
    }
    done
}

impl Step {
    fn new(
        py: Python<'_>,
        target: &Target,
        args: &[flambeau_ir::graph::Arg],
        kwargs: &[(std::sync::Arc<str>, flambeau_ir::graph::Arg)],
        dest: usize,
    ) -> PyResult<Step> {
        let all = args.iter().chain(kwargs.iter().map(|(_, value)| value));
        let names = if kwargs.is_empty() {
            None
        } else {
            let names = kwargs.iter().map(|(name, _)| pyo3::types::PyString::intern(py, name));
            Some(PyTuple::new(py, names.collect::<Vec<_>>())?.unbind())
        };
        Ok(Step {
            callable: callable(py, target)?,
            args: all.map(|a| Template::new(py, a)).collect::<PyResult<_>>()?,
            names,
            dest,
            free: Vec::new(),
            stack: Vec::new(),
        })
    }

    fn call(&self, py: Python<'_>, regs: &[Option<Py<PyAny>>], symbols: &[i64]) -> PyResult<Py<PyAny>> {
        let args: SmallVec<[Py<PyAny>; 8]> =
            self.args.iter().map(|a| a.make(py, regs, symbols)).collect::<PyResult<_>>()?;
        // The slot before the first argument may be used by the callee.
        let mut stack: SmallVec<[*mut ffi::PyObject; 9]> = SmallVec::with_capacity(args.len() + 1);
        stack.push(std::ptr::null_mut());
        stack.extend(args.iter().map(Py::as_ptr));
        let (names, keywords) = match &self.names {
            Some(names) => (names.as_ptr(), names.bind(py).len()),
            None => (std::ptr::null_mut(), 0),
        };
        // SAFETY: live arguments, the last `keywords` of them named by `names`; a new reference or an exception comes back.
        unsafe {
            let positional = (args.len() - keywords) | ffi::PY_VECTORCALL_ARGUMENTS_OFFSET;
            let result = ffi::PyObject_Vectorcall(self.callable.as_ptr(), stack.as_ptr().add(1), positional, names);
            Py::from_owned_ptr_or_err(py, result)
        }
    }
}
