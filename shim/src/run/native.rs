//! A launch plan: allocations, kernels, torch ops and views over borrowed handles, with the GIL released round long work.

use super::expect::{Expected, Unexpected};
use super::extents::{Extents, size};
use super::ops::{Op, OpError};
use super::outside::outside;
use super::regs::Regs;
use super::{Failure, Outputs, failure, injected_failure};
use crate::fork;
use crate::guard::{Expr, Slot as Input};
use crate::launch::{self, LoadedKernel};
use crate::torch_abi::{Owned, Torch};
use flambeau_ir::dim::Dim;
use flambeau_ir::kernel::DType;
use flambeau_ir::plan::{Plan, PlanStep, Reg};
use flambeau_ir::source::SourceId;
use flambeau_ir::tensor::Device;
use flambeau_wire::from_daemon::Artifact;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::path::PathBuf;

/// Kernels on buffers of fewer elements than this keep the GIL: they are done before it could be handed over.
const DETACH_ELEMENTS: i64 = 1 << 14;

/// Kernels with more buffers have their pointers on the heap.
const FEW_BUFFERS: usize = 16;

/// How often signals are looked at, in steps; and after each that released the GIL.
const SIGNAL_INTERVAL: usize = 512;

/// A plan ready to run.
pub struct NativeBody {
    torch: &'static Torch,
    /// The first registers.
    inputs: usize,
    steps: Vec<Step>,
    outputs: Vec<usize>,
    regs: usize,
    /// First step that cannot be taken back.
    commit: usize,
    kernels: Vec<LoadedKernel>,
    /// Inputs that kernels write to.
    written: Vec<usize>,
    /// `torch._C._increment_version`
    increment_version: Py<PyAny>,
}

/// Small, so that many fit into the processor's caches: most plans are launches.
enum Step {
    Alloc(Box<Alloc>),
    View(Box<View>),
    Launch(Launch),
    Call(Box<Op>),
    Expect(Box<Expected>),
    Free(usize),
}

struct Launch {
    kernel: u32,
    buffers: SmallVec<[u32; 4]>,
    scalars: Option<Box<Extents>>,
    /// Whether it keeps the GIL, where that is the same on every call.
    brief: Option<bool>,
}

struct Alloc {
    reg: usize,
    dtype: DType,
    device: Device,
    sizes: Extents,
    strides: Extents,
}

struct View {
    reg: usize,
    base: usize,
    sizes: Extents,
    strides: Extents,
    offset: Expr,
    dtype: DType,
    /// The user can see that it is a view: it leaves the plan and its base is, or comes from, the user's.
    visible: bool,
}

impl NativeBody {
    /// Makes a plan ready: kernels are loaded, ops are found. `slot` gives the place of an input among a call's values, and
    /// `elements` the number of its elements, if that is the same on every call.
    pub fn new(
        py: Python<'_>,
        plan: &Plan,
        artifacts: &[Artifact],
        plugin_dirs: &[PathBuf],
        slot: &dyn Fn(SourceId) -> usize,
        elements: &dyn Fn(SourceId) -> Option<i64>,
    ) -> Result<NativeBody, String> {
        let torch = Torch::get(py)?;
        if !plan.inputs.iter().map(|source| slot(*source)).eq(0..plan.inputs.len()) {
            return Err("the inputs of the plan are not its first values".into());
        }
        let mut maker = Maker { py, torch, plan, visible: visible_views(plan), elements: HashMap::new() };
        for (reg, source) in plan.inputs.iter().enumerate() {
            maker.elements.extend(elements(*source).map(|count| (reg as u32, count)));
        }
        let kernels = plan.kernels.iter().map(|k| launch::kernel(plugin_dirs, &plan.backend, &k.artifact, artifacts));
        let steps = (0..plan.steps.len()).map(|at| maker.step(at));
        Ok(NativeBody {
            torch,
            inputs: plan.inputs.len(),
            steps: steps.collect::<Result<_, _>>()?,
            outputs: plan.outputs.iter().map(|r| r.0 as usize).collect(),
            regs: plan.regs as usize,
            commit: plan.commit as usize,
            kernels: kernels.collect::<Result<_, _>>()?,
            written: plan.written.iter().map(|r| r.0 as usize).collect(),
            increment_version: crate::paths::resolve(py, "torch._C._increment_version")
                .map_err(|e| format!("torch cannot count changes of tensors: {e}"))?
                .unbind(),
        })
    }

