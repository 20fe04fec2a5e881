//! Tensors: a graph node's value with its metadata.

use super::{Class, Id, Origin, Value};
use flambeau_ir::graph::NodeId;
use flambeau_ir::tensor::TensorMeta;
use std::rc::Rc;

/// Names a tensor object; same id, same object (`is`).
pub type TensorId = Id<TensorValue>;

/// `.grad` of a tensor.
#[derive(Clone, Debug)]
pub struct Gradient {
    /// What it is now.
    pub value: Value,
    /// Whether the trace put it there.
    pub written: bool,
    /// Whether the trace made it `None` before its first call of torch.
    pub dropped: bool,
}

/// One tensor object.
#[derive(Clone, Debug)]
pub struct TensorValue {
    /// The node whose value it is.
    pub node: NodeId,
    /// Its present metadata (in-place calls may change it).
    pub meta: TensorMeta,
    /// Its Python type where that is not `torch.Tensor` itself.
    pub class: Option<Rc<Class>>,
    /// For an input of the frame: where it is from.
    pub origin: Option<Origin>,
    /// The instance dict of an input that has one, read on demand.
    pub attrs: Option<super::DictId>,
    /// `is_leaf` as known when it was made; of inputs of the frame, whether they are leaves or views.
    pub is_leaf: bool,
    /// The tensor whose storage it shares (`_base`), for views made in the trace.
    pub base: Option<TensorId>,
    /// `.grad` of an input of the frame, as far as it is known.
    pub grad: Option<Gradient>,
    /// It shares its base's memory and nothing of its history (`detach`, `data`).
    pub severed: bool,
    /// It is the part of its base that a tensor chooses, made by this instruction: nothing says where it lies.
    pub chosen: Option<usize>,
}
