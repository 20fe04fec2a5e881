//! Torch calls: graph nodes with metadata from the op rules or the client.

mod ambient;
mod asked;
mod attr;
mod autocast;
mod backward;
pub(crate) mod checkpoint;
mod checks;
mod fold;
mod indices;
mod input;
mod itself;
mod one_call;
mod overlap;
pub mod results;

use crate::state::graph::{Drawn, Writes};
use crate::state::tracer::Tracer;
use crate::value::Args;
use crate::value::flow::{Flow, stop};
use crate::value::{Class, Payload, TensorId, TensorValue, Tuple, Value};
use flambeau_ir::code::Const;
use flambeau_ir::graph::{Arg, Effect, NodeId, NodeOp, Target, ValueMeta};
use flambeau_ir::guard::{Guard, GuardKind};
use flambeau_ir::oracle::{AnswerValue, QueryArg, Question};
use flambeau_ir::reason::ReasonCode;
use flambeau_ir::source::SourceId;
use flambeau_ir::tensor::TensorMeta;
use flambeau_ops::{InferError, Inferred, Mark, OpArg, OpDef};
use std::rc::Rc;
use std::sync::Arc;

/// The base of `torch.autograd.Function` and of the contexts that its `forward` is given.
pub(crate) const FUNCTION_BASE: &str = "torch._C._FunctionBase.";

/// Sequences in each other as an argument: no tensor has as many dimensions.
const DEEPEST: usize = 70;
/// Sequences in one argument of a call.
const MOST_SEQUENCES: usize = 100_000;

/// Arguments of a call as graphs and as rules have them: positional, positional, by keyword, by keyword.
type CallArgs = (Vec<Arg>, Vec<OpArg>, Vec<(Arc<str>, Arg)>, Vec<(Arc<str>, OpArg)>);

