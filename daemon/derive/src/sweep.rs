//! From the outputs of a graph back to its inputs: the gradient of each value, by the rule of the op that made it.

use crate::Wanted;
use crate::rules;
use flambeau_core::graph::{Core, CoreId, CoreNode, CoreOp, OutputBase};
use flambeau_ir::bounds::check_time;
use flambeau_ir::reason::Reason;
use flambeau_ops::build::Build;
use flambeau_ops::decompose::refuse;
use flambeau_ops::derivative::{Back, derivative};
use std::collections::BTreeMap;

/// A graph with the derivative of its outputs.
pub struct Joint {
    /// The nodes of the graph, then those of the derivative.
    pub core: Core,
    /// Inputs of the graph; the inputs after these are the gradients of `outputs`.
    pub inputs: u32,
    /// Outputs with a derivative.
    pub outputs: Vec<u32>,
    /// Inputs of the graph with a gradient, and that.
    pub gradients: Vec<(u32, CoreId)>,
}

/// The derivative while it grows.
pub struct Sweep {
    core: Core,
    /// For each node of the graph, whether it depends on an input that requires grad.
    active: Vec<bool>,
    gradients: BTreeMap<CoreId, CoreId>,
}

impl Build for Sweep {
    fn core(&self) -> &Core {
        &self.core
    }

    fn core_mut(&mut self) -> &mut Core {
        &mut self.core
    }
}

impl Sweep {
    /// Whether a gradient of the value is wanted.
    pub fn wants(&self, id: CoreId) -> bool {
        self.active.get(id.0 as usize).copied().unwrap_or(false)
    }

    /// Adds to the gradient of a value, which has its type and sizes.
    pub fn give(&mut self, id: CoreId, gradient: CoreId) {
        if !self.wants(id) {
            return;
        }
        debug_assert_eq!(self.sizes(id), self.sizes(gradient));
        debug_assert_eq!(self.dtype(id), self.dtype(gradient));
        let total = match self.gradients.get(&id).copied() {
            Some(before) => self.add(before, gradient),
            None => gradient,
        };
        self.gradients.insert(id, total);
    }
}

/// Whether each node depends on an input that requires grad in a way that autograd follows.
fn active(core: &Core, inputs: &[bool]) -> Vec<bool> {
    let mut active: Vec<bool> = Vec::with_capacity(core.nodes().len());
    for node in core.nodes() {
        active.push(match &node.op {
            CoreOp::Input(i) => inputs[*i as usize],
            CoreOp::Stop(_) => false,
            CoreOp::Sloped(_, of, _) => active[of.0 as usize],
            CoreOp::Extern(_) => node.op.operands().iter().any(|id| active[id.0 as usize]),
            op => node.dtype.is_float() && op.operands().iter().any(|id| active[id.0 as usize]),
        });
    }
    active
}

/// Adds the derivative of the outputs that require grad.
pub fn sweep(core: &Core, wanted: &Wanted) -> Result<Joint, Reason> {
    let count = core.nodes().len();
    let mut sweep = Sweep { core: core.clone(), active: active(core, &wanted.inputs), gradients: BTreeMap::new() };
    let outputs = seed(&mut sweep, wanted)?;
    for id in (0..count as u32).rev().map(CoreId) {
        check_time();
        let node = core.node(id);
        if !sweep.active[id.0 as usize] || node.op.is_input() {
            continue;
        }
        if let CoreOp::Extern(_) = node.op {
            of_call(&mut sweep, core, id)?;
        } else if !matches!(node.op, CoreOp::Result(..))
            && let Some(gradient) = sweep.gradients.get(&id).copied()
        {
            rules::of(&mut sweep, node, id, gradient)?;
        }
    }
    let gradients = (0..wanted.inputs.len() as u32).filter(|i| wanted.inputs[*i as usize]);
    let found = gradients.filter_map(|i| {
        let input = core.ids().find(|id| core.node(*id).op == CoreOp::Input(i))?;
        Some((i, *sweep.gradients.get(&input)?))
    });
    let gradients: Vec<_> = found.collect();
    Ok(Joint { core: sweep.core, inputs: wanted.inputs.len() as u32, outputs, gradients })
}

/// The gradients of the outputs, as inputs.
fn seed(sweep: &mut Sweep, wanted: &Wanted) -> Result<Vec<u32>, Reason> {
    let mut outputs = Vec::new();
    for (at, output) in sweep.core.outputs.clone().into_iter().enumerate() {
        if !wanted.outputs[at] {
            continue;
        }
        let OutputBase::Value(id) = output.base else { return refuse("an output with the memory of an input") };
        let node = sweep.core.node(id).clone();
        if node.sizes != output.sizes || node.strides != output.strides || !output.offset.is(0) {
            return refuse("an output that is a view, which requires grad");
        }
        if !sweep.wants(id) {
            return refuse("an output that requires grad, and depends on nothing that does");
        }
        let op = CoreOp::Input((wanted.inputs.len() + outputs.len()) as u32);
        let gradient = sweep.core.add(CoreNode { op, ..node.clone() });
        sweep.core.pin(gradient, &node.strides);
        outputs.push(at as u32);
        sweep.give(id, gradient);
    }
    Ok(outputs)
}

/// The gradients of the arguments of a call of torch.
fn of_call(sweep: &mut Sweep, core: &Core, id: CoreId) -> Result<(), Reason> {
    let CoreOp::Extern(call) = &core.node(id).op else { return Ok(()) };
    let result = |i: u32| core.ids().find(|r| core.node(*r).op == CoreOp::Result(id, i));
    let results: Vec<Option<CoreId>> = (0..call.results).map(result).collect();
    let gradients: Vec<Option<CoreId>> =
        results.iter().map(|r| r.and_then(|r| sweep.gradients.get(&r).copied())).collect();
    if gradients.iter().all(Option::is_none) {
        return Ok(());
    }
    let Some(rule) = derivative(&call.op) else { return refuse(format!("no derivative of {}", call.op)) };
    let active = std::mem::take(&mut sweep.active);
    let wants = |id: CoreId| active.get(id.0 as usize).copied().unwrap_or(false);
    let mut back = Back::new(&mut sweep.core, (id, call), (&results, &gradients), &wants);
    let done = rule(&mut back);
    let given = back.given();
    sweep.active = active;
    done?;
    given.into_iter().for_each(|(of, gradient)| sweep.give(of, gradient));
    Ok(())
}
