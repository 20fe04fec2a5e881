//! Objects of the client as the daemon sees them: raw slots, never the result of user code.

use crate::code::{Code, CodeHash, Const};
use crate::tensor::TensorDesc;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;

/// Names one live object of the client for the length of one request. Same id, same object (`is`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjId(pub u32);

/// One described object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Object {
    /// Its name in this request.
    pub id: ObjId,
    /// `type(obj)`.
    pub class: ObjId,
    /// Import path if the object *is* what that path names in a trusted root (`builtins`, `math`, `operator`, `torch`,
    /// ...), e.g. `torch._C._nn.linear`, `builtins.len`, `torch.Tensor`.
    pub path: Option<Arc<str>>,
    /// The instance `__dict__` object, read raw, if there is one.
    pub dict: Option<ObjId>,
    /// The rest, by kind.
    pub data: ObjectData,
}

/// What an object holds, by its most specific built-in base: an `OrderedDict` is a `Dict` whose class says so.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ObjectData {
    /// An immutable value of exact built-in type, tuples of such excepted; also torch dtypes, devices, layouts.
    Const(Const),
    /// An int, float or str of a subclass (an enum member, say): its value as the base type.
    ConstSubclass(Const),
    /// A tuple or a subclass of it (named tuples, `torch.Size`).
    Tuple(Vec<ObjId>),
    /// A list or a subclass.
    List(Vec<ObjId>),
    /// Exactly a `collections.deque`.
    Deque {
        /// Its items.
        items: Vec<ObjId>,
        /// `maxlen`
        longest: Option<usize>,
    },
    /// A set, in iteration order.
    Set(Vec<ObjId>),
    /// A frozenset, in iteration order.
    FrozenSet(Vec<ObjId>),
    /// A dict or a subclass with all its items, in order.
    Dict(Vec<(ObjId, ObjId)>),
    /// A dict too large to send whole (module globals, type dicts): ask per key.
    Namespace,
    /// An object of exactly this type, by its parts.
    Parts(PartsOf, Vec<ObjId>),
    /// An immutable object of a type of C: what the function at this path gives for these arguments.
    Made(Arc<str>, Vec<Const>),
    /// A tensor; the class tells `Tensor` from `Parameter`.
    Tensor(Box<TensorDesc>),
    /// A Python function.
    Function(Box<FunctionDesc>),
    /// A closure cell; `None` if empty.
    Cell(Option<ObjId>),
    /// A bound method.
    Method {
        /// `__func__`
        func: ObjId,
        /// `__self__`
        receiver: ObjId,
    },
    /// A built-in function or bound built-in method.
    Builtin {
        /// `__name__`
        name: Arc<str>,
        /// `__module__`
        module: Option<Arc<str>>,
        /// `__self__`, unless it is a module
        receiver: Option<ObjId>,
    },
    /// A method descriptor, slot wrapper, class-method descriptor of a C type.
    MethodDescriptor {
        /// `__objclass__`
        owner: ObjId,
        /// `__name__`
        name: Arc<str>,
    },
    /// A getset or member descriptor of a C type, or of a class with `__slots__`.
    DataDescriptor {
        /// `__objclass__`
        owner: ObjId,
        /// `__name__`
        name: Arc<str>,
        /// A member descriptor (a raw slot that may be read without running code).
        member: bool,
    },
    /// What named tuples read a field with: the item that it gives.
    TupleField(u32),
    /// `property`; missing parts are `None`.
    Property {
        /// `fget`
        get: Option<ObjId>,
        /// `fset`
        set: Option<ObjId>,
        /// `fdel`
        delete: Option<ObjId>,
    },
    /// `staticmethod`.
    StaticMethod(ObjId),
    /// `classmethod`.
    ClassMethod(ObjId),
    /// What `flambeau.compile` made of a Python function: the function. Its state is [`Object::dict`].
    Compiled(ObjId),
    /// A type.
    Class(Box<ClassDesc>),
    /// A Python module; its namespace is [`Object::dict`].
    Module(Arc<str>),
    /// Any other object with a Python-level class; its state is [`Object::dict`] and its slots.
    Instance,
    /// A `threading.local`, or of a subclass; what it holds for the calling thread is [`Object::dict`].
    ThreadLocal,
    /// An object whose inside is not readable without running code (generator, file, C extension type).
    Opaque,
    /// A built-in iterator whose next items can be told without advancing it.
    Iterator {
        /// A tuple of the next items, at most [`MOST_AHEAD`] and one.
        ahead: ObjId,
        /// The lists and dicts that it draws from.
        drawn_from: Vec<ObjId>,
    },
}

