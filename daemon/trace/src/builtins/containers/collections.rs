//! Constructors of `collections`.

use crate::builtins::args::receiver;
use crate::builtins::{Table, dicts, types, unsupported};
use crate::state::tracer::Tracer;
use crate::value::Args;
use crate::value::flow::Flow;
use crate::value::{Class, Value};

pub const TABLE: Table = &[("collections.OrderedDict", ordered), ("collections.defaultdict", defaultdict)];

fn ordered(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let made = tracer.new_dict(vec![])?;
    let Value::Dict(id) = made else { return unsupported(path) };
    tracer.arenas.dicts[id].class = Some(Class::builtin("collections.OrderedDict", &["builtins.dict"]));
    dicts::merge(tracer, path, id, args)?;
    Ok(made)
}

/// The factory that the arguments of a `defaultdict` begin with, and the others.
pub(super) fn factory(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<(Value, Args)> {
    let (factory, rest) = if args.pos.is_empty() { (Value::NONE, args) } else { receiver(path, args)? };
    if !factory.is_none() && !types::is_callable(tracer, &factory)? {
        return tracer.raise_named("TypeError", "first argument must be callable or None");
    }
    Ok((factory, rest))
}

fn defaultdict(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (factory, rest) = factory(tracer, path, args)?;
    let made = tracer.new_dict(vec![])?;
    let Value::Dict(id) = made else { return unsupported(path) };
    tracer.arenas.dicts[id].class = Some(Class::builtin("collections.defaultdict", &["builtins.dict"]));
    tracer.arenas.dicts[id].factory = Some(factory);
    dicts::merge(tracer, path, id, rest)?;
    Ok(made)
}
