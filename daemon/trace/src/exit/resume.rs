//! Ends that are graph breaks: the live state of every inlined frame as tuples, a resume function per frame, and the
//! unsupported instruction under thin functions that stand in for the frames on Python's stack.

use super::Outcome;
use super::build::Builder;
use crate::state::broken::{Broken, Forced, Frozen};
use crate::state::tracer::Tracer;
use crate::value::flow::{Flow, Stop, stop};
use crate::value::frame::Slot;
use crate::value::{Payload, Value};
use flambeau_bytecode::readers::reads_frame;
use flambeau_bytecode::resume::{AssembleError, Entry, Item, ResumePoint, assemble};
use flambeau_bytecode::{Condition, Op, Output, live_for, live_slots, loop_slots, thin_call, thin_instr};
use flambeau_core::trace::Trace;
use flambeau_ir::code::{Code, Const, Origin};
use flambeau_ir::exit::{Break, Build, BuildId, Catch, End, Resume, Then, Varying};
use flambeau_ir::reason::{Reason, ReasonCode};
use flambeau_ir::source::{SourceId, Step};
use std::sync::Arc;

/// How the innermost frame breaks.
enum Kind {
    /// At an instruction that takes operands and leaves this.
    Call(u32, Output),
    /// At a test of the top of the stack; on each side, whether it stays there.
    Jump { yes: (u32, bool), no: (u32, bool) },
    /// At a loop over an iterator that only Python can advance.
    Next(u32),
    /// Before an instruction that only its own frame can run.
    Step,
    /// After an instruction: nothing is left to plain Python, but what the frame let go of ends.
    After(u32),
}

/// Built-ins that tell objects apart that are equal.
const IDENTITY: &[&str] = &["operator.is_", "operator.is_not", "_operator.is_", "_operator.is_not"];

