//! How a trace ends: what to build, which effects to replay, what to return.

use crate::code::{CodeHash, Const};
use crate::dim::Dim;
use crate::kernel::DType;
use crate::reason::Reason;
use crate::source::SourceId;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Index into [`Exit::builds`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BuildId(pub u32);

/// One object to make (once; sharing is by id). Parts come before wholes, except through [`Effect`]s.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Build {
    /// The graph's output with this index.
    Output(u32),
    /// An object that exists already.
    Source(SourceId),
    /// A constant.
    Const(Const),
    /// A symbolic int.
    Dim(Dim),
    /// The object at an import path.
    Path(Arc<str>),
    /// A tuple, exact or of the class (built by `tuple.__new__`).
    Tuple(Vec<BuildId>, Option<BuildId>),
    /// A list.
    List(Vec<BuildId>),
    /// A dict; of the class if given (`OrderedDict`, ...; built by its base `__new__` and raw item stores).
    Dict(Vec<(BuildId, BuildId)>, Option<BuildId>),
    /// A set.
    Set(Vec<BuildId>),
    /// A frozenset.
    FrozenSet(Vec<BuildId>),
    /// `object.__new__(class)` with this instance dict (in order) and these slots.
    Instance {
        /// Its class.
        class: BuildId,
        /// Instance dict items.
        dict: Vec<(Arc<str>, BuildId)>,
    },
    /// What a built-in at an import path gives for these arguments, where that runs no user code (`zip(a, b)`).
    Call(Arc<str>, Vec<BuildId>),
    /// `iter(x)`, advanced by so many items; `x` is of an exact built-in type. Of a list, set to that index; of a
    /// reversed iterator of a list, so many items before its end.
    Iter(BuildId, u64),
    /// The generator that `function(state, None)` gives: one that goes on in the middle.
    Generator {
        /// The function.
        function: BuildId,
        /// Its first argument.
        state: BuildId,
        /// It was begun: it is advanced once, to the `yield` where it waits.
        started: bool,
    },
    /// The generator that a call of a generator function gives, not begun yet.
    NewGenerator {
        /// The function.
        function: BuildId,
        /// Positional arguments.
        args: Vec<BuildId>,
        /// Keyword arguments.
        keywords: Vec<(Arc<str>, BuildId)>,
    },
    /// A bound method.
    Method(BuildId, BuildId),
    /// A new closure cell (contents are stored by effect).
    Cell,
    /// A function made in the trace.
    Function {
        /// The function whose code's constants hold this one's code, then the index there; or a code constant.
        code: Const,
        /// `__globals__`
        globals: SourceId,
        /// `__qualname__`
        qualname: Arc<str>,
        /// Defaults tuple.
        defaults: Option<BuildId>,
        /// Keyword defaults dict.
        kwdefaults: Option<BuildId>,
        /// Cells.
        closure: Vec<BuildId>,
    },
}

/// One change the user can see, in program order, applied after the graph ran. None runs user code.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Effect {
    /// `obj.__dict__[name] = value`, raw.
    SetAttr(BuildId, Arc<str>, BuildId),
    /// `del obj.__dict__[name]`, raw.
    DelAttr(BuildId, Arc<str>),
    /// Raw slot store.
    SetSlot(BuildId, Arc<str>, BuildId),
    /// Empties a slot, if it is not.
    DelSlot(BuildId, Arc<str>),
    /// Raw dict store.
    SetItem(BuildId, BuildId, BuildId),
    /// Raw dict delete.
    DelItem(BuildId, BuildId),
    /// `list[:] = items`.
    SetList(BuildId, Vec<BuildId>),
    /// The items of a deque. False: it has as many as before, and its iterators go on.
    SetDeque(BuildId, Vec<BuildId>, bool),
    /// `list[len(list):] = items`, or `deque.extend(items)`.
    ExtendList(BuildId, Vec<BuildId>),
    /// `set.method(*arguments)` of an exact set: `add`, `discard`, `clear`, `update` and its like.
    ChangeSet(BuildId, Arc<str>, Vec<BuildId>),
    /// `dict.clear()`, then these items in order.
    SetDict(BuildId, Vec<(BuildId, BuildId)>),
    /// Cell contents; `None` empties it.
    SetCell(BuildId, Option<BuildId>),
    /// `tensor.grad = value` and other C-level setters through the type's descriptor, e.g. `grad`, `data`, `requires_grad`.
    SetDescriptor(BuildId, Arc<str>, BuildId),
    /// `tensor.grad = None`, which the frame did before it called torch, so that the memory is there for what it calls: done before
    /// the graph runs, unless that reads the gradient.
    DropGrad(BuildId),
    /// Sets ambient state that the frame changed for its caller, e.g. `torch.set_grad_enabled(False)`.
    SetGradMode(bool),
    /// What the frame leaves of autocast.
    Autocast {
        /// How many regions were entered and not left; less than none: so many were left.
        entered: i16,
        /// Whether what is kept of parameters in other types is forgotten.
        clears: bool,
        /// Whether it is kept from now on; `None`: as before.
        keeps: Option<bool>,
        /// By names of kinds of devices whether it is on from now on, and its type.
        switched: Vec<(Arc<str>, bool, DType)>,
    },
    /// Sets how the calling thread takes graph breaks: a region that the frame entered or left before a break of its own.
    SetBreaks {
        /// As [`crate::frame::TraceOptions::nested_breaks`].
        nested: bool,
        /// As [`crate::frame::TraceOptions::error_on_break`].
        error: bool,
    },
    /// `next(iterator)`, so many times or to its end: of a built-in iterator.
    Advance(BuildId, u32),
    /// `function(*arguments, **keywords)`, whose result its `lru_cache` keeps: the cache notes that it was asked for.
    Recall {
        /// The function.
        function: BuildId,
        /// Positional arguments.
        args: Vec<BuildId>,
        /// Others.
        keywords: Vec<(Arc<str>, BuildId)>,
        /// What the frame found out that the call gives, which the cache keeps from now on; `None`: it keeps it already.
        found: Option<BuildId>,
    },
}

