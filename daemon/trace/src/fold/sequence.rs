//! Concatenation, repetition and subscripts of text, bytes and tuples.

use super::arith::unsupported;
use super::{Fold, NotFolded, raise, type_error, type_name};
use flambeau_bytecode::Binary;
use flambeau_ir::code::Const;

/// Repetitions longer than this are left to the client.
const MAX_LENGTH: usize = 1 << 16;

/// Operators where one side is no number.
pub fn binary(kind: Binary, a: &Const, b: &Const) -> Fold {
    let sequence = |c: &Const| matches!(c, Const::Str(_) | Const::Bytes(_) | Const::Tuple(_));
    match kind {
        Binary::Add if sequence(a) => concat(a, b),
        Binary::Multiply => match (a, b) {
            (seq, count) if sequence(seq) => repeat(seq, count),
            (count, seq) if sequence(seq) => repeat(seq, count),
            _ => unsupported(kind, a, b),
        },
        Binary::Remainder if matches!(a, Const::Str(_) | Const::Bytes(_)) => Err(NotFolded::Unhandled),
        _ if matches!((a, b), (Const::FrozenSet(_), _)) => Err(NotFolded::Unhandled),
        _ => unsupported(kind, a, b),
    }
}

fn concat(a: &Const, b: &Const) -> Fold {
    match (a, b) {
        (Const::Str(x), Const::Str(y)) => Ok(Const::str(&format!("{x}{y}"))),
        (Const::Bytes(x), Const::Bytes(y)) => Ok(Const::Bytes([x.as_slice(), y].concat())),
        (Const::Tuple(x), Const::Tuple(y)) => Ok(Const::Tuple([x.as_slice(), y].concat())),
        (Const::Bytes(_), _) => type_error(format!("can't concat {} to bytes", type_name(b))),
        _ => {
            let name = type_name(a);
            type_error(format!("can only concatenate {name} (not \"{}\") to {name}", type_name(b)))
        }
    }
}

fn repeat(sequence: &Const, count: &Const) -> Fold {
    let Some(count) = index(count) else {
        if let Const::BigInt(_) = count {
            return Err(NotFolded::Unhandled);
        }
        return type_error(format!("can't multiply sequence by non-int of type '{}'", type_name(count)));
    };
    let count = count.max(0) as usize;
    let fits =
        |length: usize| if length.saturating_mul(count) <= MAX_LENGTH { Ok(()) } else { Err(NotFolded::Unhandled) };
    Ok(match sequence {
        Const::Str(s) => {
            fits(s.len())?;
            Const::str(&s.repeat(count))
        }
        Const::Bytes(b) => {
            fits(b.len())?;
            Const::Bytes(b.repeat(count))
        }
        Const::Tuple(t) => {
            fits(t.len())?;
            Const::Tuple(t.iter().cloned().cycle().take(t.len() * count).collect())
        }
        _ => return Err(NotFolded::Unhandled),
    })
}

/// `operator.index(value)` that fits an `i64`.
pub fn index(value: &Const) -> Option<i64> {
    match value {
        Const::Bool(b) => Some(i64::from(*b)),
        Const::Int(i) => Some(*i),
        _ => None,
    }
}

/// `slice.indices(length)`: start, stop, step.
pub fn slice_indices(slice: &[Const; 3], length: usize) -> Fold<(i64, i64, i64)> {
    let length = length as i64;
    let part = |c: &Const| match c {
        Const::None => Ok(None),
        Const::BigInt(_) => Err(NotFolded::Unhandled),
        c => match index(c) {
            Some(i) => Ok(Some(i)),
            None => type_error("slice indices must be integers or None or have an __index__ method"),
        },
    };
    let step = part(&slice[2])?.unwrap_or(1);
    if step == 0 {
        return raise("ValueError", "slice step cannot be zero");
    }
    let (low, high) = if step < 0 { (-1, length - 1) } else { (0, length) };
    let clamp = |i: i64| if i < 0 { i.saturating_add(length).max(low) } else { i.min(high) };
    let (first, last) = if step < 0 { (high, low) } else { (low, high) };
    let start = part(&slice[0])?.map_or(first, clamp);
    let stop = part(&slice[1])?.map_or(last, clamp);
    Ok((start, stop, step))
}

/// The positions a slice selects of a sequence with this length.
pub fn slice_positions(slice: &[Const; 3], length: usize) -> Fold<Vec<usize>> {
    let (mut at, stop, step) = slice_indices(slice, length)?;
    let mut positions = Vec::new();
    while if step > 0 { at < stop } else { at > stop } {
        positions.push(at as usize);
        at = at.saturating_add(step);
    }
    Ok(positions)
}

/// `container[key]`
pub fn subscript(container: &Const, key: &Const) -> Fold {
    match (container, key) {
        (Const::Tuple(items), Const::Slice(slice)) => {
            Ok(Const::Tuple(slice_positions(slice, items.len())?.into_iter().map(|i| items[i].clone()).collect()))
        }
        (Const::Str(text), Const::Slice(slice)) => {
            let chars: Vec<char> = text.chars().collect();
            let picked: String = slice_positions(slice, chars.len())?.into_iter().map(|i| chars[i]).collect();
            Ok(Const::str(&picked))
        }
        (Const::Bytes(data), Const::Slice(slice)) => {
            Ok(Const::Bytes(slice_positions(slice, data.len())?.into_iter().map(|i| data[i]).collect()))
        }
        (Const::Tuple(items), _) => {
            let at = position(key, items.len(), "tuple")?;
            Ok(items[at].clone())
        }
        (Const::Str(text), _) => {
            let chars: Vec<char> = text.chars().collect();
            let at = position(key, chars.len(), "string")?;
            Ok(Const::str(&chars[at].to_string()))
        }
        (Const::Bytes(data), _) => Ok(Const::Int(i64::from(data[position(key, data.len(), "bytes")?]))),
        _ => type_error(format!("'{}' object is not subscriptable", type_name(container))),
    }
}

fn position(key: &Const, length: usize, kind: &str) -> Fold<usize> {
    let Some(at) = index(key) else {
        return match (kind, key) {
            (_, Const::BigInt(_)) => Err(NotFolded::Unhandled),
            ("string", _) => type_error(format!("string indices must be integers, not '{}'", type_name(key))),
            ("bytes", _) => type_error(format!("byte indices must be integers or slices, not {}", type_name(key))),
            _ => type_error(format!("{kind} indices must be integers or slices, not {}", type_name(key))),
        };
    };
    let wrapped = if at < 0 { at + length as i64 } else { at };
    if (0..length as i64).contains(&wrapped) {
        return Ok(wrapped as usize);
    }
    match kind {
        "bytes" => raise("IndexError", "index out of range"),
        _ => raise("IndexError", format!("{kind} index out of range")),
    }
}
