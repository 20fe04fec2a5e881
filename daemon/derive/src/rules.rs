//! The derivative of each primitive op. Where a function has none (ties, kinks), the subgradient is the one that torch
//! chooses.

use crate::nodes::is_one;
use crate::sweep::Sweep;
use flambeau_core::graph::{CoreId, CoreNode, CoreOp};
use flambeau_ir::dim::Dim;
use flambeau_ir::kernel::{Binary, DType, ReduceOp, Unary};
use flambeau_ir::reason::Reason;
use flambeau_ops::build::Build;
use flambeau_ops::decompose::refuse;

/// Gives `gradient`, that of the node `id`, on to its operands.
pub fn of(cx: &mut Sweep<'_>, node: &CoreNode, id: CoreId, gradient: CoreId) -> Result<(), Reason> {
    match &node.op {
        CoreOp::Unary(op, a) => unary(cx, *op, *a, id, gradient),
        CoreOp::Binary(op, a, b) => binary(cx, *op, (*a, *b), id, gradient),
        CoreOp::Select(cond, a, b) => {
            let zero = cx.real(0.0, node.dtype);
            let (yes, no) = (cx.select(*cond, gradient, zero), cx.select(*cond, zero, gradient));
            cx.give(*a, yes);
            cx.give(*b, no);
            Ok(())
        }
        CoreOp::Cast(a) => {
            let given = cx.cast(gradient, cx.dtype(*a));
            cx.give(*a, given);
            Ok(())
        }
        CoreOp::Copy(a) => {
            cx.give(*a, gradient);
            Ok(())
        }
        CoreOp::Sloped(_, of, slope) => {
            // A truth value says whether the derivative is 1: what is not taken may be infinite.
            let given = if is_one(cx.core(), *slope) {
                gradient
            } else if cx.dtype(*slope) == DType::Bool {
                let zero = cx.real(0.0, node.dtype);
                cx.select(*slope, gradient, zero)
            } else {
                cx.mul(gradient, *slope)
            };
            cx.give(*of, given);
            Ok(())
        }
        CoreOp::Reduce(op, a, over) => reduce(cx, *op, (*a, over), id, gradient),
        CoreOp::Join(parts, dim) => {
            let mut start = Dim::Const(0);
            for part in parts {
                let length = cx.sizes(*part)[*dim as usize].clone();
                let given = cx.slice(gradient, *dim as usize, start.clone(), 1, length.clone());
                cx.give(*part, given);
                start = start.add(&length);
            }
            Ok(())
        }
        op if op.is_view() || matches!(op, CoreOp::Pad(..)) => view(cx, node, gradient),
        // Nothing flows through what is no float.
        CoreOp::Const(_) | CoreOp::Scalar(_) | CoreOp::Iota(_) | CoreOp::Stop(_) => Ok(()),
        _ => refuse("no derivative of a write to an input"),
    }
}

fn unary(cx: &mut Sweep<'_>, op: Unary, a: CoreId, result: CoreId, gradient: CoreId) -> Result<(), Reason> {
    let given = match op {
        Unary::Neg => cx.unary(Unary::Neg, gradient),
        Unary::Abs => {
            let sign = cx.unary(Unary::Sign, a);
            cx.mul(gradient, sign)
        }
        Unary::Sign | Unary::Floor | Unary::Ceil | Unary::Round | Unary::Trunc => {
            let (sizes, dtype) = (cx.sizes(a), cx.dtype(a));
            let zero = cx.real(0.0, dtype);
            cx.expand(zero, &sizes)
        }
        Unary::Not | Unary::BitNot | Unary::IsNan | Unary::IsInf => return Ok(()),
        _ => match by_result(cx, op, result, gradient) {
            Some(given) => given,
            None => by_operand(cx, op, a, gradient),
        },
    };
    cx.give(a, given);
    Ok(())
}

fn squared(cx: &mut Sweep<'_>, id: CoreId) -> CoreId {
    cx.mul(id, id)
}

/// `1 + sign * id`
fn one_and(cx: &mut Sweep<'_>, id: CoreId, sign: f64) -> CoreId {
    let scaled = cx.scale(id, sign);
    cx.offset(scaled, 1.0)
}

