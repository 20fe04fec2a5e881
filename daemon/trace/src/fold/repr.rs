//! `repr` and `str`.

use super::number::Number;
use super::{Fold, NotFolded};
use flambeau_ir::code::Const;

/// `repr(value)`
pub fn repr(value: &Const) -> Fold<String> {
    Ok(match value {
        Const::None => "None".into(),
        Const::Ellipsis => "Ellipsis".into(),
        Const::NotImplemented => "NotImplemented".into(),
        Const::Bool(b) => if *b { "True" } else { "False" }.into(),
        Const::Float(x) => float(*x),
        Const::Int(i) => i.to_string(),
        Const::BigInt(_) => match Number::of(value).and_then(|n| n.to_big()) {
            // Longer ones raise, past a limit that the program can set.
            Some(big) if big.bits() < 2000 => big.to_string(),
            _ => return Err(NotFolded::Unhandled),
        },
        Const::Str(s) => quoted(s)?,
        Const::Bytes(b) => bytes(b),
        Const::Tuple(items) if items.len() == 1 => format!("({},)", repr(&items[0])?),
        Const::Tuple(items) => format!("({})", list(items)?),
        Const::FrozenSet(items) if items.is_empty() => "frozenset()".into(),
        Const::FrozenSet(items) => format!("frozenset({{{}}})", list(items)?),
        Const::Slice(parts) => format!("slice({})", list(parts.as_slice())?),
        Const::Dtype(_)
        | Const::Device(_)
        | Const::Layout(_)
        | Const::MemoryFormat(_)
        | Const::Complex(..)
        | Const::Code(_) => return Err(NotFolded::Unhandled),
    })
}

/// `ascii(value)`, for text that `repr` shows in ASCII.
pub fn ascii(value: &Const) -> Fold<String> {
    repr(value).and_then(|text| if text.is_ascii() { Ok(text) } else { Err(NotFolded::Unhandled) })
}

/// `str(value)`
pub fn display(value: &Const) -> Fold<String> {
    match value {
        Const::Str(s) => Ok(s.to_string()),
        // With `-b`, Python warns or raises.
        Const::Bytes(_) => Err(NotFolded::Unhandled),
        _ => repr(value),
    }
}

fn list(items: &[Const]) -> Fold<String> {
    Ok(items.iter().map(repr).collect::<Fold<Vec<_>>>()?.join(", "))
}

/// The shortest text that reads back as the same float.
pub fn float(x: f64) -> String {
    if x.is_nan() {
        return "nan".into();
    }
    if x.is_infinite() {
        return if x > 0.0 { "inf" } else { "-inf" }.into();
    }
    let scientific = format!("{x:e}");
    let exponent: i32 = scientific.split_once('e').and_then(|(_, e)| e.parse().ok()).unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let text = format!("{x}");
        return if text.contains('.') { text } else { text + ".0" };
    }
    exponential(&scientific)
}

/// Rust's `1e16` as C's `1e+16`.
pub fn exponential(text: &str) -> String {
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
    format!("{mantissa}e{sign}{digits:0>2}")
}

fn quoted(text: &str) -> Fold<String> {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::with_capacity(text.len() + 2);
    out.push(quote);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            c if c == quote => out.extend(['\\', c]),
            ' '..='~' => out.push(c),
            c if c.is_ascii() => out.push_str(&escaped(c as u8)),
            // Letters of the Latin blocks are printable in every version of Unicode.
            c if c < '\u{250}' && c.is_alphabetic() => out.push(c),
            _ => return Err(NotFolded::Unhandled),
        }
    }
    out.push(quote);
    Ok(out)
}

fn escaped(byte: u8) -> String {
    format!("\\x{byte:02x}")
}

fn bytes(data: &[u8]) -> String {
    let quote = if data.contains(&b'\'') && !data.contains(&b'"') { b'"' } else { b'\'' };
    let mut out = format!("b{}", char::from(quote));
    for &b in data {
        match b {
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            b'\\' => out.push_str("\\\\"),
            b if b == quote => out.extend(['\\', char::from(b)]),
            b' '..=b'~' => out.push(char::from(b)),
            b => out.push_str(&escaped(b)),
        }
    }
    out.push(char::from(quote));
    out
}
