//! Which values belong to which node of autograd. An output of which another one is computed is an end of a node: users may
//! ask for its gradient, and have hooks on it.

use crate::Wanted;
use flambeau_core::graph::{Core, CoreId, CoreNode, CoreOp, OutputBase};
use flambeau_ir::bounds::check_time;
use flambeau_ir::code::Const;
use flambeau_ir::reason::Reason;
use flambeau_ops::decompose::{bits_of, refuse};
use flambeau_ops::differentiable;
use std::collections::{BTreeMap, BTreeSet};

/// A graph divided into nodes of autograd.
pub struct Division {
    /// For each value, whether it depends on an input that requires grad.
    pub active: Vec<bool>,
    /// For each value, the node that computes it.
    pub node: Vec<usize>,
    /// Nodes that share no value with another.
    pub alone: BTreeSet<usize>,
    /// Outputs that autograd follows, and their values; further ones are values that later nodes take.
    pub outputs: BTreeMap<u32, CoreId>,
    /// Outputs that end nodes which others begin at: their values, before those the values that they only give other sizes.
    pub ends: BTreeMap<u32, Vec<CoreId>>,
    /// The output that each of those values is.
    pub end_of: BTreeMap<CoreId, u32>,
    /// How many outputs the graph has itself.
    pub left: u32,
}

impl Division {
    /// A graph as one node, whose derivatives are by these values.
    pub fn between(core: &Core, points: &[CoreId]) -> Division {
        Division {
            active: active(core, &|id, _| points.contains(&id)),
            node: vec![0; core.nodes().len()],
            alone: BTreeSet::from([0]),
            outputs: BTreeMap::new(),
            ends: BTreeMap::new(),
            end_of: BTreeMap::new(),
            left: 1,
        }
    }

    /// How many nodes there are.
    pub fn count(&self) -> usize {
        self.outputs.values().map(|id| self.node[id.0 as usize] + 1).max().unwrap_or(0)
    }
}

/// Divides it.
pub fn divide(core: &Core, wanted: &Wanted) -> Result<Division, Reason> {
    let active = active(core, &|_, op| matches!(op, CoreOp::Input(i) if wanted.inputs[*i as usize]));
    let outputs = outputs(core, wanted, &active)?;
    let chains: BTreeMap<u32, Vec<CoreId>> = outputs.iter().map(|(at, id)| (*at, chain(core, *id))).collect();
    let depends = depends(core, &active, &chains);
    let mut ends = BTreeMap::new();
    for (at, chain) in &chains {
        let others = outputs.iter().filter(|(other, _)| *other != at);
        let of_it = |(_, other): &(&u32, &CoreId)| depends[other.0 as usize].contains(at);
        let (made, merged): (Vec<_>, Vec<_>) =
            others.filter(of_it).partition(|(other, _)| wanted.made_of[**other as usize].contains(at));
        if made.is_empty() && !merged.is_empty() && wanted.rewritten {
            return refuse("an output that is computed of the same as another, and writes to what autograd follows");
        }
        if made.is_empty() {
            continue;
        }
        if !merged.is_empty() || wanted.shared[*at as usize] {
            return refuse("an output that is computed of the same as another, which ends a node of autograd");
        }
        ends.insert(*at, chain.clone());
    }
    let end_of: BTreeMap<CoreId, u32> =
        ends.iter().flat_map(|(at, chain)| chain.iter().map(move |id| (*id, *at))).collect();
    let mut node = nodes(core, &active, &end_of);
    let alone = apart(core, &active, (&outputs, &end_of), &mut node);
    let left = core.outputs.len() as u32;
    let mut division = Division { active, node, alone, outputs, ends, end_of, left };
    for id in crossing(core, &division) {
        let at = left + division.outputs.range(left..).count() as u32;
        division.outputs.insert(at, id);
        division.ends.insert(at, vec![id]);
        division.end_of.insert(id, at);
    }
    Ok(division)
}

/// Whether a value is one that any node of autograd makes anew: a view, or an input in another type.
pub fn is_passing(core: &Core, id: CoreId) -> bool {
    let rests = |mut id: CoreId| {
        while core.node(id).op.is_view() {
            id = core.node(id).op.operands()[0];
        }
        core.node(id).op.is_input()
    };
    match core.node(id).op {
        CoreOp::Cast(of) | CoreOp::Copy(of) => rests(of),
        CoreOp::Sloped(_, of, slope) => core.node(of).op.is_input() && is_one(core, slope),
        ref op => op.is_view(),
    }
}

/// Whether every element is one.
pub fn is_one(core: &Core, id: CoreId) -> bool {
    let CoreNode { op, dtype, .. } = core.node(id);
    matches!(op, CoreOp::Const(bits) if Some(*bits) == bits_of(&Const::Float(1.0), *dtype))
}

/// Values that later nodes are computed of, and that are no outputs.
fn crossing(core: &Core, division: &Division) -> BTreeSet<CoreId> {
    let Division { active, node, end_of, .. } = division;
    let mut found = BTreeSet::new();
    for id in core.ids().filter(|id| active[id.0 as usize]) {
        for mut operand in core.node(id).op.operands() {
            while is_passing(core, operand) && !end_of.contains_key(&operand) {
                operand = core.node(operand).op.operands()[0];
            }
            let at = operand.0 as usize;
            let earlier = active[at] && node[at] < node[id.0 as usize];
            if earlier && !end_of.contains_key(&operand) && !core.node(operand).op.is_input() {
                found.insert(operand);
            }
        }
    }
    found
}

/// The values that an output only gives other sizes or another order, innermost first, and itself.
fn chain(core: &Core, output: CoreId) -> Vec<CoreId> {
    let mut chain = vec![output];
    let mut id = output;
    while let CoreOp::Reshape(of) | CoreOp::Permute(of, _) = core.node(id).op {
        if core.node(of).op.is_input() {
            break;
        }
        chain.push(of);
        id = of;
    }
    chain.reverse();
    chain
}

