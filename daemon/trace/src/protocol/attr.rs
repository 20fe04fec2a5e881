//! Attribute access: Python's look-up order, with a guard for each step that decided.

use crate::protocol::cached::LRU_CACHE;
use crate::state::tracer::Tracer;
use crate::value::Args;
use crate::value::flow::{Flow, stop};
use crate::value::function::bound;
use crate::value::parts::SUPER;
use crate::value::{Builtin, Class, Descriptor, DictId, DictValue, Function, InstanceId, Payload, Tuple, Value};
use flambeau_ir::code::Const;
use flambeau_ir::guard::GuardKind;
use flambeau_ir::oracle::{AnswerValue, Question};
use flambeau_ir::reason::ReasonCode;
use flambeau_ir::source::Step;
use std::rc::Rc;
use std::sync::Arc;

impl Tracer<'_> {
    /// `value.name`; raises `AttributeError` in the trace.
    pub fn get_attr(&mut self, value: &Value, name: &str) -> Flow<Value> {
        match self.lookup_attr(value, name)? {
            Some(found) => Ok(found),
            None => {
                let message = match value {
                    Value::Module(m) if m.name.is_empty() => format!("module has no attribute '{name}'"),
                    Value::Module(m) => format!("module '{}' has no attribute '{name}'", m.name),
                    Value::Class(c) => format!("type object '{}' has no attribute '{name}'", c.tp_name()),
                    // `method_getattro` in CPython's `Objects/classobject.c` asks the function last.
                    Value::Method(m) => format!("'{}' object has no attribute '{name}'", self.type_name(&m.func)),
                    _ => format!("'{}' object has no attribute '{name}'", self.type_name(value)),
                };
                self.raise_named("AttributeError", &message)
            }
        }
    }

    /// `value.name`, or `None` where Python would raise `AttributeError`.
    pub fn find_attr(&mut self, value: &Value, name: &str) -> Flow<Option<Value>> {
        let result = self.lookup_attr(value, name);
        Ok(self.catch(result, "AttributeError")?.flatten())
    }

    /// An attribute of a value of a built-in type: one that the tracer knows, else what its type provides.
    pub(crate) fn builtin_attr(&mut self, value: &Value, name: &str) -> Flow<Option<Value>> {
        if let Some(found) = self.library.attribute(self, value, name)? {
            return Ok(Some(found));
        }
        self.attr_of_type(value, name)
    }

    /// What the value's type provides, where the value has no dict.
    pub(crate) fn attr_of_type(&mut self, value: &Value, name: &str) -> Flow<Option<Value>> {
        let class = self.class_of(value)?;
        let class = self.searched_class(&class, name)?;
        match self.type_lookup(&class, name)? {
            Some((_, raw)) => self.bind_attr(&raw, value, &class, name).map(Some),
            None => Ok(None),
        }
    }

    pub(crate) fn lookup_attr(&mut self, value: &Value, name: &str) -> Flow<Option<Value>> {
        flambeau_ir::bounds::check();
        if name == "__class__" && !self.overrides_class(value)? {
            return self.class_of(value).map(|c| Some(Value::Class(c)));
        }
        match value {
            Value::Instance(id) => self.instance_attr(*id, name),
            Value::Tensor(id) => self.tensor_attr(*id, name),
            Value::Module(m) => self.python_module_attr(&m.clone(), name),
            Value::Class(c) => self.class_attr(&c.clone(), name),
            Value::Function(f) => self.function_attr(&f.clone(), name),
            // `method_getattro` in CPython's `Objects/classobject.c`: the type comes first, and has special names only.
            Value::Method(m) => match name {
                "__self__" => Ok(Some(m.receiver.clone())),
                "__func__" => Ok(Some(m.func.clone())),
                "__doc__" => self.lookup_attr(&m.func, name),
                _ if is_special(name) => match self.attr_of_type(value, name)? {
                    Some(found) => Ok(Some(found)),
                    None => self.lookup_attr(&m.func, name),
                },
                _ => self.lookup_attr(&m.func, name),
            },
            Value::Parts(parts) => self.kind_of(parts).attribute(self, parts, name),
            Value::List(id) => {
                let (class, attrs) = (self.arenas.lists[*id].class.clone(), self.arenas.lists[*id].attrs);
                self.subclass_attr(value, class, attrs, name)
            }
            Value::Dict(id) => {
                let (class, attrs) = (self.arenas.dicts[*id].class.clone(), self.arenas.dicts[*id].attrs);
                self.subclass_attr(value, class, attrs, name)
            }
            Value::Tuple(tuple) => {
                if let Some(class) = &tuple.class
                    && !self.reads_generically(class)?
                {
                    return stop(ReasonCode::UnsupportedObject, format!("{}.__getattribute__", class.name.qualname));
                }
                if let Some(item) = self.library.field(self, tuple, name)? {
                    return Ok(Some(item));
                }
                let attrs = self.tuple_attrs(tuple)?;
                self.subclass_attr(value, tuple.class.clone(), attrs, name)
            }
            Value::Descriptor(d) => self.descriptor_attr(d, name),
            Value::Builtin(b) => match name {
                "__name__" => Ok(Some(Value::str(b.path.rsplit('.').next().unwrap_or(&b.path)))),
                "__self__" if b.receiver.is_some() => Ok(b.receiver.clone()),
                _ => self.builtin_attr(value, name),
            },
            Value::Opaque(o) => match self.type_lookup(&o.class.clone(), name)? {
                // `torch._C._VariableFunctions` and its like: static methods of a type, found on an instance.
                Some((_, Value::Descriptor(d))) if o.class.generic_getattr => match &*d {
                    Descriptor::Static(inner) => Ok(Some(inner.clone())),
                    _ => stop(ReasonCode::UnsupportedObject, format!("{}.{name}", o.class.name.qualname)),
                },
                // These read their attributes as all objects do, have no dict and no subclasses.
                Some((_, raw @ Value::Builtin(_))) if matches!(&raw, Value::Builtin(b) if b.path.starts_with("contextvars.ContextVar.")) => {
                    self.bind_attr(&raw, value, &o.class.clone(), name).map(Some)
                }
                Some(_) => stop(ReasonCode::UnsupportedObject, format!("{}.{name}", o.class.name.qualname)),
                None => stop(ReasonCode::UnsupportedObject, format!("attribute {name} of a {}", o.class.name.qualname)),
            },
            _ => self.builtin_attr(value, name),
        }
    }

    /// Guards that a value from outside has nothing in an instance dict, which would come before what its type has.
    pub(crate) fn has_no_attributes(&mut self, value: &Value) {
        if let Some(origin) = self.origin_of(value) {
            self.guard(origin.source, GuardKind::NoAttributes);
        }
    }

    /// The instance dict of a tuple subclass's instance.
    pub(crate) fn tuple_attrs(&mut self, tuple: &Tuple) -> Flow<Option<DictId>> {
        let (Some(class), Some(origin)) = (&tuple.class, tuple.origin) else { return Ok(tuple.attrs) };
        if !class.is_python || !class.has_dict {
            return Ok(None);
        }
        let described = self.describe(origin.object)?;
        let attrs = self.attrs_of(&described, origin.source);
        if attrs.is_none() {
            self.guard(origin.source, GuardKind::NoAttributes);
        }
        Ok(attrs)
    }

    /// Whether `__class__` of the value is other code than `object`'s.
    pub(crate) fn overrides_class(&mut self, value: &Value) -> Flow<bool> {
        /// Types of C that hand on all reads to another object, in `tp_getattro`.
        const PROXIES: [&str; 4] = ["ProxyType", "CallableProxyType", "weakproxy", "weakcallableproxy"];
        let class = match value {
            Value::Instance(_)
            | Value::List(_)
            | Value::Dict(_)
            | Value::Set(_)
            | Value::Tuple(_)
            | Value::Class(_) => self.class_of(value)?,
            Value::Opaque(o) if &*o.class.name.module == "weakref" => {
                return Ok(PROXIES.contains(&&*o.class.name.qualname));
            }
            Value::Opaque(o) => {
                let found = self.type_lookup(&o.class.clone(), "__class__")?;
                return Ok(found.is_some_and(|(owner, _)| !owner.is("builtins.object")));
            }
            _ => return Ok(false),
        };
        if !class.is_python {
            return Ok(false);
        }
        if !self.reads_generically(&class)? {
            return Ok(true);
        }
        Ok(self.type_lookup(&class, "__class__")?.is_some_and(|(owner, _)| !owner.is("builtins.object")))
    }

    /// Attribute of a list, dict or tuple, whose subclass may define it.
    fn subclass_attr(
        &mut self,
        value: &Value,
        class: Option<Rc<Class>>,
        attrs: Option<DictId>,
        name: &str,
    ) -> Flow<Option<Value>> {
        let has_dict = class.as_ref().is_some_and(|class| class.has_dict);
        let Some(class) = class.filter(|c| c.is_python) else {
            // An OrderedDict has a `__dict__`, as instances of Python classes have.
            return match (self.builtin_attr(value, name)?, attrs) {
                (None, Some(attrs)) => self.dict_get_str(attrs, name),
                (None, None) if has_dict => {
                    self.has_no_attributes(value);
                    Ok(None)
                }
                (found, _) => Ok(found),
            };
        };
        if !self.reads_generically(&class)? {
            return stop(ReasonCode::UnsupportedObject, format!("{}.__getattribute__", class.name.qualname));
        }
        let found = self.generic_subclass_attr(value, &class, attrs, name);
        self.or_getattr(found, value, &class, name)
    }

    fn generic_subclass_attr(
        &mut self,
        value: &Value,
        class: &Rc<Class>,
        attrs: Option<DictId>,
        name: &str,
    ) -> Flow<Option<Value>> {
        let found = self.type_lookup(class, name)?;
        if let Some((_, raw)) = &found
            && self.is_data_descriptor(raw)?
            && self.has_get(raw)?
        {
            return self.bind_attr(raw, value, class, name).map(Some);
        }
        if attrs.is_none() && class.has_dict {
            self.has_no_attributes(value);
        }
        if let Some(attrs) = attrs {
            if name == "__dict__" {
                return Ok(Some(Value::Dict(attrs)));
            }
            if let Some(item) = self.dict_get_str(attrs, name)? {
                return Ok(Some(item));
            }
        }
        match found {
            Some((_, Value::Builtin(b))) if b.unbound => match self.library.attribute(self, value, name)? {
                Some(bound) => Ok(Some(bound)),
                None => stop(ReasonCode::UnsupportedObject, format!("{name} of a {}", class.name.qualname)),
            },
            Some((_, raw)) => self.bind_attr(&raw, value, class, name).map(Some),
            None => Ok(None),
        }
    }

    fn instance_attr(&mut self, id: InstanceId, name: &str) -> Flow<Option<Value>> {
        let value = Value::Instance(id);
        let class = self.arenas.instances[id].class.clone();
        if !self.reads_generically(&class)? {
            let Some((_, hook @ Value::Function(_))) = self.type_lookup(&class, "__getattribute__")? else {
                return stop(ReasonCode::UnsupportedObject, format!("{}.__getattribute__", class.name.qualname));
            };
            return self.attr_by_hook(&value, &class, &hook, name);
        }
        let found = self.generic_instance_attr(id, name);
        self.or_getattr(found, &value, &class, name)
    }

    /// What a look-up found, or what the class's `__getattr__` gives where there is nothing, or a descriptor says so.
    pub(crate) fn or_getattr(
        &mut self,
        found: Flow<Option<Value>>,
        value: &Value,
        class: &Rc<Class>,
        name: &str,
    ) -> Flow<Option<Value>> {
        match found {
            Ok(None) => self.getattr_hook(value, class, name),
            Err(stopped) => match self.catch::<Value>(Err(stopped.clone()), "AttributeError")? {
                None if self.type_lookup(class, "__getattr__")?.is_some() => self.getattr_hook(value, class, name),
                _ => Err(stopped),
            },
            found => found,
        }
    }

    /// Whether attribute reads on instances of a class start at `object.__getattribute__`: a fact about the class.
    fn reads_generically(&mut self, class: &Rc<Class>) -> Flow<bool> {
        if !class.is_python {
            return Ok(true);
        }
        let found = self.type_lookup(class, "__getattribute__")?;
        // Built-in types have wrappers of their own round the same function, but for these.
        let other = |class: &str| matches!(class, "builtins.super" | "builtins.type" | "builtins.module");
        let same = |path: &str| path.strip_suffix(".__getattribute__").is_some_and(|class| !other(class));
        Ok(class.generic_getattr || matches!(found, Some((_, Value::Builtin(b))) if same(&b.path)))
    }

    /// `object.__getattribute__(instance, name)`; `None` where it raises.
    pub(crate) fn generic_instance_attr(&mut self, id: InstanceId, name: &str) -> Flow<Option<Value>> {
        let value = Value::Instance(id);
        let (class, attrs) = (self.arenas.instances[id].class.clone(), self.arenas.instances[id].attrs);
        if name == "__dict__"
            && let Some(attrs) = attrs
            && self.has_plain_dict(&class)?
        {
            return Ok(Some(Value::Dict(attrs)));
        }
        if let Some(found) = self.payload_attr(id, name)? {
            return Ok(Some(found));
        }
        let found = self.type_lookup(&class, name)?;
        if let Some((_, raw)) = &found
            && self.is_data_descriptor(raw)?
            && self.has_get(raw)?
        {
            return self.bind_attr(raw, &value, &class, name).map(Some);
        }
        match attrs {
            Some(attrs) => {
                if let Some(item) = self.dict_get_str(attrs, name)? {
                    return Ok(Some(item));
                }
            }
            // Of classes of Python that is guarded where the instance is met.
            None if !class.is_python && class.has_dict => self.has_no_attributes(&value),
            None => {}
        }
        match found {
            Some((_, raw)) => self.bind_attr(&raw, &value, &class, name).map(Some),
            None => Ok(None),
        }
    }

    /// Whether `__dict__` of a class's instances is the one that Python gives them, no attribute of a class.
    fn has_plain_dict(&mut self, class: &Rc<Class>) -> Flow<bool> {
        if !class.is_python || class.path.is_some() {
            return Ok(true);
        }
        Ok(match self.type_lookup(class, "__dict__")? {
            Some((_, Value::Descriptor(d))) => matches!(&*d, Descriptor::Data { .. }),
            found => found.is_none(),
        })
    }

    /// State that C code keeps for an instance.
    fn payload_attr(&mut self, id: InstanceId, name: &str) -> Flow<Option<Value>> {
        if let Payload::Native(_) = &self.arenas.instances[id].payload {
            return self.library.attribute(self, &Value::Instance(id), name);
        }
        if let Payload::Polyfill { .. } = &self.arenas.instances[id].payload {
            let class = self.arenas.instances[id].class.clone();
            return self.polyfill_attr(&Value::Instance(id), &class, name);
        }
        Ok(match (&self.arenas.instances[id].payload, name) {
            (Payload::Exception(..), "args") if self.inexact.contains_key(&id.0) => return self.inexact_text(id),
            (Payload::Exception(raised), "args") => Some(Value::tuple(raised.args.clone())),
            (Payload::Exception(raised), "value")
                if self.arenas.instances[id].class.derives("builtins.StopIteration") =>
            {
                Some(raised.args.first().cloned().unwrap_or(Value::NONE))
            }
            (Payload::Exception(raised), "__cause__") => Some(raised.cause.clone().unwrap_or(Value::NONE)),
            (Payload::Exception(raised), "__suppress_context__") => Some(Value::bool(raised.suppress_context)),
            (Payload::Exception(..), "__context__") => Some(self.context_of(id)?),
            (Payload::Exception(..), "__traceback__" | "__notes__") => {
                return stop(ReasonCode::UnsupportedObject, format!("{name} of an exception"));
            }
            (Payload::Exception(..), "with_traceback") => {
                Some(Value::bound_builtin("builtins.BaseException.with_traceback", Value::Instance(id)))
            }
            _ => None,
        })
    }

    /// The last resort: the class's `__getattr__`.
    pub(crate) fn getattr_hook(&mut self, value: &Value, class: &Rc<Class>, name: &str) -> Flow<Option<Value>> {
        let Some((_, hook)) = self.type_lookup(class, "__getattr__")? else { return Ok(None) };
        if let (Value::Function(f), Value::Instance(id)) = (&hook, value)
            && is_module_getattr(f)
        {
            let found = self.module_getattr(*id, name)?;
            // What it raises names the class as its metaclass does.
            if found.is_some() || self.own_metaclass(class)?.is_none() {
                return Ok(found);
            }
        }
        if !matches!(hook, Value::Function(_) | Value::Builtin(_)) {
            let hook = self.bind_attr(&hook, value, class, "__getattr__")?;
            return self.call(&hook, Args::new(vec![Value::str(name)])).map(Some);
        }
        self.call(&hook, Args::new(vec![value.clone(), Value::str(name)])).map(Some)
    }

    /// What `torch.nn.Module.__getattr__` does: parameters, buffers, then sub-modules, by the instance's own dicts.
    fn module_getattr(&mut self, id: InstanceId, name: &str) -> Flow<Option<Value>> {
        let Some(attrs) = self.arenas.instances[id].attrs else { return Ok(None) };
        for table in ["_parameters", "_buffers", "_modules"] {
            match self.dict_get_str(attrs, table)? {
                None => {}
                Some(Value::Dict(dict)) => {
                    if let Some(found) = self.dict_get_str(dict, name)? {
                        return Ok(Some(found));
                    }
                }
                Some(other) => {
                    let kind = self.type_name(&other);
                    return stop(ReasonCode::UnsupportedObject, format!("a module whose {table} is a {kind}"));
                }
            }
        }
        Ok(None)
    }

    /// `fget`, `fset` or `fdel` of a property; `None` if it has none.
    pub(crate) fn property_part(&mut self, property: &Descriptor, step: Step) -> Flow<Option<Value>> {
        let &Descriptor::Property { get, set, delete, source } = property else { return Ok(None) };
        let part = match step {
            Step::PropertyGet => get,
            Step::PropertySet => set,
            _ => delete,
        };
        let at = self.step(source, step);
        if part.is_none() {
            self.guard(at, GuardKind::Equals(Const::None));
        }
        part.map(|object| self.wrap(object, at)).transpose()
    }

    /// What reads, sets or deletes the attribute (`fget` and so on) of an object whose class is derived from `property`.
    pub(crate) fn part_of_own_property(&mut self, property: InstanceId, step: Step) -> Flow<Option<Value>> {
        let Some(origin) = self.arenas.instances[property].origin else {
            return stop(ReasonCode::UnsupportedObject, "a new property");
        };
        let name = match step {
            Step::PropertyGet => "fget",
            Step::PropertySet => "fset",
            _ => "fdel",
        };
        match self.ask_one(Question::Slot { object: origin.object, name: name.to_owned() })? {
            AnswerValue::Object(Some(object)) => {
                let at = self.step(origin.source, step);
                let part = self.wrap(object, at)?;
                Ok(Some(part).filter(|part| !part.is_none()))
            }
            other => stop(ReasonCode::Internal, format!("unexpected answer {other:?}")),
        }
    }

    fn read_property(&mut self, get: Option<Value>, receiver: &Value) -> Flow<Value> {
        match get {
            Some(get) => self.call(&get, Args::new(vec![receiver.clone()])),
            None => self.raise_inexact("AttributeError", "unreadable attribute"),
        }
    }

    fn descriptor_attr(&mut self, d: &Descriptor, name: &str) -> Flow<Option<Value>> {
        let part = match name {
            "fget" => Some(Step::PropertyGet),
            "fset" => Some(Step::PropertySet),
            "fdel" => Some(Step::PropertyDelete),
            _ => None,
        };
        Ok(match (d, name) {
            (Descriptor::Property { .. }, _) if let Some(step) = part => {
                Some(self.property_part(d, step)?.unwrap_or(Value::NONE))
            }
            (Descriptor::Data { name: own, .. }, "__name__") => Some(Value::Const(Const::Str(own.clone()))),
            (Descriptor::Static(f) | Descriptor::Class(f), "__func__" | "__wrapped__") => Some(f.clone()),
            _ => return stop(ReasonCode::UnsupportedObject, format!("{name} of a descriptor")),
        })
    }

    /// Whether a class attribute takes precedence over the instance dict.
    pub(crate) fn is_data_descriptor(&mut self, raw: &Value) -> Flow<bool> {
        Ok(match raw {
            Value::Descriptor(d) => matches!(**d, Descriptor::Property { .. } | Descriptor::Data { .. }),
            Value::Instance(id) => {
                let class = self.arenas.instances[*id].class.clone();
                self.type_lookup(&class, "__set__")?.is_some() || self.type_lookup(&class, "__delete__")?.is_some()
            }
            Value::Opaque(o) => {
                let class = o.class.clone();
                self.type_lookup(&class, "__set__")?.is_some()
            }
            _ => false,
        })
    }

    /// Whether a data descriptor is asked when an attribute is read. One that only stores gives way to the instance dict.
    pub(crate) fn has_get(&mut self, raw: &Value) -> Flow<bool> {
        let class = match raw {
            Value::Instance(id) => self.arenas.instances[*id].class.clone(),
            Value::Opaque(o) => o.class.clone(),
            _ => return Ok(true),
        };
        Ok(self.type_lookup(&class, "__get__")?.is_some())
    }

    /// What a class attribute gives when read through `receiver`: descriptors run, functions bind.
    pub(crate) fn bind_attr(&mut self, raw: &Value, receiver: &Value, class: &Rc<Class>, name: &str) -> Flow<Value> {
        match raw {
            Value::Function(_) => Ok(bound(raw.clone(), receiver.clone())),
            Value::Builtin(b) if b.unbound => {
                if receiver.parts_of::<2>(SUPER).is_some() {
                    return stop(ReasonCode::UnsupportedObject, "a built-in method of super()");
                }
                Ok(Value::Builtin(Rc::new(Builtin {
                    path: b.path.clone(),
                    receiver: Some(receiver.clone()),
                    unbound: false,
                    origin: None,
                })))
            }
            Value::Descriptor(d) => match &**d {
                Descriptor::Property { .. } => {
                    let get = self.property_part(d, Step::PropertyGet)?;
                    self.read_property(get, receiver)
                }
                Descriptor::Static(inner) => Ok(inner.clone()),
                // Up to 3.12 a class method asks what it holds to bind itself.
                Descriptor::Class(inner) if !matches!(inner, Value::Function(_)) && self.has_get(inner)? => {
                    stop(ReasonCode::UnsupportedObject, format!("{name}, a class method of a descriptor"))
                }
                Descriptor::Class(inner) => Ok(bound(inner.clone(), Value::Class(class.clone()))),
                Descriptor::NativeClass(inner) => Ok(Value::bound_builtin(&inner.path, Value::Class(class.clone()))),
                Descriptor::Data { member: true, name, .. } => self.slot(receiver, name),
                Descriptor::Data { .. } => self.getset(receiver, class, name),
            },
            Value::Instance(id) => {
                let descriptor = self.arenas.instances[*id].class.clone();
                if self.compiled_function(raw)?.is_some() {
                    return Ok(bound(raw.clone(), receiver.clone()));
                }
                if descriptor.is("functools.cached_property") {
                    return self.cached_property(*id, receiver, name);
                }
                match self.type_lookup(&descriptor, "__get__")? {
                    Some((_, Value::Function(get))) => {
                        let args = vec![raw.clone(), receiver.clone(), Value::Class(class.clone())];
                        self.call(&Value::Function(get), Args::new(args))
                    }
                    Some((owner, _)) if owner.is("builtins.property") => {
                        let get = self.part_of_own_property(*id, Step::PropertyGet)?;
                        self.read_property(get, receiver)
                    }
                    Some(_) => stop(ReasonCode::UnsupportedObject, format!("descriptor {}", descriptor.name.qualname)),
                    None => Ok(raw.clone()),
                }
            }
            Value::Opaque(o) if o.class.is(LRU_CACHE) => Ok(bound(raw.clone(), receiver.clone())),
            Value::Opaque(o) => match self.type_lookup(&o.class.clone(), "__get__")? {
                Some(_) => {
                    stop(ReasonCode::UnsupportedObject, format!("descriptor {name} of type {}", o.class.name.qualname))
                }
                None => Ok(raw.clone()),
            },
            _ => Ok(raw.clone()),
        }
    }

    fn cached_property(&mut self, id: InstanceId, receiver: &Value, name: &str) -> Flow<Value> {
        let Some(attrs) = self.arenas.instances[id].attrs else {
            return stop(ReasonCode::UnsupportedObject, "a cached_property without state");
        };
        let Some(func) = self.dict_get_str(attrs, "func")? else {
            return stop(ReasonCode::UnsupportedObject, "a cached_property without a function");
        };
        let value = self.call(&func, Args::new(vec![receiver.clone()]))?;
        if let Value::Instance(owner) = receiver
            && let Some(attrs) = self.arenas.instances[*owner].attrs
        {
            self.dict_set(attrs, Value::str(name), value.clone())?;
        }
        Ok(value)
    }

    /// A raw slot of an instance.
    pub(crate) fn slot(&mut self, receiver: &Value, name: &Arc<str>) -> Flow<Value> {
        let id = match receiver {
            Value::Instance(id) => id,
            // A tuple of C with names for its items.
            Value::Tuple(tuple) if let Some(origin) = tuple.origin => {
                if let AnswerValue::Object(Some(object)) =
                    self.ask_one(Question::Slot { object: origin.object, name: name.to_string() })?
                {
                    let source = self.step(origin.source, Step::Slot(name.clone()));
                    return self.wrap(object, source);
                }
                return stop(ReasonCode::UnsupportedObject, format!("slot {name} of a {}", self.type_name(receiver)));
            }
            Value::Dict(dict) if &**name == "default_factory" => {
                return Ok(self.dict_factory(*dict)?.unwrap_or(Value::NONE));
            }
            Value::Const(Const::Complex(re, im)) if matches!(&**name, "real" | "imag") => {
                return Ok(Value::Const(Const::Float(if &**name == "real" { *re } else { *im })));
            }
            _ => return stop(ReasonCode::UnsupportedObject, format!("slot {name} of a {}", self.type_name(receiver))),
        };
        let class = self.arenas.instances[*id].class.clone();
        if !self.type_lookup(&class, name)?.is_some_and(|(owner, _)| owner.is_python) {
            // What it is while C code keeps nothing in it, only that knows.
            return stop(ReasonCode::UnsupportedObject, format!("{}.{name}", class.name.qualname));
        }
        let instance = &self.arenas.instances[*id];
        self.need_unchanged(instance.origin.is_some() && instance.slot_writes.contains_key(name))?;
        let known = match (instance.slots.get(name), instance.origin) {
            (Some(known), _) => known.clone(),
            (None, None) => None,
            (None, Some(origin)) => {
                let found = match self.ask_one(Question::Slot { object: origin.object, name: name.to_string() })? {
                    AnswerValue::Object(Some(object)) => {
                        let source = self.step(origin.source, Step::Slot(name.clone()));
                        Some(self.wrap(object, source)?)
                    }
                    AnswerValue::Object(None) | AnswerValue::Missing => {
                        self.guard(origin.source, GuardKind::NoSlot(name.clone()));
                        None
                    }
                    other => return stop(ReasonCode::Internal, format!("unexpected answer {other:?}")),
                };
                self.arenas.instances.note(*id).slots.insert(name.clone(), found.clone());
                found
            }
        };
        match known {
            Some(value) => Ok(value),
            None => {
                // From 3.13 on with the module of the class.
                let message = format!("'{}' object has no attribute '{name}'", class.own_name);
                self.raise_inexact("AttributeError", &message)
            }
        }
    }

    /// A getset descriptor of a C type.
    fn getset(&mut self, receiver: &Value, class: &Rc<Class>, name: &str) -> Flow<Value> {
        let attrs = match receiver {
            Value::Instance(id) => self.arenas.instances[*id].attrs,
            Value::Dict(id) => self.arenas.dicts[*id].attrs,
            Value::List(id) => self.arenas.lists[*id].attrs,
            Value::Function(f) => return self.get_attr(&Value::Function(f.clone()), name),
            _ => None,
        };
        match (name, attrs) {
            ("__dict__", Some(attrs)) => Ok(Value::Dict(attrs)),
            _ => stop(ReasonCode::UnsupportedObject, format!("{}.{name}", class.name.qualname)),
        }
    }

    /// A special method, looked up on the type and bound; `None` if there is none.
    pub fn special(&mut self, value: &Value, name: &str) -> Flow<Option<Value>> {
        let class = match value {
            Value::Instance(id) => Some(self.arenas.instances[*id].class.clone()),
            Value::Opaque(o) => Some(o.class.clone()),
            Value::Class(class) => self.own_metaclass(class)?,
            // What the built-in types themselves do is known.
            Value::List(id) => self.arenas.lists[*id].class.clone().filter(|c| c.is_python),
            Value::Dict(id) => self.arenas.dicts[*id].class.clone().filter(|c| c.is_python),
            Value::Tuple(t) => t.class.clone().filter(|c| c.is_python),
            _ => None,
        };
        let Some(class) = class else { return Ok(None) };
        match self.type_lookup(&class, name)? {
            Some((_, raw)) => self.bind_attr(&raw, value, &class, name).map(Some),
            None => Ok(None),
        }
    }

    /// As [`Tracer::special`], but only if Python code defines it, or stands for what does.
    pub(crate) fn python_special(&mut self, value: &Value, name: &str) -> Flow<Option<Value>> {
        let found = self.special(value, name)?;
        if let Some(Value::Builtin(slot)) = &found {
            if self.is_slot_of_polyfill(value, slot) {
                return Ok(found);
            }
            self.need_modelled(value, name)?;
        }
        Ok(found.filter(|f| !matches!(f, Value::Builtin(_))))
    }

    /// Breaks where a type of C that is not modelled decides what a special method of an instance does: a base of its class,
    /// or the class itself (numpy's `float64` is a float with operators of its own).
    pub(crate) fn need_modelled(&mut self, value: &Value, name: &str) -> Flow<()> {
        let Value::Instance(id) = value else { return Ok(()) };
        let instance = &self.arenas.instances[*id];
        let modelled = match instance.payload {
            Payload::None => "builtins.object",
            Payload::Const(_) => "builtins.",
            Payload::Exception(..) | Payload::Native(_) | Payload::Polyfill { .. } => return Ok(()),
        };
        let class = instance.class.clone();
        match self.type_lookup(&class, name)? {
            Some((owner, _)) if !owner.path.as_ref().is_some_and(|path| path.starts_with(modelled)) => {
                stop(ReasonCode::UnsupportedObject, format!("{name} of a {}", class.name.qualname))
            }
            _ => Ok(()),
        }
    }

    /// An empty instance dict.
    pub(crate) fn fresh_attrs(&mut self) -> DictId {
        self.arenas.dicts.push(DictValue { loaded: true, of_new: true, ..DictValue::default() })
    }
}

/// Whether types have attributes of this kind: `__name__`.
fn is_special(name: &str) -> bool {
    name.len() > 4 && name.starts_with("__") && name.ends_with("__")
}

/// Whether this is torch's own `Module.__getattr__` (its code is guarded where it was read).
fn is_module_getattr(f: &Function) -> bool {
    f.module.as_deref() == Some("torch.nn.modules.module")
        && &*f.qualname == "Module.__getattr__"
        && f.code.filename.ends_with("torch/nn/modules/module.py")
}
