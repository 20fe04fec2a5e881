//! A launch plan: allocations, kernels, torch ops and views over borrowed handles, with the GIL released round long work.

use super::step::direct::DirectCall;
use super::step::expect::Expected;
use super::step::extents::{Extents, Room, layout};
use super::step::kernel::Launch;
use super::step::stream::Stream;
use super::step::transfer::{LaunchThere, Places, Transfer};
use crate::guard::Slot as Input;
use crate::process::fork;
use crate::run::prepare::{self, Ready};
use crate::run::step::launch::{self, LoadedKernel, OwnMemory};
use crate::run::step::ops::{Op, OpError};
use crate::run::step::regs::Regs;
use crate::run::step::view::View;
use crate::run::times::Times;
use crate::run::{Failure, Outputs, failure, generator, injected_failure};
use crate::torch::outside::ticks;
use crate::torch::{Owned, Torch};
use flambeau_ir::guard::TensorGuard;
use flambeau_ir::kernel::DType;
use flambeau_ir::plan::Plan;
use flambeau_ir::source::SourceId;
use flambeau_ir::tensor::Device;
use flambeau_wire::from_daemon::Artifact;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::ops::Range;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

/// Kernels on buffers of fewer elements than this keep the GIL: they are done before it could be handed over.
pub const DETACH_ELEMENTS: i64 = 1 << 14;

/// Ticks after which steps without the GIL stop, so that signals are looked at: some 30 ms.
const SIGNAL_TICKS: u64 = 1 << 26;
/// Steps between two looks at the clock, which takes longer than many a step does.
const BETWEEN_LOOKS: usize = 8;

/// A plan ready to run.
pub struct NativeBody {
    torch: &'static Torch,
    stream: Stream,
    /// The memory of a back end that has its own.
    own_memory: Option<OwnMemory>,
    /// The first registers.
    inputs: usize,
    /// Inputs, and objects that are no tensors.
    values: usize,
    steps: Vec<Step>,
    parts: Vec<Part>,
    outputs: Vec<usize>,
    regs: usize,
    /// First step that cannot be taken back.
    commit: usize,
    /// Whether a failure before takes back what was drawn.
    restores: bool,
    kernels: Vec<LoadedKernel>,
    /// What its steps take, for benchmarks.
    times: Option<Arc<Times>>,
    /// `torch._C._increment_version`
    increment_version: Py<PyAny>,
}

/// One step. Small, so that many fit into the processor's caches: most plans are launches.
pub enum Step {
    /// A new tensor.
    Alloc(Box<Alloc>),
    /// A view that nobody can tell from a tensor.
    View(Box<View>),
    /// A view as torch makes it.
    PythonView(Box<View>),
    /// A kernel.
    Launch(Launch),
    /// A kernel on tensors in the back end's own memory.
    LaunchThere(Box<LaunchThere>),
    /// A transfer there or back.
    Transfer(Transfer),
    /// An op of torch's C interface.
    Direct(Box<DirectCall>),
    /// Any other op.
    Call(Box<Op>),
    /// A check of what torch returned.
    Expect(Box<Expected>),
    /// One more change of an input, for its version counter.
    Bump(usize),
    /// The end of a register.
    Free(usize),
}

/// An uninitialised tensor.
pub struct Alloc {
    /// Where it goes.
    pub reg: usize,
    /// Of its elements.
    pub dtype: DType,
    /// Where its memory is.
    pub device: Device,
    /// In elements.
    pub sizes: Rc<Extents>,
    /// In elements.
    pub strides: Rc<Extents>,
}

/// Successive steps that need, or do not need, the GIL.
pub struct Part {
    /// After its last step.
    pub end: usize,
    /// The most that a step of it takes.
    pub work: Work,
}

/// What a step takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    /// Less time than it takes to hand the GIL over and back.
    Brief,
    /// Time that depends on this call's sizes.
    Unknown,
    /// More time.
    Long,
    /// The GIL.
    Python,
}

