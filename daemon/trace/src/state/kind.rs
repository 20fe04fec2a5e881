//! What protocols, calls and exits ask of a kind of value whose objects are what their parts are.

use super::tracer::Tracer;
use crate::value::flow::Flow;
use crate::value::parts::Parts;
use crate::value::{Args, Value};
use flambeau_ir::object::PARTS;
use std::rc::Rc;
use std::sync::Arc;

/// A type of such objects. Each answer is by default that of a type that has no such thing.
pub trait Kind: Sync {
    /// Import path of the type.
    fn path(&self) -> &'static str;

    /// Where the type can be imported and called with the parts.
    fn import(&self) -> &'static str {
        self.path()
    }

    /// The attributes that its first parts are: of what comes from outside, what [`PARTS`] calls them.
    fn names(&self) -> &'static [&'static str] {
        PARTS.iter().find(|of| of.path == self.import()).map_or(&[], |of| of.names)
    }

    /// The tracer knows all that it can do: what it does not know is an error in Python too.
    fn is_plain(&self) -> bool {
        false
    }

    /// It can be called.
    fn is_callable(&self) -> bool {
        false
    }

    /// It has a length and items by position, which do not change.
    fn is_sequence(&self) -> bool {
        false
    }

    /// Two of them compare as tuples of their parts do.
    fn compares_parts(&self) -> bool {
        false
    }

    /// There can be weak references to it, by which its end is seen.
    fn has_weak_references(&self) -> bool {
        false
    }

    /// Whether an object from outside with these parts is one that it knows; others are only passed on.
    fn is_usual(&self, _: &Tracer<'_>, _items: &[Value]) -> bool {
        true
    }

    /// Its objects never change, and the client can do with them what the trace asks for.
    fn is_pure(&self) -> bool {
        false
    }

    /// The number that it is where a tensor is computed with it.
    fn number(&self, _this: &Parts) -> Option<Value> {
        None
    }

    /// What makes an object anew, called with what [`Kind::rebuild`] gives.
    fn maker(&self, _this: &Parts) -> Arc<str> {
        self.import().into()
    }

    /// The part that is the attribute of this name.
    fn part(&self, this: &Parts, name: &str) -> Option<Value> {
        let at = self.names().iter().position(|part| *part == name)?;
        Some(this.items[at].clone())
    }

    /// `this.name`: a part, what the built-in functions have for it, or what its type provides.
    fn attribute(&self, tracer: &mut Tracer<'_>, this: &Rc<Parts>, name: &str) -> Flow<Option<Value>> {
        match self.part(this, name) {
            Some(part) => Ok(Some(part)),
            None => tracer.builtin_attr(&Value::Parts(this.clone()), name),
        }
    }

    /// `this(...)`
    fn call(&self, _: &mut Tracer<'_>, _this: &Parts, _: Args) -> Flow<Option<Value>> {
        Ok(None)
    }

    /// `iter(this)`
    fn iterator(&self, _: &mut Tracer<'_>, _this: &Parts) -> Flow<Option<Value>> {
        Ok(None)
    }

    /// `len(this)`; may be more than a length can tell.
    fn length(&self, _: &mut Tracer<'_>, _this: &Parts) -> Flow<Option<Value>> {
        Ok(None)
    }

    /// `item in this`
    fn contains(&self, _: &mut Tracer<'_>, _this: &Parts, _item: &Value) -> Flow<Option<bool>> {
        Ok(None)
    }

    /// `this[key]`
    fn subscript(&self, _: &mut Tracer<'_>, _this: &Parts, _key: &Value) -> Flow<Option<Value>> {
        Ok(None)
    }

    /// `a == b` of two of the kind; `None`: by identity.
    fn equal(&self, _: &mut Tracer<'_>, _a: &Parts, _b: &Parts) -> Flow<Option<bool>> {
        Ok(None)
    }

    /// What it stands for where it is compared.
    fn compared_as(&self, _this: &Parts) -> Option<Value> {
        None
    }

    /// With what [`Kind::maker`] is called to make it again; `None`: it cannot be.
    fn rebuild(&self, _: &mut Tracer<'_>, this: &Parts) -> Flow<Option<Vec<Value>>> {
        Ok(Some(this.items.clone()))
    }
}

/// Has nothing: what stands for a type that is not known.
struct Unknown;

impl Kind for Unknown {
    fn path(&self) -> &'static str {
        "builtins.object"
    }
}

impl Tracer<'_> {
    /// What the object's type does with its parts.
    pub(crate) fn kind_of(&self, parts: &Parts) -> &'static dyn Kind {
        self.library.kind(parts.of).unwrap_or(&Unknown)
    }

    /// Whether its items are parts that do not change.
    pub(crate) fn is_sequence_of_parts(&self, value: &Value) -> bool {
        matches!(value, Value::Parts(parts) if self.kind_of(parts).is_sequence())
    }

    /// Whether it is plain, and nothing but its parts can be had of it.
    pub(crate) fn is_bare_of_items(&self, value: &Value) -> bool {
        match value {
            Value::Int(_) | Value::Function(_) | Value::Method(_) => true,
            Value::Parts(parts) => self.kind_of(parts).is_plain() && !self.kind_of(parts).is_sequence(),
            _ => false,
        }
    }
}
