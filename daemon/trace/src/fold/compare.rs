//! Comparison, identity, membership and dict keys.

use super::number::{Number, float_to_int, order};
use super::{Fold, NotFolded, type_error, type_name};
use flambeau_bytecode::Compare;
use flambeau_ir::code::Const;
use std::cmp::Ordering;

/// `a <op> b`
pub fn compare(kind: Compare, a: &Const, b: &Const) -> Fold {
    match kind {
        Compare::Eq => return equal(a, b).map(Const::Bool),
        Compare::Ne => return equal(a, b).map(|e| Const::Bool(!e)),
        _ => {}
    }
    let order = match (a, b) {
        (Const::Str(a), Const::Str(b)) => Some(a.chars().cmp(b.chars())),
        (Const::Bytes(a), Const::Bytes(b)) => Some(a.cmp(b)),
        (Const::Tuple(a), Const::Tuple(b)) => return tuples(kind, a, b),
        (Const::FrozenSet(_), Const::FrozenSet(_)) | (Const::Slice(_), Const::Slice(_)) => {
            return Err(NotFolded::Unhandled);
        }
        _ => match (Number::of(a), Number::of(b)) {
            (Some(x), Some(y)) => order(&x, &y),
            _ => {
                return type_error(format!(
                    "'{}' not supported between instances of '{}' and '{}'",
                    kind.symbol(),
                    type_name(a),
                    type_name(b)
                ));
            }
        },
    };
    Ok(Const::Bool(order.is_some_and(|o| holds(kind, o))))
}

fn holds(kind: Compare, order: Ordering) -> bool {
    match kind {
        Compare::Lt => order.is_lt(),
        Compare::Le => order.is_le() && !(order.is_eq() && flambeau_ir::mutated!("fold_le_as_lt")),
        Compare::Eq => order.is_eq(),
        Compare::Ne => order.is_ne(),
        Compare::Gt => order.is_gt(),
        Compare::Ge => order.is_ge(),
    }
}

fn tuples(kind: Compare, a: &[Const], b: &[Const]) -> Fold {
    for (x, y) in a.iter().zip(b) {
        if !same_or_equal(x, y)? {
            return compare(kind, x, y);
        }
    }
    Ok(Const::Bool(holds(kind, a.len().cmp(&b.len()))))
}

/// `a is b or a == b`, as containers compare. Undecided where it hangs on a NaN's identity.
fn same_or_equal(a: &Const, b: &Const) -> Fold<bool> {
    match (a, b) {
        (Const::Float(x), Const::Float(y)) if x.is_nan() && y.is_nan() => Err(NotFolded::Unhandled),
        (Const::Complex(..), Const::Complex(..)) => Err(NotFolded::Unhandled),
        _ => equal(a, b),
    }
}

/// `a == b`
pub fn equal(a: &Const, b: &Const) -> Fold<bool> {
    let all = |a: &[Const], b: &[Const]| -> Fold<bool> {
        for (x, y) in a.iter().zip(b) {
            if !same_or_equal(x, y)? {
                return Ok(false);
            }
        }
        Ok(a.len() == b.len())
    };
    Ok(match (a, b) {
        (Const::Tuple(a), Const::Tuple(b)) => return all(a, b),
        (Const::Slice(a), Const::Slice(b)) => return all(a.as_slice(), b.as_slice()),
        (Const::FrozenSet(a), Const::FrozenSet(b)) => {
            if a.len() != b.len() {
                return Ok(false);
            }
            for item in a {
                if !member(b, item)? {
                    return Ok(false);
                }
            }
            true
        }
        (Const::Complex(a, b), Const::Complex(c, d)) => a == c && b == d,
        (Const::Code(a), Const::Code(b)) if a.hash != b.hash => return Err(NotFolded::Unhandled),
        (Const::Complex(re, im), other) | (other, Const::Complex(re, im)) => match Number::of(other) {
            Some(n) => *im == 0.0 && order(&Number::Float(*re), &n) == Some(Ordering::Equal),
            None => false,
        },
        _ => match (Number::of(a), Number::of(b)) {
            (Some(x), Some(y)) => order(&x, &y) == Some(Ordering::Equal),
            _ => a == b,
        },
    })
}

/// `a is b`, where it does not hang on how the interpreter shares equal objects.
pub fn identical(a: &Const, b: &Const) -> Fold<bool> {
    match (a, b) {
        _ if type_name(a) != type_name(b) => Ok(false),
        (Const::None | Const::Ellipsis | Const::NotImplemented, _) => Ok(true),
        (Const::Bool(_) | Const::Dtype(_) | Const::Layout(_) | Const::MemoryFormat(_), _) => Ok(a == b),
        // CPython keeps one object for each of these.
        (Const::Int(x), Const::Int(y)) if (-5..=256).contains(x) || (-5..=256).contains(y) => Ok(x == y),
        (Const::Str(x), Const::Str(y)) if x.is_empty() && y.is_empty() => Ok(true),
        (Const::Tuple(x), Const::Tuple(y)) if x.is_empty() && y.is_empty() => Ok(true),
        _ if a != b => Ok(false),
        _ => Err(NotFolded::Unhandled),
    }
}

/// `item in container`
pub fn contains(container: &Const, item: &Const) -> Fold<bool> {
    match (container, item) {
        (Const::Str(text), Const::Str(part)) => Ok(text.contains(&**part)),
        (Const::Str(_), _) => {
            type_error(format!("'in <string>' requires string as left operand, not {}", type_name(item)))
        }
        (Const::Bytes(text), Const::Bytes(part)) => {
            Ok(part.is_empty() || text.windows(part.len()).any(|w| w == part.as_slice()))
        }
        (Const::Bytes(text), Const::Int(byte)) if (0..256).contains(byte) => Ok(text.contains(&(*byte as u8))),
        (Const::Bytes(_), _) => Err(NotFolded::Unhandled),
        (Const::Tuple(items), _) => member(items, item),
        (Const::FrozenSet(items), _) => {
            key(item)?;
            member(items, item)
        }
        _ => type_error(format!("argument of type '{}' is not iterable", type_name(container))),
    }
}

fn member(items: &[Const], item: &Const) -> Fold<bool> {
    for candidate in items {
        if same_or_equal(candidate, item)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The one form that all constants equal as dict keys share: `1`, `1.0` and `True` are one key.
pub fn key(value: &Const) -> Fold {
    Ok(match value {
        Const::Bool(b) => Const::Int(i64::from(*b)),
        Const::Float(x) if x.is_nan() => return Err(NotFolded::Unhandled),
        Const::Float(x) if x.is_finite() && x.fract() == 0.0 => Number::from_big(float_to_int(*x)).into_const(),
        Const::Complex(re, im) if *im == 0.0 => return key(&Const::Float(*re)),
        Const::Complex(re, im) if re.is_nan() || im.is_nan() => return Err(NotFolded::Unhandled),
        Const::Complex(re, im) => Const::Complex(re + 0.0, im + 0.0),
        Const::Tuple(items) => Const::Tuple(items.iter().map(key).collect::<Fold<_>>()?),
        Const::FrozenSet(items) => {
            let mut keys = items.iter().map(|i| Ok((format!("{:?}", key(i)?), key(i)?))).collect::<Fold<Vec<_>>>()?;
            keys.sort_by(|a, b| a.0.cmp(&b.0));
            Const::FrozenSet(keys.into_iter().map(|(_, k)| k).collect())
        }
        Const::Slice(_) => return type_error("unhashable type: 'slice'"),
        other => other.clone(),
    })
}
