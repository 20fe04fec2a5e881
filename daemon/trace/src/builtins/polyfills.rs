//! What polyfills are written with (`shim/python/flambeau/polyfills/_table.py`).

use super::Table;
use super::args::exactly;
use crate::protocol::polyfill::REFUSED;
use crate::state::tracer::Tracer;
use crate::value::flow::{Flow, internal, stop};
use crate::value::{Args, Iter, Polyfill, Value};
use flambeau_ir::reason::ReasonCode;

pub const TABLE: Table = &[
    ("flambeau.polyfills._table.Lazy", lazy),
    ("flambeau.polyfills._table.refuse", refuse),
    ("flambeau.polyfills._table.same", same),
];

fn lazy(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [kind, state] = exactly(path, args)?;
    let Value::Class(class) = tracer.get_attr(&kind, "made_by")? else { return internal("a polyfill of no type") };
    let made_at = tracer.stack.last().map_or(0, |frame| frame.executed);
    Ok(tracer.new_iter(Iter::Polyfill(Polyfill { kind, class, state, made_at, given: 0 })))
}

fn refuse(_: &mut Tracer<'_>, _: &str, _: Args) -> Flow<Value> {
    stop(ReasonCode::UnsupportedCall, REFUSED)
}

fn same(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [a, b] = exactly(path, args)?;
    tracer.equal(&a, &b).map(Value::bool)
}
