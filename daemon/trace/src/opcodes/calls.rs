//! Calls and function objects.

use crate::protocol::truth::Seen;
use crate::state::tracer::Tracer;
use crate::value::Args;
use crate::value::flow::{Flow, stop};
use crate::value::frame::{Control, PyFrame};
use crate::value::{Function, Value};
use flambeau_bytecode::Parts;
use flambeau_ir::code::{Code, Const};
use flambeau_ir::reason::ReasonCode;
use std::rc::Rc;

pub(super) fn make_function(t: &mut Tracer<'_>, f: &mut PyFrame, parts: Parts) -> Flow<Control> {
    let Value::Code(code) = f.pop()? else { return stop(ReasonCode::Internal, "no code to make a function of") };
    let module = t.dict_get_str(f.function.globals, "__name__")?;
    let mut made = Function {
        name: code.name.as_str().into(),
        qualname: code.qualname.as_str().into(),
        code,
        module: module.as_ref().and_then(Value::as_str).cloned(),
        path: None,
        globals: f.function.globals,
        origin: None,
        defaults: None,
        kwdefaults: None,
        closure: Vec::new(),
        attrs: std::cell::Cell::new(None),
        slots: std::cell::Cell::new(None),
        maker: Some(f.function.clone()),
    };
    if let Some(module) = module.filter(|module| module.as_str().is_none()) {
        t.set_slot_of_new(&made, "__module__", module)?;
    }
    give(t, f, &mut made, parts)?;
    f.push(Value::Function(Rc::new(made)));
    Ok(Control::Next)
}

pub(super) fn set_function_attribute(t: &mut Tracer<'_>, f: &mut PyFrame, part: Parts) -> Flow<Control> {
    let Value::Function(made) = f.pop()? else { return stop(ReasonCode::Internal, "no function to complete") };
    let mut made = Rc::unwrap_or_clone(made);
    give(t, f, &mut made, part)?;
    f.push(Value::Function(Rc::new(made)));
    Ok(Control::Next)
}

/// Gives a function what is on the stack for it.
fn give(t: &mut Tracer<'_>, f: &mut PyFrame, made: &mut Function, parts: Parts) -> Flow<()> {
    if parts.closure {
        let Value::Tuple(cells) = f.pop()? else { return stop(ReasonCode::Internal, "a closure that is no tuple") };
        for cell in &cells.items {
            let Value::Cell(cell) = cell else { return stop(ReasonCode::Internal, "a closure of no cells") };
            made.closure.push(*cell);
        }
    }
    if parts.annotations {
        // Names and values in turn, of which CPython makes the dict when it is first read.
        let Value::Tuple(flat) = f.pop()? else { return stop(ReasonCode::Internal, "annotations that are no tuple") };
        let items = flat.items.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
        let annotations = t.new_dict(items)?;
        t.set_slot_of_new(made, "__annotations__", annotations)?;
    }
    if parts.kwdefaults {
        made.kwdefaults = Some(f.pop()?);
    }
    if parts.defaults {
        made.defaults = Some(f.pop()?);
    }
    Ok(())
}

pub(super) fn kw_names(f: &mut PyFrame, i: u32) -> Flow<Control> {
    let Some(Const::Tuple(names)) = f.code.consts.get(i as usize) else {
        return stop(ReasonCode::Internal, "keyword names are no tuple");
    };
    f.kw_names = names.iter().filter_map(|n| if let Const::Str(s) = n { Some(s.clone()) } else { None }).collect();
    Ok(Control::Next)
}

pub(super) fn call_kw(t: &mut Tracer<'_>, f: &mut PyFrame, argc: u32) -> Flow<Control> {
    let Value::Tuple(names) = f.pop()? else { return stop(ReasonCode::Internal, "keyword names are no tuple") };
    f.kw_names = names.items.iter().filter_map(|name| name.as_str().cloned()).collect();
    call(t, f, argc)
}

pub(super) fn call(t: &mut Tracer<'_>, f: &mut PyFrame, argc: u32) -> Flow<Control> {
    let names = std::mem::take(&mut f.kw_names);
    let mut pos = f.pop_n(argc as usize)?;
    let values = pos.split_off(pos.len() - names.len().min(pos.len()));
    let (second, first) = (f.stack.pop().flatten(), f.stack.pop().flatten());
    let callee = match (first, second) {
        // [method, self, args...]
        (Some(method), Some(receiver)) => {
            pos.insert(0, receiver);
            method
        }
        (Some(callee), None) | (None, Some(callee)) => callee,
        (None, None) => return stop(ReasonCode::Internal, "nothing to call"),
    };
    let mut args = Args { pos, kw: names.into_iter().zip(values).collect() };
    if matches!(&callee, Value::Class(c) if c.is("builtins.super")) && args.pos.is_empty() {
        args.pos = implied_super(t, f)?;
    }
    if args.kw.is_empty()
        && let Some(value) = made_truth(&callee, &args.pos)
        && let Some(truth) = t.checked_truth(value, Seen::ByNext)?
    {
        f.push(Value::bool(truth));
        return Ok(Control::Next);
    }
    t.direct = true;
    let result = t.call(&callee, args);
    t.direct = false;
    let result = t.take_result(f, result?)?;
    f.push(result);
    Ok(Control::Next)
}

