//! A core graph to its forward part and the derivatives of that: the training stage. A pure function. All parts are ordinary
//! core graphs, which `daemon/lower` takes as they are.
//!
//! [`derive`] divides the graph into nodes of autograd ([`nodes`]: an output of which another output is computed ends a node,
//! as the user may ask for its gradient), takes the derivative of what leaves each node ([`sweep`]: from the outputs back, a
//! rule an op; calls of torch without one go on a [`tape`]), and cuts it off from the graph ([`split`]): what it reads of the
//! graph is either computed again or kept ([`keep`]).
//!
//! [`within`] adds the gradients of one value to the graph itself, where `backward()` is a part of what was traced.

mod again;
mod cut;
mod keep;
mod nodes;
mod rules;
mod split;
mod sweep;
mod tape;

use flambeau_core::graph::{Core, CoreId};
use flambeau_ir::plan::{Followed, Taken};
use flambeau_ir::reason::Reason;
use std::collections::BTreeSet;

pub use sweep::within;

/// The parts of a graph that autograd sees.
#[derive(Clone, Debug)]
pub struct Parts {
    /// The graph. What leaves it: first what left it before, then what later nodes take of earlier ones, then what is kept for
    /// derivatives.
    pub forward: Core,
    /// Its nodes of autograd, in an order in which each takes outputs of earlier ones.
    pub nodes: Vec<Node>,
}

/// The derivative of a part of a graph.
#[derive(Clone, Debug)]
pub struct Node {
    /// The gradients of `gradients`, in that order. Its inputs: first what it `reads`, then the gradient of each output in
    /// `outputs`.
    pub backward: Core,
    /// What it reads of the forward part.
    pub reads: Vec<Taken>,
    /// Outputs of the forward part whose gradients it takes, and in which layout.
    pub outputs: Vec<Followed>,
    /// What it gives gradients of.
    pub gradients: Vec<Taken>,
    /// For each of these, the places in `outputs` of those that autograd connects it with.
    pub reached_by: Vec<Vec<u32>>,
}

/// What autograd knows of a graph.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// For each input, whether it requires grad.
    pub inputs: Vec<bool>,
    /// For each output, whether it requires grad.
    pub outputs: Vec<bool>,
    /// The value of each output.
    pub values: Vec<CoreId>,
    /// For each output, the outputs that it is computed of.
    pub made_of: Vec<BTreeSet<u32>>,
    /// For each output, the inputs that autograd connects it with.
    pub reached: Vec<BTreeSet<u32>>,
    /// For each output, whether something is computed of its value that is not computed of the output itself.
    pub shared: Vec<bool>,
    /// For each output, whether autograd goes back from it once, as it frees what it saved on the way.
    pub spent: Vec<bool>,
    /// Something that autograd follows was written to.
    pub rewritten: bool,
}

/// Takes the derivative of a graph. A refusal names what has no derivative here: the graph then runs under autograd, op by
/// op.
pub fn derive(core: &Core, wanted: &Wanted) -> Result<Parts, Reason> {
    let mut core = core.clone();
    loop {
        let division = nodes::divide(&core, wanted)?;
        let mut untaped = BTreeSet::new();
        let joints = (0..division.count()).map(|at| sweep::sweep(&core, wanted, &division, at, &mut untaped));
        let joints = joints.collect::<Result<Vec<_>, _>>()?;
        if untaped.is_empty() {
            return split::split(&core, wanted, &division, &joints);
        }
        tape::tape(&mut core, &division.active, &untaped)?;
    }
}
