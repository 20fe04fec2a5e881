//! The steps of a plan made ready, and divided into those that need the GIL and those that do not.

use super::native::{Alloc, DETACH_ELEMENTS, Part, Step, Work};
use super::step::direct::{Direct, DirectCall};
use super::step::expect::{Expected, Metadata};
use super::step::extents::Interner;
use super::step::kernel::{Launch, Operand};
use super::step::ops::Op;
use super::step::rows::{self, Known, Rows};
use super::step::transfer::{LaunchThere, Transfer};
use super::step::view::{self, View};
use crate::torch::Torch;
use flambeau_ir::dim::Dim;
use flambeau_ir::guard::TensorGuard;
use flambeau_ir::kernel::DType;
use flambeau_ir::plan::{Plan, PlanStep, Reg};
use flambeau_ir::source::SourceId;
use flambeau_ir::tensor::Device;
use pyo3::prelude::*;
use smallvec::SmallVec;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

/// Multiplications of a product of matrices that is done before another thread could take the GIL.
const SMALL_PRODUCT: f64 = 65536.0;

/// Steps made ready.
pub struct Ready {
    /// In order.
    pub steps: Vec<Step>,
    /// Which of them need the GIL.
    pub parts: Vec<Part>,
    /// The first that cannot be taken back.
    pub commit: usize,
    /// Which step of the plan each is.
    pub places: Vec<usize>,
}

/// Makes the steps of a plan ready. `guard` gives what is known of an input. `owns`: inputs are given up after their last use.
pub fn steps(
    py: Python<'_>,
    torch: &Torch,
    plan: &Plan,
    guard: &dyn Fn(SourceId) -> Option<TensorGuard>,
    owns: bool,
) -> Result<Ready, String> {
    let own_memory = plan.steps.iter().any(|step| matches!(step, PlanStep::Import(_) | PlanStep::Reserve(_)));
    let roots = plan.roots();
    let mut maker = Maker {
        py,
        torch,
        plan,
        asynchronous: !plan.device.is_host(),
        visible: view::visible(plan),
        places: if own_memory { HashMap::new() } else { view::places(plan, &roots) },
        roots,
        own_memory,
        objects: HashSet::new(),
        elements: HashMap::new(),
        dtypes: HashMap::new(),
        interner: Interner::default(),
        metadata: HashMap::new(),
    };
    for (reg, source) in (0..).zip(&plan.inputs) {
        if let Some(guard) = guard(*source) {
            maker.note(Reg(reg), Some(guard.dtype), &guard.sizes);
        }
    }
    let mut ends = if owns { ends(plan, &maker.roots) } else { HashMap::new() };
    let (mut steps, mut works) = (Vec::with_capacity(plan.steps.len()), Vec::with_capacity(plan.steps.len()));
    let (mut commit, mut places) = (None, Vec::new());
    for (at, step) in plan.steps.iter().enumerate() {
        if plan.commit as usize == at {
            commit = Some(steps.len());
        }
        match step {
            // There is nothing to make nor to end.
            PlanStep::View { reg, sizes, dtype, .. } if maker.places.contains_key(reg) => {
                maker.note(*reg, Some(*dtype), sizes);
                continue;
            }
            PlanStep::Free(reg) if maker.places.contains_key(reg) => continue,
            _ => {}
        }
        let (step, work) = maker.step(at)?;
        let commits = commit == Some(steps.len());
        if let Some(step) = with_call(steps.last_mut().filter(|_| !commits), step, work) {
            steps.push(step);
            works.push(work);
            places.push(at);
        }
        for reg in ends.remove(&at).into_iter().flatten() {
            steps.push(Step::Free(reg.0 as usize));
            works.push(if maker.objects.contains(&reg.0) { Work::Python } else { Work::Brief });
            places.push(at);
        }
    }
    let commit = commit.unwrap_or(steps.len());
    let parts = parts(&works);
    Ok(Ready { steps, parts, commit, places })
}

/// The inputs that are used last by each step, but for those that leave.
fn ends(plan: &Plan, roots: &BTreeMap<Reg, Reg>) -> HashMap<usize, Vec<Reg>> {
    let mut last: BTreeMap<Reg, usize> = BTreeMap::new();
    for (at, step) in plan.steps.iter().enumerate() {
        step.registers(&mut |reg| {
            let root = *roots.get(&reg).unwrap_or(&reg);
            if (root.0 as usize) < plan.inputs.len() && !plan.outputs.contains(&root) {
                last.insert(root, at);
            }
        });
    }
    let mut ends: HashMap<usize, Vec<Reg>> = HashMap::new();
    last.into_iter().for_each(|(reg, at)| ends.entry(at).or_default().push(reg));
    ends
}

