//! Arithmetic operators (`Objects/longobject.c`, `Objects/floatobject.c`).

use super::number::{Number, sign};
use super::{Fold, NotFolded, raise, sequence, type_error, type_name};
use flambeau_bytecode::{Binary, Unary};
use flambeau_ir::code::Const;
use num_bigint::BigInt;

/// Results past this many bits are left to the client.
const MAX_BITS: u64 = 1 << 16;

/// `a <op> b`; the in-place operators of immutable values are the same.
pub fn binary(kind: Binary, a: &Const, b: &Const) -> Fold {
    if let (Const::Bool(x), Const::Bool(y)) = (a, b) {
        match kind {
            Binary::And => return Ok(Const::Bool(x & y)),
            Binary::Or => return Ok(Const::Bool(x | y)),
            Binary::Xor => return Ok(Const::Bool(x ^ y)),
            _ => {}
        }
    }
    if matches!(a, Const::Complex(..)) || matches!(b, Const::Complex(..)) {
        return Err(NotFolded::Unhandled);
    }
    match (Number::of(a), Number::of(b)) {
        (Some(x), Some(y)) if x.is_float() || y.is_float() => match float_operands(&x, &y) {
            Some((x, y)) => float_binary(kind, x, y, a, b),
            None => Err(NotFolded::Unhandled),
        },
        (Some(x), Some(y)) => int_binary(kind, &x, &y, a, b),
        _ => sequence::binary(kind, a, b),
    }
}

/// The error of operands an operator does not take.
pub fn unsupported<T>(kind: Binary, a: &Const, b: &Const) -> Fold<T> {
    let symbol = if kind == Binary::Power { "** or pow()" } else { kind.symbol() };
    type_error(format!("unsupported operand type(s) for {symbol}: '{}' and '{}'", type_name(a), type_name(b)))
}

fn float_operands(a: &Number, b: &Number) -> Option<(f64, f64)> {
    Some((a.to_f64()?, b.to_f64()?))
}

fn float_binary(kind: Binary, x: f64, y: f64, a: &Const, b: &Const) -> Fold {
    let zero = |message: &str| raise("ZeroDivisionError", message);
    Ok(Const::Float(match kind {
        Binary::Add => x + y,
        Binary::Subtract => x - y,
        Binary::Multiply => x * y,
        Binary::TrueDivide if y == 0.0 => return zero("float division by zero"),
        Binary::TrueDivide => x / y,
        Binary::FloorDivide if y == 0.0 => return zero("float floor division by zero"),
        Binary::FloorDivide => float_divmod(x, y).0,
        // The message differs between versions of CPython.
        Binary::Remainder if y == 0.0 => return Err(NotFolded::Unhandled),
        Binary::Remainder => float_divmod(x, y).1,
        Binary::Power => return float_power(x, y),
        _ => return unsupported(kind, a, b),
    }))
}

/// `divmod` of floats, `y` not zero.
fn float_divmod(x: f64, y: f64) -> (f64, f64) {
    let mut remainder = x % y;
    let mut quotient = (x - remainder) / y;
    if remainder == 0.0 {
        remainder = 0.0_f64.copysign(y);
    } else if (y < 0.0) != (remainder < 0.0) {
        remainder += y;
        quotient -= 1.0;
    }
    let floor = if quotient == 0.0 {
        0.0_f64.copysign(x / y)
    } else {
        let floor = quotient.floor();
        if quotient - floor > 0.5 { floor + 1.0 } else { floor }
    };
    (floor, remainder)
}

fn float_power(x: f64, y: f64) -> Fold {
    if x == 0.0 && y < 0.0 && y.is_finite() {
        return raise("ZeroDivisionError", "0.0 cannot be raised to a negative power");
    }
    if x < 0.0 && x.is_finite() && y.is_finite() && y.fract() != 0.0 {
        // A complex result.
        return Err(NotFolded::Unhandled);
    }
    let power = x.powf(y);
    if power.is_infinite() && x.is_finite() && y.is_finite() {
        // An error with the number and text of the C library's.
        return Err(NotFolded::Unhandled);
    }
    Ok(Const::Float(power))
}

fn int_binary(kind: Binary, x: &Number, y: &Number, a: &Const, b: &Const) -> Fold {
    if let (Number::Int(x), Number::Int(y)) = (x, y)
        && let Some(result) = small(kind, *x, *y)
    {
        return Ok(Const::Int(result));
    }
    let (Some(big_x), Some(big_y)) = (x.to_big(), y.to_big()) else { return Err(NotFolded::Unhandled) };
    let result = match kind {
        Binary::Add => big_x + big_y,
        Binary::Subtract => big_x - big_y,
        Binary::Multiply if big_x.bits() + big_y.bits() <= MAX_BITS => big_x * big_y,
        Binary::And => big_x & big_y,
        Binary::Or => big_x | big_y,
        Binary::Xor => big_x ^ big_y,
        Binary::FloorDivide if y.is_zero() => {
            return raise("ZeroDivisionError", "integer division or modulo by zero");
        }
        Binary::FloorDivide => big_divmod(&big_x, &big_y).0,
        Binary::Remainder if y.is_zero() => return raise("ZeroDivisionError", "integer modulo by zero"),
        Binary::Remainder => big_divmod(&big_x, &big_y).1,
        Binary::TrueDivide => return int_true_divide(x, y),
        Binary::Power => return power(a, b),
        Binary::Lshift | Binary::Rshift => return shift(kind == Binary::Lshift, &big_x, &big_y),
        Binary::MatrixMultiply => return unsupported(kind, a, b),
        Binary::Multiply => return Err(NotFolded::Unhandled),
    };
    Ok(Number::from_big(result).into_const())
}

