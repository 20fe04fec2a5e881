//! The end of a trace: effects on outside objects, objects to build, outputs of the graph.

use crate::flow::{Flow, Stop, stop};
use crate::frame::{FrameEnd, Slot};
use crate::tracer::Tracer;
use crate::value::{CellId, DictId, Function, InstanceId, Origin, Payload, Value};
use flambeau_ir::code::Const;
use flambeau_ir::exit::{Build, BuildId, Effect, End, Exit};
use flambeau_ir::graph::{Arg, NodeId, NodeOp, Target};
use flambeau_ir::guard::GuardKind;
use flambeau_ir::reason::{Reason, ReasonCode};
use flambeau_ir::source::{SourceId, Step};
use flambeau_ir::trace::Trace;
use std::collections::HashMap;
use std::rc::Rc;

/// Identifies a value that must be built once.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Identity {
    Address(usize),
    Tensor(u32),
    List(u32),
    Dict(u32),
    Set(u32),
    Instance(u32),
    Cell(u32),
}

/// Builds under construction.
#[derive(Default)]
struct Builder {
    exit: Exit,
    known: HashMap<Identity, Option<BuildId>>,
    sources: HashMap<SourceId, BuildId>,
    outputs: Vec<NodeId>,
    output_ids: HashMap<NodeId, u32>,
}

impl Builder {
    fn add(&mut self, build: Build) -> BuildId {
        self.exit.builds.push(build);
        BuildId(self.exit.builds.len() as u32 - 1)
    }

    fn source(&mut self, source: SourceId) -> BuildId {
        if let Some(id) = self.sources.get(&source) {
            return *id;
        }
        let id = self.add(Build::Source(source));
        self.sources.insert(source, id);
        id
    }
}