/// Makes the step part of the call before it, if it is one that checks or ends registers; else gives it back.
fn with_call(last: Option<&mut Step>, step: Step, work: Work) -> Option<Step> {
    match (last, step) {
        (Some(Step::Direct(call)), Step::Expect(expected)) => call.expected.push(*expected),
        (Some(Step::Direct(call)), Step::Free(reg)) if work == Work::Brief => call.freed.push(reg),
        (_, step) => return Some(step),
    }
    None
}

fn parts(works: &[Work]) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for (at, work) in works.iter().enumerate() {
        // While no other thread ran, inputs lie where the guards found them: brief steps come first.
        let first = parts.len() == 1 && parts[0].work == Work::Brief && *work > Work::Brief;
        let alike = |part: &&mut Part| (part.work == Work::Python) == (*work == Work::Python) && !first;
        match parts.last_mut().filter(alike) {
            Some(part) => *part = Part { end: at + 1, work: part.work.max(*work) },
            None => parts.push(Part { end: at + 1, work: *work }),
        }
    }
    parts
}

struct Maker<'a, 'py> {
    py: Python<'py>,
    torch: &'a Torch,
    plan: &'a Plan,
    /// Kernels and calls are only put into a stream.
    asynchronous: bool,
    visible: Vec<u32>,
    /// Of views, the registers of the tensors whose memory they are in.
    roots: BTreeMap<Reg, Reg>,
    /// Kernels run in the back end's own memory.
    own_memory: bool,
    /// Where views lie that kernels alone touch.
    places: HashMap<Reg, Operand>,
    /// Registers that Python objects were made of or for so far: to empty them needs the GIL.
    objects: HashSet<u32>,
    /// Elements of the tensors in registers so far, where that is the same on every call.
    elements: HashMap<u32, i64>,
    /// Their types.
    dtypes: HashMap<u32, DType>,
    interner: Interner,
    /// By dtype, device, sizes and strides.
    metadata: HashMap<(DType, Device, Vec<Dim>, Vec<Dim>), Rc<Metadata>>,
}

impl Maker<'_, '_> {
    fn note(&mut self, reg: Reg, dtype: Option<DType>, sizes: &[Dim]) {
        match sizes.iter().map(Dim::as_const).product::<Option<i64>>() {
            Some(count) => self.elements.insert(reg.0, count),
            None => self.elements.remove(&reg.0),
        };
        match dtype {
            Some(dtype) => self.dtypes.insert(reg.0, dtype),
            None => self.dtypes.remove(&reg.0),
        };
    }

    /// The index of a register that a step changes.
    fn changed(&mut self, reg: Reg) -> Result<usize, String> {
        let at = reg.0 as usize;
        if at < self.plan.inputs.len() {
            return Err(format!("the plan writes to register {at}, an input"));
        }
        self.elements.remove(&reg.0);
        self.dtypes.remove(&reg.0);
        Ok(at)
    }

    fn operand(&self, reg: Reg) -> Operand {
        self.places.get(&reg).copied().unwrap_or(Operand { reg: reg.0, offset: 0 })
    }

