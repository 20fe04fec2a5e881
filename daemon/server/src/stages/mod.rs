//! The stages as the actors run them, and as `flambeaud replay` runs them: pure functions, no actor, no socket.

pub mod exchange;
pub mod record;
mod training;

use flambeau_codegen::Codegen;
use flambeau_core::trace::Trace;
use flambeau_ir::device::DeviceKind;
use flambeau_ir::dim::Dim;
use flambeau_ir::exit::{Build, BuildId, Exit};
use flambeau_ir::frame::{BackendKind, Frame, FrameId, TraceOptions};
use flambeau_ir::graph::{Effect, Graph, NodeOp};
use flambeau_ir::guard::{Guard, GuardKind, GuardProgram, Relation};
use flambeau_ir::kernel::Kernel;
use flambeau_ir::oracle::{Oracle, Prefetched};
use flambeau_ir::plan::{Body, CompiledFrame};
use flambeau_ir::reason::{Reason, ReasonCode};
use flambeau_ir::source::Step;
use flambeau_ir::tensor::Device;
use flambeau_lower::{LowerOptions, Lowered};
use flambeau_plugin::abi::{MEMORY_HOST, MEMORY_OWN, MEMORY_TORCH};
use flambeau_wire::from_daemon::Artifact;

/// A traced frame with its guards in order.
pub struct Traced {
    /// Which frame.
    pub frame: FrameId,
    /// Options.
    pub options: TraceOptions,
    /// Its trace.
    pub trace: Trace,
    /// Its guards.
    pub program: GuardProgram,
}

/// A frame that waits for its kernels.
pub struct Pending {
    /// The frame; the plan's artifacts are not filled in.
    pub frame: CompiledFrame,
    /// The graph, for running it op by op if code generation fails.
    pub graph: Graph,
    /// Who compiles.
    pub backend: String,
    /// What is compiled, in the order of the plan's kernels.
    pub kernels: Vec<Kernel>,
}

/// What choosing a body gives.
pub enum Bodied {
    /// A finished frame.
    Done(Box<CompiledFrame>),
    /// One that needs code generation.
    Kernels(Box<Pending>),
}

/// Traces a frame; answers that came with the snapshot are served before the oracle is asked.
pub fn trace(frame: &Frame, oracle: &mut dyn Oracle, log: &mut Vec<String>) -> Trace {
    let mut oracle = Prefetched::new(&frame.heap, oracle);
    flambeau_trace::trace(frame, &mut oracle, log, &|trace| training::takes(trace, &frame.options))
}

/// What is stored of a frame that was refused.
pub fn refused(frame: &Frame, trace: Trace) -> CompiledFrame {
    CompiledFrame {
        frame: frame.id.clone(),
        guards: flambeau_guard::program(&trace),
        symbols: trace.symbols,
        indices: vec![],
        body: Body::Eager(Graph::default()),
        exit: trace.exit,
        graph_text: String::new(),
        fallback: None,
    }
}

/// Orders the guards of a trace.
pub fn guard(frame: &Frame, trace: Trace) -> Traced {
    let program = flambeau_guard::program(&trace);
    Traced { frame: frame.id.clone(), options: frame.options.clone(), trace, program }
}

/// The trace that a graph from elsewhere stands for: argument `i` is source `i`, and all outputs are returned as a
/// tuple. There are no guards; who sent the graph checks when it may run.
pub fn trace_of_graph(mut graph: Graph) -> Trace {
    let mut trace = Trace::default();
    for node in &mut graph.nodes {
        if let NodeOp::Call { target, args, kwargs } = &node.op
            && flambeau_ops::commits(target, args, kwargs)
        {
            node.effect = Effect::Commits;
        }
    }
    let placeholders = graph.nodes.iter().filter_map(|n| match n.op {
        NodeOp::Placeholder(source) => Some((source.0, n)),
        NodeOp::Call { .. } => None,
    });
    let mut last = 0;
    for (source, node) in placeholders {
        last = last.max(source + 1);
        trace.needs_autograd |= node.meta.as_tensor().is_some_and(|t| t.requires_grad);
    }
    for i in 0..last {
        trace.sources.intern(None, Step::Arg(i));
    }
    let outputs = graph.outputs.len() as u32;
    let mut builds: Vec<Build> = (0..outputs).map(Build::Output).collect();
    builds.push(Build::Tuple((0..outputs).map(BuildId).collect(), None));
    trace.exit = Exit::returning(builds, vec![], BuildId(outputs));
    trace.graph = graph;
    trace
}

