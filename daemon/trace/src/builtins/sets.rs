//! Sets and frozensets.

use super::args::{bind, exactly, name, receiver};
use super::{Table, unsupported};
use crate::call::Args;
use crate::flow::{Flow, stop};
use crate::tracer::Tracer;
use crate::value::{Key, SetId, SetValue, Value};
use flambeau_ir::reason::ReasonCode;
use indexmap::IndexMap;

pub const TABLE: Table = &[
    ("builtins.set", set),
    ("builtins.frozenset", set),
    ("builtins.set.add", add),
    ("builtins.set.discard", discard),
    ("builtins.set.remove", remove),
    ("builtins.set.clear", clear),
    ("builtins.set.update", update),
    ("builtins.set.copy", copy),
    ("builtins.set.union", combined),
    ("builtins.set.intersection", combined),
    ("builtins.set.difference", combined),
    ("builtins.set.symmetric_difference", combined),
    ("builtins.set.issubset", related),
    ("builtins.set.issuperset", related),
    ("builtins.set.isdisjoint", related),
    ("builtins.set.__contains__", contains),
    ("builtins.set.__len__", length),
    ("builtins.frozenset.copy", copy),
    ("builtins.frozenset.union", combined),
    ("builtins.frozenset.intersection", combined),
    ("builtins.frozenset.difference", combined),
    ("builtins.frozenset.symmetric_difference", combined),
    ("builtins.frozenset.issubset", related),
    ("builtins.frozenset.issuperset", related),
    ("builtins.frozenset.isdisjoint", related),
    ("builtins.frozenset.__contains__", contains),
];

/// Elements by key.
pub type Elements = IndexMap<Key, Value>;

fn set(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let frozen = path == "builtins.frozenset";
    let items = match bind(path, args, [""], 0)? {
        [Some(iterable)] => elements(tracer, &iterable)?,
        [None] => Elements::new(),
    };
    Ok(make(tracer, items, frozen))
}

/// A new set.
pub fn make(tracer: &mut Tracer<'_>, items: Elements, frozen: bool) -> Value {
    Value::Set(tracer.arenas.sets.push(SetValue { items, frozen, ..SetValue::default() }))
}

/// The elements of any iterable. A set is not put in order for it.
pub fn elements(tracer: &mut Tracer<'_>, iterable: &Value) -> Flow<Elements> {
    if let Value::Set(id) = iterable {
        return Ok(tracer.arenas.sets[*id].items.clone());
    }
    let mut items = Elements::new();
    tracer.for_each(iterable, |t, item| {
        let key = t.key(&item)?;
        items.entry(key).or_insert(item);
        Ok(())
    })?;
    Ok(items)
}

/// `set.update` with one iterable. An element is there before the next one is made.
pub fn extend(tracer: &mut Tracer<'_>, id: SetId, iterable: &Value) -> Flow<()> {
    if let Value::Set(other) = iterable {
        let others = tracer.arenas.sets[*other].items.clone();
        let items = change(tracer, id);
        for (key, item) in others {
            items.entry(key).or_insert(item);
        }
        return Ok(());
    }
    tracer.for_each(iterable, |t, item| {
        let key = t.key(&item)?;
        change(t, id).entry(key).or_insert(item);
        Ok(())
    })
}

/// Whether looking through the iterable can run code or use up an iterator that somebody else has.
fn is_lazy(iterable: &Value) -> bool {
    !matches!(
        iterable,
        Value::Set(_)
            | Value::Tuple(_)
            | Value::List(_)
            | Value::Dict(_)
            | Value::DictView(..)
            | Value::Range(_)
            | Value::Const(_)
    )
}

fn receiver_set(path: &str, args: Args) -> Flow<(SetId, Args)> {
    match receiver(path, args)? {
        (Value::Set(id), rest) => Ok((id, rest)),
        _ => unsupported(path),
    }
}

/// The set's elements, to change.
pub fn change<'t>(tracer: &'t mut Tracer<'_>, id: SetId) -> &'t mut Elements {
    let set = &mut tracer.arenas.sets[id];
    set.dirty = true;
    &mut set.items
}

