//! A graph that autograd sees as plans: one for the graph, and one for the derivative of each of its nodes of autograd.

use super::{autocasted, equal_sizes};
use flambeau_core::graph::{Core, CoreId, CoreOutput, OutputBase};
use flambeau_core::trace::Trace;
use flambeau_derive::{Node, Parts, Wanted};
use flambeau_ir::frame::{BackendKind, TraceOptions};
use flambeau_ir::graph::{Arg, Effect, Graph, NodeId, NodeOp, ValueMeta};
use flambeau_ir::kernel::Kernel;
use flambeau_ir::plan::{Plan, Symbol, Taken, Training, TrainingNode};
use flambeau_ir::reason::{Reason, ReasonCode};
use flambeau_ir::source::SourceId;
use flambeau_ir::tensor::is_dense;
use flambeau_lower::{Functional, LowerOptions, lower_core};
use std::collections::BTreeSet;

/// Calls below which a node of autograd costs more than it saves: some ten microseconds.
const FEWEST: usize = 3;

/// Whether kernels may be faster than torch's own calls.
pub fn pays(graph: &Graph) -> bool {
    graph.calls() >= FEWEST
}

/// Whether a trace with `backward()` or regions of activation checkpointing in its graph becomes kernels as a whole, if its back
/// end has any.
pub fn takes(trace: &Trace, options: &TraceOptions) -> Result<(), Reason> {
    let Trace { graph, ended, .. } = trace;
    let BackendKind::Native(_) = options.backend else { return Ok(()) };
    let too_few = trace.needs_autograd && !graph.checkpoints.is_empty() && !pays(graph);
    if trace.exact || trace.overlap || autocasted(graph).is_some() || too_few {
        return Err(Reason::new(ReasonCode::NotLowered, "it runs op by op"));
    }
    let equal = equal_sizes(&flambeau_guard::program(trace));
    let (unified, known) = flambeau_lower::unified(graph, equal.iter().map(|(a, b)| (a, b)));
    let subgradients = options.training.unwrap_or_default();
    parts(&unified, ended, &LowerOptions { known, subgradients, ..LowerOptions::default() }).map(|_| ())
}

/// A graph divided into its plans to be.
struct Divided {
    parts: Parts,
    inputs: Vec<SourceId>,
    /// How many outputs the graph has itself.
    left: u32,
    /// Inputs that it writes to.
    written: Vec<u32>,
    ended: Vec<(u32, u32)>,
    views: Vec<(u32, Taken)>,
}

fn parts(graph: &Graph, ended: &[u32], options: &LowerOptions) -> Result<Divided, Reason> {
    let Functional {
        core,
        inputs,
        followed_inputs,
        mut followed_outputs,
        values,
        made_of,
        reached,
        shared,
        spent,
        rewritten,
    } = flambeau_lower::functional(graph, options)?;
    let input = |output: u32| reached.get(output as usize).and_then(|inputs| inputs.first().copied());
    let freed = |output: &u32| {
        let input = input(*output).filter(|_| followed_outputs[*output as usize]);
        input.map(|input| (*output, input)).ok_or_else(|| Reason::new(ReasonCode::NotLowered, "an output of no input"))
    };
    let ended: Vec<(u32, u32)> = ended.iter().map(freed).collect::<Result<_, _>>()?;
    ended.iter().for_each(|(output, _)| followed_outputs[*output as usize] = false);
    let views = views(graph, &core, &followed_outputs, &made_of);
    views.iter().for_each(|(output, _)| followed_outputs[*output as usize] = false);
    let made = |inputs: &BTreeSet<u32>| inputs.iter().any(|input| !followed_inputs[*input as usize]);
    if followed_outputs.iter().zip(&reached).any(|(followed, inputs)| *followed && made(inputs)) {
        return Err(Reason::new(ReasonCode::NotLowered, "an output of a leaf that the graph makes of an input"));
    }
    let repeats = |output: &CoreOutput| {
        output.sizes.iter().zip(&output.strides).any(|(size, stride)| stride.is(0) && !size.is(1))
    };
    if core.outputs.iter().zip(&followed_outputs).any(|(output, followed)| *followed && repeats(output)) {
        // Writes to a part of it need the derivative of what it repeats, which autograd would not see.
        return Err(Reason::new(ReasonCode::NotLowered, "an output that repeats its elements"));
    }
    let left = core.outputs.len() as u32;
    let written: Vec<u32> = core.writes.iter().map(|(input, _)| *input).collect();
    let wanted = Wanted {
        inputs: followed_inputs,
        outputs: followed_outputs,
        values,
        made_of,
        reached,
        shared,
        spent,
        rewritten,
    };
    let parts = flambeau_derive::derive(&core, &wanted)?;
    if parts.nodes.iter().any(|node| node.backward.takes_objects()) {
        return Err(Reason::new(ReasonCode::NotLowered, "a call that takes an object, to be run again"));
    }
    Ok(Divided { parts, inputs, left, written, ended, views })
}

