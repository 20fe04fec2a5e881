//! Decompositions of activation functions. Formulas are those of torch's documentation.

use crate::build::Build;
use crate::decompose::{Decompose, Outcome, compute_type, refuse};
use flambeau_core::graph::CoreId;
use flambeau_ir::code::Const;
use flambeau_ir::kernel::{Binary, DType, Unary};
use flambeau_ir::reason::Reason;

type Done = Result<Outcome, Reason>;

fn input(cx: &mut Decompose) -> Result<(CoreId, DType), Reason> {
    let dtype = compute_type(cx.result()?.dtype);
    Ok((cx.operand("input", dtype)?, dtype))
}

fn fresh(id: CoreId) -> Done {
    Ok(Outcome::Fresh(id))
}

pub(super) fn relu(cx: &mut Decompose) -> Done {
    let (x, dtype) = input(cx)?;
    let zero = cx.constant(&Const::Int(0), dtype, vec![])?;
    let value = cx.binary(Binary::Max, x, zero);
    fresh(cx.sloped(value, x, |cx| {
        let low = cx.binary(Binary::Le, value, zero);
        cx.unary(Unary::Not, low)
    }))
}

fn limited(cx: &mut Decompose, x: CoreId, low: f64, high: f64) -> CoreId {
    let dtype = cx.dtype(x);
    let (low, high) = (cx.real(low, dtype), cx.real(high, dtype));
    let x = cx.binary(Binary::Max, x, low);
    cx.binary(Binary::Min, x, high)
}

pub(super) fn clamped(cx: &mut Decompose, low: f64, high: f64) -> Done {
    let (x, _) = input(cx)?;
    let value = limited(cx, x, low, high);
    fresh(cx.sloped(value, x, |cx| within(cx, x, low, high)))
}

/// `!(x <= low or x >= high)`
fn within(cx: &mut Decompose, x: CoreId, low: f64, high: f64) -> CoreId {
    let dtype = cx.dtype(x);
    let (low, high) = (cx.real(low, dtype), cx.real(high, dtype));
    let (low, high) = (cx.binary(Binary::Le, x, low), cx.binary(Binary::Ge, x, high));
    let outside = cx.binary(Binary::Or, low, high);
    cx.unary(Unary::Not, outside)
}

pub(super) fn hardtanh(cx: &mut Decompose) -> Done {
    match (cx.float("min_val")?, cx.float("max_val")?) {
        (Some(low), Some(high)) => clamped(cx, low, high),
        _ => refuse("hardtanh without limits"),
    }
}

/// `x / 2 * (1 + erf(x / sqrt 2))`, or with `tanh(sqrt(2 / pi) * (x + 0.044715 x^3))` in place of `erf`
pub(super) fn gelu(cx: &mut Decompose) -> Done {
    let approximate = cx.number("approximate")?;
    let (x, _) = input(cx)?;
    let inner = match &approximate {
        Const::Str(s) if &**s == "none" => {
            let scaled = cx.scale(x, std::f64::consts::FRAC_1_SQRT_2);
            cx.unary(Unary::Erf, scaled)
        }
        Const::Str(s) if &**s == "tanh" => {
            let square = cx.mul(x, x);
            let cube = cx.mul(square, x);
            let small = cx.scale(cube, 0.044_715);
            let sum = cx.add(x, small);
            let scaled = cx.scale(sum, (2.0 / std::f64::consts::PI).sqrt());
            cx.unary(Unary::Tanh, scaled)
        }
        _ => return refuse("gelu with another approximation"),
    };
    let (factor, half) = (cx.offset(inner, 1.0), cx.scale(x, 0.5));
    fresh(cx.mul(half, factor))
}

/// `x * sigmoid(x)`
pub(super) fn silu(cx: &mut Decompose) -> Done {
    let (x, _) = input(cx)?;
    let gate = cx.unary(Unary::Sigmoid, x);
    fresh(cx.mul(x, gate))
}