fn add(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, rest) = receiver_set(path, args)?;
    let [item] = exactly(path, rest)?;
    let key = tracer.key(&item)?;
    if !tracer.arenas.sets[id].items.contains_key(&key) {
        change(tracer, id).insert(key, item);
    }
    Ok(Value::NONE)
}

fn discard(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, rest) = receiver_set(path, args)?;
    let [item] = exactly(path, rest)?;
    let key = tracer.key(&item)?;
    if tracer.arenas.sets[id].items.contains_key(&key) {
        change(tracer, id).shift_remove(&key);
    }
    Ok(Value::NONE)
}

fn remove(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, rest) = receiver_set(path, args)?;
    let [item] = exactly(path, rest)?;
    let key = tracer.key(&item)?;
    match change(tracer, id).shift_remove(&key) {
        Some(_) => Ok(Value::NONE),
        None => tracer.raise_with("KeyError", vec![item]),
    }
}

fn clear(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, rest) = receiver_set(path, args)?;
    let [] = exactly(path, rest)?;
    change(tracer, id).clear();
    Ok(Value::NONE)
}

fn update(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, rest) = receiver_set(path, args)?;
    for other in &rest.pos {
        extend(tracer, id, other)?;
    }
    Ok(Value::NONE)
}

fn copy(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, rest) = receiver_set(path, args)?;
    let [] = exactly(path, rest)?;
    let (items, frozen) = (tracer.arenas.sets[id].items.clone(), tracer.arenas.sets[id].frozen);
    if frozen { Ok(Value::Set(id)) } else { Ok(make(tracer, items, false)) }
}

fn combined(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, rest) = receiver_set(path, args)?;
    let mut items = tracer.arenas.sets[id].items.clone();
    let frozen = tracer.arenas.sets[id].frozen;
    for other in &rest.pos {
        let length = tracer.arenas.sets[id].items.len();
        let other = elements(tracer, other)?;
        if tracer.arenas.sets[id].items.len() != length {
            return stop(ReasonCode::UnsupportedCall, format!("{path} with an iterator that changes the set"));
        }
        items = combine(name(path), items, other);
    }
    Ok(make(tracer, items, frozen))
}

/// Union, intersection, difference or symmetric difference, by the method's name.
pub fn combine(how: &str, mut a: Elements, b: Elements) -> Elements {
    match how {
        "union" => {
            for (key, item) in b {
                a.entry(key).or_insert(item);
            }
        }
        "intersection" => a.retain(|key, _| b.contains_key(key)),
        "difference" => a.retain(|key, _| !b.contains_key(key)),
        _ => {
            for (key, item) in b {
                if a.shift_remove(&key).is_none() {
                    a.insert(key, item);
                }
            }
        }
    }
    a
}

fn related(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, rest) = receiver_set(path, args)?;
    let [other] = exactly(path, rest)?;
    if name(path) != "issubset" && is_lazy(&other) {
        // They stop at the first element that decides.
        let disjoint = name(path) == "isdisjoint";
        let iterator = tracer.iter(&other)?;
        while let Some(item) = tracer.next(&iterator)? {
            let key = tracer.key(&item)?;
            if tracer.arenas.sets[id].items.contains_key(&key) == disjoint {
                return Ok(Value::bool(false));
            }
        }
        return Ok(Value::bool(true));
    }
    let other = elements(tracer, &other)?;
    let items = &tracer.arenas.sets[id].items;
    Ok(Value::bool(match name(path) {
        "issubset" => items.keys().all(|k| other.contains_key(k)),
        "issuperset" => other.keys().all(|k| items.contains_key(k)),
        _ => !other.keys().any(|k| items.contains_key(k)),
    }))
}

fn contains(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, rest) = receiver_set(path, args)?;
    let [item] = exactly(path, rest)?;
    let key = tracer.key(&item)?;
    Ok(Value::bool(tracer.arenas.sets[id].items.contains_key(&key)))
}

fn length(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, _) = receiver_set(path, args)?;
    Ok(Value::int(tracer.arenas.sets[id].items.len() as i64))
}
