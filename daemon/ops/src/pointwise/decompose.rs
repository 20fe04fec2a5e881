//! Decompositions of pointwise arithmetic, comparisons and selections. Formulas are those of torch's documentation.

use crate::build::Build;
use crate::decompose::{Decompose, Outcome, compute_type, refuse};
use crate::promote::Promotion;
use crate::registry::Mark;
use crate::signature::{Argument, Seen, Value};
use flambeau_core::graph::{CoreId, CoreOp};
use flambeau_ir::code::Const;
use flambeau_ir::graph::Arg;
use flambeau_ir::kernel::{Binary, DType, Unary};
use flambeau_ir::reason::Reason;

type Done = Result<Outcome, Reason>;

/// The type both operands of a pointwise op are brought to.
fn promoted(cx: &Decompose, names: &[&str]) -> Result<DType, Reason> {
    let mut promotion = Promotion::default();
    for name in names {
        let number = match cx.bound.value(name) {
            Some(Value::Arg(Arg::Node(id))) => {
                let Some(meta) = cx.metas.get(id) else { return refuse("an argument is no tensor") };
                promotion.tensor(meta.dtype, meta.ndim());
                continue;
            }
            Some(Value::Arg(arg)) => match arg.seen() {
                Seen::Const(c) => c.clone(),
                Seen::Dim(_) => Const::Int(0),
                _ => return refuse(format!("{}: {name} is no number", cx.op.name)),
            },
            Some(Value::Default(c)) => c.clone(),
            _ => continue,
        };
        match number {
            Const::Bool(_) => promotion.number(DType::Bool),
            Const::Int(_) => promotion.number(DType::I64),
            Const::Float(_) => promotion.number(cx.default_dtype),
            _ => return refuse(format!("{}: {name} is no real number", cx.op.name)),
        }
    }
    promotion.result().map_or_else(|| refuse(format!("{} without operands", cx.op.name)), Ok)
}

/// The type in which an op computes whose result has the promoted type.
fn computed(cx: &Decompose) -> Result<DType, Reason> {
    Ok(compute_type(cx.result()?.dtype))
}

fn fresh(id: CoreId) -> Done {
    Ok(Outcome::Fresh(id))
}

pub(super) fn unary(cx: &mut Decompose, op: Unary) -> Done {
    let dtype = computed(cx)?;
    if dtype == DType::Bool {
        return refuse(format!("{} of bool", cx.op.name));
    }
    let a = shared(cx, "input", dtype)?;
    fresh(cx.unary(op, a))
}

/// An operand in the type that the op computes in. Torch brings all operands to the type of the result first, which tells
/// where that is a half: large integers become infinite.
fn shared(cx: &mut Decompose, name: &str, dtype: DType) -> Result<CoreId, Reason> {
    let common = cx.result()?.dtype;
    brought(cx, name, dtype, common)
}

/// An operand, rounded to `common` where that is a half, in the type that is computed in.
fn brought(cx: &mut Decompose, name: &str, dtype: DType, common: DType) -> Result<CoreId, Reason> {
    if compute_type(common) == common || dtype != compute_type(common) {
        return cx.operand(name, dtype);
    }
    let is_number = match cx.bound.arg(name) {
        Some(Arg::Node(id)) => {
            let Some(meta) = cx.metas.get(id) else { return refuse("an argument is no tensor") };
            if meta.dtype == common {
                return cx.operand(name, dtype);
            }
            meta.ndim() == 0
        }
        _ => true,
    };
    let value = cx.operand(name, dtype)?;
    if is_number && cx.op.has(Mark::KeepsNumbers) {
        return Ok(value);
    }
    let value = match cx.bound.arg(name) {
        // Rounded once: a wider number is not brought to the type in between.
        Some(Arg::Node(_)) => cx.tensor(name)?,
        _ => value,
    };
    let rounded = cx.cast(value, common);
    Ok(cx.cast(rounded, dtype))
}

pub(super) fn binary(cx: &mut Decompose, op: Binary) -> Done {
    let dtype = computed(cx)?;
    let op = match (dtype, op) {
        (DType::Bool, Binary::Max) => Binary::Or,
        (DType::Bool, Binary::Min) => Binary::And,
        _ => op,
    };
    let (a, b) = (shared(cx, "input", dtype)?, shared(cx, "other", dtype)?);
    fresh(cx.binary(op, a, b))
}