/// Results that fit; division by zero is left to the general path.
fn small(kind: Binary, x: i64, y: i64) -> Option<i64> {
    match kind {
        Binary::Add => x.checked_add(y),
        Binary::Subtract => x.checked_sub(y),
        Binary::Multiply => x.checked_mul(y),
        Binary::And => Some(x & y),
        Binary::Or => Some(x | y),
        Binary::Xor => Some(x ^ y),
        Binary::FloorDivide => {
            let quotient = x.checked_div(y)?;
            Some(if x % y != 0 && (x < 0) != (y < 0) && !flambeau_ir::mutated!("fold_floor_division") {
                quotient - 1
            } else {
                quotient
            })
        }
        Binary::Remainder => {
            let remainder = x.checked_rem(y)?;
            Some(if remainder != 0 && (remainder < 0) != (y < 0) { remainder + y } else { remainder })
        }
        Binary::Rshift if y >= 0 => Some(x >> y.min(63)),
        _ => None,
    }
}

fn big_divmod(a: &BigInt, b: &BigInt) -> (BigInt, BigInt) {
    let (mut quotient, mut remainder) = (a / b, a % b);
    if sign(&remainder) != 0 && (sign(&remainder) < 0) != (sign(b) < 0) {
        quotient -= 1;
        remainder += b;
    }
    (quotient, remainder)
}

fn int_true_divide(x: &Number, y: &Number) -> Fold {
    if y.is_zero() {
        return raise("ZeroDivisionError", "division by zero");
    }
    let exact = |n: &Number| match n {
        Number::Int(i) if i.unsigned_abs() <= 1 << 53 => Some(*i as f64),
        _ => None,
    };
    match (exact(x), exact(y)) {
        (Some(x), Some(y)) => Ok(Const::Float(x / y)),
        _ => Err(NotFolded::Unhandled),
    }
}

fn shift(left: bool, x: &BigInt, by: &BigInt) -> Fold {
    if sign(by) < 0 {
        return raise("ValueError", "negative shift count");
    }
    match u64::try_from(by) {
        Ok(by) if left && (by + x.bits() <= MAX_BITS || sign(x) == 0) => {
            Ok(Number::from_big(if sign(x) == 0 { x.clone() } else { x << by }).into_const())
        }
        Ok(by) if !left && by <= MAX_BITS => Ok(Number::from_big(x >> by).into_const()),
        _ => Err(NotFolded::Unhandled),
    }
}

/// `a ** b`
pub fn power(a: &Const, b: &Const) -> Fold {
    let (Some(x), Some(y)) = (Number::of(a), Number::of(b)) else { return unsupported(Binary::Power, a, b) };
    if x.is_float() || y.is_float() {
        let (x, y) = float_operands(&x, &y).ok_or(NotFolded::Unhandled)?;
        return float_power(x, y);
    }
    let Number::Int(exponent) = y else { return Err(NotFolded::Unhandled) };
    if exponent < 0 {
        return float_power(x.to_f64().ok_or(NotFolded::Unhandled)?, exponent as f64);
    }
    let base = x.to_big().ok_or(NotFolded::Unhandled)?;
    match u32::try_from(exponent) {
        Ok(exponent) if base.bits().max(1) * u64::from(exponent) <= MAX_BITS => {
            Ok(Number::from_big(base.pow(exponent)).into_const())
        }
        _ => Err(NotFolded::Unhandled),
    }
}

/// `divmod(a, b)` as a tuple.
pub fn divmod(a: &Const, b: &Const) -> Fold {
    match (Number::of(a), Number::of(b)) {
        (Some(x), Some(y)) if x.is_float() || y.is_float() => {
            let (x, y) = float_operands(&x, &y).ok_or(NotFolded::Unhandled)?;
            if y == 0.0 {
                return raise("ZeroDivisionError", "float divmod()");
            }
            let (quotient, remainder) = float_divmod(x, y);
            Ok(Const::Tuple(vec![Const::Float(quotient), Const::Float(remainder)]))
        }
        (Some(_), Some(y)) if y.is_zero() => raise("ZeroDivisionError", "integer division or modulo by zero"),
        (Some(_), Some(_)) => {
            Ok(Const::Tuple(vec![binary(Binary::FloorDivide, a, b)?, binary(Binary::Remainder, a, b)?]))
        }
        _ => Err(NotFolded::Unhandled),
    }
}

/// `-a`, `+a`, `~a`, `not a`.
pub fn unary(kind: Unary, a: &Const) -> Fold {
    match kind {
        Unary::Positive => positive(a),
        Unary::Negative => negative(a),
        Unary::Invert => invert(a),
        Unary::Not => super::truth(a).map(|t| Const::Bool(!t)),
    }
}

fn bad_unary(symbol: &str, a: &Const) -> Fold {
    match a {
        Const::Complex(..) => Err(NotFolded::Unhandled),
        _ => type_error(format!("bad operand type for unary {symbol}: '{}'", type_name(a))),
    }
}

/// `-a`
pub fn negative(a: &Const) -> Fold {
    match Number::of(a) {
        Some(Number::Float(x)) => Ok(Const::Float(-x)),
        Some(n) => Ok(Number::from_big(-n.to_big().ok_or(NotFolded::Unhandled)?).into_const()),
        None => bad_unary("-", a),
    }
}

/// `+a`
pub fn positive(a: &Const) -> Fold {
    Number::of(a).map_or_else(|| bad_unary("+", a), |n| Ok(n.into_const()))
}

/// `~a`
pub fn invert(a: &Const) -> Fold {
    match Number::of(a) {
        Some(Number::Int(i)) => Ok(Const::Int(!i)),
        Some(Number::Big(b)) => Ok(Number::from_big(-b - 1).into_const()),
        _ => bad_unary("~", a),
    }
}