/// That of which a call gives what is as true.
fn made_truth<'a>(callee: &'a Value, args: &'a [Value]) -> Option<&'a Value> {
    let keeps = |path: &str| matches!(path, "torch.Tensor.item" | "torch.Tensor.__bool__");
    match (callee, args) {
        (Value::Class(class), [value]) if class.is("builtins.bool") => Some(value),
        (Value::Builtin(method), [value]) if keeps(&method.path) => Some(value),
        (Value::Builtin(method), []) if keeps(&method.path) => method.receiver.as_ref(),
        (Value::Method(method), []) => made_truth(&method.func, std::slice::from_ref(&method.receiver)),
        _ => None,
    }
}

pub(super) fn call_ex(t: &mut Tracer<'_>, f: &mut PyFrame, kwargs: bool) -> Flow<Control> {
    let keywords = if kwargs { Some(f.pop()?) } else { None };
    let positional = f.pop()?;
    let (second, first) = (f.stack.pop().flatten(), f.stack.pop().flatten());
    let Some(callee) = first.or(second) else { return stop(ReasonCode::Internal, "nothing to call") };
    if t.has_no_iter(&positional)? {
        let (callee, name) = (function_text(t, &callee)?, t.type_name(&positional));
        let message = format!("{callee} argument after * must be an iterable, not {name}");
        return t.raise_named("TypeError", &message);
    }
    let mut args = Args::new(t.collect_sized(&positional)?);
    if let Some(keywords) = keywords {
        for (name, value) in t.mapping_items(&keywords)? {
            match name.as_str() {
                Some(name) => args.kw.push((name.clone(), value)),
                None => return t.raise_named("TypeError", "keywords must be strings"),
            }
        }
    }
    t.direct = true;
    let result = t.call(&callee, args);
    t.direct = false;
    let result = t.take_result(f, result?)?;
    f.push(result);
    Ok(Control::Next)
}

/// How messages name what is called (`_PyObject_FunctionStr` in CPython's `Objects/object.c`).
fn function_text(t: &mut Tracer<'_>, callee: &Value) -> Flow<String> {
    let (qualname, module) = match callee {
        Value::Function(_) => (t.get_attr(callee, "__qualname__")?, t.get_attr(callee, "__module__")?),
        Value::Class(class) => (Value::str(&class.name.qualname), Value::str(&class.name.module)),
        _ => return stop(ReasonCode::UnsupportedCall, "a call with what cannot be unpacked"),
    };
    let Some(qualname) = qualname.as_str() else {
        return stop(ReasonCode::UnsupportedCall, "a call with what cannot be unpacked");
    };
    Ok(match module.as_str() {
        Some(module) if &**module != "builtins" => format!("{module}.{qualname}()"),
        _ => format!("{qualname}()"),
    })
}

/// What `super()` takes from its frame: the class its function was defined in, and the first argument.
fn implied_super(t: &mut Tracer<'_>, f: &mut PyFrame) -> Flow<Vec<Value>> {
    if f.code.argcount == 0 {
        return t.raise_named("RuntimeError", "super(): no arguments");
    }
    // The first argument may live in a cell; a cell object may also be the argument itself.
    let in_cell = f.code.localspluskinds.first().is_some_and(|kind| kind & Code::CELL != 0);
    let receiver = match super::stack::read_slot(t, f, 0)? {
        Some(Value::Cell(cell)) if in_cell => t.cell_get(cell)?,
        other => other,
    };
    let Some(receiver) = receiver else {
        return t.raise_named("RuntimeError", "super(): arg[0] deleted");
    };
    let receiver = t.read(&receiver)?;
    let is_class = |(name, kind): (&String, &u8)| name == "__class__" && kind & Code::FREE != 0;
    let Some(at) = f.code.localsplusnames.iter().zip(&f.code.localspluskinds).position(is_class) else {
        return t.raise_named("RuntimeError", "super(): __class__ cell not found");
    };
    let cell = super::stack::cell(f, at as u32)?;
    match t.cell_get(cell)? {
        Some(class) => Ok(vec![class, receiver]),
        None => t.raise_named("RuntimeError", "super(): empty __class__ cell"),
    }
}
