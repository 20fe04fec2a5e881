//! Pure operations on constants, as CPython computes them, bit for bit. What is not computed exactly here says so
//! ([`NotFolded::Unhandled`]) and is asked of the client. Nothing here knows of values, guards or graphs.

mod arith;
mod compare;
mod convert;
mod format;
mod math;
mod number;
mod repr;
mod sequence;
mod text;

pub use arith::{binary, divmod, invert, negative, positive, power, unary};
pub use compare::{compare, contains, equal, identical, key};
pub use convert::{absolute, round, to_bool, to_float, to_int, truth};
pub use format::format;
pub use math::math;
pub use number::int;
pub use repr::{ascii, display, repr};
pub use sequence::{index, slice_indices, subscript};
pub use text::method;

use flambeau_ir::code::Const;
use std::sync::Arc;

/// An exception that the operation raises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PyExc {
    /// Import path of its class, e.g. `builtins.ZeroDivisionError`.
    pub class: Arc<str>,
    /// `str(exception)`.
    pub message: String,
}

impl PyExc {
    /// An exception of a built-in class.
    pub fn new(class: &str, message: impl Into<String>) -> PyExc {
        PyExc { class: format!("builtins.{class}").into(), message: message.into() }
    }
}

/// Why there is no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotFolded {
    /// Python raises.
    Raises(PyExc),
    /// Not computed here: ask the client.
    Unhandled,
}

impl From<PyExc> for NotFolded {
    fn from(exc: PyExc) -> Self {
        NotFolded::Raises(exc)
    }
}

/// A folded result.
pub type Fold<T = Const> = Result<T, NotFolded>;

fn raise<T>(class: &str, message: impl Into<String>) -> Fold<T> {
    Err(PyExc::new(class, message).into())
}

fn type_error<T>(message: impl Into<String>) -> Fold<T> {
    raise("TypeError", message)
}

/// `type(value).__name__`
pub fn type_name(value: &Const) -> &'static str {
    match value {
        Const::None => "NoneType",
        Const::Ellipsis => "ellipsis",
        Const::NotImplemented => "NotImplementedType",
        Const::Bool(_) => "bool",
        Const::Int(_) | Const::BigInt(_) => "int",
        Const::Float(_) => "float",
        Const::Complex(..) => "complex",
        Const::Str(_) => "str",
        Const::Bytes(_) => "bytes",
        Const::Tuple(_) => "tuple",
        Const::FrozenSet(_) => "frozenset",
        Const::Slice(_) => "slice",
        Const::Code(_) => "code",
        Const::Dtype(_) => "torch.dtype",
        Const::Device(_) => "torch.device",
        Const::Layout(_) => "torch.layout",
        Const::MemoryFormat(_) => "torch.memory_format",
    }
}

#[cfg(test)]
mod tests;
