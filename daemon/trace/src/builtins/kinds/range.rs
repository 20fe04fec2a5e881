//! `range`: ints, possibly symbolic.

use super::super::args::exactly;
use super::super::operators::position;
use super::super::{Table, fixed_int, unsupported};
use super::slice;
use crate::fold;
use crate::state::kind::Kind;
use crate::state::tracer::Tracer;
use crate::value::flow::{Flow, stop};
use crate::value::iterator::range_len;
use crate::value::parts::{Parts, RANGE};
use crate::value::{Args, Iter, Value};
use flambeau_ir::code::Const;
use flambeau_ir::dim::Dim;
use flambeau_ir::guard::Relation;
use flambeau_ir::reason::ReasonCode;

pub struct Range;

pub const TABLE: Table = &[("builtins.range", range), ("builtins.range.__len__", length)];

impl Kind for Range {
    fn path(&self) -> &'static str {
        RANGE
    }

    fn is_plain(&self) -> bool {
        true
    }

    fn is_sequence(&self) -> bool {
        true
    }

    fn is_usual(&self, _: &Tracer<'_>, items: &[Value]) -> bool {
        items.iter().all(|part| part.as_dim().is_some())
    }

    fn iterator(&self, tracer: &mut Tracer<'_>, this: &Parts) -> Flow<Option<Value>> {
        let bounds @ (next, _, step) = bounds(tracer, this)?;
        Ok(Some(tracer.new_iter(Iter::Range { next, step, left: range_len(bounds) })))
    }

    fn length(&self, tracer: &mut Tracer<'_>, this: &Parts) -> Flow<Option<Value>> {
        let dims: Option<Vec<Dim>> = this.items.iter().map(Value::as_dim).collect();
        let Some([start, end, step]) = dims.as_deref() else {
            return stop(ReasonCode::UnsupportedObject, "a range of something that is no int");
        };
        let is_known = start.as_const().is_some() && end.as_const().is_some();
        if step.is(1) && !is_known {
            let positive = tracer.decide(Relation::Gt, end, start);
            return Ok(Some(if positive { Value::dim(end.sub(start)) } else { Value::int(0) }));
        }
        let length = range_len((tracer.fix(start), tracer.fix(end), tracer.fix(step)));
        Ok(Some(Value::Const(fold::int(length.into()))))
    }

    fn contains(&self, tracer: &mut Tracer<'_>, this: &Parts, item: &Value) -> Flow<Option<bool>> {
        let bounds @ (start, _, step) = bounds(tracer, this)?;
        match item {
            // Of exact ints only: others are compared with each element.
            Value::Const(Const::Int(_) | Const::Bool(_)) | Value::Int(_) => {
                let at = i128::from(fixed_int(tracer, item, "in")?) - i128::from(start);
                let step = i128::from(step);
                let index = at / step;
                Ok(Some(at % step == 0 && index >= 0 && (index as u64) < range_len(bounds)))
            }
            _ => unsupported("in range"),
        }
    }

    fn subscript(&self, tracer: &mut Tracer<'_>, this: &Parts, key: &Value) -> Flow<Option<Value>> {
        let bounds @ (start, _, step) = bounds(tracer, this)?;
        let Ok(length) = isize::try_from(range_len(bounds)) else { return unsupported("subscript") };
        let item = |at: i64| {
            let item = i128::from(start) + i128::from(at) * i128::from(step);
            i64::try_from(item).ok().map(Value::int)
        };
        if let Some(parts) = tracer.base(key).as_slice() {
            let (from, to, by) = slice::indices(tracer, parts, length as usize, "range slice")?;
            return match (item(from), item(to), by.checked_mul(step)) {
                (Some(from), Some(to), Some(by)) => Ok(Some(Value::parts(RANGE, [from, to, Value::int(by)]))),
                _ => unsupported("subscript"),
            };
        }
        let at = position(tracer, key, length as usize, "range object")?;
        item(at as i64).map_or_else(|| unsupported("subscript"), |item| Ok(Some(item)))
    }

    fn equal(&self, tracer: &mut Tracer<'_>, a: &Parts, b: &Parts) -> Flow<Option<bool>> {
        let (p, q) = (bounds(tracer, a)?, bounds(tracer, b)?);
        let length = range_len(p);
        Ok(Some(length == range_len(q) && (length == 0 || p.0 == q.0 && (length == 1 || p.2 == q.2))))
    }
}

fn range(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let ints: Vec<Value> = args.pos.iter().map(|v| tracer.base(v)).collect();
    if !args.kw.is_empty() || ints.iter().any(|v| v.as_dim().is_none()) {
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
    Ok(Value::parts(RANGE, parts.map(|p| p.as_dim().map_or(p, Value::dim))))
}

/// The range's bounds as constants; symbolic ones are fixed.
fn bounds(tracer: &mut Tracer<'_>, this: &Parts) -> Flow<(i64, i64, i64)> {
    let mut bounds = [0; 3];
    for (bound, part) in bounds.iter_mut().zip(&this.items) {
        *bound = fixed_int(tracer, part, "range")?;
    }
    let [start, stop, step] = bounds;
    if step == 0 {
        return tracer.raise_named("ValueError", "range() arg 3 must not be zero");
    }
    Ok((start, stop, step))
}

fn length(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [value] = exactly(path, args)?;
    tracer.length(&value)
}
