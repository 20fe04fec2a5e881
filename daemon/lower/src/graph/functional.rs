//! Torch-level graph to core graph: calls are decomposed, views tracked, in-place ops turned into new values. What each op
//! means is in `daemon/ops`.

use crate::graph::follow::{Follow, Functional, made_of, requires_grad};
use crate::graph::leaves::asked;
use crate::graph::opaque::{Call, complex, in_place, made_by, missing};
use crate::graph::regions::{copies_much, geometry, has_overlap, places};
use crate::nest::affine::same_layout;
use crate::nest::group::memory_view;
use crate::options::LowerOptions;
use flambeau_core::graph::{Core, CoreId, CoreNode, CoreOp, CoreOutput, ExternArg, ExternCall, IndexSum, OutputBase};
use flambeau_ir::code::Const;
use flambeau_ir::dim::Dim;
use flambeau_ir::graph::{Arg, Graph, Node, NodeId, NodeOp, Target, ValueMeta};
use flambeau_ir::kernel::{Binary, DType};
use flambeau_ir::reason::{Reason, ReasonCode};
use flambeau_ir::source::SourceId;
use flambeau_ir::tensor::{Device, TensorMeta, contiguous_strides};
use flambeau_ops::Mark;
use flambeau_ops::decompose::{Decompose, Outcome, View, apply, index_put, refuse};
use std::collections::{BTreeMap, BTreeSet};

/// Memory as the user sees it: what a family of views shares.
#[derive(Clone, Debug)]
pub struct Base {
    /// What it holds.
    pub value: CoreId,
    /// The graph input whose memory it is.
    pub input: Option<u32>,
    /// What lies in an input's memory: not yet `value` where that is written at the end.
    memory: CoreId,
    pub(crate) strides: Vec<Dim>,
    requires_grad: bool,
    /// Something that autograd follows was written to it.
    pub followed: bool,
    /// What calls take for it, where its gradient is asked for.
    pub point: Option<CoreId>,
}

/// What a graph node stands for.
#[derive(Clone, Debug)]
pub enum Value {
    /// A view of a base.
    Tensor {
        /// Its memory.
        base: usize,
        views: Vec<View>,
        meta: TensorMeta,
        /// Autograd does not know it for a view (`detach`, `data`).
        severed: bool,
    },
    Tuple(Vec<Value>),
    Other,
}

/// What is written to a part of an input.
enum Written {
    Value(CoreId),
    /// What this call, which is given the part first, writes to it.
    By(ExternCall),
}

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
    options: &'a LowerOptions,
    in_place: bool,
    /// What autograd follows, where a derivative is to be taken.
    pub follow: Option<Follow>,
    /// Items of tuples that are arguments of the call, not new tensors.
    same: BTreeSet<(NodeId, i64)>,
    /// Bases with a `data` tensor, writes to which count as no change of the base.
    pub uncounted: BTreeSet<usize>,
    /// Nodes of which a gradient is asked for.
    asked: BTreeSet<NodeId>,
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
    Ok(Functional {
        followed_inputs: lowering.followed_inputs(),
        core: lowering.core,
        inputs: lowering.inputs,
        followed_outputs,
        values,
        made_of: made_of(graph),
        reached,
        shared,
        rewritten: lowering.follow.is_some_and(|follow| follow.rewritten),
    })
}

fn located(graph: &Graph, node: &Node, mut reason: Reason) -> Reason {
    if reason.stack.is_empty() {
        reason.stack.extend(node.location.and_then(|l| graph.locations.get(l as usize)).cloned());
    }
    reason
}

