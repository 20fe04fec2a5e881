//! A graph that autograd sees as one node of it: a plan runs for the graph and one for its derivative. The node itself is a
//! `torch.autograd.Function` (`flambeau/_training.py`), so that what is kept goes the way of torch's own saved tensors.

use super::eager::EagerBody;
use super::native::NativeBody;
use crate::guard::{Kept, Slot as Input};
use crate::python::gil::Shared;
use crate::run::{Failure, Outputs, failure};
use crate::torch::Torch;
use flambeau_ir::dim::Dim;
use flambeau_ir::graph::NodeOp;
use flambeau_ir::guard::TensorGuard;
use flambeau_ir::plan::{Plan, Training};
use flambeau_ir::source::SourceId;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// Makes a plan ready, with the place of each input and what is known of it.
type Load<'a> = dyn Fn(
        &Plan,
        &dyn Fn(SourceId) -> usize,
        &dyn Fn(SourceId) -> Option<TensorGuard>,
    ) -> Result<NativeBody, String>
    + 'a;

/// Both plans ready to run.
pub struct TrainingBody {
    parts: Shared<Parts>,
}

struct Parts {
    forward: NativeBody,
    backward: NativeBody,
    /// What the plans are of.
    training: Training,
    /// The graph op by op; its inputs are `placeholders`.
    eager: EagerBody,
    /// The slot of each input of the graph.
    placeholders: Vec<usize>,
    /// Whether the graph draws random numbers, so that it cannot be run again.
    draws: bool,
}

// SAFETY: as `Installed`: all that is not `Send` or `Sync` in it is only touched with the GIL held.
unsafe impl Send for Parts {}
// SAFETY: as above.
unsafe impl Sync for Parts {}

/// Grad mode is off while it lives.
struct NoGrad {
    torch: &'static Torch,
    before: bool,
}

impl NoGrad {
    fn new(torch: &'static Torch) -> NoGrad {
        // SAFETY: reads and writes a thread-local flag.
        let before = unsafe {
            let before = (torch.c.grad_enabled)();
            (torch.c.set_grad_enabled)(false);
            before
        };
        NoGrad { torch, before }
    }
}

impl Drop for NoGrad {
    fn drop(&mut self) {
        // SAFETY: writes a thread-local flag.
        unsafe { (self.torch.c.set_grad_enabled)(self.before) };
    }
}

impl TrainingBody {
    /// Makes both plans ready.
    pub fn new(
        py: Python<'_>,
        training: &Training,
        slot: &dyn Fn(SourceId) -> usize,
        guard: &dyn Fn(SourceId) -> Option<TensorGuard>,
        load: &Load<'_>,
    ) -> Result<TrainingBody, String> {
        let placeholders = |node: &flambeau_ir::graph::Node| match node.op {
            NodeOp::Placeholder(source) => Some(source),
            NodeOp::Call { .. } => None,
        };
        let sources: Vec<SourceId> = training.graph.nodes.iter().filter_map(placeholders).collect();
        let place = |source| sources.iter().position(|known| *known == source).unwrap_or(0);
        let parts = Parts {
            forward: load(&training.forward, slot, guard)?,
            backward: load(&training.backward, &|source| source.0 as usize, &|_| None)?,
            eager: EagerBody::new(py, &training.graph, &place)?,
            placeholders: sources.iter().map(|source| slot(*source)).collect(),
            draws: training.graph.nodes.iter().any(|node| node.effect == flambeau_ir::graph::Effect::Draws),
            training: training.clone(),
        };
        Ok(TrainingBody { parts: Shared::new(parts) })
    }

    /// Whether a run, once done, cannot be taken back.
    pub fn commits(&self) -> bool {
        self.parts.forward.commits()
    }

    /// Runs the graph, and gives its outputs as those of a node of autograd. `values` are alive as they are in `kept`.
    pub fn run(
        &self,
        py: Python<'_>,
        values: &[Input],
        kept: &Kept,
        symbols: &[i64],
        outputs: &mut Outputs,
    ) -> Result<(), Failure> {
        let torch = Torch::get(py).map_err(Failure::Before)?;
        let parts = &self.parts;
        let mut made = Outputs::new();
        {
            let _off = NoGrad::new(torch);
            parts.forward.run(py, values, symbols, &mut made)?;
        }
        let saved = made.drain(parts.training.left as usize..).collect::<Vec<_>>();
        outputs.extend(made);
        self.attach(py, kept, symbols, saved, outputs).map_err(|error| failure(py, error, self.commits()))
    }

