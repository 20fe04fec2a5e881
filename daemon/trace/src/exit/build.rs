//! How values of a trace are made after its graph ran: each object once, parts before wholes.

use crate::protocol::raise::Parts;
use crate::state::tracer::Tracer;
use crate::value::flow::{Flow, stop};
use crate::value::{Builtin, CellId, Class, DictId, Function, InstanceId, Payload, Raised, Value, ViewKind, class};
use flambeau_ir::code::{CodeHash, Const};
use flambeau_ir::exit::{Build, BuildId, Effect, Exit, Varying};
use flambeau_ir::graph::NodeId;
use flambeau_ir::object::ObjectData;
use flambeau_ir::reason::ReasonCode;
use flambeau_ir::source::SourceId;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;

/// Identifies a value that must be built once.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Identity {
    Address(usize),
    Tensor(u32),
    List(u32),
    Dict(u32),
    Set(u32),
    Instance(u32),
    Cell(u32),
    Iter(u32),
    Generator(u32),
}

/// Builds under construction.
#[derive(Default)]
pub(super) struct Builder {
    pub exit: Exit,
    pub known: HashMap<Identity, Option<BuildId>>,
    sources: HashMap<SourceId, BuildId>,
    /// Values known by their address.
    kept: Vec<Value>,
    consts: HashMap<Const, BuildId>,
    /// Cells of the function under construction whose contents are still to be stored.
    empty: Vec<(CellId, BuildId)>,
    /// Strings that are no equal one.
    texts: HashMap<usize, BuildId>,
    pub outputs: Vec<NodeId>,
    output_ids: HashMap<NodeId, u32>,
    /// What loops change in the arguments of resume functions, by [`Resume::frames`](flambeau_ir::exit::Resume).
    pub varying: BTreeMap<CodeHash, Vec<Varying>>,
}

impl Builder {
    /// A constant. Equal ones are one object, as most are in eager code.
    pub fn constant(&mut self, c: &Const) -> BuildId {
        if let Some(id) = self.consts.get(c) {
            return *id;
        }
        let id = self.add(Build::Const(c.clone()));
        self.consts.insert(c.clone(), id);
        id
    }

    /// A string that the traced code made: no equal one is the same object.
    fn new_text(&mut self, identity: usize, text: &str) -> BuildId {
        if let Some(id) = self.texts.get(&identity) {
            return *id;
        }
        let bytes = self.add(Build::Const(Const::Bytes(text.as_bytes().to_vec())));
        let encoding = self.constant(&Const::str("utf-8"));
        let id = self.add(Build::Call("builtins.str".into(), vec![bytes, encoding]));
        self.texts.insert(identity, id);
        id
    }

    pub fn add(&mut self, build: Build) -> BuildId {
        self.exit.builds.push(build);
        BuildId(self.exit.builds.len() as u32 - 1)
    }

    pub fn source(&mut self, source: SourceId) -> BuildId {
        if let Some(id) = self.sources.get(&source) {
            return *id;
        }
        let id = self.add(Build::Source(source));
        self.sources.insert(source, id);
        id
    }
}

/// What tells the value from equal ones, if anything does.
fn identity(value: &Value) -> Option<Identity> {
    Some(match value {
        Value::Tensor(id) => Identity::Tensor(id.0),
        Value::Tuple(t) => Identity::Address(Rc::as_ptr(t) as usize),
        Value::List(id) => Identity::List(id.0),
        Value::Dict(id) => Identity::Dict(id.0),
        Value::Set(id) => Identity::Set(id.0),
        Value::Instance(id) => Identity::Instance(id.0),
        Value::Cell(id) => Identity::Cell(id.0),
        Value::Iter(id) => Identity::Iter(id.0),
        Value::Generator(id) => Identity::Generator(id.0),
        Value::Parts(parts) => Identity::Address(Rc::as_ptr(parts) as usize),
        Value::Function(f) => Identity::Address(Rc::as_ptr(f) as usize),
        Value::Method(m) => Identity::Address(Rc::as_ptr(m) as usize),
        Value::Builtin(b) if b.receiver.is_some() => Identity::Address(Rc::as_ptr(b) as usize),
        _ => return None,
    })
}

