//! Guards: facts a trace read, each tied to a source.

use crate::code::{CodeHash, Const};
use crate::device::RUNNING;
use crate::dim::{Dim, SymId};
use crate::kernel::DType;
use crate::source::{CallKey, SourceId, SourceTable};
use crate::tensor::Device;
use crate::text::constant;
use crate::text::print_guard::{of_tensor, of_thread, sign};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// One fact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Guard {
    /// Of what.
    pub source: SourceId,
    /// What holds.
    pub kind: GuardKind,
}

/// What `match` takes the instances of a class for: a fact of the class that is inherited, and that registering it with an
/// abstract class changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Collection {
    /// `Py_TPFLAGS_SEQUENCE`
    Sequence,
    /// `Py_TPFLAGS_MAPPING`
    Mapping,
    /// Neither.
    Neither,
}

/// What must hold of a source's value. All are checked by value without running user code.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum GuardKind {
    /// The value's exact type has this name. What was read *on* the type has guards of its own.
    Type(ClassRef),
    /// The value *is a type* with this name.
    IsClass(ClassRef),
    /// Exactly this constant: same type, same bits.
    Equals(Const),
    /// An int, float or str subclass whose base value is this.
    BaseEquals(Const),
    /// The very object that this import path names now (trusted roots only).
    IsPath(Arc<str>),
    /// A Python function with this code, this number of closure cells and presence of defaults.
    Function {
        /// Its code.
        code: CodeHash,
    },
    /// A usual strided tensor with this metadata.
    Tensor(TensorGuard),
    /// `maxlen` of a deque.
    Longest(Option<usize>),
    /// Length of a list, tuple, set or dict (or subclass) or of a deque, read raw.
    Len(usize),
    /// As `Len`: no fewer.
    AtLeast(usize),
    /// A dict's exact keys in order (constants).
    Keys(Vec<Const>),
    /// A set's elements (constants), order free.
    Elements(Vec<Const>),
    /// A set's elements (constants), in the order in which it gives them.
    InOrder(Vec<Const>),
    /// An immutable object of a type of C, equal to what the function at this path gives for these arguments.
    Made(Arc<str>, Vec<Const>),
    /// A dict has no such key.
    NoItem(Const),
    /// This very object is none of a dict's keys.
    NoKey(KeyObject),
    /// A type finds no such attribute in its MRO.
    NoTypeAttr(Arc<str>),
    /// An abstract class that no class is registered with, nor with one of its subclasses.
    NoRegistered,
    /// A class that is not registered with this abstract class, nor with one below it.
    NotRegistered(KeyObject),
    /// A class whose instances patterns take for this.
    Collection(Collection),
    /// The value has no instance `__dict__`, or an empty one.
    NoAttributes,
    /// A tensor that has no hooks on its gradient.
    NoHooks,
    /// No weak reference to the value is alive; it is an instance of a class of Python.
    NoWeakReferences,
    /// `None`, a number, `str` or `bytes` of an exact built-in type, a `torch.Tensor` or a `Parameter`: its end is not seen.
    EndsUnseen,
    /// A raw slot is empty; the source is the object.
    NoSlot(Arc<str>),
    /// A context variable has no value; the source is the variable.
    NoContextValue {
        /// Nor a default of its own.
        own_default: bool,
    },
    /// An `lru_cache` keeps no result for a call with these arguments; the source is the function.
    NotCached {
        /// The arguments.
        key: CallKey<SourceId>,
        /// It is certain, whatever else may be equal to them, and so many results more fit into the cache; `None`: none is
        /// found under these very arguments.
        room: Option<u32>,
    },
    /// `sys.modules` holds no such module; the source is the frame's function.
    NoSysModule(Arc<str>),
    /// A cell is empty.
    EmptyCell,
    /// It is what named tuples read a field with, and gives this item.
    TupleField(u32),
    /// The same object as another source's value.
    Same(SourceId),
    /// Not the same object as another source's value.
    NotSame(SourceId),
    /// The objects at these sources (this one included) are pairwise different ones.
    Distinct(Vec<SourceId>),
    /// The tensors at these sources (this one included) have pairwise disjoint storages.
    DisjointStorage(Vec<SourceId>),
    /// A method of a built-in type, bound to an object: the one that the descriptor at this path describes.
    MethodOf(Arc<str>),
    /// A function of the process's state, at this path, gives this; the source is the frame's function.
    Gives(Arc<str>, Const),
    /// The thread's ambient state; the source is the frame's function.
    Ambient(Box<Ambient>),
    /// A relation between sizes of inputs; the source is the frame's function.
    Relation(Relation, Dim, Dim),
}