impl NativeBody {
    /// Makes a plan ready: kernels are loaded, ops are found. `slot` gives the place of an input among a call's values, and
    /// `guard` what is known of it. `owns`: it is run by [`NativeBody::run_owning`] alone.
    pub fn new(
        py: Python<'_>,
        plan: &Plan,
        artifacts: &[Artifact],
        plugin_dirs: &[PathBuf],
        slot: &dyn Fn(SourceId) -> usize,
        guard: &dyn Fn(SourceId) -> Option<TensorGuard>,
        owns: bool,
    ) -> Result<NativeBody, String> {
        let torch = Torch::get(py)?;
        let values = plan.inputs.len() + plan.objects.len();
        if !plan.sources().map(slot).eq(0..values) {
            return Err("the inputs of the plan are not its first values".into());
        }
        let load = |artifact| launch::kernel(plugin_dirs, &plan.backend, plan.device, artifact, artifacts);
        let kernels = plan.kernels.iter().map(|kernel| load(&kernel.artifact));
        let own_memory = if plan.kernels.is_empty() { None } else { launch::own_memory(plugin_dirs, &plan.backend)? };
        let Ready { steps, parts, commit, places } = prepare::steps(py, torch, plan, guard, owns)?;
        Ok(NativeBody {
            torch,
            stream: Stream::of(torch, plan.device)?,
            own_memory,
            inputs: plan.inputs.len(),
            values,
            steps,
            parts,
            outputs: plan.outputs.iter().map(|r| r.0 as usize).collect(),
            regs: plan.regs as usize,
            commit,
            restores: plan.restores,
            kernels: kernels.collect::<Result<_, _>>()?,
            times: Times::of(plan, &places),
            increment_version: crate::python::paths::resolve(py, "torch._C._increment_version")
                .map_err(|e| format!("torch cannot count changes of tensors: {e}"))?
                .unbind(),
        })
    }

    /// Whether the graph is empty.
    pub fn does_nothing(&self) -> bool {
        self.steps.is_empty() && self.outputs.is_empty()
    }

    /// Whether a run, once done, cannot be taken back, or wrote to inputs.
    pub fn commits(&self) -> bool {
        self.commit < self.steps.len() || self.restores || self.steps.iter().any(|step| matches!(step, Step::Bump(_)))
    }

    /// How many of a call's values are inputs: the first ones.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Where the inputs lie.
    pub fn addresses(&self, values: &[Input]) -> Result<Vec<usize>, String> {
        let mut regs = Regs::new(self.torch, 1, &values[..self.inputs], self.inputs);
        (0..self.inputs).map(|reg| Ok(regs.data(reg)? as usize)).collect()
    }

    /// Runs the plan, and gives its outputs. The values live until Python runs or the GIL is released.
    pub fn run(&self, py: Python<'_>, values: &[Input], symbols: &[i64], outputs: &mut Outputs) -> Result<(), Failure> {
        if self.does_nothing() {
            return Ok(());
        }
        if self.restores {
            return generator::restoring(py, || self.run_parts(py, values, symbols, outputs));
        }
        self.run_parts(py, values, symbols, outputs)
    }

    /// As [`NativeBody::run`]; each of the tensors is given up after its last use.
    pub fn run_owning(
        &self,
        py: Python<'_>,
        tensors: Vec<Py<PyAny>>,
        symbols: &[i64],
        outputs: &mut Outputs,
    ) -> Result<(), Failure> {
        if self.does_nothing() {
            return Ok(());
        }
        let mut regs = Regs::new(self.torch, self.threads(), &[], self.regs);
        for (reg, tensor) in tensors.iter().enumerate() {
            // SAFETY: a live tensor, as its node of autograd kept it or was given it.
            let own = unsafe { Owned::again(self.torch, self.torch.handle(tensor.as_ptr())) };
            regs.own(reg, own.map_err(Failure::Before)?);
        }
        drop(tensors);
        self.run_with(py, regs, symbols, outputs)
    }

    fn threads(&self) -> u32 {
        if fork::is_child() { 1 } else { self.torch.threads() }
    }

    fn run_parts(
        &self,
        py: Python<'_>,
        values: &[Input],
        symbols: &[i64],
        outputs: &mut Outputs,
    ) -> Result<(), Failure> {
        let regs = Regs::new(self.torch, self.threads(), &values[..self.inputs], self.regs);
        self.run_with(py, regs.with(&values[self.inputs..self.values]), symbols, outputs)
    }

