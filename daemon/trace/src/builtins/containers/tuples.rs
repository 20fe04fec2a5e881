//! Tuples, named tuples, `torch.Size`.

use crate::builtins::args::{bind, exactly};
use crate::builtins::{Table, unsupported};
use crate::state::tracer::Tracer;
use crate::torch::results::result_fields;
use crate::value::Args;
use crate::value::flow::Flow;
use crate::value::{Class, Iter, Of, Tuple, Value};
use flambeau_bytecode::Binary;
use std::rc::Rc;

pub const TABLE: Table = &[
    ("builtins.tuple", tuple),
    ("builtins.tuple.__new__", new),
    ("builtins.tuple.index", index),
    ("builtins.tuple.count", count),
    ("builtins.tuple.__len__", length),
    ("builtins.tuple.__getitem__", getitem),
    ("builtins.tuple.__iter__", iter),
    ("torch.Size", size),
    ("torch.Size.numel", numel),
];

fn tuple(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    match bind(path, args, [""], 0)? {
        [None] => Ok(Value::tuple(vec![])),
        [Some(Value::Tuple(t))] if t.class.is_none() => Ok(Value::Tuple(t)),
        [Some(iterable)] => Ok(Value::tuple(tracer.collect_sized(&iterable)?)),
    }
}

/// `tuple.__new__(cls, iterable)`, as named tuples call it.
fn new(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [class, iterable] = bind(path, args, ["", ""], 1)?;
    let Some(Value::Class(class)) = class.filter(|c| matches!(c, Value::Class(c) if c.derives("builtins.tuple")))
    else {
        return unsupported(path);
    };
    let items = match iterable {
        Some(iterable) => tracer.collect_sized(&iterable)?,
        None => vec![],
    };
    let class = Some(class).filter(|c| !c.is("builtins.tuple"));
    let attrs = class.as_ref().is_some_and(|class| class.has_dict).then(|| tracer.fresh_attrs());
    Ok(Value::Tuple(Rc::new(Tuple { items, class, attrs, origin: None })))
}

fn size(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [iterable] = bind(path, args, [""], 0)?;
    let items = match iterable {
        Some(iterable) => tracer.collect_sized(&iterable)?,
        None => vec![],
    };
    if items.iter().any(|i| i.as_dim().is_none()) {
        return unsupported(path);
    }
    let class = Some(Class::builtin("torch.Size", &["builtins.tuple"]));
    Ok(Value::Tuple(Rc::new(Tuple { items, class, attrs: None, origin: None })))
}

fn numel(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [size] = exactly(path, args)?;
    let mut product = Value::int(1);
    for item in tracer.collect(&size)? {
        product = tracer.binary(Binary::Multiply, false, &product, &item)?;
    }
    Ok(product)
}

fn index(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [tuple, item] = exactly(path, args)?;
    let Value::Tuple(tuple) = tuple else { return unsupported(path) };
    for (i, candidate) in tuple.items.iter().enumerate() {
        if tracer.equal(candidate, &item)? {
            return Ok(Value::int(i as i64));
        }
    }
    tracer.raise_named("ValueError", "tuple.index(x): x not in tuple")
}

/// The items of the tuple that a method is called on; any other value is refused.
fn items_of(path: &str, tuple: &Value) -> Flow<Vec<Value>> {
    match tuple {
        Value::Tuple(tuple) => Ok(tuple.items.clone()),
        _ => unsupported(path),
    }
}

fn count(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [tuple, item] = exactly(path, args)?;
    let mut count = 0;
    for candidate in items_of(path, &tuple)? {
        count += i64::from(tracer.equal(&candidate, &item)?);
    }
    Ok(Value::int(count))
}

fn length(_: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    match exactly(path, args)? {
        [Value::Tuple(t)] => Ok(Value::int(t.items.len() as i64)),
        _ => unsupported(path),
    }
}

fn getitem(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [tuple, key] = exactly(path, args)?;
    crate::builtins::subscript(tracer, &tuple, &key)?.map_or_else(|| unsupported(path), Ok)
}

fn iter(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [tuple] = exactly(path, args)?;
    let items = items_of(path, &tuple)?;
    Ok(tracer.new_iter(Iter::Items { items, at: 0, of: Of::Value(tuple) }))
}

/// A field of a named tuple or structured result, by name.
pub fn field(tracer: &mut Tracer<'_>, tuple: &Tuple, name: &str) -> Flow<Option<Value>> {
    let Some(class) = tuple.class.clone() else { return Ok(None) };
    if let Some(path) = class.path.as_deref().filter(|p| p.starts_with("torch.return_types.")) {
        let at = result_fields(path).and_then(|f| f.iter().position(|f| *f == name));
        return Ok(at.and_then(|at| tuple.items.get(at).cloned()));
    }
    if !class.is_python {
        return Ok(None);
    }
    // Only what the class itself made as a field: a property of a subclass may have the same name.
    let found = tracer.type_lookup(&class, name)?;
    let Some((_, Value::Opaque(descriptor))) = found else { return Ok(None) };
    Ok(descriptor.item.and_then(|item| tuple.items.get(item as usize).cloned()))
}
