//! Attributes of Python modules, and of instances of subclasses of the module type (`torch.backends.cudnn`, `torch._VF`).

use crate::state::tracer::Tracer;
use crate::value::Args;
use crate::value::flow::{Flow, stop};
use crate::value::{Class, Module, Value};
use flambeau_ir::object::ObjectData;
use flambeau_ir::reason::ReasonCode;
use std::rc::Rc;

/// How a module looks an attribute up. Its type has no import path: `builtins` has no `module`.
pub(crate) const MODULE_ATTR: &str = "builtins.module.__getattribute__";

impl Tracer<'_> {
    /// `module.name`
    pub(crate) fn python_module_attr(&mut self, module: &Rc<Module>, name: &str) -> Flow<Option<Value>> {
        let Some(class) = self.module_subclass(module)? else { return self.plain_module_attr(module, name) };
        let value = Value::Module(module.clone());
        if let Some((_, hook @ Value::Function(_))) = self.type_lookup(&class, "__getattribute__")? {
            return self.call(&hook, Args::new(vec![value, Value::str(name)])).map(Some);
        }
        let found = self.type_lookup(&class, name)?;
        if let Some((_, raw)) = &found
            && self.is_data_descriptor(raw)?
        {
            return self.bind_attr(raw, &value, &class, name).map(Some);
        }
        if let Some(item) = self.dict_get_str(module.dict, name)? {
            return Ok(Some(item));
        }
        if let Some((_, raw)) = found {
            return self.bind_attr(&raw, &value, &class, name).map(Some);
        }
        match self.plain_module_attr(module, name)? {
            Some(item) => Ok(Some(item)),
            None => self.getattr_hook(&value, &class, name),
        }
    }

    /// The module's dict, then the `__getattr__` function in it (PEP 562).
    fn plain_module_attr(&mut self, module: &Rc<Module>, name: &str) -> Flow<Option<Value>> {
        match (self.dict_get_str(module.dict, name)?, name) {
            (Some(found), _) => Ok(Some(found)),
            (None, "__dict__") => Ok(Some(Value::Dict(module.dict))),
            (None, "__getattribute__") if self.module_subclass(module)?.is_none() => {
                Ok(Some(Value::bound_builtin(MODULE_ATTR, Value::Module(module.clone()))))
            }
            (None, _) => {
                if let Some(found) = self.attr_of_type(&Value::Module(module.clone()), name)? {
                    return Ok(Some(found));
                }
                match self.dict_get_str(module.dict, "__getattr__")? {
                    Some(hook) => self.call(&hook, Args::new(vec![Value::str(name)])).map(Some),
                    None => Ok(None),
                }
            }
        }
    }

    /// `module.name = value`; `None` deletes. A subclass of the module type may have data descriptors, as
    /// `torch.backends.cudnn` has.
    pub(crate) fn set_module_attr(&mut self, module: &Rc<Module>, name: &str, value: Option<Value>) -> Flow<()> {
        let target = Value::Module(module.clone());
        if name == "__class__" || name == "__dict__" {
            return stop(ReasonCode::SideEffect, format!("setting {name} of a module"));
        }
        if let Some(class) = self.module_subclass(module)? {
            let hook = if value.is_some() { "__setattr__" } else { "__delattr__" };
            match self.type_lookup(&class, hook)? {
                None => {}
                Some((owner, Value::Builtin(_))) if owner.is("builtins.object") || owner.is("builtins.module") => {}
                Some((_, hook @ Value::Function(_))) => {
                    let args = [target, Value::str(name)].into_iter().chain(value);
                    return self.call(&hook, Args::new(args.collect())).map(|_| ());
                }
                Some(_) => return stop(ReasonCode::SideEffect, format!("{}.{hook}", class.name.qualname)),
            }
        }
        self.set_in_module(module, name, value)
    }

    /// As [`Tracer::set_module_attr`], past what its class says in a `__setattr__` or `__delattr__`.
    pub(crate) fn set_in_module(&mut self, module: &Rc<Module>, name: &str, value: Option<Value>) -> Flow<()> {
        let target = Value::Module(module.clone());
        if let Some(class) = self.module_subclass(module)?
            && let Some((_, raw)) = self.type_lookup(&class, name)?
            && self.is_data_descriptor(&raw)?
        {
            return match value {
                Some(value) => self.set_through(&raw, &target, name, Some(value)),
                None => stop(ReasonCode::SideEffect, format!("deleting {name} through a descriptor")),
            };
        }
        match value {
            Some(value) => self.dict_set(module.dict, Value::str(name), value),
            None => match self.dict_remove(module.dict, &Value::str(name))? {
                Some(_) => Ok(()),
                None => {
                    let class = self.type_name(&target);
                    self.raise_named("AttributeError", &format!("'{class}' object has no attribute '{name}'"))
                }
            },
        }
    }

    /// The module's class, if it is a subclass of the module type.
    pub(crate) fn module_subclass(&mut self, module: &Module) -> Flow<Option<Rc<Class>>> {
        let class = self.describe(module.origin.object)?.class;
        let described = self.describe(class)?;
        match &described.data {
            ObjectData::Class(c) if &*c.qualname == "module" && &*c.module == "builtins" => Ok(None),
            _ => self.guard_type(class, module.origin.source).map(Some),
        }
    }
}
