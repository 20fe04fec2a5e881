//! Torch-level graph to core graph: calls are decomposed, views tracked, in-place ops turned into new values. What each op
//! means is in `daemon/ops`.

use crate::graph::follow::{Follow, Functional, requires_grad};
use crate::graph::foreign::Foreign;
use crate::graph::leaves::asked;
use crate::graph::opaque::{Call, complex, missing};
use crate::graph::regions::{geometry, has_overlap};
use crate::graph::value::{Base, Value};
use crate::graph::writes::written;
use crate::nest::affine::same_layout;
use crate::nest::group::memory_view;
use crate::options::LowerOptions;
use flambeau_core::graph::{Core, CoreId, CoreNode, CoreOp, CoreOutput, OutputBase};
use flambeau_ir::code::Const;
use flambeau_ir::dim::Dim;
use flambeau_ir::graph::{Arg, Graph, Node, NodeId, NodeOp, Target, ValueMeta};
use flambeau_ir::kernel::DType;
use flambeau_ir::reason::{Reason, ReasonCode};
use flambeau_ir::source::SourceId;
use flambeau_ir::tensor::{Device, TensorMeta};
use flambeau_ops::Mark;
use flambeau_ops::decompose::{Decompose, Outcome, View, apply, refuse};
use std::collections::{BTreeMap, BTreeSet};

/// A graph on its way.
pub struct Lowering<'a> {
    /// The graph.
    pub graph: &'a Graph,
    /// What is made of it.
    pub core: Core,
    /// Memory so far.
    pub bases: Vec<Base>,
    /// Of each node so far.
    pub values: Vec<Value>,
    inputs: Vec<SourceId>,
    draws: u32,
    /// Of the tensors so far.
    device: Option<Device>,
    pub options: &'a LowerOptions,
    pub in_place: bool,
    /// What autograd follows, where a derivative is to be taken.
    pub follow: Option<Follow>,
    /// Items of tuples that are arguments of the call, not new tensors.
    same: BTreeSet<(NodeId, i64)>,
    /// What shows a tensor's `data`: writes to it count as no change of the tensor.
    pub uncounted: BTreeSet<NodeId>,
    /// Nodes of which a gradient is asked for.
    asked: BTreeSet<NodeId>,
    /// Whose memory the result of the present call may be.
    pub lends: Vec<usize>,
}

/// Makes the core graph. What the back end cannot compute by its capabilities stays torch's. `in_place`: parts of inputs are
/// written where they lie.
/// `derived`: a derivative is to be taken of it, so that it says what autograd does not follow.
pub fn functionalise(
    graph: &Graph,
    options: &LowerOptions,
    in_place: bool,
    derived: bool,
) -> Result<Functional, Reason> {
    let mut lowering = Lowering {
        graph,
        core: Core::new(options.known.clone()),
        bases: vec![],
        values: vec![],
        inputs: vec![],
        draws: 0,
        device: None,
        options,
        in_place,
        follow: derived.then(Follow::default),
        same: BTreeSet::new(),
        uncounted: BTreeSet::new(),
        asked: asked(graph),
        lends: vec![],
    };
    for (at, node) in (0..).zip(&graph.nodes) {
        flambeau_ir::bounds::check_time();
        lowering.core.region = graph.checkpoint(NodeId(at));
        let value = lowering.node(node).map_err(|reason| located(graph, node, reason))?;
        lowering.values.push(value);
    }
    (lowering.core.device, lowering.core.region) = (lowering.device.unwrap_or_default(), None);
    lowering.finish()?;
    if lowering.core.unclear {
        return refuse("a part that is repeated, as its size is 1");
    }
    let (values, followed_outputs) = lowering.followed_outputs()?;
    let (reached, shared) = (lowering.reached(), lowering.shared());
    let (made_of, spent) = (lowering.made_of(), lowering.spent());
    Ok(Functional {
        followed_inputs: lowering.followed_inputs(),
        core: lowering.core,
        inputs: lowering.inputs,
        followed_outputs,
        values,
        made_of,
        reached,
        shared,
        spent,
        rewritten: lowering.follow.is_some_and(|follow| follow.rewritten),
    })
}