/// `x > 0 ? scale * x : scale * alpha * (exp(input_scale * x) - 1)`
pub(super) fn exponential(cx: &mut Decompose, alpha: f64, scale: f64, input_scale: f64) -> Done {
    let (x, dtype) = input(cx)?;
    let zero = cx.real(0.0, dtype);
    let positive = cx.binary(Binary::Gt, x, zero);
    let scaled = cx.scale(x, input_scale);
    let grown = cx.unary(Unary::Expm1, scaled);
    let (low, high) = (cx.scale(grown, alpha * scale), cx.scale(x, scale));
    let value = cx.select(positive, high, low);
    fresh(cx.sloped(value, x, |cx| {
        let exponential = cx.offset(grown, 1.0);
        let (low, high) = (cx.scale(exponential, alpha * scale * input_scale), cx.real(scale, dtype));
        cx.select(positive, high, low)
    }))
}

pub(super) fn elu(cx: &mut Decompose) -> Done {
    let alpha = cx.float("alpha")?.unwrap_or(1.0);
    let scale = cx.float("scale").ok().flatten().unwrap_or(1.0);
    let input_scale = cx.float("input_scale").ok().flatten().unwrap_or(1.0);
    exponential(cx, alpha, scale, input_scale)
}

pub(super) fn celu(cx: &mut Decompose) -> Done {
    let alpha = cx.float("alpha")?.unwrap_or(1.0);
    exponential(cx, alpha, 1.0, 1.0 / alpha)
}

pub(super) fn leaky_relu(cx: &mut Decompose) -> Done {
    let Some(slope) = cx.float("negative_slope")? else { return refuse("leaky_relu without a slope") };
    let (x, dtype) = input(cx)?;
    let zero = cx.real(0.0, dtype);
    let positive = cx.binary(Binary::Gt, x, zero);
    let low = cx.scale(x, slope);
    let value = cx.select(positive, x, low);
    fresh(cx.sloped(value, x, |cx| {
        let (one, slope) = (cx.real(1.0, dtype), cx.real(slope, dtype));
        cx.select(positive, one, slope)
    }))
}

/// `beta x > threshold ? x : log(1 + exp(beta x)) / beta`
fn softened(cx: &mut Decompose, x: CoreId, beta: f64, threshold: f64) -> CoreId {
    let dtype = cx.dtype(x);
    let scaled = cx.scale(x, beta);
    let limit = cx.real(threshold, dtype);
    let large = cx.binary(Binary::Gt, scaled, limit);
    let grown = cx.unary(Unary::Exp, scaled);
    let soft = cx.unary(Unary::Log1p, grown);
    let beta = cx.real(beta, dtype);
    let soft = cx.div(soft, beta);
    let value = cx.select(large, x, soft);
    cx.sloped(value, x, |cx| {
        let (one, above) = (cx.real(1.0, dtype), cx.offset(grown, 1.0));
        let share = cx.div(grown, above);
        cx.select(large, one, share)
    })
}

pub(super) fn softplus(cx: &mut Decompose) -> Done {
    let (Some(beta), Some(threshold)) = (cx.float("beta")?, cx.float("threshold")?) else {
        return refuse("softplus without parameters");
    };
    let (x, _) = input(cx)?;
    fresh(softened(cx, x, beta, threshold))
}

/// `x * min(max(x + 3, 0), 6) / 6`
pub(super) fn hardswish(cx: &mut Decompose) -> Done {
    let (x, dtype) = input(cx)?;
    let shifted = cx.offset(x, 3.0);
    let gate = limited(cx, shifted, 0.0, 6.0);
    let product = cx.mul(x, gate);
    let six = cx.real(6.0, dtype);
    let value = cx.div(product, six);
    fresh(cx.sloped(value, x, |cx| {
        let (low, high) = (cx.real(-3.0, dtype), cx.real(3.0, dtype));
        let (zero, one, third) = (cx.real(0.0, dtype), cx.real(1.0, dtype), cx.div(x, high));
        let middle = cx.offset(third, 0.5);
        let (below, above) = (cx.binary(Binary::Le, x, low), cx.binary(Binary::Ge, x, high));
        let slope = cx.select(above, one, middle);
        cx.select(below, zero, slope)
    }))
}

