//! A graph that autograd sees as one node of it: a plan runs for the graph and one for its derivative. The node itself is a
//! `torch.autograd.Function` (`flambeau/_training.py`), so that what is kept goes the way of torch's own saved tensors.

use super::eager::EagerBody;
use super::native::NativeBody;
use crate::guard::{Kept, Slot as Input};
use crate::process::{counters, say};
use crate::python::gil::Shared;
use crate::run::{Failure, Outputs, failure};
use crate::torch::Torch;
use crate::torch::ambient::{AutocastOff, GradMode};
use flambeau_ir::dim::Dim;
use flambeau_ir::frame::Subgradients;
use flambeau_ir::guard::TensorGuard;
use flambeau_ir::plan::{Plan, PlanArg, PlanStep, Reg, TAPED_BACKWARD, Taken, Training, TrainingNode};
use flambeau_ir::source::SourceId;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use std::sync::OnceLock;

/// Makes a plan ready, with the place of each input and what is known of it, and whether it owns its inputs.
type Load<'a> = dyn Fn(&Plan, &dyn Fn(SourceId) -> usize, &dyn Fn(SourceId) -> Option<TensorGuard>, bool) -> Result<NativeBody, String>
    + 'a;

/// The plans of a graph ready to run.
pub struct TrainingBody {
    forward: NativeBody,
    /// How many outputs the graph has itself.
    left: usize,
    /// Outputs that are parts of other tensors.
    parts: Vec<(usize, Whole)>,
    nodes: Vec<Shared<Node>>,
    /// Outputs that a freed node has, and an input of that.
    ended: Vec<(usize, usize)>,
    /// Outputs that torch makes as views, and of what.
    views: Vec<(u32, Taken)>,
}

/// What an output is a part of.
enum Whole {
    /// The input of this number.
    Input(usize),
    /// The output of this number.
    Output(usize),
    /// Something that does not leave.
    Hidden,
}

/// One node of autograd.
struct Node {
    backward: NativeBody,
    /// What the plan is of.
    of: TrainingNode,
    /// Its part of the graph op by op, if it can be run once more.
    again: Option<EagerBody>,
    /// Which of what that takes the graph writes to.
    written: Vec<usize>,
    /// Which of what the derivative reads are tapes: no numbers, so nothing for hooks on saved tensors.
    tapes: Vec<usize>,
}

// SAFETY: as `Installed`: all that is not `Send` or `Sync` in it is only touched with the GIL held.
unsafe impl Send for Node {}
// SAFETY: as above.
unsafe impl Sync for Node {}

impl TrainingBody {
    /// Makes the plans ready. Of the graph's inputs `load` knows the places.
    pub fn new(
        py: Python<'_>,
        training: &Training,
        slot: &dyn Fn(SourceId) -> usize,
        guard: &dyn Fn(SourceId) -> Option<TensorGuard>,
        load: &Load<'_>,
    ) -> Result<TrainingBody, String> {
        let node = |of: &TrainingNode| {
            let place = |source: SourceId| source.0 as usize;
            let again = of.graph.as_ref().map(|graph| EagerBody::new(py, graph, &place)).transpose()?;
            let is_written = |taken: &Taken| matches!(taken, Taken::Input(i) if training.written.contains(i));
            Ok::<_, String>(Shared::new(Node {
                backward: load(&of.backward, &place, &|_| None, true)?,
                again,
                written: (0..of.takes.len()).filter(|at| is_written(&of.takes[*at])).collect(),
                tapes: of.backward.steps.iter().filter_map(tape).collect(),
                of: TrainingNode { backward: Plan::default(), graph: None, ..of.clone() },
            }))
        };
        Ok(TrainingBody {
            forward: load(&training.forward, slot, guard, false)?,
            left: training.left as usize,
            parts: parts(training),
            nodes: training.nodes.iter().map(node).collect::<Result<_, _>>()?,
            ended: pairs(&training.ended),
            views: training.views.clone(),
        })
    }

    /// Whether a run, once done, cannot be taken back.
    pub fn commits(&self) -> bool {
        self.forward.commits()
    }