impl Tracer<'_> {
    /// What becomes of a trace that met something it cannot trace.
    pub(super) fn break_off(&mut self, mut reason: Reason) -> Outcome {
        reason.raises = self.error_on_break;
        if self.frames_read {
            reason.detail += ": it reads frames of the program, which therefore runs as it is";
            return Outcome::Failed(reason);
        }
        if !self.may_break(&reason) {
            return Outcome::Failed(reason);
        }
        match self.broken.take() {
            None => self.give_up(reason),
            Some(Broken::Again(executed)) => Outcome::again(executed, reason),
            Some(Broken::Frames(frames, _)) => {
                if frames.first().is_some_and(|leaf| self.tells_apart(leaf)) {
                    return Outcome::Failed(reason);
                }
                // With nested breaks off, the call in the outermost frame is what breaks.
                if let (false, [_, .., root]) =
                    (self.nested_breaks || flambeau_ir::mutated!("nested_breaks_stay_on"), frames.as_slice())
                {
                    return Outcome::again(root.executed, reason);
                }
                match self.beneath(&frames) {
                    Some(i) if i + 1 < frames.len() => return Outcome::again(frames[i + 1].executed, reason),
                    Some(_) if frames.iter().any(|f| f.handling) => return self.give_up(reason),
                    _ => {}
                }
                match self.break_at(&frames, &reason) {
                    Ok(trace) => Outcome::Done(Box::new(trace)),
                    // What frame `i` holds cannot be made: the call that entered it is what breaks.
                    Err(Some(i)) if i + 1 < frames.len() => Outcome::again(frames[i + 1].executed, reason),
                    Err(_) => match self.unmade.take() {
                        Some(made_at) => Outcome::again(made_at, reason),
                        None => self.give_up(reason),
                    },
                }
            }
        }
    }

    fn may_break(&self, reason: &Reason) -> bool {
        !(self.frame.options.fullgraph || self.frames_read || reason.raises) && resumable(reason.code)
    }

    /// What becomes of a frame that no trace can leave where it stopped: it is left to plain Python from where the graph
    /// got its last call on, and where that cannot be either, from the middle of its way.
    pub(super) fn give_up(&mut self, reason: Reason) -> Outcome {
        if !self.may_break(&reason) {
            return Outcome::Failed(reason);
        }
        let within = if self.leaves_rest { self.places.len() / 2 } else { self.places.len() };
        match self.places[..within].last() {
            Some(place) => Outcome::Again(Forced { executed: place.executed, reason, rest: Some(place.symbols) }),
            None => Outcome::Failed(reason),
        }
    }

    /// The trace that ends in a break of `frames`, innermost first; or the index of the frame whose state stands against it.
    fn break_at(&mut self, frames: &[Frozen], reason: &Reason) -> Result<Trace, Option<usize>> {
        let [leaf, callers @ ..] = frames else { return Err(None) };
        let mut b = Builder::default();
        let kind = self.kind(leaf);
        if callers.is_empty() && matches!(kind, Kind::Step) && self.graph.is_idle() {
            return Err(None);
        }
        let at = |i: usize| move |_: Stop| Some(i);
        let handling = handling(frames, &kind);
        // The frame that handles an exception goes on, with its variables, and so do those that called it.
        let dies = |i: usize| handling.is_none_or(|handling| i < handling);
        let action = self.action(&mut b, leaf, &kind, dies(0)).map_err(at(0))?;
        let then = match self.then(&mut b, leaf, &kind).map_err(at(0))? {
            Sides::One(resume) => self.onwards(&mut b, callers, resume)?.map_or(Then::Return, Then::Resume),
            Sides::Branch(yes, no) => {
                let (yes, no) = (self.onwards(&mut b, callers, Some(yes))?, self.onwards(&mut b, callers, Some(no))?);
                Then::Branch { yes: yes.ok_or(None)?, no: no.ok_or(None)? }
            }
            Sides::Iterate(body, done) => {
                let (body, done) =
                    (self.onwards(&mut b, callers, Some(body))?, self.onwards(&mut b, callers, Some(done))?);
                Then::Iterate { body: body.ok_or(None)?, done: done.ok_or(None)? }
            }
        };
        let catch = handling.map_or(Ok(None), |i| self.handler_of(&mut b, frames, i))?;
        let action = self.under_callers(&mut b, callers, action, |i| dies(i + 1))?;
        // Containers find a NaN by its identity.
        if b.exit.builds.iter().any(|build| matches!(build, Build::Const(Const::Float(x)) if x.is_nan())) {
            return Err(None);
        }
        let varying = std::mem::take(&mut b.varying).into_iter().collect();
        b.exit.end = End::Break(Box::new(Break { reason: reason.clone(), action, then, catch, varying }));
        self.seal(b).map_err(|_| None)
    }

    /// Whether the leaf's instruction tells constants apart that are equal: no break may come before it, at any depth, as
    /// they may be one object once they are made anew.
    fn tells_apart(&mut self, leaf: &Frozen) -> bool {
        let op = leaf.decoded.instrs[leaf.at].op;
        leaf.next.is_none() && (matches!(op, Op::Is { .. }) || self.calls(leaf, |path| IDENTITY.contains(&path)))
    }

    fn kind(&mut self, leaf: &Frozen) -> Kind {
        if self.leaves_rest {
            return Kind::Step;
        }
        if let Some(next) = leaf.next {
            return Kind::After(next as u32);
        }
        let (op, next) = (leaf.decoded.instrs[leaf.at].op, leaf.at as u32 + 1);
        match op {
            Op::PopJumpIf { cond: Condition::True, target } => Kind::Jump { yes: (target, false), no: (next, false) },
            Op::PopJumpIf { cond: Condition::False, target } => Kind::Jump { yes: (next, false), no: (target, false) },
            Op::JumpIfOrPop { cond: true, target } => Kind::Jump { yes: (target, true), no: (next, false) },
            Op::JumpIfOrPop { cond: false, target } => Kind::Jump { yes: (next, false), no: (target, true) },
            Op::ForIter(target) => Kind::Next(target),
            _ => match op.alone() {
                Some((inputs, output)) if !self.reads_frame(leaf, inputs) => Kind::Call(inputs, output),
                _ => Kind::Step,
            },
        }
    }

    /// The function that does what the trace could not, and its arguments: without the thin frames of the callers. `dies`:
    /// an exception ends the frame.
    fn action(&mut self, b: &mut Builder, leaf: &Frozen, kind: &Kind, dies: bool) -> Flow<(BuildId, BuildId)> {
        let (inputs, output) = match kind {
            Kind::Step => {
                let step = self.take_up(b, leaf, leaf.at as u32, &leaf.stack, Entry::Nothing, None)?;
                let none = b.constant(&Const::None);
                let args = b.add(Build::Tuple(vec![step.state, none], None));
                return Ok((step.function, args));
            }
            Kind::After(_) => {
                let nothing = b.add(Build::Path("builtins.tuple".into()));
                return Ok((nothing, b.add(Build::Tuple(Vec::new(), None))));
            }
            Kind::Call(inputs, output) => (*inputs, *output),
            Kind::Jump { .. } => (1, Output::Truth),
            Kind::Next(_) => (1, Output::Next),
        };
        let operands = &leaf.stack[leaf.stack.len().saturating_sub(inputs as usize)..];
        let items: Vec<Item> = operands.iter().map(item).collect();
        let (held, lasting) = self.held(b, leaf, dies)?;
        let code = thin_instr(&leaf.code, &leaf.decoded, leaf.at as u32, &items, output, &held).map_err(refused)?;
        let values: Vec<Value> = operands.iter().flatten().cloned().collect();
        let mut args = self.build_all(b, &values)?;
        args.extend(lasting);
        let args = b.add(Build::Tuple(args, None));
        Ok((self.thin(b, leaf, code)?, args))
    }

    /// Wraps the action in a thin function per caller.
    fn under_callers(
        &mut self,
        b: &mut Builder,
        callers: &[Frozen],
        mut action: (BuildId, BuildId),
        dies: impl Fn(usize) -> bool,
    ) -> Result<(BuildId, BuildId), Option<usize>> {
        for (i, caller) in callers.iter().enumerate() {
            let (held, lasting) = self.held(b, caller, dies(i)).map_err(|_| Some(i + 1))?;
            let code = thin_call(&caller.code, &caller.decoded, caller.at as u32, &held).map_err(|_| Some(i + 1))?;
            let function = self.thin(b, caller, code).map_err(|_| Some(i + 1))?;
            let args = b.add(Build::Tuple([action.0, action.1].into_iter().chain(lasting).collect(), None));
            action = (function, args);
        }
        Ok(action)
    }

    /// The variables whose objects a traceback keeps if an exception ends the frame, and those objects: where their end can
    /// be seen.
    fn held(&mut self, b: &mut Builder, frame: &Frozen, dies: bool) -> Flow<(Vec<u32>, Vec<BuildId>)> {
        let (mut slots, mut values) = (Vec::new(), Vec::new());
        for (i, slot) in frame.locals.iter().enumerate().filter(|_| dies) {
            if let Slot::Value(value) = slot
                && self.is_missed(value, 0)
            {
                slots.push(i as u32);
                values.push(self.build(b, value)?);
            }
        }
        Ok((slots, values))
    }

    fn thin(&mut self, b: &mut Builder, frame: &Frozen, code: Code) -> Flow<BuildId> {
        self.function(b, frame, code, Vec::new())
    }

    fn function(&mut self, b: &mut Builder, frame: &Frozen, code: Code, closure: Vec<BuildId>) -> Flow<BuildId> {
        let Some(globals) = self.arenas.dicts[frame.function.globals].origin else {
            return stop(ReasonCode::SideEffect, "a frame with new globals");
        };
        Ok(b.add(Build::Function {
            code: Const::Code(Arc::new(code)),
            globals: globals.source,
            qualname: frame.function.qualname.clone(),
            defaults: None,
            kwdefaults: None,
            closure,
        }))
    }

    /// Where the innermost frame goes on.
    fn then(&mut self, b: &mut Builder, leaf: &Frozen, kind: &Kind) -> Flow<Sides> {
        let next = leaf.at as u32 + 1;
        let below = |n: u32| &leaf.stack[..leaf.stack.len().saturating_sub(n as usize)];
        match *kind {
            Kind::Step => Ok(Sides::One(None)),
            Kind::After(next) => {
                Ok(Sides::One(Some(self.take_up(b, leaf, next, &leaf.stack, Entry::Nothing, None)?)))
            }
            Kind::Call(inputs, output) => {
                let entry = match output {
                    Output::None => Entry::Nothing,
                    Output::Value => Entry::Value,
                    Output::NullValue => Entry::NullValue,
                    Output::Items(n) => Entry::Items(n),
                    Output::Truth | Output::Next => return stop(ReasonCode::Internal, "an instruction of two ends"),
                };
                if entry == Entry::Value && returns_next(leaf, below(inputs)) && !self.holds_finalizer(leaf) {
                    return Ok(Sides::One(None));
                }
                let operands = &leaf.stack[below(inputs).len()..];
                // A variable keeps what it is bound to, though nothing reads it: what plain Python gives may have an end that
                // is seen. On the stack it ends at once.
                let stored =
                    matches!(leaf.decoded.instrs.get(next as usize), Some(i) if matches!(i.op, Op::StoreFast(_)));
                let (target, entry) = if stored || operands.iter().flatten().any(|value| self.makes_finalizer(value)) {
                    (next, entry)
                } else {
                    self.past_unused(leaf, next, entry)
                };
                Ok(Sides::One(Some(self.take_up(b, leaf, target, below(inputs), entry, None)?)))
            }
            Kind::Jump { yes, no } => {
                let mut side = |(target, stays): (u32, bool)| {
                    let stack = if stays { &leaf.stack[..] } else { below(1) };
                    self.take_up(b, leaf, target, stack, Entry::Nothing, None)
                };
                Ok(Sides::Branch(side(yes)?, side(no)?))
            }
            Kind::Next(target) => {
                let (start, entry) = self.past_unused(leaf, next, Entry::Value);
                let body = self.take_up(b, leaf, start, &leaf.stack, entry, None)?;
                let done = self.take_up(b, leaf, target, below(1), Entry::Nothing, None)?;
                Ok(Sides::Iterate(body, done))
            }
        }
    }

    /// The resume function of the outermost frame, which calls those below it. `None`: all frames only return the value.
    fn onwards(
        &mut self,
        b: &mut Builder,
        callers: &[Frozen],
        mut child: Option<Resume>,
    ) -> Result<Option<Resume>, Option<usize>> {
        for (i, caller) in callers.iter().enumerate() {
            // It has returned as soon as the value is there. Above a frame that goes on it stays on Python's stack.
            if (child.is_none() || flambeau_ir::mutated!("caller_left_out"))
                && returns_next(caller, &caller.stack)
                && !self.holds_finalizer(caller)
            {
                continue;
            }
            let entry = if child.is_some() { Entry::Child } else { Entry::Value };
            let resume = self.take_up(b, caller, caller.at as u32 + 1, &caller.stack, entry, child);
            child = Some(resume.map_err(|_| Some(i + 1))?);
        }
        Ok(child)
    }

    /// How frame `i`, which handles an exception of the action, goes on.
    fn handler_of(&mut self, b: &mut Builder, frames: &[Frozen], i: usize) -> Result<Option<Catch>, Option<usize>> {
        let frame = &frames[i];
        let Some(handler) = frame.decoded.handler(frame.at) else { return Ok(None) };
        let stack = &frame.stack[..(handler.depth as usize).min(frame.stack.len())];
        let raise = self.take_up(b, frame, handler.target, stack, Entry::Raise, None).map_err(|_| Some(i))?;
        let resume = self.onwards(b, &frames[i + 1..], Some(raise)).map_err(|above| above.map(|j| i + j))?;
        let frames = (frames.len() - i) as u32;
        Ok(resume.map(|resume| Catch { resume, frames }))
    }

    /// Skips an instruction that only drops the value: what is not read needs no guard.
    fn past_unused(&mut self, frame: &Frozen, next: u32, entry: Entry) -> (u32, Entry) {
        let unused = match frame.decoded.instrs.get(next as usize).map(|i| i.op) {
            Some(Op::PopTop) => true,
            Some(Op::StoreFast(slot)) => {
                let slot = slot as usize;
                // A slot that is bound keeps its old value otherwise, which nothing reads either.
                frame.code.localspluskinds[slot] & Code::CELL == 0
                    && !live_slots(&frame.code, &frame.decoded, next + 1)[slot]
                    && !matches!(&frame.locals[slot], Slot::Value(old) if self.is_missed(old, 0))
            }
            _ => false,
        };
        if unused && entry == Entry::Value { (next + 1, Entry::Nothing) } else { (next, entry) }
    }

    /// The function that takes up `frame` at `target` with this stack, and its state.
    pub(super) fn take_up(
        &mut self,
        b: &mut Builder,
        frame: &Frozen,
        target: u32,
        stack: &[Option<Value>],
        entry: Entry,
        child: Option<Resume>,
    ) -> Flow<Resume> {
        if !self.is_root(frame) && has_sets(frame) {
            // They are made anew with the code, and may have another order. Only the frame's own code lends its constants.
            return stop(ReasonCode::UnguardableObject, "the order of a constant set");
        }
        let live = live_for(&frame.code, &frame.decoded, frame.at as u32, target, entry);
        let (mut locals, mut state, mut closure) = (Vec::new(), Vec::new(), Vec::new());
        let mut varying = Vec::new();
        // A tuple lets go of its last item first, a frame of its first variable.
        for (i, slot) in frame.locals.iter().enumerate().rev() {
            let free = frame.code.localspluskinds[i] & Code::FREE != 0;
            // What the rest of a frame calls in plain Python may read all of its variables.
            let stays = free || live[i] || self.leaves_rest;
            if !(stays || matches!(slot, Slot::Value(value) if self.is_missed(value, 0))) {
                continue;
            }
            let id = match slot {
                Slot::Empty => continue,
                Slot::Lazy(_, source) => b.source(*source),
                Slot::Value(value) => self.build(b, value)?,
            };
            if free {
                closure.push(id);
            } else {
                if matches!(slot, Slot::Value(value) if self.is_counted(value)) {
                    varying.push(Varying::State(vec![state.len() as u32]));
                }
                locals.push(i as u32);
                state.push(id);
            }
        }
        for value in stack.iter().flatten() {
            if self.is_counted(value) {
                varying.push(Varying::State(vec![state.len() as u32]));
            }
            state.push(self.build(b, value)?);
        }
        state.extend(child.into_iter().flat_map(|c| [c.function, c.state]));
        let bound = varying_locals(frame, target, &locals);
        varying.extend(bound.into_iter().filter(|bound| !varying.contains(bound)).collect::<Vec<_>>());
        if let Some(child) = child {
            varying.extend(below(b.varying.get(&child.frames), state.len() as u32 - 1));
        } else if entry == Entry::Value {
            // What plain Python gave is another int the next time.
            varying.push(Varying::Value);
        }
        closure.reverse();
        let stack = stack.iter().map(item).collect();
        let point = ResumePoint { at: frame.at as u32, target, locals, stack, entry };
        let code = assemble(&frame.code, &frame.decoded, &point).map_err(refused)?;
        let frames = child.map_or(code.hash, |child| code.hash.above(child.frames));
        let function = self.function(b, frame, code, closure)?;
        let state = b.add(Build::Tuple(state, None));
        if !varying.is_empty() {
            b.varying.insert(frames, varying);
        }
        Ok(Resume { function, state, frames })
    }
}

