//! Lists. Every change goes through [`Tracer::list_mut`] or [`Tracer::list_add`], which log it.

use crate::builtins::args::{bind, exactly, receiver};
use crate::builtins::{Table, fixed_int, unsupported};
use crate::state::tracer::Tracer;
use crate::value::Args;
use crate::value::flow::{Flow, Stop};
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
    let items = match bind(path, args, [""], 0)? {
        [Some(iterable)] => tracer.collect_sized(&iterable)?,
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
    let [iterable] = bind(path, rest, [""], 0)?;
    tracer.list_mut(id)?.clear();
    if let Some(iterable) = iterable {
        tracer.list_extend(id, &iterable)?;
    }
    Ok(Value::NONE)
}

fn append(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, rest) = receiver_list(path, args)?;
    let [item] = exactly(path, rest)?;
    tracer.list_add(id, [item]);
    Ok(Value::NONE)
}

fn extend(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, rest) = receiver_list(path, args)?;
    let [items] = exactly(path, rest)?;
    tracer.list_extend(id, &items)?;
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

/// The first position of an equal item.
fn find(tracer: &mut Tracer<'_>, id: ListId, item: &Value) -> Flow<Option<usize>> {
    let mut at = 0;
    // What compares may change the list.
    while let Some(candidate) = tracer.list_items(id)?.get(at).cloned() {
        if tracer.equal(&candidate, item)? {
            return Ok(Some(at));
        }
        at += 1;
    }
    Ok(None)
}

fn remove(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, rest) = receiver_list(path, args)?;
    let [item] = exactly(path, rest)?;
    match find(tracer, id, &item)? {
        Some(at) => {
            let items = tracer.list_mut(id)?;
            if at < items.len() {
                items.remove(at);
            }
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
        None => match crate::builtins::strings::represent(tracer, &item) {
            Ok(text) => tracer.raise_named("ValueError", &format!("{text} is not in list")),
            Err(_) => crate::builtins::unsupported(path),
        },
    }
}

fn count(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, rest) = receiver_list(path, args)?;
    let [item] = exactly(path, rest)?;
    let (mut at, mut count) = (0, 0);
    while let Some(candidate) = tracer.list_items(id)?.get(at).cloned() {
        count += i64::from(tracer.equal(&candidate, &item)?);
        at += 1;
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
    let reverse = crate::builtins::core::reverse(&mut rest, path)?;
    let [] = exactly(path, rest)?;
    // Meanwhile the list is empty, for keys and comparisons as for everybody.
    let items = std::mem::take(tracer.list_mut(id)?);
    let result = crate::builtins::core::sort(tracer, items.clone(), &key, &reverse);
    let changed = !std::mem::take(tracer.list_mut(id)?).is_empty();
    match result {
        Ok(sorted) => {
            *tracer.list_mut(id)? = sorted;
            if changed { tracer.raise_named("ValueError", "list modified during sort") } else { Ok(Value::NONE) }
        }
        Err(stopped) => {
            // Half sorted, in an order that only CPython knows.
            if items.len() > 1 && matches!(stopped, Stop::Raise(_)) {
                return unsupported(path);
            }
            *tracer.list_mut(id)? = items;
            Err(stopped)
        }
    }
}

fn copy(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, rest) = receiver_list(path, args)?;
    let [] = exactly(path, rest)?;
    let items = tracer.list_items(id)?.clone();
    Ok(tracer.new_list(items))
}

fn length(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, rest) = receiver_list(path, args)?;
    let [] = exactly(path, rest)?;
    Ok(Value::int(tracer.list_items(id)?.len() as i64))
}

fn iter(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (list, rest) = receiver_list(path, args)?;
    let [] = exactly(path, rest)?;
    Ok(tracer.new_iter(crate::value::Iter::List { list, at: 0 }))
}

fn getitem(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [list, key] = exactly(path, args)?;
    crate::builtins::subscript(tracer, &list, &key)?.map_or_else(|| unsupported(path), Ok)
}

fn setitem(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [list, key, value] = exactly(path, args)?;
    if crate::builtins::store_subscript(tracer, &list, &key, value)? { Ok(Value::NONE) } else { unsupported(path) }
}

fn contains(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [list, item] = exactly(path, args)?;
    crate::builtins::contains(tracer, &list, &item)?.map_or_else(|| unsupported(path), |found| Ok(Value::bool(found)))
}