/// Outputs that autograd follows and that are views of inputs or of other outputs: torch makes them, with their history. Not
/// where another output is computed of one, which autograd then connects with it, or where torch would refuse writes to it as
/// to one of several.
fn views(graph: &Graph, core: &Core, followed: &[bool], made_of: &[BTreeSet<u32>]) -> Vec<(u32, Taken)> {
    let outputs = || (0..).zip(&core.outputs).filter(|(at, _)| followed[*at as usize]);
    let node_of = |at: u32| graph.outputs[at as usize];
    let is_whole = |out: &CoreOutput, of: CoreId| {
        let node = core.node(of);
        out.sizes == node.sizes && out.offset.is(0) && is_dense(&out.sizes, &out.strides)
    };
    let whole = |at: u32, output: &CoreOutput| match output.base {
        OutputBase::Input(input) => {
            let node = core.node(core.input_node(input)?);
            let is_input = |id: NodeId| matches!(graph.node(id).op, NodeOp::Placeholder(_));
            let is_view = is_dense(&node.sizes, &node.strides)
                && !core.writes.iter().any(|(written, _)| *written == input)
                && is_view_of(graph, node_of(at), &is_input);
            is_view.then_some(Taken::Input(input))
        }
        OutputBase::Value(value) => {
            let is_of = |(other, out): &(u32, &CoreOutput)| {
                let shows = *other != at && out.base == output.base && is_whole(out, value);
                shows && is_view_of(graph, node_of(at), &|id| id == node_of(*other))
            };
            outputs().find(is_of).map(|(other, _)| Taken::Output(other))
        }
    };
    let is_made_on = |at: u32| outputs().any(|(other, _)| made_of[other as usize].contains(&at));
    let of = |(at, output): (u32, &CoreOutput)| Some((at, whole(at, output)?)).filter(|(at, _)| !is_made_on(*at));
    outputs().filter_map(of).collect()
}

/// Whether a tensor is a view, by one or several calls, of one that ends the way to it, and none of several that a call gives.
fn is_view_of(graph: &Graph, mut id: NodeId, is_end: &dyn Fn(NodeId) -> bool) -> bool {
    while !is_end(id) {
        let NodeOp::Call { args, .. } = &graph.node(id).op else { return false };
        let Some(Arg::Node(of)) = args.first() else { return false };
        if graph.node(*of).meta.as_tensor().is_none() {
            return false;
        }
        id = *of;
    }
    true
}