/// Objects whose end can be seen, by code that it runs or through weak references: a frame that holds one in a variable
/// keeps it until it returns, though nothing reads the variable any more.
impl Tracer<'_> {
    /// Whether the end of this value may be seen, and the frame may hold the last reference to it. Arguments live as long as
    /// the call; of numbers, strings and the like, and of tensors, which would have to be computed for it, no end is seen.
    fn is_missed(&mut self, value: &Value, depth: u32) -> bool {
        if flambeau_ir::mutated!("finalizers_not_seen") {
            return false;
        }
        if self.has_finalizer(value) {
            return true;
        }
        let held = match self.origin_of(value) {
            None => true,
            Some(origin) => self.resuming && self.is_of_state(origin.source),
        };
        held && match value {
            Value::Instance(id) => match &self.arenas.instances[*id].payload {
                // Those of built-in classes have no weak references.
                Payload::Exception(raised) => self.arenas.instances[*id].class.is_python && raised.leaves(),
                _ => true,
            },
            Value::Function(_) | Value::Class(_) | Value::Set(_) => true,
            Value::Parts(parts) => self.kind_of(parts).has_weak_references(),
            // None that has ended leaves a trace: nothing but this variable can hold it.
            Value::Generator(id) => {
                let generator = &self.arenas.generators[*id];
                generator.frame.is_some() || generator.running
            }
            Value::Opaque(_) => self.resuming,
            Value::Method(method) => self.is_missed(&method.receiver.clone(), depth),
            // Instances of subclasses can have weak references, but for tuples.
            Value::Tuple(tuple) if depth < 4 => {
                let class = tuple.class.clone().filter(|class| class.is_python);
                class.is_some_and(|class| self.makes_finalizer(&Value::Class(class)))
                    || tuple.items.clone().iter().any(|item| self.is_missed(item, depth + 1))
            }
            Value::List(id) if self.arenas.lists[*id].class.as_ref().is_some_and(|class| class.is_python) => true,
            Value::Dict(id) if self.arenas.dicts[*id].class.as_ref().is_some_and(|class| class.is_python) => true,
            // What the program's containers hold that were not read is not known.
            Value::List(id) if !self.arenas.lists[*id].loaded => held,
            Value::Dict(id) if !self.arenas.dicts[*id].loaded => held,
            Value::Cell(id) if !self.arenas.cells[*id].loaded => held,
            Value::Cell(id) if depth < 4 => {
                self.arenas.cells[*id].value.clone().is_some_and(|value| self.is_missed(&value, depth + 1))
            }
            Value::List(id) if depth < 4 => {
                let items = self.arenas.lists[*id].items.clone();
                items.iter().any(|item| self.is_missed(item, depth + 1))
            }
            Value::Dict(id) if depth < 4 => {
                let values: Vec<Value> = self.arenas.dicts[*id].items.values().map(|(_, v)| v.clone()).collect();
                values.iter().any(|item| self.is_missed(item, depth + 1))
            }
            _ => false,
        }
    }

    /// Whether the source is in the arguments of the frame.
    fn is_of_state(&self, mut source: SourceId) -> bool {
        loop {
            let node = self.sources.get(source);
            match (node.base, &node.step) {
                (Some(base), _) => source = base,
                (None, step) => return matches!(step, Step::Arg(_)),
            }
        }
    }

    fn has_finalizer(&mut self, value: &Value) -> bool {
        match value {
            Value::Instance(id) => {
                let class = self.arenas.instances[*id].class.clone();
                self.makes_finalizer(&Value::Class(class))
            }
            Value::Tuple(tuple) => tuple.items.iter().any(|item| self.has_finalizer(item)),
            Value::Unread(origin) => !self.ends_unseen(*origin),
            _ => false,
        }
    }

    fn makes_finalizer(&mut self, value: &Value) -> bool {
        matches!(value, Value::Class(class) if matches!(self.type_lookup(class, "__del__"), Ok(Some(_))))
    }

    fn holds_finalizer(&mut self, frame: &Frozen) -> bool {
        frame.locals.iter().any(|slot| matches!(slot, Slot::Value(value) if self.is_missed(value, 0)))
    }
}