    /// Runs the graph, and gives its outputs as those of nodes of autograd. `values` are alive as they are in `kept`.
    pub fn run(
        &self,
        py: Python<'_>,
        values: &[Input],
        kept: &Kept,
        symbols: &[i64],
        outputs: &mut Outputs,
    ) -> Result<(), Failure> {
        let torch = Torch::get(py).map_err(Failure::Before)?;
        let state = self.nodes.iter().any(|node| node.of.draws).then(|| random_state(py)).transpose();
        let state = state.map_err(|error| failure(py, error, false))?;
        {
            let _off = GradMode::new(torch, false);
            self.forward.run(py, values, symbols, outputs)?;
        }
        // Where the call begins in a region without grad mode, the graph has switched it on for these.
        let _on = GradMode::new(torch, true);
        for (output, whole) in &self.parts {
            let whole = match *whole {
                Whole::Input(i) => kept.get(i).and_then(Option::as_ref),
                Whole::Output(i) => outputs.get(i),
                Whole::Hidden => None,
            };
            let part = shown(whole.map(|of| of.bind(py)), outputs[*output].bind(py));
            outputs[*output] = part.map_err(|error| failure(py, error, self.commits()))?;
        }
        for node in &self.nodes {
            let state = state.as_ref().filter(|_| node.of.draws).map(|state| state.clone_ref(py));
            let call = Call { node: node.clone(), symbols: symbols.to_vec(), takes: vec![], tapes: vec![], state };
            attach(py, call, kept, outputs, self.left).map_err(|error| failure(py, error, self.commits()))?;
        }
        for (output, input) in &self.ended {
            let Some(input) = kept.get(*input).and_then(Option::as_ref) else { continue };
            let end =
                || py.import("flambeau._training")?.getattr("Ended")?.call_method1("apply", (&outputs[*output], input));
            outputs[*output] = end().map_err(|error| failure(py, error, self.commits()))?.unbind();
        }
        for (output, of) in &self.views {
            let Some(whole) = taken(*of, kept, outputs) else { continue };
            let view = view_like(whole.bind(py), outputs[*output as usize].bind(py));
            outputs[*output as usize] = view.map_err(|error| failure(py, error, self.commits()))?;
        }
        outputs.truncate(self.left);
        Ok(())
    }
}

/// Outputs that are parts of other tensors, but for those of nodes and those that torch makes.
fn parts(training: &Training) -> Vec<(usize, Whole)> {
    let plan = &training.forward;
    let roots = plan.roots();
    let of_nodes = training.nodes.iter().flat_map(|node| &node.outputs).map(|of| of.output);
    let made: Vec<u32> = of_nodes.chain(training.views.iter().map(|(output, _)| *output)).collect();
    let part = |(at, reg): (usize, &Reg)| {
        let root = roots.get(reg).filter(|root| *root != reg && !made.contains(&(at as u32)))?;
        let whole = match plan.outputs.iter().take(training.left as usize).position(|output| output == root) {
            _ if (root.0 as usize) < plan.inputs.len() => Whole::Input(root.0 as usize),
            Some(output) => Whole::Output(output),
            None => Whole::Hidden,
        };
        Some((at, whole))
    };
    plan.outputs.iter().take(training.left as usize).enumerate().filter_map(part).collect()
}

/// A part of a tensor as one that is made now: what is made with grad mode off may not be written to with it on.
fn shown(whole: Option<&Bound<'_, PyAny>>, part: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
    let Some(whole) = whole else { return Ok(part.getattr("data")?.unbind()) };
    if whole.getattr("requires_grad")?.is_truthy()? {
        return Ok(part.clone().unbind());
    }
    view_like(whole, part)
}

/// A view of a tensor of the same memory as a part of it.
fn view_like(whole: &Bound<'_, PyAny>, part: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
    let [sizes, strides, offset] = ["size", "stride", "storage_offset"].map(|name| part.call_method0(name));
    Ok(whole.call_method1("as_strided", (sizes?, strides?, offset?))?.unbind())
}

/// A tensor that the graph took or gave.
fn taken<'a>(of: Taken, kept: &'a Kept, outputs: &'a Outputs) -> Option<&'a Py<PyAny>> {
    match of {
        Taken::Input(i) => kept.get(i as usize).and_then(Option::as_ref),
        Taken::Output(i) => outputs.get(i as usize),
    }
}

fn pairs(of: &[(u32, u32)]) -> Vec<(usize, usize)> {
    of.iter().map(|(output, input)| (*output as usize, *input as usize)).collect()
}

