//! `functools` and small helpers of the standard library that wrap calls.

use super::args::{bind, receiver};
use super::{Table, unsupported};
use crate::state::tracer::Tracer;
use crate::value::Args;
use crate::value::flow::Flow;
use crate::value::{Partial, Value};
use std::rc::Rc;

pub const TABLE: Table = &[("functools.partial", partial), ("functools.reduce", reduce), ("typing.cast", cast)];

fn partial(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (func, rest) = receiver(path, args)?;
    if !super::types::is_callable(tracer, &func)? {
        return tracer.raise_named("TypeError", "the first argument must be callable");
    }
    let (func, mut args, mut kwargs) = match &func {
        // A partial of a partial is one partial.
        Value::Partial(inner) => (inner.func.clone(), inner.args.clone(), inner.kwargs.clone()),
        _ => (func, vec![], vec![]),
    };
    args.extend(rest.pos);
    for (name, value) in rest.kw {
        match kwargs.iter_mut().find(|(n, _)| *n == name) {
            Some(known) => known.1 = value,
            None => kwargs.push((name, value)),
        }
    }
    Ok(Value::Partial(Rc::new(Partial { func, args, kwargs, origin: None })))
}

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
