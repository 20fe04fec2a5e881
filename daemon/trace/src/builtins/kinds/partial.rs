//! `functools.partial`: a callable, a tuple of arguments and a dict of keywords.

use super::super::args::receiver;
use super::super::{Table, types};
use crate::state::kind::Kind;
use crate::state::tracer::Tracer;
use crate::value::flow::{Flow, stop};
use crate::value::parts::{PARTIAL, Parts};
use crate::value::{Args, Value};
use flambeau_ir::guard::GuardKind;
use flambeau_ir::reason::ReasonCode;
use std::rc::Rc;

pub struct Partial;

pub const TABLE: Table = &[("functools.partial", partial)];

impl Kind for Partial {
    fn path(&self) -> &'static str {
        PARTIAL
    }

    fn is_callable(&self) -> bool {
        true
    }

    fn has_weak_references(&self) -> bool {
        true
    }

    fn is_usual(&self, _: &Tracer<'_>, items: &[Value]) -> bool {
        matches!(items, [_, Value::Tuple(_), Value::Dict(_)])
    }

    fn attribute(&self, tracer: &mut Tracer<'_>, this: &Rc<Parts>, name: &str) -> Flow<Option<Value>> {
        if let Some(part) = self.part(this, name) {
            return Ok(Some(part));
        }
        let found = tracer.builtin_attr(&Value::Parts(this.clone()), name)?;
        let (None, Some(origin)) = (&found, this.origin) else { return Ok(found) };
        let described = tracer.describe(origin.object)?;
        match tracer.attrs_of(&described, origin.source) {
            Some(attrs) => tracer.dict_get_str(attrs, name),
            None => {
                tracer.guard(origin.source, GuardKind::NoAttributes);
                Ok(None)
            }
        }
    }

    fn call(&self, tracer: &mut Tracer<'_>, this: &Parts, args: Args) -> Flow<Option<Value>> {
        let (func, all) = merged(tracer, this, args)?;
        tracer.call(&func, all).map(Some)
    }

    fn rebuild(&self, tracer: &mut Tracer<'_>, this: &Parts) -> Flow<Option<Vec<Value>>> {
        let (func, all) = merged(tracer, this, Args::default())?;
        Ok(all.kw.is_empty().then(|| [func].into_iter().chain(all.pos).collect()))
    }
}

/// What is called, with the partial's arguments and these behind them.
fn merged(tracer: &mut Tracer<'_>, this: &Parts, args: Args) -> Flow<(Value, Args)> {
    let [func, Value::Tuple(pos), Value::Dict(keywords)] = this.items.as_slice() else {
        return stop(ReasonCode::Internal, "a partial without its parts");
    };
    let mut all = Args::new(pos.items.iter().cloned().chain(args.pos).collect());
    for (name, value) in tracer.dict_items(*keywords)? {
        match name.as_str() {
            Some(name) => all.kw.push((name.clone(), value)),
            None => return stop(ReasonCode::UnsupportedObject, "a partial with keywords that are no str"),
        }
    }
    for (name, value) in args.kw {
        match all.kw.iter_mut().find(|(known, _)| *known == name) {
            Some(known) => known.1 = value,
            None => all.kw.push((name, value)),
        }
    }
    Ok((func.clone(), all))
}

fn partial(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (func, rest) = receiver(path, args)?;
    if !types::is_callable(tracer, &func)? {
        return tracer.raise_named("TypeError", "the first argument must be callable");
    }
    let (func, all) = match &func {
        // A partial of a partial is one partial.
        Value::Parts(inner) if inner.of == PARTIAL => merged(tracer, inner, rest)?,
        _ => (func, rest),
    };
    let keywords = tracer.new_dict(all.kw.into_iter().map(|(name, value)| (Value::str(&name), value)).collect())?;
    Ok(Value::parts(PARTIAL, [func, Value::tuple(all.pos), keywords]))
}