impl Tracer<'_> {
    /// Calls a function of torch's by import path that is not folded.
    pub(crate) fn call_torch_path(&mut self, path: &str, args: Args) -> Flow<Value> {
        let known = path.starts_with("torch.") || path.starts_with("_operator.");
        if !known {
            return stop(ReasonCode::UnsupportedCall, path);
        }
        if path.strip_prefix(FUNCTION_BASE) == Some("apply") {
            return stop(ReasonCode::UnsupportedCall, "apply of a torch.autograd.Function");
        }
        let op = flambeau_ops::known(path);
        if op.is_some_and(|op| op.has(Mark::Asks)) {
            return self.ask_itself(path);
        }
        if op.is_some_and(|op| op.has(Mark::ReadsData)) {
            return stop(ReasonCode::DataDependentValue, path);
        }
        if op.is_some_and(OpDef::acts_elsewhere) {
            return stop(ReasonCode::SideEffect, path);
        }
        match path.strip_prefix("torch.Tensor.") {
            Some(method) => self.torch_call(Target::Method(method.into()), args),
            None if self.holds_tensor_work(path, &args) => self.torch_call(Target::Function(path.into()), args),
            None => stop(ReasonCode::UnsupportedCall, path),
        }
    }

    /// The break at a call whose result no rule gives.
    fn refused<T>(
        &mut self,
        target: &Target,
        error: &InferError,
        args: &[OpArg],
        kwargs: &[(Arc<str>, OpArg)],
    ) -> Flow<T> {
        let code = match error {
            InferError::Invalid(_) => ReasonCode::Shape,
            InferError::Unknown(_) | InferError::NoRule | InferError::Refused | InferError::Told => {
                ReasonCode::OpUnknown
            }
            InferError::Dynamic(_) => {
                self.fix_sizes(args, kwargs);
                ReasonCode::DynamicShape
            }
        };
        let (InferError::Invalid(message) | InferError::Unknown(message) | InferError::Dynamic(message)) = error else {
            return stop(code, target_name(target));
        };
        stop(code, format!("{}: {message}", target_name(target)))
    }

    /// Whether a torch function may enter the graph: it takes tensors, or makes one.
    fn holds_tensor_work(&mut self, path: &str, args: &Args) -> bool {
        is(path, Mark::Makes) || args.values().any(|v| self.has_tensor(v))
    }

    fn has_tensor(&mut self, value: &Value) -> bool {
        flambeau_ir::bounds::check();
        match value {
            Value::Tensor(_) => true,
            Value::Tuple(t) => t.items.iter().any(|v| self.has_tensor(v)),
            Value::List(list) => self.list_items(*list).is_ok_and(|items| {
                items.iter().any(|v| matches!(v, Value::Tensor(_) | Value::Tuple(_) | Value::List(_)))
            }),
            _ => false,
        }
    }

    /// Whether sequences are nested to a depth only, which one that contains itself is not.
    fn is_shallow(&mut self, value: &Value, depth: usize, left: &mut usize) -> bool {
        let items = match value {
            Value::Tuple(tuple) => tuple.items.clone(),
            Value::List(list) => self.list_items(*list).cloned().unwrap_or_default(),
            _ => return true,
        };
        *left = left.saturating_sub(1);
        depth > 0 && *left > 0 && items.iter().all(|item| self.is_shallow(item, depth - 1, left))
    }

    /// Emits a call of `target` and gives its value.
    pub fn torch_call(&mut self, target: Target, args: Args) -> Flow<Value> {
        if let Some(value) = self.keeps_grad(&target, &args) {
            return Ok(value);
        }
        if self.ambient.autocasts() { self.call_under_autocast(target, args) } else { self.plain_call(target, args) }
    }

    /// The same where torch takes the tensors as they are.
    fn plain_call(&mut self, target: Target, args: Args) -> Flow<Value> {
        let (graph_args, op_args, graph_kwargs, op_kwargs) = self.call_args(&args)?;
        self.check_leaf_made(&target, &args)?;
        self.check_data(&target, &args)?;
        self.check_numbers(&target, &args)?;
        let ambient = self.ambient.clone();
        let answer = flambeau_ops::infer(&target, &op_args, &op_kwargs, &ambient, self);
        // What an op is made of has casts of its own under autocast.
        let is_torchs = |error: &InferError| *error == InferError::Refused || ambient.autocasts();
        let (by_rule, torchs) = (answer.is_ok(), answer.as_ref().is_err_and(is_torchs));
        let (inferred, (fresh, schema)) = match answer {
            Ok(inferred) => (inferred, (false, None)),
            Err(error) => match self.told_by_torch(&target, error, &args, (&op_args, &op_kwargs))? {
                Asked::Known(value) => return Ok(value),
                Asked::Call(inferred, told) => (inferred, told),
            },
        };
        let argument = |i: usize| args.values().nth(i);
        let is_outside = |i: &usize| argument(*i).is_some_and(|value| self.shows_outside(value));
        let writes_outside = inferred.mutates.iter().any(is_outside);
        let effect = effect_of(&target, (&graph_args, &graph_kwargs), &inferred, by_rule, writes_outside);
        let commits = effect == Effect::Commits;
        let checks = inferred.checks && self.check_failure(&target, (&graph_args, &graph_kwargs), commits, by_rule)?;
        self.check_out(&target, &args, &inferred.meta)?;
        if !by_rule && !fresh {
            self.graph.may_view = true;
            self.need_known_places(&target, &args)?;
        }
        if !inferred.mutates.is_empty() {
            self.check_leaves(&target, inferred.mutates.iter().filter_map(|i| argument(*i)).cloned())?;
            self.note_write(&target, writes_outside);
            self.check_write(&target, &args, &graph_args, &inferred.mutates)?;
        }
        let base = match inferred.view_of.and_then(argument).filter(|_| !flambeau_ir::mutated!("view_as_fresh")) {
            Some(Value::Tensor(id)) => Some(*id),
            _ => None,
        };
        let returned = inferred.returns_argument.and_then(argument).cloned();
        if let Some(value @ Value::Tensor(id)) = &returned
            && inferred.mutates.is_empty()
            && inferred.meta.as_tensor() == Some(&self.arenas.tensors[*id].meta)
        {
            // `contiguous()` of a contiguous tensor and the like: nothing happens.
            return Ok(value.clone());
        }
        let passed = self.passed(&target, &args, &inferred.meta)?;
        if let Some(all) = passed.iter().cloned().collect::<Option<Vec<_>>>().filter(|all| !all.is_empty()) {
            return Ok(Value::tuple(all));
        }
        self.note_call(effect, checks);
        let node = self.graph_call(&target, graph_args, graph_kwargs, inferred.meta.clone())?;
        self.note_changed(node, inferred.mutates.iter().filter_map(|i| argument(*i)).cloned());
        let known = &mut self.graph.nodes[node.0 as usize];
        known.effect = effect;
        (known.torchs, known.fresh, known.schema) = (torchs, fresh, schema);
        known.view = inferred.view_of.is_some() && inferred.meta.as_tensor().is_some_and(TensorMeta::is_symbolic);
        if inferred.meta.as_tensor().is_none() {
            self.grad_of_written(&args, &inferred.mutates)?;
        }
        if let Some(value @ Value::Tensor(id)) = &returned {
            if let ValueMeta::Tensor(meta) = &inferred.meta {
                self.changed_by_call(*id, meta, &target, &args)?;
            }
            return Ok(value.clone());
        }
        if let (Some(base), ValueMeta::Tensor(meta)) = (base, &inferred.meta)
            && is(target_name(&target), Mark::Severs)
        {
            return Ok(self.severed_tensor(node, meta.clone(), base));
        }
        let made = self.made_by_call(node, &inferred.meta, base, (&target, &args), passed)?;
        if inferred.chosen {
            self.note_chosen(&made);
        }
        Ok(made)
    }

    /// What a call gives that is new, and beside that the arguments that it `passed`.
    fn made_by_call(
        &mut self,
        node: NodeId,
        meta: &ValueMeta,
        base: Option<TensorId>,
        (target, args): (&Target, &Args),
        passed: Vec<Option<Value>>,
    ) -> Flow<Value> {
        let value = self.node_value(node, meta, base, target)?;
        match &value {
            Value::Tuple(made) if !passed.is_empty() => {
                let each = made.items.iter().zip(passed);
                return Ok(Value::tuple(each.map(|(made, passed)| passed.unwrap_or_else(|| made.clone())).collect()));
            }
            Value::Tensor(id) if itself::makes_leaf(args) => self.arenas.tensors[*id].is_leaf = true,
            _ => {}
        }
        Ok(value)
    }

    /// What torch says of a call for which a rule has no answer.
    fn told_by_torch(
        &mut self,
        target: &Target,
        error: InferError,
        args: &Args,
        (op_args, op_kwargs): (&[OpArg], &[(Arc<str>, OpArg)]),
    ) -> Flow<Asked> {
        match error {
            InferError::NoRule | InferError::Refused | InferError::Told => {
                self.ask_meta(target, args, op_args, op_kwargs)
            }
            error => self.refused(target, &error, op_args, op_kwargs),
        }
    }

    /// The arguments of a torch call, for the graph and for rules: positional ones, then keywords.
    fn call_args(&mut self, args: &Args) -> Flow<CallArgs> {
        let named: Vec<Value> = args.kw.iter().map(|(_, value)| value.clone()).collect();
        for value in args.pos.iter().chain(&named) {
            if !self.is_shallow(value, DEEPEST, &mut MOST_SEQUENCES.clone()) {
                return stop(ReasonCode::UnsupportedObject, "sequences nested deep as an argument of a torch call");
            }
        }
        let (graph_args, op_args) = self.torch_args(&args.pos)?;
        let (graph_kwargs, op_kwargs) = self.torch_args(&named)?;
        let names = || args.kw.iter().map(|(name, _)| name.clone());
        Ok((graph_args, op_args, names().zip(graph_kwargs).collect(), names().zip(op_kwargs).collect()))
    }

    fn note_write(&mut self, target: &Target, outside: bool) {
        if is(target_name(target), Mark::SetsGrad) {
            return;
        }
        let writes = match (outside, self.graph.may_view) {
            (true, _) => Writes::Inputs,
            (false, true) => Writes::PerhapsInputs,
            (false, false) => Writes::Nothing,
        };
        self.graph.writes = self.graph.writes.max(writes);
    }

    /// What later calls have before them, behind this one.
    pub(crate) fn note_call(&mut self, effect: Effect, checks: bool) {
        let handles = self.handles_errors();
        let before = &mut self.graph.before;
        before.commits |= effect == Effect::Commits && !flambeau_ir::mutated!("commit_forgotten");
        before.handled |= checks && handles;
        if effect == Effect::Draws {
            before.drawn = before.drawn.max(Drawn::Some);
        }
        if checks && before.drawn == Drawn::Some {
            before.drawn = Drawn::BeforeCheck;
        }
    }

    /// A tensor that a call changed and gives back.
    fn changed_by_call(&mut self, id: TensorId, meta: &TensorMeta, target: &Target, args: &Args) -> Flow<()> {
        if is(target_name(target), Mark::Severs) {
            return self.detached(id);
        }
        if is(target_name(target), Mark::SetsGrad) {
            return self.grad_switched(id, args);
        }
        let tensor = &mut self.arenas.tensors[id];
        let newly = meta.requires_grad && !tensor.meta.requires_grad;
        tensor.is_leaf &= !newly;
        tensor.meta = meta.clone();
        if newly {
            self.spread_grad(id);
        }
        Ok(())
    }

    /// A graph that fails behind its commit point is not run again as plain Python: no handler of the user would run, and
    /// what the frame did to outside objects would be lost. A call that may fail then is one of plain Python, unless what
    /// it would raise for is found before the graph runs. Gives whether it may fail where it stands.
    fn check_failure(
        &mut self,
        target: &Target,
        args: indices::GraphArgs<'_>,
        commits: bool,
        by_rule: bool,
    ) -> Flow<bool> {
        if !(commits || self.graph.before.commits) || self.frame.options.fullgraph {
            return Ok(true);
        }
        let what = if self.handles_errors() {
            "may raise in a try or with block, once inputs are written to or random numbers drawn"
        } else if self.has_effects() {
            "may raise after changes to objects, once inputs are written to or random numbers drawn"
        } else {
            return Ok(true);
        };
        if by_rule && let Some(check) = self.index_check(target, args) {
            if !self.indices.contains(&check) {
                self.indices.push(check);
            }
            return Ok(false);
        }
        stop(ReasonCode::SideEffect, format!("{} {what}", target_name(target)))
    }

    /// Whether a frame handles exceptions of the call in a way that user code can see.
    fn handles_errors(&self) -> bool {
        self.stack.iter().any(|frame| frame.handles)
    }

    /// Whether the value is, or holds, a tensor that was there before the trace, or a view of one.
    fn shows_outside(&self, value: &Value) -> bool {
        match value {
            Value::Tensor(id) => self.is_outside(*id),
            Value::Tuple(tuple) => tuple.items.iter().any(|item| self.shows_outside(item)),
            Value::List(list) => self.arenas.lists[*list].items.iter().any(|item| self.shows_outside(item)),
            _ => false,
        }
    }

    /// Torch refuses to change a leaf that requires grad, also through a view of it, and views of which one call made
    /// several: that call runs in plain Python, where its exception meets the user's frames and handlers.
    fn check_leaves(&mut self, target: &Target, written: impl Iterator<Item = Value>) -> Flow<()> {
        if !self.ambient.grad_enabled || is(target_name(target), Mark::SetsGrad) {
            return Ok(());
        }
        for value in written {
            let Value::Tensor(id) = value else { continue };
            let owner = &self.arenas.tensors[self.root(id, true)];
            if owner.is_leaf && owner.meta.requires_grad {
                let name = target_name(target);
                return stop(ReasonCode::SideEffect, format!("{name} on a leaf or view that requires grad"));
            }
            if let Some(origin) = &owner.origin {
                self.guard_no_leaf(origin.source);
            }
        }
        Ok(())
    }

    fn requires_grad(&self, value: &Value) -> bool {
        matches!(value, Value::Tensor(id) if self.arenas.tensors[*id].meta.requires_grad)
    }

    /// Whether one call made several views of the tensor's memory, or a `torch.autograd.Function` made one: autograd refuses
    /// writes to them, and to use them after a write to what they show.
    fn has_several_views(&self, id: TensorId) -> bool {
        let root = self.root(id, true);
        let is_one_of_several = |tensor: &TensorValue| {
            let node = self.graph.nodes.get(tensor.node.0 as usize);
            matches!(node.map(|n| &n.op), Some(NodeOp::Call { target, args, .. }) if one_call::is_opaque(target)
                || matches!(args.first(), Some(Arg::Node(from))
                if matches!(self.graph.nodes[from.0 as usize].meta, ValueMeta::Tuple(_))))
        };
        let mut views =
            self.arenas.tensors.iter().filter(|(view, tensor)| tensor.base.is_some() && self.root(*view, true) == root);
        views.any(|(_, tensor)| is_one_of_several(tensor))
    }

    /// Adds to the guard of an input that requires grad that it is neither a leaf nor a view.
    fn guard_no_leaf(&mut self, source: SourceId) {
        let of_input = |guard: &&mut Guard| guard.source == source;
        for guard in self.guards.iter_mut().filter(of_input) {
            if let GuardKind::Tensor(tensor) = &mut guard.kind {
                tensor.is_leaf_or_view = tensor.requires_grad.then_some(false);
            }
        }
    }

    /// Whether the tensor, or what it is a view of, was there before the trace.
    fn is_outside(&self, id: TensorId) -> bool {
        let tensor = &self.arenas.tensors[id];
        tensor.origin.is_some() || tensor.base.is_some_and(|base| self.is_outside(base))
    }

    /// What a call that returns something else makes of the tensors it writes to (`a[i] = b`).
    fn grad_of_written(&mut self, args: &Args, written: &[usize]) -> Flow<()> {
        let all: Vec<Value> = args.values().cloned().collect();
        if !self.ambient.grad_enabled || written.is_empty() || !all.iter().any(|v| self.requires_grad(v)) {
            return Ok(());
        }
        for i in written {
            match all.get(*i) {
                Some(Value::Tensor(id)) => self.spread_grad(*id),
                _ => return stop(ReasonCode::SideEffect, "a write to several tensors that needs gradients"),
            }
        }
        Ok(())
    }

    /// The tensor whose storage a view shares, through all views made in the trace, or, with `of_history`, those that
    /// autograd knows of.
    pub(crate) fn root(&self, mut id: TensorId, of_history: bool) -> TensorId {
        while let TensorValue { base: Some(base), severed, .. } = &self.arenas.tensors[id]
            && !(of_history && *severed)
        {
            id = *base;
        }
        id
    }

    /// Whether two tensors are views of one, or views that were there before the trace.
    pub(super) fn share_memory(&self, a: TensorId, b: TensorId) -> bool {
        let (a, b) = (self.root(a, false), self.root(b, false));
        a == b || self.storage(a).is_some_and(|storage| Some(storage) == self.storage(b))
    }

    /// The storage of an input.
    fn storage(&self, id: TensorId) -> Option<u32> {
        let origin = self.arenas.tensors[id].origin?;
        self.inputs.iter().find(|(input, _)| *input == origin).map(|(_, storage)| *storage)
    }

    /// A write that needs a gradient gives one to the written tensor's base and to every view of it.
    fn spread_grad(&mut self, written: TensorId) {
        let root = self.root(written, true);
        let shared: Vec<TensorId> =
            self.arenas.tensors.iter().map(|(id, _)| id).filter(|id| self.root(*id, true) == root).collect();
        for id in shared {
            let tensor = &mut self.arenas.tensors[id];
            if flambeau_ops::differentiable(tensor.meta.dtype) {
                tensor.is_leaf &= tensor.meta.requires_grad;
                tensor.meta.requires_grad = true;
            }
        }
    }

    /// Refuses writes whose result depends on the order in which elements are written, or that torch itself refuses:
    /// into one view of a tensor, reading another. Torch decides these in plain Python, where it may raise.
    fn check_write(&mut self, target: &Target, args: &Args, graph_args: &[Arg], written: &[usize]) -> Flow<()> {
        if args.kw.iter().any(|(name, value)| &**name == "out" && matches!(value, Value::Tuple(_) | Value::List(_))) {
            return stop(ReasonCode::UnsupportedCall, format!("{} with several out tensors", target_name(target)));
        }
        let all: Vec<&Value> = args.values().collect();
        let with_history = self.ambient.grad_enabled && all.iter().any(|value| self.requires_grad(value));
        for i in written {
            let Some(Value::Tensor(into)) = all.get(*i) else { continue };
            if with_history && self.has_several_views(*into) {
                let name = target_name(target);
                return stop(ReasonCode::SideEffect, format!("{name} on what unbind, split or chunk gave views of"));
            }
            if with_history && let Some(storage) = self.storage(self.root(*into, false)) {
                if self.inputs.iter().filter(|(_, other)| *other == storage).count() > 1 {
                    let name = target_name(target);
                    return stop(ReasonCode::SideEffect, format!("{name} on what another input is a view of"));
                }
                self.written.insert(storage);
            }
            if self.shows_chosen(*into) {
                let name = target_name(target);
                return stop(ReasonCode::SideEffect, format!("{name} on what a tensor chose a part of"));
            }
            let meta = &self.arenas.tensors[*into].meta;
            if meta
                .sizes
                .iter()
                .zip(&meta.strides)
                .any(|(size, stride)| stride.is(0) && size.as_const().is_none_or(|n| n > 1))
            {
                // Torch refuses, which eager does where the program stands and a plan only behind its commit point.
                let name = target_name(target);
                return stop(ReasonCode::SideEffect, format!("{name} into an expanded tensor"));
            }
            for (j, other) in all.iter().enumerate() {
                if let Value::Tensor(from) = other
                    && j != *i
                    && from != into
                    && self.share_memory(*from, *into)
                    && !self.is_item(*from, graph_args)
                    && !self.writes_elsewhere(target, *into, *from, graph_args)
                {
                    let name = target_name(target);
                    return stop(ReasonCode::SideEffect, format!("{name} from one view of a tensor into another"));
                }
            }
        }
        Ok(())
    }

    /// Whether `view` is the very item that `container[key] = view` stores to, as in `container[key] += 1`.
    fn is_item(&self, view: TensorId, store: &[Arg]) -> bool {
        let (Some(NodeOp::Call { target: Target::Function(path), args, .. }), [container, key, _]) =
            (self.graph.nodes.get(self.arenas.tensors[view].node.0 as usize).map(|n| &n.op), store)
        else {
            return false;
        };
        &**path == "_operator.getitem" && args.as_slice() == [container.clone(), key.clone()]
    }

    /// The value of a node with this metadata.
    fn node_value(&mut self, node: NodeId, meta: &ValueMeta, base: Option<TensorId>, target: &Target) -> Flow<Value> {
        Ok(match meta {
            ValueMeta::Tensor(meta) => self.new_tensor(node, meta.clone(), base),
            ValueMeta::Int(dim) => Value::dim(dim.clone()),
            ValueMeta::Const(c) => self.constant(c.clone()),
            ValueMeta::Object => return stop(ReasonCode::Internal, "a call that gives an object"),
            ValueMeta::Tuple(parts) => {
                let mut items = Vec::with_capacity(parts.len());
                for (i, part) in parts.iter().enumerate() {
                    let args = vec![Arg::Node(node), Arg::Const(Const::Int(i as i64))];
                    let getitem = Target::Function("_operator.getitem".into());
                    let item = match part {
                        ValueMeta::Tensor(_) | ValueMeta::Tuple(_) => {
                            let item = self.graph_call(&getitem, args, vec![], part.clone())?;
                            self.node_value(item, part, base, &getitem)?
                        }
                        _ => self.node_value(node, part, base, target)?,
                    };
                    items.push(item);
                }
                let path = format!("torch.return_types.{}", target_name(target).rsplit('.').next().unwrap_or_default());
                let class =
                    crate::torch::results::result_fields(&path).map(|_| Class::builtin(&path, &["builtins.tuple"]));
                Value::Tuple(Rc::new(Tuple { items, class, attrs: None, origin: None }))
            }
        })
    }

    /// A tensor made by a node.
    pub(crate) fn new_tensor(&mut self, node: NodeId, meta: TensorMeta, base: Option<TensorId>) -> Value {
        let is_leaf = !meta.requires_grad;
        let (class, origin, attrs, grad) = (None, None, None, None);
        let (severed, chosen) = (false, None);
        let tensor = TensorValue { node, meta, class, origin, attrs, is_leaf, base, grad, severed, chosen };
        Value::Tensor(self.arenas.tensors.push(tensor))
    }

    /// A tensor made by a node that shares the memory of `base` only.
    fn severed_tensor(&mut self, node: NodeId, meta: TensorMeta, base: TensorId) -> Value {
        let value = self.new_tensor(node, meta, Some(base));
        if let Value::Tensor(id) = &value {
            self.arenas.tensors[*id].severed = true;
        }
        value
    }

    /// Breaks at numbers, strings and sequences of the user whose class says in Python what they are: which of its methods torch
    /// calls, and which it reads past, differs from call to call.
    pub(crate) fn need_plain_argument(&mut self, value: &Value) -> Flow<()> {
        const OVERRIDES: [&str; 3] = ["__torch_function__", "__getattr__", "__getattribute__"];
        const SEQUENCES: [&str; 3] = ["__len__", "__getitem__", "__iter__"];
        const NUMBERS: [&str; 7] =
            ["__len__", "__getitem__", "__array__", "__float__", "__index__", "__int__", "__complex__"];
        let (is_plain, own) = match value {
            Value::Tuple(tuple) => (tuple.class.is_none(), &SEQUENCES[..]),
            Value::List(id) => (self.arenas.lists[*id].class.is_none(), &SEQUENCES[..]),
            Value::Instance(_) => (false, &NUMBERS[..]),
            _ => (true, &[][..]),
        };
        if is_plain {
            return Ok(());
        }
        for method in OVERRIDES.iter().chain(own) {
            if self.python_special(value, method)?.is_some() {
                let name = self.type_name(value);
                return stop(ReasonCode::UnsupportedObject, format!("a {name} as an argument of a torch call"));
            }
        }
        Ok(())
    }

    fn torch_arg(&mut self, value: &Value) -> Flow<(Arg, OpArg)> {
        flambeau_ir::bounds::check();
        self.need_plain_argument(value)?;
        Ok(match value {
            Value::Const(c) => (Arg::Const(c.clone()), OpArg::Const(c.clone())),
            Value::Tensor(id) => {
                let tensor = &self.arenas.tensors[*id];
                (Arg::Node(tensor.node), OpArg::Tensor(tensor.meta.clone()))
            }
            Value::Int(dim) => (Arg::Dim(dim.clone()), OpArg::Dim(dim.clone())),
            Value::Tuple(t) => {
                let (g, o) = self.torch_args(&t.items.clone())?;
                (Arg::Tuple(g), OpArg::Tuple(o))
            }
            Value::List(list) => {
                let items = self.list_items(*list)?.clone();
                let (g, o) = self.torch_args(&items)?;
                (Arg::List(g), OpArg::List(o))
            }
            _ if let Some([a, b, c]) = value.as_slice() => {
                let ((ga, oa), (gb, ob), (gc, oc)) = (self.torch_arg(a)?, self.torch_arg(b)?, self.torch_arg(c)?);
                (Arg::Slice(Box::new([ga, gb, gc])), OpArg::Slice(Box::new([oa, ob, oc])))
            }
            Value::Parts(parts) if let Some(Value::Const(c)) = self.kind_of(parts).number(parts) => {
                (Arg::Const(c.clone()), OpArg::Const(c))
            }
            _ if self.is_sequence_of_parts(value) => {
                let items = self.collect(value)?;
                let (g, o) = self.torch_args(&items)?;
                (Arg::List(g), OpArg::List(o))
            }
            Value::Instance(id) if matches!(self.arenas.instances[*id].payload, Payload::Const(_)) => {
                let Payload::Const(c) = &self.arenas.instances[*id].payload else {
                    return stop(ReasonCode::Internal, "no constant");
                };
                (Arg::Const(c.clone()), OpArg::Const(c.clone()))
            }
            other => {
                let name = self.type_name(other);
                return stop(ReasonCode::UnsupportedObject, format!("a {name} as an argument of a torch call"));
            }
        })
    }

    fn torch_args(&mut self, values: &[Value]) -> Flow<(Vec<Arg>, Vec<OpArg>)> {
        let mut graph = Vec::with_capacity(values.len());
        let mut ops = Vec::with_capacity(values.len());
        for value in values {
            let (g, o) = self.torch_arg(value)?;
            graph.push(g);
            ops.push(o);
        }
        Ok((graph, ops))
    }

    /// Asks the client for the metadata of a call without a native rule.
    fn ask_meta(
        &mut self,
        target: &Target,
        args: &Args,
        op_args: &[OpArg],
        op_kwargs: &[(Arc<str>, OpArg)],
    ) -> Flow<Asked> {
        let name = target_name(target);
        let query: Option<Vec<QueryArg>> = op_args.iter().map(query_arg).collect();
        let query_kw: Option<Vec<(String, QueryArg)>> =
            op_kwargs.iter().map(|(n, a)| Some((n.to_string(), query_arg(a)?))).collect();
        let (Some(query), Some(query_kw)) = (query, query_kw) else {
            self.fix_sizes(op_args, op_kwargs);
            return stop(ReasonCode::DynamicShape, format!("{name} has no rule for symbolic sizes"));
        };
        let question = Question::TorchCall {
            target: target.clone(),
            args: query,
            kwargs: query_kw,
            ambient: Box::new(self.ambient.clone()),
        };
        let checks = checks::may_raise(target, op_args, op_kwargs);
        let inplace = flambeau_ops::writes_first(target) && !args.pos.is_empty();
        let out = args.kw.iter().position(|(n, _)| &**n == "out");
        let written = if inplace { Some(0) } else { out.map(|i| args.pos.len() + i) };
        let argument = |i: usize| args.values().nth(i);
        if written.and_then(argument).is_some_and(|value| !matches!(value, Value::Tensor(_))) {
            return stop(ReasonCode::OpUnknown, format!("{name} writes to several tensors"));
        }
        let stores = is(name, Mark::Stores);
        let mut mutates: Vec<usize> = written.or(stores.then_some(0)).into_iter().collect();
        let answer = self.ask_one(question)?;
        let told = match &answer {
            AnswerValue::Fresh(_, schema) => (true, schema.as_deref().map(Arc::from)),
            _ => (false, None),
        };
        let mut meta = match answer {
            AnswerValue::Meta(meta) | AnswerValue::Fresh(meta, _) => meta,
            AnswerValue::Written(meta, places) => {
                let mut others = places.iter().map(|place| *place as usize).filter(|place| !mutates.contains(place));
                if meta == ValueMeta::Const(Const::None) && is_for_its_effect(name) {
                    mutates = others.collect();
                } else if others.next().is_some() {
                    return stop(ReasonCode::OpUnknown, format!("{name} writes to an argument"));
                }
                meta
            }
            AnswerValue::Const(c) => ValueMeta::Const(c),
            AnswerValue::Same(place) => match argument(place as usize) {
                Some(value) => return Ok(Asked::Known(value.clone())),
                None => return stop(ReasonCode::Internal, format!("{name} gives an argument that it has not")),
            },
            AnswerValue::Raised(class, message) => {
                return stop(ReasonCode::Shape, format!("{name}: {class}: {message}"));
            }
            other => return stop(ReasonCode::OpUnknown, format!("{name}: {other:?}")),
        };
        if !stores && let Some(c) = itself::no_tensor(&meta) {
            return match c {
                Some(c) if is(name, Mark::OfMetadata) => Ok(Asked::Known(self.constant(c))),
                Some(Const::None) if is_for_its_effect(name) => {
                    let known = Inferred { mutates, checks, ..Inferred::fresh(meta) };
                    Ok(Asked::Call(known, (false, None)))
                }
                // Fake tensors stand for their metadata, and for nothing else of a tensor.
                _ => self.ask_itself(name),
            };
        }
        if let (Some(_), ValueMeta::Tensor(meta)) = (written, &mut meta)
            && inplace
            && let Some(Value::Tensor(id)) = args.pos.first()
        {
            meta.requires_grad |= self.arenas.tensors[*id].meta.requires_grad;
        }
        let known = Inferred { returns_argument: written, mutates, checks, ..Inferred::fresh(meta) };
        Ok(Asked::Call(known, told))
    }
}

