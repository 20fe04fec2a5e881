//! What a trace knows of autocast besides the thread's state.

use crate::value::TensorId;
use flambeau_ir::kernel::DType;
use std::collections::HashSet;
use std::rc::Rc;

/// What a frame does with autocast, besides its state.
#[derive(Default)]
pub(crate) struct Autocast {
    /// How many regions are entered, at the beginning and now; where the frame counts them.
    pub depth: Option<(i64, i64)>,
    /// Whether what is kept of weights in another type is forgotten.
    pub clears: bool,
    /// Weights in another type, as torch keeps them.
    pub kept: Vec<Kept>,
    /// Kinds of devices and names of ops that torch has a kernel of autocast for.
    pub kernels: Option<Rc<HashSet<(String, String)>>>,
}

/// A leaf in another type.
pub(crate) struct Kept {
    /// It.
    pub leaf: TensorId,
    /// The type.
    pub dtype: DType,
    /// What it is in that type.
    pub cast: TensorId,
    /// How many writes the graph had before.
    pub writes: usize,
}
