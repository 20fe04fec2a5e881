//! What tracing a frame yields.

use flambeau_ir::exit::Exit;
use flambeau_ir::graph::Graph;
use flambeau_ir::guard::Guard;
use flambeau_ir::plan::{IndexCheck, Symbol};
use flambeau_ir::source::SourceTable;
use serde::{Deserialize, Serialize};

/// A traced frame.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// Torch calls.
    pub graph: Graph,
    /// Where inputs and guarded values come from.
    pub sources: SourceTable,
    /// Every fact read, in the order read; may repeat.
    pub guards: Vec<Guard>,
    /// Symbols, in id order.
    pub symbols: Vec<Symbol>,
    /// What has to hold for the graph to run.
    pub indices: Vec<IndexCheck>,
    /// How the frame ends.
    pub exit: Exit,
    /// Whether any tensor of the graph requires grad (or the graph switches grad mode), so that autograd must see it.
    pub needs_autograd: bool,
    /// Outputs that autograd can go back from no more, as `backward()` freed what it would read.
    pub ended: Vec<u32>,
    /// What comes after asks a tensor of the graph what only torch's own calls leave in it (its version, its base, its
    /// node of autograd): the graph runs op by op.
    pub exact: bool,
    /// Whether inputs share memory and the graph writes to an input: what a read sees then depends on the order of calls,
    /// which only running op by op keeps.
    pub overlap: bool,
}