    fn run_with(
        &self,
        py: Python<'_>,
        mut regs: Regs<'_>,
        symbols: &[i64],
        outputs: &mut Outputs,
    ) -> Result<(), Failure> {
        regs.stream = self.stream.current(self.torch).map_err(Failure::Before)?;
        regs.places = self.own_memory.clone().map(|own| Box::new(Places::new(own)));
        let mut begun = 0;
        for part in &self.parts {
            let steps = begun..part.end;
            begun = part.end;
            let done = match part.work {
                Work::Python => self.run_python(py, &mut regs, symbols, steps),
                Work::Long => self.run_detached(py, &mut regs, symbols, steps),
                Work::Unknown if self.takes_long(&regs, symbols, &steps) => {
                    self.run_detached(py, &mut regs, symbols, steps)
                }
                Work::Brief | Work::Unknown => self.run_steps(&mut regs, symbols, steps, None).map(|_| ()),
            };
            done.map_err(|failed| self.failure(py, failed))?;
        }
        if self.outputs.len() > 1 {
            // To make one may run finalizers.
            regs.hold();
        }
        for reg in &self.outputs {
            outputs.push(regs.python(py, *reg).map_err(|why| {
                if self.commit < self.steps.len() {
                    Failure::After(PyRuntimeError::new_err(why))
                } else {
                    Failure::Before(why)
                }
            })?);
        }
        Ok(())
    }

    #[cold]
    fn failure(&self, py: Python<'_>, Failed { step, error }: Failed) -> Failure {
        match error {
            OpError::Python(error) => failure(py, error, step >= self.commit),
            OpError::Native(why) if step < self.commit => Failure::Before(why),
            OpError::Checked(why) if step < self.commit => Failure::Raised(why),
            OpError::Native(why) | OpError::Checked(why) => Failure::After(PyRuntimeError::new_err(why)),
            OpError::Unexpected(what) if step < self.commit => Failure::Wrong(what, None),
            OpError::Unexpected(what) => {
                let text = format!("{what}; the call cannot be taken back any more. This is a bug of flambeau");
                Failure::Wrong(what, Some(PyRuntimeError::new_err(text)))
            }
        }
    }

    /// Tells autograd that an input is about to be written to. Inference tensors count nothing.
    fn bump(&self, py: Python<'_>, regs: &mut Regs<'_>, reg: usize) -> Result<(), OpError> {
        let tensor = regs.python(py, reg).map_err(OpError::Native)?.into_bound(py);
        if !tensor.call_method0("is_inference")?.is_truthy()? {
            self.increment_version.bind(py).call1(((tensor,),))?;
        }
        Ok(())
    }

    /// Whether an input of this call, or what some of its steps make, is so large that the GIL is worth handing over.
    fn takes_long(&self, regs: &Regs<'_>, symbols: &[i64], steps: &Range<usize>) -> bool {
        let count = |sizes: &[i64]| sizes.iter().fold(1, |n: i64, size| n.saturating_mul(*size));
        // SAFETY: a live handle.
        let numel = |handle| unsafe { self.torch.numel(handle) };
        let input = |reg: usize| regs.handle(reg).is_ok_and(|handle| numel(handle) >= DETACH_ELEMENTS);
        let made = |step: &Step| match step {
            Step::Alloc(of) => {
                of.sizes.eval(symbols, &mut Room::new()).is_ok_and(|sizes| count(sizes) >= DETACH_ELEMENTS)
            }
            _ => false,
        };
        (0..self.inputs).any(input) || self.steps[steps.clone()].iter().any(made)
    }

    fn run_python(
        &self,
        py: Python<'_>,
        regs: &mut Regs<'_>,
        symbols: &[i64],
        steps: Range<usize>,
    ) -> Result<(), Failed> {
        regs.hold();
        for index in steps {
            let mut run = || match &self.steps[index] {
                _ if injected_failure() == Some(index) => Err(injected()),
                Step::PythonView(view) => view.run_python(py, regs, symbols),
                Step::Call(op) => op.run(py, regs, symbols),
                Step::Bump(reg) => self.bump(py, regs, *reg),
                step => self.step(step, regs, symbols),
            };
            let done = if let Some(times) = &self.times { times.count(index, run) } else { run() };
            done.map_err(|error| Failed { step: index, error })?;
            py.check_signals().map_err(Failed::interrupted)?;
        }
        Ok(())
    }

