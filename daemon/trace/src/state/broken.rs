//! Graph breaks as they leave the interpreter: the inlined frames at the moment of a break, each as it was before the
//! instruction that could not be traced. `resume` makes an exit of them.
//!
//! A break can be resumed from where it happened if the instruction has changed nothing yet, and every frame above it
//! waits in a call whose result it takes as it is. Else (a break inside a comparison that a sort asked for, a property, a
//! generator) the instruction that led there becomes the break point, in a second trace that stops before it.

use crate::state::tracer::Tracer;
use crate::value::frame::{PyFrame, Slot};
use crate::value::{Function, InstanceId, Value};
use flambeau_bytecode::{Decoded, Op};
use flambeau_ir::code::Code;
use flambeau_ir::graph::NodeOp;
use flambeau_ir::guard::{Guard, GuardKind};
use flambeau_ir::reason::Reason;
use flambeau_ir::source::SourceTable;
use indexmap::IndexSet;
use std::rc::Rc;
use std::sync::Arc;

/// Instances with a finalizer that the frame may hold the last reference to.
pub(crate) type Mortals = IndexSet<InstanceId>;

/// An inlined frame at a break.
#[derive(Debug)]
pub(crate) struct Frozen {
    pub function: Rc<Function>,
    pub code: Arc<Code>,
    pub decoded: Rc<Decoded>,
    /// The instruction it is at.
    pub at: usize,
    /// Number of that instruction, among all that the trace ran.
    pub executed: usize,
    /// Value stack: of the innermost frame with the instruction's operands, of the others without those of their call.
    pub stack: Vec<Option<Value>>,
    /// `localsplus`
    pub locals: Vec<Slot>,
    /// The instruction is done, and the frame goes on with this one; `None`: the instruction is what breaks, or waits.
    pub next: Option<usize>,
    /// It is in an `except` or `finally` block for an exception, which the thread's state knows as well.
    pub handling: bool,
    /// It, or what it called, put something into the graph.
    pub worked: bool,
}

/// The frames of a break.
#[derive(Debug)]
pub(crate) enum Broken {
    /// Innermost first, and whether the caller of the last one takes its result as it is.
    Frames(Vec<Frozen>, bool),
    /// A trace that stops before the instruction with this number finds frames to resume from.
    Again(usize),
}

/// Where an attempt at a frame has to break.
#[derive(Debug, Clone)]
pub(crate) struct Forced {
    /// The number of the instruction.
    pub executed: usize,
    pub reason: Reason,
    /// All that follows is left to plain Python with the instruction; the trace has so many symbols there.
    pub rest: Option<usize>,
}

/// Where the graph of the outermost frame had calls that it did not have at the last such place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// The number of the frame's next instruction.
    pub executed: usize,
    pub symbols: usize,
}

/// What an instruction finds.
pub(crate) struct Moment {
    /// Its operands, deepest first.
    operands: Vec<Option<Value>>,
    depth: usize,
    changes: usize,
    nodes: usize,
    guards: usize,
    frames: usize,
    /// What it may end.
    pub at_stake: Mortals,
    /// How many instances may end in all.
    pub mortals: usize,
}