/// Where a frame's state, which begins with these locals, holds what a loop around `target` binds.
fn varying_locals(frame: &Frozen, target: u32, locals: &[u32]) -> Vec<Varying> {
    let bound = loop_slots(&frame.code, &frame.decoded, target);
    let places = locals.iter().enumerate().filter(|(_, slot)| bound[**slot as usize]);
    places.map(|(place, _)| Varying::State(vec![place as u32])).collect()
}

/// What varies below a frame whose state holds the callee's at this index.
fn below(callee: Option<&Vec<Varying>>, index: u32) -> impl Iterator<Item = Varying> {
    callee.into_iter().flatten().map(move |varying| match varying {
        Varying::Value => Varying::Value,
        Varying::State(path) => Varying::State([&[index], &path[..]].concat()),
    })
}

impl Tracer<'_> {
    /// The outermost frame that is not to be resumed, with all below it: the call that entered it breaks instead.
    fn beneath(&self, frames: &[Frozen]) -> Option<usize> {
        // What the standard library does inside is not worth it: the user's call of it is what breaks. Nor is what never
        // comes near a tensor, below the function that is compiled.
        let is_of = |f: &Frozen, origin| Origin::of(&f.code.filename) == origin;
        let is_standard = |f: &Frozen| is_of(f, Origin::Standard);
        let standard = frames.iter().take_while(|f| is_standard(f)).count().checked_sub(1);
        // Where a frame let go of an object, or goes on after a break, the call would hold the state of the frame.
        let lets_go = frames.first().is_some_and(|leaf| leaf.next.is_some());
        let inner = frames.len().saturating_sub(1);
        let below =
            if lets_go { 0 } else { frames.iter().position(|f| f.code.is_resume()).unwrap_or(inner).min(inner) };
        let apart = self.apart(&frames[..below], is_standard).checked_sub(1);
        let whole = frames.iter().rposition(|f| is_of(f, Origin::Whole) || f.handling);
        let recursive = frames.iter().any(|f| frames.iter().filter(|g| same_source(f, g)).count() > MOST_LEVELS);
        whole.max(standard).max(apart).max(recursive.then(|| frames.len() - 2))
    }
}