/// What the client says of a call.
enum Asked {
    /// Its value is known: nothing has to be called.
    Known(Value),
    /// What the call gives and writes to; whether it gives memory of its own, and the schema of the overload.
    Call(Inferred, (bool, Option<Arc<str>>)),
}

/// What a call does that is seen outside of the graph.
fn effect_of(
    target: &Target,
    (args, kwargs): indices::GraphArgs<'_>,
    inferred: &Inferred,
    by_rule: bool,
    writes_outside: bool,
) -> Effect {
    let draws = by_rule && inferred.rng || flambeau_ops::only_draws(target, args, kwargs);
    if by_rule && !inferred.mutates.is_empty() && !writes_outside && !inferred.rng {
        Effect::Private
    } else if draws && !writes_outside && on_cpu(&inferred.meta) {
        Effect::Draws
    } else if flambeau_ops::commits(target, args, kwargs) {
        Effect::Commits
    } else {
        Effect::None
    }
}

/// Whether all tensors that a call gives are on the CPU.
fn on_cpu(meta: &ValueMeta) -> bool {
    match meta {
        ValueMeta::Tensor(tensor) => tensor.device.is_cpu(),
        ValueMeta::Tuple(parts) => parts.iter().all(on_cpu),
        ValueMeta::Int(_) | ValueMeta::Const(_) | ValueMeta::Object => true,
    }
}

