//! Building and taking apart containers and strings.

use crate::builtins;
use crate::builtins::containers::sets;
use crate::state::tracer::Tracer;
use crate::value::Args;
use crate::value::flow::{Flow, stop};
use crate::value::frame::{Control, PyFrame};
use crate::value::parts::SLICE;
use crate::value::{SetValue, Value};
use flambeau_ir::reason::ReasonCode;

pub(super) fn tuple(f: &mut PyFrame, n: u32) -> Flow<Control> {
    let items = f.pop_n(n as usize)?;
    f.push(Value::tuple(items));
    Ok(Control::Next)
}

pub(super) fn list(t: &mut Tracer<'_>, f: &mut PyFrame, n: u32) -> Flow<Control> {
    let items = f.pop_n(n as usize)?;
    let list = t.new_list(items);
    f.push(list);
    Ok(Control::Next)
}

pub(super) fn set(t: &mut Tracer<'_>, f: &mut PyFrame, n: u32) -> Flow<Control> {
    let id = t.arenas.sets.push(SetValue::default());
    for item in f.pop_n(n as usize)? {
        let key = t.key(&item)?;
        sets::insert(t, id, key, item);
    }
    f.push(Value::Set(id));
    Ok(Control::Next)
}

pub(super) fn map(t: &mut Tracer<'_>, f: &mut PyFrame, n: u32) -> Flow<Control> {
    let flat = f.pop_n(2 * n as usize)?;
    let items = flat.chunks_exact(2).map(|kv| (kv[0].clone(), kv[1].clone())).collect();
    let dict = t.new_dict(items)?;
    f.push(dict);
    Ok(Control::Next)
}

pub(super) fn const_key_map(t: &mut Tracer<'_>, f: &mut PyFrame, n: u32) -> Flow<Control> {
    let Value::Tuple(keys) = f.pop()? else { return stop(ReasonCode::Internal, "keys are no tuple") };
    let values = f.pop_n(n as usize)?;
    let dict = t.new_dict(keys.items.iter().cloned().zip(values).collect())?;
    f.push(dict);
    Ok(Control::Next)
}

pub(super) fn string(t: &mut Tracer<'_>, f: &mut PyFrame, n: u32) -> Flow<Control> {
    let parts = f.pop_n(n as usize)?;
    f.push(builtins::join(t, &parts)?);
    Ok(Control::Next)
}

pub(super) fn slice(f: &mut PyFrame, n: u32) -> Flow<Control> {
    let step = if n == 3 { f.pop()? } else { Value::NONE };
    let (stop, start) = (f.pop()?, f.pop()?);
    f.push(Value::parts(SLICE, [start, stop, step]));
    Ok(Control::Next)
}

/// The container that an instruction of a comprehension or display fills is one that a trace cannot hold, taken up from
/// before a break: too large, or of elements that have no key.
fn outside(t: &mut Tracer<'_>, f: &mut PyFrame, n: u32) -> Flow<Control> {
    let container = f.peek(n as usize)?.clone();
    stop(ReasonCode::UnsupportedObject, format!("filling a {}", t.type_name(&container)))
}

pub(super) fn list_append(t: &mut Tracer<'_>, f: &mut PyFrame, n: u32) -> Flow<Control> {
    let item = f.pop()?;
    let Value::List(list) = *f.peek(n as usize)? else { return outside(t, f, n) };
    t.list_mut(list)?.push(item);
    Ok(Control::Next)
}

pub(super) fn set_add(t: &mut Tracer<'_>, f: &mut PyFrame, n: u32) -> Flow<Control> {
    let item = f.pop()?;
    let Value::Set(set) = *f.peek(n as usize)? else { return outside(t, f, n) };
    let key = t.key(&item)?;
    sets::insert(t, set, key, item);
    Ok(Control::Next)
}

pub(super) fn map_add(t: &mut Tracer<'_>, f: &mut PyFrame, n: u32) -> Flow<Control> {
    let (value, key) = (f.pop()?, f.pop()?);
    let Value::Dict(dict) = *f.peek(n as usize)? else { return outside(t, f, n) };
    t.dict_set(dict, key, value)?;
    Ok(Control::Next)
}

pub(super) fn list_extend(t: &mut Tracer<'_>, f: &mut PyFrame, n: u32) -> Flow<Control> {
    let iterable = f.pop()?;
    let Value::List(list) = *f.peek(n as usize)? else { return outside(t, f, n) };
    if t.has_no_iter(&iterable)? {
        let name = t.type_name(&iterable);
        return t.raise_named("TypeError", &format!("Value after * must be an iterable, not {name}"));
    }
    t.list_extend(list, &iterable)?;
    Ok(Control::Next)
}

pub(super) fn set_update(t: &mut Tracer<'_>, f: &mut PyFrame, n: u32) -> Flow<Control> {
    let iterable = f.pop()?;
    let Value::Set(set) = *f.peek(n as usize)? else { return outside(t, f, n) };
    sets::extend(t, set, &iterable)?;
    Ok(Control::Next)
}