    /// Makes the outputs that autograd follows those of a node.
    fn attach(
        &self,
        py: Python<'_>,
        kept: &Kept,
        symbols: &[i64],
        saved: Vec<Py<PyAny>>,
        outputs: &mut Outputs,
    ) -> PyResult<()> {
        let training = &self.parts.training;
        if training.outputs.is_empty() {
            return Ok(());
        }
        let value = |slot: usize| {
            let value = kept.get(slot).and_then(Option::as_ref).map(|value| value.clone_ref(py));
            value.ok_or_else(|| PyRuntimeError::new_err("an input of the graph is missing"))
        };
        let inputs = self.parts.placeholders.iter().map(|slot| value(*slot)).collect::<PyResult<Vec<_>>>()?;
        let held = training.inputs.iter().map(|i| value(*i as usize)).collect::<PyResult<Vec<_>>>()?;
        let followed: Vec<_> = training.outputs.iter().map(|of| outputs[of.output as usize].clone_ref(py)).collect();
        let call = Call { parts: self.parts.clone(), symbols: symbols.to_vec(), inputs };
        let mut args = vec![
            Py::new(py, call)?.into_any(),
            PyTuple::new(py, followed)?.into_any().unbind(),
            PyTuple::new(py, held.into_iter().chain(saved).collect::<Vec<_>>())?.into_any().unbind(),
        ];
        for i in &training.gradients {
            args.push(value(*i as usize)?);
        }
        let attach = py.import("flambeau._training")?.getattr("attach")?;
        let attached = attach.call1(PyTuple::new(py, args)?)?;
        for (of, output) in training.outputs.iter().zip(attached.try_iter()?) {
            outputs[of.output as usize] = output?.unbind();
        }
        Ok(())
    }
}

/// One call of a graph, for its derivative.
#[pyclass(frozen, module = "flambeau._native")]
pub struct Call {
    parts: Shared<Parts>,
    symbols: Vec<i64>,
    /// The inputs of the graph.
    inputs: Vec<Py<PyAny>>,
}

#[pymethods]
impl Call {
    /// The types, sizes and strides in which the gradients of the outputs are taken.
    fn layouts(&self) -> PyResult<Vec<(&'static str, Vec<i64>, Vec<i64>)>> {
        let of = |dims: &[Dim]| {
            let each = dims.iter().map(|dim| dim.eval(&|id| self.symbols.get(id.0 as usize).copied().unwrap_or(0)));
            each.collect::<Option<Vec<_>>>().ok_or_else(|| PyRuntimeError::new_err("a size of a gradient is too large"))
        };
        self.parts.training.outputs.iter().map(|out| Ok((out.dtype.torch_name(), of(&out.sizes)?, of(&out.strides)?))).collect()
    }

    /// The gradients of the inputs that have one. `kept` and `gradients` are tensors.
    fn backward(&self, py: Python<'_>, kept: Vec<Py<PyAny>>, gradients: Vec<Py<PyAny>>) -> PyResult<Vec<Py<PyAny>>> {
        let values: Vec<Input> = kept.iter().chain(&gradients).map(|tensor| Input::new(tensor.as_ptr())).collect();
        if values.len() != self.parts.backward.inputs() {
            return Err(PyRuntimeError::new_err("other tensors than the derivative takes"));
        }
        let mut outputs = Outputs::new();
        match self.parts.backward.run(py, &values, &self.symbols, &mut outputs) {
            Ok(()) => Ok(outputs.into_vec()),
            Err(Failure::After(error) | Failure::Wrong(_, Some(error))) => Err(error),
            Err(Failure::Before(why) | Failure::Raised(why) | Failure::Wrong(why, None)) => {
                Err(PyRuntimeError::new_err(why))
            }
        }
    }

    /// The inputs of the graph.
    fn inputs(&self, py: Python<'_>) -> Vec<Py<PyAny>> {
        self.inputs.iter().map(|input| input.clone_ref(py)).collect()
    }

    /// Which of the inputs the graph writes to.
    fn written(&self) -> Vec<usize> {
        let training = &self.parts.training;
        let place = |i: &u32| self.parts.placeholders.iter().position(|slot| *slot == *i as usize);
        training.written.iter().filter_map(place).collect()
    }

    /// Which of the inputs get a gradient.
    fn wanted(&self) -> Vec<usize> {
        let place = |i: &u32| self.parts.placeholders.iter().position(|slot| *slot == *i as usize);
        self.parts.training.gradients.iter().filter_map(place).collect()
    }

    /// Whether the graph draws random numbers.
    fn draws(&self) -> bool {
        self.parts.draws
    }

    /// The outputs that autograd follows, of the graph run op by op with these inputs.
    fn again(&self, py: Python<'_>, inputs: Vec<Option<Py<PyAny>>>) -> PyResult<Vec<Py<PyAny>>> {
        let mut outputs = Outputs::new();
        match self.parts.eager.run(py, &inputs, &self.symbols, &mut outputs) {
            Ok(()) => {
                Ok(self.parts.training.outputs.iter().map(|of| outputs[of.output as usize].clone_ref(py)).collect())
            }
            Err(Failure::After(error) | Failure::Wrong(_, Some(error))) => Err(error),
            Err(Failure::Before(why) | Failure::Raised(why) | Failure::Wrong(why, None)) => {
                Err(PyRuntimeError::new_err(why))
            }
        }
    }
}
