//! Dicts and their subclasses. Every read is guarded and every change logged by the `Tracer::dict_*` functions.

use crate::builtins::args::{bind, exactly, receiver};
use crate::builtins::{Table, unsupported};
use crate::state::tracer::Tracer;
use crate::value::Args;
use crate::value::flow::Flow;
use crate::value::{DictId, Value, ViewKind};

pub const TABLE: Table = &[
    ("builtins.dict", dict),
    ("builtins.dict.__init__", init),
    ("collections.defaultdict.__init__", init),
    ("builtins.dict.fromkeys", fromkeys),
    ("builtins.dict.get", get),
    ("builtins.dict.keys", keys),
    ("builtins.dict.values", values),
    ("builtins.dict.items", items),
    ("builtins.dict.setdefault", setdefault),
    ("builtins.dict.update", update),
    ("builtins.dict.pop", pop),
    ("builtins.dict.popitem", popitem),
    ("builtins.dict.clear", clear),
    ("builtins.dict.copy", copy),
    ("collections.defaultdict.copy", copy),
    ("builtins.dict.__len__", length),
    ("builtins.dict.__iter__", iter),
    ("builtins.dict.__contains__", contains),
    ("builtins.dict.__getitem__", getitem),
    ("builtins.dict.__setitem__", setitem),
    ("builtins.dict.__delitem__", delitem),
    ("collections.OrderedDict.__init__", init),
    ("collections.OrderedDict.__setitem__", setitem),
    ("collections.OrderedDict.__delitem__", delitem),
    ("collections.OrderedDict.__iter__", iter),
    ("collections.OrderedDict.keys", keys),
    ("collections.OrderedDict.values", values),
    ("collections.OrderedDict.items", items),
    ("collections.OrderedDict.pop", pop),
    ("collections.OrderedDict.popitem", popitem),
    ("collections.OrderedDict.setdefault", setdefault),
    ("collections.OrderedDict.update", update),
    ("collections.OrderedDict.clear", clear),
    ("collections.OrderedDict.copy", copy),
    ("collections.OrderedDict.move_to_end", move_to_end),
];

fn dict(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let made = tracer.new_dict(vec![])?;
    let Value::Dict(id) = made else { return unsupported(path) };
    merge(tracer, path, id, args)?;
    Ok(made)
}

/// `dict.update` and the constructors: a mapping or an iterable of pairs, then keywords.
pub fn merge(tracer: &mut Tracer<'_>, path: &str, id: DictId, args: Args) -> Flow<()> {
    match args.pos.as_slice() {
        [] => {}
        [source] => update_from(tracer, id, source)?,
        _ => return unsupported(path),
    }
    for (name, value) in args.kw {
        tracer.dict_set(id, Value::str(&name), value)?;
    }
    Ok(())
}

/// `dict_update_arg` in CPython's `Objects/dictobject.c`: what has `keys` is a mapping, all else gives pairs.
fn update_from(tracer: &mut Tracer<'_>, id: DictId, source: &Value) -> Flow<()> {
    if tracer.for_each_item(source, |t, key, value| t.dict_set(id, key, value))? {
        return Ok(());
    }
    let mut at = 0;
    tracer.for_each(source, |t, item| {
        let (key, value) = pair(t, id, &item, at)?;
        at += 1;
        t.dict_set(id, key, value)
    })
}

/// The `at`-th item of an iterable as a key and a value of this dict.
fn pair(tracer: &mut Tracer<'_>, id: DictId, item: &Value, at: usize) -> Flow<(Value, Value)> {
    let parts = tracer.collect(item);
    // Whatever raises it, `PyDict_MergeFromSeq2` says it so.
    if tracer.is_raise_of(&parts, "TypeError") {
        let message = format!("cannot convert dictionary update sequence element #{at} to a sequence");
        return wrong_pair(tracer, id, "TypeError", &message);
    }
    let parts = parts?;
    match <[Value; 2]>::try_from(parts) {
        Ok([key, value]) => Ok((key, value)),
        Err(parts) => {
            let given = parts.len();
            let message = format!("dictionary update sequence element #{at} has length {given}; 2 is required");
            wrong_pair(tracer, id, "ValueError", &message)
        }
    }
}