/// Of functions whose derivative is one of their result.
fn by_result(cx: &mut Sweep<'_>, op: Unary, result: CoreId, gradient: CoreId) -> Option<CoreId> {
    let factor = match op {
        Unary::Exp => result,
        Unary::Exp2 => cx.scale(result, std::f64::consts::LN_2),
        Unary::Expm1 => cx.offset(result, 1.0),
        Unary::Sqrt => {
            let twice = cx.scale(result, 2.0);
            return Some(cx.div(gradient, twice));
        }
        Unary::Rsqrt => {
            let square = squared(cx, result);
            let cube = cx.mul(square, result);
            let half = cx.scale(gradient, -0.5);
            return Some(cx.mul(half, cube));
        }
        Unary::Reciprocal => {
            let square = squared(cx, result);
            cx.unary(Unary::Neg, square)
        }
        Unary::Tan | Unary::Tanh => {
            let square = squared(cx, result);
            one_and(cx, square, if op == Unary::Tan { 1.0 } else { -1.0 })
        }
        Unary::Sigmoid => {
            let other = one_and(cx, result, -1.0);
            cx.mul(result, other)
        }
        _ => return None,
    };
    Some(cx.mul(gradient, factor))
}

/// Of the others.
fn by_operand(cx: &mut Sweep<'_>, op: Unary, a: CoreId, gradient: CoreId) -> CoreId {
    let divisor = match op {
        Unary::Log => Some(a),
        Unary::Log2 => Some(cx.scale(a, std::f64::consts::LN_2)),
        Unary::Log10 => Some(cx.scale(a, std::f64::consts::LN_10)),
        Unary::Log1p => Some(cx.offset(a, 1.0)),
        Unary::Atan | Unary::Atanh => {
            let square = squared(cx, a);
            Some(one_and(cx, square, if op == Unary::Atan { 1.0 } else { -1.0 }))
        }
        _ => None,
    };
    if let Some(divisor) = divisor {
        return cx.div(gradient, divisor);
    }
    let factor = match op {
        Unary::Sin => cx.unary(Unary::Cos, a),
        Unary::Sinh => cx.unary(Unary::Cosh, a),
        Unary::Cosh => cx.unary(Unary::Sinh, a),
        Unary::Cos => {
            let sine = cx.unary(Unary::Sin, a);
            cx.unary(Unary::Neg, sine)
        }
        Unary::Asinh | Unary::Acosh => {
            let square = squared(cx, a);
            let under = cx.offset(square, if op == Unary::Asinh { 1.0 } else { -1.0 });
            cx.unary(Unary::Rsqrt, under)
        }
        Unary::Erf | Unary::Erfc => {
            let square = squared(cx, a);
            let negative = cx.unary(Unary::Neg, square);
            let bell = cx.unary(Unary::Exp, negative);
            cx.scale(bell, std::f64::consts::FRAC_2_SQRT_PI * if op == Unary::Erf { 1.0 } else { -1.0 })
        }
        // The arcs.
        _ => {
            let square = squared(cx, a);
            let rest = one_and(cx, square, -1.0);
            let factor = cx.unary(Unary::Rsqrt, rest);
            if op == Unary::Acos { cx.unary(Unary::Neg, factor) } else { factor }
        }
    };
    cx.mul(gradient, factor)
}

fn binary(
    cx: &mut Sweep<'_>,
    op: Binary,
    (a, b): (CoreId, CoreId),
    result: CoreId,
    gradient: CoreId,
) -> Result<(), Reason> {
    match op {
        Binary::Add => {
            cx.give(a, gradient);
            cx.give(b, gradient);
        }
        Binary::Sub => {
            cx.give(a, gradient);
            if cx.wants(b) {
                let negative = cx.unary(Unary::Neg, gradient);
                cx.give(b, negative);
            }
        }
        Binary::Mul => {
            for (of, other) in [(a, b), (b, a)] {
                if cx.wants(of) {
                    let given = cx.mul(gradient, other);
                    cx.give(of, given);
                }
            }
        }
        Binary::Div => {
            if cx.wants(a) {
                let given = cx.div(gradient, b);
                cx.give(a, given);
            }
            if cx.wants(b) {
                // Torch's `-gradient * ((a / b) / b)`, which reads no result either: writes to that are allowed.
                let negative = cx.unary(Unary::Neg, a);
                let ratio = cx.div(negative, b);
                let ratio = cx.div(ratio, b);
                let given = cx.mul(gradient, ratio);
                cx.give(b, given);
            }
        }
        Binary::Pow => power(cx, (a, b), result, gradient),
        Binary::Atan2 => {
            let (x, y) = (cx.mul(a, a), cx.mul(b, b));
            let total = cx.add(x, y);
            let share = cx.div(gradient, total);
            if cx.wants(a) {
                let given = cx.mul(share, b);
                cx.give(a, given);
            }
            if cx.wants(b) {
                let negative = cx.unary(Unary::Neg, share);
                let given = cx.mul(negative, a);
                cx.give(b, given);
            }
        }
        Binary::Max | Binary::Min => {
            // Of equal numbers each gets half.
            let (equal, half) = (cx.binary(Binary::Eq, a, b), cx.scale(gradient, 0.5));
            let share = cx.select(equal, half, gradient);
            let zero = cx.real(0.0, cx.dtype(a));
            for (of, other) in [(a, b), (b, a)] {
                if cx.wants(of) {
                    let less = if op == Binary::Max { (of, other) } else { (other, of) };
                    let loses = cx.binary(Binary::Lt, less.0, less.1);
                    let given = cx.select(loses, zero, share);
                    cx.give(of, given);
                }
            }
        }
        Binary::FloorDiv | Binary::TruncDiv | Binary::Rem | Binary::Fmod => {
            return refuse(format!("no derivative of {op:?}"));
        }
        // Nothing flows through what is no float.
        _ => {}
    }
    Ok(())
}

