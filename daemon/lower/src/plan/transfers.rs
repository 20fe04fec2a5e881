//! For back ends with memory of their own: when buffers are brought there and back. Inputs, outputs and what torch's calls
//! take and give are in the host's memory, kernels take what is in the back end's.

use flambeau_ir::kernel::{Kernel, Role};
use flambeau_ir::plan::{Plan, PlanStep, Reg};
use std::collections::{BTreeMap, BTreeSet};

/// Where the content of a tensor is. In neither place: nothing was written to it yet.
#[derive(Clone, Copy, Default)]
struct Content {
    /// In the host's memory.
    host: bool,
    /// In the back end's.
    device: bool,
}

/// Puts transfers among the steps. `kernels` are those of the plan.
pub fn add(plan: &mut Plan, kernels: &[Kernel]) {
    let roots = plan.roots();
    let root = |reg: &Reg| *roots.get(reg).unwrap_or(reg);
    let (used, named) = last_uses(plan, &root);
    let written = plan.steps.iter().filter_map(|step| if let PlanStep::Bump(reg) = step { Some(reg) } else { None });
    let kept: BTreeSet<Reg> = plan.outputs.iter().chain(written).map(root).collect();
    let mut writer = Writer { steps: Vec::new(), contents: BTreeMap::new() };
    for reg in (0..plan.inputs.len() as u32).map(Reg) {
        writer.contents.insert(reg, Content { host: true, device: false });
    }
    let mut commit = None;
    for (at, step) in std::mem::take(&mut plan.steps).into_iter().enumerate() {
        writer.prepare(&step, kernels, &root);
        if at == plan.commit as usize {
            commit = Some(writer.steps.len());
        }
        // Views keep their memory alive: transfers name the tensor that they are views of.
        if !matches!(step, PlanStep::Free(_)) {
            writer.steps.push(step);
        }
        for reg in used.get(&at).into_iter().flatten().filter(|reg| !kept.contains(reg)) {
            writer.release(*reg);
        }
        let done = |reg: &&Reg| reg.0 >= plan.inputs.len() as u32 && !plan.outputs.contains(reg);
        writer.steps.extend(named.get(&at).into_iter().flatten().filter(done).map(|reg| PlanStep::Free(*reg)));
    }
    for reg in kept {
        writer.bring_back(reg);
        writer.release(reg);
    }
    plan.commit = commit.unwrap_or(writer.steps.len()) as u32;
    plan.steps = writer.steps;
}

type Steps = BTreeMap<usize, Vec<Reg>>;

/// By step: the tensors that no kernel and no call uses after it, in any view; and the registers that it is the last to name,
/// a tensor's when none of its views is named any more.
fn last_uses(plan: &Plan, root: &impl Fn(&Reg) -> Reg) -> (Steps, Steps) {
    let (mut used, mut named) = (BTreeMap::new(), BTreeMap::new());
    for (at, step) in plan.steps.iter().enumerate() {
        step.registers(&mut |reg| {
            named.insert(reg, at);
            named.insert(root(&reg), at);
            if matches!(step, PlanStep::Launch { .. } | PlanStep::Call { .. }) {
                used.insert(root(&reg), at);
            }
        });
    }
    // A tensor that an output is a view of is named to the end.
    plan.outputs.iter().for_each(|reg| {
        named.remove(&root(reg));
    });
    let by_step = |last: BTreeMap<Reg, usize>| {
        let mut steps = Steps::new();
        last.into_iter().for_each(|(reg, at)| steps.entry(at).or_default().push(reg));
        steps
    };
    (by_step(used), by_step(named))
}

struct Writer {
    steps: Vec<PlanStep>,
    /// Of the tensors so far.
    contents: BTreeMap<Reg, Content>,
}

impl Writer {
    /// Brings what a step takes to where it takes it from.
    fn prepare(&mut self, step: &PlanStep, kernels: &[Kernel], root: &impl Fn(&Reg) -> Reg) {
        match step {
            PlanStep::Launch { kernel, buffers, .. } => {
                for reg in buffers {
                    self.bring_there(root(reg));
                }
                let params = &kernels[*kernel as usize].params;
                for (reg, _) in buffers.iter().zip(params).filter(|(_, param)| param.role != Role::In) {
                    self.content(root(reg)).host = false;
                }
            }
            PlanStep::Call { results, .. } => {
                let mut regs = BTreeSet::new();
                step.registers(&mut |reg| _ = regs.insert(root(&reg)));
                for reg in regs {
                    self.bring_back(reg);
                    // A call without results writes to some of its arguments.
                    if results.is_empty() {
                        self.release(reg);
                        self.content(reg).host = true;
                    }
                }
                for reg in results {
                    self.content(*reg).host = true;
                }
            }
            _ => {}
        }
    }

    fn content(&mut self, reg: Reg) -> &mut Content {
        self.contents.entry(reg).or_default()
    }

    fn bring_there(&mut self, reg: Reg) {
        let Content { host, device } = *self.content(reg);
        if !device {
            self.steps.push(if host { PlanStep::Import(reg) } else { PlanStep::Reserve(reg) });
            self.content(reg).device = true;
        }
    }

    fn bring_back(&mut self, reg: Reg) {
        let Content { host, device } = *self.content(reg);
        if device && !host {
            self.steps.push(PlanStep::Export(reg));
            self.content(reg).host = true;
        }
    }

    fn release(&mut self, reg: Reg) {
        if std::mem::take(&mut self.content(reg).device) {
            self.steps.push(PlanStep::Release(reg));
        }
    }
}