fn target_name(target: &Target) -> &str {
    match target {
        Target::Function(name) | Target::Method(name) => name,
    }
}

/// Whether this is known of the function or method.
fn is(name: &str, mark: Mark) -> bool {
    flambeau_ops::known(name).is_some_and(|op| op.has(mark))
}

/// Whether a call that gives `None` is made for what it does.
fn is_for_its_effect(path: &str) -> bool {
    path.starts_with("torch.ops.") || is(path, Mark::ForEffect)
}

fn query_arg(arg: &OpArg) -> Option<QueryArg> {
    Some(match arg {
        OpArg::Tensor(meta) => {
            let fixed = meta.sizes.iter().chain(&meta.strides).all(|d| d.as_const().is_some());
            fixed.then(|| QueryArg::Tensor(meta.clone()))?
        }
        OpArg::Const(c) => QueryArg::Const(c.clone()),
        OpArg::Dim(_) => return None,
        OpArg::List(items) => QueryArg::List(items.iter().map(query_arg).collect::<Option<_>>()?),
        OpArg::Tuple(items) => QueryArg::Tuple(items.iter().map(query_arg).collect::<Option<_>>()?),
        OpArg::Slice(parts) => {
            let mut fixed = Vec::with_capacity(3);
            for part in parts.iter() {
                match part {
                    OpArg::Const(c) => fixed.push(c.clone()),
                    _ => return None,
                }
            }
            let [a, b, c]: [Const; 3] = fixed.try_into().ok()?;
            QueryArg::Const(Const::Slice(Box::new([a, b, c])))
        }
    })
}
