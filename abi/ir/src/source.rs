//! Sources: paths from a frame's roots to a value. A trace's sources form one tree, kept as a table.

use crate::code::Const;
use crate::object::{PartsOf, part_name};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Index into a [`SourceTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SourceId(pub u32);

/// One step from a value to another. Reading a step runs no user code.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Step {
    /// Root: the frame's argument in this `localsplus` slot.
    Arg(u32),
    /// Root: the function object being called.
    Function,
    /// Root: `sys.modules[name]`.
    SysModule(Arc<str>),
    /// Root: the `builtins` namespace.
    Builtins,
    /// The instance `__dict__`, raw.
    Dict,
    /// The attributes that a `threading.local` has in the calling thread, a dict.
    ThreadDict,
    /// Item of a dict by constant key.
    Item(Const),
    /// The key at this position of a dict's order.
    Key(u32),
    /// The value at this position of a dict's order.
    Value(u32),
    /// Item of a list or tuple (or subclass) by index, raw.
    Index(u32),
    /// The value of a raw slot (member descriptor).
    Slot(Arc<str>),
    /// `type(x)`.
    Class,
    /// What `_PyType_Lookup(x, name)` finds, where x is a type.
    TypeAttr(Arc<str>),
    /// `__globals__` of a function.
    Globals,
    /// `__name__` of a function.
    FunctionName,
    /// `__qualname__` of a function.
    QualName,
    /// `__name__` of a class that Python code can rename.
    TypeName,
    /// `__qualname__` of such a class.
    TypeQualName,
    /// `__module__` of a function.
    ModuleName,
    /// `__defaults__`
    Defaults,
    /// `__kwdefaults__`
    KwDefaults,
    /// The closure cell with this index.
    Closure(u32),
    /// The constant with this index of a function's code.
    CodeConst(u32),
    /// What a cell holds.
    CellContents,
    /// `__func__` of a bound method.
    MethodFunc,
    /// `__self__` of a bound method or bound built-in.
    Receiver,
    /// `fget` of a property.
    PropertyGet,
    /// `fset` of a property.
    PropertySet,
    /// `fdel` of a property.
    PropertyDelete,
    /// The function inside a `staticmethod` or `classmethod`.
    Wrapped,
    /// The Python function behind a compiled callable.
    Original,
    /// The function that an `lru_cache` calls for results that it does not keep.
    Uncached,
    /// A part, by its number, of an object of exactly this type.
    Part(PartsOf, u8),
    /// The class at this position of a type's MRO.
    Mro(u32),
    /// `.grad` of a tensor.
    Grad,
    /// The next items of a built-in iterator, as a tuple: at least as many as the frame draws, and one more if there is one.
    Ahead,
    /// A list or dict that a built-in iterator draws from, by its number.
    DrawnFrom(u32),
    /// What a context variable gives; its own default, where it has one, only if that is asked for.
    ContextValue {
        /// Whether it is.
        own_default: bool,
    },
    /// The result that an `lru_cache` keeps for a call with these arguments.
    Cached(CallKey<SourceId>),
}

/// Arguments by which an `lru_cache` knows a call. `T` names objects.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CallKey<T> {
    /// Positional ones.
    pub args: Vec<KeyPart<T>>,
    /// Those with names, in the call's order.
    pub keywords: Vec<(Arc<str>, KeyPart<T>)>,
}

/// One argument, or an item of one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum KeyPart<T> {
    /// A number, str, ...
    Const(Const),
    /// A tuple, or `torch.Size`.
    Tuple(#[serde(deserialize_with = "crate::bounds::nested_items")] Vec<KeyPart<T>>),
    /// An object that is compared by identity.
    Object(T),
}

impl<T> CallKey<T> {
    /// With other names of the objects.
    pub fn map<U>(&self, name: &mut impl FnMut(&T) -> U) -> CallKey<U> {
        CallKey {
            args: self.args.iter().map(|part| part.map(name)).collect(),
            keywords: self.keywords.iter().map(|(word, part)| (word.clone(), part.map(name))).collect(),
        }
    }
}

/// How one key is to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Likeness {
    /// Equal, and of the same types.
    Same,
    /// A dict would not take one for the other.
    Other,
    /// Equal though of other types, or user code has to say.
    Unclear,
}

impl Likeness {
    /// Of two whose items are so.
    #[must_use]
    pub fn and(self, next: Likeness) -> Likeness {
        match (self, next) {
            (Likeness::Other, _) | (_, Likeness::Other) => Likeness::Other,
            (Likeness::Unclear, _) | (_, Likeness::Unclear) => Likeness::Unclear,
            _ => Likeness::Same,
        }
    }
}

impl<T> KeyPart<T> {
    fn map<U>(&self, name: &mut impl FnMut(&T) -> U) -> KeyPart<U> {
        match self {
            KeyPart::Const(value) => KeyPart::Const(value.clone()),
            KeyPart::Tuple(parts) => KeyPart::Tuple(parts.iter().map(|part| part.map(name)).collect()),
            KeyPart::Object(object) => KeyPart::Object(name(object)),
        }
    }
}

/// One entry of the table.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SourceNode {
    /// What the step is taken from; `None` for roots. Smaller than the node's own index.
    pub base: Option<SourceId>,
    /// The step.
    pub step: Step,
}

/// The sources of one trace, parents before children, each path once.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SourceTable {
    nodes: Vec<SourceNode>,
    #[serde(skip)]
    index: std::collections::HashMap<SourceNode, SourceId>,
}

impl PartialEq for SourceTable {
    fn eq(&self, other: &Self) -> bool {
        self.nodes == other.nodes
    }
}

impl SourceTable {
    /// The source `step` of `base`, added if new.
    pub fn intern(&mut self, base: Option<SourceId>, step: Step) -> SourceId {
        let node = SourceNode { base, step };
        let next = SourceId(self.nodes.len() as u32);
        let id = *self.index.entry(node.clone()).or_insert(next);
        if id == next {
            self.nodes.push(node);
        }
        id
    }

    /// All nodes, parents first.
    pub fn nodes(&self) -> &[SourceNode] {
        &self.nodes
    }

    /// One node.
    pub fn get(&self, id: SourceId) -> &SourceNode {
        &self.nodes[id.0 as usize]
    }

    /// The steps to a source, from its root.
    pub fn path(&self, id: SourceId) -> Vec<Step> {
        let node = self.get(id);
        let mut path = node.base.map_or_else(Vec::new, |base| self.path(base));
        path.push(node.step.clone());
        path
    }

    /// Whether the source is at the end of these steps from a root.
    pub fn is_at(&self, id: SourceId, steps: &[Step]) -> bool {
        let Some((last, before)) = steps.split_last() else { return false };
        let node = self.get(id);
        node.step == *last && node.base.map_or(before.is_empty(), |base| self.is_at(base, before))
    }

    /// Arguments of a call as they are written there.
    pub fn arguments(&self, key: &CallKey<SourceId>) -> String {
        let words = key.keywords.iter().map(|(word, part)| format!("{word}={}", self.part(part)));
        key.args.iter().map(|part| self.part(part)).chain(words).collect::<Vec<_>>().join(", ")
    }

    fn part(&self, part: &KeyPart<SourceId>) -> String {
        match part {
            KeyPart::Const(value) => crate::text::constant(value),
            KeyPart::Tuple(parts) => {
                format!("({},)", parts.iter().map(|part| self.part(part)).collect::<Vec<_>>().join(", "))
            }
            KeyPart::Object(source) => self.display(*source),
        }
    }

    /// Readable form, e.g. `L[0].__dict__['weight']`.
    pub fn display(&self, id: SourceId) -> String {
        let node = self.get(id);
        let base = node.base.map(|b| self.display(b)).unwrap_or_default();
        match &node.step {
            Step::Arg(i) => format!("arg{i}"),
            Step::Function => "function".into(),
            Step::SysModule(name) => format!("sys.modules['{name}']"),
            Step::Builtins => "builtins".into(),
            Step::Dict => format!("{base}.__dict__"),
            Step::ThreadDict => format!("the calling thread's {base}.__dict__"),
            Step::Item(Const::Str(s)) => format!("{base}['{s}']"),
            Step::Item(k) => format!("{base}[{k:?}]"),
            Step::Key(i) => format!("list({base})[{i}]"),
            Step::Value(i) => format!("list({base}.values())[{i}]"),
            Step::Index(i) => format!("{base}[{i}]"),
            Step::Class => format!("type({base})"),
            Step::Slot(name) | Step::TypeAttr(name) => format!("{base}.{name}"),
            Step::Globals => format!("{base}.__globals__"),
            Step::FunctionName | Step::TypeName => format!("{base}.__name__"),
            Step::QualName | Step::TypeQualName => format!("{base}.__qualname__"),
            Step::ModuleName => format!("{base}.__module__"),
            Step::Defaults => format!("{base}.__defaults__"),
            Step::KwDefaults => format!("{base}.__kwdefaults__"),
            Step::Closure(i) => format!("{base}.__closure__[{i}]"),
            Step::CellContents => format!("{base}.cell_contents"),
            Step::MethodFunc => format!("{base}.__func__"),
            Step::Receiver => format!("{base}.__self__"),
            Step::PropertyGet => format!("{base}.fget"),
            Step::PropertySet => format!("{base}.fset"),
            Step::PropertyDelete => format!("{base}.fdel"),
            Step::Wrapped => format!("{base}.__wrapped__"),
            Step::Original | Step::Uncached => format!("{base}.<function>"),
            Step::Part(of, at) => format!("{base}.{}", part_name(*of, *at).unwrap_or("?")),
            Step::Mro(i) => format!("{base}.__mro__[{i}]"),
            Step::Grad => format!("{base}.grad"),
            Step::Ahead => format!("the items ahead of {base}"),
            Step::CodeConst(i) => format!("{base}.__code__.co_consts[{i}]"),
            Step::ContextValue { .. } => format!("{base}.get()"),
            Step::Cached(key) => format!("{base}({})", self.arguments(key)),
            Step::DrawnFrom(0) => format!("what {base} draws from"),
            Step::DrawnFrom(i) => format!("what {base} draws from ({i})"),
        }
    }
}