pub(super) fn dict_update(t: &mut Tracer<'_>, f: &mut PyFrame, n: u32, merge: bool) -> Flow<Control> {
    let mapping = f.pop()?;
    let Value::Dict(dict) = *f.peek(n as usize)? else { return outside(t, f, n) };
    let found = t.for_each_item(&mapping, |t, key, value| {
        if merge && t.dict_get(dict, &key)?.is_some() {
            // Python names the function that is about to be called.
            let message = format!("got multiple values for keyword argument '{}'", key.as_str().map_or("?", |s| s));
            return t.raise_inexact("TypeError", &message);
        }
        t.dict_set(dict, key, value)
    })?;
    if found {
        return Ok(Control::Next);
    }
    let name = t.type_name(&mapping);
    let message = format!("'{name}' object is not a mapping");
    if merge { t.raise_inexact("TypeError", &message) } else { t.raise_named("TypeError", &message) }
}

pub(super) fn list_to_tuple(t: &mut Tracer<'_>, f: &mut PyFrame) -> Flow<Control> {
    let Value::List(list) = f.pop()? else { return stop(ReasonCode::Internal, "no list to freeze") };
    let items = t.list_items(list)?.clone();
    f.push(Value::tuple(items));
    Ok(Control::Next)
}

/// The items of an iterable that is unpacked to that many names: no more are asked for than tell that there are too many.
fn unpacked(t: &mut Tracer<'_>, iterable: &Value, before: usize, after: Option<usize>) -> Flow<Vec<Value>> {
    let whole = match iterable {
        Value::Tuple(tuple) => tuple.class.is_none(),
        Value::List(list) => t.arenas.lists[*list].class.is_none(),
        _ => false,
    };
    if whole {
        return t.collect(iterable);
    }
    if t.has_no_iter(iterable)? {
        let name = t.type_name(iterable);
        return t.raise_named("TypeError", &format!("cannot unpack non-iterable {name} object"));
    }
    let iter = t.iter(iterable)?;
    let mut items = Vec::new();
    let most = if after.is_some() { before } else { before + 1 };
    while items.len() < most {
        let Some(item) = t.next(&iter)? else { return Ok(items) };
        items.push(item);
    }
    if after.is_some() {
        // `PySequence_List` makes a list of what the iterator has left.
        items.extend(t.collect_sized(&iter)?);
    }
    Ok(items)
}

pub(super) fn unpack(t: &mut Tracer<'_>, f: &mut PyFrame, before: usize, after: Option<usize>) -> Flow<Control> {
    let iterable = f.pop()?;
    let items = match t.unread_items(&iterable)? {
        Some(items) if after.is_none() => items,
        _ => {
            let iterable = t.read(&iterable)?;
            unpacked(t, &iterable, before, after)?
        }
    };
    let needed = before + after.unwrap_or(0);
    if items.len() < needed {
        let least = if after.is_some() { "at least " } else { "" };
        let message = format!("not enough values to unpack (expected {least}{needed}, got {})", items.len());
        return t.raise_named("ValueError", &message);
    }
    if after.is_none() && items.len() > before {
        return t.raise_named("ValueError", &format!("too many values to unpack (expected {before})"));
    }
    let mut targets: Vec<Value> = items[..before].to_vec();
    if let Some(after) = after {
        let rest = items.len() - after;
        targets.push(t.new_list(items[before..rest].to_vec()));
        targets.extend_from_slice(&items[rest..]);
    }
    for target in targets.into_iter().rev() {
        f.push(target);
    }
    Ok(Control::Next)
}

pub(super) fn convert_value(t: &mut Tracer<'_>, f: &mut PyFrame, conversion: u8) -> Flow<Control> {
    let path = match conversion {
        0 => return Ok(Control::Next),
        1 => "builtins.str",
        2 => "builtins.repr",
        _ => "builtins.ascii",
    };
    let value = f.pop()?;
    match builtins::call(t, path, Args::new(vec![value.clone()]))? {
        Some(text) => f.push(text),
        None => return stop(ReasonCode::UnsupportedCall, format!("{path} of a {}", t.type_name(&value))),
    }
    Ok(Control::Next)
}

pub(super) fn format_value(t: &mut Tracer<'_>, f: &mut PyFrame, conversion: u8, spec: bool) -> Flow<Control> {
    let spec = if spec { f.pop()? } else { Value::str("") };
    convert_value(t, f, conversion)?;
    let value = f.pop()?;
    if value.as_str().is_some() && spec.as_str().is_some_and(|s| s.is_empty()) {
        f.push(value);
        return Ok(Control::Next);
    }
    match builtins::call(t, "builtins.format", Args::new(vec![value.clone(), spec]))? {
        Some(text) => f.push(text),
        None => return stop(ReasonCode::UnsupportedCall, format!("formatting a {}", t.type_name(&value))),
    }
    Ok(Control::Next)
}
