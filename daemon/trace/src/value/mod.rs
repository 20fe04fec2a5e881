//! Values of a trace. Cheap to clone: immutable parts are shared, what has identity and state lives in [`Arenas`].

pub mod args;
pub mod class;
pub mod dict;
pub mod flow;
pub mod frame;
pub mod function;
pub mod instance;
pub mod iterator;
pub mod key;
pub mod list;
pub mod parts;
pub mod set;
pub mod tensor;
pub mod tuple;

pub use args::Args;
pub use class::Class;
pub use dict::{DictId, DictValue, ViewKind};
pub use function::{Builtin, CellId, CellValue, Descriptor, Function, Method};
pub use instance::{Instance, InstanceId, Module, Opaque, Payload, Raised};
pub use iterator::{Ahead, Exhausted, Iter, IterId, Of, Polyfill};
pub use key::Key;
pub use list::{ListId, ListValue};
pub use parts::Parts;
pub use set::{History, Made, SetId, SetValue};
pub use tensor::{Gradient, TensorId, TensorValue};
pub use tuple::Tuple;

use flambeau_ir::code::Const;
use flambeau_ir::dim::Dim;
use flambeau_ir::object::ObjId;
use flambeau_ir::source::SourceId;
use frame::GeneratorId;
use std::rc::Rc;

/// One Python value.
#[derive(Clone, Debug)]
pub enum Value {
    /// An immutable value; never a tuple, frozenset or slice, which have variants of their own. Make it with [`Value::from_const`].
    Const(Const),
    /// An int that is an expression over symbols (never a constant one: [`Value::dim`]).
    Int(Dim),
    /// What `id` gives for the object: a number that no guard could hold, compared as the object is by `is`.
    Address(Rc<Value>),
    /// A tensor.
    Tensor(TensorId),
    /// A tuple, `torch.Size`, named tuple or other subclass.
    Tuple(Rc<Tuple>),
    /// A list or subclass.
    List(ListId),
    /// A dict or subclass.
    Dict(DictId),
    /// `keys()`, `values()` or `items()` of a dict.
    DictView(DictId, ViewKind),
    /// A set or frozenset.
    Set(SetId),
    /// A slice, range, `functools.partial` and the like: what its parts are.
    Parts(Rc<Parts>),
    /// A Python function.
    Function(Rc<Function>),
    /// A bound method.
    Method(Rc<Method>),
    /// A built-in function, or a method of a built-in type bound to its receiver.
    Builtin(Rc<Builtin>),
    /// A type.
    Class(Rc<Class>),
    /// An object with a Python-level class.
    Instance(InstanceId),
    /// A Python module.
    Module(Rc<Module>),
    /// A closure cell.
    Cell(CellId),
    /// A built-in iterator.
    Iter(IterId),
    /// A suspended generator frame.
    Generator(GeneratorId),
    /// `property`, `staticmethod`, `classmethod`, slot descriptors.
    Descriptor(Rc<Descriptor>),
    /// A code object (argument of `MAKE_FUNCTION`).
    Code(std::sync::Arc<flambeau_ir::code::Code>),
    /// An outside object that is only passed on.
    Opaque(Rc<Opaque>),
    /// What a resume function was handed and nothing looked at yet; see `unread`.
    Unread(Origin),
}

/// Where an outside object was first met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The object.
    pub object: ObjId,
    /// Its first source; further facts are read through it.
    pub source: SourceId,
}

/// Index into an [`Arena`].
#[derive(Debug)]
pub struct Id<T>(pub u32, std::marker::PhantomData<fn() -> T>);

impl<T> Clone for Id<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Id<T> {}
impl<T> PartialEq for Id<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}
impl<T> Eq for Id<T> {}
impl<T> std::hash::Hash for Id<T> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

/// Objects with identity and state, of one kind.
#[derive(Debug)]
pub struct Arena<T> {
    items: Vec<T>,
    /// How often one was lent out to be changed.
    changes: usize,
    /// How many of these changes were that more of an object from outside was read.
    reads: usize,
    /// The place of the oldest object that was written to since [`Arena::watch`].
    oldest: usize,
}

impl<T> Default for Arena<T> {
    fn default() -> Self {
        Arena { items: Vec::new(), changes: 0, reads: 0, oldest: 0 }
    }
}

impl<T> Arena<T> {
    /// Adds an object.
    pub fn push(&mut self, value: T) -> Id<T> {
        self.items.push(value);
        Id(self.items.len() as u32 - 1, std::marker::PhantomData)
    }

    /// An object from outside, of which more is noted.
    pub(crate) fn note(&mut self, id: Id<T>) -> &mut T {
        self.reads += 1;
        self.changes += 1;
        &mut self.items[id.0 as usize]
    }

    /// From here on, or `still`, looks at what is written to. Gives the number of objects.
    fn watch(&mut self, still: bool) -> usize {
        if !still {
            self.oldest = usize::MAX;
        }
        self.items.len()
    }

    fn writes(&self) -> usize {
        self.changes - self.reads
    }

    /// All objects with their ids, in order of creation.
    pub fn iter(&self) -> impl Iterator<Item = (Id<T>, &T)> {
        self.items.iter().enumerate().map(|(i, v)| (Id(i as u32, std::marker::PhantomData), v))
    }
}

impl<T> std::ops::Index<Id<T>> for Arena<T> {
    type Output = T;
    fn index(&self, id: Id<T>) -> &T {
        &self.items[id.0 as usize]
    }
}

