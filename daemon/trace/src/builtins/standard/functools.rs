//! `functools` and small helpers of the standard library that wrap calls.

use crate::builtins::args::bind;
use crate::builtins::{Table, unsupported};
use crate::state::tracer::Tracer;
use crate::value::Args;
use crate::value::Value;
use crate::value::flow::Flow;

pub const TABLE: Table = &[("functools.reduce", reduce), ("typing.cast", cast)];

fn reduce(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [func, iterable, initial] = bind(path, args, ["", "", ""], 2)?;
    let (Some(func), Some(iterable)) = (func, iterable) else { return unsupported(path) };
    let iterator = tracer.iter(&iterable);
    if tracer.is_raise_of(&iterator, "TypeError") {
        return tracer.raise_named("TypeError", "reduce() arg 2 must support iteration");
    }
    let iterator = iterator?;
    let mut total = match initial {
        Some(initial) => initial,
        None => match tracer.next(&iterator)? {
            Some(first) => first,
            None => return tracer.raise_named("TypeError", "reduce() of empty iterable with no initial value"),
        },
    };
    while let Some(item) = tracer.next(&iterator)? {
        total = tracer.call(&func, Args::new(vec![total, item]))?;
    }
    Ok(total)
}

fn cast(_: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    match bind(path, args, ["typ", "val"], 2)? {
        [_, Some(value)] => Ok(value),
        _ => unsupported(path),
    }
}
