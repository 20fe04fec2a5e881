//! The passes, in order.

use crate::arena;
use crate::functional::functionalise;
use crate::generalise::generalise;
use crate::group::schedule;
use crate::halves::halve_convolutions;
use crate::layout::choose_layouts;
use crate::memory::{self, Lowered};
use flambeau_ir::Capabilities;
use flambeau_ir::graph::Graph;
use flambeau_ir::plan::Symbol;
use flambeau_ir::reason::Reason;

/// What the back end can do and how it wants its kernels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LowerOptions {
    /// Name of the plug-in that launches the kernels.
    pub backend: String,
    /// Threads a kernel may use.
    pub threads: u32,
    /// What its kernels may compute; `None`: everything.
    pub capabilities: Option<Capabilities>,
}

impl Default for LowerOptions {
    fn default() -> Self {
        LowerOptions { backend: "cpu".into(), threads: 2, capabilities: None }
    }
}

/// Lowers a graph to kernels and a launch plan.
pub fn lower(graph: &Graph, symbols: &[Symbol], options: &LowerOptions) -> Result<Lowered, Reason> {
    let functional = functionalise(graph, options.capabilities.as_ref())?;
    let core = halve_convolutions(functional.core, symbols);
    let laid_out = choose_layouts(core, symbols);
    let schedule = schedule(&laid_out.core, laid_out.once)?;
    let mut lowered = memory::plan(&laid_out.core, &schedule, functional.inputs, &options.backend);
    arena::share(&mut lowered.plan);
    generalise(&mut lowered.plan, &mut lowered.kernels);
    Ok(lowered)
}
