//! A frame to compile: its identity, its arguments, what it can reach, and the options that shape its trace.

use crate::code::CodeHash;
use crate::guard::Ambient;
use crate::object::{Heap, ObjId};
use crate::source::Step;
use serde::{Deserialize, Serialize};

/// A frame's identity: its code, and for a resume point where it resumes and with what live state.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FrameId {
    /// The user's code object.
    pub code: CodeHash,
    /// Empty for a function's start.
    pub path: Vec<ResumePoint>,
}

/// Where a frame resumes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ResumePoint {
    /// Instruction offset, in code units.
    pub offset: u32,
    /// Hash of the shape of the live state.
    pub shape: u64,
}

/// A checked snapshot of a frame about to run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Frame {
    /// Identity.
    pub id: FrameId,
    /// The function object.
    pub function: ObjId,
    /// Arguments by `localsplus` slot; slots that are no arguments are absent.
    pub args: Vec<Option<ObjId>>,
    /// The builtins namespace.
    pub builtins: ObjId,
    /// The calling thread's state.
    pub ambient: Ambient,
    /// What was described so far.
    pub heap: Heap,
    /// Options.
    pub options: TraceOptions,
}

/// Options that change what a trace yields; part of the cache key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub struct TraceOptions {
    /// What the graph is for.
    pub backend: BackendKind,
    /// `fullgraph=True`.
    pub fullgraph: bool,
    /// `dynamic=`: every size symbolic (`Some(true)`), none (`Some(false)`), automatic (`None`).
    pub dynamic: Option<bool>,
    /// What to treat as symbolic, from `mark_dynamic` and automatic dynamic sizes.
    pub dynamic_dims: Vec<DynamicDim>,
    /// A break below the top frame resumes every frame of the inlined stack; else the outermost call is what breaks.
    pub nested_breaks: bool,
    /// The frame is called where `error_on_graph_break(True)` holds.
    pub error_on_break: bool,
    /// The function was compiled for half of its limit already: no more is read of containers than Python's own code reads.
    pub cautious: bool,
    /// Graphs that autograd sees become kernels, forward and backward, with these derivatives.
    pub training: Option<Subgradients>,
    /// Keep a line per traced instruction (`FLAMBEAU_LOGS=trace`).
    pub log: bool,
}

impl Default for TraceOptions {
    fn default() -> Self {
        TraceOptions {
            backend: BackendKind::default(),
            fullgraph: false,
            dynamic: None,
            dynamic_dims: Vec::new(),
            nested_breaks: true,
            error_on_break: false,
            cautious: false,
            training: None,
            log: false,
        }
    }
}

/// Derivatives that versions of torch choose differently, where a function has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Subgradients {
    /// That of `clamp` is 1 at its limits; else it is 0.
    pub clamp_at_limits: bool,
}

/// A dimension, or an int, that is symbolic from the start.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DynamicDim {
    /// What it is.
    pub of: DynamicOf,
    /// Smallest value.
    pub min: i64,
    /// Largest value.
    pub max: i64,
    /// `mark_dynamic` says so; else it was seen to vary.
    pub marked: bool,
}

/// What is symbolic from the start.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DynamicOf {
    /// A dimension of this tensor of the snapshot, wherever the tensor is.
    Size(ObjId, u32),
    /// The int at the end of these steps from a root: equal ints are one object, so its place is what tells.
    Int(Vec<Step>),
}

/// What the graph is for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum BackendKind {
    /// Run op by op.
    #[default]
    Eager,
    /// Hand out as FX.
    Fx,
    /// Lower for this plug-in.
    Native(String),
}