/// Whether each value depends, in a way that autograd follows, on one of those at which derivatives end.
fn active(core: &Core, is_end: &dyn Fn(CoreId, &CoreOp) -> bool) -> Vec<bool> {
    let mut active: Vec<bool> = Vec::with_capacity(core.nodes().len());
    for id in core.ids() {
        let node = core.node(id);
        active.push(match &node.op {
            op if is_end(id, op) => true,
            CoreOp::Input(_) | CoreOp::Stop(_) => false,
            CoreOp::Sloped(_, of, _) => active[of.0 as usize],
            CoreOp::Extern(_) => node.op.operands().iter().any(|id| active[id.0 as usize]),
            op => differentiable(node.dtype) && op.operands().iter().any(|id| active[id.0 as usize]),
        });
    }
    active
}

/// The values of the outputs that require grad.
fn outputs(core: &Core, wanted: &Wanted, active: &[bool]) -> Result<BTreeMap<u32, CoreId>, Reason> {
    let mut outputs: BTreeMap<u32, CoreId> = BTreeMap::new();
    let mut bases = Vec::new();
    for (at, output) in (0..).zip(&core.outputs).filter(|(at, _)| wanted.outputs[*at as usize]) {
        if let OutputBase::Input(_) = output.base {
            return refuse("an output with the memory of an input");
        }
        let id = wanted.values[at as usize];
        if !active[id.0 as usize] {
            return refuse("an output that requires grad, and depends on nothing that does");
        }
        if bases.contains(&output.base) {
            return refuse("outputs that share memory, and require grad");
        }
        bases.push(output.base);
        outputs.insert(at, id);
    }
    Ok(outputs)
}

/// For each value, the outputs that it is computed of, as autograd follows it.
fn depends(core: &Core, active: &[bool], chains: &BTreeMap<u32, Vec<CoreId>>) -> Vec<BTreeSet<u32>> {
    let mut outputs_of: BTreeMap<CoreId, BTreeSet<u32>> = BTreeMap::new();
    for (at, id) in chains.iter().flat_map(|(at, chain)| chain.iter().map(move |id| (*at, *id))) {
        outputs_of.entry(id).or_default().insert(at);
    }
    let mut depends: Vec<BTreeSet<u32>> = Vec::with_capacity(core.nodes().len());
    for id in core.ids() {
        check_time();
        let mut found = BTreeSet::new();
        if active[id.0 as usize] && chains.len() > 1 {
            for operand in core.node(id).op.operands().into_iter().filter(|o| active[o.0 as usize]) {
                found.extend(outputs_of.get(&operand).into_iter().flatten());
                found.extend(&depends[operand.0 as usize]);
            }
        }
        depends.push(found);
    }
    depends
}

/// Has values that share nothing but inputs be of different nodes: `backward()` from one output frees its own node only.
/// Gives the nodes that share nothing with another.
fn apart(
    core: &Core,
    active: &[bool],
    (outputs, end_of): (&BTreeMap<u32, CoreId>, &BTreeMap<CoreId, u32>),
    node: &mut [usize],
) -> BTreeSet<usize> {
    let mut parts: Vec<usize> = (0..node.len()).collect();
    // What inputs are shown as, each node has for itself.
    let shows_input = |mut id: CoreId| {
        while is_passing(core, id) {
            let op = &core.node(id).op;
            id = if let CoreOp::Sloped(_, of, _) = op { *of } else { op.operands()[0] };
        }
        core.node(id).op.is_input()
    };
    // A copy of an input at which a later node begins is one value of both.
    let joins = |id: CoreId| active[id.0 as usize] && (end_of.contains_key(&id) || !shows_input(id));
    for id in core.ids().filter(|id| joins(*id)) {
        for operand in core.node(id).op.operands().into_iter().filter(|operand| joins(*operand)) {
            let (a, b) = (part(&mut parts, id.0 as usize), part(&mut parts, operand.0 as usize));
            parts[a.max(b)] = a.min(b);
        }
    }
    let of: Vec<usize> = (0..node.len()).map(|at| part(&mut parts, at)).collect();
    let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
    for id in outputs.values() {
        let count = counts.entry(of[id.0 as usize]).or_default();
        *count = (*count).max(node[id.0 as usize] + 1);
    }
    let (mut first, mut alone, mut next) = (BTreeMap::new(), BTreeSet::new(), 0);
    for (part, count) in counts {
        first.insert(part, next);
        alone.extend((count == 1).then_some(next));
        next += count;
    }
    node.iter_mut().zip(&of).for_each(|(node, part)| *node += first.get(part).copied().unwrap_or(0));
    alone
}

/// The first of what a value is joined with.
fn part(parts: &mut [usize], mut at: usize) -> usize {
    while parts[at] != at {
        parts[at] = parts[parts[at]];
        at = parts[at];
    }
    at
}

/// The node of each value: one later than the latest end that it is computed of.
fn nodes(core: &Core, active: &[bool], end_of: &BTreeMap<CoreId, u32>) -> Vec<usize> {
    let mut node: Vec<usize> = Vec::with_capacity(core.nodes().len());
    for id in core.ids() {
        let after = |operand: &CoreId| {
            let end = end_of.get(operand);
            node[operand.0 as usize] + usize::from(end.is_some() && end != end_of.get(&id))
        };
        let operands = core.node(id).op.operands().into_iter().filter(|o| active[o.0 as usize]);
        let latest = operands.map(|operand| after(&operand)).max();
        node.push(if active[id.0 as usize] { latest.unwrap_or(0) } else { 0 });
    }
    node
}
