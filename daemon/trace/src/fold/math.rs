//! The `math` module on constants. Functions whose last bit depends on the C library are left to the client.

use super::number::{Number, float_to_int};
use super::{Fold, NotFolded, raise};
use flambeau_ir::code::Const;
use num_bigint::BigInt;

/// `math.<name>(*args)`
pub fn math(name: &str, args: &[Const]) -> Fold {
    match (name, args) {
        ("floor" | "ceil" | "trunc", [x]) => rounded(name, x),
        ("prod", [Const::Tuple(items)]) => {
            items.iter().try_fold(Const::Int(1), |acc, x| super::binary(flambeau_bytecode::Binary::Multiply, &acc, x))
        }
        ("gcd", _) => integers(args).map(|v| Const::Int(v.into_iter().fold(0, gcd))),
        ("lcm", _) => {
            let lcm = |a: i64, b: i64| if a == 0 || b == 0 { Some(0) } else { (a / gcd(a, b)).checked_mul(b) };
            let values = integers(args)?;
            values.into_iter().try_fold(1_i64, lcm).map(|v| Const::Int(v.abs())).ok_or(NotFolded::Unhandled)
        }
        ("isqrt", [Const::Int(n)]) if *n >= 0 => Ok(Number::from_big(BigInt::from(*n).sqrt()).into_const()),
        ("copysign", [x, y]) => Ok(Const::Float(real(x)?.copysign(real(y)?))),
        (_, [x]) => one(name, real(x)?),
        _ => Err(NotFolded::Unhandled),
    }
}

fn real(value: &Const) -> Fold<f64> {
    Number::of(value).and_then(|n| n.to_f64()).ok_or(NotFolded::Unhandled)
}

fn rounded(name: &str, value: &Const) -> Fold {
    match Number::of(value) {
        Some(Number::Float(x)) if x.is_finite() => {
            let whole = match name {
                "floor" => x.floor(),
                "ceil" => x.ceil(),
                _ => x.trunc(),
            };
            Ok(Number::from_big(float_to_int(whole)).into_const())
        }
        Some(Number::Float(_)) => super::to_int(value),
        Some(int) => Ok(int.into_const()),
        None => Err(NotFolded::Unhandled),
    }
}

fn one(name: &str, x: f64) -> Fold {
    Ok(match name {
        "sqrt" if x < 0.0 => return raise("ValueError", "math domain error"),
        "sqrt" => Const::Float(x.sqrt()),
        "fabs" => Const::Float(x.abs()),
        "isnan" => Const::Bool(x.is_nan()),
        "isinf" => Const::Bool(x.is_infinite()),
        "isfinite" => Const::Bool(x.is_finite()),
        _ => return Err(NotFolded::Unhandled),
    })
}

fn integers(args: &[Const]) -> Fold<Vec<i64>> {
    args.iter().map(|a| super::index(a).filter(|i| *i != i64::MIN).ok_or(NotFolded::Unhandled)).collect()
}

fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.abs(), b.abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
