//! Lists. Every change goes through [`Tracer::list_mut`], which logs it.

use super::args::{bind, exactly, receiver};
use super::{Table, fixed_int, unsupported};
use crate::call::Args;
use crate::flow::Flow;
use crate::tracer::Tracer;
use crate::value::{ListId, Value};

pub const TABLE: Table = &[
    ("builtins.list", list),
    ("builtins.list.__init__", init),
    ("builtins.list.append", append),
    ("builtins.list.extend", extend),
    ("builtins.list.insert", insert),
    ("builtins.list.pop", pop),
    ("builtins.list.remove", remove),
    ("builtins.list.clear", clear),
    ("builtins.list.index", index),
    ("builtins.list.count", count),
    ("builtins.list.reverse", reverse),
    ("builtins.list.sort", sort),
    ("builtins.list.copy", copy),
    ("builtins.list.__len__", length),
    ("builtins.list.__iter__", iter),
    ("builtins.list.__getitem__", getitem),
    ("builtins.list.__setitem__", setitem),
    ("builtins.list.__contains__", contains),
];

fn list(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let items = match bind(path, args, ["iterable"], 0)? {
        [Some(iterable)] => tracer.collect(&iterable)?,
        [None] => vec![],
    };
    Ok(tracer.new_list(items))
}

/// The list that a method is called on, and its arguments.
fn receiver_list(path: &str, args: Args) -> Flow<(ListId, Args)> {
    match receiver(path, args)? {
        (Value::List(id), rest) => Ok((id, rest)),
        _ => unsupported(path),
    }
}

fn init(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, rest) = receiver_list(path, args)?;
    let items = match bind(path, rest, ["iterable"], 0)? {
        [Some(iterable)] => tracer.collect(&iterable)?,
        [None] => vec![],
    };
    *tracer.list_mut(id)? = items;
    Ok(Value::NONE)
}

fn append(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, rest) = receiver_list(path, args)?;
    let [item] = exactly(path, rest)?;
    tracer.list_mut(id)?.push(item);
    Ok(Value::NONE)
}

fn extend(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, rest) = receiver_list(path, args)?;
    let [items] = exactly(path, rest)?;
    let items = tracer.collect(&items)?;
    tracer.list_mut(id)?.extend(items);
    Ok(Value::NONE)
}

fn insert(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, rest) = receiver_list(path, args)?;
    let [at, item] = exactly(path, rest)?;
    let at = fixed_int(tracer, &at, path)?;
    let items = tracer.list_mut(id)?;
    let length = items.len() as i64;
    let at = if at < 0 { (at + length).max(0) } else { at.min(length) };
    items.insert(at as usize, item);
    Ok(Value::NONE)
}

fn pop(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, rest) = receiver_list(path, args)?;
    let [at] = bind(path, rest, [""], 0)?;
    let at = match at {
        Some(at) => fixed_int(tracer, &at, path)?,
        None => -1,
    };
    let length = tracer.list_items(id)?.len() as i64;
    if length == 0 {
        return tracer.raise_named("IndexError", "pop from empty list");
    }
    let at = if at < 0 { at + length } else { at };
    if !(0..length).contains(&at) {
        return tracer.raise_named("IndexError", "pop index out of range");
    }
    Ok(tracer.list_mut(id)?.remove(at as usize))
}

/// The first position of an equal item, from `start` to `stop`.
fn find(tracer: &mut Tracer<'_>, id: ListId, item: &Value) -> Flow<Option<usize>> {
    let items = tracer.list_items(id)?.clone();
    for (i, candidate) in items.iter().enumerate() {
        if tracer.equal(candidate, item)? {
            return Ok(Some(i));
        }
    }
    Ok(None)
}

fn remove(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, rest) = receiver_list(path, args)?;
    let [item] = exactly(path, rest)?;
    match find(tracer, id, &item)? {
        Some(at) => {
            tracer.list_mut(id)?.remove(at);
            Ok(Value::NONE)
        }
        None => tracer.raise_named("ValueError", "list.remove(x): x not in list"),
    }
}

fn clear(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, rest) = receiver_list(path, args)?;
    let [] = exactly(path, rest)?;
    tracer.list_mut(id)?.clear();
    Ok(Value::NONE)
}

fn index(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, rest) = receiver_list(path, args)?;
    let [item] = exactly(path, rest)?;
    match find(tracer, id, &item)? {
        Some(at) => Ok(Value::int(at as i64)),
        None => match super::strings::represent(tracer, &item) {
            Ok(text) => tracer.raise_named("ValueError", &format!("{text} is not in list")),
            Err(_) => super::unsupported(path),
        },
    }
}

fn count(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, rest) = receiver_list(path, args)?;
    let [item] = exactly(path, rest)?;
    let mut count = 0;
    for candidate in tracer.list_items(id)?.clone() {
        count += i64::from(tracer.equal(&candidate, &item)?);
    }
    Ok(Value::int(count))
}

fn reverse(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, rest) = receiver_list(path, args)?;
    let [] = exactly(path, rest)?;
    tracer.list_mut(id)?.reverse();
    Ok(Value::NONE)
}

fn sort(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, mut rest) = receiver_list(path, args)?;
    let key = rest.take_kw("key").unwrap_or(Value::NONE);
    let reverse = rest.take_kw("reverse").unwrap_or(Value::bool(false));
    let [] = exactly(path, rest)?;
    let items = tracer.list_items(id)?.clone();
    let items = super::core::sort(tracer, items, &key, &reverse)?;
    *tracer.list_mut(id)? = items;
    Ok(Value::NONE)
}

fn copy(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, rest) = receiver_list(path, args)?;
    let [] = exactly(path, rest)?;
    let items = tracer.list_items(id)?.clone();
    Ok(tracer.new_list(items))
}

fn length(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, _) = receiver_list(path, args)?;
    Ok(Value::int(tracer.list_items(id)?.len() as i64))
}

fn iter(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (list, _) = receiver_list(path, args)?;
    Ok(tracer.new_iter(crate::value::Iter::List { list, at: 0 }))
}

fn getitem(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [list, key] = exactly(path, args)?;
    super::subscript(tracer, &list, &key)?.map_or_else(|| unsupported(path), Ok)
}

fn setitem(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [list, key, value] = exactly(path, args)?;
    if super::store_subscript(tracer, &list, &key, value)? { Ok(Value::NONE) } else { unsupported(path) }
}

fn contains(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [list, item] = exactly(path, args)?;
    super::contains(tracer, &list, &item)?.map_or_else(|| unsupported(path), |found| Ok(Value::bool(found)))
}
