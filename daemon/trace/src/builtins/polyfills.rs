//! What polyfills are written with (`shim/python/flambeau/polyfills/_table.py`).

use super::Table;
use super::args::{bind, exactly};
use crate::protocol::polyfill::REFUSED;
use crate::state::tracer::Tracer;
use crate::value::flow::{Flow, internal, stop};
use crate::value::{Args, Iter, Payload, Polyfill, Value};
use flambeau_ir::code::Const;
use flambeau_ir::reason::ReasonCode;

pub const TABLE: Table = &[
    ("flambeau.polyfills._table.Lazy", lazy),
    ("flambeau.polyfills._table.asked_gradients", asked_gradients),
    ("flambeau.polyfills._table.computed_again", computed_again),
    ("flambeau.polyfills._table.gradients", gradients),
    ("flambeau.polyfills._table.made", made),
    ("flambeau.polyfills._table.one_call", one_call),
    ("flambeau.polyfills._table.refuse", refuse),
    ("flambeau.polyfills._table.same", same),
    ("flambeau.polyfills._table.state_of", state_of),
];

fn lazy(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [kind, state] = exactly(path, args)?;
    let Value::Class(class) = tracer.get_attr(&kind, "made_by")? else { return internal("a polyfill of no type") };
    let made_at = tracer.stack.last().map_or(0, |frame| frame.executed);
    Ok(tracer.new_iter(Iter::Polyfill(Polyfill { kind, class, state, made_at, given: 0 })))
}

fn made(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [Some(kind), Some(state), class] = bind(path, args, ["kind", "state", "cls"], 2)? else {
        return internal("a polyfill of no kind");
    };
    let class = match class {
        Some(class) => class,
        None => tracer.get_attr(&kind, "made_by")?,
    };
    let Value::Class(class) = class else { return internal("a polyfill of no type") };
    let attrs = class.has_dict.then(|| tracer.fresh_attrs());
    let made = tracer.new_instance(class, attrs);
    if let Value::Instance(id) = made {
        tracer.arenas.instances[id].payload = Payload::Polyfill { kind: Some(kind), state };
    }
    Ok(made)
}

fn computed_again(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [code, keeps_draws] = exactly(path, args)?;
    let Value::Const(Const::Bool(keeps_draws)) = keeps_draws else { return internal("a switch that is no bool") };
    tracer.checkpoint(keeps_draws, |tracer| tracer.call(&code, Args::new(vec![])))
}

fn gradients(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [of, gradient, keeps] = exactly(path, args)?;
    let Value::Const(Const::Bool(keeps)) = keeps else { return internal("a switch that is no bool") };
    tracer.gradients(&of, &gradient, keeps)
}

fn asked_gradients(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [outputs, seeds, inputs, keeps, creates] = exactly(path, args)?;
    let (Value::Const(Const::Bool(keeps)), Value::Const(Const::Bool(creates))) = (keeps, creates) else {
        return internal("a switch that is no bool");
    };
    tracer.asked_gradients((&outputs, &seeds, &inputs), keeps, creates)
}

fn one_call(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [of, args, traced, given] = exactly(path, args)?;
    let Value::Const(Const::Str(of)) = of else { return internal("a call of no function") };
    let (args, given) = (tracer.collect(&args)?, tracer.collect(&given)?);
    tracer.one_call(&of, &args, |tracer| tracer.call(&traced, Args::new(given)))
}

fn state_of(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [made] = exactly(path, args)?;
    match tracer.polyfill_state(&made) {
        Some(state) => Ok(state),
        None => stop(ReasonCode::UnsupportedCall, REFUSED),
    }
}

fn refuse(_: &mut Tracer<'_>, _: &str, _: Args) -> Flow<Value> {
    stop(ReasonCode::UnsupportedCall, REFUSED)
}

fn same(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [a, b] = exactly(path, args)?;
    tracer.equal(&a, &b).map(Value::bool)
}
