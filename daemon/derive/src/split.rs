//! A graph with its derivative, cut in two: what the derivative reads of the graph is computed again where that costs little
//! and reads only what is kept anyway; the rest is kept. An input or an output is kept only if the derivative reads it
//! itself, as eager keeps it then too: torch raises where what is kept was changed meanwhile, and here it must not do so
//! more often.

use crate::keep::Keep;
use crate::nodes::Division;
use crate::sweep::Joint;
use crate::{Node, Parts, Wanted};
use flambeau_core::graph::{Core, CoreId, CoreNode, CoreOp, CoreOutput, ExternArg, OutputBase};
use flambeau_ir::bounds::check_time;
use flambeau_ir::dim::Dim;
use flambeau_ir::plan::Taken;
use flambeau_ir::reason::Reason;
use flambeau_ir::tensor::{contiguous_strides, is_dense};
use flambeau_ops::decompose::refuse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What a size that varies is taken for.
const GUESS: u64 = 32;

struct Split<'a> {
    joint: &'a Joint,
    /// For each value, whether a gradient of an output goes into it.
    backward: Vec<bool>,
    kept: BTreeSet<CoreId>,
    /// Values that are those which are kept, but for what autograd makes of them.
    twins: BTreeMap<CoreId, CoreId>,
}

/// Cuts the derivatives of all nodes off.
pub fn split(core: &Core, wanted: &Wanted, division: &Division, joints: &[Joint]) -> Result<Parts, Reason> {
    let mut splits = Vec::new();
    for joint in joints {
        let (kept, twins) = (BTreeSet::new(), BTreeMap::new());
        let mut split = Split { joint, backward: backward(joint), kept, twins };
        let needed = split.needed();
        split.keep(wanted, &needed);
        splits.push(split);
    }
    let (forward, places) = forward(core, division, &splits)?;
    let mut nodes = Vec::new();
    for (split, places) in splits.iter().zip(&places) {
        let place = |id: &CoreId| match split.node(*id).op {
            CoreOp::Input(i) => Taken::Input(i),
            _ => Taken::Output(places[id]),
        };
        let reads: Vec<Taken> = split.kept.iter().map(place).collect();
        if core.writes.iter().any(|(input, _)| reads.contains(&Taken::Input(*input))) {
            return refuse("a write to an input that its derivative reads");
        }
        nodes.push(Node {
            backward: split.backward_core(&|id| places.get(&id).map(|at| &forward.outputs[*at as usize])),
            reads,
            outputs: split.joint.outputs.clone(),
            gradients: split.joint.gradients.iter().map(|(taken, ..)| *taken).collect(),
            reached_by: reached_by(wanted, division, split.joint),
        });
    }
    Ok(Parts { forward, nodes })
}

/// For each gradient the places of the outputs that autograd connects it with.
fn reached_by(wanted: &Wanted, division: &Division, joint: &Joint) -> Vec<Vec<u32>> {
    let leaves = |output: u32| output < division.left;
    let values_of = |id: CoreId| made_of(&joint.core, division, id);
    let hidden = joint.outputs.iter().any(|of| !leaves(of.output));
    let left: Vec<(u32, BTreeSet<CoreId>)> = division
        .outputs
        .iter()
        .filter(|(at, _)| hidden && leaves(**at))
        .map(|(at, id)| (*at, values_of(*id)))
        .collect();
    let reaches = |taken: Taken, output: u32| match taken {
        Taken::Input(i) => wanted.reached[output as usize].contains(&i),
        Taken::Output(of) => !leaves(of) || wanted.made_of[output as usize].contains(&of),
    };
    // The values of each output, and those outputs that leave the graph and say what it is connected with: of a value that does
    // not leave it only this is known, that all that is made of it is connected with the same.
    let outputs: Vec<(BTreeSet<CoreId>, Vec<u32>)> = joint
        .outputs
        .iter()
        .map(|of| {
            let own = division.outputs[&of.output];
            let later = left.iter().filter(|(_, values)| values.contains(&own)).map(|(at, _)| *at);
            (values_of(own), if leaves(of.output) { vec![of.output] } else { later.collect() })
        })
        .collect();
    let of_gradient = |(taken, value, _): &(Taken, CoreId, CoreId)| {
        let connects = |(values, known): &(BTreeSet<CoreId>, Vec<u32>)| {
            values.contains(value) || known.iter().all(|output| reaches(*taken, *output))
        };
        (0..).zip(&outputs).filter(|(_, output)| connects(output)).map(|(at, _)| at).collect()
    };
    joint.gradients.iter().map(of_gradient).collect()
}