fn random_state(py: Python<'_>) -> PyResult<Py<PyAny>> {
    py.import("torch")?.call_method0("get_rng_state").map(Bound::unbind)
}

/// Makes outputs those of a node, for this call of it.
fn attach(py: Python<'_>, call: Call, kept: &Kept, outputs: &mut Outputs, left: usize) -> PyResult<()> {
    let all = |of: &[Taken]| {
        let found = of.iter().map(|of| Some(taken(*of, kept, outputs)?.clone_ref(py))).collect::<Option<Vec<_>>>();
        found.ok_or_else(|| PyRuntimeError::new_err("an input of the graph is missing"))
    };
    let node = call.node.clone();
    let made: Vec<_> = node.of.outputs.iter().map(|of| outputs[of.output as usize].clone_ref(py)).collect();
    let reads = all(&node.of.reads)?.into_iter().enumerate();
    let (tapes, kept): (Vec<_>, Vec<_>) = reads.partition(|(at, _)| node.tapes.contains(at));
    let [tapes, kept] = [tapes, kept].map(|part| part.into_iter().map(|(_, tensor)| tensor).collect::<Vec<_>>());
    let call = Call { takes: all(&node.of.takes)?, tapes, ..call };
    let seen: Vec<bool> = node.of.outputs.iter().map(|of| (of.output as usize) < left).collect();
    let mut args = vec![
        PyTuple::new(py, seen)?.into_any().unbind(),
        Py::new(py, call)?.into_any(),
        PyTuple::new(py, made)?.into_any().unbind(),
        PyTuple::new(py, kept)?.into_any().unbind(),
    ];
    args.extend(all(&node.of.gradients)?);
    let attached = py.import("flambeau._training")?.getattr("attach")?.call1(PyTuple::new(py, args)?)?;
    for (of, output) in node.of.outputs.iter().zip(attached.try_iter()?) {
        outputs[of.output as usize] = output?.unbind();
    }
    Ok(())
}

/// The input that is the tape of a step.
fn tape(step: &PlanStep) -> Option<usize> {
    let PlanStep::Call { op, args, .. } = step else { return None };
    let Some(PlanArg::Reg(reg)) = args.first().filter(|_| &**op == TAPED_BACKWARD) else { return None };
    Some(reg.0 as usize)
}

/// What a run gave, or the exception that says why not.
fn given(ran: Result<(), Failure>, outputs: Outputs) -> PyResult<Vec<Py<PyAny>>> {
    match ran {
        Ok(()) => Ok(outputs.into_vec()),
        Err(Failure::After(error) | Failure::Wrong(_, Some(error))) => Err(error),
        Err(Failure::Before(why) | Failure::Raised(why) | Failure::Wrong(why, None)) => {
            Err(PyRuntimeError::new_err(why))
        }
    }
}

/// What the plan of a derivative gave.
#[derive(IntoPyObject)]
enum Backward {
    Gradients(Vec<Py<PyAny>>),
    Failed(String),
}

/// One call of a graph, for the derivative of one of its nodes.
#[pyclass(frozen, module = "flambeau._native")]
pub struct Call {
    node: Shared<Node>,
    symbols: Vec<i64>,
    /// What its part of the graph takes.
    takes: Vec<Py<PyAny>>,
    /// The tapes that its derivative reads.
    tapes: Vec<Py<PyAny>>,
    /// The state of the CPU's generator before the call, if that draws.
    state: Option<Py<PyAny>>,
}

#[pymethods]
impl Call {
    /// The types, sizes and strides in which the gradients of the outputs are taken.
    fn layouts(&self) -> PyResult<Vec<(&'static str, Vec<i64>, Vec<i64>)>> {
        let of = |dims: &[Dim]| {
            let each = dims.iter().map(|dim| dim.eval(&|id| self.symbols.get(id.0 as usize).copied().unwrap_or(0)));
            each.collect::<Option<Vec<_>>>().ok_or_else(|| PyRuntimeError::new_err("a size of a gradient is too large"))
        };
        let each = self.node.of.outputs.iter();
        each.map(|out| Ok((out.dtype.torch_name(), of(&out.sizes)?, of(&out.strides)?))).collect()
    }