impl Tracer<'_> {
    /// Traces the frame.
    pub(crate) fn run(&mut self) -> Result<Trace, Reason> {
        match self.trace_root() {
            Ok(result) => self
                .finish(&result)
                .map_err(|stopped| self.reason(stopped))
                .and_then(|t| t.ok_or_else(|| Reason::new(ReasonCode::Internal, "the trace was finished twice"))),
            Err(stopped) => Err(self.reason(stopped)),
        }
    }

    fn reason(&mut self, stopped: Stop) -> Reason {
        match stopped {
            Stop::Break(mut reason) => {
                if reason.stack.is_empty() {
                    reason.stack = self.locations();
                }
                *reason
            }
            Stop::Raise(exception) => {
                let mut detail = self.type_name(&exception);
                if let Value::Instance(id) = &exception
                    && let Payload::Exception(args, _) = &self.arenas.instances[*id].payload
                    && let Some(Value::Const(Const::Str(message))) = args.first()
                {
                    detail = format!("{detail}: {message}");
                }
                Reason { stack: std::mem::take(&mut self.raised_at), ..Reason::new(ReasonCode::Exception, detail) }
            }
        }
    }

    fn trace_root(&mut self) -> Flow<Value> {
        self.check_ambient()?;
        let source = self.function_source();
        let ambient = self.frame.ambient.clone();
        self.guard(source, GuardKind::Ambient(Box::new(ambient)));
        let Value::Function(function) = self.wrap(self.frame.function, source)? else {
            return stop(ReasonCode::UnsupportedCall, "the frame's function is no Python function");
        };
        // Generators, coroutines and async generators.
        if function.code.flags & 0x2A0 != 0 {
            return stop(ReasonCode::Generator, function.code.qualname.clone());
        }
        self.root_names.clone_from(&function.code.localsplusnames);
        let mut locals = vec![Slot::Empty; function.code.localsplusnames.len()];
        for (i, object) in self.frame.args.iter().enumerate().take(locals.len()) {
            if let Some(object) = object {
                let source = self.sources.intern(None, Step::Arg(i as u32));
                locals[i] = Slot::Lazy(*object, source);
            }
        }
        self.prefetch_code(&function, None)?;
        let mut frame = self.new_frame(function, locals)?;
        match self.run_frame(&mut frame)? {
            FrameEnd::Return(value) => Ok(value),
            _ => stop(ReasonCode::Generator, frame.code.qualname.clone()),
        }
    }

    /// States under which torch calls do other things than the tracer knows.
    fn check_ambient(&self) -> Flow<()> {
        let a = &self.frame.ambient;
        let what = if a.function_modes > 0 {
            "a torch function mode is active"
        } else if a.dispatch_modes > 0 {
            "a dispatch mode is active"
        } else if a.functorch_levels > 0 {
            "a functorch transform is active"
        } else if a.forward_ad {
            "forward-mode differentiation is active"
        } else if a.torch_function_disabled {
            "torch functions are disabled for subclasses"
        } else {
            return Ok(());
        };
        stop(ReasonCode::UnusualAmbient, what)
    }

    /// The trace of a frame that returned `result`.
    fn finish(&mut self, result: &Value) -> Flow<Option<Trace>> {
        self.check_generators()?;
        let mut builder = Builder::default();
        let result = self.build(&mut builder, result)?;
        builder.exit.end = End::Return(result);
        self.effects(&mut builder)?;
        self.ambient_effects(&mut builder)?;
        let overlap = self.guard_inputs();
        self.guard_distinct();
        let initial = self.frame.ambient.grad_enabled;
        let touches = self.graph.touches_grad;
        let needs_input = self
            .graph
            .nodes
            .iter()
            .any(|n| matches!(n.op, NodeOp::Placeholder(_)) && n.meta.as_tensor().is_some_and(|t| t.requires_grad));
        let needs_autograd = (needs_input || self.requires_grad_calls()) && (initial || touches);
        let mut graph = std::mem::take(&mut self.graph);
        if !needs_autograd {
            drop_grad_modes(&mut graph.nodes);
        }
        let (graph, _) = graph.finish(&builder.outputs);
        Ok(Some(Trace {
            graph,
            sources: std::mem::take(&mut self.sources),
            guards: std::mem::take(&mut self.guards),
            symbols: std::mem::take(&mut self.symbols),
            exit: builder.exit,
            needs_autograd,
            overlap,
        }))
    }

    fn requires_grad_calls(&self) -> bool {
        self.graph.nodes.iter().any(|n| match &n.op {
            NodeOp::Call { target: Target::Method(name), .. } => &**name == "requires_grad_",
            NodeOp::Call { kwargs, .. } => kwargs.iter().any(|(n, _)| &**n == "requires_grad"),
            NodeOp::Placeholder(_) => false,
        })
    }

    /// A generator that is dropped half-way runs its `finally` blocks, at a moment no trace can tell.
    fn check_generators(&self) -> Flow<()> {
        for (_, generator) in self.arenas.generators.iter() {
            if let Some(frame) = generator.frame.as_ref().filter(|_| generator.started)
                && frame.pc > 0
                && frame.decoded.handler(frame.pc - 1).is_some()
            {
                return stop(ReasonCode::Generator, format!("{} was left inside a try block", frame.code.qualname));
            }
        }
        Ok(())
    }

    /// Writes that could reach one tensor through another make disjointness a fact. True if they do reach another.
    fn guard_inputs(&mut self) -> bool {
        if !self.graph.mutates || self.inputs.len() < 2 {
            return false;
        }
        let mut storages: Vec<u32> = self.inputs.iter().map(|(_, s)| *s).collect();
        storages.sort_unstable();
        let disjoint = storages.windows(2).all(|w| w[0] != w[1]);
        if disjoint {
            let sources: Vec<SourceId> = self.inputs.iter().map(|(o, _)| o.source).collect();
            self.guard(sources[0], GuardKind::DisjointStorage(sources));
        }
        !disjoint
    }

    /// A changed object must not be another one that was read.
    fn guard_distinct(&mut self) {
        let mut pairs = Vec::new();
        let lists: Vec<(Origin, bool)> = self
            .arenas
            .lists
            .iter()
            .filter(|(_, l)| l.loaded)
            .filter_map(|(_, l)| Some((l.origin?, l.dirty)))
            .collect();
        let plain = |d: &crate::value::DictValue| d.owner.is_none();
        let dicts: Vec<(Origin, bool)> = self
            .arenas
            .dicts
            .iter()
            .filter(|(_, d)| plain(d))
            .filter_map(|(_, d)| Some((d.origin?, d.rewritten || !d.writes.is_empty())))
            .collect();
        for group in [lists, dicts] {
            for (changed, _) in group.iter().filter(|(_, dirty)| *dirty) {
                pairs.extend(
                    group.iter().filter(|(o, _)| o.object != changed.object).map(|(o, _)| (changed.source, o.source)),
                );
            }
        }
        let instances: Vec<(Origin, Option<DictId>, Rc<crate::value::Class>)> =
            self.arenas.instances.iter().filter_map(|(_, i)| Some((i.origin?, i.attrs, i.class.clone()))).collect();
        for (changed, attrs, class) in &instances {
            if !attrs.is_some_and(|a| !self.arenas.dicts[a].writes.is_empty()) {
                continue;
            }
            let others = instances.iter().filter(|(o, _, c)| o.object != changed.object && c.same(class));
            pairs.extend(others.map(|(o, _, _)| (changed.source, o.source)));
        }
        for (a, b) in pairs {
            self.guard(a, GuardKind::NotSame(b));
        }
    }

    fn ambient_effects(&mut self, builder: &mut Builder) -> Flow<()> {
        let initial = &self.frame.ambient;
        if self.ambient.grad_enabled != initial.grad_enabled {
            builder.exit.effects.push(Effect::SetGradMode(self.ambient.grad_enabled));
        }
        let mut restored = self.ambient.clone();
        restored.grad_enabled = initial.grad_enabled;
        if restored != *initial {
            return stop(ReasonCode::SideEffect, "torch's state is left changed for the caller");
        }
        Ok(())
    }

    /// Changes to outside objects.
    fn effects(&mut self, builder: &mut Builder) -> Flow<()> {
        let dicts: Vec<DictId> = self
            .arenas
            .dicts
            .iter()
            .filter(|(_, d)| d.origin.is_some() && (d.rewritten || !d.writes.is_empty()))
            .map(|(id, _)| id)
            .collect();
        for dict in dicts {
            self.dict_effects(builder, dict)?;
        }
        let lists: Vec<_> = self
            .arenas
            .lists
            .iter()
            .filter(|(_, l)| l.dirty)
            .filter_map(|(_, l)| Some((l.origin?, l.items.clone())))
            .collect();
        for (origin, items) in lists {
            let items = self.build_all(builder, &items)?;
            let target = builder.source(origin.source);
            builder.exit.effects.push(Effect::SetList(target, items));
        }
        let sets: Vec<_> = self
            .arenas
            .sets
            .iter()
            .filter(|(_, s)| s.dirty)
            .filter_map(|(_, s)| Some((s.origin?, s.items.values().cloned().collect::<Vec<_>>())))
            .collect();
        for (origin, items) in sets {
            let items = self.build_all(builder, &items)?;
            let target = builder.source(origin.source);
            builder.exit.effects.push(Effect::SetSet(target, items));
        }
        let cells: Vec<_> = self
            .arenas
            .cells
            .iter()
            .filter(|(_, c)| c.dirty)
            .filter_map(|(_, c)| Some((c.origin?, c.value.clone())))
            .collect();
        for (origin, value) in cells {
            let value = value.map(|v| self.build(builder, &v)).transpose()?;
            let target = builder.source(origin.source);
            builder.exit.effects.push(Effect::SetCell(target, value));
        }
        let slots: Vec<_> = self
            .arenas
            .instances
            .iter()
            .filter(|(_, i)| !i.slot_writes.is_empty())
            .filter_map(|(_, i)| Some((i.origin?, i.slot_writes.clone())))
            .collect();
        for (origin, writes) in slots {
            for (name, value) in writes {
                let Some(value) = value else { return stop(ReasonCode::SideEffect, format!("deleting slot {name}")) };
                let value = self.build(builder, &value)?;
                let target = builder.source(origin.source);
                builder.exit.effects.push(Effect::SetSlot(target, name, value));
            }
        }
        Ok(())
    }

    fn dict_effects(&mut self, builder: &mut Builder, dict: DictId) -> Flow<()> {
        let entry = self.arenas.dicts[dict].clone();
        let Some(origin) = entry.origin else { return Ok(()) };
        if entry.rewritten {
            let mut items = Vec::with_capacity(entry.items.len());
            for (k, v) in entry.items.values() {
                items.push((self.build(builder, k)?, self.build(builder, v)?));
            }
            let target = builder.source(origin.source);
            builder.exit.effects.push(Effect::SetDict(target, items));
            return Ok(());
        }
        for (k, (key, value)) in &entry.writes {
            if value.is_some() && entry.moved.contains(k) {
                // Deleted and stored again: it loses its place.
                let effect = match (entry.owner, key.as_str()) {
                    (Some(owner), Some(name)) => Effect::DelAttr(builder.source(owner.source), name.clone()),
                    _ => {
                        let key = self.build(builder, key)?;
                        Effect::DelItem(builder.source(origin.source), key)
                    }
                };
                builder.exit.effects.push(effect);
            }
            let effect = match (entry.owner, key.as_str(), value) {
                (Some(owner), Some(name), Some(value)) => {
                    let value = self.build(builder, value)?;
                    Effect::SetAttr(builder.source(owner.source), name.clone(), value)
                }
                (Some(owner), Some(name), None) => Effect::DelAttr(builder.source(owner.source), name.clone()),
                (_, _, value) => {
                    let key = self.build(builder, key)?;
                    let value = value.as_ref().map(|v| self.build(builder, v)).transpose()?;
                    let target = builder.source(origin.source);
                    match value {
                        Some(value) => Effect::SetItem(target, key, value),
                        None => Effect::DelItem(target, key),
                    }
                }
            };
            builder.exit.effects.push(effect);
        }
        Ok(())
    }

    fn build_all(&mut self, builder: &mut Builder, values: &[Value]) -> Flow<Vec<BuildId>> {
        values.iter().map(|v| self.build(builder, v)).collect()
    }

    /// How to make `value` after the graph ran; an object is made once.
    fn build(&mut self, builder: &mut Builder, value: &Value) -> Flow<BuildId> {
        if let Some(origin) = self.origin_of(value) {
            return Ok(builder.source(origin.source));
        }
        let identity = match value {
            Value::Tensor(id) => Some(Identity::Tensor(id.0)),
            Value::Tuple(t) => Some(Identity::Address(Rc::as_ptr(t) as usize)),
            Value::List(id) => Some(Identity::List(id.0)),
            Value::Dict(id) => Some(Identity::Dict(id.0)),
            Value::Set(id) => Some(Identity::Set(id.0)),
            Value::Instance(id) => Some(Identity::Instance(id.0)),
            Value::Cell(id) => Some(Identity::Cell(id.0)),
            Value::Function(f) => Some(Identity::Address(Rc::as_ptr(f) as usize)),
            Value::Method(m) => Some(Identity::Address(Rc::as_ptr(m) as usize)),
            _ => None,
        };
        let Some(identity) = identity else { return self.build_new(builder, value) };
        match builder.known.get(&identity) {
            Some(Some(id)) => return Ok(*id),
            Some(None) => return stop(ReasonCode::SideEffect, "a new object that contains itself leaves the frame"),
            None => {}
        }
        builder.known.insert(identity, None);
        if let Value::Cell(cell) = value {
            return self.build_cell(builder, *cell);
        }
        let id = self.build_new(builder, value)?;
        builder.known.insert(identity, Some(id));
        Ok(id)
    }

    fn build_cell(&mut self, builder: &mut Builder, cell: CellId) -> Flow<BuildId> {
        let id = builder.add(Build::Cell);
        builder.known.insert(Identity::Cell(cell.0), Some(id));
        if let Some(value) = self.arenas.cells[cell].value.clone() {
            // A closure may hold the function it belongs to: the contents are stored once both exist.
            let value = self.build(builder, &value)?;
            builder.exit.effects.push(Effect::SetCell(id, Some(value)));
        }
        Ok(id)
    }

    fn build_new(&mut self, builder: &mut Builder, value: &Value) -> Flow<BuildId> {
        let build = match value {
            Value::Const(c) => Build::Const(c.clone()),
            Value::Int(dim) => Build::Dim(dim.clone()),
            Value::Code(code) => Build::Const(Const::Code(code.clone())),
            Value::Tensor(id) => {
                let node = self.arenas.tensors[*id].node;
                if self.arenas.tensors[*id].attrs.is_some() {
                    return stop(ReasonCode::SideEffect, "a new tensor with attributes leaves the frame");
                }
                let next = builder.outputs.len() as u32;
                let index = *builder.output_ids.entry(node).or_insert(next);
                if index == next {
                    builder.outputs.push(node);
                }
                Build::Output(index)
            }
            Value::Tuple(t) => {
                let items = self.build_all(builder, &t.items)?;
                let class = match &t.class {
                    None => None,
                    Some(class) => Some(self.build(builder, &Value::Class(class.clone()))?),
                };
                Build::Tuple(items, class)
            }
            Value::List(id) => {
                if self.arenas.lists[*id].class.is_some() {
                    return stop(ReasonCode::SideEffect, "a new object of a list subclass leaves the frame");
                }
                let items = self.list_items(*id)?.clone();
                Build::List(self.build_all(builder, &items)?)
            }
            Value::Dict(id) => self.build_dict(builder, *id)?,
            Value::Set(id) => {
                let items: Vec<Value> = self.arenas.sets[*id].items.values().cloned().collect();
                let items = self.build_all(builder, &items)?;
                if self.arenas.sets[*id].frozen { Build::FrozenSet(items) } else { Build::Set(items) }
            }
            Value::Slice(parts) => Build::Slice(self.build_three(builder, parts)?),
            Value::Range(parts) => Build::Range(self.build_three(builder, parts)?),
            Value::Class(class) => match &class.path {
                Some(path) => Build::Path(path.clone()),
                None => return stop(ReasonCode::SideEffect, "a new class leaves the frame"),
            },
            Value::Builtin(b) if b.receiver.is_none() => Build::Path(b.path.clone()),
            Value::Method(m) => {
                let func = self.build(builder, &m.func)?;
                let receiver = self.build(builder, &m.receiver)?;
                Build::Method(func, receiver)
            }
            Value::Function(f) => self.build_function(builder, f)?,
            Value::Instance(id) => self.build_instance(builder, *id)?,
            other => {
                let name = self.type_name(other);
                return stop(ReasonCode::SideEffect, format!("a new {name} leaves the frame"));
            }
        };
        Ok(builder.add(build))
    }

    fn build_three(&mut self, builder: &mut Builder, parts: &[Value; 3]) -> Flow<[BuildId; 3]> {
        let [a, b, c] = parts;
        Ok([self.build(builder, a)?, self.build(builder, b)?, self.build(builder, c)?])
    }

    fn build_dict(&mut self, builder: &mut Builder, id: DictId) -> Flow<Build> {
        let entry = &self.arenas.dicts[id];
        let (class, attrs) = (entry.class.clone(), entry.attrs);
        if entry.factory.is_some() {
            return stop(ReasonCode::SideEffect, "a new defaultdict leaves the frame");
        }
        if let Some(attrs) = attrs
            && !self.arenas.dicts[attrs].items.is_empty()
        {
            return stop(ReasonCode::SideEffect, "a new dict with attributes leaves the frame");
        }
        let mut items = Vec::new();
        for (k, v) in self.dict_items(id)? {
            items.push((self.build(builder, &k)?, self.build(builder, &v)?));
        }
        let class = match class {
            None => None,
            Some(class) => Some(self.build(builder, &Value::Class(class))?),
        };
        Ok(Build::Dict(items, class))
    }

    fn build_instance(&mut self, builder: &mut Builder, id: InstanceId) -> Flow<Build> {
        let instance = self.arenas.instances[id].clone();
        if !matches!(instance.payload, Payload::None) {
            return stop(ReasonCode::SideEffect, format!("a new {} leaves the frame", instance.class.name.qualname));
        }
        let class = self.build(builder, &Value::Class(instance.class.clone()))?;
        let mut dict = Vec::new();
        if let Some(attrs) = instance.attrs {
            for (name, value) in self.dict_items(attrs)? {
                let Some(name) = name.as_str().cloned() else {
                    return stop(ReasonCode::SideEffect, "an instance dict with keys that are no str");
                };
                dict.push((name, self.build(builder, &value)?));
            }
        }
        let mut slots = Vec::new();
        for (name, value) in &instance.slot_writes {
            if let Some(value) = value {
                slots.push((name.clone(), self.build(builder, value)?));
            }
        }
        // The id the instance is about to get.
        let this = BuildId(builder.exit.builds.len() as u32);
        for (name, value) in slots {
            builder.exit.effects.push(Effect::SetSlot(this, name, value));
        }
        Ok(Build::Instance { class, dict })
    }

    fn build_function(&mut self, builder: &mut Builder, f: &Rc<Function>) -> Flow<Build> {
        if f.annotated || f.attrs.get().is_some() {
            return stop(ReasonCode::SideEffect, "a new function with annotations or attributes leaves the frame");
        }
        let Some(globals) = self.arenas.dicts[f.globals].origin else {
            return stop(ReasonCode::SideEffect, "a new function with new globals leaves the frame");
        };
        let defaults = f.defaults.as_ref().map(|d| self.build(builder, d)).transpose()?;
        let kwdefaults = f.kwdefaults.as_ref().map(|d| self.build(builder, d)).transpose()?;
        let mut closure = Vec::with_capacity(f.closure.len());
        for cell in &f.closure {
            closure.push(self.build(builder, &Value::Cell(*cell))?);
        }
        Ok(Build::Function {
            code: Const::Code(f.code.clone()),
            globals: globals.source,
            qualname: f.qualname.clone(),
            defaults,
            kwdefaults,
            closure,
        })
    }
}

/// Without autograd, switching grad mode changes nothing.
fn drop_grad_modes(nodes: &mut [flambeau_ir::graph::Node]) {
    let is_switch = |op: &NodeOp| {
        matches!(op, NodeOp::Call { target: Target::Function(f), args, .. }
            if &**f == "torch._C._set_grad_enabled" && matches!(args.as_slice(), [Arg::Const(_)]))
    };
    if !nodes.iter().any(|n| is_switch(&n.op)) {
        return;
    }
    for node in nodes.iter_mut().filter(|n| is_switch(&n.op)) {
        // Emptied nodes are left out when the graph is put in order.
        node.op = NodeOp::Placeholder(SourceId(0));
    }
}