/// The values that a value is computed of, as far as autograd follows it.
fn made_of(core: &Core, division: &Division, value: CoreId) -> BTreeSet<CoreId> {
    let (mut found, mut todo) = (BTreeSet::new(), vec![value]);
    while let Some(id) = todo.pop() {
        check_time();
        if division.active.get(id.0 as usize).copied().unwrap_or(false) && found.insert(id) {
            todo.extend(core.node(id).op.operands());
        }
    }
    found
}

fn backward(joint: &Joint) -> Vec<bool> {
    let mut backward: Vec<bool> = Vec::with_capacity(joint.core.nodes().len());
    for node in joint.core.nodes() {
        backward.push(match node.op {
            CoreOp::Input(i) => i >= joint.inputs,
            _ => node.op.operands().iter().any(|id| backward[id.0 as usize]),
        });
    }
    backward
}

/// What a node is computed of.
pub fn operands(op: &CoreOp) -> Vec<CoreId> {
    if let CoreOp::Sloped(value, ..) = op { vec![*value] } else { op.operands() }
}

/// Whether it only hands its operand on, so that this is kept instead.
pub fn is_passed_on(op: &CoreOp) -> bool {
    op.is_view() || matches!(op, CoreOp::Copy(_) | CoreOp::Stop(_) | CoreOp::Sloped(..))
}

/// Whether it may be computed again for the derivative.
pub fn is_done_again(op: &CoreOp) -> bool {
    is_elementwise(op) || is_passed_on(op)
}

/// The memory that a value takes; of sizes that vary a guess.
pub fn bytes(node: &CoreNode) -> u64 {
    let size = |dim: &Dim| dim.as_const().map_or(GUESS, i64::unsigned_abs);
    node.sizes.iter().map(size).fold(node.dtype.size() as u64, u64::saturating_mul).clamp(2, 1 << 50)
}

/// The value behind views, copies and conversions from a smaller type.
pub fn behind(core: &Core, mut id: CoreId) -> CoreId {
    loop {
        let node = core.node(id);
        let widens = |of: CoreId| core.node(of).dtype.size() < node.dtype.size() && core.node(of).dtype.is_float();
        id = match node.op {
            CoreOp::Copy(of) | CoreOp::Stop(of) | CoreOp::Sloped(of, ..) => of,
            CoreOp::Cast(of) if widens(of) => of,
            ref op if op.is_view() => op.operands()[0],
            _ => return id,
        }
    }
}

/// For each value the first that is the same, whatever autograd makes of it.
pub fn same(core: &Core) -> Vec<CoreId> {
    let mut same: Vec<CoreId> = Vec::with_capacity(core.nodes().len());
    let mut known: HashMap<CoreNode, CoreId> = HashMap::new();
    for id in core.ids() {
        check_time();
        let mut node = core.node(id).clone();
        same.push(match &mut node.op {
            CoreOp::Stop(of) | CoreOp::Sloped(of, ..) => same[of.0 as usize],
            CoreOp::Extern(_) | CoreOp::Result(..) | CoreOp::Input(_) => id,
            op => {
                op.operands_mut().into_iter().for_each(|of| *of = same[of.0 as usize]);
                *known.entry(node).or_insert(id)
            }
        });
    }
    same
}

/// Whether it is computed element by element.
fn is_elementwise(op: &CoreOp) -> bool {
    matches!(op, CoreOp::Unary(..) | CoreOp::Binary(..) | CoreOp::Select(..) | CoreOp::Cast(_))
}

pub fn is_free(op: &CoreOp) -> bool {
    matches!(op, CoreOp::Const(_) | CoreOp::Scalar(_) | CoreOp::Iota(_))
}

