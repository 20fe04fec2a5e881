//! How a trace ends: what to build, which effects to replay, what to return.

use crate::code::Const;
use crate::dim::Dim;
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
    /// A slice.
    Slice([BuildId; 3]),
    /// A range.
    Range([BuildId; 3]),
    /// `object.__new__(class)` with this instance dict (in order) and these slots.
    Instance {
        /// Its class.
        class: BuildId,
        /// Instance dict items.
        dict: Vec<(Arc<str>, BuildId)>,
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
    /// Raw dict store.
    SetItem(BuildId, BuildId, BuildId),
    /// Raw dict delete.
    DelItem(BuildId, BuildId),
    /// `list[:] = items`.
    SetList(BuildId, Vec<BuildId>),
    /// `set.clear(); set.update(items)`.
    SetSet(BuildId, Vec<BuildId>),
    /// `dict.clear()`, then these items in order.
    SetDict(BuildId, Vec<(BuildId, BuildId)>),
    /// Cell contents; `None` empties it.
    SetCell(BuildId, Option<BuildId>),
    /// `tensor.grad = value` and other C-level setters through the type's descriptor, e.g. `grad`, `data`, `requires_grad`.
    SetDescriptor(BuildId, Arc<str>, BuildId),
    /// Sets ambient state that the frame changed for its caller, e.g. `torch.set_grad_enabled(False)`.
    SetGradMode(bool),
}

/// The end of a frame.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Exit {
    /// Objects to make, as needed.
    pub builds: Vec<Build>,
    /// Changes, in order.
    pub effects: Vec<Effect>,
    /// What the frame returns.
    pub result: Option<BuildId>,
}
