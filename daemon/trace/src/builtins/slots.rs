//! What values of built-in types carry besides methods: data attributes, constants under a subclass, construction.

use super::args::exactly;
use super::{Table, unsupported};
use crate::state::tracer::Tracer;
use crate::value::Args;
use crate::value::flow::Flow;
use crate::value::{Payload, Tuple, Value};
use flambeau_ir::code::{Code, Const};
use std::rc::Rc;

pub const TABLE: Table = &[
    ("builtins.slice", slice),
    ("builtins.slice.indices", slice_indices),
    ("builtins.range", range),
    ("builtins.range.__len__", length),
    ("builtins.object.__init__", nothing),
    ("builtins.object.__init_subclass__", nothing),
];

/// Data attributes.
pub fn attribute(tracer: &mut Tracer<'_>, value: &Value, name: &str) -> Flow<Option<Value>> {
    Ok(match (value, name) {
        (Value::Slice(parts) | Value::Range(parts), "start") => Some(parts[0].clone()),
        (Value::Slice(parts) | Value::Range(parts), "stop") => Some(parts[1].clone()),
        (Value::Slice(parts) | Value::Range(parts), "step") => Some(parts[2].clone()),
        (Value::Int(_) | Value::Const(Const::Int(_) | Const::Bool(_)), "real" | "numerator") => {
            Some(value.as_dim().map_or_else(|| value.clone(), Value::dim))
        }
        (Value::Int(_) | Value::Const(Const::Int(_) | Const::Bool(_)), "imag") => Some(Value::int(0)),
        (Value::Int(_) | Value::Const(Const::Int(_) | Const::Bool(_)), "denominator") => Some(Value::int(1)),
        (Value::Const(Const::Float(_)), "real") => Some(value.clone()),
        (Value::Const(Const::Float(_)), "imag") => Some(Value::Const(Const::Float(0.0))),
        (Value::Partial(p), "func") => Some(p.func.clone()),
        (Value::Partial(p), "args") => Some(Value::tuple(p.args.clone())),
        (Value::Tuple(tuple), _) if tuple.class.is_some() => super::containers::tuples::field(tracer, tuple, name)?,
        (Value::Const(c), _) => super::facts::attribute(c, name),
        (Value::Code(code), _) => code_attribute(code, name),
        (Value::Instance(id), _) => match tracer.arenas.instances[*id].payload.clone() {
            Payload::Native(state) => super::facts::limits(tracer, value, &state, name)?,
            _ => None,
        },
        _ => None,
    })
}

/// What a code object's hash covers.
fn code_attribute(code: &Code, name: &str) -> Option<Value> {
    // `CO_FAST_LOCAL` marks what `co_varnames` lists.
    let varnames =
        || code.localsplusnames.iter().zip(&code.localspluskinds).filter(|(_, kind)| *kind & Code::LOCAL != 0);
    Some(match name {
        "co_name" => Value::str(&code.name),
        "co_qualname" => Value::str(&code.qualname),
        "co_filename" => Value::str(&code.filename),
        "co_argcount" => Value::int(i64::from(code.argcount)),
        "co_posonlyargcount" => Value::int(i64::from(code.posonlyargcount)),
        "co_kwonlyargcount" => Value::int(i64::from(code.kwonlyargcount)),
        "co_firstlineno" => Value::int(i64::from(code.firstlineno)),
        "co_flags" => Value::int(i64::from(code.flags)),
        "co_varnames" => Value::tuple(varnames().map(|(name, _)| Value::str(name)).collect()),
        "co_nlocals" => Value::int(varnames().count() as i64),
        _ => return None,
    })
}

fn nothing(_: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let alone = args.kw.is_empty() && matches!(args.pos.as_slice(), [] | [Value::Class(_)]);
    if !alone || path.ends_with("__init__") {
        return unsupported(path);
    }
    Ok(Value::NONE)
}