impl Split<'_> {
    fn node(&self, id: CoreId) -> &CoreNode {
        self.joint.core.node(id)
    }

    /// What the derivative reads of the graph, and in which region.
    fn needed(&self) -> BTreeSet<(CoreId, Option<u32>)> {
        let core = &self.joint.core;
        let mut live = vec![false; core.nodes().len()];
        let (mut needed, mut seen) = (BTreeSet::new(), BTreeSet::new());
        for (.., gradient) in &self.joint.gradients {
            live[gradient.0 as usize] = true;
            self.need((*gradient, None), &mut needed, &mut seen);
        }
        for id in core.ids().rev().filter(|id| self.backward[id.0 as usize]) {
            if live[id.0 as usize] {
                for operand in core.node(id).op.operands() {
                    live[operand.0 as usize] = true;
                    self.need((operand, core.region_of(id)), &mut needed, &mut seen);
                }
            }
        }
        needed
    }

    /// Notes what a value that no gradient goes into is computed of: values of the graph. What the derivative alone has need of
    /// is computed where it is. `seen`: what was looked at.
    fn need(
        &self,
        read: (CoreId, Option<u32>),
        needed: &mut BTreeSet<(CoreId, Option<u32>)>,
        seen: &mut BTreeSet<(CoreId, Option<u32>)>,
    ) {
        let mut todo = vec![read];
        while let Some((id, reader)) = todo.pop() {
            let id = behind(&self.joint.core, id);
            let node = self.node(id);
            if self.backward[id.0 as usize] || is_free(&node.op) || !seen.insert((id, reader)) {
                continue;
            }
            let new = id.0 as usize >= self.joint.count;
            if new && !matches!(node.op, CoreOp::Result(..)) {
                let reader = self.joint.core.region_of(id);
                todo.extend(operands(&node.op).into_iter().map(|of| (of, reader)));
            } else {
                needed.insert((id, reader));
            }
        }
    }

    /// Chooses what is kept.
    fn keep(&mut self, wanted: &Wanted, needed: &BTreeSet<(CoreId, Option<u32>)>) {
        let core = &self.joint.core;
        let same = same(core);
        let leaves = wanted.values.iter().map(|id| same[id.0 as usize]).collect();
        let choice = Keep { core, same: &same, leaves, behind: &|id| behind(core, id) };
        let kept = choice.choose(needed);
        self.twins =
            core.ids().map(|id| (id, same[id.0 as usize])).filter(|(id, of)| id != of && kept.contains(of)).collect();
        self.kept = kept;
    }

    /// `kept` gives the output that a value is.
    fn backward_core<'a>(&self, kept: &dyn Fn(CoreId) -> Option<&'a CoreOutput>) -> Core {
        let joint = self.joint;
        let mut copy = Copying::new(&joint.core);
        for (at, id) in self.kept.iter().enumerate() {
            let node = joint.core.node(*id);
            // It lies in memory as it leaves the forward part.
            let strides = kept(*id).map_or_else(|| node.strides.clone(), |output| output.strides.clone());
            copy.take(*id, CoreNode { op: CoreOp::Input(at as u32), strides, ..node.clone() });
        }
        for (id, of) in &self.twins {
            copy.map.insert(*id, copy.map[of]);
        }
        for id in joint.core.ids() {
            if let CoreOp::Input(i) = joint.core.node(id).op
                && i >= joint.inputs
            {
                let op = CoreOp::Input(self.kept.len() as u32 + i - joint.inputs);
                copy.take(id, CoreNode { op, ..joint.core.node(id).clone() });
            }
        }
        // Each leaves as soon as it is known, and what it is made of may go.
        let (mut taken, mut outputs) = (BTreeSet::new(), BTreeMap::new());
        let known: BTreeMap<(CoreId, usize), CoreId> =
            joint.gradients.iter().enumerate().map(|(at, (_, of, gradient))| ((*gradient, at), *of)).collect();
        for ((gradient, at), of) in known {
            copy.reach_late(&[gradient], &|id| self.backward[id.0 as usize]);
            outputs.insert(at, copy.output(copy.map[&gradient], &joint.core.node(of).strides, &mut taken));
        }
        copy.to.outputs = outputs.into_values().collect();
        copy.to
    }
}