pub(super) fn hardsigmoid(cx: &mut Decompose) -> Done {
    let (x, dtype) = input(cx)?;
    let shifted = cx.offset(x, 3.0);
    let gate = limited(cx, shifted, 0.0, 6.0);
    let six = cx.real(6.0, dtype);
    let value = cx.div(gate, six);
    fresh(cx.sloped(value, x, |cx| {
        let (inside, zero) = (within(cx, x, -3.0, 3.0), cx.real(0.0, dtype));
        let slope = cx.real(1.0 / 6.0, dtype);
        cx.select(inside, slope, zero)
    }))
}

/// `x * tanh(softplus(x))`
pub(super) fn mish(cx: &mut Decompose) -> Done {
    let (x, _) = input(cx)?;
    let soft = softened(cx, x, 1.0, 20.0);
    let gate = cx.unary(Unary::Tanh, soft);
    fresh(cx.mul(x, gate))
}

pub(super) fn log_sigmoid(cx: &mut Decompose) -> Done {
    let (x, _) = input(cx)?;
    fresh(log_sigmoid_of(cx, x))
}

/// `min(x, 0) - log(1 + exp(-|x|))`
pub(crate) fn log_sigmoid_of(cx: &mut Decompose, x: CoreId) -> CoreId {
    let zero = cx.real(0.0, cx.dtype(x));
    let low = cx.binary(Binary::Min, x, zero);
    let size = cx.unary(Unary::Abs, x);
    let negative = cx.unary(Unary::Neg, size);
    let decay = cx.unary(Unary::Exp, negative);
    let soft = cx.unary(Unary::Log1p, decay);
    let value = cx.sub(low, soft);
    cx.sloped(value, x, |cx| {
        let negative = cx.unary(Unary::Neg, x);
        cx.unary(Unary::Sigmoid, negative)
    })
}

/// `x <= threshold ? value : x`
pub(super) fn threshold(cx: &mut Decompose) -> Done {
    let (x, dtype) = input(cx)?;
    let (limit, value) = (cx.operand("threshold", dtype)?, cx.operand("value", dtype)?);
    let low = cx.binary(Binary::Le, x, limit);
    fresh(cx.select(low, value, x))
}

/// The first half of a dimension, gated by the second.
pub(super) fn glu(cx: &mut Decompose) -> Done {
    let (x, _) = input(cx)?;
    let rank = cx.sizes(x).len();
    let dim = cx.axis(cx.int("dim")?.unwrap_or(-1), rank)?;
    let half = cx.result()?.sizes[dim].clone();
    let a = cx.slice(x, dim, 0.into(), 1, half.clone());
    let b = cx.slice(x, dim, half.clone(), 1, half);
    let gate = cx.unary(Unary::Sigmoid, b);
    fresh(cx.mul(a, gate))
}

/// `x > 0 ? x : weight * x`, one weight per channel
pub(super) fn prelu(cx: &mut Decompose) -> Done {
    let (x, dtype) = input(cx)?;
    let weight = cx.operand("weight", dtype)?;
    let sizes = cx.sizes(x);
    let mut shape = vec![flambeau_ir::dim::Dim::Const(1); sizes.len()];
    if let (Some(slot), [count]) = (shape.get_mut(1), &cx.sizes(weight)[..]) {
        *slot = count.clone();
    } else if cx.sizes(weight).iter().any(|s| !s.is(1)) {
        return refuse("prelu with weights of another shape");
    }
    let weight = cx.reshape(weight, shape);
    let zero = cx.real(0.0, dtype);
    let positive = cx.binary(Binary::Gt, x, zero);
    let low = cx.mul(weight, x);
    fresh(cx.select(positive, x, low))
}
