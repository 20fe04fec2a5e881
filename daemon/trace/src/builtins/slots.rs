//! What values of built-in types carry besides methods: data attributes, constants under a subclass, construction.

use super::args::exactly;
use super::{Table, unsupported};
use crate::state::tracer::Tracer;
use crate::value::Args;
use crate::value::flow::{Flow, stop};
use crate::value::{Payload, Tuple, Value};
use flambeau_ir::code::{Code, Const};
use flambeau_ir::reason::ReasonCode;
use std::rc::Rc;

pub const TABLE: Table = &[
    ("builtins.object.__init__", nothing),
    ("builtins.object.__init_subclass__", nothing),
    ("builtins.iterator.__iter__", iterator_itself),
    ("builtins.iterator.__next__", next_item),
];

/// Data attributes.
pub fn attribute(tracer: &mut Tracer<'_>, value: &Value, name: &str) -> Flow<Option<Value>> {
    Ok(match (value, name) {
        (Value::Int(_) | Value::Const(Const::Int(_) | Const::Bool(_)), "real" | "numerator") => {
            Some(value.as_dim().map_or_else(|| value.clone(), Value::dim))
        }
        (Value::Int(_) | Value::Const(Const::Int(_) | Const::Bool(_)), "imag") => Some(Value::int(0)),
        (Value::Int(_) | Value::Const(Const::Int(_) | Const::Bool(_)), "denominator") => Some(Value::int(1)),
        (Value::Const(Const::Float(_)), "real") => Some(value.clone()),
        (Value::Const(Const::Float(_)), "imag") => Some(Value::Const(Const::Float(0.0))),
        (Value::Tuple(tuple), _) if tuple.class.is_some() => super::containers::tuples::field(tracer, tuple, name)?,
        (Value::Const(c), _) => super::facts::attribute(c, name),
        (Value::Code(code), _) => code_attribute(code, name),
        (Value::Iter(_), "__iter__") => Some(Value::bound_builtin("builtins.iterator.__iter__", value.clone())),
        (Value::Iter(_), "__next__") => Some(Value::bound_builtin("builtins.iterator.__next__", value.clone())),
        (Value::Instance(id), _) => match tracer.arenas.instances[*id].payload.clone() {
            Payload::Native(state) if tracer.class_of(value)?.derives("builtins.property") => {
                match (name, &state[..]) {
                    ("fget", [getter]) => Some(getter.clone()),
                    _ => return stop(ReasonCode::UnsupportedObject, format!("{name} of a property")),
                }
            }
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

fn iterator_itself(_: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [iterator] = exactly(path, args)?;
    Ok(iterator)
}

fn next_item(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [iterator] = exactly(path, args)?;
    match tracer.next_or_raise(&iterator)? {
        Some(item) => Ok(item),
        None => tracer.raise_with("StopIteration", vec![]),
    }
}

fn nothing(_: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let alone = args.kw.is_empty() && matches!(args.pos.as_slice(), [] | [Value::Class(_)]);
    if !alone || path.ends_with("__init__") {
        return unsupported(path);
    }
    Ok(Value::NONE)
}

/// A new dict with the same items and type.
pub fn copy_dict(tracer: &mut Tracer<'_>, value: &Value) -> Flow<Value> {
    let Value::Dict(id) = value else { return unsupported("dict.copy") };
    let items = tracer.dict_items(*id)?;
    let (class, factory) = (tracer.arenas.dicts[*id].class.clone(), tracer.dict_factory(*id)?);
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
    Value::Tuple(Rc::new(Tuple { items, class, attrs: None, origin: None }))
}
