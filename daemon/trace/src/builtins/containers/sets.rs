//! Sets and frozensets.

use crate::builtins::args::{bind, exactly, name, receiver};
use crate::builtins::{Table, unsupported};
use crate::state::tracer::Tracer;
use crate::value::Args;
use crate::value::flow::{Flow, stop};
use crate::value::{History, Key, Made, SetId, SetValue, Value, ViewKind};
use flambeau_ir::reason::ReasonCode;
use indexmap::IndexMap;

pub const TABLE: Table = &[
    ("builtins.set", set),
    ("builtins.frozenset", set),
    ("builtins.set.__init__", init),
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
    let id = tracer.arenas.sets.push(SetValue { frozen, ..SetValue::default() });
    match bind(path, args, [""], 0)? {
        [Some(Value::Set(id))] if frozen && tracer.arenas.sets[id].frozen => return Ok(Value::Set(id)),
        [Some(iterable)] => extend(tracer, id, &iterable)?,
        [None] => {}
    }
    Ok(Value::Set(id))
}

/// What the function or type at the path makes of operands (see [`operand`]).
pub fn make(tracer: &mut Tracer<'_>, items: Elements, frozen: bool, path: &str, operands: Option<Vec<Value>>) -> Value {
    let made = operands.map_or(Made::Unknown, |operands| Made::Call(path.to_owned(), operands));
    let history = History { made, changes: vec![] };
    Value::Set(tracer.arenas.sets.push(SetValue { items, frozen, history, ..SetValue::default() }))
}

/// An operand of a set's method that has given these elements, as it is now: something that is made again outside of the
/// trace. None if it cannot be.
pub fn operand(tracer: &mut Tracer<'_>, value: &Value, given: &Elements) -> Flow<Option<Value>> {
    Ok(match value {
        Value::Set(id) => {
            let set = tracer.arenas.sets[*id].clone();
            let unchanged = !set.is_changed() && !matches!(set.history.made, Made::Unknown);
            match set.origin {
                Some(_) => unchanged.then(|| value.clone()),
                None => (unchanged || set.history.is_additions()).then(|| Value::Set(tracer.arenas.sets.push(set))),
            }
        }
        // They make room for all keys of a dict at once.
        Value::Dict(_) => Some(tracer.new_dict(given.values().map(|key| (key.clone(), Value::NONE)).collect())?),
        Value::DictView(_, ViewKind::Keys) => {
            match tracer.new_dict(given.values().map(|key| (key.clone(), Value::NONE)).collect())? {
                Value::Dict(dict) => Some(Value::DictView(dict, ViewKind::Keys)),
                _ => None,
            }
        }
        Value::DictView(..) => None,
        _ => Some(Value::tuple(given.values().cloned().collect())),
    })
}

/// The elements as they are after a call of a method that changes the set.
pub fn changed_by(tracer: &mut Tracer<'_>, id: SetId, items: Elements, method: &'static str, operand: Option<Value>) {
    let set = &mut tracer.arenas.sets[id];
    set.items = items;
    match operand {
        Some(operand) => set.history.changes.push((method, vec![operand])),
        None => forget(set),
    }
}

/// From here on nobody knows the table.
fn forget(set: &mut SetValue) {
    set.history.made = Made::Unknown;
    set.history.changes.push(("clear", vec![]));
}

/// Puts an element into the set.
pub fn insert(tracer: &mut Tracer<'_>, id: SetId, key: Key, item: Value) {
    if !tracer.arenas.sets[id].items.contains_key(&key) {
        let set = &mut tracer.arenas.sets[id];
        set.items.insert(key, item.clone());
        set.history.changes.push(("add", vec![item]));
    }
}

/// Takes an element out of the set.
fn take_out(tracer: &mut Tracer<'_>, id: SetId, key: &Key) -> Option<Value> {
    if !tracer.arenas.sets[id].items.contains_key(key) {
        return None;
    }
    let set = &mut tracer.arenas.sets[id];
    let item = set.items.shift_remove(key)?;
    set.history.changes.push(("discard", vec![item.clone()]));
    Some(item)
}

fn empty(tracer: &mut Tracer<'_>, id: SetId) {
    let set = &mut tracer.arenas.sets[id];
    set.items.clear();
    set.history = History::default();
    if set.origin.is_some() {
        set.history.changes.push(("clear", vec![]));
    }
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
    let whole = match iterable {
        Value::Set(_) => true,
        Value::Dict(dict) => tracer.arenas.dicts[*dict].class.is_none(),
        _ => false,
    };
    if whole {
        let others = elements(tracer, iterable)?;
        let operand = operand(tracer, iterable, &others)?;
        let set = &tracer.arenas.sets[id];
        let first = set.origin.is_none() && !set.is_changed() && matches!(set.history.made, Made::Plain);
        let items = combine("union", set.items.clone(), others);
        if let (true, Some(operand)) = (first, &operand) {
            let path = if set.frozen { "builtins.frozenset" } else { "builtins.set" };
            let set = &mut tracer.arenas.sets[id];
            set.items = items;
            set.history.made = Made::Call(path.to_owned(), vec![operand.clone()]);
        } else {
            changed_by(tracer, id, items, "update", operand);
        }
        return Ok(());
    }
    tracer.for_each(iterable, |t, item| {
        let key = t.key(&item)?;
        insert(t, id, key, item);
        Ok(())
    })
}

