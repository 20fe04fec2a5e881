//! Folding against what CPython answers (`facts.py` writes the facts). Every answer given must be CPython's; what is left
//! to the client must stay rare.

use super::*;
use flambeau_bytecode::{Binary, Compare, Unary};

/// Reads the `repr` of a constant.
struct Reader<'a>(&'a str);

impl Reader<'_> {
    fn eat(&mut self, token: &str) -> bool {
        let found = self.0.strip_prefix(token);
        self.0 = found.unwrap_or(self.0);
        found.is_some()
    }

    fn value(&mut self) -> Const {
        for (name, value) in [("None", Const::None), ("True", Const::Bool(true)), ("False", Const::Bool(false))] {
            if self.eat(name) {
                return value;
            }
        }
        if self.eat("slice(") {
            let Const::Tuple(parts) = self.items() else { panic!() };
            return Const::Slice(Box::new(parts.try_into().unwrap()));
        }
        if self.eat("(") {
            return self.items();
        }
        if self.eat("b") {
            return match self.text() {
                Const::Str(s) => Const::Bytes(s.bytes().collect()),
                _ => panic!(),
            };
        }
        if self.0.starts_with(['\'', '"']) {
            return self.text();
        }
        let end = self.0.find([',', ')']).unwrap_or(self.0.len());
        let (number, rest) = self.0.split_at(end);
        self.0 = rest;
        if let Ok(i) = number.parse() {
            return Const::Int(i);
        }
        match number.parse::<num_bigint::BigInt>() {
            Ok(big) => Const::BigInt(big.to_signed_bytes_le()),
            Err(_) => Const::Float(number.parse().unwrap_or_else(|_| panic!("{number}"))),
        }
    }

    fn items(&mut self) -> Const {
        let mut items = vec![];
        while !self.eat(")") {
            items.push(self.value());
            let _ = self.eat(", ") || self.eat(",");
        }
        Const::Tuple(items)
    }

    fn text(&mut self) -> Const {
        let quote = self.0.chars().next().unwrap();
        let mut text = String::new();
        let mut chars = self.0.char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            match c {
                c if c == quote => {
                    self.0 = &self.0[at + 1..];
                    return Const::str(&text);
                }
                '\\' => text.push(match chars.next().unwrap().1 {
                    'n' => '\n',
                    't' => '\t',
                    c => c,
                }),
                c => text.push(c),
            }
        }
        panic!("{}", self.0)
    }
}

fn read(text: &str) -> Const {
    Reader(text).value()
}

fn run(op: &str, args: &[Const]) -> Fold {
    let text = |r: Fold<String>| r.map(|s| Const::str(&s));
    if let Some(kind) = Binary::ALL.into_iter().find(|b| b.method() == op) {
        return binary(kind, &args[0], &args[1]);
    }
    if let Some(kind) = Compare::ALL.into_iter().find(|c| c.method() == op) {
        return compare(kind, &args[0], &args[1]);
    }
    match (op, args) {
        ("neg", [a]) => unary(Unary::Negative, a),
        ("pos", [a]) => unary(Unary::Positive, a),
        ("invert", [a]) => unary(Unary::Invert, a),
        ("bool", [a]) => to_bool(a),
        ("int", [a]) => to_int(a),
        ("float", [a]) => to_float(a),
        ("abs", [a]) => absolute(a),
        ("round", [a]) => round(a, None),
        ("round", [a, Const::Int(n)]) => round(a, Some(*n)),
        ("str", [a]) => text(display(a)),
        ("repr", [a]) => text(repr(a)),
        ("format", [a, Const::Str(spec)]) => text(format(a, spec)),
        ("divmod", [a, b]) => divmod(a, b),
        ("contains", [a, b]) => contains(a, b).map(Const::Bool),
        ("getitem", [a, b]) => subscript(a, b),
        _ if op.starts_with('.') => match &args[0] {
            Const::Str(s) => method(s, &op[1..], &args[1..]),
            _ => panic!(),
        },
        _ => math(op, args),
    }
}

#[test]
fn agrees_with_cpython() {
    let facts = include_str!("facts.txt");
    let (mut wrong, mut unhandled, mut total) = (vec![], std::collections::BTreeMap::new(), 0);
    for line in facts.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let (op, expected) = (fields[0], fields[fields.len() - 1]);
        let args: Vec<Const> = fields[1..fields.len() - 1].iter().map(|f| read(f)).collect();
        total += 1;
        let found = match run(op, &args) {
            Ok(value) if value == read_expected(expected) => continue,
            Ok(value) => repr(&value).unwrap_or_else(|_| format!("{value:?}")),
            Err(NotFolded::Raises(exc)) => format!("!{} {}", exc.class.replace("builtins.", ""), exc.message),
            Err(NotFolded::Unhandled) => {
                *unhandled.entry(op).or_insert(0) += 1;
                continue;
            }
        };
        if found != expected {
            wrong.push(format!("{line}   but {found}"));
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong[..wrong.len().min(60)].join("\n"));
    let left: usize = unhandled.values().sum();
    assert!(left * 8 < total, "{left} of {total} unhandled: {unhandled:?}");
}

fn read_expected(text: &str) -> Const {
    if text.starts_with('!') { Const::NotImplemented } else { read(text) }
}

#[test]
fn equal_numbers_are_one_key() {
    let one = key(&Const::Int(1)).unwrap();
    assert_eq!(one, key(&Const::Bool(true)).unwrap());
    assert_eq!(one, key(&Const::Float(1.0)).unwrap());
    assert_eq!(key(&Const::Float(-0.0)).unwrap(), key(&Const::Bool(false)).unwrap());
    assert_ne!(one, key(&Const::str("1")).unwrap());
    assert!(key(&Const::Float(f64::NAN)).is_err());
    assert!(key(&Const::Slice(Box::new([Const::None, Const::None, Const::None]))).is_err());
}

#[test]
fn identity_is_decided_only_where_the_language_does() {
    assert_eq!(identical(&Const::None, &Const::None), Ok(true));
    assert_eq!(identical(&Const::Int(1), &Const::Bool(true)), Ok(false));
    assert_eq!(identical(&Const::Int(1), &Const::Int(1)), Ok(true));
    assert!(identical(&Const::Int(1000), &Const::Int(1000)).is_err());
}
