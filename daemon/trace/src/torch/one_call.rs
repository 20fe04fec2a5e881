//! Python code that the graph calls as a whole, as autograd keeps one node for it: it is traced for what it gives, and the
//! graph has one call, which runs the code itself. So the code may do nothing that shows but what it gives, and may read
//! nothing that the frame changes ([`Tracer::need_unchanged`]).

use super::{Mark, Tracer, is, target_name};
use crate::state::graph::Writes;
use crate::value::flow::{Flow, stop};
use crate::value::{SetValue, TensorId, Value};
use flambeau_ir::frame::BackendKind;
use flambeau_ir::graph::{Arg, Effect, Node, NodeId, NodeOp, Target, ValueMeta};
use flambeau_ir::guard::Ambient;
use flambeau_ir::reason::ReasonCode;

/// The modules of what the graph calls so.
const MODULE: &str = "flambeau._function.";

/// Whether it is such a call.
pub(super) fn is_opaque(target: &Target) -> bool {
    matches!(target, Target::Function(path) if path.starts_with(MODULE))
}

/// How far the trace was when the code began.
pub(super) struct Start {
    pub nodes: usize,
    writes: Writes,
    changed: usize,
    objects: [usize; 8],
    effects: usize,
    recalled: usize,
    commits: bool,
    reads_frames: bool,
    ambient: Ambient,
}