/// `input op alpha * other`
pub(super) fn scaled(cx: &mut Decompose, op: Binary, reflected: bool) -> Done {
    let dtype = computed(cx)?;
    let (mut a, mut b) = (shared(cx, "input", dtype)?, shared(cx, "other", dtype)?);
    if reflected {
        std::mem::swap(&mut a, &mut b);
    }
    let alpha = cx.bound.constant("alpha").cloned();
    if dtype == DType::Bool {
        return if op == Binary::Add && alpha == Some(Const::Int(1)) {
            fresh(cx.binary(Binary::Or, a, b))
        } else {
            refuse("bool arithmetic")
        };
    }
    if !matches!(alpha, Some(Const::Int(1))) && alpha != Some(Const::Float(1.0)) {
        let factor = cx.operand("alpha", dtype)?;
        b = cx.mul(b, factor);
    }
    fresh(cx.binary(op, a, b))
}

pub(super) fn mul(cx: &mut Decompose) -> Done {
    let dtype = computed(cx)?;
    let op = if dtype == DType::Bool { Binary::And } else { Binary::Mul };
    binary(cx, op)
}

/// Refuses integer divisors that may be zero.
fn check_divisor(cx: &Decompose, dtype: DType, divisor: CoreId) -> Result<(), Reason> {
    if dtype.is_float() {
        return Ok(());
    }
    match cx.core.node(divisor).op {
        CoreOp::Const(bits) if bits != 0 && dtype.is_integer() => Ok(()),
        _ => refuse(format!("{} by an integer that may be zero", cx.op.name)),
    }
}

pub(super) fn div(cx: &mut Decompose) -> Done {
    match cx.bound.constant("rounding_mode") {
        Some(Const::Str(mode)) if &**mode == "floor" => whole_division(cx, Binary::FloorDiv),
        Some(Const::Str(mode)) if &**mode == "trunc" => whole_division(cx, Binary::TruncDiv),
        Some(Const::None) if !matches!(cx.bound.arg("input"), Some(Arg::Node(_))) => number_by_tensor(cx),
        Some(Const::None) => binary(cx, Binary::Div),
        _ => refuse("div with a rounding mode that is not fixed"),
    }
}

/// `number / x` is `x.reciprocal() * number` in torch, each rounded to the result's type.
fn number_by_tensor(cx: &mut Decompose) -> Done {
    let (dtype, rounded) = (computed(cx)?, cx.result()?.dtype);
    let (number, x) = (cx.operand("input", dtype)?, shared(cx, "other", dtype)?);
    let inverse = cx.unary(Unary::Reciprocal, x);
    let inverse = cx.cast(inverse, rounded);
    let inverse = cx.cast(inverse, dtype);
    fresh(cx.mul(inverse, number))
}

pub(super) fn whole_division(cx: &mut Decompose, op: Binary) -> Done {
    let dtype = computed(cx)?;
    let (a, b) = (shared(cx, "input", dtype)?, shared(cx, "other", dtype)?);
    check_divisor(cx, dtype, b)?;
    fresh(cx.binary(op, a, b))
}

/// Fixed exponents that torch computes by other means are computed so here.
pub(super) fn pow(cx: &mut Decompose) -> Done {
    let dtype = computed(cx)?;
    let a = shared(cx, "input", dtype)?;
    let exponent = match cx.bound.constant("exponent") {
        Some(Const::Int(i)) => Some(*i as f64),
        Some(Const::Float(x)) => Some(*x),
        _ => None,
    };
    let half = cx.result()?.dtype == DType::F16;
    let whole = exponent.filter(|e| dtype.is_float() || *e >= 0.0);
    match whole {
        Some(1.0) => return fresh(cx.core_copy(a)),
        Some(2.0) => return fresh(cx.mul(a, a)),
        Some(3.0) => {
            let square = cx.mul(a, a);
            return fresh(cx.mul(square, a));
        }
        // Torch has no shortcut for halves: their powers of -inf and -0.0 are not those of the root.
        Some(0.5) if dtype.is_float() && !half => return fresh(cx.unary(Unary::Sqrt, a)),
        Some(-0.5) if !half => return fresh(cx.unary(Unary::Rsqrt, a)),
        Some(-1.0) => return fresh(cx.unary(Unary::Reciprocal, a)),
        Some(-2.0) => {
            let square = cx.mul(a, a);
            return fresh(cx.unary(Unary::Reciprocal, square));
        }
        _ => {}
    }
    if !dtype.is_float() {
        return refuse("a power of integers");
    }
    let b = shared(cx, "exponent", dtype)?;
    fresh(cx.binary(Binary::Pow, a, b))
}

