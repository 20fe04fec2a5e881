//! What autograd follows, for graphs of which a derivative is to be taken: values that it does not follow, as they were
//! detached or computed with grad mode off, become ends for the derivative.

use crate::graph::functional::Lowering;
use crate::graph::value::Value;
use flambeau_core::graph::{Core, CoreId, CoreNode, CoreOp, CoreOutput, ExternArg, ExternCall, OutputBase};
use flambeau_ir::graph::{Arg, Node, NodeId, NodeOp, Target, ValueMeta};
use flambeau_ir::plan::DETACH;
use flambeau_ir::reason::Reason;
use flambeau_ir::source::SourceId;
use flambeau_ir::tensor::TensorMeta;
use flambeau_ops::decompose::{Outcome, View, apply, extern_call, refuse};
use flambeau_ops::{Mark, Saved, differentiable};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A core graph and where its tensor inputs come from.
#[derive(Clone, Debug)]
pub struct Functional {
    /// The graph.
    pub core: Core,
    /// Sources of the tensor inputs.
    pub inputs: Vec<SourceId>,
    /// Whether autograd follows each input.
    pub followed_inputs: Vec<bool>,
    /// Whether autograd follows each output.
    pub followed_outputs: Vec<bool>,
    /// The value of each output.
    pub values: Vec<CoreId>,
    /// For each output, the outputs that it is computed of.
    pub made_of: Vec<BTreeSet<u32>>,
    /// For each output, the inputs that autograd connects it with.
    pub reached: Vec<BTreeSet<u32>>,
    /// For each output, whether something is computed of its value that is not computed of the output itself.
    pub shared: Vec<bool>,
    /// For each output, whether autograd goes back from it once, as it frees what it saved on the way.
    pub spent: Vec<bool>,
    /// Whether something that autograd follows is written to.
    pub rewritten: bool,
}

/// What is known so far.
#[derive(Clone, Debug, Default)]
pub struct Follow {
    /// Grad mode is off.
    pub off: bool,
    /// Something that autograd follows was written to.
    pub rewritten: bool,
    /// Inputs that were written to with grad mode off.
    renewed: BTreeSet<usize>,
    /// Views of what requires grad, made with grad mode off: leaves to autograd.
    pub views: BTreeSet<NodeId>,
    /// For each node, whether it depends on an input that requires grad.
    nodes: Vec<bool>,
    /// Memory of which autograd may have saved something, and the nodes of the graph for which it did.
    saved: BTreeMap<usize, BTreeSet<NodeId>>,
    /// What calls gave for which autograd saved something.
    given: BTreeSet<CoreId>,
    /// What these nodes wrote to with grad mode on.
    written: BTreeMap<NodeId, Vec<usize>>,
    /// For each base, the inputs that autograd connects it with, a bit each.
    connected: Vec<Vec<u64>>,
    /// Bases from which autograd goes back once, as it frees what it saved on the way.
    spent: BTreeSet<usize>,
}

impl Follow {
    /// Whether autograd follows an input.
    pub fn set(&mut self, input: CoreId, follows: bool) {
        self.nodes.truncate(input.0 as usize);
        self.nodes.resize(input.0 as usize, false);
        self.nodes.push(follows);
    }

    /// Connects a new base with an input.
    pub fn connect(&mut self, base: usize, input: Option<u32>) {
        self.connected.resize(self.connected.len().max(base + 1), vec![]);
        if let Some(input) = input {
            let (own, word) = (&mut self.connected[base], input as usize / 64);
            own.resize(own.len().max(word + 1), 0);
            own[word] |= 1 << (input % 64);
        }
    }

    /// Connects a base with all that another one is connected with.
    fn reach(&mut self, base: usize, from: usize) {
        if self.spent.contains(&from) {
            self.spent.insert(base);
        }
        let Some(words) = self.connected.get(from).cloned().filter(|_| base != from) else { return };
        self.connected.resize(self.connected.len().max(base + 1), vec![]);
        let own = &mut self.connected[base];
        own.resize(own.len().max(words.len()), 0);
        own.iter_mut().zip(words).for_each(|(own, word)| *own |= word);
    }