/// Whether looking through the iterable can run code or use up an iterator that somebody else has.
fn is_lazy(iterable: &Value) -> bool {
    !matches!(
        iterable,
        Value::Set(_) | Value::Tuple(_) | Value::List(_) | Value::Dict(_) | Value::DictView(..) | Value::Const(_)
    )
}

fn receiver_set(path: &str, args: Args) -> Flow<(SetId, Args)> {
    match receiver(path, args)? {
        (Value::Set(id), rest) => Ok((id, rest)),
        _ => unsupported(path),
    }
}

fn init(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, rest) = receiver_set(path, args)?;
    let [iterable] = bind(path, rest, [""], 0)?;
    empty(tracer, id);
    if let Some(iterable) = iterable {
        extend(tracer, id, &iterable)?;
    }
    Ok(Value::NONE)
}

fn add(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, rest) = receiver_set(path, args)?;
    let [item] = exactly(path, rest)?;
    let key = tracer.key(&item)?;
    insert(tracer, id, key, item);
    Ok(Value::NONE)
}

fn discard(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, rest) = receiver_set(path, args)?;
    let [item] = exactly(path, rest)?;
    let key = tracer.key(&item)?;
    take_out(tracer, id, &key);
    Ok(Value::NONE)
}

fn remove(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, rest) = receiver_set(path, args)?;
    let [item] = exactly(path, rest)?;
    let key = tracer.key(&item)?;
    match take_out(tracer, id, &key) {
        Some(_) => Ok(Value::NONE),
        None => tracer.raise_with("KeyError", vec![item]),
    }
}

fn clear(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, rest) = receiver_set(path, args)?;
    let [] = exactly(path, rest)?;
    empty(tracer, id);
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
    if frozen {
        return Ok(Value::Set(id));
    }
    let operand = operand(tracer, &Value::Set(id), &items)?;
    Ok(make(tracer, items, false, path, operand.map(|set| vec![set])))
}

fn combined(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, rest) = receiver_set(path, args)?;
    if !rest.kw.is_empty() || (path.ends_with(".symmetric_difference") && rest.pos.len() != 1) {
        return unsupported(path);
    }
    let mut items = tracer.arenas.sets[id].items.clone();
    let frozen = tracer.arenas.sets[id].frozen;
    let mut operands: Option<Vec<Value>> = operand(tracer, &Value::Set(id), &items)?.map(|set| vec![set]);
    for other in &rest.pos {
        let length = tracer.arenas.sets[id].items.len();
        let value = other;
        let (other, common) = match name(path) {
            "intersection" => intersected(tracer, &items, value)?,
            _ => (elements(tracer, value)?, None),
        };
        let made = operand(tracer, value, &other)?;
        operands = operands.zip(made).map(|(operands, made)| [operands, vec![made]].concat());
        if tracer.arenas.sets[id].items.len() != length {
            return stop(ReasonCode::UnsupportedCall, format!("{path} with an iterator that changes the set"));
        }
        items = common.unwrap_or_else(|| combine(name(path), items, other));
    }
    Ok(make(tracer, items, frozen, path, operands))
}

/// What is drawn of the other operand of `set.intersection`, and the elements that are in both, unless it is a set. It stops
/// where the result has as many as the set (`set_intersection` in CPython's `Objects/setobject.c`).
fn intersected(tracer: &mut Tracer<'_>, set: &Elements, other: &Value) -> Flow<(Elements, Option<Elements>)> {
    if let Value::Set(id) = other {
        return Ok((tracer.arenas.sets[*id].items.clone(), None));
    }
    let (mut drawn, mut common) = (Elements::new(), Elements::new());
    let iterator = tracer.iter(other)?;
    while let Some(item) = tracer.next(&iterator)? {
        let key = tracer.key(&item)?;
        let is_common = set.contains_key(&key);
        if is_common {
            common.entry(key.clone()).or_insert_with(|| item.clone());
        }
        drawn.entry(key).or_insert(item);
        if is_common && common.len() >= set.len() {
            break;
        }
    }
    Ok((drawn, Some(common)))
}

/// Union, intersection, difference or symmetric difference of two sets, by the method's name.
pub fn combine(how: &str, mut a: Elements, b: Elements) -> Elements {
    match how {
        "union" => {
            for (key, item) in b {
                a.entry(key).or_insert(item);
            }
        }
        // The elements are those of the smaller one, or of the other one.
        "intersection" if b.len() <= a.len() => return in_both(b, &a),
        "intersection" => return in_both(a, &b),
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

/// What is in both, as the first one has it.
pub fn in_both(mut items: Elements, other: &Elements) -> Elements {
    items.retain(|key, _| other.contains_key(key));
    items
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
    let (id, rest) = receiver_set(path, args)?;
    let [] = exactly(path, rest)?;
    Ok(Value::int(tracer.arenas.sets[id].items.len() as i64))
}