impl Tracer<'_> {
    /// What `path` gives for `args`, as `traced` says: a pair of the outputs, and of those tensors among them that require
    /// no grad. All others of them do, where their type can.
    pub(crate) fn one_call(
        &mut self,
        path: &str,
        args: &[Value],
        traced: impl FnOnce(&mut Self) -> Flow<Value>,
    ) -> Flow<Value> {
        if self.frame.options.backend == BackendKind::Fx {
            return stop(ReasonCode::UnsupportedCall, "torch._C._FunctionBase.apply");
        }
        let is_changed_set = |set: &SetValue| set.origin.is_some() && set.is_changed();
        if self.has_other_state()
            || self.drawn().next().is_some()
            || self.arenas.sets.iter().any(|(_, set)| is_changed_set(set))
        {
            return stop(ReasonCode::SideEffect, "a torch.autograd.Function where the frame changed what it may read");
        }
        // The outer one looks at what both do.
        let inner = self.in_one_call;
        let graph_args = args.iter().map(|arg| self.passed_on(arg)).collect::<Flow<Vec<Arg>>>()?;
        let before = self.arenas.oldest();
        let start = self.start(inner);
        self.in_one_call = true;
        let traced = traced(self);
        self.in_one_call = inner;
        let shows = self.shows_since(&start) || self.draws_since(&start);
        self.arenas.watch_also(before);
        let Value::Tuple(traced) = traced? else {
            return stop(ReasonCode::Internal, "what one call gives is no pair");
        };
        if !inner && shows {
            return stop(ReasonCode::SideEffect, "a torch.autograd.Function that does more than give its outputs");
        }
        let [outputs, plain] = &traced.items[..] else {
            return stop(ReasonCode::Internal, "what one call gives is no pair");
        };
        let Value::Tuple(plain) = plain else { return stop(ReasonCode::Internal, "outputs that are no tuple") };
        let (meta, base) = self.given(outputs, &plain.items, args, &start)?;
        self.graph.drop_calls(start.nodes, |_, _| true);
        self.forget_casts(start.nodes);
        self.graph.changed.truncate(start.changed);
        self.graph.before.commits = start.commits;
        let target = Target::Function(path.into());
        self.note_call(Effect::None, false);
        let call = |tracer: &mut Self| tracer.graph_call(&target, graph_args, vec![], meta.clone());
        let node = if self.ambient.autocasts() { self.in_autocast(call)? } else { call(self)? };
        self.graph.nodes[node.0 as usize].fresh = base.is_none() && !self.graph.may_view;
        self.node_value(node, &meta, base, &target)
    }

    /// An argument of a call that takes any object.
    pub(crate) fn passed_on(&mut self, value: &Value) -> Flow<Arg> {
        flambeau_ir::bounds::check();
        Ok(match value {
            Value::Tensor(id) => Arg::Node(self.arenas.tensors[*id].node),
            Value::Const(c) => Arg::Const(c.clone()),
            Value::Int(dim) => Arg::Dim(dim.clone()),
            Value::Tuple(tuple) if tuple.class.is_none() => {
                Arg::Tuple(tuple.items.iter().map(|item| self.passed_on(item)).collect::<Flow<_>>()?)
            }
            Value::List(list)
                if self.arenas.lists[*list].origin.is_none() && self.arenas.lists[*list].class.is_none() =>
            {
                let items = self.arenas.lists[*list].items.clone();
                Arg::List(items.iter().map(|item| self.passed_on(item)).collect::<Flow<_>>()?)
            }
            _ => match self.origin_of(value) {
                Some(origin) => {
                    let known = |node: &Node| {
                        matches!(node.op, NodeOp::Placeholder(at) if at == origin.source)
                            && node.meta == ValueMeta::Object
                    };
                    let found = self.graph.nodes.iter().position(known).map(|at| NodeId(at as u32));
                    let name = self.input_name(origin.source);
                    Arg::Node(found.unwrap_or_else(|| self.graph.placeholder(origin.source, &name, ValueMeta::Object)))
                }
                None => {
                    let name = self.type_name(value);
                    return stop(ReasonCode::UnsupportedObject, format!("a new {name} as an argument of apply"));
                }
            },
        })
    }

    /// Where the trace is. From here on, or `still`, it looks at what is written to.
    pub(super) fn start(&mut self, still: bool) -> Start {
        Start {
            nodes: self.graph.nodes.len(),
            writes: self.graph.writes,
            changed: self.graph.changed.len(),
            objects: self.arenas.watch(still),
            effects: self.changed_outside(),
            recalled: self.recalled.len(),
            commits: self.graph.before.commits,
            reads_frames: self.frames_read,
            ambient: self.ambient.clone(),
        }
    }

    fn draws_since(&self, start: &Start) -> bool {
        self.graph.nodes[start.nodes..].iter().any(|node| node.effect == Effect::Draws)
    }

    /// Whether code since then did anything that shows, but for drawing random numbers.
    pub(super) fn shows_since(&self, start: &Start) -> bool {
        let acts = |node: &Node| match &node.op {
            NodeOp::Call { target, .. } if is(target_name(target), Mark::SetsGrad) => false,
            _ => node.effect == Effect::Commits,
        };
        let is_older =
            |tensor: TensorId| (self.root(tensor, false).0 as usize) < start.objects[0] || self.is_outside(tensor);
        self.graph.nodes[start.nodes..].iter().any(acts)
            || self.graph.writes != start.writes
            || self.graph.changed[start.changed..].iter().any(|(_, tensor)| is_older(*tensor))
            || self.arenas.wrote_to_older(start.objects)
            || self.changed_outside() != start.effects
            || self.recalled.len() != start.recalled
            || self.frames_read != start.reads_frames
            || self.ambient != start.ambient
    }

    /// The metadata of outputs, and what a single one is a view of.
    fn given(
        &self,
        outputs: &Value,
        plain: &[Value],
        args: &[Value],
        start: &Start,
    ) -> Flow<(ValueMeta, Option<TensorId>)> {
        let part = |value: &Value| -> Flow<ValueMeta> {
            Ok(match value {
                Value::Tensor(id) => {
                    let mut meta = self.arenas.tensors[*id].meta.clone();
                    let is_plain = |other: &Value| matches!(other, Value::Tensor(other) if other == id);
                    meta.requires_grad = flambeau_ops::differentiable(meta.dtype) && !plain.iter().any(is_plain);
                    ValueMeta::Tensor(meta)
                }
                Value::Const(c) => ValueMeta::Const(c.clone()),
                Value::Int(dim) => ValueMeta::Int(dim.clone()),
                _ => {
                    return stop(
                        ReasonCode::UnsupportedObject,
                        "an output of a torch.autograd.Function that is no tensor",
                    );
                }
            })
        };
        let is_new = |id: TensorId| (id.0 as usize) >= start.objects[0] && self.arenas.tensors[id].origin.is_none();
        match outputs {
            // An argument that is given back becomes a view of itself.
            Value::Tensor(id) if args.iter().any(|arg| matches!(arg, Value::Tensor(arg) if arg == id)) => {
                Ok((part(outputs)?, Some(*id)))
            }
            Value::Tensor(id) if is_new(*id) => Ok((part(outputs)?, self.arenas.tensors[*id].base)),
            Value::Tuple(parts) if parts.class.is_none() => {
                let tensors =
                    parts.items.iter().filter_map(|item| if let Value::Tensor(id) = item { Some(*id) } else { None });
                let mut seen = Vec::new();
                for id in tensors {
                    if !is_new(id) || self.arenas.tensors[id].base.is_some() || seen.contains(&id) {
                        return stop(
                            ReasonCode::UnsupportedCall,
                            "a torch.autograd.Function with views among its outputs",
                        );
                    }
                    seen.push(id);
                }
                Ok((ValueMeta::Tuple(parts.items.iter().map(part).collect::<Flow<_>>()?), None))
            }
            _ => stop(ReasonCode::UnsupportedObject, "outputs of a torch.autograd.Function that are no tensors"),
        }
    }
}
