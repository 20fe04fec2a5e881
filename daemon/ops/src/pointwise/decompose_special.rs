//! Decompositions of functions that are told apart by their special cases. Formulas are those of torch's documentation.

use crate::build::Build;
use crate::decompose::{Decompose, Outcome, compute_type, refuse};
use flambeau_core::graph::CoreId;
use flambeau_ir::kernel::{Binary, DType, Unary};
use flambeau_ir::reason::Reason;

type Done = Result<Outcome, Reason>;

fn fresh(id: CoreId) -> Done {
    Ok(Outcome::Fresh(id))
}

/// An operand in the type that is computed in.
fn operand(cx: &mut Decompose, name: &str) -> Result<CoreId, Reason> {
    let of = cx.result()?.dtype;
    let dtype = if of == DType::Bool { cx.meta_of(name)?.dtype } else { of };
    if !compute_type(dtype).is_float() {
        return refuse(format!("{} of integers", cx.op.name));
    }
    cx.operand(name, compute_type(dtype))
}

/// Two operands that torch does not round to a half before.
fn pair(cx: &mut Decompose, second: &str) -> Result<[CoreId; 2], Reason> {
    let dtype = cx.result()?.dtype;
    if !matches!(dtype, DType::F32 | DType::F64) {
        return refuse(format!("{} of halves or integers", cx.op.name));
    }
    Ok([cx.operand("input", dtype)?, cx.operand(second, dtype)?])
}

fn infinity(cx: &mut Decompose, like: CoreId, sign: f64) -> CoreId {
    cx.real(sign * f64::INFINITY, cx.dtype(like))
}

pub(super) fn is_infinity(cx: &mut Decompose, sign: f64) -> Done {
    let x = operand(cx, "input")?;
    let limit = infinity(cx, x, sign);
    fresh(cx.binary(Binary::Eq, x, limit))
}

/// `x - trunc(x)`
pub(super) fn frac(cx: &mut Decompose) -> Done {
    let x = operand(cx, "input")?;
    let whole = cx.unary(Unary::Trunc, x);
    fresh(cx.sub(x, whole))
}

/// `sin(pi x) / (pi x)`, 1 at zero
pub(super) fn sinc(cx: &mut Decompose) -> Done {
    let x = operand(cx, "input")?;
    let (angle, zero, one) = (cx.scale(x, std::f64::consts::PI), cx.real(0.0, cx.dtype(x)), cx.real(1.0, cx.dtype(x)));
    let (none, wave) = (cx.binary(Binary::Eq, x, zero), cx.unary(Unary::Sin, angle));
    let value = cx.div(wave, angle);
    fresh(cx.select(none, one, value))
}

/// `log(x / (1 - x))`, with `x` no nearer to 0 and 1 than `eps`
pub(super) fn logit(cx: &mut Decompose) -> Done {
    let mut x = operand(cx, "input")?;
    let dtype = cx.dtype(x);
    if let Some(eps) = cx.float("eps")? {
        let (low, high) = (cx.real(eps, dtype), cx.real(1.0 - eps, dtype));
        let (below, above) = (cx.binary(Binary::Lt, x, low), cx.binary(Binary::Gt, x, high));
        let limited = cx.select(above, high, x);
        x = cx.select(below, low, limited);
    }
    let one = cx.real(1.0, dtype);
    let rest = cx.sub(one, x);
    let odds = cx.div(x, rest);
    fresh(cx.unary(Unary::Log, odds))
}

/// Other numbers for NaN and the infinities; by default 0 and the largest there are.
pub(super) fn nan_to_num(cx: &mut Decompose) -> Done {
    let of = cx.result()?.dtype;
    let most = match of {
        DType::F32 => f64::from(f32::MAX),
        DType::F64 => f64::MAX,
        _ => return refuse("nan_to_num of halves or integers"),
    };
    let x = cx.tensor("input")?;
    let mut value = x;
    for (name, default, sign) in [("nan", 0.0, 0.0), ("posinf", most, 1.0), ("neginf", -most, -1.0)] {
        let other = cx.real(cx.float(name)?.unwrap_or(default), of);
        let is_it = if sign == 0.0 {
            cx.unary(Unary::IsNan, x)
        } else {
            let limit = infinity(cx, x, sign);
            cx.binary(Binary::Eq, x, limit)
        };
        value = cx.select(is_it, other, value);
    }
    fresh(value)
}

/// `x * log(y)`, 0 where `x` is, unless `y` is NaN
pub(super) fn xlogy(cx: &mut Decompose) -> Done {
    let [x, y] = pair(cx, "other")?;
    let (zero, log) = (cx.real(0.0, cx.dtype(x)), cx.unary(Unary::Log, y));
    let (none, product) = (cx.binary(Binary::Eq, x, zero), cx.mul(x, log));
    let (value, nan) = (cx.select(none, zero, product), cx.unary(Unary::IsNan, y));
    fresh(cx.select(nan, y, value))
}