    /// Whether a run, once done, cannot be taken back.
    pub fn commits(&self) -> bool {
        self.commit < self.steps.len()
    }

    /// Runs the plan, and gives its outputs. The values live until Python runs or the GIL is released.
    pub fn run(
        &self,
        py: Python<'_>,
        values: &[Input],
        symbols: &[i64],
        outputs: &mut Outputs,
    ) -> Result<(), Failure> {
        if self.steps.is_empty() && self.outputs.is_empty() {
            return Ok(());
        }
        let threads = if fork::is_child() { 1 } else { self.torch.threads() };
        let mut regs = Regs::new(self.torch, threads, &values[..self.inputs], self.regs);
        let injected = injected_failure();
        for (index, step) in self.steps.iter().enumerate() {
            if index == self.commit && !self.written.is_empty() {
                self.count_changes(py, &mut regs).map_err(|e| failure(py, e, false))?;
            }
            let result = if injected == Some(index) {
                Err(OpError::Native("failure injected by a test".into()))
            } else {
                self.step(py, step, &mut regs, symbols)
            };
            result.map_err(|error| match error {
                OpError::Python(error) => failure(py, error, index >= self.commit),
                OpError::Native(why) if index < self.commit => Failure::Before(why),
                OpError::Native(why) => Failure::After(PyRuntimeError::new_err(why)),
                OpError::Unexpected(what) if index < self.commit => Failure::Wrong(what, None),
                OpError::Unexpected(what) => {
                    let text = format!("{what}; the call cannot be taken back any more. This is a bug of flambeau");
                    Failure::Wrong(what, Some(PyRuntimeError::new_err(text)))
                }
            })?;
            if std::mem::take(&mut regs.detached) || index % SIGNAL_INTERVAL == SIGNAL_INTERVAL - 1 {
                regs.hold();
                py.check_signals().map_err(Failure::After)?;
            }
        }
        if self.outputs.len() > 1 {
            // To make one may run finalizers.
            regs.hold();
        }
        for reg in &self.outputs {
            outputs.push(regs.python(py, *reg).map_err(|why| {
                if self.commits() { Failure::After(PyRuntimeError::new_err(why)) } else { Failure::Before(why) }
            })?);
        }
        Ok(())
    }

    /// Tells autograd that kernels are about to write to inputs. Inference tensors count nothing.
    fn count_changes(&self, py: Python<'_>, regs: &mut Regs<'_>) -> PyResult<()> {
        regs.hold();
        for reg in &self.written {
            let tensor = regs.python(py, *reg).map_err(PyRuntimeError::new_err)?.into_bound(py);
            if !tensor.call_method0("is_inference")?.is_truthy()? {
                self.increment_version.bind(py).call1(((tensor,),))?;
            }
        }
        Ok(())
    }

    #[expect(clippy::inline_always, reason = "a call costs a third of what it does")]
    #[inline(always)]
    fn step(&self, py: Python<'_>, step: &Step, regs: &mut Regs<'_>, symbols: &[i64]) -> Result<(), OpError> {
        match step {
            Step::Alloc(of) => {
                let (sizes, strides) = (of.sizes.eval(symbols)?, of.strides.eval(symbols)?);
                let made = Owned::empty(self.torch, &sizes, &strides, of.dtype, of.device)?;
                regs.own(of.reg, made);
            }
            Step::View(view) => view.run(py, regs, symbols)?,
            Step::Launch(launch) => {
                let kernel = &self.kernels[launch.kernel as usize];
                match launch.run_plain(kernel, regs) {
                    Some(0) => {}
                    Some(status) => return Err(OpError::Native(kernel.explain(status))),
                    None => launch.run(py, kernel, regs, symbols)?,
                }
            }
            Step::Call(op) => op.run(py, regs, symbols)?,
            Step::Expect(expected) => {
                let handle = regs.handle(expected.reg)?;
                expected.check(self.torch, handle, symbols).map_err(|unexpected| match unexpected {
                    Unexpected::Sizes(why) => OpError::Native(why),
                    Unexpected::Tensor(what) => OpError::Unexpected(what),
                })?;
            }
            Step::Free(reg) => regs.free(*reg),
        }
        Ok(())
    }
}