    /// The inputs that autograd connects a base with.
    pub fn reached(&self, base: usize) -> BTreeSet<u32> {
        let words = self.connected.get(base).map_or(&[][..], Vec::as_slice);
        let bits = |(at, word): (u32, &u64)| {
            (0..64).filter(|bit| word >> bit & 1 == 1).map(move |bit| at * 64 + bit).collect::<Vec<_>>()
        };
        (0..).zip(words).flat_map(bits).collect()
    }

    /// Forgets what was saved for these nodes: `backward()` freed it.
    pub fn free(&mut self, nodes: &BTreeSet<NodeId>) {
        self.saved.retain(|_, savers| {
            savers.retain(|saver| !nodes.contains(saver));
            !savers.is_empty()
        });
    }

    /// Forgets the nodes from this one on: they were taken back.
    pub fn forget(&mut self, from: usize) {
        self.nodes.truncate(from);
    }

    /// Whether a value depends on an input that requires grad.
    fn follows(&mut self, core: &Core, id: CoreId) -> bool {
        self.nodes.truncate(core.nodes().len());
        for node in &core.nodes()[self.nodes.len()..] {
            self.nodes.push(match node.op {
                CoreOp::Input(_) | CoreOp::Stop(_) => false,
                CoreOp::Sloped(_, of, _) => self.nodes[of.0 as usize],
                ref op => op.operands().iter().any(|id| self.nodes[id.0 as usize]),
            });
        }
        self.nodes[id.0 as usize] && differentiable(core.node(id).dtype)
    }
}

/// Whether autograd follows a result.
pub fn requires_grad(meta: &ValueMeta) -> bool {
    match meta {
        ValueMeta::Tensor(meta) => meta.requires_grad,
        ValueMeta::Tuple(items) => items.iter().any(requires_grad),
        _ => false,
    }
}

/// The nodes among arguments.
fn nodes(args: &[Arg], kwargs: &[(Arc<str>, Arg)]) -> Vec<NodeId> {
    let mut found = Vec::new();
    args.iter().chain(kwargs.iter().map(|(_, arg)| arg)).for_each(|arg| arg.nodes(&mut |id| found.push(id)));
    found
}

