//! Truth, and conversions between numbers and text.

use super::number::{Number, float_to_int};
use super::{Fold, NotFolded, raise, repr, type_error, type_name};
use flambeau_ir::code::Const;
use num_bigint::BigInt;

/// `bool(value)`
pub fn truth(value: &Const) -> Fold<bool> {
    Ok(match value {
        Const::None => false,
        Const::Bool(b) => *b,
        Const::Int(i) => *i != 0,
        Const::Float(x) => *x != 0.0,
        Const::Complex(re, im) => *re != 0.0 || *im != 0.0,
        Const::Str(s) => !s.is_empty(),
        Const::Bytes(b) => !b.is_empty(),
        Const::Tuple(v) | Const::FrozenSet(v) => !v.is_empty(),
        // Deprecated, with a warning.
        Const::NotImplemented => return Err(NotFolded::Unhandled),
        _ => true,
    })
}

/// `bool(value)` as a constant.
pub fn to_bool(value: &Const) -> Fold {
    truth(value).map(Const::Bool)
}

/// Text of more digits raises, past a limit that the program can set.
const MAX_DIGITS: usize = 640;

/// `int(value)`
pub fn to_int(value: &Const) -> Fold {
    match value {
        Const::Float(x) if x.is_nan() => raise("ValueError", "cannot convert float NaN to integer"),
        Const::Float(x) if x.is_infinite() => raise("OverflowError", "cannot convert float infinity to integer"),
        Const::Float(x) => Ok(Number::from_big(float_to_int(x.trunc())).into_const()),
        Const::Str(text) => {
            let digits = text.trim_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']);
            let bare = digits.strip_prefix(['+', '-']).unwrap_or(digits);
            if !bare.is_empty() && bare.len() <= MAX_DIGITS && bare.bytes().all(|b| b.is_ascii_digit()) {
                let big: BigInt = digits.parse().map_err(|_| NotFolded::Unhandled)?;
                return Ok(Number::from_big(big).into_const());
            }
            if text.is_ascii() && !text.contains('_') && bare.len() <= MAX_DIGITS {
                let shown = repr(value)?;
                return raise("ValueError", format!("invalid literal for int() with base 10: {shown}"));
            }
            Err(NotFolded::Unhandled)
        }
        Const::Bytes(_) => Err(NotFolded::Unhandled),
        _ => match Number::of(value) {
            Some(n) => Ok(n.into_const()),
            None => type_error(format!(
                "int() argument must be a string, a bytes-like object or a real number, not '{}'",
                type_name(value)
            )),
        },
    }
}

/// `float(value)`
pub fn to_float(value: &Const) -> Fold {
    match value {
        Const::Str(text) => {
            let trimmed = text.trim_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']);
            let plain = trimmed.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b));
            let word = trimmed.trim_start_matches(['+', '-']).to_ascii_lowercase();
            match trimmed.parse::<f64>() {
                Ok(x) if plain => Ok(Const::Float(x)),
                Ok(x) if matches!(word.as_str(), "inf" | "infinity") => Ok(Const::Float(x)),
                Ok(_) if word == "nan" && trimmed.len() == 3 => Ok(Const::Float(f64::NAN)),
                _ if plain && !trimmed.is_empty() => {
                    raise("ValueError", format!("could not convert string to float: {}", repr(value)?))
                }
                _ => Err(NotFolded::Unhandled),
            }
        }
        Const::Bytes(_) => Err(NotFolded::Unhandled),
        _ => match Number::of(value) {
            Some(n) => n.to_f64().map(Const::Float).ok_or(NotFolded::Unhandled),
            None => {
                type_error(format!("float() argument must be a string or a real number, not '{}'", type_name(value)))
            }
        },
    }
}

/// `abs(value)`
pub fn absolute(value: &Const) -> Fold {
    match Number::of(value) {
        Some(Number::Float(x)) => Ok(Const::Float(x.abs())),
        Some(n) => {
            let big = n.to_big().ok_or(NotFolded::Unhandled)?;
            Ok(Number::from_big(if big < BigInt::from(0) { -big } else { big }).into_const())
        }
        None if matches!(value, Const::Complex(..)) => Err(NotFolded::Unhandled),
        None => type_error(format!("bad operand type for abs(): '{}'", type_name(value))),
    }
}

/// `round(value, digits)`; `digits` is `None` where not given.
pub fn round(value: &Const, digits: Option<i64>) -> Fold {
    match (Number::of(value), digits) {
        (Some(Number::Float(x)), None) if x.is_finite() => {
            Ok(Number::from_big(float_to_int(x.round_ties_even())).into_const())
        }
        (Some(Number::Float(_)), None) => to_int(value),
        // Correctly rounded through decimal text, as CPython does.
        (Some(Number::Float(x)), Some(digits @ 0..=100)) if x.is_finite() => {
            format!("{x:.*}", digits as usize).parse().map(Const::Float).map_err(|_| NotFolded::Unhandled)
        }
        (Some(n), None) if !n.is_float() => Ok(n.into_const()),
        (Some(n), Some(0..)) if !n.is_float() => Ok(n.into_const()),
        _ => Err(NotFolded::Unhandled),
    }
}