    fn run_detached(
        &self,
        py: Python<'_>,
        regs: &mut Regs<'_>,
        symbols: &[i64],
        mut steps: Range<usize>,
    ) -> Result<(), Failed> {
        regs.hold();
        let mut detached = Detached { body: self, regs, symbols };
        while !steps.is_empty() {
            steps.start = py.detach(|| detached.run(steps.clone()))?;
            py.check_signals().map_err(Failed::interrupted)?;
        }
        Ok(())
    }

    /// Runs steps that do not need the GIL, until then or a little longer: the first that was not run.
    fn run_steps(
        &self,
        regs: &mut Regs<'_>,
        symbols: &[i64],
        steps: Range<usize>,
        until: Option<u64>,
    ) -> Result<usize, Failed> {
        let failing = injected_failure();
        if let Some(times) = &self.times {
            for index in steps.clone() {
                let done = times.count(index, || self.step(&self.steps[index], regs, symbols));
                done.map_err(|error| Failed { step: index, error })?;
            }
            return Ok(steps.end);
        }
        for index in steps.clone() {
            let step = &self.steps[index];
            let done = if failing == Some(index) { Err(injected()) } else { self.step(step, regs, symbols) };
            done.map_err(|error| Failed { step: index, error })?;
            if index % BETWEEN_LOOKS == 0 && until.is_some_and(|until| ticks() >= until) {
                return Ok(index + 1);
            }
        }
        Ok(steps.end)
    }

    #[expect(clippy::inline_always, reason = "a call costs a third of what it does")]
    #[inline(always)]
    fn step(&self, step: &Step, regs: &mut Regs<'_>, symbols: &[i64]) -> Result<(), OpError> {
        match step {
            Step::Alloc(of) => {
                let mut rooms = Default::default();
                let (sizes, strides) = layout(&of.sizes, &of.strides, symbols, &mut rooms)?;
                let made = Owned::empty(self.torch, sizes, strides, of.dtype, of.device)?;
                regs.own(of.reg, made);
            }
            Step::View(view) => view.run(regs, symbols)?,
            Step::Launch(launch) => {
                let kernel = &self.kernels[launch.kernel as usize];
                match launch.run_plain(kernel, regs) {
                    Some(0) => {}
                    Some(status) => return Err(OpError::Checked(kernel.explain(status))),
                    None => launch.run(kernel, regs, symbols)?,
                }
            }
            Step::LaunchThere(launch) => {
                let kernel = &self.kernels[launch.launch.kernel as usize];
                regs.there(|places, regs| places.launch(kernel, regs, launch, symbols))?;
            }
            Step::Transfer(transfer) => regs.there(|places, regs| places.transfer(regs, *transfer))?,
            Step::Direct(call) => call.run(regs, symbols)?,
            Step::Expect(expected) => expected.check(regs, symbols)?,
            Step::Free(reg) => regs.free(*reg),
            Step::PythonView(_) | Step::Call(_) | Step::Bump(_) => {
                return Err(OpError::Native("a step that needs Python stands among others".into()));
            }
        }
        Ok(())
    }
}

/// A step that failed.
struct Failed {
    step: usize,
    error: OpError,
}

impl Failed {
    /// A signal's handler raised: to be raised wherever it came.
    fn interrupted(error: PyErr) -> Failed {
        Failed { step: usize::MAX, error: OpError::Python(error) }
    }
}

fn injected() -> OpError {
    OpError::Native("failure injected by a test".into())
}

/// Steps on their way without the GIL.
struct Detached<'a, 'r> {
    body: &'a NativeBody,
    regs: &'a mut Regs<'r>,
    symbols: &'a [i64],
}

// SAFETY: used by the thread that made it only, which gives the GIL up meanwhile: handles stay its own, the registers hold
// references to inputs, and steps that touch Python objects are not among those that run so.
unsafe impl Send for Detached<'_, '_> {}

impl Detached<'_, '_> {
    fn run(&mut self, steps: Range<usize>) -> Result<usize, Failed> {
        self.body.run_steps(self.regs, self.symbols, steps, Some(ticks() + SIGNAL_TICKS))
    }
}

impl From<String> for OpError {
    fn from(why: String) -> Self {
        OpError::Native(why)
    }
}
