//! The graph under construction: readable names, user locations, and its final order.

use crate::state::tracer::Tracer;
use crate::value::TensorId;
use crate::value::flow::{Flow, stop};
use flambeau_ir::code::Origin;
use flambeau_ir::graph::{Arg, Effect, Graph, Location, Node, NodeId, NodeOp, Target, ValueMeta};
use flambeau_ir::reason::ReasonCode;
use flambeau_ir::source::SourceId;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Nodes before a trace is given up.
const MAX_NODES: usize = 100_000;

/// What calls of a graph write to, beside tensors that the graph made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Writes {
    /// Nothing.
    #[default]
    Nothing,
    /// A tensor that may share the memory of an input.
    PerhapsInputs,
    /// A tensor that existed before the trace.
    Inputs,
}

/// Random numbers that calls drew from the CPU's default generator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Drawn {
    /// None.
    #[default]
    Nothing,
    /// Some.
    Some,
    /// Some, and then came a call that may raise for what its tensors hold.
    BeforeCheck,
}

/// What a call that fails finds.
#[derive(Debug, Default)]
pub struct Before {
    pub(crate) drawn: Drawn,
    /// A call was made that cannot be taken back by running the frame again.
    pub(crate) commits: bool,
    /// One that may raise for what its tensors hold stands in a `try` or `with` block.
    pub(crate) handled: bool,
}

/// The graph under construction. Placeholders are made when an input is first read, so they stand among the calls until the end.
#[derive(Debug, Default)]
pub struct GraphBuilder {
    pub(crate) nodes: Vec<Node>,
    names: HashMap<String, u32>,
    locations: Vec<Location>,
    location_ids: HashMap<Location, u32>,
    /// What calls write to.
    pub(crate) writes: Writes,
    /// A call of which no rule says whether it returns views.
    pub(crate) may_view: bool,
    /// The nodes that wrote to tensors, and these.
    pub(crate) changed: Vec<(NodeId, TensorId)>,
    /// What calls so far mean for one that fails.
    pub(crate) before: Before,
    /// Calls for which autograd saved something that `backward()` freed.
    pub(crate) freed: BTreeSet<NodeId>,
    /// A call switches grad mode or makes a tensor require grad.
    pub(crate) touches_grad: bool,
    /// Regions of activation checkpointing: where the calls of each begin, and where they end.
    pub(crate) checkpoints: Vec<(usize, usize)>,
    /// Calls are of one now.
    pub(crate) in_checkpoint: bool,
}

impl GraphBuilder {
    fn unique(&mut self, base: &str) -> String {
        let base = if base.is_empty() { "value" } else { base };
        let count = self.names.entry(base.to_string()).or_insert(0);
        *count += 1;
        match *count {
            1 => base.to_string(),
            n => {
                let name = format!("{base}_{}", n - 1);
                self.names.entry(name.clone()).or_insert(1);
                name
            }
        }
    }

    /// Whether no call was recorded.
    pub(crate) fn is_idle(&self) -> bool {
        !self.nodes.iter().any(|n| matches!(n.op, NodeOp::Call { .. }))
    }

    /// Forgets calls from node `first` on. Emptied nodes are left out when the graph is put in order.
    pub(crate) fn drop_calls(&mut self, first: usize, unwanted: impl Fn(&Target, &[Arg]) -> bool) {
        for node in &mut self.nodes[first..] {
            if matches!(&node.op, NodeOp::Call { target, args, .. } if unwanted(target, args)) {
                node.op = NodeOp::Placeholder(SourceId(0));
            }
        }
    }

    /// An input.
    pub(crate) fn placeholder(&mut self, source: SourceId, name: &str, meta: ValueMeta) -> NodeId {
        let name = self.unique(name);
        self.nodes.push(Node {
            name,
            op: NodeOp::Placeholder(source),
            meta,
            location: None,
            stack: Vec::new(),
            effect: Effect::None,
            view: false,
            torchs: false,
            fresh: false,
            schema: None,
        });
        NodeId(self.nodes.len() as u32 - 1)
    }

    fn location(&mut self, location: Location) -> u32 {
        if let Some(id) = self.location_ids.get(&location) {
            return *id;
        }
        let id = self.locations.len() as u32;
        self.locations.push(location.clone());
        self.location_ids.insert(location, id);
        id
    }

