//! Attributes of classes, through their metaclass, and of `super()`.

use crate::protocol::cached::LRU_CACHE;
use crate::state::tracer::{Tracer, Written};
use crate::value::Args;
use crate::value::flow::{Flow, stop};
use crate::value::function::bound;
use crate::value::parts::PROXY;
use crate::value::{Class, Descriptor, Value};
use flambeau_ir::code::Const;
use flambeau_ir::guard::GuardKind;
use flambeau_ir::reason::ReasonCode;
use flambeau_ir::source::Step;
use std::rc::Rc;

/// Metaclasses that have no `__getattribute__` of their own.
const PLAIN: &[&str] = &["abc.ABCMeta", "enum.EnumType", "torch._C._TensorMeta", "torch.nn.parameter._ParameterMeta"];

impl Tracer<'_> {
    /// `type_getattro` in CPython's `Objects/typeobject.c`: data descriptors of the metaclass, the class and its bases, the
    /// rest of the metaclass.
    pub(crate) fn class_attr(&mut self, class: &Rc<Class>, name: &str) -> Flow<Option<Value>> {
        if class.is(Class::SOME_ITERATOR) {
            return stop(ReasonCode::UnsupportedObject, "the type of a built-in iterator");
        }
        let value = Value::Class(class.clone());
        let metaclass = self.own_metaclass(class)?;
        if let Some(metaclass) = metaclass.as_ref().filter(|m| !m.path.as_deref().is_some_and(|p| PLAIN.contains(&p))) {
            match self.type_lookup(metaclass, "__getattribute__")? {
                Some((_, hook @ Value::Function(_))) => return self.attr_by_hook(&value, metaclass, &hook, name),
                Some((owner, _)) if owner.is_python => {
                    return stop(
                        ReasonCode::UnsupportedObject,
                        format!("{}.__getattribute__", metaclass.name.qualname),
                    );
                }
                // Metaclasses of C do what `type` does.
                _ => {}
            }
        }
        let found = self.generic_class_attr(class, metaclass.as_ref(), name);
        match metaclass {
            Some(metaclass) => self.or_getattr(found, &value, &metaclass, name),
            None => found,
        }
    }

    /// `type.__getattribute__(class, name)`; `None` where it raises.
    fn generic_class_attr(
        &mut self,
        class: &Rc<Class>,
        metaclass: Option<&Rc<Class>>,
        name: &str,
    ) -> Flow<Option<Value>> {
        let value = Value::Class(class.clone());
        let of_metaclass = match metaclass {
            Some(metaclass) => self.type_lookup(metaclass, name)?,
            None => None,
        };
        if let (Some(metaclass), Some((owner, raw))) = (metaclass, &of_metaclass)
            && !owner.is("builtins.type")
            && self.is_data_descriptor(raw)?
            && self.has_get(raw)?
        {
            return self.bind_attr(raw, &value, metaclass, name).map(Some);
        }
        let is_replaced = matches!(&of_metaclass, Some((owner, _)) if !owner.is("builtins.type"));
        if !is_replaced && let Some(found) = self.type_data(class, name)? {
            return Ok(Some(found));
        }
        if let Some((_, raw)) = self.type_lookup(class, name)? {
            return self.read_through_class(raw, class, name).map(Some);
        }
        // What `type` gives comes after what the class itself has.
        if !class.is_python
            && class.origin.is_none()
            && let Some(found) = self.library.attribute(self, &value, name)?
        {
            return Ok(Some(found));
        }
        match (metaclass, of_metaclass) {
            (Some(metaclass), Some((_, raw))) => self.bind_attr(&raw, &value, metaclass, name).map(Some),
            (Some(_), None) => Ok(None),
            (None, _) => self.attr_of_type(&value, name),
        }
    }

    /// What the `__getattribute__` of a value's class gives, or after it `__getattr__`.
    pub(crate) fn attr_by_hook(
        &mut self,
        value: &Value,
        class: &Rc<Class>,
        hook: &Value,
        name: &str,
    ) -> Flow<Option<Value>> {
        let result = self.call(hook, Args::new(vec![value.clone(), Value::str(name)]));
        self.or_getattr(result.map(Some), value, class, name)
    }

    /// Data descriptors of `type` itself.
    fn type_data(&mut self, class: &Rc<Class>, name: &str) -> Flow<Option<Value>> {
        Ok(Some(match name {
            "__name__" => self.type_name_read(class, Step::TypeName, &class.own_name.clone()),
            "__qualname__" => self.type_name_read(class, Step::TypeQualName, &class.name.qualname.clone()),
            // `type_module` in CPython's `Objects/typeobject.c`: what the class itself holds, whatever that is.
            "__module__" if class.is_python => match self.type_lookup(class, name)? {
                Some((owner, found)) if owner.same(class) => found,
                _ => return stop(ReasonCode::UnsupportedObject, "__module__ of a class that has none"),
            },
            "__module__" => Value::Const(Const::Str(class.name.module.clone())),
            "__mro__" => {
                let class = self.real_class(class)?;
                let mut mro = Vec::with_capacity(class.mro.len());
                for i in 0..class.mro.len() {
                    mro.push(Value::Class(self.mro_class(&class, i)?));
                }
                Value::tuple(mro)
            }
            // What the class itself holds, of those that are made otherwise where it holds nothing.
            "__doc__" | "__annotations__" => match self.type_lookup(class, name)? {
                Some((owner, found @ (Value::Const(_) | Value::Dict(_)))) if owner.same(class) && class.is_python => {
                    found
                }
                _ => return stop(ReasonCode::UnsupportedObject, format!("{name} of a class")),
            },
            "__dict__" => return self.class_dict(class).map(Some),
            "__bases__"
            | "__base__"
            | "__abstractmethods__"
            | "__basicsize__"
            | "__itemsize__"
            | "__dictoffset__"
            | "__flags__"
            | "__weakrefoffset__"
            | "__text_signature__"
            | "__type_params__" => {
                return stop(ReasonCode::UnsupportedObject, format!("{name} of a class"));
            }
            _ => return Ok(None),
        }))
    }

    /// `class.__dict__`: a new proxy of the class's own namespace. Its items are facts one by one.
    fn class_dict(&mut self, class: &Rc<Class>) -> Flow<Value> {
        let class = self.real_class(class)?;
        if self.class_writes.iter().any(|written| written.class.same(&class)) {
            return stop(ReasonCode::UnsupportedObject, "__dict__ of a class that the trace changed");
        }
        match self.namespace_of(&class)? {
            Some(dict) => {
                self.shown_namespaces.insert(dict);
                Ok(Value::parts(PROXY, [Value::Dict(dict)]))
            }
            None => stop(ReasonCode::UnsupportedObject, "__dict__ of a class"),
        }
    }

    /// A name of a class. Python code can rename one of its own, which changes nothing else that is guarded.
    fn type_name_read(&mut self, class: &Class, step: Step, name: &std::sync::Arc<str>) -> Value {
        let value = Const::Str(name.clone());
        if let Some(origin) = class.origin.filter(|_| class.is_python && class.path.is_none()) {
            let source = self.step(origin.source, step);
            self.guard(source, GuardKind::Equals(value.clone()));
        }
        Value::Const(value)
    }

    /// The metaclass, if it is another one than `type`.
    pub(crate) fn own_metaclass(&mut self, class: &Class) -> Flow<Option<Rc<Class>>> {
        let Some(origin) = class.origin.filter(|_| !class.is_interpreters()) else { return Ok(None) };
        let described = self.describe(origin.object)?;
        let s = self.step(origin.source, Step::Class);
        if let Some(path) = self.describe(described.class)?.path.clone().filter(|p| &**p == "builtins.type") {
            self.guard(s, GuardKind::IsPath(path));
            return Ok(None);
        }
        match self.wrap(described.class, s)? {
            Value::Class(metaclass) => Ok(Some(metaclass)),
            _ => crate::value::flow::internal("a metaclass that is no class"),
        }
    }

    /// What a class attribute gives when it is read through the class: its `__get__` gets no instance.
    fn read_through_class(&mut self, raw: Value, class: &Rc<Class>, name: &str) -> Flow<Value> {
        match &raw {
            Value::Descriptor(d) => Ok(match &**d {
                Descriptor::Static(inner) => inner.clone(),
                Descriptor::Class(inner) if !matches!(inner, Value::Function(_)) && self.has_get(inner)? => {
                    return stop(ReasonCode::UnsupportedObject, format!("{name}, a class method of a descriptor"));
                }
                Descriptor::Class(inner) => bound(inner.clone(), Value::Class(class.clone())),
                Descriptor::NativeClass(inner) => Value::bound_builtin(&inner.path, Value::Class(class.clone())),
                Descriptor::Property { .. } | Descriptor::Data { .. } => raw,
            }),
            Value::Instance(id) if self.compiled_function(&raw)?.is_none() => {
                let descriptor = self.arenas.instances[*id].class.clone();
                match self.type_lookup(&descriptor, "__get__")? {
                    None => Ok(raw),
                    Some((owner, _)) if owner.is("builtins.property") => Ok(raw),
                    Some((_, get @ Value::Function(_))) => {
                        let args = vec![raw, Value::NONE, Value::Class(class.clone())];
                        self.call(&get, Args::new(args))
                    }
                    Some(_) => stop(ReasonCode::UnsupportedObject, format!("descriptor {}", descriptor.name.qualname)),
                }
            }
            // The fields of named tuples give themselves, as do functions with a cache.
            Value::Opaque(o) if o.item.is_none() && !o.class.is(LRU_CACHE) => match self
                .type_lookup(&o.class.clone(), "__get__")?
            {
                None => Ok(raw),
                Some(_) => {
                    stop(ReasonCode::UnsupportedObject, format!("descriptor {name} of type {}", o.class.name.qualname))
                }
            },
            _ => Ok(raw),
        }
    }

    /// `class.name = value`: by the metaclass's `__setattr__`. Special methods are what the trace knows classes by.
    pub(crate) fn set_class_attr(&mut self, class: &Rc<Class>, name: &str, value: Value) -> Flow<()> {
        let Some(metaclass) = self.own_metaclass(class)? else { return self.store_class_attr(class, name, value) };
        match self.type_lookup(&metaclass, "__setattr__")? {
            Some((_, hook @ Value::Function(_))) => {
                let args = vec![Value::Class(class.clone()), Value::str(name), value];
                return self.call(&hook, Args::new(args)).map(|_| ());
            }
            Some((_, Value::Builtin(b))) if &*b.path == "builtins.type.__setattr__" => {}
            _ => return stop(ReasonCode::SideEffect, format!("{}.__setattr__", metaclass.name.qualname)),
        }
        if let Some((_, raw)) = self.type_lookup(&metaclass, name)?
            && self.is_data_descriptor(&raw)?
        {
            return stop(ReasonCode::SideEffect, format!("setting {name} of a type through a descriptor"));
        }
        self.store_class_attr(class, name, value)
    }

    /// `type.__setattr__(class, name, value)`, of a name that no metaclass has a descriptor for.
    fn store_class_attr(&mut self, class: &Rc<Class>, name: &str, value: Value) -> Flow<()> {
        let is_special = name.starts_with("__") && name.ends_with("__");
        if !class.is_python || class.path.is_some() || class.origin.is_none() || is_special {
            return stop(ReasonCode::SideEffect, format!("setting {name} of a type"));
        }
        if !self.shown_namespaces.is_empty()
            && let Some(dict) = self.namespace_of(class)?
            && self.shown_namespaces.contains(&dict)
        {
            return stop(ReasonCode::SideEffect, format!("setting {name} of a type whose __dict__ was read"));
        }
        let value = self.read(&value)?;
        self.class_writes.retain(|written| !(written.class.same(class) && &*written.name == name));
        self.class_writes.push(Written { class: class.clone(), name: name.into(), value });
        Ok(())
    }

    /// `super(after, receiver).name`
    pub(crate) fn super_attr(&mut self, after: &Class, receiver: &Value, name: &str) -> Flow<Option<Value>> {
        let Some(origin) = after.origin else {
            return stop(ReasonCode::UnsupportedObject, "super() of a built-in type");
        };
        // A class is taken as a subtype if it is one, else as an instance of its metaclass (`supercheck` in CPython's
        // `Objects/typeobject.c`).
        let (mut class, receiver_is_class) = match receiver {
            Value::Class(c) if c.mro.contains(&origin.object) => (c.clone(), true),
            other => (self.class_of(other)?, false),
        };
        if !class.mro.contains(&origin.object)
            && let Some(Value::Class(said)) = self.lookup_attr(receiver, "__class__")?
        {
            class = said;
        }
        let Some(at) = class.mro.iter().position(|c| *c == origin.object) else {
            return self.raise_named("TypeError", "super(type, obj): obj must be an instance or subtype of type");
        };
        for position in at + 1..class.mro.len() {
            let base = self.mro_class(&class, position)?;
            // `TypeAttr` looks along the base's own MRO; only what the base itself owns counts here.
            let Some((owner, raw)) = self.type_lookup(&base, name)? else { continue };
            if !owner.same(&base) {
                continue;
            }
            if receiver_is_class {
                return self.read_through_class(raw, &class, name).map(Some);
            }
            return self.bind_attr(&raw, receiver, &class, name).map(Some);
        }
        Ok(None)
    }
}
