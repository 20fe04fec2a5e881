//! The passes, in order.

use crate::arena;
use crate::early;
use crate::functional::functionalise;
use crate::generalise::generalise;
use crate::group::schedule;
use crate::halves::halve_convolutions;
use crate::layout::{LaidOut, choose_layouts};
use crate::memory::{self, Lowered};
use crate::transfers;
use flambeau_ir::Capabilities;
use flambeau_ir::graph::Graph;
use flambeau_ir::plan::Symbol;
use flambeau_ir::reason::Reason;
use flambeau_ir::tensor::Device;

/// What the back end can do and how it wants its kernels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LowerOptions {
    /// Name of the plug-in that launches the kernels.
    pub backend: String,
    /// Kind of the device that its kernels take tensors of: torch's `c10::DeviceType` number.
    pub device_kind: u8,
    /// Whether its kernels take buffers in memory of its own.
    pub own_memory: bool,
    /// Threads a kernel may use.
    pub threads: u32,
    /// What its kernels may compute; `None`: everything.
    pub capabilities: Option<Capabilities>,
}

impl Default for LowerOptions {
    fn default() -> Self {
        LowerOptions {
            backend: "cpu".into(),
            device_kind: Device::CPU.kind,
            own_memory: false,
            threads: 2,
            capabilities: None,
        }
    }
}

/// Lowers a graph to kernels and a launch plan.
pub fn lower(graph: &Graph, symbols: &[Symbol], options: &LowerOptions) -> Result<Lowered, Reason> {
    let functional = functionalise(graph, options)?;
    let laid_out = match functional.core {
        core if core.device.is_cpu() => choose_layouts(halve_convolutions(core, symbols), symbols),
        core => LaidOut::as_it_is(core),
    };
    let mut schedule = schedule(&laid_out.core, laid_out.once)?;
    if laid_out.core.device.is_cpu() && !options.own_memory {
        early::hoist(&laid_out.core, &mut schedule);
    }
    let mut lowered = memory::plan(&laid_out.core, &schedule, functional.inputs, &options.backend, graph.restores);
    if options.own_memory {
        transfers::add(&mut lowered.plan, &lowered.kernels);
    } else {
        arena::share(&mut lowered.plan);
    }
    generalise(&mut lowered.plan, &mut lowered.kernels);
    Ok(lowered)
}
