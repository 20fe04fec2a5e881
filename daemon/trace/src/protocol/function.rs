//! Attributes of functions: the data descriptors of their type (`func_memberlist` and `func_getsetlist` in CPython's
//! `Objects/funcobject.c`), and their `__dict__`.

use crate::state::tracer::Tracer;
use crate::value::flow::{Flow, stop};
use crate::value::{DictId, DictValue, Function, Value};
use flambeau_ir::code::Const;
use flambeau_ir::guard::GuardKind;
use flambeau_ir::oracle::{AnswerValue, Question};
use flambeau_ir::reason::ReasonCode;
use flambeau_ir::source::Step;
use std::rc::Rc;

/// Data descriptors of functions in all versions; with that of `object` for `__class__`.
const DATA: &[&str] = &[
    "__annotations__",
    "__builtins__",
    "__class__",
    "__closure__",
    "__code__",
    "__defaults__",
    "__dict__",
    "__doc__",
    "__globals__",
    "__kwdefaults__",
    "__module__",
    "__name__",
    "__qualname__",
];

impl Tracer<'_> {
    fn is_data_of_function(&self, name: &str) -> bool {
        DATA.contains(&name) || name == "__type_params__" && self.builtins().type_params
    }

    /// `function.name`
    pub(super) fn function_attr(&mut self, f: &Rc<Function>, name: &str) -> Flow<Option<Value>> {
        if self.is_data_of_function(name) {
            return self.function_data(f, name);
        }
        match (f.attrs.get(), f.origin) {
            (Some(attrs), _) => {
                if let Some(found) = self.dict_get_str(attrs, name)? {
                    return Ok(Some(found));
                }
            }
            (None, Some(origin)) => self.guard(origin.source, GuardKind::NoAttributes),
            (None, None) => {}
        }
        if name == "__get__" {
            return Ok(Some(Value::bound_builtin("types.FunctionType.__get__", Value::Function(f.clone()))));
        }
        self.attr_of_type(&Value::Function(f.clone()), name)
    }

    /// What a data descriptor gives.
    fn function_data(&mut self, f: &Rc<Function>, name: &str) -> Flow<Option<Value>> {
        if let Some(slots) = f.slots.get()
            && let Some(set) = self.dict_get_str(slots, name)?
        {
            return Ok(Some(set));
        }
        Ok(match name {
            "__name__" | "__qualname__" | "__module__" if f.origin.is_some() => self.outside_name(f, name)?,
            "__name__" => Some(Value::Const(Const::Str(f.name.clone()))),
            "__qualname__" => Some(Value::Const(Const::Str(f.qualname.clone()))),
            "__module__" => Some(f.module.clone().map_or(Value::NONE, |m| Value::Const(Const::Str(m)))),
            "__code__" => Some(Value::Code(f.code.clone())),
            "__defaults__" => Some(self.defaults_of(f)?.unwrap_or(Value::NONE)),
            "__kwdefaults__" => Some(self.kwdefaults_of(f)?.unwrap_or(Value::NONE)),
            "__globals__" => Some(Value::Dict(f.globals)),
            "__dict__" => Some(Value::Dict(self.attrs_of_function(f))),
            "__doc__" | "__annotations__" if f.origin.is_some() => self.function_slot(f, name)?,
            "__doc__" => Some(docstring(f)),
            "__annotations__" => {
                let empty = self.new_dict(vec![])?;
                self.set_slot_of_new(f, name, empty.clone())?;
                Some(empty)
            }
            // A function with parameters of types is made by an instruction that breaks.
            "__type_params__" if f.origin.is_none() => Some(Value::tuple(vec![])),
            "__closure__" | "__type_params__" => {
                return stop(ReasonCode::UnsupportedObject, format!("{name} of a function"));
            }
            _ => self.attr_of_type(&Value::Function(f.clone()), name)?,
        })
    }

    fn attrs_of_function(&mut self, f: &Function) -> DictId {
        let attrs = f.attrs.get().unwrap_or_else(|| self.fresh_attrs());
        f.attrs.set(Some(attrs));
        attrs
    }

    /// Stores what a data descriptor of a function made in the trace is set to.
    pub(crate) fn set_slot_of_new(&mut self, f: &Function, name: &str, value: Value) -> Flow<()> {
        let slots = match f.slots.get() {
            Some(slots) => slots,
            None => self.arenas.dicts.push(DictValue { loaded: true, ..DictValue::default() }),
        };
        f.slots.set(Some(slots));
        self.dict_set(slots, Value::str(name), value)
    }

    /// `function.name = value`; `None` deletes.
    pub(super) fn set_function_attr(&mut self, f: &Function, name: &str, value: Option<Value>) -> Flow<()> {
        let refused = || stop(ReasonCode::SideEffect, format!("setting {name} of a function"));
        if self.is_data_of_function(name) {
            return if f.origin.is_some() { refused() } else { self.set_function_data(f, name, value) };
        }
        if f.origin.is_some() && f.attrs.get().is_none() {
            return refused();
        }
        let attrs = self.attrs_of_function(f);
        match value {
            Some(value) => self.dict_set(attrs, Value::str(name), value),
            None => match self.dict_remove(attrs, &Value::str(name))? {
                Some(_) => Ok(()),
                None => self.raise_inexact("AttributeError", name),
            },
        }
    }

    fn set_function_data(&mut self, f: &Function, name: &str, value: Option<Value>) -> Flow<()> {
        let value = value.map(|value| self.read(&value)).transpose()?;
        let stored = match (name, value) {
            ("__name__" | "__qualname__", Some(value)) if value.as_str().is_some() => value,
            ("__name__" | "__qualname__", value) => {
                if let Some(value) = value
                    && self.class_of(&value)?.derives("builtins.str")
                {
                    return stop(ReasonCode::SideEffect, format!("a {name} of a subclass of str"));
                }
                return self.raise_named("TypeError", &format!("{name} must be set to a string object"));
            }
            ("__module__" | "__doc__", value) => value.unwrap_or(Value::NONE),
            // The next read makes an empty dict.
            ("__annotations__", None) => self.new_dict(vec![])?,
            ("__annotations__", Some(value)) if value.is_none() => self.new_dict(vec![])?,
            ("__annotations__", Some(value @ Value::Dict(_))) => value,
            ("__annotations__", Some(value)) => {
                if self.class_of(&value)?.derives("builtins.dict") {
                    return stop(ReasonCode::SideEffect, "annotations of a subclass of dict");
                }
                return self.raise_named("TypeError", "__annotations__ must be set to a dict object");
            }
            ("__type_params__", Some(value @ Value::Tuple(_))) => value,
            ("__type_params__", value) => {
                if let Some(value) = value
                    && self.class_of(&value)?.derives("builtins.tuple")
                {
                    return stop(ReasonCode::SideEffect, "type parameters of a subclass of tuple");
                }
                return self.raise_named("TypeError", "__type_params__ must be set to a tuple");
            }
            _ => return stop(ReasonCode::SideEffect, format!("setting {name} of a function")),
        };
        self.set_slot_of_new(f, name, stored)
    }

    /// A name of a function from outside: a fact of its own, as wrappers take over the names of what they wrap.
    fn outside_name(&mut self, f: &Function, name: &str) -> Flow<Option<Value>> {
        let Some(origin) = f.origin else { return Ok(None) };
        let (step, value) = match name {
            "__qualname__" => (Step::QualName, f.qualname.clone()),
            "__name__" => (Step::FunctionName, f.name.clone()),
            "__module__" if f.module.is_some() => (Step::ModuleName, f.module.clone().unwrap_or_default()),
            _ => return stop(ReasonCode::UnguardableObject, format!("{name} of a function")),
        };
        let source = self.step(origin.source, step);
        let value = Const::Str(value);
        self.guard(source, GuardKind::Equals(value.clone()));
        // Wrappers have the very object.
        self.met_text(&value, source);
        Ok(Some(Value::Const(value)))
    }

    fn function_slot(&mut self, f: &Function, name: &str) -> Flow<Option<Value>> {
        let Some(origin) = f.origin else { return Ok(None) };
        match self.ask_one(Question::Slot { object: origin.object, name: name.into() })? {
            AnswerValue::Object(Some(object)) => {
                let source = self.step(origin.source, Step::Slot(name.into()));
                self.wrap(object, source).map(Some)
            }
            _ => stop(ReasonCode::UnsupportedObject, format!("{name} of a function")),
        }
    }
}

/// `__doc__` of a function that the trace made, as `PyFunction_NewWithQualName` takes it from the code.
fn docstring(f: &Function) -> Value {
    match f.code.consts.first() {
        Some(doc @ Const::Str(_)) => Value::Const(doc.clone()),
        _ => Value::NONE,
    }
}
