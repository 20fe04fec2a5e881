//! Decompositions of losses.

use crate::build::Build;
use crate::decompose::{Decompose, Outcome, compute_type, refuse};
use crate::pointwise::decompose_activation::log_sigmoid_of;
use crate::reduce::decompose::{averaged, exponentials, softmaxed};
use flambeau_core::graph::{CoreId, ExternArg};
use flambeau_ir::code::Const;
use flambeau_ir::dim::Dim;
use flambeau_ir::kernel::{Binary, DType, ReduceOp, Unary};
use flambeau_ir::reason::Reason;
use flambeau_ir::tensor::TensorMeta;

/// `max - x[target] + log(sum(exp(x - max)))`: the scores are read once, and nothing of their size is written. Torch picks
/// those of the targets, so that it says what it says of a number of no class.
pub(super) fn cross_entropy(cx: &mut Decompose) -> Result<Outcome, Reason> {
    let (scores, target) = (cx.tensor("input")?, cx.tensor("target")?);
    let class = usize::from(cx.sizes(scores).len() > 1);
    if cx.maybe_tensor("weight")?.is_some() {
        return refuse("cross_entropy with weights");
    }
    if cx.dtype(target).is_float() {
        return against_shares(cx, class);
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
    let loss = smoothed(cx, loss, (x, class), &each)?;

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

/// The share of the loss that goes to all classes alike, `mean(loss of each class)`, with `smoothing` of it.
fn smoothed(cx: &mut Decompose, loss: CoreId, (x, class): (CoreId, usize), each: &[Dim]) -> Result<CoreId, Reason> {
    let smoothing = cx.float("label_smoothing")?.unwrap_or(0.0);
    if smoothing == 0.0 {
        return Ok(loss);
    }
    let logs = softmaxed(cx, x, class, true);
    let mean = averaged(cx, logs, &[class]);
    let mean = cx.reshape(mean, each.to_vec());
    let (own, shared) = (cx.scale(loss, 1.0 - smoothing), cx.scale(mean, smoothing));
    Ok(cx.sub(own, shared))
}

/// `-sum(log_softmax(x) * y)`, where `y` is each class's share.
fn against_shares(cx: &mut Decompose, class: usize) -> Result<Outcome, Reason> {
    let [x, y] = plain(cx, ["input", "target"])?;
    let (sizes, smoothing) = (cx.sizes(x), cx.float("label_smoothing")?.unwrap_or(0.0));
    let Some(classes) = sizes[class].as_const().filter(|_| cx.sizes(y) == sizes) else {
        return refuse("cross_entropy of a number of classes that varies");
    };
    let logs = softmaxed(cx, x, class, true);
    let y = if smoothing > 0.0 {
        let kept = cx.scale(y, 1.0 - smoothing);
        cx.offset(kept, smoothing / classes as f64)
    } else {
        y
    };
    let shares = cx.mul(logs, y);
    let sum = cx.reduce(ReduceOp::Sum, shares, &[class]);
    let each = cx.unary(Unary::Neg, sum);
    total(cx, each)
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
    total(cx, each)
}

/// The losses of the elements, or one number of them.
fn total(cx: &mut Decompose, each: CoreId) -> Result<Outcome, Reason> {
    let result = cx.result()?;
    let over: Vec<usize> = (0..cx.sizes(each).len()).collect();
    let total = match cx.int("reduction")?.unwrap_or(1) {
        0 => each,
        1 => averaged(cx, each, &over),
        2 => cx.reduce(ReduceOp::Sum, each, &over),
        other => return refuse(format!("a loss with reduction {other}")),
    };
    Ok(Outcome::Fresh(cx.reshape(total, result.sizes)))
}

/// The operands of a loss, of the same sizes and one float type that is not rounded at each step.
fn plain<const N: usize>(cx: &mut Decompose, names: [&str; N]) -> Result<[CoreId; N], Reason> {
    let dtype = cx.result()?.dtype;
    if !matches!(dtype, DType::F32 | DType::F64) {
        return refuse("a loss of halves, which torch rounds at each step");
    }
    let mut operands = [CoreId(0); N];
    for (operand, name) in operands.iter_mut().zip(names) {
        *operand = cx.tensor(name)?;
        if cx.dtype(*operand) != dtype {
            return refuse("a loss of several types");
        }
    }
    if operands.iter().any(|operand| cx.sizes(*operand) != cx.sizes(operands[0])) {
        return refuse("a loss of several sizes");
    }
    Ok(operands)
}

/// What is below zero as zero; at zero the derivative is 1.
fn positive(cx: &mut Decompose, x: CoreId) -> CoreId {
    let zero = cx.real(0.0, cx.dtype(x));
    let below = cx.binary(Binary::Lt, x, zero);
    cx.select(below, zero, x)
}

/// `weight * ((1 - y) * x - ((pos_weight - 1) * y + 1) * log(sigmoid(x)))`
pub(super) fn logits(cx: &mut Decompose) -> Result<Outcome, Reason> {
    let [x, y] = plain(cx, ["input", "target"])?;
    let dtype = cx.dtype(x);
    let (one, likely) = (cx.real(1.0, dtype), log_sigmoid_of(cx, x));
    let rest = cx.sub(one, y);
    let unlikely = cx.mul(rest, x);
    let likely = match cx.maybe_tensor("pos_weight")? {
        Some(weight) if cx.dtype(weight) == dtype => {
            let more = cx.offset(weight, -1.0);
            let more = cx.mul(more, y);
            let share = cx.offset(more, 1.0);
            cx.mul(share, likely)
        }
        Some(_) => return refuse("weights of another type"),
        None => likely,
    };
    let mut each = cx.sub(unlikely, likely);
    if let Some(weight) = cx.maybe_tensor("weight")? {
        if cx.dtype(weight) != dtype || cx.meta_of("weight")?.requires_grad {
            return refuse("weights of another type, or that require a gradient");
        }
        each = cx.mul(each, weight);
    }
    total(cx, each)
}

/// `y * log(y) - y * x`, with 0 for `0 * log(0)`; or `exp(y) * (y - x)`
pub(super) fn divergence(cx: &mut Decompose) -> Result<Outcome, Reason> {
    let [x, y] = plain(cx, ["input", "target"])?;
    let each = if cx.flag("log_target")? {
        let (grown, off) = (cx.unary(Unary::Exp, y), cx.sub(y, x));
        cx.mul(grown, off)
    } else {
        if cx.training.is_some() && cx.meta_of("target")?.requires_grad {
            return refuse("a divergence whose target requires a gradient");
        }
        let (zero, log) = (cx.real(0.0, cx.dtype(y)), cx.unary(Unary::Log, y));
        let (none, own) = (cx.binary(Binary::Eq, y, zero), cx.mul(y, log));
        let (own, shared) = (cx.select(none, zero, own), cx.mul(y, x));
        cx.sub(own, shared)
    };
    total(cx, each)
}

/// `log(1 + exp(-y * x))`
pub(super) fn soft_margin(cx: &mut Decompose) -> Result<Outcome, Reason> {
    let [x, y] = plain(cx, ["input", "target"])?;
    let negative = cx.unary(Unary::Neg, x);
    let product = cx.mul(negative, y);
    let grown = cx.unary(Unary::Exp, product);
    let each = cx.unary(Unary::Log1p, grown);
    total(cx, each)
}

/// The margin that is left where `y` is not 1, and `x` where it is not -1.
pub(super) fn hinge_embedding(cx: &mut Decompose) -> Result<Outcome, Reason> {
    let [x, y] = plain(cx, ["input", "target"])?;
    if cx.training.is_some() && cx.meta_of("target")?.requires_grad {
        return refuse("a loss whose target requires a gradient");
    }
    let margin = cx.operand("margin", cx.dtype(x))?;
    let (left, one) = (cx.sub(margin, x), cx.real(1.0, cx.dtype(x)));
    let (left, zero, other) = (positive(cx, left), cx.real(0.0, cx.dtype(x)), cx.real(-1.0, cx.dtype(x)));
    let (near, far) = (cx.binary(Binary::Ne, y, one), cx.binary(Binary::Ne, y, other));
    let (near, far) = (cx.select(near, left, zero), cx.select(far, x, zero));
    let each = cx.add(near, far);
    total(cx, each)
}

/// `max(0, -y * (x1 - x2) + margin)`
pub(super) fn margin_ranking(cx: &mut Decompose) -> Result<Outcome, Reason> {
    let [a, b, y] = plain(cx, ["input1", "input2", "target"])?;
    let margin = cx.operand("margin", cx.dtype(a))?;
    let (negative, off) = (cx.unary(Unary::Neg, y), cx.sub(a, b));
    let product = cx.mul(negative, off);
    let left = cx.add(product, margin);
    let each = positive(cx, left);
    total(cx, each)
}

/// `exp(x) - y * x`, or `x - y * log(x + eps)`
pub(super) fn poisson(cx: &mut Decompose) -> Result<Outcome, Reason> {
    let [x, y] = plain(cx, ["input", "target"])?;
    if cx.flag("full")? {
        return refuse("a Poisson loss with Stirling's term");
    }
    let (rate, log) = if cx.flag("log_input")? {
        (cx.unary(Unary::Exp, x), x)
    } else {
        let shifted = cx.offset(x, cx.float("eps")?.unwrap_or(1e-8));
        (x, cx.unary(Unary::Log, shifted))
    };
    let expected = cx.mul(y, log);
    let each = cx.sub(rate, expected);
    total(cx, each)
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