/// The graph itself, with what is kept as further outputs; and, for each node of autograd, which output each of these is.
fn forward(
    from: &Core,
    division: &Division,
    splits: &[Split<'_>],
) -> Result<(Core, Vec<BTreeMap<CoreId, u32>>), Reason> {
    let mut copy = Copying::new(from);
    for id in from.ids().filter(|id| matches!(from.node(*id).op, CoreOp::Input(_))) {
        copy.take(id, from.node(id).clone());
    }
    let ordered = from.ids().filter(|id| matches!(&from.node(*id).op, CoreOp::Extern(call) if call.order.is_some()));
    let value = |out: &CoreOutput| if let OutputBase::Value(id) = out.base { Some(id) } else { None };
    let left = from.outputs.iter().filter_map(value);
    let written = from.writes.iter().map(|(_, value)| *value);
    let between: Vec<CoreId> = division.outputs.range(division.left..).map(|(_, id)| *id).collect();
    let wanted: Vec<CoreId> = ordered.chain(left).chain(written).chain(between.iter().copied()).collect();
    copy.reach(&wanted);
    let mut taken = BTreeMap::new();
    for output in &from.outputs {
        let base = match output.base {
            OutputBase::Value(of) => {
                let id = copy.map[&of];
                if copy.to.node(id).op.is_input() {
                    return refuse("an output that is an input, which autograd does not follow");
                }
                OutputBase::Value(copy.apart(id, of, &mut taken))
            }
            input @ OutputBase::Input(_) => input,
        };
        copy.to.outputs.push(CoreOutput { base, ..output.clone() });
    }
    for id in between {
        let (to, before) = (copy.map[&id], copy.to.outputs.len());
        if (copy.kept(to) as usize) < before {
            return refuse("a value between two nodes of autograd that is an output");
        }
    }
    copy.to.uncounted.clone_from(&from.uncounted);
    copy.to.writes = from.writes.iter().map(|(input, value)| (*input, copy.map[value])).collect();
    let mut all = Vec::new();
    for split in splits {
        // Of the derivative's own values, some may be computed from the graph's alone.
        let mut further = Copying { from: &split.joint.core, to: copy.to, map: copy.map };
        let kept: Vec<CoreId> =
            split.kept.iter().filter(|id| !matches!(split.node(**id).op, CoreOp::Input(_))).copied().collect();
        further.reach(&kept);
        let mut places = BTreeMap::new();
        for id in kept {
            let to = further.map[&id];
            places.insert(id, further.kept(to));
        }
        all.push(places);
        further.map.retain(|id, _| (id.0 as usize) < from.nodes().len());
        copy = Copying { from, to: further.to, map: further.map };
    }
    Ok((copy.to, all))
}

/// A part of a graph copied to another one, without the ends of autograd.
struct Copying<'a> {
    from: &'a Core,
    to: Core,
    map: BTreeMap<CoreId, CoreId>,
}

