//! Methods of `str` on constants. Case and character classes are folded for ASCII only.

use super::{Fold, NotFolded, raise, type_error, type_name};
use flambeau_ir::code::Const;

/// `text.name(*args)`
pub fn method(text: &str, name: &str, args: &[Const]) -> Fold {
    let boolean = |b: bool| Ok(Const::Bool(b));
    let string = |s: &str| Ok(Const::str(s));
    let part = |i: usize| match args.get(i) {
        Some(Const::Str(s)) => Ok(&**s),
        _ => Err(NotFolded::Unhandled),
    };
    match (name, args.len()) {
        ("startswith", 1) => affix(&args[0], "startswith", |p| text.starts_with(p)),
        ("endswith", 1) => affix(&args[0], "endswith", |p| text.ends_with(p)),
        ("join", 1) => join(text, &args[0]),
        ("split", 0) if text.is_ascii() => Ok(list(text.split(is_space).filter(|p| !p.is_empty()))),
        ("split", 1) if !part(0)?.is_empty() => Ok(list(text.split(part(0)?))),
        ("split", 2) if !part(0)?.is_empty() => match args[1] {
            Const::Int(limit) if limit < 0 => Ok(list(text.split(part(0)?))),
            Const::Int(limit) => Ok(list(text.splitn(limit as usize + 1, part(0)?))),
            _ => Err(NotFolded::Unhandled),
        },
        ("rsplit", 2) if !part(0)?.is_empty() => match args[1] {
            Const::Int(limit) if limit >= 0 => {
                let mut parts: Vec<_> = text.rsplitn(limit as usize + 1, part(0)?).collect();
                parts.reverse();
                Ok(list(parts.into_iter()))
            }
            _ => Err(NotFolded::Unhandled),
        },
        ("partition", 1) if !part(0)?.is_empty() => {
            let (head, found, tail) = match text.split_once(part(0)?) {
                Some((head, tail)) => (head, part(0)?, tail),
                None => (text, "", ""),
            };
            Ok(Const::Tuple([head, found, tail].map(Const::str).to_vec()))
        }
        ("rpartition", 1) if !part(0)?.is_empty() => {
            let (head, found, tail) = match text.rsplit_once(part(0)?) {
                Some((head, tail)) => (head, part(0)?, tail),
                None => ("", "", text),
            };
            Ok(Const::Tuple([head, found, tail].map(Const::str).to_vec()))
        }
        ("replace", 2) if !part(0)?.is_empty() => string(&text.replace(part(0)?, part(1)?)),
        ("removeprefix", 1) => string(text.strip_prefix(part(0)?).unwrap_or(text)),
        ("removesuffix", 1) => string(text.strip_suffix(part(0)?).unwrap_or(text)),
        ("find", 1) => Ok(Const::Int(text.find(part(0)?).map_or(-1, |at| text[..at].chars().count() as i64))),
        ("count", 1) if !part(0)?.is_empty() => Ok(Const::Int(text.matches(part(0)?).count() as i64)),
        ("strip", 0) if text.is_ascii() => string(text.trim_matches(is_space)),
        ("lstrip", 0) if text.is_ascii() => string(text.trim_start_matches(is_space)),
        ("rstrip", 0) if text.is_ascii() => string(text.trim_end_matches(is_space)),
        ("strip", 1) => {
            let set = part(0)?;
            string(text.trim_matches(|c| set.contains(c)))
        }
        ("lower" | "casefold", 0) if text.is_ascii() => string(&text.to_ascii_lowercase()),
        ("upper", 0) if text.is_ascii() => string(&text.to_ascii_uppercase()),
        ("isdigit" | "isdecimal" | "isnumeric", 0) if text.is_ascii() => {
            boolean(!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()))
        }
        ("isalpha", 0) if text.is_ascii() => boolean(!text.is_empty() && text.bytes().all(|b| b.is_ascii_alphabetic())),
        ("isalnum", 0) if text.is_ascii() => {
            boolean(!text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric()))
        }
        ("isidentifier", 0) if text.is_ascii() => boolean(
            !text.starts_with(|c: char| c.is_ascii_digit())
                && !text.is_empty()
                && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'),
        ),
        _ => Err(NotFolded::Unhandled),
    }
}

/// ASCII's white space as `str.strip` and `str.split` see it.
fn is_space(c: char) -> bool {
    matches!(c, '\t'..='\r' | '\x1c'..='\x1f' | ' ')
}

/// Several strings; the caller turns the tuple into a list where Python gives one.
fn list<'a>(parts: impl Iterator<Item = &'a str>) -> Const {
    Const::Tuple(parts.map(Const::str).collect())
}

fn affix(wanted: &Const, name: &str, test: impl Fn(&str) -> bool) -> Fold {
    match wanted {
        Const::Str(s) => Ok(Const::Bool(test(s))),
        Const::Tuple(items) => {
            for item in items {
                match item {
                    Const::Str(s) if test(s) => return Ok(Const::Bool(true)),
                    Const::Str(_) => {}
                    _ => return Err(NotFolded::Unhandled),
                }
            }
            Ok(Const::Bool(false))
        }
        other => type_error(format!("{name} first arg must be str or a tuple of str, not {}", type_name(other))),
    }
}

fn join(separator: &str, items: &Const) -> Fold {
    let Const::Tuple(items) = items else { return Err(NotFolded::Unhandled) };
    let mut parts = Vec::with_capacity(items.len());
    for (i, item) in items.iter().enumerate() {
        match item {
            Const::Str(s) => parts.push(&**s),
            other => {
                return raise(
                    "TypeError",
                    format!("sequence item {i}: expected str instance, {} found", type_name(other)),
                );
            }
        }
    }
    Ok(Const::str(&parts.join(separator)))
}
