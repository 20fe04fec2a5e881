//! Callables: Python functions, bound methods, built-ins, descriptors, and cells.

use super::{DictId, Id, Origin, Value};
use flambeau_ir::code::Code;
use flambeau_ir::object::ObjId;
use flambeau_ir::source::SourceId;
use std::rc::Rc;
use std::sync::Arc;

/// Names a cell.
pub type CellId = Id<CellValue>;

/// A closure cell.
#[derive(Clone, Debug, Default)]
pub struct CellValue {
    pub(crate) value: Option<Value>,
    /// False for a cell from outside that was not read yet.
    pub(crate) loaded: bool,
    pub(crate) dirty: bool,
    /// Where it is from, if from outside.
    pub origin: Option<Origin>,
}

/// A Python function, from outside or made in the trace. Identity is the `Rc`'s.
#[derive(Clone, Debug)]
pub struct Function {
    /// Its code.
    pub code: Arc<Code>,
    /// `__name__`
    pub name: Arc<str>,
    /// `__qualname__`
    pub qualname: Arc<str>,
    /// `__module__`
    pub module: Option<Arc<str>>,
    /// Import path in a trusted root, if the shim gave one.
    pub path: Option<Arc<str>>,
    /// `__globals__`
    pub globals: DictId,
    /// Where it is from; defaults and cells of such a function are read (and guarded) on demand.
    pub origin: Option<Origin>,
    /// `__defaults__` of a function made in the trace: a tuple.
    pub defaults: Option<Value>,
    /// `__kwdefaults__` of a function made in the trace: a dict.
    pub kwdefaults: Option<Value>,
    /// Cells of a function made in the trace.
    pub closure: Vec<CellId>,
    /// Attributes set on a function made in the trace, and the instance dict of one from outside.
    pub attrs: std::cell::Cell<Option<DictId>>,
    /// Of a function made in the trace: what was set of `__name__`, `__doc__` and the like, by these names, and its
    /// annotations. A dict of the trace, as changes of those are counted.
    pub slots: std::cell::Cell<Option<DictId>>,
    /// The function whose frame made this one in the trace.
    pub maker: Option<Rc<Function>>,
}

/// A bound method.
#[derive(Debug)]
pub struct Method {
    /// `__func__`: a function or any callable.
    pub func: Value,
    /// `__self__`
    pub receiver: Value,
    /// Where it is from, if from outside.
    pub origin: Option<Origin>,
}

/// A built-in callable.
#[derive(Debug)]
pub struct Builtin {
    /// Import path, e.g. `builtins.len`, `torch._C._nn.gelu`, `builtins.list.append` (also when bound).
    pub path: Arc<str>,
    /// Receiver of a bound method of a built-in type.
    pub receiver: Option<Value>,
    /// A method descriptor: reading it through an instance binds it.
    pub unbound: bool,
    /// Where it is from, if from outside.
    pub origin: Option<Origin>,
}

/// Descriptors found in (or made for) class dicts.
#[derive(Debug)]
pub enum Descriptor {
    /// `property`; its parts are read when they are used.
    Property {
        /// `fget`
        get: Option<ObjId>,
        /// `fset`
        set: Option<ObjId>,
        /// `fdel`
        delete: Option<ObjId>,
        /// The property.
        source: SourceId,
    },
    /// `staticmethod`
    Static(Value),
    /// `classmethod`
    Class(Value),
    /// A class method of a C type.
    NativeClass(Rc<Builtin>),
    /// A getset or member descriptor of the class with this path or name.
    Data {
        /// Import path of the owner, if trusted.
        owner: Option<Arc<str>>,
        /// `__name__`
        name: Arc<str>,
        /// A raw slot.
        member: bool,
    },
}

impl Value {
    /// A built-in function by path.
    pub fn builtin(path: &str) -> Value {
        Value::Builtin(Rc::new(Builtin { path: path.into(), receiver: None, unbound: false, origin: None }))
    }

    /// A method of a built-in type bound to `receiver`; `path` is e.g. `builtins.list.append`.
    pub fn bound_builtin(path: &str, receiver: Value) -> Value {
        Value::Builtin(Rc::new(Builtin { path: path.into(), receiver: Some(receiver), unbound: false, origin: None }))
    }
}

/// `func` bound to `receiver`.
pub(crate) fn bound(func: Value, receiver: Value) -> Value {
    match func {
        Value::Builtin(b) => Value::Builtin(Rc::new(Builtin {
            path: b.path.clone(),
            receiver: Some(receiver),
            unbound: false,
            origin: None,
        })),
        func => Value::Method(Rc::new(Method { func, receiver, origin: None })),
    }
}
