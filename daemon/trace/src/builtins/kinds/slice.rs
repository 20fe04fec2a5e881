//! `slice`: an object of three parts, and the positions that one selects.

use super::super::args::exactly;
use super::super::{Table, decided, fixed_int, unsupported};
use crate::fold;
use crate::state::kind::Kind;
use crate::state::tracer::Tracer;
use crate::value::flow::Flow;
use crate::value::parts::SLICE;
use crate::value::{Args, Value};
use flambeau_ir::code::Const;

pub struct Slice;

pub const TABLE: Table = &[("builtins.slice", slice), ("builtins.slice.indices", slice_indices)];

impl Kind for Slice {
    fn path(&self) -> &'static str {
        SLICE
    }

    fn is_plain(&self) -> bool {
        true
    }

    fn compares_parts(&self) -> bool {
        true
    }
}

fn slice(_: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    match (args.pos.as_slice(), args.kw.as_slice()) {
        ([stop], []) => Ok(Value::parts(SLICE, [Value::NONE, stop.clone(), Value::NONE])),
        ([start, stop], []) => Ok(Value::parts(SLICE, [start.clone(), stop.clone(), Value::NONE])),
        ([_, _, _], []) => Ok(Value::parts(SLICE, args.pos)),
        _ => unsupported(path),
    }
}

fn slice_indices(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [slice, length] = exactly(path, args)?;
    let Some(parts) = slice.as_slice() else { return unsupported(path) };
    let length = fixed_int(tracer, &length, path)?;
    let (start, stop, step) = indices(tracer, parts, length.max(0) as usize, path)?;
    Ok(Value::tuple([start, stop, step].map(Value::int).to_vec()))
}

/// The slice's positions in a sequence of this length: start, stop, step. Symbolic bounds are fixed.
pub fn indices(tracer: &mut Tracer<'_>, parts: &[Value; 3], length: usize, what: &str) -> Flow<(i64, i64, i64)> {
    let mut bounds = [Const::None, Const::None, Const::None];
    for (bound, part) in bounds.iter_mut().zip(parts) {
        *bound = match part {
            Value::Const(Const::None) => Const::None,
            part => Const::Int(fixed_int(tracer, part, what)?),
        };
    }
    decided(tracer, fold::slice_indices(&bounds, length), what)
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