/// Items of an iterator that one frame may draw.
pub const MOST_AHEAD: usize = 64;

/// Names a type of C whose objects are references alone, one behind another, and never change: what such an object is, its
/// parts say. An index in [`PARTS`].
pub type PartsOf = u8;

/// One of these types.
pub struct PartsType {
    /// Import path of the type.
    pub path: &'static str,
    /// What its parts are called, in the order in which they lie in memory.
    pub names: &'static [&'static str],
}

/// A line each.
pub const PARTS: &[PartsType] = &[
    PartsType { path: "builtins.slice", names: &["start", "stop", "step"] },
    PartsType { path: "builtins.range", names: &["start", "stop", "step"] },
    PartsType { path: "functools.partial", names: &["func", "args", "keywords"] },
    PartsType { path: "types.MappingProxyType", names: &["<mapping>"] },
    PartsType { path: "types.UnionType", names: &["__args__"] },
];

/// The name of a part, if the type has one of this number.
pub fn part_name(of: PartsOf, at: u8) -> Option<&'static str> {
    PARTS.get(usize::from(of))?.names.get(usize::from(at)).copied()
}

/// A Python function's raw parts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FunctionDesc {
    /// Its code; the body comes with the same message or is known.
    pub code: CodeHash,
    /// `__name__`, which its code may no longer say: wrappers and users rename functions.
    pub name: Arc<str>,
    /// `__qualname__`
    pub qualname: Arc<str>,
    /// `__module__`
    pub module: Option<Arc<str>>,
    /// `__defaults__`, a tuple.
    pub defaults: Option<ObjId>,
    /// `__kwdefaults__`, a dict.
    pub kwdefaults: Option<ObjId>,
    /// The cells of `__closure__`.
    pub closure: Vec<ObjId>,
    /// `__globals__`, a namespace.
    pub globals: ObjId,
}

/// A type's raw parts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is one of CPython's type flags")]
pub struct ClassDesc {
    /// `__module__` of the type.
    pub module: Arc<str>,
    /// `__qualname__`
    pub qualname: Arc<str>,
    /// `__name__`
    pub name: Arc<str>,
    /// `__mro__`, itself first.
    pub mro: Vec<ObjId>,
    /// A class made by a `class` statement (heap type from Python), not by C.
    pub is_python: bool,
    /// `tp_getattro` is the generic one (no Python `__getattribute__`, no C override).
    pub generic_getattr: bool,
    /// `tp_setattro` is the generic one.
    pub generic_setattr: bool,
    /// Instances have a `__dict__`.
    pub has_dict: bool,
}

/// All that was described in one request so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Heap {
    /// Objects by id.
    pub objects: HashMap<ObjId, Arc<Object>>,
    /// Code objects by hash.
    pub codes: HashMap<CodeHash, Arc<Code>>,
    /// Answers to [`crate::oracle::Question::DictItem`] that came unasked; [`crate::oracle::Prefetched`] serves them.
    pub items: Vec<PrefetchedItem>,
    /// As `items`, for [`crate::oracle::Question::TypeLookup`].
    pub lookups: Vec<PrefetchedLookup>,
}

impl Heap {
    /// The described object, if it was.
    pub fn get(&self, id: ObjId) -> Option<&Arc<Object>> {
        self.objects.get(&id)
    }

    /// Adds descriptions; a later description of the same id wins.
    pub fn extend(&mut self, described: Described) {
        self.objects.extend(described.objects.into_iter().map(|o| (o.id, Arc::new(o))));
        self.codes.extend(described.codes.into_iter().map(|c| (c.hash, c)));
        self.items.extend(described.items);
        self.lookups.extend(described.lookups);
    }
}

/// Descriptions that travel with a snapshot or an answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Described {
    /// Objects not sent before.
    pub objects: Vec<Object>,
    /// Code objects not sent before.
    pub codes: Vec<Arc<Code>>,
    /// Items of namespaces that a trace will probably ask for.
    pub items: Vec<PrefetchedItem>,
    /// Type look-ups that a trace will probably ask for.
    pub lookups: Vec<PrefetchedLookup>,
}

/// `dict.get(key)`, answered before it was asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PrefetchedItem {
    /// The dict or namespace.
    pub dict: ObjId,
    /// The key, a str.
    pub key: Arc<str>,
    /// The value, if there is one.
    pub value: Option<ObjId>,
}

/// What `class.__mro__` has under `name`, answered before it was asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PrefetchedLookup {
    /// The type.
    pub class: ObjId,
    /// The attribute.
    pub name: Arc<str>,
    /// The class that has it and the raw value, if one has.
    pub found: Option<(ObjId, ObjId)>,
}
