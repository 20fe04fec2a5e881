//! What autograd follows, for graphs of which a derivative is to be taken: values that it does not follow, as they were
//! detached or computed with grad mode off, become ends for the derivative.

use crate::graph::functional::{Lowering, Value};
use flambeau_core::graph::{Core, CoreId, CoreOp};
use flambeau_ir::graph::{Graph, Node, NodeId, NodeOp, Target, ValueMeta};
use flambeau_ir::reason::Reason;
use flambeau_ir::source::SourceId;
use flambeau_ir::tensor::TensorMeta;
use flambeau_ops::Saved;
use flambeau_ops::decompose::{Outcome, refuse};
use std::collections::BTreeSet;

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
    /// For each node, whether it depends on an input that requires grad.
    nodes: Vec<bool>,
    /// Memory of which autograd may have saved something.
    saved: BTreeSet<usize>,
}

impl Follow {
    /// Whether autograd follows an input.
    pub fn set(&mut self, input: CoreId, follows: bool) {
        self.nodes.truncate(input.0 as usize);
        self.nodes.resize(input.0 as usize, false);
        self.nodes.push(follows);
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
        self.nodes[id.0 as usize] && (core.node(id).dtype.is_float() || core.node(id).dtype.is_complex())
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

/// For each output of a graph, the outputs that it is computed of.
pub fn made_of(graph: &Graph) -> Vec<BTreeSet<u32>> {
    let mut of: Vec<BTreeSet<u32>> = Vec::with_capacity(graph.nodes.len());
    for node in &graph.nodes {
        let mut found = BTreeSet::new();
        if let NodeOp::Call { args, kwargs, .. } = &node.op {
            let mut visit = |id: NodeId| {
                let number = graph.outputs.iter().position(|output| *output == id);
                found.extend(number.map(|at| at as u32));
                found.extend(&of[id.0 as usize]);
            };
            args.iter().chain(kwargs.iter().map(|(_, arg)| arg)).for_each(|arg| arg.nodes(&mut visit));
        }
        of.push(found);
    }
    graph.outputs.iter().map(|id| of[id.0 as usize].clone()).collect()
}

impl Lowering<'_> {
    fn follows(&mut self, id: CoreId) -> bool {
        self.follow.as_mut().is_some_and(|follow| follow.follows(&self.core, id))
    }

    /// The current value of each output, and whether autograd follows it, where a derivative is to be taken.
    pub fn followed_outputs(&mut self) -> Result<(Vec<CoreId>, Vec<bool>), Reason> {
        let (mut values, mut followed) = (Vec::new(), Vec::new());
        if self.follow.is_none() {
            return Ok((values, followed));
        }
        let graph = self.graph;
        for id in &graph.outputs {
            let Value::Tensor { base, views, meta, severed } = self.values[id.0 as usize].clone() else {
                return refuse("an output that is no tensor");
            };
            let value = self.read(base, &views);
            let written = self.bases[base].followed && !severed;
            if written && !meta.requires_grad && !views.is_empty() {
                return refuse("a view of a tensor that autograd follows since it was written to");
            }
            values.push(value);
            followed.push(meta.requires_grad || written);
        }
        Ok((values, followed))
    }

    /// The value of an argument: with an end for the derivative where autograd does not follow it.
    pub fn as_followed(
        &mut self,
        value: CoreId,
        base: usize,
        (meta, is_view, severed): (&TensorMeta, bool, bool),
    ) -> Result<CoreId, Reason> {
        if meta.requires_grad && !severed || !self.follows(value) {
            return Ok(value);
        }
        if self.bases[base].followed && !severed {
            if is_view {
                return refuse("a view of a tensor that autograd follows since it was written to");
            }
            return Ok(value);
        }
        let node = self.core.node(value).clone();
        Ok(self.core.push(CoreOp::Stop(value), node.dtype, node.sizes))
    }

    /// Refuses what autograd takes for another value than the graph has: leaves that are made in it.
    pub fn check_followed(&mut self, node: &Node, outcome: &Outcome) -> Result<(), Reason> {
        if self.follow.is_none() {
            return Ok(());
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

    /// Notes what autograd saves of a call with these arguments, which writes to one of them or gives `value`.
    pub fn note_saved<'a>(
        &mut self,
        node: &Node,
        target: &Target,
        (written, args): (Option<NodeId>, impl ExactSizeIterator<Item = &'a NodeId>),
        value: &Value,
    ) {
        let Some(follow) = self.follow.as_mut().filter(|follow| !follow.off) else { return };
        if !requires_grad(&node.meta) {
            return;
        }
        let saved = flambeau_ops::canonical(target).map_or(Saved::All, |canon| canon.op.saved);
        let keeps_arguments = match saved {
            Saved::All | Saved::Arguments => true,
            Saved::Factors => args.len() > 1,
            Saved::Nothing => false,
        };
        let base_of = |value: &Value| if let Value::Tensor { base, .. } = value { Some(*base) } else { None };
        // Of what it writes to it saves a copy.
        let read = args.filter(|id| Some(**id) != written).map(|id| &self.values[id.0 as usize]);
        let read: Vec<usize> = read.filter_map(base_of).collect();
        if written.is_none() && base_of(value).is_some_and(|base| read.contains(&base)) {
            return;
        }
        if keeps_arguments {
            follow.saved.extend(read);
        }
        // Forms that write to their argument may save the result where others save the argument.
        if saved == Saved::All || written.is_some() && saved == Saved::Arguments {
            match value {
                Value::Tuple(items) => follow.saved.extend(items.iter().filter_map(base_of)),
                value => follow.saved.extend(base_of(value)),
            }
        }
    }

    /// Notes what a write does to what autograd follows.
    pub fn check_written(&mut self, base: usize, value: CoreId) -> Result<(), Reason> {
        let Some(follow) = &self.follow else { return Ok(()) };
        if follow.saved.contains(&base) {
            return refuse("a write to what a derivative of torch's may read");
        }
        let off = follow.off;
        let (before, after) = (self.follows(self.bases[base].value), self.follows(value));
        if off && before {
            return refuse("a write, with grad mode off, to a tensor that autograd follows");
        }
        if self.bases[base].input.is_some() && (before || after) {
            return refuse("a write to an input that autograd follows");
        }
        self.bases[base].followed |= after;
        if let Some(follow) = &mut self.follow {
            follow.rewritten |= before || after;
        }
        Ok(())
    }
}