impl<T> std::ops::IndexMut<Id<T>> for Arena<T> {
    fn index_mut(&mut self, id: Id<T>) -> &mut T {
        self.changes += 1;
        self.oldest = self.oldest.min(id.0 as usize);
        &mut self.items[id.0 as usize]
    }
}

/// All objects with identity and state.
#[derive(Debug, Default)]
pub struct Arenas {
    /// Tensors.
    pub tensors: Arena<TensorValue>,
    /// Lists.
    pub lists: Arena<ListValue>,
    /// Dicts, instance dicts and namespaces included.
    pub dicts: Arena<DictValue>,
    /// Sets and frozensets.
    pub sets: Arena<SetValue>,
    /// Instances.
    pub instances: Arena<Instance>,
    /// Cells.
    pub cells: Arena<CellValue>,
    /// Iterators.
    pub iters: Arena<Iter>,
    /// Generators; `None` while one runs.
    pub generators: Arena<frame::Generator>,
}

impl Arenas {
    /// As [`Arenas::changes`], but neither what was read of objects from outside counts nor where generators stand.
    pub(crate) fn writes(&self) -> usize {
        self.tensors.writes()
            + self.lists.writes()
            + self.dicts.writes()
            + self.sets.writes()
            + self.instances.writes()
            + self.cells.writes()
            + self.iters.writes()
    }

    /// From here on, or `still`, looks at what is written to. Gives the numbers of objects, for [`Arenas::wrote_to_older`].
    pub(crate) fn watch(&mut self, still: bool) -> [usize; 8] {
        [
            self.tensors.watch(still),
            self.lists.watch(still),
            self.dicts.watch(still),
            self.sets.watch(still),
            self.instances.watch(still),
            self.cells.watch(still),
            self.iters.watch(still),
            self.generators.watch(still),
        ]
    }

    /// Whether an object was written to that was known then.
    pub(crate) fn wrote_to_older(&self, then: [usize; 8]) -> bool {
        self.oldest().iter().zip(then).any(|(oldest, then)| *oldest < then)
    }

    /// The oldest objects that were written to since [`Arenas::watch`].
    pub(crate) fn oldest(&self) -> [usize; 8] {
        [
            self.tensors.oldest,
            self.lists.oldest,
            self.dicts.oldest,
            self.sets.oldest,
            self.instances.oldest,
            self.cells.oldest,
            self.iters.oldest,
            self.generators.oldest,
        ]
    }

    /// Has what was written to before count again, for who watched then.
    pub(crate) fn watch_also(&mut self, before: [usize; 8]) {
        let oldest = [
            &mut self.tensors.oldest,
            &mut self.lists.oldest,
            &mut self.dicts.oldest,
            &mut self.sets.oldest,
            &mut self.instances.oldest,
            &mut self.cells.oldest,
            &mut self.iters.oldest,
            &mut self.generators.oldest,
        ];
        oldest.into_iter().zip(before).for_each(|(oldest, before)| *oldest = before.min(*oldest));
    }

    /// Grows whenever an object may have changed, or what is known of it; making objects does not count.
    pub fn changes(&self) -> usize {
        self.tensors.changes
            + self.lists.changes
            + self.dicts.changes
            + self.sets.changes
            + self.instances.changes
            + self.cells.changes
            + self.iters.changes
            + self.generators.changes
    }
}

impl Value {
    /// `None`.
    pub const NONE: Value = Value::Const(Const::None);

    /// A bool.
    pub fn bool(b: bool) -> Value {
        Value::Const(Const::Bool(b))
    }

    /// An int.
    pub fn int(i: i64) -> Value {
        Value::Const(Const::Int(i))
    }

    /// A str.
    pub fn str(s: &str) -> Value {
        Value::Const(Const::str(s))
    }

    /// A size: a constant int or a symbolic one.
    pub fn dim(dim: Dim) -> Value {
        match dim {
            Dim::Const(c) => Value::int(c),
            other => Value::Int(other),
        }
    }

    /// An exact tuple.
    pub fn tuple(items: Vec<Value>) -> Value {
        Value::Tuple(Rc::new(Tuple { items, class: None, attrs: None, origin: None }))
    }

    /// An int or symbolic int (bools count as ints, as in Python) as a size.
    pub fn as_dim(&self) -> Option<Dim> {
        match self {
            Value::Const(Const::Int(i)) => Some(Dim::Const(*i)),
            Value::Const(Const::Bool(b)) => Some(Dim::Const(i64::from(*b))),
            Value::Int(d) => Some(d.clone()),
            _ => None,
        }
    }

    /// Whether it is an exact int (no bool), known or symbolic.
    pub fn is_int(&self) -> bool {
        matches!(self, Value::Int(_) | Value::Const(Const::Int(_) | Const::BigInt(_)))
    }

    /// A constant int (or bool).
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Value::Const(Const::Int(i)) => Some(*i),
            Value::Const(Const::Bool(b)) => Some(i64::from(*b)),
            _ => None,
        }
    }

    /// A constant str.
    pub fn as_str(&self) -> Option<&std::sync::Arc<str>> {
        match self {
            Value::Const(Const::Str(s)) => Some(s),
            _ => None,
        }
    }

    /// True for `None`.
    pub fn is_none(&self) -> bool {
        matches!(self, Value::Const(Const::None))
    }
}
