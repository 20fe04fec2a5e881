//! `super(class, receiver)`: its parts are these two.

use super::super::args::exactly;
use super::super::{Table, unsupported};
use crate::state::kind::Kind;
use crate::state::tracer::Tracer;
use crate::value::flow::Flow;
use crate::value::parts::{Parts, SUPER};
use crate::value::{Args, Value};
use std::rc::Rc;

pub struct Super;

pub const TABLE: Table = &[("builtins.super", super_)];

impl Kind for Super {
    fn path(&self) -> &'static str {
        SUPER
    }

    fn attribute(&self, tracer: &mut Tracer<'_>, this: &Rc<Parts>, name: &str) -> Flow<Option<Value>> {
        let [Value::Class(class), receiver] = this.items.as_slice() else { return unsupported("super") };
        if let Some(found) = tracer.super_attr(class, receiver, name)? {
            return Ok(Some(found));
        }
        // `super_getattro` in CPython's `Objects/typeobject.c` looks at the object itself last.
        match name {
            "__thisclass__" => Ok(Some(this.items[0].clone())),
            "__self__" => Ok(Some(receiver.clone())),
            _ => tracer.builtin_attr(&Value::Parts(this.clone()), name),
        }
    }

    fn rebuild(&self, _: &mut Tracer<'_>, _: &Parts) -> Flow<Option<Vec<Value>>> {
        Ok(None)
    }
}

/// `super(class, receiver)`; without arguments the interpreter fills them in.
fn super_(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [first, receiver] = exactly(path, args)?;
    let Value::Class(class) = first else {
        if tracer.class_of(&first)?.derives("builtins.type") {
            return unsupported(path);
        }
        return tracer.raise_inexact("TypeError", "super() argument 1 must be a type");
    };
    // `supercheck` in CPython's `Objects/typeobject.c`. What stands for another object says so in its `__class__`.
    let fits = match &receiver {
        Value::Class(of) if of.is_subclass(&class) => true,
        _ => tracer.class_of(&receiver)?.is_subclass(&class),
    };
    if !fits {
        if tracer.overrides_class(&receiver)? || !tracer.is_plain(&receiver) {
            return unsupported(path);
        }
        let message = "super(type, obj): obj must be an instance or subtype of type";
        return tracer.raise_inexact("TypeError", message);
    }
    Ok(Value::parts(SUPER, [Value::Class(class), receiver]))
}
