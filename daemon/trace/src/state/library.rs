//! What Python's protocols ask of the built-in functions and types. These are made of the same protocols: an attribute may be
//! a built-in method, which calls, iterates and compares. This trait is the one way up.

use super::kind::Kind;
use super::tracer::Tracer;
use crate::value::flow::Flow;
use crate::value::{Args, Tuple, Value};
use flambeau_bytecode::{Binary, Compare, Unary};

/// The built-in functions and types.
pub trait Library {
    /// Whether [`Library::call`] knows the callable at `path`.
    fn knows(&self, path: &str) -> bool;

    /// What the type at this path, or that is imported from there, does with its parts, if it is known.
    fn kind(&self, path: &str) -> Option<&'static dyn Kind>;

    /// Whether a method of a built-in type is known: one of the table's, or of a type whose methods the client computes.
    fn is_method(&self, path: &str) -> bool;

    /// Calls the built-in function, type or method at `path`; `None`: not known here.
    fn call(&self, tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Option<Value>>;

    /// `value.name` for a value of a built-in type (or of a subclass that does not define it); `None`: not there, or not known here.
    fn attribute(&self, tracer: &mut Tracer<'_>, value: &Value, name: &str) -> Flow<Option<Value>>;

    /// A field of a named tuple or structured result, by name.
    fn field(&self, tracer: &mut Tracer<'_>, tuple: &Tuple, name: &str) -> Flow<Option<Value>>;

    /// Notes a call that gives frames of Python's stack, or of what reads them.
    fn note_frames(&self, tracer: &mut Tracer<'_>, path: &str);

    /// `a op b` of built-in types; `None`: they do not know it.
    fn binary(&self, tracer: &mut Tracer<'_>, op: Binary, inplace: bool, a: &Value, b: &Value) -> Flow<Option<Value>>;

    /// `op a`; `None`: as for `binary`.
    fn unary(&self, tracer: &mut Tracer<'_>, op: Unary, a: &Value) -> Flow<Option<Value>>;

    /// `a op b`; `None`: as for `binary`.
    fn compare(&self, tracer: &mut Tracer<'_>, op: Compare, a: &Value, b: &Value) -> Flow<Option<Value>>;

    /// `item in container`; `None`: as for `binary`.
    fn contains(&self, tracer: &mut Tracer<'_>, container: &Value, item: &Value) -> Flow<Option<bool>>;

    /// `container[key]`; `None`: as for `binary`.
    fn subscript(&self, tracer: &mut Tracer<'_>, container: &Value, key: &Value) -> Flow<Option<Value>>;

    /// `container[key] = value`; false: not known here.
    fn store_subscript(&self, tracer: &mut Tracer<'_>, container: &Value, key: &Value, value: Value) -> Flow<bool>;

    /// `del container[key]`; false: not known here.
    fn delete_subscript(&self, tracer: &mut Tracer<'_>, container: &Value, key: &Value) -> Flow<bool>;
}
