//! Steps that make a tensor over another one's memory.

use super::extents::{Extents, layout, size};
use super::kernel::Operand;
use super::ops::OpError;
use super::regs::Regs;
use crate::guard::Expr;
use crate::torch::Owned;
use flambeau_ir::kernel::DType;
use flambeau_ir::plan::{Plan, PlanStep, Reg};
use pyo3::prelude::*;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

/// A view ready to be made.
pub struct View {
    /// Where it goes.
    pub reg: usize,
    /// Whose memory.
    pub base: usize,
    /// Of the view.
    pub sizes: Rc<Extents>,
    /// Of the view.
    pub strides: Rc<Extents>,
    /// Elements from the base's own first one.
    pub offset: Expr,
    /// Of the view.
    pub dtype: DType,
}

impl View {
    /// Makes it where the user cannot see that it is a view, nor has it other elements than its base.
    pub fn run(&self, regs: &mut Regs<'_>, symbols: &[i64]) -> Result<(), String> {
        let mut rooms = Default::default();
        let (sizes, strides) = layout(&self.sizes, &self.strides, symbols, &mut rooms)?;
        let base = regs.handle(self.base)?;
        let offset = size(&self.offset, symbols)?;
        // SAFETY: a live handle; sizes, strides and offset stay within its storage as the plan was lowered for it.
        let view = unsafe { Owned::reinterpret(regs.torch, base, sizes, strides, offset)? };
        regs.own(self.reg, view);
        Ok(())
    }

    /// Through torch's own view functions, which share version counters and know the base.
    pub fn run_python(&self, py: Python<'_>, regs: &mut Regs<'_>, symbols: &[i64]) -> Result<(), OpError> {
        let mut rooms = Default::default();
        let (sizes, strides) = layout(&self.sizes, &self.strides, symbols, &mut rooms)?;
        let handle = regs.handle(self.base)?;
        let torch = regs.torch;
        // SAFETY: a live handle.
        let (recast, start) = unsafe { (torch.dtype(handle) != self.dtype as i32, torch.storage_offset(handle)) };
        let offset = start + size(&self.offset, symbols)?;
        regs.hold();
        let mut base = regs.python(py, self.base)?.into_bound(py);
        if recast {
            let dtype = crate::python::consts::to_object(py, &flambeau_ir::code::Const::Dtype(self.dtype))?;
            base = base.call_method1("view", (dtype,))?;
        }
        let tuple = |values: &[i64]| pyo3::types::PyTuple::new(py, values);
        let view = base.call_method1("as_strided", (tuple(sizes)?, tuple(strides)?, offset))?;
        regs.keep(self.reg, view.unbind());
        Ok(())
    }
}

/// Views that kernels alone touch need no tensors. Of each such register, where its memory lies: in a tensor of the plan's
/// own that outlives the uses. `roots` are the plan's.
pub fn places(plan: &Plan, roots: &BTreeMap<Reg, Reg>) -> HashMap<Reg, Operand> {
    let (mut last, mut freed) = (HashMap::new(), HashMap::new());
    let mut named: HashSet<Reg> = plan.outputs.iter().copied().collect();
    for (at, step) in plan.steps.iter().enumerate() {
        match step {
            PlanStep::Launch { buffers, .. } => buffers.iter().for_each(|reg| _ = last.insert(*reg, at)),
            PlanStep::Free(reg) => _ = freed.insert(*reg, at),
            PlanStep::View { base, .. } => _ = named.insert(*base),
            step => step.registers(&mut |reg| _ = named.insert(reg)),
        }
    }
    let place = |step: &PlanStep| {
        let PlanStep::View { reg, base, offset, dtype, .. } = step else { return None };
        let is_real = |base: &Reg| base.0 as usize >= plan.inputs.len() && !roots.contains_key(base);
        let outlives = freed.get(base).is_none_or(|end| last.get(reg).is_some_and(|used| used < end));
        let offset = offset.as_const()?.checked_mul(dtype.size() as i64)?.try_into().ok()?;
        let placed = !named.contains(reg) && is_real(base) && outlives;
        placed.then_some((*reg, Operand { reg: base.0, offset }))
    };
    plan.steps.iter().filter_map(place).collect()
}

/// Registers of views that the user can tell to be such: they leave the plan, and what they show is an input or another
/// output.
pub fn visible(plan: &Plan) -> Vec<u32> {
    let bases: HashMap<u32, u32> = plan
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