    /// The gradients of the inputs that have one. `kept` and `gradients` are lists of tensors, which are emptied. A text says why the plan failed; its
    /// part of the graph is to be run once more then.
    fn backward(&self, py: Python<'_>, kept: Bound<'_, PyList>, gradients: Bound<'_, PyList>) -> PyResult<Backward> {
        let (mut saved, mut tapes) = (kept.iter().map(Bound::unbind), self.tapes.iter());
        let mut read = |at| {
            if self.node.tapes.contains(&at) { tapes.next().map(|tape| tape.clone_ref(py)) } else { saved.next() }
        };
        let mut tensors: Vec<Py<PyAny>> = (0..self.node.of.reads.len()).filter_map(&mut read).collect();
        tensors.extend(gradients.iter().map(Bound::unbind));
        for list in [&kept, &gradients] {
            list.del_slice(0, list.len())?;
        }
        if tensors.len() != self.node.backward.inputs() {
            return Err(PyRuntimeError::new_err("other tensors than the derivative takes"));
        }
        let mut outputs = Outputs::new();
        let _off = AutocastOff::new(py)?;
        match self.node.backward.run_owning(py, tensors, &self.symbols, &mut outputs) {
            Err(Failure::Before(why) | Failure::Raised(why) | Failure::Wrong(why, None))
                if self.node.again.is_some() =>
            {
                Ok(Backward::Failed(why))
            }
            ran => given(ran, outputs).map(Backward::Gradients),
        }
    }

    /// Notes that the plan failed where the graph itself did not.
    #[expect(clippy::unused_self, reason = "a method of what failed")]
    fn say_failed(&self, py: Python<'_>, why: &str) {
        counters::eager_fallback(py, "backward_failed");
        let text = format!("a derivative was computed op by op, as its plan failed: {why}");
        say::warn_once(py, "backward_failed", &text);
    }

    /// What its part of the graph takes.
    fn takes(&self, py: Python<'_>) -> Vec<Py<PyAny>> {
        self.takes.iter().map(|taken| taken.clone_ref(py)).collect()
    }

    /// The state of the CPU's generator before the call, if that draws random numbers.
    fn state(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.state.as_ref().map(|state| state.clone_ref(py))
    }

    /// Which of that the graph writes to.
    fn written(&self) -> Vec<usize> {
        self.node.written.clone()
    }

    /// Which of that gets a gradient, in the order of the gradients.
    fn wanted(&self) -> Vec<usize> {
        let place = |of: &Taken| self.node.of.takes.iter().position(|taken| taken == of);
        self.node.of.gradients.iter().filter_map(place).collect()
    }

    /// For each gradient, the outputs without whose gradients there is none.
    fn reached_by(&self) -> Vec<Vec<u32>> {
        self.node.of.reached_by.clone()
    }

    /// Whether torch would have freed something that a second way back from these outputs needs.
    fn spends(&self, outputs: Vec<bool>) -> bool {
        self.node.of.outputs.iter().zip(outputs).any(|(of, is_there)| is_there && of.spent)
    }

    /// Whether its part of the graph can be run once more.
    fn runs_again(&self) -> bool {
        self.node.again.is_some()
    }

    /// Its part of the graph run once more, op by op; `None`: that cannot be.
    fn again(&self, py: Python<'_>, takes: Vec<Option<Py<PyAny>>>) -> PyResult<Option<Vec<Py<PyAny>>>> {
        let Some(again) = &self.node.again else { return Ok(None) };
        let mut outputs = Outputs::new();
        let _off = AutocastOff::new(py)?;
        let ran = again.run(py, &takes, &self.symbols, &mut outputs);
        given(ran, outputs).map(Some)
    }
}

/// Derivatives that versions of torch choose differently, as this one does; `None`: they cannot be found out.
pub fn subgradients(py: Python<'_>) -> Option<Subgradients> {
    static FOUND: OnceLock<Option<Subgradients>> = OnceLock::new();
    let ask = || {
        let found = py.import("flambeau._training")?.call_method0("subgradients")?;
        Ok::<_, PyErr>(Subgradients { clamp_at_limits: found.get_item("clamp_at_limits")?.extract()? })
    };
    if let Some(found) = FOUND.get() {
        return *found;
    }
    let found = ask().ok();
    *FOUND.get_or_init(|| found)
}
