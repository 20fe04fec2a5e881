//! The passes, in order.

use crate::graph::follow::Functional;
use crate::graph::functional::functionalise;
use crate::graph::halves::halve_convolutions;
use crate::graph::layout::{LaidOut, choose_layouts};
use crate::graph::long;
use crate::graph::pieces;
use crate::nest::group::schedule;
use crate::options::LowerOptions;
use crate::plan::arena;
use crate::plan::early;
use crate::plan::generalise::generalise;
use crate::plan::memory::{self, Lowered};
use crate::plan::transfers;
use crate::plan::updates;
use flambeau_core::graph::Core;
use flambeau_ir::graph::Graph;
use flambeau_ir::plan::Symbol;
use flambeau_ir::reason::{Reason, ReasonCode};
use flambeau_ir::source::SourceId;
use flambeau_ops::decompose::refuse;

/// Lowers a graph to kernels and a launch plan.
pub fn lower(graph: &Graph, symbols: &[Symbol], options: &LowerOptions) -> Result<Lowered, Reason> {
    let run = |in_place| passes(graph, symbols, options, in_place);
    match run(!options.own_memory) {
        Err(reason) if reason.code == ReasonCode::NotLowered && !options.own_memory => run(false).map_err(|_| reason),
        done => done,
    }
}

fn passes(graph: &Graph, symbols: &[Symbol], options: &LowerOptions, in_place: bool) -> Result<Lowered, Reason> {
    let Functional { core, inputs, .. } = functionalise(graph, options, in_place, false)?;
    lower_core(core, inputs, symbols, options, graph.restores)
}

/// A graph of which a derivative is to be taken, as a core graph.
pub fn functional(graph: &Graph, options: &LowerOptions) -> Result<Functional, Reason> {
    functionalise(graph, options, false, true)
}

/// Lowers a core graph. `inputs` are the sources of its inputs; `restores`: draws can be taken back.
pub fn lower_core(
    core: Core,
    inputs: Vec<SourceId>,
    symbols: &[Symbol],
    options: &LowerOptions,
    restores: bool,
) -> Result<Lowered, Reason> {
    let laid_out = match core {
        core if core.device.is_host() => choose_layouts(halve_convolutions(core, symbols), symbols),
        core => LaidOut::as_it_is(core),
    };
    let laid_out = if laid_out.core.device.is_host() { long::share(pieces::divide(laid_out)) } else { laid_out };
    let mut schedule = schedule(&laid_out.core, laid_out.once)?;
    if laid_out.core.device.is_host() && !options.own_memory {
        early::hoist(&laid_out.core, &mut schedule);
    }
    updates::find(&laid_out.core, &mut schedule);
    let mut lowered = memory::plan(&laid_out.core, &schedule, inputs, &options.backend, restores)?;
    // Calls of torch take them; what is copied between calls does not.
    let mut params = lowered.kernels.iter().flat_map(|kernel| &kernel.params);
    if let Some(param) = params.find(|param| param.dtype.is_complex()) {
        return refuse(format!("a copy of a tensor of {}", param.dtype.torch_name()));
    }
    if options.own_memory {
        transfers::add(&mut lowered.plan, &lowered.kernels);
    } else {
        arena::share(&mut lowered.plan);
    }
    generalise(&mut lowered.plan, &mut lowered.kernels);
    Ok(lowered)
}