fn build_class(class: &Class) -> Flow<Build> {
    match &class.path {
        _ if class.is_nameless() => match class.path_in_types() {
            Some(path) => Ok(Build::Path(path.into())),
            None => stop(ReasonCode::SideEffect, format!("the type {} leaves the frame", class.own_name)),
        },
        // What stands for an object of C is none.
        Some(path) if path.starts_with("flambeau.polyfills.") => {
            stop(ReasonCode::SideEffect, format!("the type {} leaves the frame", class.own_name))
        }
        Some(path) => Ok(Build::Path(path.clone())),
        None => stop(ReasonCode::SideEffect, "a new class leaves the frame"),
    }
}

/// A built-in function that is bound to nothing.
fn build_builtin(function: &Builtin) -> Flow<Build> {
    if function.path.rsplit_once('.').is_some_and(|(owner, _)| class::is_nameless(owner)) {
        return stop(ReasonCode::SideEffect, format!("{} leaves the frame", function.path));
    }
    Ok(Build::Path(function.path.clone()))
}

impl Tracer<'_> {
    pub(super) fn build_all(&mut self, builder: &mut Builder, values: &[Value]) -> Flow<Vec<BuildId>> {
        values.iter().map(|v| self.build(builder, v)).collect()
    }

    /// How to make `value` after the graph ran; an object is made once.
    pub(super) fn build(&mut self, builder: &mut Builder, value: &Value) -> Flow<BuildId> {
        flambeau_ir::bounds::check();
        if let Some(origin) = self.origin_of(value) {
            return Ok(builder.source(origin.source));
        }
        if let Value::Const(c) = value {
            if let (Some(identity), Const::Str(text)) = (self.new_text(c), c) {
                return Ok(builder.new_text(identity, text));
            }
            let only = self.const_objects.get(c).and_then(|known| known.map(|(_, source)| source));
            return Ok(match self.outside_text(c).or(only) {
                // Someone may ask whether it is this very object.
                Some(source) if !c.is_singleton() && !flambeau_ir::mutated!("constant_of_its_own") => {
                    builder.source(source)
                }
                _ => builder.constant(c),
            });
        }
        let Some(identity) = identity(value) else { return self.build_new(builder, value) };
        match builder.known.get(&identity) {
            Some(Some(id)) => return Ok(*id),
            Some(None) => return stop(ReasonCode::SideEffect, "a new object that contains itself leaves the frame"),
            None => {}
        }
        builder.known.insert(identity, None);
        if let Identity::Address(_) = identity {
            // Alive, so that no other value gets its address.
            builder.kept.push(value.clone());
        }
        if let Value::Cell(cell) = value {
            return self.build_cell(builder, *cell);
        }
        let id = self.build_new(builder, value)?;
        builder.known.insert(identity, Some(id));
        if flambeau_ir::mutated!("object_built_twice") {
            builder.known.remove(&identity);
        }
        let attrs = match value {
            Value::Tensor(id) => self.arenas.tensors[*id].attrs,
            Value::Dict(id) => self.arenas.dicts[*id].attrs,
            Value::Tuple(t) => t.attrs,
            Value::Function(f) => f.attrs.get(),
            Value::Instance(id) if matches!(self.arenas.instances[*id].payload, Payload::Exception(..)) => {
                self.arenas.instances[*id].attrs
            }
            _ => None,
        };
        if let Value::Function(f) = value {
            self.finish_function(builder, f, id)?;
        }
        if let Value::Set(set) = value {
            self.set_changes(builder, *set, id)?;
        }
        if let Some(attrs) = attrs {
            for (name, value) in self.named_items(attrs)? {
                let value = self.build(builder, &value)?;
                builder.exit.effects.push(Effect::SetAttr(id, name, value));
            }
        }
        Ok(id)
    }

    /// Items of an instance dict.
    fn named_items(&mut self, attrs: DictId) -> Flow<Vec<(Arc<str>, Value)>> {
        let named = |(name, value): (Value, Value)| match name.as_str().cloned() {
            Some(name) => Ok((name, value)),
            None => stop(ReasonCode::SideEffect, "an instance dict with keys that are no str"),
        };
        self.stored_items(attrs)?.into_iter().map(named).collect()
    }

    fn build_cell(&mut self, builder: &mut Builder, cell: CellId) -> Flow<BuildId> {
        let id = builder.add(Build::Cell);
        builder.known.insert(Identity::Cell(cell.0), Some(id));
        self.fill_cell(builder, cell, id)?;
        Ok(id)
    }

    fn fill_cell(&mut self, builder: &mut Builder, cell: CellId, id: BuildId) -> Flow<()> {
        if let Some(value) = self.arenas.cells[cell].value.clone() {
            // A closure may hold the function it belongs to: the contents are stored once both exist.
            let value = self.build(builder, &value)?;
            builder.exit.effects.push(Effect::SetCell(id, Some(value)));
        }
        Ok(())
    }

    fn build_new(&mut self, builder: &mut Builder, value: &Value) -> Flow<BuildId> {
        let build = match value {
            Value::Int(dim) => Build::Dim(dim.clone()),
            // A new object may be gone before another is made, in whose place the other then lies.
            Value::Address(of) if self.origin_of(of).is_none() => {
                return stop(ReasonCode::SideEffect, "the id of a new object leaves the frame");
            }
            Value::Address(of) => self.build_address(builder, of)?,
            Value::Code(code) => Build::Const(Const::Code(code.clone())),
            Value::Tensor(id) => {
                if let Some(made_at) = self.chosen(*id) {
                    self.unmade = Some(made_at);
                    return stop(ReasonCode::DataDependentValue, "a part that a tensor chooses leaves the frame");
                }
                let node = self.arenas.tensors[*id].node;
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
                let items = self.stored_list_items(*id)?.clone();
                Build::List(self.build_all(builder, &items)?)
            }
            Value::Dict(id) if self.arenas.dicts[*id].of_new => self.build_instance_dict(builder, *id)?,
            Value::Dict(id) => self.build_dict(builder, *id)?,
            Value::Set(id) => self.build_set(builder, *id)?,
            Value::Class(class) => build_class(class)?,
            Value::Builtin(b) if b.receiver.is_none() => build_builtin(b)?,
            Value::Builtin(b) => self.build_bound(builder, b)?,
            Value::Method(m) => {
                let func = self.build(builder, &m.func)?;
                let receiver = self.build(builder, &m.receiver)?;
                Build::Method(func, receiver)
            }
            Value::Function(f) => self.build_function(builder, f)?,
            Value::Iter(id) => self.build_iter(builder, *id)?,
            Value::Generator(id) => self.build_generator(builder, *id)?,
            Value::DictView(dict, kind) if self.arenas.dicts[*dict].class.is_none() => {
                let path = match kind {
                    ViewKind::Keys => "builtins.dict.keys",
                    ViewKind::Values => "builtins.dict.values",
                    ViewKind::Items => "builtins.dict.items",
                };
                Build::Call(path.into(), vec![self.build(builder, &Value::Dict(*dict))?])
            }
            Value::Parts(parts) => match self.kind_of(parts).rebuild(self, parts)? {
                Some(with) => Build::Call(self.kind_of(parts).maker(parts), self.build_all(builder, &with)?),
                None => return self.cannot_leave(value),
            },
            Value::Instance(id) => match self.arenas.instances[*id].payload.clone() {
                Payload::Exception(raised) => self.build_exception(builder, *id, &raised)?,
                Payload::Polyfill { kind: Some(kind), state } => match self.remade(builder, &kind, &state)? {
                    Some(build) => build,
                    None => return self.cannot_leave(value),
                },
                _ if self.arenas.instances[*id].class.name.module.starts_with("flambeau.polyfills.") => {
                    return self.cannot_leave(value);
                }
                _ => self.build_instance(builder, *id)?,
            },
            _ => return self.cannot_leave(value),
        };
        Ok(builder.add(build))
    }

    /// A method of a built-in type, bound to its receiver: as reading the attribute gives it, where that runs no user code.
    fn build_bound(&mut self, builder: &mut Builder, method: &Builtin) -> Flow<Build> {
        let (Some(receiver), Some((_, name))) = (&method.receiver, method.path.rsplit_once('.')) else {
            return stop(ReasonCode::SideEffect, format!("{} leaves the frame", method.path));
        };
        let exact = match receiver {
            Value::Tensor(_) | Value::Const(_) | Value::Int(_) => true,
            Value::Class(class) => self.reads_builtin(class, name, &method.path)?,
            Value::List(id) => self.arenas.lists[*id].class.is_none(),
            Value::Dict(id) => self.arenas.dicts[*id].class.is_none(),
            Value::Tuple(t) => t.class.as_ref().is_none_or(|class| !class.is_python),
            Value::Set(_) | Value::Iter(_) | Value::Generator(_) | Value::Builtin(_) => true,
            // No type is derived from these.
            Value::Code(_) | Value::DictView(..) | Value::Cell(_) => true,
            // Types of these are not derived from, or the object is of exactly this one.
            Value::Parts(parts) => self.kind_of(parts).is_plain() || self.kind_of(parts).is_pure(),
            // Their types have no name that could be imported.
            Value::Function(_) | Value::Method(_) => {
                return stop(ReasonCode::SideEffect, format!("{} leaves the frame", method.path));
            }
            _ => false,
        };
        let built = self.build(builder, receiver)?;
        // A class's attribute of that name would be what its instances are bound to.
        let of_class = matches!(receiver, Value::Class(_))
            && name.starts_with("__")
            && ![
                "__new__",
                "__prepare__",
                "__init_subclass__",
                "__subclasshook__",
                "__class_getitem__",
                "__getformat__",
            ]
            .contains(&name);
        if exact && !of_class {
            let name = builder.add(Build::Const(Const::str(name)));
            return Ok(Build::Call("builtins.getattr".into(), vec![built, name]));
        }
        if method.path.rsplit_once('.').is_some_and(|(owner, _)| class::is_nameless(owner)) {
            return stop(ReasonCode::SideEffect, format!("{} leaves the frame", method.path));
        }
        // The descriptor's own binding, past what a subclass may have defined.
        // With the type: CPython reads it for methods that take their defining class, and crashes without one.
        let class = builder.add(Build::Call("builtins.type".into(), vec![built]));
        Ok(Build::Call(format!("{}.__get__", method.path).into(), vec![built, class]))
    }

    /// Whether `class.name` surely is the method of that path. It is not for methods of `type`, as in
    /// `super().__call__(...)` of a metaclass: instances of the class may have a method of that name, which comes first.
    fn reads_builtin(&mut self, class: &Rc<Class>, name: &str, path: &str) -> Flow<bool> {
        if path.strip_prefix("builtins.type.") == Some(name) && name != "__prepare__" {
            return Ok(false);
        }
        match self.type_lookup(class, name)? {
            // A class method that was read past an override, as by `super()`.
            Some((owner, _)) if owner.is_python && owner.path.is_none() => {
                stop(ReasonCode::SideEffect, format!("{path} leaves the frame"))
            }
            _ => Ok(true),
        }
    }

    fn cannot_leave<T>(&mut self, value: &Value) -> Flow<T> {
        let name = self.type_name(value);
        stop(ReasonCode::SideEffect, format!("a new {name} leaves the frame"))
    }

    fn build_dict(&mut self, builder: &mut Builder, id: DictId) -> Flow<Build> {
        let entry = &self.arenas.dicts[id];
        let class = entry.class.clone();
        let factory = entry.factory.clone();
        if factory.is_some() && !class.as_ref().is_some_and(|class| class.is("collections.defaultdict")) {
            return stop(ReasonCode::SideEffect, "a new object of a subclass of defaultdict leaves the frame");
        }
        let mut items = Vec::new();
        for (k, v) in self.stored_items(id)? {
            items.push((self.build_key(builder, &k)?, self.build(builder, &v)?));
        }
        if let Some(factory) = factory {
            let factory = self.build(builder, &factory)?;
            let items = builder.add(Build::Dict(items, None));
            return Ok(Build::Call("collections.defaultdict".into(), vec![factory, items]));
        }
        let class = match class {
            None => None,
            Some(class) => Some(self.build(builder, &Value::Class(class))?),
        };
        Ok(Build::Dict(items, class))
    }

    fn build_address(&mut self, builder: &mut Builder, of: &Value) -> Flow<Build> {
        Ok(Build::Call("builtins.id".into(), vec![self.build(builder, of)?]))
    }

    /// A dict's key. Who keeps objects by their ids keeps the objects as well.
    fn build_key(&mut self, builder: &mut Builder, key: &Value) -> Flow<BuildId> {
        match key {
            Value::Address(of) => {
                let build = self.build_address(builder, of)?;
                Ok(builder.add(build))
            }
            key => self.build(builder, key),
        }
    }

    /// The `__dict__` of an object that the trace made: it comes with the object.
    fn build_instance_dict(&mut self, builder: &mut Builder, dict: DictId) -> Flow<Build> {
        let owner = {
            let instances = self.arenas.instances.iter().filter(|(_, i)| i.attrs == Some(dict) && i.origin.is_none());
            let tensors = self.arenas.tensors.iter().filter(|(_, t)| t.attrs == Some(dict));
            instances.map(|(id, _)| Value::Instance(id)).chain(tensors.map(|(id, _)| Value::Tensor(id))).next()
        };
        let Some(owner) = owner else {
            return stop(ReasonCode::SideEffect, "the __dict__ of a new object of this type leaves the frame");
        };
        let owner = self.build(builder, &owner)?;
        let name = builder.add(Build::Const(Const::str("__dict__")));
        Ok(Build::Call("builtins.object.__getattribute__".into(), vec![owner, name]))
    }

    fn build_instance(&mut self, builder: &mut Builder, id: InstanceId) -> Flow<Build> {
        let instance = self.arenas.instances[id].clone();
        if !matches!(instance.payload, Payload::None) {
            return stop(ReasonCode::SideEffect, format!("a new {} leaves the frame", instance.class.name.qualname));
        }
        let class = self.build(builder, &Value::Class(instance.class.clone()))?;
        let mut dict = Vec::new();
        if let Some(attrs) = instance.attrs {
            for (name, value) in self.named_items(attrs)? {
                dict.push((name, self.build(builder, &value)?));
            }
        }
        self.fill_slots(builder, id)?;
        Ok(Build::Instance { class, dict })
    }

    /// Stores what slots of an instance hold: of the next object that is built.
    fn fill_slots(&mut self, builder: &mut Builder, id: InstanceId) -> Flow<()> {
        let mut slots = Vec::new();
        for (name, value) in self.arenas.instances[id].slot_writes.clone() {
            if let Some(value) = value {
                slots.push((name, self.build(builder, &value)?));
            }
        }
        let this = BuildId(builder.exit.builds.len() as u32);
        for (name, value) in slots {
            builder.exit.effects.push(Effect::SetSlot(this, name, value));
        }
        Ok(())
    }

    /// An exception that was not raised yet: what raising it leaves in it cannot be made.
    fn build_exception(&mut self, builder: &mut Builder, id: InstanceId, raised: &Raised) -> Flow<Build> {
        let class = self.arenas.instances[id].class.clone();
        if !raised.leaves() || self.inexact.contains_key(&id.0) || !self.holds_args_alone(&class)? {
            return stop(ReasonCode::SideEffect, format!("a new {} leaves the frame", class.name.qualname));
        }
        let mut given = vec![self.build(builder, &Value::Class(class))?];
        given.extend(self.build_all(builder, &raised.args)?);
        self.fill_slots(builder, id)?;
        Ok(Build::Call("builtins.BaseException.__new__".into(), given))
    }

    /// Whether `BaseException.__new__` makes exceptions of this class, with nothing of C's but their `args`.
    fn holds_args_alone(&mut self, class: &Class) -> Flow<bool> {
        for of in &class.mro {
            let known = match &self.describe(*of)?.data {
                ObjectData::Class(of) => of.is_python || &*of.module == "builtins",
                _ => false,
            };
            if !known {
                return Ok(false);
            }
        }
        Ok(Parts::of(class).is_none())
    }

    fn build_function(&mut self, builder: &mut Builder, f: &Rc<Function>) -> Flow<Build> {
        let Some(globals) = self.arenas.dicts[f.globals].origin else {
            return stop(ReasonCode::SideEffect, "a new function with new globals leaves the frame");
        };
        let defaults = f.defaults.as_ref().map(|d| self.build(builder, d)).transpose()?;
        let kwdefaults = f.kwdefaults.as_ref().map(|d| self.build(builder, d)).transpose()?;
        let mut closure = Vec::with_capacity(f.closure.len());
        for cell in &f.closure {
            let known = builder.known.get(&Identity::Cell(cell.0)).copied().flatten();
            closure.push(match (self.arenas.cells[*cell].origin, known) {
                (Some(origin), _) => builder.source(origin.source),
                (None, Some(id)) => id,
                (None, None) => {
                    let id = builder.add(Build::Cell);
                    builder.known.insert(Identity::Cell(cell.0), Some(id));
                    builder.empty.push((*cell, id));
                    id
                }
            });
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

    /// What is stored once the function is there: it may be reached from its own cells and attributes.
    fn finish_function(&mut self, builder: &mut Builder, f: &Function, id: BuildId) -> Flow<()> {
        for (cell, id) in std::mem::take(&mut builder.empty) {
            self.fill_cell(builder, cell, id)?;
        }
        let Some(slots) = f.slots.get() else { return Ok(()) };
        for (name, value) in self.named_items(slots)? {
            let value = self.build(builder, &value)?;
            builder.exit.effects.push(Effect::SetDescriptor(id, name, value));
        }
        Ok(())
    }
}