fn slice(_: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let parts = match args.pos.as_slice() {
        [stop] => [Value::NONE, stop.clone(), Value::NONE],
        [start, stop] => [start.clone(), stop.clone(), Value::NONE],
        [start, stop, step] => [start.clone(), stop.clone(), step.clone()],
        _ => return unsupported(path),
    };
    if !args.kw.is_empty() {
        return unsupported(path);
    }
    Ok(Value::Slice(Rc::new(parts)))
}

fn slice_indices(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [slice, length] = exactly(path, args)?;
    let Value::Slice(parts) = slice else { return unsupported(path) };
    let length = super::fixed_int(tracer, &length, path)?;
    let (start, stop, step) = indices(tracer, &parts, length.max(0) as usize, path)?;
    Ok(Value::tuple([start, stop, step].map(Value::int).to_vec()))
}

/// The slice's positions in a sequence of this length: start, stop, step. Symbolic bounds are fixed.
pub fn indices(tracer: &mut Tracer<'_>, parts: &[Value; 3], length: usize, what: &str) -> Flow<(i64, i64, i64)> {
    let mut bounds = [Const::None, Const::None, Const::None];
    for (bound, part) in bounds.iter_mut().zip(parts) {
        *bound = match part {
            Value::Const(Const::None) => Const::None,
            part => Const::Int(super::fixed_int(tracer, part, what)?),
        };
    }
    super::decided(tracer, crate::fold::slice_indices(&bounds, length), what)
}

/// The positions that a slice selects.
pub fn positions(tracer: &mut Tracer<'_>, parts: &[Value; 3], length: usize, what: &str) -> Flow<Vec<usize>> {
    let (mut at, stop, step) = indices(tracer, parts, length, what)?;
    let mut positions = Vec::new();
    while if step > 0 { at < stop } else { at > stop } {
        positions.push(at as usize);
        at = at.saturating_add(step);
    }
    Ok(positions)
}

fn range(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    if !args.kw.is_empty() {
        return unsupported(path);
    }
    let ints: Vec<Value> = args.pos.iter().map(|v| tracer.base(v)).collect();
    if ints.iter().any(|v| v.as_dim().is_none()) {
        return unsupported(path);
    }
    let parts = match ints.as_slice() {
        [stop] => [Value::int(0), stop.clone(), Value::int(1)],
        [start, stop] => [start.clone(), stop.clone(), Value::int(1)],
        [start, stop, step] => [start.clone(), stop.clone(), step.clone()],
        _ => return unsupported(path),
    };
    if parts[2].as_int() == Some(0) {
        return tracer.raise_named("ValueError", "range() arg 3 must not be zero");
    }
    Ok(Value::Range(Rc::new(parts.map(|p| p.as_dim().map_or(p, Value::dim)))))
}

/// The range's constant bounds; symbolic ones are fixed.
pub fn range_bounds(tracer: &mut Tracer<'_>, parts: &[Value; 3]) -> Flow<(i64, i64, i64)> {
    let mut bounds = [0; 3];
    for (bound, part) in bounds.iter_mut().zip(parts) {
        *bound = super::fixed_int(tracer, part, "range")?;
    }
    let [start, stop, step] = bounds;
    Ok((start, stop, step))
}

fn length(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [value] = exactly(path, args)?;
    tracer.length(&value)
}

/// A new dict with the same items and type.
pub fn copy_dict(tracer: &mut Tracer<'_>, value: &Value) -> Flow<Value> {
    let Value::Dict(id) = value else { return unsupported("dict.copy") };
    let items = tracer.dict_items(*id)?;
    let (class, factory) = (tracer.arenas.dicts[*id].class.clone(), tracer.arenas.dicts[*id].factory.clone());
    let copy = tracer.new_dict(items)?;
    if let Value::Dict(copy) = copy {
        tracer.arenas.dicts[copy].class = class;
        tracer.arenas.dicts[copy].factory = factory;
    }
    Ok(copy)
}

/// A tuple of the same type with other items.
pub fn like(tuple: &Tuple, items: Vec<Value>) -> Value {
    let class = tuple.class.clone().filter(|c| c.is("torch.Size"));
    Value::Tuple(Rc::new(Tuple { items, class, origin: None }))
}
