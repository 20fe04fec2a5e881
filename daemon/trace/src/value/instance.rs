//! Objects with a Python-level class, Python modules, and opaque objects.

use super::{Class, DictId, Id, Origin, Value};
use flambeau_ir::code::Const;
use indexmap::IndexMap;
use std::rc::Rc;
use std::sync::Arc;

/// Names an instance.
pub type InstanceId = Id<Instance>;

/// An object: its class, its instance dict, its slots.
#[derive(Clone, Debug)]
pub struct Instance {
    /// `type(obj)`
    pub class: Rc<Class>,
    /// The instance dict; `None` if it has none.
    pub attrs: Option<DictId>,
    /// Slots read or written; `None`: known empty.
    pub slots: IndexMap<Arc<str>, Option<Value>>,
    /// Slots written since it was read.
    pub slot_writes: IndexMap<Arc<str>, Option<Value>>,
    /// State that C code keeps.
    pub payload: Payload,
    /// Where it is from; `None` if made in the trace.
    pub origin: Option<Origin>,
}

/// State of an instance that is not in its dict.
#[derive(Clone, Debug)]
pub enum Payload {
    /// None.
    None,
    /// The int, float or str that an instance of a subclass of it is.
    Const(Const),
    /// That of an exception.
    Exception(Box<Raised>),
    /// That of a type of C which Python functions stand for (`shim/python/flambeau/polyfills`).
    Polyfill {
        /// The class of what says how it leaves a trace (`flambeau.polyfills._table.Kind`); `None` of one from outside.
        kind: Option<Value>,
        /// What the functions keep, a list.
        state: Value,
    },
    /// A context manager or other object that the tracer knows by class path: its constructor's arguments or state.
    Native(Vec<Value>),
}

/// What an exception holds besides its attributes.
#[derive(Clone, Debug, Default)]
pub struct Raised {
    /// `args`
    pub args: Vec<Value>,
    /// `__cause__`
    pub cause: Option<Value>,
    /// `__context__`
    pub context: Option<Value>,
    /// `__suppress_context__`
    pub suppress_context: bool,
    /// Raising it has set its context.
    pub is_raised: bool,
    /// It was raised where the trace handled no exception: what callers of the frame handle is its context.
    pub within_callers: bool,
    /// The `__traceback__` that it was given.
    pub traceback: Option<Value>,
}

impl Raised {
    /// Whether it can leave the trace: nothing that raising it sets is known to it.
    pub(crate) fn leaves(&self) -> bool {
        !self.is_raised
            && self.traceback.is_none()
            && !self.suppress_context
            && self.cause.is_none()
            && self.context.is_none()
    }
}

/// A Python module.
#[derive(Clone, Debug)]
pub struct Module {
    /// `__name__`
    pub name: Arc<str>,
    /// Import path if trusted.
    pub path: Option<Arc<str>>,
    /// Its namespace.
    pub dict: DictId,
    /// Where it is from.
    pub origin: Origin,
}

/// An object whose inside cannot be read.
#[derive(Clone, Debug)]
pub struct Opaque {
    /// `type(obj)`
    pub class: Rc<Class>,
    /// Import path, if it is what a trusted path names.
    pub path: Option<Arc<str>>,
    /// The item that it gives, if named tuples read a field with it.
    pub item: Option<u32>,
    /// Where it is from.
    pub origin: Origin,
}