    fn step(&mut self, at: usize) -> Result<(Step, Work), String> {
        let step = &self.plan.steps[at];
        // Behind the commit point its exception is what the user sees.
        let is_told = self.torch.tells_errors() || at < self.plan.commit as usize;
        let direct = is_told.then(|| Direct::new(self.torch, &mut self.interner, self.plan.device, step)).flatten();
        let known = Known { elements: &self.elements, dtypes: &self.dtypes };
        let rows = || Rows::of(self.plan, at, &known).map(|rows| Direct::Rows(Box::new(rows)));
        let direct = direct.or_else(rows).or_else(|| rows::checked(self.plan, at, &known).map(Direct::Check));
        Ok(match step {
            PlanStep::Alloc { reg, dtype, device, sizes, strides } => {
                let made = Alloc {
                    reg: self.changed(*reg)?,
                    dtype: *dtype,
                    device: *device,
                    sizes: self.interner.extents(sizes),
                    strides: self.interner.extents(strides),
                };
                self.note(*reg, Some(*dtype), sizes);
                (Step::Alloc(Box::new(made)), Work::Brief)
            }
            PlanStep::View { reg, base, sizes, strides, offset, dtype } => {
                let is_native = !self.visible.contains(&reg.0) && self.dtypes.get(&base.0) == Some(dtype);
                let view = Box::new(View {
                    reg: self.changed(*reg)?,
                    base: base.0 as usize,
                    sizes: self.interner.extents(sizes),
                    strides: self.interner.extents(strides),
                    offset: offset.into(),
                    dtype: *dtype,
                });
                self.note(*reg, Some(*dtype), sizes);
                if is_native {
                    (Step::View(view), Work::Brief)
                } else {
                    self.objects.extend([reg.0, base.0]);
                    (Step::PythonView(view), Work::Python)
                }
            }
            PlanStep::Launch { kernel, buffers, scalars } => self.launch(*kernel, buffers, scalars),
            PlanStep::Call { results, .. } => {
                let work = direct.as_ref().map_or(Work::Python, |direct| self.direct(direct));
                for reg in results {
                    self.changed(*reg)?;
                }
                match direct {
                    Some(op) => {
                        let call = DirectCall { op, freed: SmallVec::new(), expected: SmallVec::new() };
                        (Step::Direct(Box::new(call)), work)
                    }
                    None => {
                        step.registers(&mut |reg| _ = self.objects.insert(reg.0));
                        (Step::Call(Box::new(Op::new(self.py, step)?)), work)
                    }
                }
            }
            PlanStep::Expect { reg, dtype, device, sizes, strides } => {
                self.note(*reg, Some(*dtype), sizes);
                let key = (*dtype, *device, sizes.clone(), strides.clone());
                let metadata = self.metadata.entry(key).or_insert_with(|| {
                    Rc::new(Metadata::new(self.torch, &mut self.interner, (*dtype, *device), sizes, strides))
                });
                let metadata = metadata.clone();
                let expected = Expected { reg: reg.0 as usize, metadata, made_by: made_by(self.plan, at) };
                (Step::Expect(Box::new(expected)), Work::Brief)
            }
            PlanStep::Free(reg) => {
                let work = if self.objects.contains(&reg.0) { Work::Python } else { Work::Brief };
                (Step::Free(self.changed(*reg)?), work)
            }
            PlanStep::Bump(reg) => (Step::Bump(reg.0 as usize), Work::Python),
            PlanStep::Import(reg) => (Step::Transfer(Transfer::Import(reg.0 as usize)), Work::Long),
            PlanStep::Reserve(reg) => (Step::Transfer(Transfer::Reserve(reg.0 as usize)), Work::Long),
            PlanStep::Export(reg) => (Step::Transfer(Transfer::Export(reg.0 as usize)), Work::Long),
            PlanStep::Release(reg) => (Step::Transfer(Transfer::Release(reg.0 as usize)), Work::Long),
        })
    }

    fn launch(&mut self, kernel: u32, buffers: &[Reg], scalars: &[Dim]) -> (Step, Work) {
        let counts: Option<Vec<i64>> = buffers.iter().map(|reg| self.elements.get(&reg.0).copied()).collect();
        let launch = Launch {
            kernel,
            buffers: buffers.iter().map(|reg| self.operand(*reg)).collect(),
            scalars: (!scalars.is_empty()).then(|| self.interner.extents(scalars)),
        };
        if self.own_memory {
            let root = |reg: &Reg| self.roots.get(reg).unwrap_or(reg).0;
            let roots = buffers.iter().map(root).collect();
            return (Step::LaunchThere(Box::new(LaunchThere { launch, roots })), Work::Long);
        }
        let work =
            if self.asynchronous { Work::Brief } else { counts.map_or(Work::Unknown, |counts| of_elements(&counts)) };
        (Step::Launch(launch), work)
    }

    fn direct(&self, op: &Direct) -> Work {
        if self.asynchronous {
            return Work::Brief;
        }
        if matches!(op, Direct::Rows(_) | Direct::Check(_)) {
            return Work::Brief;
        }
        let Some(regs) = op.product() else { return Work::Long };
        let counts: Option<Vec<i64>> = regs.iter().map(|reg| self.elements.get(&(*reg as u32)).copied()).collect();
        match counts {
            // Rows by columns, columns by columns, rows by columns.
            Some(counts) if counts.iter().map(|n| *n as f64).product::<f64>().sqrt() < SMALL_PRODUCT => Work::Brief,
            Some(_) => Work::Long,
            None => Work::Unknown,
        }
    }
}

fn of_elements(counts: &[i64]) -> Work {
    if counts.iter().all(|count| *count < DETACH_ELEMENTS) { Work::Brief } else { Work::Long }
}

/// The call before a step, for messages.
fn made_by(plan: &Plan, at: usize) -> String {
    let call = plan.steps[..at].iter().rev().find_map(|step| match step {
        PlanStep::Call { op, overload, .. } => Some(format!("{op}.{overload}")),
        _ => None,
    });
    call.unwrap_or_else(|| "a call".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_that_need_the_gil_stand_apart() {
        use Work::{Brief, Long, Python, Unknown};
        let divided = |works: &[Work]| -> Vec<(usize, Work)> {
            parts(works).into_iter().map(|part| (part.end, part.work)).collect()
        };
        assert_eq!(divided(&[]), []);
        assert_eq!(divided(&[Brief, Long, Brief]), [(1, Brief), (3, Long)]);
        assert_eq!(divided(&[Long, Brief]), [(2, Long)]);
        assert_eq!(divided(&[Brief, Python, Python, Unknown]), [(1, Brief), (3, Python), (4, Unknown)]);
        assert_eq!(divided(&[Brief, Brief, Long]), [(2, Brief), (3, Long)]);
    }
}
