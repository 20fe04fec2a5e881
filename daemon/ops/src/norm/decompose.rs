//! Decompositions of normalisations. Formulas are those of torch's documentation.

use crate::build::Build;
use crate::decompose::{Decompose, Outcome, call_result, compute_type, refuse};
use crate::reduce::decompose::{averaged, moments};
use flambeau_core::graph::{CoreId, CoreOp, ExternArg, ExternCall};
use flambeau_ir::code::Const;
use flambeau_ir::dim::Dim;
use flambeau_ir::kernel::Unary;
use flambeau_ir::reason::Reason;

type Done = Result<Outcome, Reason>;

fn eps(cx: &Decompose) -> Result<f64, Reason> {
    cx.float("eps")?.map_or_else(|| refuse("a normalisation without eps"), Ok)
}

/// `(x - mean) / sqrt(var + eps)` over dimensions
fn normalised(cx: &mut Decompose, x: CoreId, over: &[usize], eps: f64) -> CoreId {
    let (mean, var) = moments(cx, x, over, 0);
    let shifted = cx.offset(var, eps);
    let factor = cx.unary(Unary::Rsqrt, shifted);
    let centred = cx.sub(x, mean);
    cx.mul(centred, factor)
}

/// `x * weight + bias`, each where given, brought to `shape` first.
fn affine(
    cx: &mut Decompose,
    mut x: CoreId,
    weight: Option<CoreId>,
    bias: Option<CoreId>,
    shape: Option<&[Dim]>,
) -> CoreId {
    let dtype = cx.dtype(x);
    if let Some(w) = weight {
        let w = cx.cast(w, dtype);
        let w = shape.map_or(w, |s| cx.reshape(w, s.to_vec()));
        x = cx.mul(x, w);
    }
    if let Some(b) = bias {
        let b = cx.cast(b, dtype);
        let b = shape.map_or(b, |s| cx.reshape(b, s.to_vec()));
        x = cx.add(x, b);
    }
    x
}

/// The trailing dimensions that a normalised shape covers.
fn trailing(cx: &Decompose, rank: usize) -> Result<Vec<usize>, Reason> {
    let Ok(Some(shape)) = cx.bound.dims("normalized_shape") else {
        return refuse("a normalised shape that is no list");
    };
    Ok((rank.saturating_sub(shape.len())..rank).collect())
}

pub(super) fn layer_norm(cx: &mut Decompose) -> Done {
    let dtype = compute_type(cx.result()?.dtype);
    let x = cx.operand("input", dtype)?;
    let over = trailing(cx, cx.sizes(x).len())?;
    let eps = eps(cx)?;
    let y = normalised(cx, x, &over, eps);
    let (weight, bias) = (cx.maybe_tensor("weight")?, cx.maybe_tensor("bias")?);
    Ok(Outcome::Fresh(affine(cx, y, weight, bias, None)))
}

/// Layer norm of a value with fixed parameters.
pub(crate) fn layer_normed(cx: &mut Decompose, x: CoreId, weight: CoreId, bias: CoreId, eps: f64) -> CoreId {
    let rank = cx.sizes(x).len();
    let y = normalised(cx, x, &[rank - 1], eps);
    affine(cx, y, Some(weight), Some(bias), None)
}

/// `x / sqrt(mean(x^2) + eps) * weight`
pub(super) fn rms_norm(cx: &mut Decompose) -> Done {
    let dtype = compute_type(cx.result()?.dtype);
    let x = cx.operand("input", dtype)?;
    let over = trailing(cx, cx.sizes(x).len())?;
    let eps = match cx.float("eps")? {
        Some(eps) => eps,
        None if dtype == flambeau_ir::kernel::DType::F64 => f64::EPSILON,
        None => f64::from(f32::EPSILON),
    };
    let square = cx.mul(x, x);
    let mean = averaged(cx, square, &over);
    let shifted = cx.offset(mean, eps);
    let factor = cx.unary(Unary::Rsqrt, shifted);
    let y = cx.mul(x, factor);
    let weight = cx.maybe_tensor("weight")?;
    Ok(Outcome::Fresh(affine(cx, y, weight, None, None)))
}

pub(super) fn batch_norm(cx: &mut Decompose) -> Done {
    let (mean, var) = (cx.maybe_tensor("running_mean")?, cx.maybe_tensor("running_var")?);
    if cx.flag("training")? || mean.is_none() {
        return batch_statistics(cx, mean.zip(var));
    }
    by_running(cx)
}

/// With running statistics: one factor and one offset per channel.
fn by_running(cx: &mut Decompose) -> Done {
    let dtype = compute_type(cx.result()?.dtype);
    let x = cx.operand("input", dtype)?;
    let eps = eps(cx)?;
    let (Some(mean), Some(var)) = (cx.maybe_tensor("running_mean")?, cx.maybe_tensor("running_var")?) else {
        return refuse("half of the running statistics");
    };
    let (mean, var) = (cx.cast(mean, dtype), cx.cast(var, dtype));
    let sizes = cx.sizes(x);
    let mut shape = vec![Dim::Const(1); sizes.len()];
    shape[1] = sizes[1].clone();
    let shifted = cx.offset(var, eps);
    let mut factor = cx.unary(Unary::Rsqrt, shifted);
    if let Some(weight) = cx.maybe_tensor("weight")? {
        let weight = cx.cast(weight, dtype);
        factor = cx.mul(factor, weight);
    }
    let mut offset = cx.mul(mean, factor);
    offset = match cx.maybe_tensor("bias")? {
        Some(bias) => {
            let bias = cx.cast(bias, dtype);
            cx.sub(bias, offset)
        }
        None => cx.unary(Unary::Neg, offset),
    };
    Ok(Outcome::Fresh(affine(cx, x, Some(factor), Some(offset), Some(&shape))))
}