/// The tensor that a call writes its result to.
fn written(
    target: &Target,
    args: &[Arg],
    kwargs: &[(std::sync::Arc<str>, Arg)],
    values: &BTreeMap<NodeId, CoreId>,
) -> Result<Option<NodeId>, Reason> {
    let (Target::Function(name) | Target::Method(name)) = target;
    match kwargs.iter().find(|(n, _)| &**n == "out").map(|(_, value)| value) {
        Some(Arg::Node(id)) => return Ok(Some(*id)),
        None | Some(Arg::Const(Const::None)) => {}
        Some(_) => return refuse(format!("{name} with several out tensors")),
    }
    Ok(match args.first() {
        Some(Arg::Node(id)) if flambeau_ops::writes_first(target) && values.contains_key(id) => Some(*id),
        _ => None,
    })
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
        let (input, memory, followed, point) = (Some(input), value, false, None);
        self.bases.push(Base { value, input, memory, strides, requires_grad, followed, point });
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
            if let Some(follow) = &mut self.follow {
                follow.forget(nodes);
            }
            let written = written.and_then(|id| Some((id, metas.get(&id)?.clone())));
            let (meta, fresh, schema) = (&node.meta, node.fresh && written.is_none(), node.schema.as_deref());
            let call = Call { target, args, kwargs, meta, values: &values, fresh, schema, written };
            call.lower(&mut self.core, &mut self.draws).map_err(|_| reason)
        })?;
        if self.repeats(node, &outcome, &values) {
            self.core.set_apart();
            self.draws = draws;
            return self.call(node, target, args, kwargs);
        }
        self.check_followed(node, &outcome)?;
        let written = outcome.written();
        self.check_targets(node, &written, (target, args, kwargs))?;
        let mut value = self.outcome(&node.meta, outcome, node.view)?;
        if let Value::Tensor { severed, .. } = &mut value {
            *severed |= flambeau_ops::canonical(target).is_some_and(|canon| canon.op.has(Mark::Severs));
        }
        self.note_call(node, (target, args, kwargs), &written, &value);
        if self.asked.contains(&NodeId(self.values.len() as u32)) {
            self.stand_out(&value)?;
        }
        Ok(value)
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
                self.store(base, &chain, value, meta.dtype, &sizes)?;
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
        });
        Ok(Value::Tensor { base: self.bases.len() - 1, views: vec![], meta: meta.clone(), severed: false })
    }

    fn converted(&mut self, id: CoreId, dtype: DType) -> CoreId {
        let node = self.core.node(id);
        if node.dtype == dtype {
            return id;
        }
        let sizes = node.sizes.clone();
        self.core.push(CoreOp::Cast(id), dtype, sizes)
    }

    /// The value with these strides where it has memory.
    fn laid_out(&mut self, id: CoreId, strides: &[Dim]) -> CoreId {
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

    /// The tensor `of` gets a new value; so do all that share its memory.
    fn write(&mut self, of: NodeId, value: CoreId) -> Result<(), Reason> {
        let Value::Tensor { base, views, meta, .. } = self.values[of.0 as usize].clone() else {
            return refuse("a write to no tensor");
        };
        self.store(base, &views, value, meta.dtype, &meta.sizes)
    }

    /// The part of a base that `views` show gets a new value.
    fn store(&mut self, base: usize, views: &[View], value: CoreId, dtype: DType, sizes: &[Dim]) -> Result<(), Reason> {
        if self.uncounted.contains(&base) && self.bases[base].input.is_some() {
            return refuse("a write that may count as no change of its tensor");
        }
        let value = self.converted(value, dtype);
        let value = self.grown(value, sizes)?;
        self.check_written(base, value)?;
        if self.bases[base].input.is_some() && self.written_in_place(base, views, value, sizes)? {
            return Ok(());
        }
        let mut stages = vec![self.bases[base].value];
        for view in views {
            let next = apply(&mut self.core, stages[stages.len() - 1], view);
            stages.push(next);
        }
        let mut value = value;
        for (view, before) in views.iter().zip(&stages).rev() {
            value = self.unview(view, *before, value)?;
        }
        let strides = self.bases[base].strides.clone();
        self.bases[base].value = self.laid_out(value, &strides);
        Ok(())
    }

    /// Writes to the part of an input that `views` show, where it lies: true if that is done. Else the input gets a new value
    /// as a whole.
    fn written_in_place(&mut self, base: usize, views: &[View], value: CoreId, sizes: &[Dim]) -> Result<bool, Reason> {
        let whole = self.core.node(self.bases[base].value).clone();
        let shown = self.read(base, views);
        let call = made_by(&self.core, shown, value);
        let copies_much = copies_much(&whole.sizes, if call.is_some() { &[] } else { sizes });
        let written = match call.map(in_place) {
            Some(Some(call)) => Some(Written::By(call)),
            None if Dim::product(&whole.sizes) != Dim::product(sizes) => Some(Written::Value(value)),
            _ => None,
        };
        let places = places(views, &whole.sizes, &self.bases[base].strides);
        if let (true, Some(written), Some(places)) = (self.in_place, written, places) {
            if self.bases[base].value != self.bases[base].memory {
                let all = IndexSum { start: Dim::Const(0), factors: self.bases[base].strides.clone() };
                self.change(base, &[], all, Written::Value(self.bases[base].value));
            }
            self.change(base, views, places, written);
            return Ok(true);
        }
        if copies_much {
            return refuse("a write to a part of a large input");
        }
        Ok(false)
    }

    /// Adds what an input's memory is after a write to it.
    fn change(&mut self, base: usize, views: &[View], places: IndexSum, written: Written) {
        let before = self.bases[base].memory;
        let node = self.core.node(before).clone();
        // Values that lie there and are used later are copied before.
        let lies_there = |core: &Core, id: CoreId| memory_view(core, &BTreeSet::new(), id).base == before;
        for other in 0..self.bases.len() {
            let Base { value, strides, .. } = self.bases[other].clone();
            if other != base && lies_there(&self.core, value) {
                let node = self.core.node(value).clone();
                self.bases[other].value = self.core.add(CoreNode { op: CoreOp::Copy(value), strides, ..node });
            }
        }
        let apart = |core: &mut Core, id: &mut CoreId| {
            if lies_there(core, *id) {
                let CoreNode { dtype, sizes, .. } = core.node(*id).clone();
                *id = core.push(CoreOp::Copy(*id), dtype, sizes);
            }
        };
        let op = match written {
            Written::By(mut call) => {
                call.args[1..].iter_mut().for_each(|arg| arg.values_mut(&mut |id| apart(&mut self.core, id)));
                let shown = views.iter().fold(before, |id, view| apply(&mut self.core, id, view));
                call.args[0] = ExternArg::Value(shown);
                CoreOp::Changed(before, self.core.push(CoreOp::Extern(call.into()), DType::F32, vec![]))
            }
            Written::Value(mut value) => {
                apart(&mut self.core, &mut value);
                CoreOp::Stored(before, value, places)
            }
        };
        let after = self.core.add(CoreNode { op, ..node });
        (self.bases[base].memory, self.bases[base].value) = (after, after);
    }

    fn grown(&mut self, id: CoreId, sizes: &[Dim]) -> Result<CoreId, Reason> {
        let node = self.core.node(id);
        if node.sizes == sizes {
            return Ok(id);
        }
        if node.sizes.len() > sizes.len() {
            return refuse("a write of a larger value");
        }
        let mut padded = vec![Dim::Const(1); sizes.len() - node.sizes.len()];
        padded.extend(node.sizes.iter().cloned());
        if padded.iter().zip(sizes).any(|(a, b)| a != b && !a.is(1)) {
            return refuse("a write of a value of other sizes");
        }
        let id = apply(&mut self.core, id, &View::Reshape(padded));
        Ok(apply(&mut self.core, id, &View::Expand(sizes.to_vec())))
    }

    /// The value of `whole` after its view was given `value`.
    fn unview(&mut self, view: &View, whole: CoreId, value: CoreId) -> Result<CoreId, Reason> {
        let sizes = self.core.node(whole).sizes.clone();
        match view {
            View::Reshape(_) => Ok(apply(&mut self.core, value, &View::Reshape(sizes))),
            View::Permute(order) => {
                let mut back = vec![0; order.len()];
                order.iter().enumerate().for_each(|(d, o)| back[*o as usize] = d as u32);
                Ok(apply(&mut self.core, value, &View::Permute(back)))
            }
            View::Slice { dim, start, step: 1, length } => {
                let end = start.add(length);
                let rest = sizes[*dim as usize].sub(&end);
                let part = |start: Dim, length: Dim| View::Slice { dim: *dim, start, step: 1, length };
                let mut parts = Vec::new();
                if !start.is(0) {
                    parts.push(apply(&mut self.core, whole, &part(Dim::Const(0), start.clone())));
                }
                parts.push(value);
                if !rest.is(0) {
                    parts.push(apply(&mut self.core, whole, &part(end, rest)));
                }
                if parts.len() == 1 {
                    return Ok(parts[0]);
                }
                let node = self.core.node(whole).clone();
                let op = CoreOp::Join(parts, *dim);
                Ok(self.core.push(op, node.dtype, node.sizes))
            }
            View::Expand(to) if *to == sizes => Ok(value),
            View::Slice { dim, start, step, .. } if *step > 0 => {
                let shown = self.core.node(value).sizes.clone();
                let along = |d: usize| {
                    let mut factors = vec![Dim::Const(0); sizes.len()];
                    let taken = d == *dim as usize;
                    factors[d] = Dim::Const(if taken { *step } else { 1 });
                    IndexSum { start: if taken { start.clone() } else { Dim::Const(0) }, factors }
                };
                let sums: Vec<_> = (0..sizes.len()).map(along).collect();
                self.scattered(whole, (&shown, &sums, true), value)
            }
            View::Sums { sizes: shown, sums } => self.scattered(whole, (shown, sums, false), value),
            View::Slice { .. } | View::Expand(_) => refuse("a write through a view that repeats elements"),
        }
    }

    /// The value of `whole` after what a view by sums shows, of sizes `shown`, was given `value`. `distinct`:
    /// it shows no element twice.
    fn scattered(
        &mut self,
        whole: CoreId,
        (shown, sums, distinct): (&[Dim], &[IndexSum], bool),
        value: CoreId,
    ) -> Result<CoreId, Reason> {
        let sizes = self.core.node(whole).sizes.clone();
        let steps = contiguous_strides(&sizes);
        // Where elements lie in row-major memory.
        let mut start = Dim::Const(0);
        let mut factors = vec![Dim::Const(0); shown.len()];
        for (sum, step) in sums.iter().zip(&steps) {
            start = start.add(&sum.start.mul(step));
            for (total, factor) in factors.iter_mut().zip(&sum.factors) {
                *total = total.add(&factor.mul(step));
            }
        }
        if !distinct && has_overlap(shown, &factors) {
            return refuse("a write through a view whose elements share memory");
        }
        let number = |dim: Dim| dim.as_const().map_or(CoreOp::Scalar(dim), |n| CoreOp::Const(n as u64));
        let mut at = self.index(number(start), shown);
        for (d, factor) in factors.into_iter().enumerate() {
            let along = self.index(CoreOp::Iota(d as u32), shown);
            let factor = self.index(number(factor), shown);
            let offset = self.index(CoreOp::Binary(Binary::Mul, along, factor), shown);
            at = self.index(CoreOp::Binary(Binary::Add, at, offset), shown);
        }
        let flat = |core: &mut Core, id: CoreId| {
            let count = core.node(id).sizes.iter().fold(Dim::Const(1), |count, size| count.mul(size));
            apply(core, id, &View::Reshape(vec![count]))
        };
        let (row, at, value) = (flat(&mut self.core, whole), flat(&mut self.core, at), flat(&mut self.core, value));
        let stored = index_put(&mut self.core, row, vec![ExternArg::Value(at)], value);
        Ok(apply(&mut self.core, stored, &View::Reshape(sizes)))
    }

    fn index(&mut self, op: CoreOp, sizes: &[Dim]) -> CoreId {
        self.core.push(op, DType::I64, sizes.to_vec())
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