/// The end of a frame: what it leaves behind, then how it goes on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Exit {
    /// Objects to make, as needed.
    pub builds: Vec<Build>,
    /// Changes, in order.
    pub effects: Vec<Effect>,
    /// How the frame ends.
    pub end: End,
    /// Calls of the graph that may raise for what their tensors hold stand in `try` or `with` blocks: if one does, the
    /// original code may go on.
    pub handles: bool,
}

/// How a frame ends, once its effects are applied.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum End {
    /// It returns `None` (a frame without a result of its own).
    #[default]
    Nothing,
    /// It returns this.
    Return(BuildId),
    /// It breaks off: something runs in plain Python, then a resume function goes on.
    Break(Box<Break>),
    /// It does not run compiled: calls that pass the guards, which are the facts that this follows from, run as plain
    /// Python. Kept so that nobody traces the frame again to find out.
    Refused(Box<Reason>),
}

/// A graph break. The order is: graph, builds, effects, action, resume function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Break {
    /// Why, and the user's stack.
    pub reason: Reason,
    /// The function that runs the unsupported instruction (or a frame's untraced rest), and its arguments as a tuple.
    /// It is wrapped in one thin function per inlined frame, so that Python's stack looks as it does in eager code.
    pub action: (BuildId, BuildId),
    /// How to go on with what the action gave.
    pub then: Then,
    /// Where to go on if the action raises; `None` where no frame of the trace has a handler.
    pub catch: Option<Catch>,
    /// Per chain of resume functions that this names (see [`Resume::frames`]): what loops of the program may have changed
    /// when they are called again. Ints there are symbolic from the first compile on.
    pub varying: Vec<(CodeHash, Vec<Varying>)>,
}

/// Where a resume function's arguments hold something that a loop changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Varying {
    /// The value that it is resumed with.
    Value,
    /// In the state, at these indices of nested tuples.
    State(Vec<u32>),
}

/// How a broken frame goes on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Then {
    /// The action's result is the frame's.
    Return,
    /// Resume with the result.
    Resume(Resume),
    /// The action gave a bool: resume (with `None`) on the side it says.
    Branch {
        /// For `True`.
        yes: Resume,
        /// For `False`.
        no: Resume,
    },
    /// The action gave a 1-tuple with the iterator's next item (resume with the item), or `None` at its end.
    Iterate {
        /// For an item.
        body: Resume,
        /// At the end, resumed with `None`.
        done: Resume,
    },
}

/// A resume function and the live state it restores: it is called as `function(state, value)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resume {
    /// The function.
    pub function: BuildId,
    /// Its first argument, a tuple.
    pub state: BuildId,
    /// Names its code and those of the resume functions it calls: what is compiled for one says nothing of another.
    pub frames: CodeHash,
}

/// How to go on with an exception of the action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Catch {
    /// Called with the exception and its `__context__`, as a tuple; raises it where the broken frame would.
    pub resume: Resume,
    /// Traceback entries of thin frames to drop from its front: the resume function puts its own there.
    pub frames: u32,
}

impl Exit {
    /// An exit that returns this build.
    pub fn returning(builds: Vec<Build>, effects: Vec<Effect>, result: BuildId) -> Exit {
        Exit { builds, effects, end: End::Return(result), handles: false }
    }

    /// The break the frame ends in.
    pub fn broken(&self) -> Option<&Break> {
        match &self.end {
            End::Break(b) => Some(b),
            End::Nothing | End::Return(_) | End::Refused(_) => None,
        }
    }

    /// Why the frame does not run compiled, where it does not.
    pub fn refused(&self) -> Option<&Reason> {
        match &self.end {
            End::Refused(reason) => Some(reason),
            End::Nothing | End::Return(_) | End::Break(_) => None,
        }
    }
}