fn wrong_pair<T>(tracer: &mut Tracer<'_>, id: DictId, error: &str, message: &str) -> Flow<T> {
    let ordered = tracer.arenas.dicts[id].class.as_ref().is_some_and(|c| c.derives("collections.OrderedDict"));
    if ordered { tracer.raise_inexact(error, message) } else { tracer.raise_named(error, message) }
}

/// As [`receiver_dict`] for what changes or orders a dict: past an `OrderedDict`'s own methods it loses its order.
fn changed_dict(tracer: &Tracer<'_>, path: &str, args: Args) -> Flow<(DictId, Args)> {
    let (id, rest) = receiver_dict(path, args)?;
    let ordered = tracer.arenas.dicts[id].class.as_ref().is_some_and(|c| c.derives("collections.OrderedDict"));
    if ordered && path.starts_with("builtins.dict.") { unsupported(path) } else { Ok((id, rest)) }
}

fn receiver_dict(path: &str, args: Args) -> Flow<(DictId, Args)> {
    match receiver(path, args)? {
        (Value::Dict(id), rest) => Ok((id, rest)),
        _ => unsupported(path),
    }
}

fn init(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, mut rest) = receiver_dict(path, args)?;
    if tracer.arenas.dicts[id].class.as_ref().is_some_and(|class| class.derives("collections.defaultdict")) {
        if tracer.arenas.dicts[id].origin.is_some() {
            return unsupported("collections.defaultdict.__init__");
        }
        let (factory, others) = super::collections::factory(tracer, path, rest)?;
        tracer.arenas.dicts[id].factory = Some(factory);
        rest = others;
    }
    merge(tracer, path, id, rest)?;
    Ok(Value::NONE)
}

fn fromkeys(tracer: &mut Tracer<'_>, path: &str, mut args: Args) -> Flow<Value> {
    if let Some(Value::Class(class)) = args.pos.first() {
        if !class.is("builtins.dict") {
            return unsupported(path);
        }
        args.pos.remove(0);
    }
    let [keys, value] = bind(path, args, ["", ""], 1)?;
    let Some(keys) = keys else { return unsupported(path) };
    let value = value.unwrap_or(Value::NONE);
    let pairs = tracer.collect(&keys)?.into_iter().map(|k| (k, value.clone())).collect();
    tracer.new_dict(pairs)
}

fn get(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, rest) = receiver_dict(path, args)?;
    let [key, default] = bind(path, rest, ["", ""], 1)?;
    let Some(key) = key else { return unsupported(path) };
    Ok(tracer.dict_get(id, &key)?.or(default).unwrap_or(Value::NONE))
}

fn keys(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    view(tracer, path, args, ViewKind::Keys)
}

fn values(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    view(tracer, path, args, ViewKind::Values)
}

fn items(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    view(tracer, path, args, ViewKind::Items)
}

fn view(tracer: &mut Tracer<'_>, path: &str, args: Args, kind: ViewKind) -> Flow<Value> {
    let (id, rest) = changed_dict(tracer, path, args)?;
    let [] = exactly(path, rest)?;
    Ok(Value::DictView(id, kind))
}

/// The names of a method's parameters: those of `dict` have none.
fn key_and_default(path: &str) -> [&'static str; 2] {
    if path.starts_with("builtins.") { ["", ""] } else { ["key", "default"] }
}

fn setdefault(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, rest) = changed_dict(tracer, path, args)?;
    let [key, default] = bind(path, rest, key_and_default(path), 1)?;
    let Some(key) = key else { return unsupported(path) };
    if let Some(value) = tracer.dict_get(id, &key)? {
        return Ok(value);
    }
    let value = default.unwrap_or(Value::NONE);
    tracer.dict_set(id, key, value.clone())?;
    Ok(value)
}

fn update(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, rest) = changed_dict(tracer, path, args)?;
    merge(tracer, path, id, rest)?;
    Ok(Value::NONE)
}

