//! From the outputs of a graph back to its inputs: the gradient of each value, by the rule of the op that made it.

use crate::Wanted;
use crate::again::compute_again;
use crate::nodes::{Division, is_passing};
use crate::rules;
use crate::tape;
use flambeau_core::graph::{Core, CoreId, CoreNode, CoreOp, ExternArg, ExternCall};
use flambeau_ir::bounds::check_time;
use flambeau_ir::code::Const;
use flambeau_ir::plan::{Followed, Taken};
use flambeau_ir::reason::Reason;
use flambeau_ir::tensor::{TensorMeta, contiguous_strides, is_dense};
use flambeau_ops::build::Build;
use flambeau_ops::decompose::{extern_call, refuse};
use flambeau_ops::derivative::{Back, derivative};
use std::collections::{BTreeMap, BTreeSet};

/// A graph with the derivative of the outputs of one of its nodes of autograd.
pub struct Joint {
    /// The values of the graph, then those of the derivative.
    pub core: Core,
    /// How many values the graph has.
    pub count: usize,
    /// Inputs of the graph; the inputs after these are the gradients of `outputs`.
    pub inputs: u32,
    /// Outputs of the node.
    pub outputs: Vec<Followed>,
    /// What has a gradient, its value, and the gradient.
    pub gradients: Vec<(Taken, CoreId, CoreId)>,
}

/// The derivative while it grows.
pub struct Sweep<'a> {
    core: Core,
    division: &'a Division,
    gradients: BTreeMap<CoreId, CoreId>,
    /// Derivatives of the gradients are to be taken.
    creates: bool,
}

impl Build for Sweep<'_> {
    fn core(&self) -> &Core {
        &self.core
    }

    fn core_mut(&mut self) -> &mut Core {
        &mut self.core
    }
}

impl Sweep<'_> {
    /// Whether a gradient of the value is wanted.
    pub fn wants(&self, id: CoreId) -> bool {
        self.division.active.get(id.0 as usize).copied().unwrap_or(false)
    }

    /// Adds to the gradient of a value, which has its type and sizes.
    pub fn give(&mut self, id: CoreId, gradient: CoreId) {
        if !self.wants(id) {
            return;
        }
        debug_assert_eq!(self.sizes(id), self.sizes(gradient));
        debug_assert_eq!(self.dtype(id), self.dtype(gradient));
        let total = match self.gradients.get(&id).copied() {
            Some(before) if self.dtype(id).is_complex() => self.add_complex(before, gradient),
            Some(before) => self.add(before, gradient),
            None => gradient,
        };
        self.gradients.insert(id, total);
    }

    /// Gives a value zeros where it has no gradient.
    fn connect(&mut self, id: CoreId) {
        let CoreNode { dtype, sizes, .. } = self.core.node(id).clone();
        if dtype.is_float() && !self.gradients.contains_key(&id) {
            let zero = self.real(0.0, dtype);
            let zeros = self.expand(zero, &sizes);
            self.give(id, zeros);
        }
    }

    /// No kernel computes with complex numbers.
    fn add_complex(&mut self, a: CoreId, b: CoreId) -> CoreId {
        let meta = TensorMeta::contiguous(self.dtype(a), self.core.device, self.sizes(a));
        let args = vec![ExternArg::Value(a), ExternArg::Value(b), ExternArg::Const(Const::Int(1))];
        let call = ExternCall::pure(("aten::add", "Tensor"), Some("out"), args, 1);
        extern_call(&mut self.core, call, &[meta])[0]
    }
}

