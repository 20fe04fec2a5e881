//! Calls and function objects.

use crate::call::Args;
use crate::flow::{Flow, stop};
use crate::frame::{Control, PyFrame};
use crate::tracer::Tracer;
use crate::value::{Function, Value};
use flambeau_ir::code::Const;
use flambeau_ir::reason::ReasonCode;
use std::rc::Rc;

pub(super) fn make_function(t: &mut Tracer<'_>, f: &mut PyFrame, parts: [bool; 4]) -> Flow<Control> {
    let Value::Code(code) = f.pop()? else { return stop(ReasonCode::Internal, "no code to make a function of") };
    let [has_defaults, has_kwdefaults, has_annotations, has_closure] = parts;
    let mut closure = Vec::new();
    if has_closure {
        let Value::Tuple(cells) = f.pop()? else { return stop(ReasonCode::Internal, "a closure that is no tuple") };
        for cell in &cells.items {
            let Value::Cell(cell) = cell else { return stop(ReasonCode::Internal, "a closure of no cells") };
            closure.push(*cell);
        }
    }
    if has_annotations {
        f.pop()?;
    }
    let kwdefaults = if has_kwdefaults { Some(f.pop()?) } else { None };
    let defaults = if has_defaults { Some(f.pop()?) } else { None };
    let module = match t.dict_get_str(f.function.globals, "__name__")? {
        Some(name) => name.as_str().cloned(),
        None => None,
    };
    f.push(Value::Function(Rc::new(Function {
        qualname: code.qualname.as_str().into(),
        code,
        module,
        path: None,
        globals: f.function.globals,
        origin: None,
        defaults,
        kwdefaults,
        closure,
        attrs: std::cell::Cell::new(None),
        annotated: has_annotations,
        maker: Some(f.function.clone()),
    })));
    Ok(Control::Next)
}

pub(super) fn kw_names(f: &mut PyFrame, i: u32) -> Flow<Control> {
    let Some(Const::Tuple(names)) = f.code.consts.get(i as usize) else {
        return stop(ReasonCode::Internal, "keyword names are no tuple");
    };
    f.kw_names = names.iter().filter_map(|n| if let Const::Str(s) = n { Some(s.clone()) } else { None }).collect();
    Ok(Control::Next)
}

pub(super) fn call(t: &mut Tracer<'_>, f: &mut PyFrame, argc: u32) -> Flow<Control> {
    let names = std::mem::take(&mut f.kw_names);
    let mut pos = f.pop_n(argc as usize)?;
    let values = pos.split_off(pos.len() - names.len().min(pos.len()));
    let second = f.pop()?;
    let first = f.stack.pop().flatten();
    let callee = match first {
        // [method, self, args...]
        Some(method) => {
            pos.insert(0, second);
            method
        }
        None => second,
    };
    let mut args = Args { pos, kw: names.into_iter().zip(values).collect() };
    if matches!(&callee, Value::Class(c) if c.is("builtins.super")) && args.pos.is_empty() {
        args.pos = implied_super(t, f)?;
    }
    t.direct = true;
    let result = t.call(&callee, args);
    t.direct = false;
    f.push(result?);
    Ok(Control::Next)
}

pub(super) fn call_ex(t: &mut Tracer<'_>, f: &mut PyFrame, kwargs: bool) -> Flow<Control> {
    let keywords = if kwargs { Some(f.pop()?) } else { None };
    let positional = f.pop()?;
    let callee = f.pop()?;
    f.stack.pop();
    let mut args = Args::new(t.collect(&positional)?);
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
    f.push(result?);
    Ok(Control::Next)
}

/// What `super()` takes from its frame: the class its function was defined in, and the first argument.
fn implied_super(t: &mut Tracer<'_>, f: &mut PyFrame) -> Flow<Vec<Value>> {
    let Some(at) = f.code.localsplusnames.iter().position(|n| n == "__class__") else {
        return t.raise_named("RuntimeError", "super(): __class__ cell not found");
    };
    let class = super::stack::read_cell(t, f, at as u32)?;
    // The first argument may live in a cell.
    let receiver = match super::stack::read_slot(t, f, 0)? {
        Some(Value::Cell(cell)) => t.cell_get(cell)?,
        other => other,
    };
    match receiver {
        Some(receiver) => Ok(vec![class, receiver]),
        None => t.raise_named("RuntimeError", "super(): arg[0] deleted"),
    }
}