impl GuardKind {
    /// Calls `visit` with every symbol in it.
    pub fn symbols(&self, visit: &mut impl FnMut(SymId)) {
        match self {
            GuardKind::Tensor(of) => of.sizes.iter().chain(&of.strides).for_each(|dim| dim.symbols(visit)),
            GuardKind::Relation(_, a, b) => [a, b].into_iter().for_each(|dim| dim.symbols(visit)),
            _ => {}
        }
    }

    /// Facts of one value (0) come before facts between values (1), those before relations of sizes (2), which need symbols
    /// bound. Costs are relative: a pointer compare is 0, a walk over elements 5.
    pub fn phase_and_cost(&self) -> (u8, u8) {
        match self {
            GuardKind::Type(_) | GuardKind::IsClass(_) => (0, 0),
            GuardKind::Equals(_)
            | GuardKind::BaseEquals(_)
            | GuardKind::Made(..)
            | GuardKind::IsPath(_)
            | GuardKind::NoAttributes
            | GuardKind::NoWeakReferences
            | GuardKind::NoHooks
            | GuardKind::EndsUnseen
            | GuardKind::MethodOf(_)
            | GuardKind::EmptyCell
            | GuardKind::TupleField(_)
            | GuardKind::Len(_)
            | GuardKind::AtLeast(_)
            | GuardKind::Longest(_)
            | GuardKind::Function { .. } => (0, 1),
            GuardKind::Tensor(_) | GuardKind::Ambient(_) => (0, 2),
            GuardKind::NoItem(_)
            | GuardKind::NoKey(KeyObject::Path(_))
            | GuardKind::NoSlot(_)
            | GuardKind::NoContextValue { .. }
            | GuardKind::NotCached { .. }
            | GuardKind::NoSysModule(_)
            | GuardKind::Gives(..)
            | GuardKind::NoRegistered
            | GuardKind::NotRegistered(KeyObject::Path(_))
            | GuardKind::Collection(_) => (0, 3),
            GuardKind::NoTypeAttr(_) => (0, 4),
            GuardKind::Keys(_) | GuardKind::Elements(_) | GuardKind::InOrder(_) => (0, 5),
            GuardKind::Same(_) | GuardKind::NotSame(_) => (1, 0),
            GuardKind::Relation(..) => (2, 0),
            GuardKind::Distinct(_)
            | GuardKind::DisjointStorage(_)
            | GuardKind::NoKey(KeyObject::Source(_))
            | GuardKind::NotRegistered(KeyObject::Source(_)) => (2, 1),
        }
    }