/// Adds the derivative of the outputs of a node. `untaped`: calls without a derivative here, as far as they have gradients;
/// what is given is of no use then.
pub fn sweep(
    core: &Core,
    wanted: &Wanted,
    division: &Division,
    at: usize,
    untaped: &mut BTreeSet<CoreId>,
) -> Result<Joint, Reason> {
    let mut sweep = Sweep { core: core.clone(), division, gradients: BTreeMap::new(), creates: false };
    let inputs = wanted.inputs.len() as u32;
    let outputs = seed(&mut sweep, wanted, at);
    of_values(&mut sweep, core, at, untaped)?;
    if division.alone.contains(&at) {
        let reached = outputs.iter().filter_map(|of| wanted.reached.get(of.output as usize));
        connect(&mut sweep, core, &reached.flatten().copied().collect());
    }
    let mut gradients = Vec::new();
    for id in core.ids() {
        if let (CoreOp::Input(i), Some(gradient)) = (&core.node(id).op, sweep.gradients.get(&id)) {
            gradients.push((Taken::Input(*i), id, *gradient));
        }
    }
    for (output, chain) in &division.ends {
        let own = division.outputs[output];
        if division.node[own.0 as usize] < at
            && let Some(gradient) = of_end(&mut sweep, core, chain)
        {
            gradients.push((Taken::Output(*output), own, gradient));
        }
    }
    Ok(Joint { core: sweep.core, count: core.nodes().len(), inputs, outputs, gradients })
}

/// Adds the gradients of these values to the graph itself, from others back: in order. `roots`: those others, and the
/// gradients that they begin with; ones where there are none. `creates`: derivatives are to be taken of them.
pub fn within(
    core: &mut Core,
    points: &[CoreId],
    roots: &[(CoreId, Option<CoreId>)],
    creates: bool,
) -> Result<Vec<CoreId>, Reason> {
    loop {
        let division = Division::between(core, points);
        let mut sweep = Sweep { core: core.clone(), division: &division, gradients: BTreeMap::new(), creates };
        for (value, seed) in roots {
            let seed = seed.unwrap_or_else(|| {
                let CoreNode { dtype, sizes, .. } = core.node(*value);
                let one = sweep.real(1.0, *dtype);
                sweep.expand(one, sizes)
            });
            sweep.give(*value, seed);
        }
        let mut untaped = BTreeSet::new();
        of_values(&mut sweep, core, 0, &mut untaped)?;
        if untaped.is_empty() {
            points.iter().for_each(|point| sweep.connect(*point));
            let gradients = points.iter().map(|point| sweep.gradients.get(point).copied()).collect::<Option<Vec<_>>>();
            let Some(mut gradients) = gradients else { return refuse("a gradient of what has none") };
            let joint = sweep.core;
            // What is computed again is none of the values that derivatives of these gradients may be taken of.
            *core = if creates {
                joint
            } else {
                let found = compute_again(&joint, std::mem::take(core), &gradients);
                gradients = found.1;
                found.0
            };
            return Ok(gradients);
        }
        if let Some(CoreOp::Extern(call)) = untaped.first().filter(|_| creates).map(|id| &core.node(*id).op) {
            return refuse(format!("no derivative of the derivative of {}", call.op));
        }
        tape::tape(core, &division.active, &untaped)?;
    }
}

/// The gradients of the values of a node, from the last one back.
fn of_values(sweep: &mut Sweep<'_>, core: &Core, at: usize, untaped: &mut BTreeSet<CoreId>) -> Result<(), Reason> {
    let division = sweep.division;
    for id in core.ids().rev() {
        check_time();
        let node = core.node(id);
        // A derivative reads what it reads in its own region.
        sweep.core.region = core.region_of(id);
        // What an earlier node gives is an input of this one.
        let own = division.node[id.0 as usize] == at;
        let passes = division.node[id.0 as usize] < at && !division.end_of.contains_key(&id) && is_passing(core, id);
        if !division.active[id.0 as usize] || node.op.is_input() || !own && !passes {
            continue;
        }
        if let CoreOp::Extern(_) = node.op {
            of_call(sweep, core, id, untaped)?;
        } else if !matches!(node.op, CoreOp::Result(..))
            && let Some(gradient) = sweep.gradients.get(&id).copied()
        {
            if node.dtype.is_complex() && !matches!(node.op, CoreOp::Permute(..) | CoreOp::Reshape(_)) {
                return refuse("no derivative of a part of a complex tensor");
            }
            rules::of(sweep, node, id, gradient)?;
        }
    }
    sweep.core.region = None;
    Ok(())
}