fn pop(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, rest) = changed_dict(tracer, path, args)?;
    let [key, default] = bind(path, rest, key_and_default(path), 1)?;
    let Some(key) = key else { return unsupported(path) };
    // An empty dict does not ask for the hash.
    if tracer.dict_len(id)? == 0 && path.starts_with("builtins.") {
        return default.map_or_else(|| tracer.raise_with("KeyError", vec![key]), Ok);
    }
    match (tracer.dict_remove(id, &key)?, default) {
        (Some(value), _) | (None, Some(value)) => Ok(value),
        (None, None) => tracer.raise_with("KeyError", vec![key]),
    }
}

fn popitem(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, mut rest) = changed_dict(tracer, path, args)?;
    if path.starts_with("builtins.") && (!rest.pos.is_empty() || !rest.kw.is_empty()) {
        return unsupported(path);
    }
    let last = match rest.take_kw("last").or(rest.pos.pop()) {
        Some(last) => tracer.truth(&last)?,
        None => true,
    };
    let items = tracer.dict_items(id)?;
    let item = if last { items.last() } else { items.first() };
    let Some((key, value)) = item.cloned() else {
        return tracer.raise_named("KeyError", "popitem(): dictionary is empty");
    };
    tracer.dict_remove(id, &key)?;
    Ok(Value::tuple(vec![key, value]))
}

fn clear(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, rest) = changed_dict(tracer, path, args)?;
    let [] = exactly(path, rest)?;
    tracer.dict_replace(id, vec![])?;
    Ok(Value::NONE)
}

fn copy(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [dict] = exactly(path, args)?;
    let own = path.strip_suffix(".copy").filter(|class| *class != "builtins.dict");
    let Value::Dict(id) = &dict else { return unsupported(path) };
    match (&tracer.arenas.dicts[*id].class, own) {
        (Some(class), Some(own)) if class.is(own) => crate::builtins::slots::copy_dict(tracer, &dict),
        (_, Some(_)) => unsupported(path),
        (Some(class), None) if class.derives("collections.defaultdict") => unsupported(path),
        // `dict.copy` of a subclass gives a dict.
        _ => {
            let items = tracer.mapping_items(&dict)?;
            tracer.new_dict(items)
        }
    }
}

fn length(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, rest) = receiver_dict(path, args)?;
    let [] = exactly(path, rest)?;
    Ok(Value::int(tracer.dict_len(id)? as i64))
}

fn iter(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, rest) = changed_dict(tracer, path, args)?;
    let [] = exactly(path, rest)?;
    tracer.iter(&Value::DictView(id, ViewKind::Keys))
}

fn contains(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, rest) = receiver_dict(path, args)?;
    let [key] = exactly(path, rest)?;
    Ok(Value::bool(tracer.dict_get(id, &key)?.is_some()))
}

/// `dict.__getitem__` without a subclass's own look-up.
fn getitem(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [dict, key] = exactly(path, args)?;
    crate::builtins::subscript(tracer, &dict, &key)?.map_or_else(|| unsupported(path), Ok)
}

fn setitem(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, rest) = changed_dict(tracer, path, args)?;
    let [key, value] = exactly(path, rest)?;
    tracer.dict_set(id, key, value)?;
    Ok(Value::NONE)
}

fn delitem(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, rest) = changed_dict(tracer, path, args)?;
    let [key] = exactly(path, rest)?;
    match tracer.dict_remove(id, &key)? {
        Some(_) => Ok(Value::NONE),
        None => tracer.raise_with("KeyError", vec![key]),
    }
}

fn move_to_end(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, rest) = receiver_dict(path, args)?;
    let [key, last] = bind(path, rest, ["key", "last"], 1)?;
    let Some(key) = key else { return unsupported(path) };
    let last = match last {
        Some(last) => tracer.truth(&last)?,
        None => true,
    };
    let Some(value) = tracer.dict_get(id, &key)? else { return tracer.raise_with("KeyError", vec![key]) };
    let mut items = Vec::new();
    for (k, v) in tracer.dict_items(id)? {
        if !tracer.equal(&k, &key)? {
            items.push((k, v));
        }
    }
    items.insert(if last { items.len() } else { 0 }, (key, value));
    tracer.dict_replace(id, items)?;
    Ok(Value::NONE)
}
