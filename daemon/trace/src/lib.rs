//! Frame to trace: a symbolic interpreter over [`value::Value`]. It evaluates what is not a tensor, records torch calls
//! in a graph, guards every fact it reads of the client's objects, and logs effects.
//!
//! Each folder uses only those above it in this list. Python's own recursion (an attribute may be a property, which calls a
//! function, which reads attributes) is methods of [`state::tracer::Tracer`], which each folder adds its own to; what protocols
//! ask of the built-in functions and types, which are made of protocols, goes through [`state::library::Library`].

pub mod fold;

pub mod value;

pub mod state;

mod outside;

pub mod torch;

mod protocol;

pub mod builtins;

pub mod opcodes;

pub mod exit;

use exit::Outcome;
use flambeau_core::trace::Trace;
use flambeau_ir::exit::End;
use flambeau_ir::frame::Frame;
use flambeau_ir::graph::{Node, NodeOp};
use flambeau_ir::object::ObjectData;
use flambeau_ir::oracle::Oracle;
use flambeau_ir::reason::{Reason, ReasonCode};
use state::tracer::Tracer;

/// Attempts at one frame: each break that cannot be resumed from costs one.
const MAX_ATTEMPTS: usize = 16;

/// Traces a frame. A pure function of the frame and the oracle's answers. What cannot be traced gives a trace that ends in
/// [`End::Refused`]. Where the frame's options ask for it, `log` gets a line per instruction, however the trace ends.
/// `takes`: whether a graph with `backward()` or activation checkpointing has kernels; else that breaks.
pub fn trace(
    frame: &Frame,
    oracle: &mut dyn Oracle,
    log: &mut Vec<String>,
    takes: &dyn Fn(&Trace) -> Result<(), Reason>,
) -> Trace {
    let mut tracer = Tracer::new(frame, oracle, &builtins::BuiltIns);
    if counts_references(frame) {
        return tracer.refuse(Reason::new(ReasonCode::UnsupportedCall, "sys.getrefcount"));
    }
    // Why the first attempt broke: what users are told.
    let mut first: Option<Reason> = None;
    for _ in 0..MAX_ATTEMPTS {
        let outcome = tracer.run();
        if tracer.has_learnt {
            let forced = tracer.forced.clone();
            tracer = tracer.again(forced);
            continue;
        }
        match outcome {
            Outcome::Done(mut trace) => {
                if tracer.bound_sizes(&mut trace) {
                    let forced = tracer.forced.clone();
                    tracer = tracer.again(forced);
                    continue;
                }
                let backward = tracer.leaves_backward.is_none() && calls_backward(&trace);
                let checkpoints = tracer.leaves_checkpoints.is_none() && !trace.graph.checkpoints.is_empty();
                if (backward || checkpoints)
                    && let Err(reason) = takes(&trace)
                {
                    // Without it, what is before and behind it may have kernels.
                    let forced = tracer.forced.clone();
                    tracer = tracer.again(forced);
                    *(if backward { &mut tracer.leaves_backward } else { &mut tracer.leaves_checkpoints }) =
                        Some(reason);
                    continue;
                }
                log.append(&mut tracer.log);
                if let (End::Break(end), Some(first)) = (&mut trace.exit.end, first) {
                    end.reason = first;
                }
                return *trace;
            }
            Outcome::Failed(reason) => {
                log.append(&mut tracer.log);
                return tracer.refuse(first.unwrap_or(reason));
            }
            Outcome::Again(mut forced) => {
                let stack = std::mem::take(&mut forced.reason.stack);
                first.get_or_insert_with(|| Reason { stack, ..forced.reason.clone() });
                tracer = tracer.again(Some(forced));
            }
        }
    }
    log.append(&mut tracer.log);
    tracer.refuse(first.unwrap_or_else(|| Reason::new(ReasonCode::Internal, "the attempts at a frame ran out")))
}

fn calls_backward(trace: &Trace) -> bool {
    let calls = |node: &Node| matches!(&node.op, NodeOp::Call { target, .. } if target.gives_gradients());
    trace.graph.nodes.iter().any(calls)
}

fn counts_references(frame: &Frame) -> bool {
    let Some(ObjectData::Function(function)) = frame.heap.get(frame.function).map(|object| &object.data) else {
        return false;
    };
    frame.heap.codes.get(&function.code).is_some_and(|code| protocol::call::counts_references(code))
}