impl Launch {
    /// The frequent kind, which takes pointers that are known and keeps the GIL: its status. `None` of others.
    #[inline]
    fn run_plain(&self, kernel: &LoadedKernel, regs: &Regs<'_>) -> Option<i32> {
        let mut pointers = [MaybeUninit::uninit(); FEW_BUFFERS];
        if self.brief != Some(true) || self.scalars.is_some() || self.buffers.len() > FEW_BUFFERS {
            return None;
        }
        for (pointer, reg) in pointers.iter_mut().zip(&self.buffers) {
            let data = regs.known_data(*reg as usize);
            if data.is_null() {
                return None;
            }
            pointer.write(data);
        }
        // SAFETY: as in `run`; the kernel's pointers are those that were written.
        Some(outside(|| unsafe { kernel.status(pointers.as_ptr().cast(), [].as_ptr(), regs.threads) }))
    }

    fn run(&self, py: Python<'_>, kernel: &LoadedKernel, regs: &mut Regs<'_>, symbols: &[i64]) -> Result<(), String> {
        let mut pointers = Pointers(SmallVec::with_capacity(self.buffers.len()));
        for reg in &self.buffers {
            pointers.0.push(regs.data(*reg as usize)?);
        }
        let brief = match self.brief {
            Some(brief) => brief,
            None => {
                // SAFETY: live handles.
                let count = |reg: &u32| regs.handle(*reg as usize).map(|handle| unsafe { regs.torch.numel(handle) });
                self.buffers.iter().map(count).collect::<Result<SmallVec<[i64; 12]>, _>>()?.iter().all(|n| is_brief(*n))
            }
        };
        let computed;
        let scalars: &[i64] = match &self.scalars {
            None => &[],
            Some(scalars) => {
                computed = scalars.eval(symbols)?;
                &computed
            }
        };
        let threads = regs.threads;
        // SAFETY: the plan was lowered with this kernel for tensors of these sizes and strides, which the guards checked;
        // the registers keep the memory alive.
        let run = || outside(|| unsafe { kernel.launch(pointers.get(), scalars, threads) });
        if brief { run() } else { regs.detach(py, run) }
    }
}

fn is_brief(elements: i64) -> bool {
    elements < DETACH_ELEMENTS
}

/// Data pointers that another thread state may use: the run keeps their tensors alive.
struct Pointers(SmallVec<[*mut c_void; FEW_BUFFERS]>);

// SAFETY: see the type.
unsafe impl Send for Pointers {}
// SAFETY: see the type.
unsafe impl Sync for Pointers {}

impl Pointers {
    fn get(&self) -> &[*mut c_void] {
        &self.0
    }
}

impl From<String> for OpError {
    fn from(why: String) -> Self {
        OpError::Native(why)
    }
}

/// Makes the steps of a plan ready.
struct Maker<'a, 'py> {
    py: Python<'py>,
    torch: &'a Torch,
    plan: &'a Plan,
    visible: Vec<u32>,
    /// Elements of the tensors in registers so far, where that is the same on every call.
    elements: HashMap<u32, i64>,
}

impl Maker<'_, '_> {
    /// Takes note of what a step does to a register; `sizes` of what it puts there, if they are known.
    fn changed(&mut self, reg: Reg, sizes: Option<&[Dim]>) -> Result<usize, String> {
        let at = reg.0 as usize;
        if at < self.plan.inputs.len() {
            return Err(format!("the plan writes to register {at}, an input"));
        }
        match sizes.and_then(|sizes| sizes.iter().map(Dim::as_const).product::<Option<i64>>()) {
            Some(count) => self.elements.insert(reg.0, count),
            None => self.elements.remove(&reg.0),
        };
        Ok(at)
    }