/// Where the exponent is 0 the power is constant; where the base is 0 and the exponent is none, its logarithm does not count.
fn power(cx: &mut Sweep<'_>, (a, b): (CoreId, CoreId), result: CoreId, gradient: CoreId) {
    let dtype = cx.dtype(a);
    let zero = cx.real(0.0, dtype);
    if cx.wants(a) {
        let less = cx.offset(b, -1.0);
        let power = cx.binary(Binary::Pow, a, less);
        let factor = cx.mul(b, power);
        let given = cx.mul(gradient, factor);
        let constant = cx.binary(Binary::Eq, b, zero);
        let given = cx.select(constant, zero, given);
        cx.give(a, given);
    }
    if cx.wants(b) {
        let log = cx.unary(Unary::Log, a);
        let product = cx.mul(result, log);
        let given = cx.mul(gradient, product);
        let (base, exponent) = (cx.binary(Binary::Eq, a, zero), cx.binary(Binary::Ge, b, zero));
        let constant = cx.binary(Binary::And, base, exponent);
        let given = cx.select(constant, zero, given);
        cx.give(b, given);
    }
}

fn reduce(
    cx: &mut Sweep<'_>,
    op: ReduceOp,
    (a, over): (CoreId, &[u32]),
    result: CoreId,
    gradient: CoreId,
) -> Result<(), Reason> {
    let sizes = cx.sizes(a);
    match op {
        ReduceOp::Sum => {
            let given = cx.expand(gradient, &sizes);
            cx.give(a, given);
        }
        ReduceOp::Max | ReduceOp::Min => {
            // All that are equal to the extreme share the gradient; as torch multiplies, none is NaN where that is.
            let dtype = cx.dtype(a);
            let is_extreme = cx.binary(Binary::Eq, a, result);
            let counted = cx.cast(is_extreme, dtype);
            let over: Vec<usize> = over.iter().map(|d| *d as usize).collect();
            let count = cx.reduce(ReduceOp::Sum, counted, &over);
            let own = cx.mul(gradient, counted);
            let given = cx.div(own, count);
            cx.give(a, given);
        }
        ReduceOp::Prod => return refuse("no derivative of a product of elements"),
        ReduceOp::Any | ReduceOp::All => {}
    }
    Ok(())
}

/// Of ops that show elements elsewhere: gradients go back to where they were.
fn view(cx: &mut Sweep<'_>, node: &CoreNode, gradient: CoreId) -> Result<(), Reason> {
    match &node.op {
        CoreOp::Expand(a) => {
            let sizes = cx.sizes(*a);
            let grown = |d: &usize| sizes[*d] != node.sizes[*d];
            let over: Vec<usize> = (0..sizes.len()).filter(grown).collect();
            let given = cx.reduce(ReduceOp::Sum, gradient, &over);
            cx.give(*a, given);
        }
        CoreOp::Permute(a, order) => {
            let mut back = vec![0; order.len()];
            order.iter().enumerate().for_each(|(d, o)| back[*o as usize] = d);
            let given = permuted(cx, gradient, &back);
            cx.give(*a, given);
        }
        CoreOp::Reshape(a) => {
            let given = cx.reshape(gradient, cx.sizes(*a));
            cx.give(*a, given);
        }
        CoreOp::Slice(a, dim, start, step) => {
            let given = unsliced(cx, gradient, (&cx.sizes(*a), *dim as usize), start, *step)?;
            cx.give(*a, given);
        }
        CoreOp::Pad(a, _, low) => {
            let mut given = gradient;
            for (dim, (size, low)) in cx.sizes(*a).into_iter().zip(low).enumerate() {
                given = cropped(cx, given, dim, low, &size)?;
            }
            cx.give(*a, given);
        }
        _ => return refuse("no derivative of a view by sums of indices"),
    }
    Ok(())
}