impl Lowering<'_> {
    fn follows(&mut self, id: CoreId) -> bool {
        self.follow.as_mut().is_some_and(|follow| follow.follows(&self.core, id))
    }

    /// The nodes that autograd goes by on its way back from what this one shows now.
    pub fn behind(&self, of: NodeId) -> BTreeSet<NodeId> {
        let Some(follow) = &self.follow else { return BTreeSet::new() };
        let base_of = |id: &NodeId| self.values[id.0 as usize].base();
        let (mut taken, mut bases) = (BTreeSet::from([of]), BTreeSet::from_iter(base_of(&of)));
        let mut found = BTreeSet::new();
        for id in (0..self.values.len() as u32).rev().map(NodeId) {
            let node = self.graph.node(id);
            let writes = follow.written.get(&id).is_some_and(|into| into.iter().any(|base| bases.contains(base)));
            if let NodeOp::Call { args, kwargs, .. } = &node.op
                && (writes || taken.contains(&id))
                && requires_grad(&node.meta)
            {
                found.insert(id);
                let given = nodes(args, kwargs);
                bases.extend(given.iter().filter_map(base_of));
                taken.extend(given);
            }
        }
        found
    }

    /// Whether a call gives what another one gave, for which autograd saves something of its own.
    pub fn repeats(&self, node: &Node, outcome: &Outcome, values: &BTreeMap<NodeId, CoreId>) -> bool {
        let Some(follow) = self.follow.as_ref().filter(|follow| !follow.off) else { return false };
        let is_known = |id: &CoreId| follow.given.contains(id) && values.values().all(|value| value != id);
        requires_grad(&node.meta) && matches!(outcome, Outcome::Fresh(id) if is_known(id))
    }

    /// Whether autograd follows each input.
    pub fn followed_inputs(&self) -> Vec<bool> {
        let of_input = |node: &Node| match (&node.op, &node.meta) {
            (NodeOp::Placeholder(_), ValueMeta::Tensor(meta)) => Some(meta.requires_grad),
            _ => None,
        };
        self.graph.nodes.iter().filter_map(of_input).collect()
    }

    /// The current value of each output, and whether autograd follows it, where a derivative is to be taken.
    pub fn followed_outputs(&mut self) -> Result<(Vec<CoreId>, Vec<bool>), Reason> {
        let (mut values, mut followed) = (Vec::new(), Vec::new());
        if self.follow.is_none() {
            return Ok((values, followed));
        }
        let graph = self.graph;
        for id in &graph.outputs {
            self.check_view(*id)?;
            let Value::Tensor { base, views, meta, severed } = self.values[id.0 as usize].clone() else {
                return refuse("an output that is no tensor");
            };
            let value = self.read(base, &views);
            if self.is_leaf(base) && meta.requires_grad {
                return refuse("a leaf that requires grad, made in the graph");
            }
            let written = self.bases[base].followed && !severed;
            if written && !meta.requires_grad && !views.is_empty() {
                return refuse("a view of a tensor that autograd follows since it was written to");
            }
            values.push(value);
            followed.push(meta.requires_grad || written);
        }
        Ok((values, followed))
    }

    /// The value of a view of a base as autograd takes it: one written to with grad mode off is as much of an input as before.
    pub fn taken(&mut self, base: usize, views: &[View], meta: &TensorMeta) -> CoreId {
        if !meta.requires_grad {
            return self.read(base, views);
        }
        let held = &self.bases[base];
        let follow = self.follow.as_ref();
        let is_renewed = follow.is_some_and(|follow| follow.renewed.contains(&base));
        let mut value = if is_renewed { held.value } else { held.point.unwrap_or(held.value) };
        if is_renewed && follow.is_some_and(|follow| !follow.off) {
            let leaf = held.point.or_else(|| held.input.and_then(|at| self.core.input_node(at)));
            let Some(leaf) = leaf else { return self.read(base, views) };
            let op = self.sloped(self.bases[base].value, leaf);
            let CoreNode { dtype, sizes, .. } = self.core.node(leaf).clone();
            value = self.core.push(op, dtype, sizes);
        }
        views.iter().fold(value, |id, view| apply(&mut self.core, id, view))
    }

    /// The value of an argument: with an end for the derivative where autograd does not follow it.
    pub fn as_followed(
        &mut self,
        value: CoreId,
        base: usize,
        (meta, is_view, severed): (&TensorMeta, bool, bool),
    ) -> Result<CoreId, Reason> {
        let off = self.follow.as_ref().is_some_and(|follow| follow.off);
        if !off && meta.requires_grad && !severed || !self.follows(value) {
            return Ok(value);
        }
        if !off && self.bases[base].followed && !severed {
            if is_view {
                return refuse("a view of a tensor that autograd follows since it was written to");
            }
            return Ok(value);
        }
        let node = self.core.node(value).clone();
        Ok(self.core.push(CoreOp::Stop(value), node.dtype, node.sizes))
    }

    /// Notes that the present node gives one of several views that are leaves, if it is so.
    pub fn note_item_of_view(&mut self, args: &[Arg]) {
        let id = NodeId(self.values.len() as u32);
        if let (Some(follow), Some(Arg::Node(of))) = (&mut self.follow, args.first())
            && follow.views.contains(of)
        {
            follow.views.insert(id);
        }
    }

    /// Refuses the use of a view that is a leaf where autograd sees it.
    pub fn check_view(&self, id: NodeId) -> Result<(), Reason> {
        if self.follow.as_ref().is_some_and(|follow| follow.views.contains(&id)) {
            return refuse("a view that is a leaf, as it is made with grad mode off");
        }
        Ok(())
    }

    /// Refuses what autograd takes for another value than the graph has: leaves that are made in it.
    pub fn check_followed(&mut self, node: &Node, outcome: &Outcome) -> Result<(), Reason> {
        if self.follow.is_none() {
            return Ok(());
        }
        let off = self.follow.as_ref().is_some_and(|follow| follow.off);
        if off && requires_grad(&node.meta) && outcome.written().is_empty() {
            let id = NodeId(self.values.len() as u32);
            self.follow.iter_mut().for_each(|follow| _ = follow.views.insert(id));
        }
        let made = match (outcome, &node.meta) {
            (Outcome::Fresh(id), ValueMeta::Tensor(meta)) => meta.requires_grad && !self.follows(*id),
            (Outcome::With(_, then), _) => return self.check_followed(node, then),
            (Outcome::Same(of), ValueMeta::Tensor(meta)) => {
                let before = self.graph.node(*of).meta.as_tensor();
                before.is_some_and(|before| before.requires_grad != meta.requires_grad)
            }
            _ => false,
        };
        if made { refuse("a leaf that requires grad, made in the graph") } else { Ok(()) }
    }

    /// Refuses writes of which autograd takes another view: those that it does not see, and those of what they read as well.
    pub fn check_targets(
        &mut self,
        node: &Node,
        written: &[NodeId],
        (target, args, kwargs): (&Target, &[Arg], &[(Arc<str>, Arg)]),
    ) -> Result<(), Reason> {
        if self.follow.is_none() {
            return Ok(());
        }
        for id in written {
            let Value::Tensor { base, severed, .. } = self.values[id.0 as usize] else { continue };
            if severed && requires_grad(&node.meta) {
                return refuse("a write, of what autograd follows, to a tensor by which it does not see it");
            }
            let reads = flambeau_ops::saved(target, args).keeps_arguments(2);
            let of_base = |id: &NodeId| self.values[id.0 as usize].base() == Some(base);
            if reads && nodes(args, kwargs).iter().filter(|id| of_base(id)).count() > 1 {
                return refuse("a write to what a derivative of torch's may read");
            }
        }
        Ok(())
    }

    /// Notes what autograd saves of a call, which writes to these arguments and gives `value`, and what it connects.
    pub fn note_call(
        &mut self,
        node: &Node,
        (target, args, kwargs): (&Target, &[Arg], &[(Arc<str>, Arg)]),
        written: &[NodeId],
        value: &Value,
    ) {
        let Some(follow) = self.follow.as_mut().filter(|follow| !follow.off) else { return };
        let mut given = nodes(args, kwargs);
        let canon = flambeau_ops::canonical(target);
        if canon.as_ref().is_some_and(|canon| canon.op.has(Mark::TakesForm)) {
            given.truncate(1);
        }
        let made = value.bases();
        let of_node = |id: &NodeId| &self.values[id.0 as usize];
        // A view has the memory of its argument.
        let given_bases: Vec<usize> = given.iter().map(of_node).filter_map(Value::base).collect();
        // What requires no grad is connected with nothing, even where the graph makes a leaf of it later.
        let new = made.iter().copied().filter(|base| requires_grad(&node.meta) && !given_bases.contains(base));
        let into = new.chain(written.iter().map(of_node).filter_map(Value::base));
        for base in into {
            for id in &given {
                if let Value::Tensor { base: from, meta, severed: false, .. } = of_node(id)
                    && (meta.requires_grad || self.bases[*from].followed)
                {
                    follow.reach(base, *from);
                }
            }
        }
        if !written.is_empty() {
            let bases = written.iter().map(of_node).filter_map(Value::base).collect();
            follow.written.insert(NodeId(self.values.len() as u32), bases);
        }
        if !requires_grad(&node.meta) {
            return;
        }
        // Of what it writes to it saves a copy.
        let read: Vec<usize> =
            given.iter().filter(|id| !written.contains(id)).map(of_node).filter_map(Value::base).collect();
        if written.is_empty() && made.iter().any(|base| read.contains(base)) {
            return;
        }
        let saved = flambeau_ops::saved(target, args);
        if saved != Saved::Nothing {
            follow.spent.extend(made.iter().copied().chain(written.iter().map(of_node).filter_map(Value::base)));
        }
        let keeps_arguments = saved.keeps_arguments(given.len());
        if keeps_arguments {
            let values = made.iter().map(|base| self.bases[*base].value);
            follow.given.extend(values.map(|value| match self.core.node(value).op {
                CoreOp::Copy(of) => of,
                _ => value,
            }));
        }
        let saver = NodeId(self.values.len() as u32);
        if keeps_arguments {
            read.iter().for_each(|base| _ = follow.saved.entry(*base).or_default().insert(saver));
        }
        // Forms that write to their argument may save the result where others save the argument.
        let in_place = written.iter().map(of_node).filter_map(Value::base).any(|base| made.contains(&base));
        if saved == Saved::All || in_place && saved == Saved::Arguments {
            made.iter().for_each(|base| _ = follow.saved.entry(*base).or_default().insert(saver));
        }
    }

    /// Whether the graph made a leaf of it.
    fn is_leaf(&self, base: usize) -> bool {
        self.bases[base].point.is_some_and(|point| matches!(self.core.node(point).op, CoreOp::Stop(_)))
    }

    /// The nodes whose values depend, as autograd follows them, on the tensors of these nodes.
    pub fn downstream(&self, from: &[NodeId]) -> BTreeSet<NodeId> {
        let Some(follow) = &self.follow else { return BTreeSet::new() };
        let (mut found, mut bases): (BTreeSet<NodeId>, BTreeSet<usize>) = Default::default();
        for id in (0..self.values.len() as u32).map(NodeId) {
            let node = self.graph.node(id);
            let NodeOp::Call { args, kwargs, .. } = &node.op else { continue };
            let holds = |of: &NodeId| self.values[of.0 as usize].base().is_some_and(|base| bases.contains(&base));
            if requires_grad(&node.meta)
                && nodes(args, kwargs).iter().any(|of| from.contains(of) || found.contains(of) || holds(of))
            {
                found.insert(id);
                bases.extend(follow.written.get(&id).into_iter().flatten());
            }
        }
        found
    }

    /// Notes for gradients which may have gradients: what torch saves for these, and what autograd connects them with.
    /// `behind`: the calls that they are derived of.
    pub fn note_derived(&mut self, node: &Node, behind: &BTreeSet<NodeId>, given: &Value) {
        let Some(follow) = self.follow.as_mut().filter(|_| requires_grad(&node.meta)) else { return };
        let NodeOp::Call { args, .. } = &node.op else { return };
        let made = given.bases();
        let saver = NodeId(self.values.len() as u32);
        let of_call = |id: &NodeId| match &self.graph.node(*id).op {
            NodeOp::Call { args, kwargs, .. } => nodes(args, kwargs).into_iter().chain([*id]).collect(),
            NodeOp::Placeholder(_) => vec![],
        };
        let read = behind.iter().flat_map(of_call).chain(nodes(args, &[]));
        let read: BTreeSet<usize> = read.filter_map(|id| self.values[id.0 as usize].base()).collect();
        for from in read {
            follow.saved.entry(from).or_default().insert(saver);
            made.iter().for_each(|base| follow.reach(*base, from));
        }
    }

    /// For each output, whether a call takes the tensor that it shows, and not by way of the output.
    pub fn shared(&self) -> Vec<bool> {
        if self.follow.is_none() {
            return vec![];
        }
        let base_of = |id: NodeId| self.values[id.0 as usize].base();
        let of = |output: &NodeId| {
            let base = base_of(*output);
            // The output, and what shows it or a part of it.
            let mut shows: BTreeSet<NodeId> = BTreeSet::from([*output]);
            let mut shared = false;
            for (at, node) in self.graph.nodes.iter().enumerate() {
                let NodeOp::Call { args, kwargs, .. } = &node.op else { continue };
                let (id, taken) = (NodeId(at as u32), nodes(args, kwargs));
                if base_of(id) == base {
                    if taken.iter().any(|of| shows.contains(of)) {
                        shows.insert(id);
                    }
                } else {
                    shared |= taken.iter().any(|of| base_of(*of) == base && !shows.contains(of));
                }
            }
            base.is_some() && shared
        };
        self.graph.outputs.iter().map(of).collect()
    }

    /// For each output, the outputs that it is computed of, by way of what calls give and of what they write to.
    pub fn made_of(&self) -> Vec<BTreeSet<u32>> {
        let Some(follow) = &self.follow else { return vec![] };
        let numbers: BTreeMap<NodeId, u32> = self.graph.outputs.iter().copied().zip(0..).collect();
        let mut of_node: Vec<BTreeSet<u32>> = Vec::with_capacity(self.graph.nodes.len());
        let mut of_base: BTreeMap<usize, BTreeSet<u32>> = BTreeMap::new();
        let held = |of_base: &BTreeMap<usize, BTreeSet<u32>>, id: NodeId| {
            self.values[id.0 as usize].base().and_then(|base| of_base.get(&base).cloned()).unwrap_or_default()
        };
        for (id, node) in (0..).map(NodeId).zip(&self.graph.nodes) {
            let mut found = BTreeSet::new();
            if let NodeOp::Call { args, kwargs, .. } = &node.op {
                for of in nodes(args, kwargs) {
                    found.extend(numbers.get(&of));
                    found.extend(&of_node[of.0 as usize]);
                    found.extend(held(&of_base, of));
                }
            }
            for base in follow.written.get(&id).into_iter().flatten() {
                of_base.entry(*base).or_default().extend(&found);
            }
            of_node.push(found);
        }
        let of_output = |(id, number): (&NodeId, u32)| {
            let mut all = held(&of_base, *id);
            all.extend(&of_node[id.0 as usize]);
            all.remove(&number);
            all
        };
        self.graph.outputs.iter().zip(0..).map(of_output).collect()
    }

    /// For each output, the inputs that autograd connects it with.
    pub fn reached(&self) -> Vec<BTreeSet<u32>> {
        let Some(follow) = &self.follow else { return vec![] };
        let of = |id: &NodeId| self.values[id.0 as usize].base().map(|base| follow.reached(base)).unwrap_or_default();
        self.graph.outputs.iter().map(of).collect()
    }

    /// For each output, whether autograd goes back from it once, as it frees what it saved on the way.
    pub fn spent(&self) -> Vec<bool> {
        let Some(follow) = &self.follow else { return vec![] };
        let of = |id: &NodeId| self.values[id.0 as usize].base().is_none_or(|base| follow.spent.contains(&base));
        self.graph.outputs.iter().map(of).collect()
    }

    /// Whether another output shows the memory of this one.
    pub fn is_shown_again(&self, base: usize, output: NodeId) -> bool {
        let shares = |id: &NodeId| self.values[id.0 as usize].base() == Some(base);
        self.graph.outputs.iter().any(|id| *id != output && shares(id))
    }

    /// An output that shows a whole input of which autograd does not know it for a view: torch's own call makes it.
    pub fn detached(&mut self, base: usize, output: NodeId, meta: &TensorMeta) -> Result<CoreOutput, Reason> {
        let held = &self.bases[base];
        let is_call = match &self.graph.node(output).op {
            NodeOp::Call { target: Target::Method(name), .. } => &**name == "detach",
            _ => false,
        };
        let is_whole = held.strides == meta.strides && self.core.node(held.value).sizes == meta.sizes;
        let Some(input) = held.input.filter(|_| is_call && is_whole && !self.is_shown_again(base, output)) else {
            return refuse("a detached tensor that leaves, whose memory another has");
        };
        let Some(mut of) = self.core.input_node(input) else { return refuse("a detached tensor of no input") };
        if self.follow.is_some() {
            let node = self.core.node(of).clone();
            of = self.core.push(CoreOp::Stop(of), node.dtype, node.sizes);
        }
        let call = ExternCall::pure((DETACH, "default"), None, vec![ExternArg::Value(of)], 1);
        let value = extern_call(&mut self.core, call, std::slice::from_ref(meta))[0];
        let (sizes, strides) = (meta.sizes.clone(), meta.strides.clone());
        Ok(CoreOutput { base: OutputBase::Value(value), sizes, strides, offset: 0.into() })
    }

    /// Notes what a write does to what autograd follows. `unseen`: autograd does not see it. It gives what autograd takes
    /// for the new value then.
    pub fn check_written(&mut self, base: usize, value: CoreId, unseen: bool) -> Result<Option<CoreId>, Reason> {
        let Some(follow) = &self.follow else { return Ok(None) };
        if follow.saved.contains_key(&base) {
            return refuse("a write to what a derivative of torch's may read");
        }
        let (off, is_input) = (follow.off || unseen, self.bases[base].input.is_some() || self.is_leaf(base));
        let held = self.bases[base].point.unwrap_or(self.bases[base].value);
        if !is_input {
            // What is asked for is what it was.
            self.bases[base].point = None;
        }
        let (before, after) = (self.follows(self.bases[base].value), self.follows(value));
        if off && is_input {
            self.follow.iter_mut().for_each(|follow| _ = follow.renewed.insert(base));
            return Ok(None);
        }
        if unseen && before {
            return Ok(Some(held));
        }
        if off && (before || after) {
            return refuse("a write, with grad mode off, to or of what autograd follows");
        }
        if is_input && (before || after) {
            return refuse("a write to an input that autograd follows");
        }
        self.bases[base].followed |= after;
        if let Some(follow) = &mut self.follow {
            follow.rewritten |= before || after;
        }
        Ok(None)
    }
}