    fn step(&mut self, at: usize) -> Result<Step, String> {
        let (step, on_cpu) = (&self.plan.steps[at], self.plan.backend == "cpu");
        Ok(match step {
            PlanStep::Alloc { reg, dtype, device, sizes, strides } => Step::Alloc(Box::new(Alloc {
                reg: self.changed(*reg, Some(sizes))?,
                dtype: *dtype,
                device: *device,
                sizes: Extents::new(sizes),
                strides: Extents::new(strides),
            })),
            PlanStep::View { reg, base, sizes, strides, offset, dtype } => Step::View(Box::new(View {
                reg: self.changed(*reg, Some(sizes))?,
                base: base.0 as usize,
                sizes: Extents::new(sizes),
                strides: Extents::new(strides),
                offset: offset.into(),
                dtype: *dtype,
                visible: self.visible.contains(&reg.0),
            })),
            PlanStep::Launch { kernel, buffers, scalars } => {
                let counts = buffers.iter().map(|reg| self.elements.get(&reg.0).copied());
                Step::Launch(Launch {
                    kernel: *kernel,
                    buffers: buffers.iter().map(|r| r.0).collect(),
                    scalars: (!scalars.is_empty()).then(|| Box::new(Extents::new(scalars))),
                    brief: counts.collect::<Option<Vec<_>>>().map(|counts| counts.into_iter().all(is_brief)),
                })
            }
            PlanStep::Call { results, .. } => {
                for reg in results {
                    self.changed(*reg, None)?;
                }
                Step::Call(Box::new(Op::new(self.py, self.torch, step, on_cpu)?))
            }
            PlanStep::Expect { reg, dtype, device, sizes, strides } => Step::Expect(Box::new(Expected {
                reg: reg.0 as usize,
                dtype: *dtype,
                device: *device,
                sizes: Extents::new(sizes),
                strides: Extents::new(strides),
                made_by: made_by(self.plan, at),
            })),
            PlanStep::Free(reg) => Step::Free(self.changed(*reg, None)?),
        })
    }
}

/// The call before a step, for messages.
fn made_by(plan: &Plan, at: usize) -> String {
    let call = plan.steps[..at].iter().rev().find_map(|step| match step {
        PlanStep::Call { op, overload, .. } => Some(format!("{op}.{overload}")),
        _ => None,
    });
    call.unwrap_or_else(|| "a call".to_owned())
}

/// Views that the user can tell to be such: they leave the plan, and what they show is an input or another output.
fn visible_views(plan: &Plan) -> Vec<u32> {
    let bases: std::collections::HashMap<u32, u32> = plan
        .steps
        .iter()
        .filter_map(|step| match step {
            PlanStep::View { reg, base, .. } => Some((reg.0, base.0)),
            _ => None,
        })
        .collect();
    let is_seen = |reg: u32| (reg as usize) < plan.inputs.len() || plan.outputs.iter().any(|r| r.0 == reg);
    let mut visible = Vec::new();
    for output in &plan.outputs {
        let mut chain = vec![output.0];
        while let Some(base) = bases.get(chain.last().unwrap_or(&output.0)) {
            chain.push(*base);
        }
        let root = chain.pop().unwrap_or(output.0);
        if !chain.is_empty() && is_seen(root) {
            visible.extend(chain);
        }
    }
    visible
}

impl View {
    fn run(&self, py: Python<'_>, regs: &mut Regs<'_>, symbols: &[i64]) -> Result<(), OpError> {
        let (sizes, strides) = (self.sizes.eval(symbols)?, self.strides.eval(symbols)?);
        let base = regs.handle(self.base)?;
        let torch = regs.torch;
        let offset = size(&self.offset, symbols)?;
        // SAFETY: a live handle.
        let recast = unsafe { torch.dtype(base) } != self.dtype as i32;
        if self.visible || recast {
            // SAFETY: as above.
            let start = unsafe { torch.storage_offset(base) };
            return self.run_python(py, regs, (&sizes, &strides), start + offset, recast);
        }
        // SAFETY: a live handle; sizes, strides and offset stay within its storage as the plan was lowered for it.
        let view = unsafe { Owned::reinterpret(torch, base, &sizes, &strides, offset)? };
        regs.own(self.reg, view);
        Ok(())
    }

    /// Through torch's own view functions, which share version counters and know the base.
    fn run_python(
        &self,
        py: Python<'_>,
        regs: &mut Regs<'_>,
        (sizes, strides): (&[i64], &[i64]),
        offset: i64,
        recast: bool,
    ) -> Result<(), OpError> {
        regs.hold();
        let mut base = regs.python(py, self.base)?.into_bound(py);
        if recast {
            let dtype = crate::consts::to_object(py, &flambeau_ir::code::Const::Dtype(self.dtype))?;
            base = base.call_method1("view", (dtype,))?;
        }
        let tuple = |values: &[i64]| pyo3::types::PyTuple::new(py, values);
        let view = base.call_method1("as_strided", (tuple(sizes)?, tuple(strides)?, offset))?;
        regs.keep(self.reg, view.unbind());
        Ok(())
    }
}
