//! What we know of each torch op, one folder a family: a line of its table says signature, shape/dtype/stride rule,
//! decomposition, and what else is true of the op. Trace and lower read it here and nowhere else.

pub mod aten;
mod attention;
pub mod autocast;
pub mod build;
mod call;
mod conv;
mod create;
pub mod decompose;
pub mod derivative;
mod effect;
mod index;
mod layout;
mod loss;
mod matmul;
mod norm;
mod pointwise;
mod pool;
mod promote;
mod random;
mod recurrent;
mod reduce;
mod registry;
mod signature;
mod unruled;
mod view;

pub use call::differentiable;
pub use effect::{commits, only_draws};
pub use registry::{Canon, Mark, OpDef, Saved, canonical, known, ops, saved, writes_first};
pub use signature::{Argument, Bound, Param, Seen, Value};

use flambeau_ir::code::Const;
use flambeau_ir::dim::Dim;
use flambeau_ir::graph::{Target, ValueMeta};
use flambeau_ir::guard::{Ambient, Relation};
use flambeau_ir::tensor::TensorMeta;
use std::sync::Arc;

/// An argument as rules see it.
#[derive(Clone, Debug, PartialEq)]
pub enum OpArg {
    /// A tensor.
    Tensor(TensorMeta),
    /// A constant (ints included, where fixed).
    Const(Const),
    /// A symbolic int.
    Dim(Dim),
    /// A list.
    List(Vec<OpArg>),
    /// A tuple.
    Tuple(Vec<OpArg>),
    /// A slice.
    Slice(Box<[OpArg; 3]>),
}

impl OpArg {
    /// Gives each tensor in it, in order.
    pub fn tensors<'a>(&'a self, give: &mut impl FnMut(&'a TensorMeta)) {
        match self {
            OpArg::Tensor(tensor) => give(tensor),
            OpArg::List(items) | OpArg::Tuple(items) => items.iter().for_each(|item| item.tensors(give)),
            OpArg::Slice(parts) => parts.iter().for_each(|part| part.tensors(give)),
            OpArg::Const(_) | OpArg::Dim(_) => {}
        }
    }
}

/// Decides facts about symbolic sizes while a rule runs.
pub trait ShapeEnv {
    /// Whether the relation holds for the sizes seen while tracing; the answer becomes a guard.
    fn decide(&mut self, relation: Relation, a: &Dim, b: &Dim) -> bool;
}

/// What a rule says of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Inferred {
    /// What the call returns. `requires_grad` is already set under the ambient grad mode.
    pub meta: ValueMeta,
    /// The result *is* the argument with this index (in-place methods, `out=`, `contiguous()` of a contiguous tensor):
    /// the same Python object. Keyword arguments count on from the positional ones, in call order, here and below.
    pub returns_argument: Option<usize>,
    /// The result is a view of the argument with this index (shares its storage).
    pub view_of: Option<usize>,
    /// It is a view of a part that tensors choose: where that is, is known when the graph runs.
    pub chosen: bool,
    /// Arguments it writes to.
    pub mutates: Vec<usize>,
    /// Consumes torch's random generator.
    pub rng: bool,
    /// It may raise for what its tensors hold: an index out of bounds, a division by zero, a matrix that is singular.
    pub checks: bool,
}

/// Why no metadata came.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum InferError {
    /// No native rule: ask the oracle.
    #[error("no native rule")]
    NoRule,
    /// The op's rule does not take such arguments: ask the oracle, and leave the call to torch.
    #[error("not for these arguments")]
    Refused,
    /// The rule leaves metadata to the oracle; what the op is lowered to holds for these arguments too.
    #[error("known to torch")]
    Told,
    /// The arguments are wrong; eager would raise.
    #[error("{0}")]
    Invalid(String),
    /// A symbolic size where a fixed one is needed.
    #[error("needs a fixed size: {0}")]
    Dynamic(String),
    /// Neither a rule nor the client can tell.
    #[error("cannot be told: {0}")]
    Unknown(String),
}

/// The shape that these broadcast to. [`InferError::Invalid`]: they do not fit.
pub fn broadcast_shapes<'s>(
    env: &mut dyn ShapeEnv,
    shapes: impl IntoIterator<Item = &'s [Dim]>,
) -> Result<Vec<Dim>, InferError> {
    call::broadcast(&mut layout::Sizes(env), shapes)
}

/// Metadata of calling `target`.
pub fn infer(
    target: &Target,
    args: &[OpArg],
    kwargs: &[(Arc<str>, OpArg)],
    ambient: &Ambient,
    env: &mut dyn ShapeEnv,
) -> Result<Inferred, InferError> {
    let canon = canonical(target).ok_or(InferError::NoRule)?;
    call::run(canon, args, kwargs, ambient, env)
}

/// The tables of all families.
fn families() -> [&'static [OpDef]; 20] {
    [
        pointwise::OPS,
        pointwise::ACTIVATIONS,
        pointwise::SELECT,
        view::OPS,
        view::PARTS,
        view::CONVERT,
        reduce::OPS,
        reduce::EXTREME,
        reduce::SCAN,
        matmul::OPS,
        conv::OPS,
        norm::OPS,
        pool::OPS,
        index::OPS,
        create::OPS,
        random::OPS,
        attention::OPS,
        recurrent::OPS,
        loss::OPS,
        unruled::OPS,
    ]
}
