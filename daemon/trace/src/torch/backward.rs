//! `Tensor.backward()` in the graph: which leaves get gradients, and what torch frees. Autograd's engine does not run, so a
//! leaf on whose gradient there is a hook is left to it, and so is what the engine alone can do.

use super::{is, target_name};
use crate::state::tracer::Tracer;
use crate::value::flow::{Flow, stop};
use crate::value::{TensorId, Value};
use flambeau_ir::code::Const;
use flambeau_ir::frame::BackendKind;
use flambeau_ir::graph::{Arg, GRADIENTS, Node, NodeId, NodeOp, Target, ValueMeta};
use flambeau_ir::guard::GuardKind;
use flambeau_ir::oracle::{AnswerValue, Question};
use flambeau_ir::reason::{Reason, ReasonCode};
use flambeau_ir::tensor::{TensorMeta, contiguous_strides};
use flambeau_ops::{Mark, Saved};
use std::collections::{BTreeSet, HashMap, HashSet};

/// Hooks of processes that train together are where only C++ sees them.
const TOGETHER: &str = "flambeau._training.trains_together";

/// What autograd goes by on its way back from a tensor.
pub(crate) struct Way {
    /// The nodes whose values it goes by.
    taken: HashSet<NodeId>,
    /// Calls that may have saved something.
    pub(crate) savers: BTreeSet<NodeId>,
}

fn refused<T>(why: &str) -> Flow<T> {
    stop(ReasonCode::SideEffect, format!("torch.Tensor.backward: {why}"))
}