/// Gives zeros to inputs that autograd connects with an output, though nothing of them is left in it.
fn connect(sweep: &mut Sweep<'_>, core: &Core, reached: &BTreeSet<u32>) {
    for id in core.ids() {
        if matches!(core.node(id).op, CoreOp::Input(i) if reached.contains(&i)) {
            sweep.connect(id);
        }
    }
}

/// The gradient of the end of an earlier node, as it left: from those of the values that it gives other sizes.
fn of_end(sweep: &mut Sweep<'_>, core: &Core, chain: &[CoreId]) -> Option<CoreId> {
    let mut total: Option<CoreId> = None;
    for id in chain {
        let shown = total.map(|inner| match &core.node(*id).op {
            CoreOp::Permute(_, order) => sweep.permute(inner, &order.iter().map(|d| *d as usize).collect::<Vec<_>>()),
            _ => sweep.reshape(inner, core.node(*id).sizes.clone()),
        });
        total = match (shown, sweep.gradients.get(id).copied()) {
            (Some(inner), Some(own)) => Some(sweep.add(inner, own)),
            (inner, own) => inner.or(own),
        };
    }
    total
}

/// The gradients of the outputs of a node, as inputs.
fn seed(sweep: &mut Sweep<'_>, wanted: &Wanted, at: usize) -> Vec<Followed> {
    let inputs = wanted.inputs.len() as u32;
    let own = sweep.division.outputs.iter().filter(|(_, id)| sweep.division.node[id.0 as usize] == at);
    let mut outputs = Vec::new();
    for (output, id) in own {
        let CoreNode { dtype, sizes, .. } = sweep.core.node(*id).clone();
        let strides = match sweep.core.outputs.get(*output as usize) {
            Some(output) => output.strides.clone(),
            None => sweep.core.node(*id).strides.clone(),
        };
        let strides = if is_dense(&sizes, &strides) { strides } else { contiguous_strides(&sizes) };
        let op = CoreOp::Input(inputs + outputs.len() as u32);
        let gradient = sweep.core.add(CoreNode { op, dtype, sizes: sizes.clone(), strides: strides.clone() });
        sweep.core.pin(gradient, &strides);
        let spent = wanted.spent.get(*output as usize).copied().unwrap_or(true);
        outputs.push(Followed { output: *output, dtype, sizes, strides, spent });
        sweep.give(*id, gradient);
    }
    outputs
}

/// The gradients of the arguments of a call of torch.
fn of_call(sweep: &mut Sweep<'_>, core: &Core, id: CoreId, untaped: &mut BTreeSet<CoreId>) -> Result<(), Reason> {
    let CoreOp::Extern(call) = &core.node(id).op else { return Ok(()) };
    let result = |i: u32| core.ids().find(|r| core.node(*r).op == CoreOp::Result(id, i));
    let results: Vec<Option<CoreId>> = (0..call.results).map(result).collect();
    let gradients: Vec<Option<CoreId>> =
        results.iter().map(|r| r.and_then(|r| sweep.gradients.get(&r).copied())).collect();
    if gradients.iter().all(Option::is_none) {
        return Ok(());
    }
    if tape::is_taped(call) {
        if sweep.creates {
            return refuse("no derivative of what torch's own autograd gives");
        }
        tape::of_taped(sweep, call, &results, &gradients);
        return Ok(());
    }
    let division = sweep.division;
    let wants = |id: CoreId| division.active.get(id.0 as usize).copied().unwrap_or(false);
    if let Some(rule) = derivative(&call.op) {
        let mut back = Back::new(&mut sweep.core, (id, call), (&results, &gradients), &wants);
        let done = rule(&mut back);
        let given = back.given();
        if done.is_ok() {
            given.into_iter().for_each(|(of, gradient)| sweep.give(of, gradient));
            return Ok(());
        }
    }
    untaped.insert(id);
    // Which calls before it have gradients is found with any.
    for of in core.node(id).op.operands().into_iter().filter(|of| wants(*of)) {
        sweep.give(of, of);
    }
    Ok(())
}