    /// The finished graph with `outputs`: placeholders first, inputs and tuple items that nothing uses left out. Also
    /// where each node went.
    pub(crate) fn finish(self, outputs: &[NodeId]) -> (Graph, Vec<Option<NodeId>>) {
        let mut used = vec![false; self.nodes.len()];
        for output in outputs {
            used[output.0 as usize] = true;
        }
        for (i, node) in self.nodes.iter().enumerate().rev() {
            let NodeOp::Call { target, args, kwargs } = &node.op else { continue };
            let part = matches!(target, Target::Function(f) if &**f == "_operator.getitem")
                && matches!(args.as_slice(), [Arg::Node(n), _] if matches!(self.nodes[n.0 as usize].meta, ValueMeta::Tuple(_)));
            if part && !used[i] {
                continue;
            }
            used[i] = true;
            for arg in args.iter().chain(kwargs.iter().map(|(_, a)| a)) {
                arg.nodes(&mut |n| used[n.0 as usize] = true);
            }
        }
        let mut places: Vec<Option<NodeId>> = vec![None; self.nodes.len()];
        let is_input = |node: &Node| matches!(node.op, NodeOp::Placeholder(_));
        let order = (0..self.nodes.len()).filter(|i| used[*i] && is_input(&self.nodes[*i]));
        let order: Vec<usize> =
            order.chain((0..self.nodes.len()).filter(|i| used[*i] && !is_input(&self.nodes[*i]))).collect();
        for (place, i) in order.iter().enumerate() {
            places[*i] = Some(NodeId(place as u32));
        }
        let mut nodes: Vec<Option<Node>> = self.nodes.into_iter().map(Some).collect();
        let mut sorted = Vec::with_capacity(order.len());
        for i in order {
            let Some(mut node) = nodes[i].take() else { continue };
            if let NodeOp::Call { args, kwargs, .. } = &mut node.op {
                for arg in args.iter_mut().chain(kwargs.iter_mut().map(|(_, a)| a)) {
                    arg.rename(&|n| places[n.0 as usize].unwrap_or(n));
                }
            }
            sorted.push(node);
        }
        let outputs = outputs.iter().filter_map(|o| places[o.0 as usize]).collect();
        let is_call = |id: &NodeId| matches!(sorted[id.0 as usize].op, NodeOp::Call { .. });
        let of_region = |(from, to): &(usize, usize)| {
            let mut calls = places[*from..*to].iter().flatten().filter(|id| is_call(id));
            let first = *calls.next()?;
            Some((first, *calls.next_back().unwrap_or(&first)))
        };
        let checkpoints = self.checkpoints.iter().filter_map(of_region).collect();
        (
            Graph {
                nodes: sorted,
                checkpoints,
                outputs,
                locations: self.locations,
                restores: self.before.drawn == Drawn::BeforeCheck,
                ..Graph::default()
            },
            places,
        )
    }
}

impl Tracer<'_> {
    /// Adds a call node at the present user line.
    pub(crate) fn graph_call(
        &mut self,
        target: &Target,
        args: Vec<Arg>,
        kwargs: Vec<(Arc<str>, Arg)>,
        meta: ValueMeta,
    ) -> Flow<NodeId> {
        if self.graph.nodes.len() >= MAX_NODES {
            return stop(ReasonCode::TooLarge, "too many torch calls");
        }
        let path = match target {
            Target::Function(path) | Target::Method(path) => path,
        };
        let base = path.rsplit('.').next().unwrap_or(path).trim_matches('_');
        let name = self.graph.unique(base);
        let location = self.user_location().map(|l| self.graph.location(l));
        let stack = if self.graph.before.commits {
            self.locations().into_iter().map(|l| self.graph.location(l)).collect()
        } else {
            Vec::new()
        };
        let op = NodeOp::Call { target: target.clone(), args, kwargs };
        self.graph.nodes.push(Node {
            name,
            op,
            meta,
            location,
            stack,
            effect: Effect::None,
            view: false,
            torchs: false,
            fresh: false,
            schema: None,
        });
        Ok(NodeId(self.graph.nodes.len() as u32 - 1))
    }

    /// The innermost line of the user's own code.
    fn user_location(&self) -> Option<Location> {
        let own = |f: &&crate::value::frame::FrameInfo| Origin::of(&f.file) == Origin::User;
        let frame = self.stack.iter().rev().find(own).or(self.stack.last())?;
        Some(Location { file: frame.file.clone(), line: frame.line, function: frame.qualname.clone() })
    }
}