/// Torch computes the batch's statistics; the running ones, where there are any, get new values.
fn batch_statistics(cx: &mut Decompose, running: Option<(CoreId, CoreId)>) -> Done {
    let number = |cx: &Decompose, name| cx.float(name).map(|x| ExternArg::Const(x.map_or(Const::None, Const::Float)));
    let mut args = vec![ExternArg::Value(cx.tensor("input")?)];
    for name in ["weight", "bias"] {
        args.push(cx.maybe_tensor(name)?.map_or(ExternArg::Const(Const::None), ExternArg::Value));
    }
    args.extend(running.iter().flat_map(|(mean, var)| [ExternArg::Value(*mean), ExternArg::Value(*var)]));
    args.push(ExternArg::Const(Const::Bool(true)));
    args.extend([number(cx, "momentum")?, number(cx, "eps")?]);
    let (op, overload, results) = match running {
        Some(_) => ("aten::_native_batch_norm_legit_functional", "default", 5),
        None => ("aten::_native_batch_norm_legit", "no_stats", 3),
    };
    let call = ExternCall::pure((op, overload), None, args, results);
    let call = cx.core.push(CoreOp::Extern(call.into()), cx.result()?.dtype, vec![]);
    let normalised = Outcome::Fresh(call_result(cx.core, call, 0, &cx.result()?));
    if running.is_none() {
        return Ok(normalised);
    }
    // Results 1 and 2 are the batch's statistics.
    let mut writes = Vec::new();
    for (i, name) in [(3, "running_mean"), (4, "running_var")] {
        let new = call_result(cx.core, call, i, &cx.meta_of(name)?);
        writes.push((cx.node_of(name)?, cx.stopped(new)));
    }
    Ok(Outcome::With(writes, Box::new(normalised)))
}

/// Each channel of each item normalised over all positions. The running statistics, where there are any, come nearer to the mean of
/// the items' ones.
pub(super) fn instance_norm(cx: &mut Decompose) -> Done {
    if !cx.flag("use_input_stats")? {
        return by_running(cx);
    }
    let dtype = compute_type(cx.result()?.dtype);
    let x = cx.operand("input", dtype)?;
    let sizes = cx.sizes(x);
    let over: Vec<usize> = (2..sizes.len()).collect();
    let eps = eps(cx)?;
    let y = normalised(cx, x, &over, eps);
    let mut shape = vec![Dim::Const(1); sizes.len()];
    shape[1] = sizes[1].clone();
    let (weight, bias) = (cx.maybe_tensor("weight")?, cx.maybe_tensor("bias")?);
    let normalised = Outcome::Fresh(affine(cx, y, weight, bias, Some(&shape)));
    if cx.maybe_tensor("running_mean")?.is_none() {
        return Ok(normalised);
    }
    let Some(momentum) = cx.float("momentum")? else { return refuse("running statistics without a momentum") };
    let (mean, var) = moments(cx, x, &over, 1);
    let mut writes = Vec::new();
    for (now, name) in [(mean, "running_mean"), (var, "running_var")] {
        let now = averaged(cx, now, &[0]);
        let now = cx.reshape(now, vec![sizes[1].clone()]);
        let before = cx.operand(name, dtype)?;
        let (now, before) = (cx.scale(now, momentum), cx.scale(before, 1.0 - momentum));
        let new = cx.add(before, now);
        writes.push((cx.node_of(name)?, cx.stopped(new)));
    }
    Ok(Outcome::With(writes, Box::new(normalised)))
}

/// Channels in groups, each group normalised over its channels and all positions.
pub(super) fn group_norm(cx: &mut Decompose) -> Done {
    let dtype = compute_type(cx.result()?.dtype);
    let x = cx.operand("input", dtype)?;
    let sizes = cx.sizes(x);
    let Some(groups) = cx.int("num_groups")? else { return refuse("group_norm without a number of groups") };
    let eps = eps(cx)?;
    let mut split = vec![sizes[0].clone(), Dim::Const(groups), sizes[1].floor_div(&Dim::Const(groups))];
    split.extend(sizes[2..].iter().cloned());
    let over: Vec<usize> = (2..split.len()).collect();
    let grouped = cx.reshape(x, split);
    let y = normalised(cx, grouped, &over, eps);
    let y = cx.reshape(y, sizes.clone());
    let mut shape = vec![Dim::Const(1); sizes.len()];
    shape[1] = sizes[1].clone();
    let (weight, bias) = (cx.maybe_tensor("weight")?, cx.maybe_tensor("bias")?);
    Ok(Outcome::Fresh(affine(cx, y, weight, bias, Some(&shape))))
}