fn located(graph: &Graph, node: &Node, mut reason: Reason) -> Reason {
    if reason.stack.is_empty() {
        reason.stack.extend(node.location.and_then(|l| graph.locations.get(l as usize)).cloned());
    }
    reason
}

impl Lowering<'_> {
    fn node(&mut self, node: &Node) -> Result<Value, Reason> {
        if let Some(meta) = node.meta.as_tensor() {
            self.supported(meta)?;
        }
        match &node.op {
            NodeOp::Placeholder(source) => Ok(self.placeholder(*source, &node.meta)),
            NodeOp::Call { target, args, kwargs } => self.call(node, target, args, kwargs),
        }
    }

    /// All tensors are where the back end's kernels take them from, and real.
    fn supported(&mut self, meta: &TensorMeta) -> Result<(), Reason> {
        let device = *self.device.get_or_insert(meta.device);
        if meta.device.kind != self.options.device_kind {
            return refuse(format!("a tensor on {}: back end {} takes none", meta.device, self.options.backend));
        }
        if meta.device != device {
            return refuse(format!("tensors on {device} and on {}", meta.device));
        }
        if meta.dtype.is_complex() && self.options.own_memory {
            return refuse(format!("a tensor of {}", meta.dtype.torch_name()));
        }
        Ok(())
    }

    fn placeholder(&mut self, source: SourceId, meta: &ValueMeta) -> Value {
        let Some(meta) = meta.as_tensor() else { return Value::Other };
        let input = self.inputs.len() as u32;
        self.inputs.push(source);
        let op = CoreOp::Input(input);
        let value =
            self.core.add(CoreNode { op, dtype: meta.dtype, sizes: meta.sizes.clone(), strides: meta.strides.clone() });
        self.core.pin(value, &meta.strides);
        let (strides, requires_grad) = (meta.strides.clone(), meta.requires_grad);
        if let Some(follow) = &mut self.follow {
            follow.set(value, requires_grad);
            follow.connect(self.bases.len(), requires_grad.then_some(input));
        }
        let (input, memory, point) = (Some(input), value, None);
        let (followed, counted, shares) = (false, false, vec![]);
        self.bases.push(Base { value, input, memory, strides, requires_grad, followed, point, counted, shares });
        Value::Tensor { base: self.bases.len() - 1, views: vec![], meta: meta.clone(), severed: false }
    }

    pub fn call(
        &mut self,
        node: &Node,
        target: &Target,
        args: &[Arg],
        kwargs: &[(std::sync::Arc<str>, Arg)],
    ) -> Result<Value, Reason> {
        if let Some(item) = self.tuple_item(target, args) {
            self.note_item_of_view(args);
            return Ok(item);
        }
        if let Some(data) = self.data(node, target, args) {
            return Ok(data);
        }
        if target.gives_gradients() {
            return self.gradients(node, target, args);
        }
        if let (true, [Arg::Const(Const::Bool(on))]) = (target.sets_grad_mode(), args) {
            self.follow.iter_mut().for_each(|follow| follow.off = !*on);
            return Ok(Value::Other);
        }
        if let Some(leaf) = self.leaf_made(node, (target, args, kwargs)) {
            return leaf;
        }
        let (mut values, mut metas) = (BTreeMap::new(), BTreeMap::new());
        for arg in args.iter().chain(kwargs.iter().map(|(_, a)| a)) {
            self.read_arg(arg, &mut values, &mut metas)?;
        }
        let written = written(target, args, kwargs, &values)?;
        if let (Some(into), Some(now)) = (written.and_then(|id| metas.get(&id)), node.meta.as_tensor())
            && into.sizes != now.sizes
        {
            return refuse("a write that gives its tensor another size");
        }
        let (nodes, draws) = (self.core.nodes().len(), self.draws);
        let decomposed = self.decomposed(node, (target, args, kwargs), (&values, &metas), written);
        // What torch gives may be its argument or a view of it, which only a lowering says.
        let shows_only =
            |outcome: &Outcome| matches!(outcome, Outcome::View(..) | Outcome::ViewOrCopy(..) | Outcome::Same(_));
        let decomposed = match decomposed {
            Ok(outcome) if node.torchs && !shows_only(&outcome) => refuse("arguments that its rule does not take"),
            decomposed => decomposed,
        };
        let outcome = decomposed.or_else(|reason| {
            // The op is torch's, with nothing left of the attempt.
            self.core.truncate(nodes);
            self.draws = draws;
            self.follow.iter_mut().for_each(|follow| follow.forget(nodes));
            let called = Foreign { node, target, args, kwargs, values: &values, metas: &metas, written };
            self.called(&called).map_err(|_| reason)
        })?;
        if self.repeats(node, &outcome, &values) {
            self.core.set_apart();
            self.draws = draws;
            return self.call(node, target, args, kwargs);
        }
        self.check_followed(node, &outcome)?;
        let written = outcome.written();
        written.iter().try_for_each(|id| self.check_view(*id))?;
        self.check_targets(node, &written, (target, args, kwargs))?;
        let mut value = self.outcome(&node.meta, outcome, node.view)?;
        if let Value::Tensor { severed, .. } = &mut value {
            *severed |= flambeau_ops::canonical(target).is_some_and(|canon| canon.op.has(Mark::Severs));
        }
        self.note_call(node, (target, args, kwargs), &written, &value);
        self.note_uncounted(args, &value);
        let lends = std::mem::take(&mut self.lends);
        value.bases().into_iter().for_each(|base| self.share(base, &lends));
        // What was detached becomes a leaf later.
        if requires_grad(&node.meta) && self.asked.contains(&NodeId(self.values.len() as u32)) {
            self.stand_out(&value)?;
        }
        Ok(value)
    }

    /// The call as torch's own: an op by its schema, else what the program calls.
    fn called(&mut self, called: &Foreign<'_>) -> Result<Outcome, Reason> {
        let Foreign { node, target, args, kwargs, values, metas, written } = *called;
        let into = written.and_then(|id| Some((id, metas.get(&id)?.clone())));
        let (meta, fresh, schema) = (&node.meta, node.fresh && into.is_none(), node.schema.as_deref());
        let call = Call { target, args, kwargs, meta, values, fresh, schema, written: into };
        call.lower(&mut self.core, &mut self.draws).or_else(|_| self.foreign(called))
    }

    /// The call as operations that the back end has.
    fn decomposed(
        &mut self,
        node: &Node,
        (target, args, kwargs): (&Target, &[Arg], &[(std::sync::Arc<str>, Arg)]),
        (values, metas): (&BTreeMap<NodeId, CoreId>, &BTreeMap<NodeId, TensorMeta>),
        written: Option<NodeId>,
    ) -> Result<Outcome, Reason> {
        let (Target::Function(name) | Target::Method(name)) = target;
        let unknown = || Reason::new(ReasonCode::NotLowered, format!("no decomposition of {name}"));
        let canon = flambeau_ops::canonical(target).ok_or_else(unknown)?;
        let lowers = canon.op.lowers.ok_or_else(unknown)?;
        let training = self.follow.as_ref().is_some_and(|follow| !follow.off) && requires_grad(&node.meta);
        if training && !canon.op.derives && !node.view {
            return refuse(format!("no derivative of {name}"));
        }
        let bound = canon
            .bind(args, kwargs)
            .map_err(|_| Reason::new(ReasonCode::NotLowered, format!("arguments of {name}")))?;
        let start = self.core.nodes().len();
        let mut cx = Decompose {
            core: &mut self.core,
            bound,
            meta: &node.meta,
            values,
            metas,
            op: canon.op,
            draws: &mut self.draws,
            default_dtype: self.graph.default_dtype,
            training: training.then_some(self.options.subgradients),
        };
        let outcome = lowers(&mut cx)?;
        if let Some(dtype) = complex(&self.core, start) {
            return refuse(format!("{name} of {}", dtype.torch_name()));
        }
        if let Some(what) = self.options.capabilities.as_ref().and_then(|table| missing(&self.core, start, table)) {
            return refuse(format!("{name}: the back end has no {what}"));
        }
        match (written, outcome) {
            (Some(id), Outcome::Fresh(value)) => Ok(Outcome::Write(id, value)),
            (Some(_), outcome @ (Outcome::Write(..) | Outcome::Same(_))) => Ok(outcome),
            (Some(_), other) => refuse(format!("{name} writes in place and yields {other:?}")),
            (None, outcome) => Ok(outcome),
        }
    }

    fn tuple_item(&self, target: &Target, args: &[Arg]) -> Option<Value> {
        let (Target::Function(path), [Arg::Node(id), Arg::Const(Const::Int(at))]) = (target, args) else { return None };
        let Value::Tuple(items) = &self.values[id.0 as usize] else { return None };
        if !path.ends_with("operator.getitem") {
            return None;
        }
        let at = if *at < 0 { *at + items.len() as i64 } else { *at };
        items.get(at as usize).cloned()
    }

    fn read_arg(
        &mut self,
        arg: &Arg,
        values: &mut BTreeMap<NodeId, CoreId>,
        metas: &mut BTreeMap<NodeId, TensorMeta>,
    ) -> Result<(), Reason> {
        match arg {
            Arg::Node(id) => {
                if self.follow.as_ref().is_some_and(|follow| !follow.off) {
                    self.check_view(*id)?;
                }
                if let Value::Tensor { base, views, meta, severed } = self.values[id.0 as usize].clone() {
                    let value = self.taken(base, &views, &meta);
                    values.insert(*id, self.as_followed(value, base, (&meta, !views.is_empty(), severed))?);
                    metas.insert(*id, meta);
                }
                Ok(())
            }
            Arg::List(items) | Arg::Tuple(items) => items.iter().try_for_each(|i| self.read_arg(i, values, metas)),
            Arg::Slice(parts) => parts.iter().try_for_each(|i| self.read_arg(i, values, metas)),
            Arg::Dict(items) => items.iter().try_for_each(|(_, i)| self.read_arg(i, values, metas)),
            Arg::Const(_) | Arg::Dim(_) => Ok(()),
        }
    }

    /// The current value of a view of a base.
    pub fn read(&mut self, base: usize, views: &[View]) -> CoreId {
        views.iter().fold(self.bases[base].value, |id, view| apply(&mut self.core, id, view))
    }

    /// The value of a node that yields `outcome`; `is_view` says what [`Node::view`] does.
    fn outcome(&mut self, meta: &ValueMeta, outcome: Outcome, is_view: bool) -> Result<Value, Reason> {
        match (outcome, meta) {
            (Outcome::Fresh(id), ValueMeta::Tensor(meta)) => self.fresh(id, meta),
            (Outcome::View(of, views), ValueMeta::Tensor(meta)) => self.view(of, views, meta),
            (Outcome::ViewOrCopy(of, views), ValueMeta::Tensor(meta)) => {
                if is_view || self.memory_allows(of, &views) {
                    return self.view(of, views, meta);
                }
                let Value::Tensor { base, views: mut chain, .. } = self.values[of.0 as usize].clone() else {
                    return refuse("a view of no tensor");
                };
                chain.extend(views);
                let value = self.read(base, &chain);
                self.fresh(value, meta)
            }
            (Outcome::Same(of), _) => Ok(self.values[of.0 as usize].clone()),
            (Outcome::Write(of, value), _) => {
                self.write(of, value)?;
                Ok(self.values[of.0 as usize].clone())
            }
            (Outcome::WriteView(of, views, value), _) => {
                let Value::Tensor { base, views: mut chain, meta, .. } = self.values[of.0 as usize].clone() else {
                    return refuse("a store to no tensor");
                };
                chain.extend(views);
                let sizes = {
                    let part = self.read(base, &chain);
                    self.core.node(part).sizes.clone()
                };
                self.store(of, (base, &chain), value, (meta.dtype, &sizes))?;
                Ok(Value::Other)
            }
            (Outcome::Tuple(items), ValueMeta::Tuple(metas)) if items.len() == metas.len() => {
                let tuple = NodeId(self.values.len() as u32);
                let same = (0..).zip(&items).filter(|(_, item)| matches!(item, Outcome::Same(_)));
                self.same.extend(same.map(|(i, _)| (tuple, i)));
                let each = items.into_iter().zip(metas).map(|(item, meta)| self.outcome(meta, item, is_view));
                Ok(Value::Tuple(each.collect::<Result<_, _>>()?))
            }
            (Outcome::With(writes, then), meta) => {
                writes.into_iter().try_for_each(|(of, value)| self.write(of, value))?;
                self.outcome(meta, *then, is_view)
            }
            (Outcome::None, ValueMeta::Const(_)) => Ok(Value::Other),
            (outcome, meta) => refuse(format!("{outcome:?} for {meta:?}")),
        }
    }

    /// A new tensor with this value.
    pub fn fresh(&mut self, id: CoreId, meta: &TensorMeta) -> Result<Value, Reason> {
        let id = self.converted(id, meta.dtype);
        if self.core.node(id).sizes != meta.sizes {
            return refuse(format!(
                "sizes {:?} where torch has {:?}",
                show(&self.core.node(id).sizes),
                show(&meta.sizes)
            ));
        }
        let value = self.laid_out(id, &meta.strides);
        self.bases.push(Base {
            value,
            input: None,
            memory: value,
            strides: meta.strides.clone(),
            requires_grad: false,
            followed: false,
            point: None,
            counted: false,
            shares: vec![],
        });
        Ok(Value::Tensor { base: self.bases.len() - 1, views: vec![], meta: meta.clone(), severed: false })
    }

    pub fn converted(&mut self, id: CoreId, dtype: DType) -> CoreId {
        let node = self.core.node(id);
        if node.dtype == dtype {
            return id;
        }
        let sizes = node.sizes.clone();
        self.core.push(CoreOp::Cast(id), dtype, sizes)
    }

    /// The number of a call that draws random numbers.
    pub fn next_draw(&mut self) -> u32 {
        self.draws += 1;
        self.draws
    }

    /// The value with these strides where it has memory.
    pub fn laid_out(&mut self, id: CoreId, strides: &[Dim]) -> CoreId {
        let node = self.core.node(id).clone();
        let view = memory_view(&self.core, &BTreeSet::new(), id);
        if node.op.is_view() && view.base != id && same_layout(&node.sizes, &view.strides, strides) && view.offset.is(0)
        {
            return id;
        }
        let ours = !node.op.is_view() && !node.op.is_input();
        if ours && (self.core.pin(id, strides) || same_layout(&node.sizes, &node.strides, strides)) {
            return id;
        }
        self.core.add(CoreNode { op: CoreOp::Copy(id), strides: strides.to_vec(), ..node })
    }

    fn memory_allows(&self, of: NodeId, views: &[View]) -> bool {
        let Value::Tensor { meta, .. } = &self.values[of.0 as usize] else { return false };
        let (mut sizes, mut strides) = (meta.sizes.clone(), meta.strides.clone());
        for view in views {
            let Some((s, t, _)) = geometry(view, &sizes, &strides, &Dim::Const(0)) else { return false };
            (sizes, strides) = (s, t);
        }
        true
    }

    fn view(&mut self, of: NodeId, views: Vec<View>, meta: &TensorMeta) -> Result<Value, Reason> {
        let Value::Tensor { base, views: chain, severed, .. } = &self.values[of.0 as usize] else {
            return refuse("a view of no tensor");
        };
        let severed = *severed;
        let mut chain = chain.clone();
        chain.extend(views);
        let base = *base;
        let id = self.read(base, &chain);
        if self.core.node(id).sizes != meta.sizes {
            return refuse(format!(
                "view sizes {:?} where torch has {:?}",
                show(&self.core.node(id).sizes),
                show(&meta.sizes)
            ));
        }
        Ok(Value::Tensor { base, views: chain, meta: meta.clone(), severed })
    }

    /// Whether the graph writes to the input whose memory it is.
    fn is_written(&self, base: usize) -> bool {
        let Base { value, input, .. } = &self.bases[base];
        input.is_some_and(|input| self.core.node(*value).op != CoreOp::Input(input))
    }

    /// Outputs and final values of written inputs.
    fn finish(&mut self) -> Result<(), Reason> {
        let mut taken: BTreeMap<CoreId, usize> = BTreeMap::new();
        for id in self.graph.outputs.clone() {
            if let NodeOp::Call { args, .. } = &self.graph.node(id).op
                && let [Arg::Node(tuple), Arg::Const(Const::Int(i))] = args.as_slice()
                && self.same.contains(&(*tuple, *i))
            {
                return refuse("an argument that a call returns as it is");
            }
            let Value::Tensor { base, views, meta, severed } = self.values[id.0 as usize].clone() else {
                return refuse("an output that is no tensor");
            };
            if self.is_seen_to_share(base) {
                return refuse("an output that may share memory with another tensor");
            }
            if severed && (self.bases[base].input.is_some() || self.is_shown_again(base, id)) {
                let out = self.detached(base, id, &meta)?;
                self.core.outputs.push(out);
                continue;
            }
            if !views.is_empty() && self.bases[base].requires_grad && self.is_written(base) {
                // Autograd refuses the use of one that was made before the write.
                return refuse("a view of a tensor that requires grad, which is written");
            }
            let out = self.output(&mut taken, base, &views, &meta)?;
            self.core.outputs.push(out);
        }
        for (at, base) in self.bases.clone().into_iter().enumerate() {
            let Some(input) = base.input.filter(|_| !flambeau_ir::mutated!("input_not_written")) else { continue };
            if self.is_written(at) {
                if has_overlap(&self.core.node(base.value).sizes, &base.strides) {
                    return refuse("a write to a tensor whose elements share memory");
                }
                let node = self.core.node(base.value).clone();
                let held = memory_view(&self.core, &BTreeSet::new(), base.value).base;
                let value = if base.value != base.memory && self.core.node(held).op.is_input() {
                    self.core.add(CoreNode { op: CoreOp::Copy(base.value), strides: base.strides.clone(), ..node })
                } else {
                    base.value
                };
                self.core.writes.push((input, value));
                if !base.counted {
                    self.core.uncounted.insert(input);
                }
            }
        }
        Ok(())
    }

    fn output(
        &mut self,
        taken: &mut BTreeMap<CoreId, usize>,
        base: usize,
        views: &[View],
        meta: &TensorMeta,
    ) -> Result<CoreOutput, Reason> {
        let owner = match self.bases[base].input {
            Some(input) => OutputBase::Input(input),
            None => OutputBase::Value(self.own_memory(taken, base)),
        };
        let held = self.bases[base].clone();
        let mut sizes = self.core.node(held.value).sizes.clone();
        let mut strides = held.strides.clone();
        let mut offset = Dim::Const(0);
        for view in views {
            let next = geometry(view, &sizes, &strides, &offset);
            let Some((s, t, o)) = next else { return refuse("an output whose memory torch would not share") };
            (sizes, strides, offset) = (s, t, o);
        }
        if !same_layout(&sizes, &strides, &meta.strides) {
            return refuse(format!("output strides {:?} where torch has {:?}", show(&strides), show(&meta.strides)));
        }
        Ok(CoreOutput { base: owner, sizes, strides: meta.strides.clone(), offset })
    }

    /// The base's value, copied if its memory is an input's or another output's.
    fn own_memory(&mut self, taken: &mut BTreeMap<CoreId, usize>, base: usize) -> CoreId {
        let value = self.bases[base].value;
        let mut held = memory_view(&self.core, &BTreeSet::new(), value).base;
        while let CoreOp::Stop(of) = self.core.node(held).op {
            held = memory_view(&self.core, &BTreeSet::new(), of).base;
        }
        let shared = self.core.node(held).op.is_input() || *taken.entry(held).or_insert(base) != base;
        if !shared {
            return value;
        }
        // A copy of its own, told from other copies of the same value by how often it was copied.
        let mut copy = value;
        while copy == value || taken.get(&copy).is_some_and(|b| *b != base) {
            let node = self.core.node(copy).clone();
            copy =
                self.core.add(CoreNode { op: CoreOp::Copy(copy), strides: self.bases[base].strides.clone(), ..node });
        }
        taken.insert(copy, base);
        self.bases[base].value = copy;
        copy
    }
}

fn show(dims: &[Dim]) -> String {
    let items: Vec<String> = dims.iter().map(ToString::to_string).collect();
    format!("[{}]", items.join(", "))
}