/// Chooses what runs. A graph that autograd must see runs op by op; so does one that lowering refuses, with the reason.
pub fn body(traced: Traced, codegen: Option<&Codegen>) -> Bodied {
    let Traced { frame, options, trace, program } = traced;
    let Trace { graph, symbols, indices, exit, needs_autograd, ended, overlap, exact, .. } = trace;
    let graph_text = graph.to_string();
    let equal = equal_sizes(&program);
    let compiled = move |symbols, body, fallback| CompiledFrame {
        frame,
        guards: program,
        symbols,
        indices,
        body,
        exit,
        graph_text,
        fallback,
    };
    if overlap && options.backend != BackendKind::Eager {
        let reason = Reason::new(ReasonCode::NotLowered, "writes to an input that shares memory with another");
        return Bodied::Done(Box::new(compiled(symbols, Body::Eager(graph), Some(reason))));
    }
    if let Some(call) = autocasted(&graph).filter(|_| options.backend != BackendKind::Eager) {
        let reason = Reason::new(ReasonCode::NotLowered, format!("{call} under autocast: its casts are not known"));
        return Bodied::Done(Box::new(compiled(symbols, Body::Eager(graph), Some(reason))));
    }
    let backend = match options.backend {
        _ if exact => return Bodied::Done(Box::new(compiled(symbols, Body::Eager(graph), None))),
        BackendKind::Native(backend) if !needs_autograd || options.training.is_some() && training::pays(&graph) => {
            backend
        }
        BackendKind::Fx => return Bodied::Done(Box::new(compiled(symbols, Body::Fx(graph), None))),
        BackendKind::Eager | BackendKind::Native(_) => {
            return Bodied::Done(Box::new(compiled(symbols, Body::Eager(graph), None)));
        }
    };
    // Without an answer everything is lowered to kernels, and code generation says what is wrong with the back end.
    let described = codegen.and_then(|codegen| codegen.describe(&backend).ok());
    let memory = described.as_ref().map_or(MEMORY_HOST, |d| d.memory);
    let (unified, known) = flambeau_lower::unified(&graph, equal.iter().map(|(a, b)| (a, b)));
    let lowering = LowerOptions {
        backend: backend.clone(),
        device_kind: DeviceKind::of_streams(&backend)
            .filter(|_| memory == MEMORY_TORCH)
            .map_or(Device::CPU.kind, |kind| kind.number),
        own_memory: memory == MEMORY_OWN,
        threads: threads(),
        capabilities: described.map(|d| d.capabilities),
        known,
        subgradients: options.training.unwrap_or_default(),
    };
    if needs_autograd {
        if memory != MEMORY_HOST {
            // What torch's own derivatives look like is known of the CPU.
            return Bodied::Done(Box::new(compiled(symbols, Body::Eager(graph), None)));
        }
        let (body, fallback, kernels) = match training::plans(&unified, &ended, &symbols, &lowering) {
            Ok((training, kernels)) => (Body::Training(Box::new(training)), None, kernels),
            Err(reason) => (Body::Eager(graph.clone()), Some(reason), vec![]),
        };
        let frame = compiled(symbols, body, fallback);
        if kernels.is_empty() {
            return Bodied::Done(Box::new(frame));
        }
        return Bodied::Kernels(Box::new(Pending { frame, graph, backend, kernels }));
    }
    match flambeau_lower::lower(&unified, &symbols, &lowering) {
        Err(reason) => Bodied::Done(Box::new(compiled(symbols, Body::Eager(graph), Some(reason)))),
        Ok(Lowered { plan, kernels }) if kernels.is_empty() => {
            Bodied::Done(Box::new(compiled(symbols, Body::Native(plan), None)))
        }
        Ok(Lowered { plan, kernels }) => {
            let frame = compiled(symbols, Body::Native(plan), None);
            Bodied::Kernels(Box::new(Pending { frame, graph, backend, kernels }))
        }
    }
}

/// Sizes that are equal wherever the guards hold.
pub(super) fn equal_sizes(program: &GuardProgram) -> Vec<(Dim, Dim)> {
    let pair = |guard: &Guard| match &guard.kind {
        GuardKind::Relation(Relation::Eq, a, b) => Some((a.clone(), b.clone())),
        _ => None,
    };
    program.guards.iter().filter_map(pair).collect()
}

/// What the graph calls first with autocast on.
pub(super) fn autocasted(graph: &Graph) -> Option<&str> {
    let mut calls = graph.nodes.iter().filter_map(|node| match &node.op {
        NodeOp::Call { target, .. } => Some((target, &*node.name)),
        NodeOp::Placeholder(_) => None,
    });
    calls.find(|(target, _)| target.sets_autocast())?;
    calls.find(|(target, _)| !target.sets_autocast()).map(|(_, name)| name)
}

impl Pending {
    fn fallback(self, reason: Reason) -> CompiledFrame {
        CompiledFrame { body: Body::Eager(self.graph), fallback: Some(reason), ..self.frame }
    }
}

/// Fills the artifacts in; without them the frame runs op by op, with the reason.
pub fn finish(mut pending: Pending, artifacts: Result<Vec<Artifact>, Reason>) -> (CompiledFrame, Vec<Artifact>) {
    let mut artifacts = match artifacts {
        Ok(artifacts) => artifacts,
        Err(reason) => return (pending.fallback(reason), vec![]),
    };
    let kernels = pending.frame.body.plans_mut().into_iter().flat_map(|plan| &mut plan.kernels);
    for (kernel, artifact) in kernels.zip(&artifacts) {
        kernel.artifact = artifact.hash;
    }
    artifacts.sort_by_key(|a| a.hash);
    artifacts.dedup_by_key(|a| a.hash);
    (pending.frame, artifacts)
}

/// Threads a kernel may count on.
fn threads() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u32)
}