/// The plans, and the kernels of all of them in order. `ended`: outputs that `backward()` in the graph leaves no way back from.
pub fn plans(
    graph: &Graph,
    ended: &[u32],
    symbols: &[Symbol],
    options: &LowerOptions,
) -> Result<(Training, Vec<Kernel>), Reason> {
    let Divided { parts, inputs, left, written, ended, views } = parts(graph, ended, options)?;
    let mut nodes = Vec::new();
    let mut backward = Vec::new();
    let forward = lower_core(parts.forward, inputs, symbols, options, graph.restores)?;
    for node in parts.nodes {
        let (again, takes) = again(graph, &node, (&written, &forward.plan)).unzip();
        let taken = (node.reads.len() + node.outputs.len()) as u32;
        let lowered = lower_core(node.backward, (0..taken).map(SourceId).collect(), symbols, options, false)?;
        backward.extend(lowered.kernels);
        nodes.push(TrainingNode {
            backward: lowered.plan,
            reads: node.reads,
            outputs: node.outputs,
            gradients: node.gradients,
            reached_by: node.reached_by,
            draws: again.as_ref().is_some_and(draws),
            graph: again,
            takes: takes.unwrap_or_default(),
        });
    }
    let calls = graph.calls() as u32;
    let training = Training { forward: forward.plan, left, written, nodes, ended, views, calls };
    Ok((training, forward.kernels.into_iter().chain(backward).collect()))
}

/// The part of the graph that a node of autograd is for, and what it takes.
fn again(graph: &Graph, node: &Node, (written, forward): (&[u32], &Plan)) -> Option<(Graph, Vec<Taken>)> {
    let output = |at: u32| graph.outputs.get(at as usize).copied();
    let begins =
        node.gradients.iter().filter_map(|of| if let Taken::Output(at) = of { Some(output(*at)) } else { None });
    let begins: Vec<NodeId> = begins.collect::<Option<_>>()?;
    let outputs: Vec<NodeId> = node.outputs.iter().map(|of| output(of.output)).collect::<Option<_>>()?;
    let (part, takes) = graph.part(&outputs, &begins)?;
    let is_tensor = |id: &NodeId| {
        let node = graph.node(*id);
        matches!(node.op, NodeOp::Placeholder(_)) && node.meta.as_tensor().is_some()
    };
    let inputs: Vec<NodeId> = (0..graph.nodes.len() as u32).map(NodeId).filter(is_tensor).collect();
    let changes = part.nodes.iter().any(|node| node.effect == Effect::Commits && !is_batch_norm(node));
    if changes || !written.iter().all(|at| only_counts(graph, inputs[*at as usize])) {
        return None;
    }
    let is_object = |id: &NodeId| graph.node(*id).meta == ValueMeta::Object;
    let source = |id: &NodeId| match graph.node(*id).op {
        NodeOp::Placeholder(source) => forward.sources().position(|known| known == source),
        NodeOp::Call { .. } => None,
    };
    let place = |id: &NodeId| match inputs.iter().position(|input| input == id) {
        Some(at) => Some(Taken::Input(at as u32)),
        None if is_object(id) => source(id).map(|at| Taken::Input(at as u32)),
        None => graph.outputs.iter().position(|output| output == id).map(|at| Taken::Output(at as u32)),
    };
    Some((part, takes.iter().map(place).collect::<Option<_>>()?))
}

/// Whether a graph writes statistics of its batch to an input and reads nothing of it.
fn only_counts(graph: &Graph, input: NodeId) -> bool {
    graph.nodes.iter().all(|node| {
        let NodeOp::Call { args, kwargs, .. } = &node.op else { return true };
        let mut reads = false;
        args.iter().chain(kwargs.iter().map(|(_, arg)| arg)).for_each(|arg| arg.nodes(&mut |id| reads |= id == input));
        !reads || is_batch_norm(node)
    })
}

fn is_batch_norm(node: &flambeau_ir::graph::Node) -> bool {
    let NodeOp::Call { target, .. } = &node.op else { return false };
    flambeau_ops::canonical(target).is_some_and(|canon| canon.op.name == "batch_norm")
}

fn draws(graph: &Graph) -> bool {
    graph.nodes.iter().any(|node| node.effect == Effect::Draws)
}
