//! Decompositions of ops that make tensors from sizes and numbers.

use crate::build::Build;
use crate::decompose::{Decompose, Outcome, refuse};
use crate::signature::{Argument, Seen};
use flambeau_core::graph::{CoreId, CoreOp};
use flambeau_ir::code::Const;
use flambeau_ir::dim::Dim;
use flambeau_ir::graph::Arg;
use flambeau_ir::kernel::{Binary, DType};
use flambeau_ir::reason::Reason;

type Done = Result<Outcome, Reason>;

fn filled(cx: &mut Decompose, number: &Const) -> Done {
    let meta = cx.result()?;
    let value = cx.constant(number, meta.dtype, meta.sizes)?;
    Ok(Outcome::Fresh(value))
}

pub(super) fn full(cx: &mut Decompose, name: &str) -> Done {
    let meta = cx.result()?;
    let value = cx.operand(name, meta.dtype)?;
    let value = cx.expand(value, &meta.sizes);
    Ok(Outcome::Fresh(value))
}

/// `start + step * i`
pub(super) fn arange(cx: &mut Decompose) -> Done {
    let meta = cx.result()?;
    let number = |cx: &mut Decompose, name: &str, default: i64| match cx.bound.value(name) {
        None => cx.constant(&Const::Int(default), meta.dtype, vec![]),
        Some(_) => cx.operand(name, meta.dtype),
    };
    let start = number(cx, "start", 0)?;
    let step = number(cx, "step", 1)?;
    if !matches!(meta.dtype, DType::I64 | DType::I32 | DType::F32 | DType::F64) {
        return refuse("arange of this type");
    }
    let at = cx.core.push(CoreOp::Iota(0), DType::I64, meta.sizes);
    let at = cx.cast(at, meta.dtype);
    let scaled = cx.mul(at, step);
    let value = cx.add(scaled, start);
    Ok(Outcome::Fresh(value))
}

/// Most numbers that are written out.
const LITERALS: usize = 64;

/// Numbers one after the other.
pub(super) fn tensor(cx: &mut Decompose) -> Done {
    let meta = cx.result()?;
    let Some(data) = cx.bound.arg("data") else { return refuse("a tensor of no data") };
    literal(cx, data, meta.dtype, meta.sizes).map(Outcome::Fresh)
}

/// A tensor of numbers in lists.
pub(crate) fn literal(cx: &mut Decompose, data: &Arg, dtype: DType, sizes: Vec<Dim>) -> Result<CoreId, Reason> {
    let mut parts = Vec::new();
    numbers(cx, data, dtype, &mut parts)?;
    if sizes.is_empty() && parts.len() == 1 {
        return Ok(parts[0]);
    }
    if parts.is_empty() {
        return cx.constant(&Const::Int(0), dtype, sizes);
    }
    if parts.len() > LITERALS {
        return refuse(format!("a tensor of {} numbers", parts.len()));
    }
    let count = parts.len() as i64;
    let parts = parts.into_iter().map(|p| cx.reshape(p, vec![Dim::Const(1)])).collect();
    let row = cx.core.push(CoreOp::Join(parts, 0), dtype, vec![Dim::Const(count)]);
    Ok(cx.reshape(row, sizes))
}

fn numbers(cx: &mut Decompose, data: &Arg, dtype: DType, parts: &mut Vec<CoreId>) -> Result<(), Reason> {
    let part = match data.seen() {
        Seen::Items(items) => return items.iter().try_for_each(|i| numbers(cx, i, dtype, parts)),
        Seen::Const(Const::Tuple(items)) => {
            let items: Vec<Arg> = items.iter().cloned().map(Arg::Const).collect();
            return items.iter().try_for_each(|i| numbers(cx, i, dtype, parts));
        }
        Seen::Const(c) => cx.constant(c, dtype, vec![])?,
        Seen::Dim(d) => cx.scalar(d, dtype),
        _ => return refuse("a tensor of something else than numbers"),
    };
    parts.push(part);
    Ok(())
}

pub(super) fn eye(cx: &mut Decompose) -> Done {
    let meta = cx.result()?;
    let row = cx.core.push(CoreOp::Iota(0), DType::I64, meta.sizes.clone());
    let column = cx.core.push(CoreOp::Iota(1), DType::I64, meta.sizes);
    let same = cx.binary(Binary::Eq, row, column);
    Ok(Outcome::Fresh(cx.cast(same, meta.dtype)))
}

pub(super) fn zeros(cx: &mut Decompose) -> Done {
    filled(cx, &Const::Int(0))
}

pub(super) fn ones(cx: &mut Decompose) -> Done {
    filled(cx, &Const::Int(1))
}