impl<'a> Copying<'a> {
    fn new(from: &'a Core) -> Copying<'a> {
        Copying { from, to: from.emptied(), map: BTreeMap::new() }
    }

    /// Has this node stand for `id`.
    fn take(&mut self, id: CoreId, node: CoreNode) {
        let strides = node.strides.clone();
        let to = self.to.add_for(self.from, id, node);
        if self.from.is_pinned(id) || self.to.node(to).op.is_input() {
            self.to.pin(to, &strides);
        }
        self.map.insert(id, to);
    }

    /// Copies these nodes, and all that they are made of.
    fn reach(&mut self, wanted: &[CoreId]) {
        let live = self.live(wanted);
        self.copy(live);
    }

    /// As [`Copying::reach`]; what is not `early` stands where it is used first, so that it is not in memory long before.
    fn reach_late(&mut self, wanted: &[CoreId], early: &dyn Fn(CoreId) -> bool) {
        let live = self.live(wanted);
        let (mut order, mut done) = (Vec::new(), BTreeSet::new());
        for first in live.iter().copied().filter(|id| early(*id)).chain(wanted.iter().copied()) {
            let mut todo = vec![(first, false)];
            while let Some((id, made)) = todo.pop() {
                check_time();
                if made {
                    order.push(id);
                } else if live.contains(&id) && done.insert(id) {
                    todo.push((id, true));
                    todo.extend(operands(&self.from.node(id).op).into_iter().rev().map(|of| (of, false)));
                }
            }
        }
        self.copy(order);
    }

    /// These nodes and all that they are made of, as far as they are not copied.
    fn live(&self, wanted: &[CoreId]) -> BTreeSet<CoreId> {
        let mut live = BTreeSet::new();
        let mut todo: Vec<CoreId> = wanted.to_vec();
        while let Some(id) = todo.pop() {
            if !self.map.contains_key(&id) && live.insert(id) {
                todo.extend(operands(&self.from.node(id).op));
            }
        }
        live
    }

    fn copy(&mut self, order: impl IntoIterator<Item = CoreId>) {
        for id in order {
            check_time();
            let mut node = self.from.node(id).clone();
            if let CoreOp::Stop(of) | CoreOp::Sloped(of, ..) = node.op {
                let own = self.map[&of];
                let own = if self.from.is_pinned(id) { self.laid_out(own, &node.strides) } else { own };
                self.map.insert(id, own);
                continue;
            }
            let map = &self.map;
            match &mut node.op {
                CoreOp::Extern(call) => {
                    let mut changed = (**call).clone();
                    changed.args.iter_mut().for_each(|arg: &mut ExternArg| arg.values_mut(&mut |id| *id = map[id]));
                    *call = changed.into();
                }
                op => op.operands_mut().into_iter().for_each(|of| *of = map[of]),
            }
            self.take(id, node);
        }
    }

    /// A value that leaves, in other memory than those which were different ones for what autograd makes of them. `taken`: whose
    /// memory each is.
    fn apart(&mut self, mut id: CoreId, of: CoreId, taken: &mut BTreeMap<CoreId, CoreId>) -> CoreId {
        let memory = |core: &Core, mut id: CoreId| {
            while core.node(id).op.is_view() {
                id = core.node(id).op.operands()[0];
            }
            id
        };
        while *taken.entry(memory(&self.to, id)).or_insert(of) != of {
            let node = self.to.node(id).clone();
            id = self.to.add(CoreNode { op: CoreOp::Copy(id), ..node.clone() });
            self.to.pin(id, &node.strides);
        }
        id
    }

    /// A value in memory with these strides.
    fn laid_out(&mut self, id: CoreId, strides: &[Dim]) -> CoreId {
        let node = self.to.node(id).clone();
        if node.op.is_view() || node.op.is_input() || !self.to.pin(id, strides) {
            let copy = self.to.add(CoreNode { op: CoreOp::Copy(id), strides: strides.to_vec(), ..node });
            self.to.pin(copy, strides);
            return copy;
        }
        id
    }

    /// The output that a value is; it becomes one if it is none.
    fn kept(&mut self, id: CoreId) -> u32 {
        let CoreNode { sizes, strides, .. } = self.to.node(id).clone();
        let out = CoreOutput { base: OutputBase::Value(id), sizes, strides, offset: 0.into() };
        let known = self.to.outputs.iter().position(|known| *known == out);
        let at = known.unwrap_or_else(|| {
            self.to.pin(id, &out.strides);
            self.to.outputs.push(out);
            self.to.outputs.len() - 1
        });
        at as u32
    }

    /// A value as an output with memory of its own: with these strides, if every element has its own place under them.
    fn output(&mut self, mut id: CoreId, like: &[Dim], taken: &mut BTreeSet<CoreId>) -> CoreOutput {
        let node = self.to.node(id).clone();
        let strides = if self.to.is_pinned(id) && is_alike(&node.sizes, &node.strides, like) {
            node.strides.clone()
        } else if is_dense(&node.sizes, like) {
            like.to_vec()
        } else {
            contiguous_strides(&node.sizes)
        };
        let fits = !node.op.is_view() && !node.op.is_input() && !taken.contains(&id) && self.to.pin(id, &strides);
        if !fits {
            let mut of = id;
            loop {
                let op = CoreOp::Copy(of);
                id = self.to.add(CoreNode { op, strides: strides.clone(), ..node.clone() });
                if !taken.contains(&id) {
                    break;
                }
                of = id;
            }
            self.to.pin(id, &strides);
        }
        taken.insert(id);
        CoreOutput { base: OutputBase::Value(id), sizes: node.sizes, strides, offset: 0.into() }
    }
}

/// Whether strides are the same where there is more than one element.
fn is_alike(sizes: &[Dim], a: &[Dim], b: &[Dim]) -> bool {
    sizes.iter().zip(a.iter().zip(b)).all(|(size, (a, b))| size.is(1) || a == b)
}