/// Levels of one function that are resumed as one: of more, each depth would be compiled by itself.
const MOST_LEVELS: usize = 16;

/// Whether both run one function's source: as a whole, or resumed.
fn same_source(f: &Frozen, g: &Frozen) -> bool {
    let (f, g) = (&f.code, &g.code);
    f.firstlineno == g.firstlineno && f.qualname == g.qualname && f.filename == g.filename
}

/// The frame that handles an exception of the action, if one of the trace does.
fn handling(frames: &[Frozen], kind: &Kind) -> Option<usize> {
    // The rest of a frame that runs in plain Python handles its own.
    let first = usize::from(matches!(kind, Kind::Step | Kind::After(_)));
    (first..frames.len()).find(|i| frames[*i].decoded.handler(frames[*i].at).is_some())
}

/// Resume functions of the innermost frame.
enum Sides {
    One(Option<Resume>),
    Branch(Resume, Resume),
    Iterate(Resume, Resume),
}

#[expect(clippy::ref_option, reason = "maps over positions of a stack")]
fn item(value: &Option<Value>) -> Item {
    if value.is_some() { Item::Value } else { Item::Null }
}

fn refused(error: AssembleError) -> Stop {
    Stop::Break(Box::new(Reason::new(ReasonCode::UnsupportedOpcode, error.to_string())))
}