pub(super) fn bits(cx: &mut Decompose, op: Binary) -> Done {
    if cx.result()?.dtype.is_float() {
        return refuse("bit operations on floats");
    }
    binary(cx, op)
}

pub(super) fn bitwise_not(cx: &mut Decompose) -> Done {
    let dtype = cx.result()?.dtype;
    let a = cx.operand("input", dtype)?;
    fresh(cx.unary(if dtype == DType::Bool { Unary::Not } else { Unary::BitNot }, a))
}

pub(super) fn compare(cx: &mut Decompose, op: Binary) -> Done {
    let common = promoted(cx, &["input", "other"])?;
    let dtype = compute_type(common);
    let (a, b) = (brought(cx, "input", dtype, common)?, brought(cx, "other", dtype, common)?);
    if dtype == DType::Bool && !matches!(op, Binary::Eq | Binary::Ne) {
        let (a, b) = (cx.cast(a, DType::I32), cx.cast(b, DType::I32));
        return fresh(cx.binary(op, a, b));
    }
    fresh(cx.binary(op, a, b))
}

pub(super) fn logical(cx: &mut Decompose, op: Binary) -> Done {
    let (a, b) = (cx.tensor("input")?, cx.tensor("other")?);
    let (a, b) = (cx.cast(a, DType::Bool), cx.cast(b, DType::Bool));
    fresh(cx.binary(op, a, b))
}

pub(super) fn logical_not(cx: &mut Decompose) -> Done {
    let a = cx.operand("input", DType::Bool)?;
    fresh(cx.unary(Unary::Not, a))
}

pub(super) fn test(cx: &mut Decompose, op: Unary) -> Done {
    let a = cx.tensor("input")?;
    let dtype = cx.dtype(a);
    if !dtype.is_float() {
        let sizes = cx.sizes(a);
        return fresh(cx.constant(&Const::Bool(false), DType::Bool, sizes)?);
    }
    let a = cx.cast(a, compute_type(dtype));
    fresh(cx.unary(op, a))
}

/// `|x| < inf`
pub(super) fn isfinite(cx: &mut Decompose) -> Done {
    let a = cx.tensor("input")?;
    let dtype = cx.dtype(a);
    if !dtype.is_float() {
        let sizes = cx.sizes(a);
        return fresh(cx.constant(&Const::Bool(true), DType::Bool, sizes)?);
    }
    let a = cx.cast(a, compute_type(dtype));
    let size = cx.unary(Unary::Abs, a);
    let inf = cx.real(f64::INFINITY, compute_type(dtype));
    fresh(cx.binary(Binary::Lt, size, inf))
}

/// Integers are round already.
pub(super) fn rounding(cx: &mut Decompose, op: Unary) -> Done {
    let dtype = computed(cx)?;
    let a = cx.operand("input", dtype)?;
    if dtype.is_float() { fresh(cx.unary(op, a)) } else { fresh(cx.core_copy(a)) }
}

pub(super) fn round(cx: &mut Decompose) -> Done {
    if cx.int("decimals")? != Some(0) {
        return refuse("round to decimals");
    }
    rounding(cx, Unary::Round)
}

pub(super) fn square(cx: &mut Decompose) -> Done {
    let dtype = computed(cx)?;
    let a = cx.operand("input", dtype)?;
    fresh(cx.mul(a, a))
}

pub(super) fn scaled_by(cx: &mut Decompose, factor: f64) -> Done {
    let dtype = computed(cx)?;
    let a = cx.operand("input", dtype)?;
    fresh(cx.scale(a, factor))
}

pub(super) fn choose(cx: &mut Decompose) -> Done {
    let dtype = computed(cx)?;
    let cond = cx.operand("condition", DType::Bool)?;
    let (a, b) = (cx.operand("input", dtype)?, cx.operand("other", dtype)?);
    fresh(cx.select(cond, a, b))
}

