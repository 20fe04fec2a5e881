//! Globals, names of class bodies, attributes.

use super::stack::read_cell;
use crate::state::tracer::Tracer;
use crate::value::Args;
use crate::value::Value;
use crate::value::flow::{Flow, stop};
use crate::value::frame::{Control, PyFrame};
use flambeau_ir::reason::ReasonCode;

fn global(t: &mut Tracer<'_>, f: &PyFrame, name: &str) -> Flow<Value> {
    if let Some(value) = t.dict_get_str(f.function.globals, name)? {
        return Ok(value);
    }
    let builtins = t.builtins_dict()?;
    match t.dict_get_str(builtins, name)? {
        Some(value) => Ok(value),
        None => t.raise_named("NameError", &format!("name '{name}' is not defined")),
    }
}

pub(super) fn load_global(t: &mut Tracer<'_>, f: &mut PyFrame, name: u32, push_null: bool) -> Flow<Control> {
    let value = global(t, f, f.name(name)?)?;
    if push_null {
        f.stack.push(None);
    }
    f.push(value);
    Ok(Control::Next)
}

pub(super) fn load_build_class(t: &mut Tracer<'_>, f: &mut PyFrame) -> Flow<Control> {
    let builtins = t.builtins_dict()?;
    let Some(found) = t.dict_get_str(builtins, "__build_class__")? else {
        return t.raise_named("NameError", "__build_class__ not found");
    };
    f.push(found);
    Ok(Control::Next)
}

pub(super) fn store_global(t: &mut Tracer<'_>, f: &mut PyFrame, name: u32) -> Flow<Control> {
    let value = f.pop()?;
    let key = Value::str(f.name(name)?);
    t.dict_set(f.function.globals, key, value)?;
    Ok(Control::Next)
}

pub(super) fn delete_global(t: &mut Tracer<'_>, f: &mut PyFrame, name: u32) -> Flow<Control> {
    let key = Value::str(f.name(name)?);
    if t.dict_remove(f.function.globals, &key)?.is_none() {
        let message = format!("name '{}' is not defined", f.name(name)?);
        return t.raise_named("NameError", &message);
    }
    Ok(Control::Next)
}

pub(super) fn load_name(t: &mut Tracer<'_>, f: &mut PyFrame, name: u32) -> Flow<Control> {
    let Some(names) = f.names else { return stop(ReasonCode::UnsupportedOpcode, "LOAD_NAME outside a class body") };
    let value = match t.dict_get_str(names, f.name(name)?)? {
        Some(value) => value,
        None => global(t, f, f.name(name)?)?,
    };
    f.push(value);
    Ok(Control::Next)
}

pub(super) fn store_name(t: &mut Tracer<'_>, f: &mut PyFrame, name: u32) -> Flow<Control> {
    let Some(names) = f.names else { return stop(ReasonCode::UnsupportedOpcode, "STORE_NAME outside a class body") };
    let value = f.pop()?;
    let key = Value::str(f.name(name)?);
    t.dict_set(names, key, value)?;
    Ok(Control::Next)
}

/// Takes the names of a class body, which stand for themselves, off the stack.
pub(super) fn of_class_body(f: &mut PyFrame) -> Flow<()> {
    match f.stack.pop() {
        Some(None) => Ok(()),
        _ => stop(ReasonCode::UnsupportedOpcode, "names of a class outside its body"),
    }
}

pub(super) fn load_class_deref(t: &mut Tracer<'_>, f: &mut PyFrame, i: u32) -> Flow<Control> {
    let name = f.code.localsplusnames[i as usize].clone();
    let found = match f.names {
        Some(names) => t.dict_get_str(names, &name)?,
        None => None,
    };
    let value = match found {
        Some(value) => value,
        None => read_cell(t, f, i)?,
    };
    f.push(value);
    Ok(Control::Next)
}

pub(super) fn load_attr(t: &mut Tracer<'_>, f: &mut PyFrame, name: u32, method: bool) -> Flow<Control> {
    let owner = f.pop()?;
    let value = t.get_attr(&owner, f.name(name)?)?;
    if method {
        f.stack.push(None);
    }
    f.push(value);
    Ok(Control::Next)
}

pub(super) fn load_super_attr(
    t: &mut Tracer<'_>,
    f: &mut PyFrame,
    name: u32,
    method: bool,
    explicit: bool,
) -> Flow<Control> {
    let (receiver, class, callee) = (f.pop()?, f.pop()?, f.pop()?);
    // Without arguments the compiler has found those that `super` itself would find; another callable gets none.
    let given = explicit || matches!(&callee, Value::Class(c) if c.is("builtins.super"));
    let args = if given { vec![class, receiver] } else { vec![] };
    let made = t.call(&callee, Args::new(args))?;
    f.push(made);
    load_attr(t, f, name, method)
}

pub(super) fn store_attr(t: &mut Tracer<'_>, f: &mut PyFrame, name: u32) -> Flow<Control> {
    let (owner, value) = (f.pop()?, f.pop()?);
    if !t.store_on_module(&owner, f.name(name)?, &value)? {
        t.set_attr(&owner, f.name(name)?, value)?;
    }
    Ok(Control::Next)
}

pub(super) fn delete_attr(t: &mut Tracer<'_>, f: &mut PyFrame, name: u32) -> Flow<Control> {
    let owner = f.pop()?;
    t.del_attr(&owner, f.name(name)?)?;
    Ok(Control::Next)
}