/// A gradient in another order; the tensor before one that is in another order already.
fn permuted(cx: &mut Sweep<'_>, gradient: CoreId, order: &[usize]) -> CoreId {
    let (inner, order) = match &cx.core().node(gradient).op {
        CoreOp::Permute(inner, first) => (*inner, order.iter().map(|d| first[*d] as usize).collect()),
        _ => (gradient, order.to_vec()),
    };
    if order.iter().copied().eq(0..order.len()) { inner } else { cx.permute(inner, &order) }
}

/// The elements from `low` on, as many as `size`; zero where there are none.
fn cropped(cx: &mut Sweep<'_>, of: CoreId, dim: usize, low: &Dim, size: &Dim) -> Result<CoreId, Reason> {
    let have = cx.sizes(of)[dim].clone();
    if low.is(0) && have == *size {
        return Ok(of);
    }
    let (Some(low), Some(size), Some(have)) = (low.as_const(), size.as_const(), have.as_const()) else {
        return refuse("no derivative of padding whose sizes vary");
    };
    let (begin, end) = (low.clamp(0, have), (low + size).clamp(0, have));
    let shown = cx.slice(of, dim, Dim::Const(begin), 1, Dim::Const(end - begin));
    Ok(padded(cx, shown, dim, &Dim::Const(begin - low), &Dim::Const(size)))
}

/// Zeros round the elements along a dimension, which then has this size.
fn padded(cx: &mut Sweep<'_>, of: CoreId, dim: usize, low: &Dim, size: &Dim) -> CoreId {
    let mut sizes = cx.sizes(of);
    if low.is(0) && sizes[dim] == *size {
        return of;
    }
    let mut lows = vec![Dim::Const(0); sizes.len()];
    lows[dim] = low.clone();
    sizes[dim] = size.clone();
    let dtype: DType = cx.dtype(of);
    cx.core_mut().push(CoreOp::Pad(of, 0, lows), dtype, sizes)
}

/// Each element at the place that a slice took it from, zeros elsewhere.
fn unsliced(
    cx: &mut Sweep<'_>,
    gradient: CoreId,
    (whole, dim): (&[Dim], usize),
    start: &Dim,
    step: i64,
) -> Result<CoreId, Reason> {
    let shown = cx.sizes(gradient)[dim].clone();
    if shown.is(0) {
        let zero = cx.real(0.0, cx.dtype(gradient));
        return Ok(cx.expand(zero, whole));
    }
    match step {
        1 => Ok(padded(cx, gradient, dim, start, &whole[dim])),
        -1 => {
            let turned = cx.slice(gradient, dim, shown.sub(&Dim::Const(1)), -1, shown.clone());
            let low = start.sub(&shown).add(&Dim::Const(1));
            Ok(padded(cx, turned, dim, &low, &whole[dim]))
        }
        step if step > 1 => {
            // Zeros between the elements: each becomes the first of a row.
            let mut sizes = cx.sizes(gradient);
            sizes.insert(dim + 1, Dim::Const(1));
            let rows = cx.reshape(gradient, sizes.clone());
            let rows = padded(cx, rows, dim + 1, &Dim::Const(0), &Dim::Const(step));
            sizes.remove(dim + 1);
            sizes[dim] = shown.mul(&Dim::Const(step));
            let spread = cx.reshape(rows, sizes);
            let reach = shown.sub(&Dim::Const(1)).mul(&Dim::Const(step)).add(&Dim::Const(1));
            let spread = cx.slice(spread, dim, Dim::Const(0), 1, reach);
            Ok(padded(cx, spread, dim, start, &whole[dim]))
        }
        _ => refuse("no derivative of a slice that steps back"),
    }
}
