//! Attributes that are set and deleted: by the class's `__setattr__`, data descriptors, the instance's dict.

use crate::state::tracer::Tracer;
use crate::value::Args;
use crate::value::flow::{Flow, stop};
use crate::value::{Class, Descriptor, InstanceId, Payload, Value};
use flambeau_ir::code::Const;
use flambeau_ir::reason::ReasonCode;
use flambeau_ir::source::Step;

/// Types of C whose objects have no `__dict__`.
const WITHOUT_DICT: &[&str] = &[
    "builtins.object",
    "builtins.NoneType",
    "builtins.int",
    "builtins.bool",
    "builtins.float",
    "builtins.complex",
    "builtins.str",
    "builtins.bytes",
    "builtins.tuple",
    "builtins.list",
    "builtins.dict",
    "builtins.set",
    "builtins.frozenset",
    "builtins.range",
    "builtins.slice",
];

impl Tracer<'_> {
    /// `target.name = value`.
    pub fn set_attr(&mut self, target: &Value, name: &str, value: Value) -> Flow<()> {
        match target {
            Value::Instance(id)
                if name == "__traceback__"
                    && matches!(self.arenas.instances[*id].payload, Payload::Exception(..))
                    && !self.has_own_setattr(*id) =>
            {
                self.set_traceback(target, &value)
            }
            Value::Instance(_) | Value::Dict(_) | Value::List(_) | Value::Tuple(_) => {
                let class = self.class_of(target)?;
                match self.type_lookup(&class, "__setattr__")? {
                    None => self.generic_set_attr(target, name, Some(value)),
                    Some((_, Value::Builtin(b))) if stores_generically(&class, &b.path) => {
                        self.generic_set_attr(target, name, Some(value))
                    }
                    Some((_, hook @ (Value::Function(_) | Value::Builtin(_)))) => {
                        let value = if matches!(hook, Value::Builtin(_)) { self.read(&value)? } else { value };
                        let args = vec![target.clone(), Value::str(name), value];
                        self.call(&hook, Args::new(args)).map(|_| ())
                    }
                    Some(_) => stop(ReasonCode::SideEffect, format!("{}.__setattr__", class.name.qualname)),
                }
            }
            Value::Module(m) => self.set_module_attr(&m.clone(), name, Some(value)),
            Value::Function(f) => self.set_function_attr(f, name, Some(value)),
            Value::Class(class) => self.set_class_attr(&class.clone(), name, value),
            Value::Tensor(id) => {
                let value = self.read(&value)?;
                self.set_tensor_attr(*id, name, value)
            }
            _ => stop(ReasonCode::SideEffect, format!("setting {name} of a {}", self.type_name(target))),
        }
    }

    /// `object.__setattr__(target, name, value)`; `None` deletes.
    pub(crate) fn generic_set_attr(&mut self, target: &Value, name: &str, value: Option<Value>) -> Flow<()> {
        if name == "__class__" || name == "__dict__" {
            return stop(ReasonCode::SideEffect, format!("setting {name}"));
        }
        if let Value::Module(module) = target {
            return self.set_in_module(module, name, value);
        }
        let class = self.class_of(target)?;
        let attrs = match target {
            Value::Instance(id) => self.arenas.instances[*id].attrs,
            Value::Dict(id) => self.arenas.dicts[*id].attrs,
            Value::List(id) => self.arenas.lists[*id].attrs,
            Value::Tuple(tuple) => self.tuple_attrs(tuple)?,
            Value::Tensor(id) => self.arenas.tensors[*id].attrs,
            _ => None,
        };
        if attrs.is_none() && matches!(target, Value::Tensor(_)) {
            self.has_no_attributes(target);
        }
        let of_type = self.type_lookup(&class, name)?;
        if let Some((_, raw)) = &of_type
            && self.is_data_descriptor(raw)?
        {
            let value = value.map(|value| self.read(&value)).transpose()?;
            return self.set_through(raw, target, name, value);
        }
        let own_name = self.type_name(target);
        let missing = || format!("'{own_name}' object has no attribute '{name}'");
        let Some(attrs) = attrs else {
            let known = |path: &std::sync::Arc<str>| WITHOUT_DICT.contains(&&**path);
            let is_empty = matches!(
                target,
                Value::Instance(_) | Value::Dict(_) | Value::List(_) | Value::Tuple(_) | Value::Tensor(_)
            );
            let may_have_dict = class.has_dict || !class.is_python && !class.path.as_ref().is_some_and(known);
            if may_have_dict && !(is_empty && value.is_none()) {
                // It gets its dict with the first attribute, or its type may have one.
                return stop(ReasonCode::SideEffect, format!("the first attribute of a {own_name}"));
            }
            if of_type.is_some() {
                let message = format!("'{own_name}' object attribute '{name}' is read-only");
                return self.raise_named("AttributeError", &message);
            }
            let own = match self.type_lookup(&class, "__setattr__")? {
                Some((_, Value::Builtin(b))) => !stores_generically(&class, &b.path),
                found => found.is_some(),
            };
            let hint = if own || class.has_dict { "" } else { self.builtins().no_dict };
            return self.raise_named("AttributeError", &(missing() + hint));
        };
        match value {
            Some(value) => self.dict_set(attrs, Value::str(name), value),
            None => match self.dict_remove(attrs, &Value::str(name))? {
                Some(_) => Ok(()),
                None => self.raise_named("AttributeError", &missing()),
            },
        }
    }

    /// Stores through a data descriptor.
    pub(crate) fn set_through(&mut self, raw: &Value, target: &Value, name: &str, value: Option<Value>) -> Flow<()> {
        match (raw, value, target) {
            (Value::Descriptor(d), value, _) if matches!(**d, Descriptor::Property { .. }) => {
                let (step, what) =
                    if value.is_some() { (Step::PropertySet, "set") } else { (Step::PropertyDelete, "delete") };
                match self.property_part(d, step)? {
                    Some(part) => {
                        let args = std::iter::once(target.clone()).chain(value);
                        self.call(&part, Args::new(args.collect())).map(|_| ())
                    }
                    None => self.raise_inexact("AttributeError", &format!("can't {what} attribute '{name}'")),
                }
            }
            (Value::Descriptor(d), Some(value), Value::Dict(dict)) if matches!(&**d, Descriptor::Data { member: true, name, .. } if &**name == "default_factory") =>
            {
                let entry = &mut self.arenas.dicts[*dict];
                entry.written_factory = entry.origin.map(|_| value.clone());
                entry.factory = Some(value);
                Ok(())
            }
            // Members of types of C may be typed or read-only.
            (Value::Descriptor(d), value, Value::Instance(id))
                if matches!(**d, Descriptor::Data { member: true, .. }) && self.has_own_member(*id, name) =>
            {
                let reading = value.is_none().then(|| self.slot(target, &name.into()));
                if let Some(read) = reading
                    && self.catch(read, "AttributeError")?.is_none()
                {
                    return self.raise_named("AttributeError", name);
                }
                let instance = &mut self.arenas.instances[*id];
                instance.slots.insert(name.into(), value.clone());
                instance.slot_writes.insert(name.into(), value);
                Ok(())
            }
            (Value::Instance(id), Some(value), _) => {
                let class = self.arenas.instances[*id].class.clone();
                match self.type_lookup(&class, "__set__")? {
                    Some((_, Value::Function(set))) => {
                        self.call(&Value::Function(set), Args::new(vec![raw.clone(), target.clone(), value]))?;
                        Ok(())
                    }
                    Some((owner, _)) if owner.is("builtins.property") => {
                        match self.part_of_own_property(*id, Step::PropertySet)? {
                            Some(set) => self.call(&set, Args::new(vec![target.clone(), value])).map(|_| ()),
                            None => self.raise_inexact("AttributeError", &format!("can't set attribute '{name}'")),
                        }
                    }
                    _ => stop(ReasonCode::SideEffect, format!("setting {name} through a descriptor")),
                }
            }
            (_, Some(value), Value::Instance(id))
                if self.arenas.instances[*id].origin.is_none()
                    && matches!(self.arenas.instances[*id].payload, Payload::Exception(..)) =>
            {
                let class = self.arenas.instances[*id].class.clone();
                match self.type_lookup(&class, name)? {
                    Some((owner, _)) if owner.is("builtins.BaseException") => self.set_of_exception(*id, name, value),
                    _ => stop(ReasonCode::SideEffect, format!("setting {name} through a descriptor")),
                }
            }
            (Value::Descriptor(d), Some(value), _)
                if self.polyfill_state(target).is_some() && self.set_polyfill_attr(target, d, value.clone())? =>
            {
                Ok(())
            }
            _ => stop(ReasonCode::SideEffect, format!("setting {name} through a descriptor")),
        }
    }

    /// Whether a class of Python says what setting an attribute does.
    fn has_own_setattr(&mut self, id: InstanceId) -> bool {
        let class = self.arenas.instances[id].class.clone();
        matches!(self.type_lookup(&class, "__setattr__"), Ok(Some((owner, _))) if owner.is_python)
    }

    /// Whether the member of a class that this name leads to can be any object: those that a class of Python declares.
    fn has_own_member(&mut self, id: InstanceId, name: &str) -> bool {
        let instance = &self.arenas.instances[id];
        let class = instance.class.clone();
        match instance.payload {
            Payload::None => true,
            Payload::Exception(..) => matches!(self.type_lookup(&class, name), Ok(Some((owner, _))) if owner.is_python),
            _ => false,
        }
    }

    /// Sets `__traceback__` of an exception that the trace made. Tracebacks are not modelled: none can be read.
    pub(crate) fn set_traceback(&mut self, exception: &Value, traceback: &Value) -> Flow<()> {
        let traceback = match self.read(traceback)? {
            Value::Const(Const::None) => None,
            Value::Const(_) => return self.raise_named("TypeError", "__traceback__ must be a traceback or None"),
            other => Some(other),
        };
        if let Some(raised) = self.raised_mut(exception) {
            raised.traceback = traceback;
        }
        Ok(())
    }

    /// Sets what `BaseException` keeps of an exception that the trace made.
    fn set_of_exception(&mut self, id: InstanceId, name: &str, value: Value) -> Flow<()> {
        let items = if name == "args" { self.collect_sized(&value)? } else { vec![] };
        let base = self.exception_class("BaseException");
        let is_link = value.is_none() || self.class_of(&value)?.is_subclass(&base);
        let Payload::Exception(raised) = &mut self.arenas.instances[id].payload else { return Ok(()) };
        match (name, &value) {
            ("args", _) => {
                raised.args = items;
                self.inexact.remove(&id.0);
            }
            ("__suppress_context__", Value::Const(Const::Bool(on))) => raised.suppress_context = *on,
            ("__cause__", _) if is_link => self.set_cause(&Value::Instance(id), value),
            _ => return stop(ReasonCode::SideEffect, format!("setting {name} through a descriptor")),
        }
        Ok(())
    }

    /// `del target.name`.
    pub fn del_attr(&mut self, target: &Value, name: &str) -> Flow<()> {
        match target {
            Value::Instance(_) | Value::Dict(_) | Value::List(_) | Value::Tuple(_) | Value::Tensor(_) => {
                let class = self.class_of(target)?;
                match self.type_lookup(&class, "__delattr__")? {
                    None => self.generic_set_attr(target, name, None),
                    Some((_, Value::Builtin(b))) if stores_generically(&class, &b.path) => {
                        self.generic_set_attr(target, name, None)
                    }
                    Some((_, hook @ (Value::Function(_) | Value::Builtin(_)))) => {
                        self.call(&hook, Args::new(vec![target.clone(), Value::str(name)])).map(|_| ())
                    }
                    Some(_) => stop(ReasonCode::SideEffect, format!("{}.__delattr__", class.name.qualname)),
                }
            }
            Value::Module(m) => self.set_module_attr(&m.clone(), name, None),
            Value::Function(f) => self.set_function_attr(f, name, None),
            _ => stop(ReasonCode::SideEffect, format!("deleting {name} of a {}", self.type_name(target))),
        }
    }
}

/// Whether the built-in `__setattr__` or `__delattr__` of a class does what that of `object` does.
pub(crate) fn stores_generically(class: &Class, path: &str) -> bool {
    /// Types of C with slots of their own round the function of `object`; that of a `local` stores for its thread.
    const SAME: &[&str] = &["builtins.BaseException", "types.SimpleNamespace", "_thread._local"];
    let owner = path.strip_suffix(".__setattr__").or_else(|| path.strip_suffix(".__delattr__"));
    class.generic_setattr || owner.is_some_and(|owner| SAME.contains(&owner))
}