impl Tracer<'_> {
    /// The leaves that `of.backward(gradient)` gives gradients, each with that: pairs in a list. `keeps`: what autograd saved
    /// is there afterwards.
    pub(crate) fn gradients(&mut self, of: &Value, gradient: &Value, keeps: bool) -> Flow<Value> {
        let Value::Tensor(of) = of else { return refused("of no tensor") };
        let seed = self.seed(*of, gradient)?;
        self.check_thread("torch.Tensor.backward")?;
        let way = self.way_back(&[self.arenas.tensors[*of].node]);
        let (leaves, savers) = (self.ends(&way), way.savers);
        if savers.iter().any(|saver| self.graph.freed.contains(saver)) {
            // Some gradients come to their leaves before autograd finds that out.
            self.leaves_backward = Some(Reason::new(ReasonCode::SideEffect, "a second call finds it freed"));
            self.has_learnt = true;
            return refused("what an earlier call freed");
        }
        let metas = self.gradient_metas(&leaves)?;
        if !keeps {
            self.graph.freed.extend(savers);
        }
        let nodes = leaves.iter().map(|leaf| Arg::Node(self.arenas.tensors[*leaf].node)).collect();
        let args =
            vec![Arg::Node(self.arenas.tensors[*of].node), seed, Arg::List(nodes), Arg::Const(Const::Bool(keeps))];
        let (target, meta) = (Target::Function(GRADIENTS.into()), ValueMeta::Tuple(metas));
        let node = self.graph_call(&target, args, vec![], meta.clone())?;
        let Value::Tuple(given) = self.node_value(node, &meta, None, &target)? else {
            return stop(ReasonCode::Internal, "gradients that are no tuple");
        };
        let pair = |(leaf, gradient): (&TensorId, &Value)| Value::tuple(vec![Value::Tensor(*leaf), gradient.clone()]);
        Ok(Value::tuple(leaves.iter().zip(&given.items).map(pair).collect()))
    }

    /// The gradient that it begins with; `None` stands for one.
    fn seed(&mut self, of: TensorId, gradient: &Value) -> Flow<Arg> {
        let meta = &self.arenas.tensors[of].meta;
        if !meta.requires_grad || !meta.dtype.is_float() {
            return refused("of what requires no grad");
        }
        match gradient {
            Value::Tensor(given) => {
                let given = &self.arenas.tensors[*given];
                let same = (&given.meta.sizes, given.meta.dtype) == (&meta.sizes, meta.dtype);
                if !same || given.meta.device != meta.device || given.meta.requires_grad {
                    return refused("with another kind of gradient");
                }
                Ok(Arg::Node(given.node))
            }
            value if value.is_none() && meta.sizes.iter().all(|size| size.is(1)) => Ok(Arg::Const(Const::None)),
            _ => refused("of what is no scalar"),
        }
    }

    /// What the thread does with gradients that only autograd's engine knows of.
    pub(crate) fn check_thread(&mut self, call: &str) -> Flow<()> {
        let refused = |why: &str| stop(ReasonCode::SideEffect, format!("{call}: {why}"));
        let is_ours = match &self.frame.options.backend {
            BackendKind::Eager => true,
            BackendKind::Native(name) => name == "cpu" && self.frame.options.training.is_some(),
            BackendKind::Fx => false,
        };
        let ambient = &self.ambient;
        if let Some(reason) = &self.leaves_backward {
            let why = format!("with it the graph is none: {}", reason.detail);
            return refused(&why);
        }
        if !is_ours {
            return refused("the back end takes no derivatives");
        }
        if ambient.autocasts() || ambient.inference_mode {
            return refused("under autocast or inference mode");
        }
        if ambient.saved_tensor_hooks || ambient.observers != 0 {
            return refused("where somebody looks at what autograd does");
        }
        let regraded: Vec<TensorId> =
            self.arenas.tensors.iter().map(|(id, _)| id).filter(|id| self.regraded_leaf(*id)).collect();
        if regraded.iter().any(|id| !self.is_leaf_from_outside(*id)) {
            return refused("where a tensor ceased to require grad");
        }
        let together = self.eval(TOGETHER, vec![])?;
        if !matches!(together, Value::Const(Const::Bool(false))) {
            return refused("in processes that train together");
        }
        let source = self.function_source();
        self.guard(source, GuardKind::Gives(TOGETHER.into(), Const::Bool(false)));
        Ok(())
    }

    /// Metadata of the gradients of these tensors, as torch accumulates them, if they are leaves that nobody has a hook on.
    fn gradient_metas(&mut self, leaves: &[TensorId]) -> Flow<Vec<ValueMeta>> {
        let mut objects = Vec::new();
        let mut metas = Vec::new();
        for leaf in leaves {
            let tensor = &self.arenas.tensors[*leaf];
            let origin = tensor.origin;
            let TensorMeta { dtype, device, sizes, strides, .. } = tensor.meta.clone();
            if !dtype.is_float() || !device.is_cpu() {
                return refused("a leaf of another type or device");
            }
            let dense = flambeau_ir::tensor::is_dense(&sizes, &strides);
            let strides = if dense { strides } else { contiguous_strides(&sizes) };
            metas.push(ValueMeta::Tensor(TensorMeta { dtype, device, sizes, strides, requires_grad: false }));
            let Some(origin) = origin else { continue };
            objects.push(origin);
            if let AnswerValue::Missing = self.ask_one(Question::Grad(origin.object))? {
                return refused("a tensor from outside that is no leaf");
            }
        }
        let hooked = self.ask_one(Question::Hooked(objects.iter().map(|origin| origin.object).collect()))?;
        if hooked != AnswerValue::Const(Const::Bool(false)) {
            return refused("a leaf with a hook on its gradient");
        }
        objects.iter().for_each(|origin| self.guard(origin.source, GuardKind::NoHooks));
        Ok(metas)
    }

    pub(crate) fn tensors_by_node(&self) -> HashMap<NodeId, TensorId> {
        self.arenas.tensors.iter().map(|(id, tensor)| (tensor.node, id)).collect()
    }

    /// What autograd goes by on its way back from the values of these nodes as they are now.
    pub(crate) fn way_back(&self, from: &[NodeId]) -> Way {
        let tensors = self.tensors_by_node();
        let root = |id: NodeId| tensors.get(&id).map(|tensor| self.root(*tensor, true));
        // What calls took, and whose memory that was, as others wrote to it before.
        let mut taken: HashSet<NodeId> = from.iter().copied().collect();
        let mut roots: HashSet<TensorId> = from.iter().filter_map(|id| root(*id)).collect();
        let mut savers = BTreeSet::new();
        let followed = self.followed();
        for (at, node) in self.graph.nodes.iter().enumerate().rev() {
            let NodeOp::Call { target, args, kwargs } = &node.op else { continue };
            let id = NodeId(at as u32);
            let writes = self.graph.changed.iter().filter(|(writer, _)| *writer == id);
            let written = writes.map(|(_, tensor)| self.root(*tensor, true)).any(|root| roots.contains(&root));
            if !followed[at] || !(written || taken.contains(&id)) {
                continue;
            }
            if tensors.get(&id).is_some_and(|tensor| self.arenas.tensors[*tensor].is_leaf) || self.switches_grad(id) {
                continue;
            }
            let mut given = Vec::new();
            args.iter().chain(kwargs.iter().map(|(_, arg)| arg)).for_each(|arg| arg.nodes(&mut |id| given.push(id)));
            if flambeau_ops::canonical(target).is_some_and(|canon| canon.op.has(Mark::TakesForm)) {
                given.truncate(1);
            }
            if flambeau_ops::saved(target, args) != Saved::Nothing {
                savers.insert(id);
            }
            roots.extend(given.iter().filter_map(|of| root(*of)));
            taken.extend(given);
        }
        Way { taken, savers }
    }

    /// Whether a node is a call of `requires_grad_`.
    pub(crate) fn switches_grad(&self, id: NodeId) -> bool {
        let node = &self.graph.nodes[id.0 as usize];
        matches!(&node.op, NodeOp::Call { target, .. } if is(target_name(target), Mark::SetsGrad))
    }

    /// The leaves, and tensors from outside, at the end of a way.
    pub(crate) fn ends(&self, way: &Way) -> Vec<TensorId> {
        let is_end = |node: &Node| matches!(node.op, NodeOp::Placeholder(_));
        let ends = self.arenas.tensors.iter().filter(|(_, tensor)| {
            let is_leaf = tensor.is_leaf || is_end(&self.graph.nodes[tensor.node.0 as usize]);
            tensor.meta.requires_grad && is_leaf && way.taken.contains(&tensor.node)
        });
        ends.map(|(id, _)| id).collect()
    }

    /// For each node, whether autograd records its call.
    pub(crate) fn followed(&self) -> Vec<bool> {
        let mut on = self.frame.ambient.grad_enabled;
        let of_node = |node: &Node| {
            if let NodeOp::Call { target, args, .. } = &node.op
                && let (true, [Arg::Const(Const::Bool(now))]) = (target.sets_grad_mode(), args.as_slice())
            {
                on = *now;
            }
            on && requires_grad(&node.meta)
        };
        self.graph.nodes.iter().map(of_node).collect()
    }

    /// Which outputs autograd can go back from no more, as `backward()` freed what it would read.
    pub(crate) fn ended(&self, outputs: &[NodeId]) -> Vec<u32> {
        if self.graph.freed.is_empty() {
            return Vec::new();
        }
        let is_ended = |output: &NodeId| {
            requires_grad(&self.graph.nodes[output.0 as usize].meta)
                && self.way_back(&[*output]).savers.iter().any(|saver| self.graph.freed.contains(saver))
        };
        (0..).zip(outputs).filter(|(_, output)| is_ended(output)).map(|(at, _)| at).collect()
    }
}

fn requires_grad(meta: &ValueMeta) -> bool {
    match meta {
        ValueMeta::Tensor(meta) => meta.requires_grad,
        ValueMeta::Tuple(parts) => parts.iter().any(requires_grad),
        _ => false,
    }
}