impl Tracer<'_> {
    /// The state before an instruction.
    pub(crate) fn moment(&self, frame: &PyFrame, op: Op) -> Moment {
        let depth = frame.stack.len();
        let operands = op.alone().map_or(depth, |(inputs, _)| depth.min(inputs as usize));
        let operands = frame.stack[depth - operands..].to_vec();
        Moment {
            at_stake: if self.mortals.is_empty() { Mortals::new() } else { self.at_stake(frame, op, &operands) },
            mortals: self.mortals.len(),
            operands,
            depth,
            changes: self.arenas.changes(),
            nodes: self.graph.nodes.len(),
            guards: self.guards.len(),
            frames: self.frames_run,
        }
    }

    /// Notes that the next instruction of the outermost frame is one to break at if what follows cannot be left, where the
    /// graph has new calls.
    pub(crate) fn note_place(&mut self) {
        let nodes = &self.graph.nodes;
        let new = nodes.get(self.nodes_seen..).unwrap_or_default();
        if new.iter().any(|node| matches!(node.op, NodeOp::Call { .. })) {
            self.places.push(Place { executed: self.executed, symbols: self.symbols.len() });
        }
        self.nodes_seen = nodes.len();
    }

    /// What the trace found until it was clear that its end is out of reach: but for what plain Python handed over, and what is
    /// said of other symbols than the first ones.
    pub(crate) fn facts(&mut self, symbols: usize) -> (SourceTable, Vec<Guard>) {
        let guards = std::mem::take(&mut self.guards);
        let holds_there = |guard: &Guard| {
            let mut defined = true;
            guard.kind.symbols(&mut |symbol| defined &= (symbol.0 as usize) < symbols);
            defined && !(matches!(guard.kind, GuardKind::Equals(_)) && self.is_handed(guard.source))
        };
        let facts = guards.into_iter().filter(holds_there).collect();
        (std::mem::take(&mut self.sources), facts)
    }

    /// Notes a frame that a break passes through, at instruction `at`.
    pub(crate) fn freeze(&mut self, frame: &PyFrame, at: usize, before: Moment, reason: &mut Reason) {
        let (executed, nodes) = self.stack.last().map_or((0, 0), |info| (info.executed, info.nodes));
        let worked = self.graph.nodes.len() > nodes;
        let frozen = |stack| Frozen { executed, stack, worked, ..Frozen::of(frame, at) };
        if reason.stack.is_empty() {
            reason.stack = self.locations();
            let untouched = before.frames == self.frames_run && before.changes == self.arenas.changes()
                || flambeau_ir::mutated!("half_done_instruction_again");
            self.broken = Some(if untouched {
                // The instruction that made them runs in plain Python.
                self.graph.drop_calls(before.nodes, |_, _| true);
                self.forget_reads(before.guards);
                let below = before.depth - before.operands.len();
                let mut stack = frame.stack.clone();
                stack.truncate(below);
                stack.extend(before.operands);
                Broken::Frames(vec![frozen(stack)], false)
            } else {
                Broken::Again(executed)
            });
        } else {
            match &mut self.broken {
                Some(Broken::Frames(frames, true)) => frames.push(frozen(frame.stack.clone())),
                Some(Broken::Again(_)) => return,
                Some(Broken::Frames(_, false)) | None => self.broken = Some(Broken::Again(executed)),
            }
        }
        self.pass_on();
    }

    /// Notes the innermost frame of a break that comes after instruction `at`. Where the instruction itself changed
    /// something outside of the frame, it is the instruction that is left to plain Python.
    pub(crate) fn freeze_after(&mut self, frame: &PyFrame, at: usize, before: &Moment, reason: &mut Reason) {
        let (executed, nodes) = self.stack.last().map_or((0, 0), |info| (info.executed, info.nodes));
        let worked = self.graph.nodes.len() > nodes;
        reason.stack = self.locations();
        let alone = before.frames == self.frames_run && before.changes != self.arenas.changes();
        self.broken = Some(if alone {
            Broken::Again(executed)
        } else {
            let frozen = Frozen { executed, worked, next: Some(frame.pc), ..Frozen::of(frame, at) };
            Broken::Frames(vec![frozen], false)
        });
        self.pass_on();
    }

    /// Notes whether the caller of the frame that was frozen last takes its result as it is.
    fn pass_on(&mut self) {
        let is_direct = self.stack.last().is_some_and(|info| info.direct);
        if let Some(Broken::Frames(_, direct)) = &mut self.broken {
            *direct = is_direct;
        }
    }
}

impl Frozen {
    /// A frame as it is, at instruction `at`.
    pub(crate) fn of(frame: &PyFrame, at: usize) -> Frozen {
        Frozen {
            function: frame.function.clone(),
            code: frame.code.clone(),
            decoded: frame.decoded.clone(),
            at,
            executed: 0,
            stack: frame.stack.clone(),
            locals: frame.locals.clone(),
            next: None,
            handling: frame.handling > 0,
            worked: false,
        }
    }
}
