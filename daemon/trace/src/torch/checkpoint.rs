//! Activation checkpointing: calls of the graph whose results autograd keeps none of, as they are computed again for their
//! derivative. Eager Python runs the code a second time then, so what else it does would be done twice.

use super::Tracer;
use crate::value::flow::{Flow, Stop, stop};
use crate::value::{TensorId, Value};
use flambeau_ir::code::Const;
use flambeau_ir::frame::BackendKind;
use flambeau_ir::graph::{Arg, Effect, GRADIENTS, Node, NodeId, NodeOp, Target, ValueMeta};
use flambeau_ir::reason::{Reason, ReasonCode};
use std::collections::{HashMap, HashSet};

/// The function, as users import it.
pub(crate) const CHECKPOINT: &str = "torch.utils.checkpoint.checkpoint";

fn refused<T>(why: &str) -> Flow<T> {
    stop(ReasonCode::SideEffect, format!("{CHECKPOINT}: {why}"))
}

impl Tracer<'_> {
    /// What the code gives; its calls become a region of the graph. `keeps_draws`: the second run draws the same random numbers.
    /// Regions within it are parts of it.
    pub(crate) fn checkpoint(&mut self, keeps_draws: bool, code: impl FnOnce(&mut Self) -> Flow<Value>) -> Flow<Value> {
        self.check_saving()?;
        let inner = std::mem::replace(&mut self.graph.in_checkpoint, true);
        let before = self.arenas.oldest();
        let start = self.start(false);
        let given = code(self);
        self.graph.in_checkpoint = inner;
        let shows = self.shows_since(&start);
        self.arenas.watch_also(before);
        let given = match given {
            Err(Stop::Raise(_)) => return refused("an exception leaves it"),
            given => given?,
        };
        let nodes = &self.graph.nodes[start.nodes..];
        if !nodes.iter().any(|node| requires_grad(&node.meta)) {
            // Autograd saves nothing, so nothing is computed again.
            return Ok(given);
        }
        if shows {
            return refused("it does more than give its results, which would be done again");
        }
        if !keeps_draws && nodes.iter().any(|node| node.effect == Effect::Draws) {
            return refused("other random numbers would be drawn again");
        }
        if !inner {
            self.graph.checkpoints.push((start.nodes, self.graph.nodes.len()));
        }
        Ok(given)
    }

    /// Has the frame traced without regions where it writes to what one takes before its derivative is computed: the second run
    /// finds that.
    pub(crate) fn leave_rewritten_checkpoints(&mut self) {
        let tensors: HashMap<NodeId, TensorId> = self.arenas.tensors.iter().map(|(id, t)| (t.node, id)).collect();
        let nodes = &self.graph.nodes;
        let is_rewritten = |(from, to): &(usize, usize)| {
            let mut taken = HashSet::new();
            for node in &nodes[*from..*to] {
                let NodeOp::Call { args, kwargs, .. } = &node.op else { continue };
                let mut take = |id: NodeId| {
                    let is_taken = (id.0 as usize) < *from || matches!(nodes[id.0 as usize].op, NodeOp::Placeholder(_));
                    taken.extend(tensors.get(&id).filter(|_| is_taken).map(|tensor| self.root(*tensor, false)));
                };
                args.iter().chain(kwargs.iter().map(|(_, arg)| arg)).for_each(|arg| arg.nodes(&mut take));
            }
            // `backward()` in the graph is the end of what it does not keep.
            let keeps_none = Arg::Const(Const::Bool(false));
            let is_end = |node: &Node| {
                matches!(&node.op, NodeOp::Call { target: Target::Function(path), args, .. }
                    if &**path == GRADIENTS && args.last() == Some(&keeps_none))
            };
            let end = nodes[*to..].iter().position(is_end).map_or(nodes.len(), |at| to + at);
            let is_between = |at: NodeId| (*to..end).contains(&(at.0 as usize));
            self.graph.changed.iter().any(|(at, of)| is_between(*at) && taken.contains(&self.root(*of, false)))
        };
        if self.graph.checkpoints.iter().any(is_rewritten) {
            self.leaves_checkpoints = Some(Reason::new(ReasonCode::SideEffect, "a later write to what it takes"));
            self.has_learnt = true;
        }
    }

    /// Whether the graph's derivative decides what is kept, and nobody looks at that.
    fn check_saving(&self) -> Flow<()> {
        if let Some(reason) = &self.leaves_checkpoints {
            return refused(&format!("the graph gets no derivative with it: {}", reason.detail));
        }
        let options = &self.frame.options;
        if !matches!(&options.backend, BackendKind::Native(name) if name == "cpu") || options.training.is_none() {
            return refused("the back end takes no derivatives");
        }
        if self.ambient.saved_tensor_hooks || self.ambient.observers != 0 {
            return refused("where somebody looks at what autograd does");
        }
        Ok(())
    }
}

fn requires_grad(meta: &ValueMeta) -> bool {
    match meta {
        ValueMeta::Tensor(meta) => meta.requires_grad,
        ValueMeta::Tuple(parts) => parts.iter().any(requires_grad),
        _ => false,
    }
}