/// `min(max(x, low), high)`
pub(super) fn clamp(cx: &mut Decompose) -> Done {
    let dtype = computed(cx)?;
    let x = cx.operand("input", dtype)?;
    let (mut a, mut inside) = (x, None);
    for (name, op) in [("min", Binary::Max), ("max", Binary::Min)] {
        let holds = within(cx, op);
        if cx.bound.arg(name).is_some() {
            if cx.training.is_some() && matches!(cx.bound.arg(name), Some(Arg::Node(_))) {
                return refuse("a derivative by the limits of clamp");
            }
            let limit = cx.operand(name, dtype)?;
            a = cx.binary(op, a, limit);
            let holds = cx.binary(holds, x, limit);
            inside = Some(inside.map_or(holds, |other| cx.binary(Binary::And, other, holds)));
        }
    }
    fresh(inside.map_or(a, |inside| cx.sloped(a, x, |_| inside)))
}

/// The comparison of a number with a limit that holds where the derivative of `op` by the number is 1.
fn within(cx: &Decompose, op: Binary) -> Binary {
    let at_limits = cx.training.is_some_and(|chosen| chosen.clamp_at_limits);
    match (op, at_limits) {
        (Binary::Max, true) => Binary::Ge,
        (Binary::Max, false) => Binary::Gt,
        (_, true) => Binary::Le,
        (_, false) => Binary::Lt,
    }
}

pub(super) fn bound(cx: &mut Decompose, name: &str, op: Binary) -> Done {
    let dtype = computed(cx)?;
    if cx.training.is_some() && matches!(cx.bound.arg(name), Some(Arg::Node(_))) {
        return refuse("a derivative by the limits of clamp");
    }
    let (a, limit) = (cx.operand("input", dtype)?, cx.operand(name, dtype)?);
    let value = cx.binary(op, a, limit);
    let holds = within(cx, op);
    fresh(cx.sloped(value, a, |cx| cx.binary(holds, a, limit)))
}

/// `|w| < 0.5 ? a + w * (b - a) : b - (b - a) * (1 - w)`
pub(super) fn lerp(cx: &mut Decompose) -> Done {
    let dtype = computed(cx)?;
    let (a, b, w) = (cx.operand("input", dtype)?, cx.operand("end", dtype)?, cx.operand("weight", dtype)?);
    let span = cx.sub(b, a);
    let step = cx.mul(w, span);
    let near = cx.add(a, step);
    let one = cx.real(1.0, dtype);
    let rest = cx.sub(one, w);
    let back = cx.mul(span, rest);
    let far = cx.sub(b, back);
    let (size, half) = (cx.unary(Unary::Abs, w), cx.real(0.5, dtype));
    let small = cx.binary(Binary::Lt, size, half);
    fresh(cx.select(small, near, far))
}

/// `input + value * tensor1 * tensor2`
pub(super) fn addcmul(cx: &mut Decompose) -> Done {
    let dtype = computed(cx)?;
    let (a, b, c) = (cx.operand("input", dtype)?, cx.operand("tensor1", dtype)?, cx.operand("tensor2", dtype)?);
    let value = cx.operand("value", dtype)?;
    let scaled = cx.mul(value, b);
    let product = cx.mul(scaled, c);
    fresh(cx.add(a, product))
}

/// `input + value * tensor1 / tensor2`
pub(super) fn addcdiv(cx: &mut Decompose) -> Done {
    let dtype = computed(cx)?;
    if !dtype.is_float() {
        return refuse("addcdiv of integers");
    }
    let (a, b, c) = (cx.operand("input", dtype)?, cx.operand("tensor1", dtype)?, cx.operand("tensor2", dtype)?);
    let value = cx.operand("value", dtype)?;
    let scaled = cx.mul(value, b);
    let quotient = cx.div(scaled, c);
    fresh(cx.add(a, quotient))
}

pub(super) fn masked_fill(cx: &mut Decompose) -> Done {
    let dtype = cx.result()?.dtype;
    let (a, mask) = (cx.operand("input", dtype)?, cx.operand("mask", DType::Bool)?);
    let value = cx.operand("value", dtype)?;
    fresh(cx.select(mask, value, a))
}

/// The argument itself.
pub(super) fn same(cx: &mut Decompose) -> Done {
    Ok(Outcome::Same(cx.node_of("input")?))
}
