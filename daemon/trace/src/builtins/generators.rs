//! Methods of generators, and the context managers that `contextlib.contextmanager` makes of them.

use super::args::{bind, exactly, receiver};
use super::{Table, unsupported};
use crate::state::tracer::Tracer;
use crate::value::Args;
use crate::value::Value;
use crate::value::flow::{Flow, Stop};
use crate::value::frame::{FrameEnd, GeneratorId};

pub const TABLE: Table = &[
    ("types.GeneratorType.send", send),
    ("types.GeneratorType.throw", throw),
    ("types.GeneratorType.close", close_method),
    ("types.GeneratorType.__next__", next),
    ("types.GeneratorType.__iter__", iter),
    ("contextlib._GeneratorContextManagerBase.__init__", manager),
];

fn generator(path: &str, args: Args) -> Flow<(GeneratorId, Args)> {
    match receiver(path, args)? {
        (Value::Generator(id), rest) => Ok((id, rest)),
        _ => unsupported(path),
    }
}

/// What a resumed generator gives to who resumed it.
fn yielded(tracer: &mut Tracer<'_>, end: FrameEnd) -> Flow<Value> {
    match end {
        FrameEnd::Yield(value) => Ok(value),
        FrameEnd::Return(value) if value.is_none() => tracer.raise_with("StopIteration", vec![]),
        FrameEnd::Return(value) => tracer.raise_with("StopIteration", vec![value]),
        FrameEnd::Generator => crate::value::flow::internal("a generator made itself anew"),
    }
}

fn send(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, rest) = generator(path, args)?;
    let [value] = exactly(path, rest)?;
    let generator = &tracer.arenas.generators[id];
    if !generator.started && generator.frame.is_some() && !value.is_none() {
        return tracer.raise_named("TypeError", "can't send non-None value to a just-started generator");
    }
    let end = tracer.resume(id, Ok(value))?;
    yielded(tracer, end)
}

fn next(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, rest) = generator(path, args)?;
    let [] = exactly(path, rest)?;
    let end = tracer.resume(id, Ok(Value::NONE))?;
    yielded(tracer, end)
}

fn iter(_: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, rest) = generator(path, args)?;
    let [] = exactly(path, rest)?;
    Ok(Value::Generator(id))
}

fn throw(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, rest) = generator(path, args)?;
    if rest.pos.len() > 1 && tracer.builtins().throw_warns {
        return unsupported(path);
    }
    let [kind, value, _traceback] = bind(path, rest, ["", "", ""], 1)?;
    let exception = match (kind, value) {
        (_, Some(value @ Value::Instance(_))) => value,
        (Some(value @ Value::Instance(_)), _) => value,
        (Some(kind @ Value::Class(_)), None) => tracer.call(&kind, Args::default())?,
        (Some(kind @ Value::Class(_)), Some(value)) if value.is_none() => tracer.call(&kind, Args::default())?,
        _ => return unsupported(path),
    };
    let base = tracer.exception_class("BaseException");
    if !tracer.class_of(&exception)?.is_subclass(&base) {
        return tracer.raise_inexact("TypeError", "something that is no exception is thrown");
    }
    let end = tracer.resume(id, Err(exception))?;
    yielded(tracer, end)
}

fn close_method(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (id, rest) = generator(path, args)?;
    let [] = exactly(path, rest)?;
    close(tracer, id)
}

/// `generator.close()`
pub(crate) fn close(tracer: &mut Tracer<'_>, id: GeneratorId) -> Flow<Value> {
    let generator = &mut tracer.arenas.generators[id];
    if !generator.started && !generator.running {
        generator.frame = None;
    }
    if generator.frame.is_none() && !generator.running {
        return Ok(Value::NONE);
    }
    let class = tracer.exception_class("GeneratorExit");
    let exit = tracer.new_exception(class, vec![]);
    match tracer.resume(id, Err(exit)) {
        Ok(FrameEnd::Yield(_)) => tracer.raise_named("RuntimeError", "generator ignored GeneratorExit"),
        Ok(FrameEnd::Return(value)) if tracer.builtins().close_returns => Ok(value),
        Ok(_) => Ok(Value::NONE),
        Err(Stop::Raise(Value::Instance(raised))) => {
            let class = &tracer.arenas.instances[raised].class;
            if class.derives("builtins.GeneratorExit") || class.derives("builtins.StopIteration") {
                return Ok(Value::NONE);
            }
            Err(Stop::Raise(Value::Instance(raised)))
        }
        Err(other) => Err(other),
    }
}

/// `self.gen = func(*args, **kwds)` and the rest of the state, but for the docstring, which nothing in a trace can read.
fn manager(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [this, func, positional, keywords] = exactly(path, args)?;
    let call = Args {
        pos: tracer.collect(&positional)?,
        kw: tracer
            .mapping_items(&keywords)?
            .into_iter()
            .map(|(name, value)| name.as_str().cloned().map(|n| (n, value)))
            .collect::<Option<Vec<(std::sync::Arc<str>, Value)>>>()
            .map_or_else(|| unsupported(path), Ok)?,
    };
    let gen_ = tracer.call(&func, call)?;
    let doc = tracer.unreadable("types.TracebackType");
    for (name, value) in [("gen", gen_), ("func", func), ("args", positional), ("kwds", keywords), ("__doc__", doc)] {
        tracer.generic_set_attr(&this, name, Some(value))?;
    }
    Ok(Value::NONE)
}
