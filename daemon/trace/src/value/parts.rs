//! Objects of C types that are what their parts are, like slices and ranges: they have no state of their own. What a type does
//! with its parts is in its file in `builtins/kinds`.

use super::{Origin, Value};
use flambeau_ir::code::Const;
use std::rc::Rc;
use std::sync::Arc;

/// `slice`
pub const SLICE: &str = "builtins.slice";
/// `range`
pub const RANGE: &str = "builtins.range";
/// `functools.partial`
pub const PARTIAL: &str = "functools.partial";
/// `types.MappingProxyType`
pub const PROXY: &str = "builtins.mappingproxy";
/// `super`
pub const SUPER: &str = "builtins.super";

/// Such an object. Identity is the `Rc`'s.
#[derive(Debug)]
pub struct Parts {
    /// Import path of its type.
    pub of: &'static str,
    /// In the order that its kind says.
    pub items: Vec<Value>,
    /// Where it is from, if from outside.
    pub origin: Option<Origin>,
}

impl Value {
    /// A new object of the type at this path.
    pub fn parts(of: &'static str, items: impl Into<Vec<Value>>) -> Value {
        Value::Parts(Rc::new(Parts { of, items: items.into(), origin: None }))
    }

    /// The parts of an immutable object of C: the path of what makes it, and the arguments.
    pub fn made_by(maker: Arc<str>, args: impl IntoIterator<Item = Value>) -> Vec<Value> {
        std::iter::once(Value::Const(Const::Str(maker))).chain(args).collect()
    }

    /// The parts of an object of exactly this type, which has so many.
    pub fn parts_of<const N: usize>(&self, of: &str) -> Option<&[Value; N]> {
        match self {
            Value::Parts(parts) if parts.of == of => parts.items.as_slice().try_into().ok(),
            _ => None,
        }
    }

    /// Start, stop and step of a slice.
    pub fn as_slice(&self) -> Option<&[Value; 3]> {
        self.parts_of(SLICE)
    }
}