    /// What it says of the value called `of`, as a Python expression where there is one. `name` gives what other sources are
    /// called.
    pub fn in_words(&self, of: &str, name: &dyn Fn(SourceId) -> String) -> String {
        let constants = |items: &[Const]| items.iter().map(constant).collect::<Vec<_>>().join(", ");
        let names = |ids: &[SourceId]| ids.iter().map(|id| name(*id)).collect::<Vec<_>>().join(", ");
        match self {
            GuardKind::Type(class) => format!("type({of}) is {}.{}", class.module, class.qualname),
            GuardKind::IsClass(class) => format!("{of} is the class {}.{}", class.module, class.qualname),
            GuardKind::Equals(value) => format!("{of} == {}", constant(value)),
            GuardKind::BaseEquals(value) => format!("the base value of {of} == {}", constant(value)),
            GuardKind::Made(path, args) => format!("{of} == {path}({})", constants(args)),
            GuardKind::IsPath(path) => format!("{of} is {path}"),
            GuardKind::Function { code } => format!("{of} is a function with the code {code}"),
            GuardKind::Tensor(tensor) => format!("{of} is {}", of_tensor(tensor)),
            GuardKind::Len(n) => format!("len({of}) == {n}"),
            GuardKind::AtLeast(n) => format!("len({of}) >= {n}"),
            GuardKind::Longest(None) => format!("{of}.maxlen is None"),
            GuardKind::Longest(Some(n)) => format!("{of}.maxlen == {n}"),
            GuardKind::Keys(keys) => format!("list({of}) == [{}]", constants(keys)),
            GuardKind::Elements(items) => format!("{of} == {{{}}}", constants(items)),
            GuardKind::InOrder(items) => format!("list({of}) == [{}]", constants(items)),
            GuardKind::NoItem(key) => format!("{} not in {of}", constant(key)),
            GuardKind::NoKey(KeyObject::Path(path)) => format!("{path} not in {of}"),
            GuardKind::NoKey(KeyObject::Source(key)) => format!("{} not in {of}", name(*key)),
            GuardKind::NoTypeAttr(attr) => format!("{of} has no attribute {attr:?}"),
            GuardKind::NoRegistered => format!("nothing is registered with {of}"),
            GuardKind::NotRegistered(KeyObject::Path(path)) => format!("{of} is not registered with {path}"),
            GuardKind::NotRegistered(KeyObject::Source(with)) => format!("{of} is not registered with {}", name(*with)),
            GuardKind::Collection(Collection::Neither) => {
                format!("instances of {of} match no sequence or mapping pattern")
            }
            GuardKind::Collection(Collection::Sequence) => format!("instances of {of} match sequence patterns"),
            GuardKind::Collection(Collection::Mapping) => format!("instances of {of} match mapping patterns"),
            GuardKind::NoAttributes => format!("{of} has nothing in its __dict__"),
            GuardKind::NoHooks => format!("no hooks on the gradient of {of}"),
            GuardKind::NoWeakReferences => format!("no weak reference to {of}"),
            GuardKind::EndsUnseen => format!("{of} is None, a number, a str, bytes or a tensor"),
            GuardKind::NoSlot(slot) => format!("the slot {slot} of {of} is empty"),
            GuardKind::NoContextValue { .. } => format!("{of} has no value"),
            GuardKind::NotCached { .. } => format!("{of} keeps no result for these arguments"),
            GuardKind::NoSysModule(module) => format!("{module:?} not in sys.modules"),
            GuardKind::TupleField(item) => format!("{of} gives item {item}"),
            GuardKind::MethodOf(path) => format!("{of} is a bound {path}"),
            GuardKind::Gives(path, value) => format!("{path}() == {}", constant(value)),
            GuardKind::EmptyCell => format!("the cell {of} is empty"),
            GuardKind::Same(other) => format!("{of} is {}", name(*other)),
            GuardKind::NotSame(other) => format!("{of} is not {}", name(*other)),
            GuardKind::Distinct(all) => format!("different objects: {}", names(all)),
            GuardKind::DisjointStorage(all) => format!("disjoint memory: {}", names(all)),
            GuardKind::Ambient(ambient) => format!("torch's state: {}", of_thread(ambient)),
            GuardKind::Relation(relation, a, b) => format!("{a} {} {b}", sign(*relation)),
        }
    }
}

/// An object that is known by itself: a key that dicts compare by identity, an abstract class.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum KeyObject {
    /// What this import path names (trusted roots only).
    Path(Arc<str>),
    /// A source's value.
    Source(SourceId),
}

/// A class by its names.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ClassRef {
    /// `__module__`
    pub module: Arc<str>,
    /// `__qualname__`
    pub qualname: Arc<str>,
}

