//! Dict keys and set elements: values with Python's equality and hash.

use super::Value;
use super::parts::PARTIAL;
use flambeau_ir::code::Const;
use std::rc::Rc;
use std::sync::Arc;

/// No object lies as low as this.
const LEAST_ADDRESS: i64 = 1 << 16;

/// A hashable value in canonical form: equal keys are equal in Python (`1 == True == 1.0`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// A constant; numbers that equal an int are ints here.
    Const(Const),
    /// A tuple.
    Tuple(Vec<Key>),
    /// An object compared by identity: its kind and index or address.
    Identity(u8, usize),
    /// A function or method of C, by its path.
    Path(Arc<str>),
    /// The `id` of an object compared by identity.
    Address(u8, usize),
    /// Objects that are equal by Python code of their class: the place of the first of them among all.
    Own(usize),
}

impl Key {
    /// A str key.
    pub fn str(s: &str) -> Key {
        Key::Const(Const::str(s))
    }

    /// The key of a constant; `None` for NaN, which is unequal to itself.
    pub fn of_const(c: &Const) -> Option<Key> {
        Some(match c {
            Const::Tuple(items) => Key::Tuple(items.iter().map(Key::of_const).collect::<Option<_>>()?),
            other => Key::Const(crate::fold::key(other).ok()?),
        })
    }

    /// The key of a value that is no tuple; `None` if it is unhashable, symbolic, or hashed by code of its own. Objects whose
    /// class defines `__eq__` or `__hash__` must not come here: use `Tracer::key`.
    pub(crate) fn by_structure(value: &Value) -> Option<Key> {
        Some(match value {
            Value::Const(c) => return Key::of_const(c),
            Value::Tensor(id) => Key::Identity(0, id.0 as usize),
            Value::Function(f) => Key::Identity(1, Rc::as_ptr(f) as usize),
            Value::Class(c) => Key::Identity(2, c.identity()),
            Value::Instance(id) => Key::Identity(3, id.0 as usize),
            Value::Module(m) => Key::Identity(4, Rc::as_ptr(m) as usize),
            Value::Builtin(b) if b.receiver.is_none() => Key::Path(b.path.clone()),
            Value::Opaque(o) => Key::Identity(5, o.origin.object.0 as usize),
            Value::Parts(parts) if parts.of == PARTIAL => match parts.origin {
                Some(origin) => Key::Identity(11, origin.object.0 as usize),
                None => Key::Identity(12, Rc::as_ptr(parts) as usize),
            },
            Value::Address(of) => match (Key::by_structure(of), &**of) {
                (Some(Key::Identity(kind, of)), _) => Key::Address(kind, of),
                (_, Value::List(id)) => Key::Address(6, id.0 as usize),
                (_, Value::Dict(id)) => Key::Address(7, id.0 as usize),
                (_, Value::Set(id)) => Key::Address(8, id.0 as usize),
                (_, Value::Tuple(t)) => match t.origin {
                    Some(origin) => Key::Address(9, origin.object.0 as usize),
                    None => Key::Address(10, Rc::as_ptr(t) as usize),
                },
                _ => return None,
            },
            _ => return None,
        })
    }

    /// The constant that it came from (one of the equal ones).
    pub(crate) fn constant(&self) -> Option<Const> {
        Some(match self {
            Key::Const(c) => c.clone(),
            Key::Tuple(items) => Const::Tuple(items.iter().map(Key::constant).collect::<Option<_>>()?),
            Key::Identity(..) | Key::Path(_) | Key::Address(..) | Key::Own(_) => return None,
        })
    }

    /// Whether it is or holds a number that could be the `id` of an object.
    pub(crate) fn may_be_address(&self) -> bool {
        match self {
            Key::Const(c) => may_be_address(c),
            Key::Tuple(items) => items.iter().any(Key::may_be_address),
            _ => false,
        }
    }

    /// Whether it is or holds the `id` of an object.
    pub(crate) fn holds_address(&self) -> bool {
        match self {
            Key::Address(..) => true,
            Key::Tuple(items) => items.iter().any(Key::holds_address),
            _ => false,
        }
    }
}

fn may_be_address(c: &Const) -> bool {
    match c {
        Const::Int(i) => *i > LEAST_ADDRESS,
        Const::BigInt(_) => true,
        Const::Tuple(items) | Const::FrozenSet(items) => items.iter().any(may_be_address),
        _ => false,
    }
}