/// The root of the sum of squares, which neither overflows nor vanishes: single precision in double.
pub(super) fn hypot(cx: &mut Decompose) -> Done {
    let [x, y] = pair(cx, "other")?;
    if cx.dtype(x) != DType::F32 {
        return refuse("hypot of double precision");
    }
    let infinite = [x, y].map(|of| cx.unary(Unary::IsInf, of));
    let squares = [x, y].map(|of| {
        let wide = cx.cast(of, DType::F64);
        cx.mul(wide, wide)
    });
    let total = cx.add(squares[0], squares[1]);
    let root = cx.unary(Unary::Sqrt, total);
    let (length, limit) = (cx.cast(root, DType::F32), infinity(cx, x, 1.0));
    let infinite = cx.binary(Binary::Or, infinite[0], infinite[1]);
    fresh(cx.select(infinite, limit, length))
}

/// `max(x, y) + log(1 + exp(-|x - y|))`
pub(super) fn logaddexp(cx: &mut Decompose) -> Done {
    let [x, y] = pair(cx, "other")?;
    let (top, off) = (cx.binary(Binary::Max, x, y), cx.sub(x, y));
    let off = cx.unary(Unary::Abs, off);
    let below = cx.unary(Unary::Neg, off);
    let grown = cx.unary(Unary::Exp, below);
    let soft = cx.unary(Unary::Log1p, grown);
    let value = cx.add(top, soft);
    let (same, infinite) = (cx.binary(Binary::Eq, x, y), cx.unary(Unary::IsInf, x));
    let alike = cx.binary(Binary::And, same, infinite);
    fresh(cx.select(alike, x, value))
}

/// The larger or smaller of two, of which NaN is neither.
pub(super) fn beside_nan(cx: &mut Decompose, op: Binary) -> Done {
    let [x, y] = pair(cx, "other")?;
    let (other, nan) = (cx.binary(op, x, y), [x, y].map(|of| cx.unary(Unary::IsNan, of)));
    let value = cx.select(nan[1], x, other);
    fresh(cx.select(nan[0], y, value))
}

/// 0 below zero and 1 above it, `values` at it.
pub(super) fn heaviside(cx: &mut Decompose) -> Done {
    let [x, y] = pair(cx, "values")?;
    if cx.tensor("input")? != x || cx.tensor("values")? != y {
        return refuse("heaviside of two types");
    }
    let (zero, one) = (cx.real(0.0, cx.dtype(x)), cx.real(1.0, cx.dtype(x)));
    let (at, above) = (cx.binary(Binary::Eq, x, zero), cx.binary(Binary::Gt, x, zero));
    let step = cx.select(above, one, zero);
    fresh(cx.select(at, y, step))
}

/// `-x log(x)`, 0 at zero, minus infinity below
pub(super) fn entropy(cx: &mut Decompose) -> Done {
    let x = operand(cx, "input")?;
    let (zero, log) = (cx.real(0.0, cx.dtype(x)), cx.unary(Unary::Log, x));
    let product = cx.mul(x, log);
    let value = cx.unary(Unary::Neg, product);
    let (none, below) = (cx.binary(Binary::Eq, x, zero), cx.binary(Binary::Lt, x, zero));
    let (value, limit) = (cx.select(none, zero, value), infinity(cx, x, -1.0));
    fresh(cx.select(below, limit, value))
}

/// Zero within `lambd` of zero; beyond, the number itself, or what it is beyond.
pub(super) fn shrunk(cx: &mut Decompose, soft: bool) -> Done {
    let x = operand(cx, "input")?;
    let (dtype, limit) = (cx.dtype(x), cx.float("lambd")?.unwrap_or(0.5));
    let (zero, low, high) = (cx.real(0.0, dtype), cx.real(-limit, dtype), cx.real(limit, dtype));
    let (above, below) = (cx.binary(Binary::Gt, x, high), cx.binary(Binary::Lt, x, low));
    let (over, under) = if soft { (cx.sub(x, high), cx.add(x, high)) } else { (x, x) };
    let value = cx.select(below, under, zero);
    let value = cx.select(above, over, value);
    let nan = cx.unary(Unary::IsNan, x);
    fresh(cx.select(nan, x, value))
}

/// How far each element is from the one before it, once.
pub(super) fn difference(cx: &mut Decompose) -> Done {
    let (x, meta) = (cx.tensor("input")?, cx.result()?);
    let given = |name: &str| cx.bound.arg(name).is_some();
    if cx.int("n")?.unwrap_or(1) != 1 || given("prepend") || given("append") || meta.dtype == DType::Bool {
        return refuse("differences of other kinds");
    }
    let sizes = cx.sizes(x);
    let dim = cx.axis(cx.int("dim")?.unwrap_or(-1), sizes.len())?;
    let Some(rest) = sizes[dim].as_const().filter(|size| *size > 1) else {
        return refuse("differences of one element");
    };
    let (later, earlier) =
        (cx.slice(x, dim, 1.into(), 1, (rest - 1).into()), cx.slice(x, dim, 0.into(), 1, (rest - 1).into()));
    fresh(cx.sub(later, earlier))
}
