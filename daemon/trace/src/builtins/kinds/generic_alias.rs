//! `list[int]` and the like: a type and what it is subscripted with.

use super::super::args::exactly;
use super::super::{Table, unsupported};
use crate::state::kind::Kind;
use crate::state::tracer::Tracer;
use crate::value::flow::Flow;
use crate::value::parts::Parts;
use crate::value::{Args, Value};
use std::rc::Rc;

pub struct GenericAlias;

const ALIAS: &str = "types.GenericAlias";

pub const TABLE: Table = &[
    ("builtins.list.__class_getitem__", class_getitem),
    ("builtins.tuple.__class_getitem__", class_getitem),
    ("builtins.dict.__class_getitem__", class_getitem),
    ("builtins.set.__class_getitem__", class_getitem),
    ("builtins.frozenset.__class_getitem__", class_getitem),
];

impl Kind for GenericAlias {
    fn path(&self) -> &'static str {
        ALIAS
    }

    fn names(&self) -> &'static [&'static str] {
        &["__origin__", "__args__"]
    }

    fn is_callable(&self) -> bool {
        true
    }

    fn has_weak_references(&self) -> bool {
        true
    }

    /// `ga_getattro` in CPython's `Objects/genericaliasobject.c` asks the type for all but some special names.
    fn attribute(&self, tracer: &mut Tracer<'_>, this: &Rc<Parts>, name: &str) -> Flow<Option<Value>> {
        match self.part(this, name) {
            Some(part) => Ok(Some(part)),
            None if name.starts_with("__") => unsupported(ALIAS),
            None => tracer.get_attr(&this.items[0], name).map(Some),
        }
    }

    /// The object is told what it was made by, if it can keep that.
    fn call(&self, tracer: &mut Tracer<'_>, this: &Parts, args: Args) -> Flow<Option<Value>> {
        match &this.items[0] {
            Value::Class(class) if !class.is_python => tracer.call(&this.items[0], args).map(Some),
            _ => unsupported(ALIAS),
        }
    }

    fn equal(&self, tracer: &mut Tracer<'_>, a: &Parts, b: &Parts) -> Flow<Option<bool>> {
        Ok(Some(tracer.equal(&a.items[0], &b.items[0])? && tracer.equal(&a.items[1], &b.items[1])?))
    }
}

fn class_getitem(_: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [class, item] = exactly(path, args)?;
    let items = if let Value::Tuple(_) = item { item } else { Value::tuple(vec![item]) };
    Ok(Value::parts(ALIAS, [class, items]))
}
