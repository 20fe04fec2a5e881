//! What nodes of the torch-level graph stand for while it is lowered.

use flambeau_core::graph::CoreId;
use flambeau_ir::dim::Dim;
use flambeau_ir::tensor::TensorMeta;
use flambeau_ops::decompose::View;

/// Memory as the user sees it: what a family of views shares.
#[derive(Clone, Debug)]
pub struct Base {
    /// What it holds.
    pub value: CoreId,
    /// The graph input whose memory it is.
    pub input: Option<u32>,
    /// What lies in an input's memory: not yet `value` where that is written at the end.
    pub memory: CoreId,
    pub strides: Vec<Dim>,
    pub requires_grad: bool,
    /// Something that autograd follows was written to it.
    pub followed: bool,
    /// What calls take for it, where its gradient is asked for.
    pub point: Option<CoreId>,
    /// A write to it counts as a change of its tensor.
    pub counted: bool,
    /// Others whose memory it may share in torch. What is in the graph is a copy, so none of them is written to.
    pub shares: Vec<usize>,
}

/// What a graph node stands for.
#[derive(Clone, Debug)]
pub enum Value {
    /// A view of a base.
    Tensor {
        /// Its memory.
        base: usize,
        views: Vec<View>,
        meta: TensorMeta,
        /// Autograd does not know it for a view (`detach`, `data`).
        severed: bool,
    },
    Tuple(Vec<Value>),
    Other,
}

impl Value {
    /// The memory of a tensor.
    pub fn base(&self) -> Option<usize> {
        if let Value::Tensor { base, .. } = self { Some(*base) } else { None }
    }

    /// That of all tensors of a result.
    pub fn bases(&self) -> Vec<usize> {
        match self {
            Value::Tuple(items) => items.iter().filter_map(Value::base).collect(),
            value => value.base().into_iter().collect(),
        }
    }
}