/// What is checked of a tensor.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TensorGuard {
    /// Exact Python type.
    pub class: ClassRef,
    /// Element type.
    pub dtype: DType,
    /// Device, with its index.
    pub device: Device,
    /// A size that is an expression is not compared: it binds or is covered by relations.
    pub sizes: Vec<Dim>,
    /// As sizes.
    pub strides: Vec<Dim>,
    /// Torch's flag.
    pub requires_grad: bool,
    /// Whether it is a leaf or a view; only where the trace depends on it.
    pub is_leaf_or_view: Option<bool>,
    /// `DispatchKeySet::raw_repr()`.
    pub dispatch_keys: u64,
}

/// Comparison of two dims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are the operators")]
pub enum Relation {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

impl Relation {
    /// Whether it holds between two numbers.
    pub fn holds(self, a: i64, b: i64) -> bool {
        match self {
            Relation::Eq => a == b,
            Relation::Ne => a != b,
            Relation::Lt => a < b,
            Relation::Le => a <= b,
            Relation::Gt => a > b,
            Relation::Ge => a >= b,
        }
    }
}

/// The state of the calling thread that changes what torch calls do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is one of torch's switches")]
pub struct Ambient {
    /// `torch.is_grad_enabled()`
    pub grad_enabled: bool,
    /// `torch.is_inference_mode_enabled()`
    pub inference_mode: bool,
    /// Autocast for each kind of [`crate::device::DeviceKind::running`]: enabled, dtype.
    pub autocast: [(bool, u8); RUNNING],
    /// `torch.is_autocast_cache_enabled()`
    pub autocast_cache: bool,
    /// `torch.get_default_dtype()`, torch's number.
    pub default_dtype: u8,
    /// `torch.get_default_device()` where one was set.
    pub default_device: Option<Device>,
    /// `torch.are_deterministic_algorithms_enabled()`, and its warn-only flag.
    pub deterministic: (bool, bool),
    /// Float32 matmul precision and switches of torch's libraries, two bits each (client-defined packing); in a guard
    /// [`Ambient::ANY_PRECISION`] where the trace did not ask for them: torch's functions read them when they are called.
    pub precision: u32,
    /// Scaled-dot-product back ends enabled, two bits each; see [`Ambient::SDPA_FLASH`].
    pub sdpa: u32,
    /// Saved-tensor hooks active.
    pub saved_tensor_hooks: bool,
    /// Torch-function modes on the stack, other than the default device's.
    pub function_modes: u32,
    /// Dispatch modes on the stack.
    pub dispatch_modes: u32,
    /// functorch levels.
    pub functorch_levels: u32,
    /// Forward-mode AD level active.
    pub forward_ad: bool,
    /// Torch-function handling disabled for subclasses.
    pub torch_function_disabled: bool,
    /// Thread-local dispatch key sets: included, excluded (raw).
    pub tls_keys: (u64, u64),
    /// Anomaly mode, tracing by `torch.jit`, profiler hooks: bit set (client-defined packing).
    pub observers: u32,
    /// The current CUDA device, 0 until CUDA is in use; -1 where it cannot be asked for.
    pub current_device: i16,
}

impl Ambient {
    /// Whether torch converts arguments of calls, on any device.
    pub fn autocasts(&self) -> bool {
        self.autocast.iter().any(|(enabled, _)| *enabled)
    }

    /// The bit of `sdpa` that allows the flash kernel.
    pub const SDPA_FLASH: u32 = 1 << 2;
    /// The bit of `observers` for `torch.jit.trace`.
    pub const TRACING: u32 = 1 << 1;
    /// No state of the switches.
    pub const ANY_PRECISION: u32 = u32::MAX;
}

/// The guards of one compiled frame in canonical form: deduplicated, parents first, cheap and often-failing first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GuardProgram {
    /// Only sources that guards, inputs or exits use.
    pub sources: SourceTable,
    /// In checking order.
    pub guards: Vec<Guard>,
}
