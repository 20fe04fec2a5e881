//! Decompositions of losses.

use crate::build::Build;
use crate::decompose::{Decompose, Outcome, compute_type, refuse};
use crate::reduce::decompose::{averaged, exponentials};
use flambeau_core::graph::{CoreId, ExternArg};
use flambeau_ir::code::Const;
use flambeau_ir::kernel::{Binary, DType, ReduceOp, Unary};
use flambeau_ir::reason::Reason;
use flambeau_ir::tensor::TensorMeta;

/// `max - x[target] + log(sum(exp(x - max)))`: the scores are read once, and nothing of their size is written. Torch picks
/// those of the targets, so that it says what it says of a number of no class.
pub(super) fn cross_entropy(cx: &mut Decompose) -> Result<Outcome, Reason> {
    let (scores, target) = (cx.tensor("input")?, cx.tensor("target")?);
    let class = cx.sizes(scores).len() - 1;
    if class > 1 || cx.maybe_tensor("weight")?.is_some() || cx.float("label_smoothing")?.unwrap_or(0.0) != 0.0 {
        return refuse("cross_entropy with weights, smoothing or more dimensions");
    }
    let ignored = Const::Int(cx.int("ignore_index")?.unwrap_or(-100));
    let (given, result) = (cx.meta_of("input")?, cx.result()?);
    let each = cx.sizes(target);
    let args = vec![
        ExternArg::Value(scores),
        ExternArg::Value(target),
        ExternArg::Const(Const::None),
        ExternArg::Const(Const::Int(0)),
        ExternArg::Const(ignored.clone()),
    ];
    let picked = TensorMeta::contiguous(given.dtype, given.device, each.clone());
    let picked = cx.call(("aten::nll_loss_nd", "default"), None, args, &[picked])[0];

    let dtype = compute_type(result.dtype);
    let x = cx.operand("input", dtype)?;
    let top = cx.reduce(ReduceOp::Max, x, &[class]);
    let top = cx.stopped(top);
    let (_, _, total) = exponentials(cx, x, top, &[class]);
    let (top, total) = (cx.reshape(top, each.clone()), cx.reshape(total, each.clone()));
    let (picked, total) = (cx.cast(picked, dtype), cx.unary(Unary::Log, total));
    let off = cx.add(picked, top);
    let loss = cx.add(off, total);

    let (ignored, zero) = (cx.constant(&ignored, DType::I64, vec![])?, cx.real(0.0, dtype));
    let counts = cx.binary(Binary::Ne, target, ignored);
    let mut loss = cx.select(counts, loss, zero);
    let reduction = cx.int("reduction")?.unwrap_or(1);
    let over: Vec<usize> = (0..each.len()).collect();
    if reduction != 0 {
        loss = cx.reduce(ReduceOp::Sum, loss, &over);
    }
    if reduction == 1 {
        let counts = cx.cast(counts, dtype);
        let count = cx.reduce(ReduceOp::Sum, counts, &over);
        loss = cx.div(loss, count);
    }
    Ok(Outcome::Fresh(cx.reshape(loss, result.sizes)))
}

/// The loss of each element by what it differs, rounded to the type of the result, and reduced.
fn by_difference(
    cx: &mut Decompose,
    loss: impl FnOnce(&mut Decompose, CoreId) -> Result<CoreId, Reason>,
) -> Result<Outcome, Reason> {
    let result = cx.result()?;
    let dtype = compute_type(result.dtype);
    let (x, target) = (cx.operand("input", dtype)?, cx.operand("target", dtype)?);
    let difference = cx.sub(x, target);
    let each = loss(cx, difference)?;
    let rounded = cx.cast(each, result.dtype);
    let each = cx.cast(rounded, dtype);
    let over: Vec<usize> = (0..cx.sizes(each).len()).collect();
    let total = match cx.int("reduction")?.unwrap_or(1) {
        0 => each,
        1 => averaged(cx, each, &over),
        2 => cx.reduce(ReduceOp::Sum, each, &over),
        other => return refuse(format!("a loss with reduction {other}")),
    };
    Ok(Outcome::Fresh(cx.reshape(total, result.sizes)))
}

pub(super) fn mse(cx: &mut Decompose) -> Result<Outcome, Reason> {
    by_difference(cx, |cx, difference| Ok(cx.mul(difference, difference)))
}

pub(super) fn l1(cx: &mut Decompose) -> Result<Outcome, Reason> {
    by_difference(cx, |cx, difference| Ok(cx.unary(Unary::Abs, difference)))
}

/// Square up to `beta`, straight from there on.
pub(super) fn smooth_l1(cx: &mut Decompose) -> Result<Outcome, Reason> {
    let beta = cx.float("beta")?.unwrap_or(1.0);
    if beta == 0.0 {
        return l1(cx);
    }
    by_difference(cx, |cx, difference| {
        let (square, straight, is_far) = bent(cx, difference, beta);
        let scale = cx.real(beta, cx.dtype(square));
        let square = cx.div(square, scale);
        Ok(cx.select(is_far, straight, square))
    })
}

pub(super) fn huber(cx: &mut Decompose) -> Result<Outcome, Reason> {
    let delta = cx.float("delta")?.unwrap_or(1.0);
    by_difference(cx, |cx, difference| {
        let (square, straight, is_far) = bent(cx, difference, delta);
        let straight = cx.scale(straight, delta);
        Ok(cx.select(is_far, straight, square))
    })
}

/// Half the square of a value, how far it is from half of `limit`, and whether it is beyond that. What is not chosen has a
/// derivative that is finite.
fn bent(cx: &mut Decompose, value: CoreId, limit: f64) -> (CoreId, CoreId, CoreId) {
    let (far, size) = (cx.real(limit, cx.dtype(value)), cx.unary(Unary::Abs, value));
    let is_far = cx.binary(Binary::Ge, size, far);
    let zero = cx.real(0.0, cx.dtype(value));
    let near = cx.select(is_far, zero, value);
    let half = cx.scale(near, 0.5);
    (cx.mul(half, near), cx.offset(size, -0.5 * limit), is_far)
}
