//! Numbers inside constants: ints of any size and floats.

use flambeau_ir::code::Const;
use num_bigint::{BigInt, Sign};
use std::cmp::Ordering;

/// A number. Ints that fit an `i64` are never `Big`.
#[derive(Clone, Debug, PartialEq)]
pub enum Number {
    Int(i64),
    Big(BigInt),
    Float(f64),
}

impl Number {
    /// The number in a constant; bools count as ints. Complex numbers are not read here.
    pub fn of(value: &Const) -> Option<Number> {
        Some(match value {
            Const::Bool(b) => Number::Int(i64::from(*b)),
            Const::Int(i) => Number::Int(*i),
            Const::BigInt(bytes) => Number::from_big(BigInt::from_signed_bytes_le(bytes)),
            Const::Float(x) => Number::Float(*x),
            _ => return None,
        })
    }

    /// Normalised to `Int` where it fits.
    pub fn from_big(big: BigInt) -> Number {
        i64::try_from(&big).map_or(Number::Big(big), Number::Int)
    }

    pub fn is_float(&self) -> bool {
        matches!(self, Number::Float(_))
    }

    /// As a big int; floats are not converted.
    pub fn to_big(&self) -> Option<BigInt> {
        match self {
            Number::Int(i) => Some(BigInt::from(*i)),
            Number::Big(b) => Some(b.clone()),
            Number::Float(_) => None,
        }
    }

    /// As Python's `float(x)`. `None`: too large, or not worth rounding here.
    pub fn to_f64(&self) -> Option<f64> {
        match self {
            Number::Int(i) => Some(*i as f64),
            Number::Float(x) => Some(*x),
            Number::Big(_) => None,
        }
    }

    /// The constant.
    pub fn into_const(self) -> Const {
        match self {
            Number::Int(i) => Const::Int(i),
            Number::Big(b) => Const::BigInt(b.to_signed_bytes_le()),
            Number::Float(x) => Const::Float(x),
        }
    }

    pub fn is_zero(&self) -> bool {
        match self {
            Number::Int(i) => *i == 0,
            Number::Big(_) => false,
            Number::Float(x) => *x == 0.0,
        }
    }
}

/// The exact integer value of a float without fraction.
pub fn float_to_int(x: f64) -> BigInt {
    let bits = x.to_bits();
    let exponent = ((bits >> 52) & 0x7ff) as i32 - 1075;
    let mantissa = (bits & ((1 << 52) - 1)) | (1 << 52);
    let magnitude = if exponent >= 0 {
        BigInt::from(mantissa) << exponent as usize
    } else if exponent > -64 {
        BigInt::from(mantissa >> -exponent)
    } else {
        BigInt::from(0)
    };
    if x < 0.0 { -magnitude } else { magnitude }
}

/// Exact comparison; `None` with a NaN.
pub fn order(a: &Number, b: &Number) -> Option<Ordering> {
    match (a, b) {
        (Number::Int(a), Number::Int(b)) => Some(a.cmp(b)),
        (Number::Float(a), Number::Float(b)) => a.partial_cmp(b),
        (Number::Float(a), b) => float_order(*a, &b.to_big()?),
        (a, Number::Float(b)) => float_order(*b, &a.to_big()?).map(Ordering::reverse),
        (a, b) => Some(a.to_big()?.cmp(&b.to_big()?)),
    }
}

fn float_order(x: f64, int: &BigInt) -> Option<Ordering> {
    if x.is_nan() {
        return None;
    }
    if x.is_infinite() {
        return Some(if x > 0.0 { Ordering::Greater } else { Ordering::Less });
    }
    let whole = float_to_int(x.trunc()).cmp(int);
    let fraction = x - x.trunc();
    Some(whole.then(fraction.partial_cmp(&0.0)?))
}

/// Sign of a big int: -1, 0, 1.
pub fn sign(big: &BigInt) -> i32 {
    match big.sign() {
        Sign::Minus => -1,
        Sign::NoSign => 0,
        Sign::Plus => 1,
    }
}

/// An int of any size as a constant.
pub fn int(value: i128) -> Const {
    Number::from_big(BigInt::from(value)).into_const()
}