/// Whether the frame does nothing but return what its instruction leaves: it needs no resume function.
fn returns_next(frame: &Frozen, below: &[Option<Value>]) -> bool {
    let next = frame.decoded.instrs.get(frame.at + 1).map(|i| i.op);
    below.is_empty() && next == Some(Op::ReturnValue) && frame.decoded.handler(frame.at).is_none()
}

/// Whether the code has sets among its constants whose order may matter: it does not ask only what is in them.
fn has_sets(frame: &Frozen) -> bool {
    let is_set = |i: u32| matches!(frame.code.consts.get(i as usize), Some(Const::FrozenSet(items)) if items.len() > 1);
    let ops = frame.decoded.instrs.windows(2).map(|pair| (pair[0].op, pair[1].op));
    ops.into_iter()
        .any(|(op, next)| matches!(op, Op::LoadConst(i) if is_set(i)) && !matches!(next, Op::Contains { .. }))
}

impl Tracer<'_> {
    /// Whether it is the frame that is traced, not one that it called.
    fn is_root(&self, frame: &Frozen) -> bool {
        frame.function.origin.is_some_and(|origin| origin.object == self.frame.function)
    }

    /// Whether the leaf calls something that looks at its frame.
    fn reads_frame(&mut self, leaf: &Frozen, inputs: u32) -> bool {
        let operands = &leaf.stack[leaf.stack.len().saturating_sub(inputs as usize)..];
        let reads = |v: &Value| matches!(v, Value::Class(c) if c.is("builtins.super"));
        operands.iter().flatten().any(reads) || self.calls(leaf, reads_frame)
    }

    /// Whether such a function is among the operands of the leaf's instruction.
    fn calls(&mut self, leaf: &Frozen, is_one: impl Fn(&str) -> bool) -> bool {
        let inputs = leaf.decoded.instrs[leaf.at].op.alone().map_or(0, |(inputs, _)| inputs as usize);
        let operands = &leaf.stack[leaf.stack.len().saturating_sub(inputs)..];
        operands.iter().flatten().any(|value| self.function_name(value).is_some_and(|name| is_one(&name)))
    }

    /// The import path of a function, as it says itself where it has no trusted one.
    fn function_name(&mut self, value: &Value) -> Option<Arc<str>> {
        match value {
            Value::Builtin(f) => Some(f.path.clone()),
            Value::Function(f) => Some(format!("{}.{}", f.module.as_ref()?, f.qualname).into()),
            Value::Method(m) => self.function_name(&m.func),
            Value::Opaque(o) => self.name_of_opaque(o).ok().map(Into::into),
            _ => None,
        }
    }
}

/// Reasons that lie in one instruction. Others hold for the frame as a whole.
fn resumable(code: ReasonCode) -> bool {
    !matches!(
        code,
        ReasonCode::Internal
            | ReasonCode::UnusualAmbient
            | ReasonCode::TooLarge
            | ReasonCode::Recursion
            | ReasonCode::Exception
            | ReasonCode::NotLowered
            | ReasonCode::BackendUnavailable
    )
}
