//! A core graph to its forward and backward parts: the training stage. A pure function. Both parts are ordinary core
//! graphs, which `daemon/lower` takes as they are.
//!
//! [`derive`] takes the derivative of what leaves the graph ([`sweep`]: from the outputs back, a rule a node), and cuts the
//! joint graph in two ([`split`]): what the backward part needs of the forward part is either computed again or kept.

mod rules;
mod split;
mod sweep;

use flambeau_core::graph::Core;
use flambeau_ir::reason::Reason;

/// The two parts of a graph that autograd sees.
#[derive(Clone, Debug)]
pub struct Parts {
    /// The graph. What leaves it: first what left it before, then what is kept for the backward part.
    pub forward: Core,
    /// The gradients of `gradients`, in that order. Its inputs: first `inputs` of the forward part, then what that keeps,
    /// then the gradient of each output in `outputs`.
    pub backward: Core,
    /// Inputs of the forward part that the backward part reads.
    pub inputs: Vec<u32>,
    /// Outputs of the forward part that have a derivative.
    pub outputs: Vec<u32>,
    /// Inputs of the forward part whose gradients are computed.
    pub gradients: Vec<u32>,
}

/// What autograd knows of a graph.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// For each input, whether it requires grad.
    pub inputs: Vec<bool>,
    /// For each output, whether it requires grad.
    pub outputs: Vec<bool>,
}

/// Takes the derivative of a graph and cuts it in two. A refusal names what has no derivative here: the graph then runs
/// under autograd, op by op.
pub fn derive(core: &Core, wanted: &Wanted) -> Result<Parts, Reason> {
    split::split(sweep::sweep(core, wanted)?)
}
