//! Frames and generators: making them, running them, suspending them.

use crate::builtins::generators;
use crate::state::tracer::Tracer;
use crate::value::flow::{Flow, Stop, stop};
use crate::value::frame::{Control, FrameEnd, FrameInfo, Generator, GeneratorId, PyFrame, Slot};
use crate::value::{Function, Value};
use flambeau_bytecode::dialect::{BUILTINS, Builtins};
use flambeau_bytecode::{Decoded, Op};
use flambeau_ir::bounds;
use flambeau_ir::code::Code;
use flambeau_ir::graph::Location;
use flambeau_ir::reason::ReasonCode;
use std::rc::Rc;

/// Instructions run before a trace is given up.
const MAX_INSTRUCTIONS: usize = 4_000_000;
/// Depth of inlining before a trace is given up. The thread that traces has a stack to match.
const MAX_DEPTH: usize = 250;

/// Room for a frame's stack when it begins. Unit: values.
const USUAL_STACK: u32 = 32;

impl Tracer<'_> {
    /// The instructions of a code object.
    pub(crate) fn decode(&mut self, code: &Code) -> Flow<Rc<Decoded>> {
        if let Some(decoded) = self.decoded.get(&code.hash) {
            return Ok(decoded.clone());
        }
        match flambeau_bytecode::decode(code) {
            Ok(decoded) => {
                let decoded = Rc::new(decoded);
                self.decoded.insert(code.hash, decoded.clone());
                self.dialect = flambeau_bytecode::versions::dialect(code).ok();
                Ok(decoded)
            }
            Err(e) => stop(ReasonCode::UnsupportedOpcode, format!("{} in {}", e, code.qualname)),
        }
    }

    /// What built-ins do in the version that the code is of.
    pub(crate) fn builtins(&self) -> Builtins {
        // Without code of a known version nothing is traced.
        self.dialect.map_or(BUILTINS, |dialect| dialect.builtins)
    }

    /// A frame about to begin.
    pub(crate) fn new_frame(&mut self, function: Rc<Function>, locals: Vec<Slot>) -> Flow<PyFrame> {
        let code = function.code.clone();
        let decoded = self.decode(&code)?;
        // How deep it gets is a number of the client's.
        let stack = Vec::with_capacity(code.stacksize.min(USUAL_STACK) as usize);
        Ok(PyFrame { function, code, decoded, pc: 0, stack, locals, kw_names: vec![], names: None, handling: 0 })
    }

    /// Runs a frame until it returns, yields or raises.
    pub(crate) fn run_frame(&mut self, frame: &mut PyFrame) -> Flow<FrameEnd> {
        if self.stack.len() >= MAX_DEPTH {
            return stop(ReasonCode::Recursion, frame.code.qualname.clone());
        }
        let direct = std::mem::take(&mut self.direct);
        self.frames_run += 1;
        self.stack.push(FrameInfo {
            qualname: frame.function.qualname.clone(),
            file: frame.code.filename.as_str().into(),
            line: frame.code.firstlineno,
            globals: frame.function.globals,
            decoded: frame.decoded.clone(),
            next: frame.pc,
            executed: self.executed,
            handles: false,
            direct,
            nodes: self.graph.nodes.len(),
        });
        let handling = self.handling.len();
        let result = self.run_instructions(frame);
        if !matches!(result, Ok(FrameEnd::Yield(_))) {
            self.handling.truncate(handling);
        }
        self.stack.pop();
        self.read_result(result, direct)
    }

    /// The user's stack, outermost first.
    pub(crate) fn locations(&self) -> Vec<Location> {
        let location = |f: &FrameInfo| Location { file: f.file.clone(), line: f.line, function: f.qualname.clone() };
        self.stack.iter().map(location).collect()
    }

    fn run_instructions(&mut self, frame: &mut PyFrame) -> Flow<FrameEnd> {
        let decoded = frame.decoded.clone();
        loop {
            let Some(instr) = decoded.instrs.get(frame.pc) else {
                return stop(ReasonCode::Internal, "ran past the end of the code");
            };
            let at = frame.pc;
            frame.pc += 1;
            self.executed += 1;
            bounds::check();
            if self.executed > MAX_INSTRUCTIONS {
                return stop(ReasonCode::TooLarge, "too many instructions");
            }
            if let Some(info) = self.stack.last_mut() {
                info.executed = self.executed;
                info.next = frame.pc;
                info.handles = false;
                info.line = instr.line.unwrap_or(info.line);
            }
            if self.frame.options.log {
                self.log_instruction(frame, instr.op);
            }
            if !decoded.handlers.is_empty()
                && self.handles(frame, at)
                && let Some(info) = self.stack.last_mut()
            {
                info.handles = true;
            }
            if self.stack.len() == 1 && frame.handling == 0 {
                self.note_place();
            }
            let before = self.moment(frame, instr.op);
            let control = match self.forced.take_if(|forced| forced.executed == self.executed) {
                Some(forced) => {
                    self.leaves_rest = forced.rest.is_some();
                    Err(Stop::Break(Box::new(forced.reason)))
                }
                None => self
                    .need_pure(instr.op)
                    .and_then(|()| self.read_operands(frame, instr.op))
                    .and_then(|()| super::step(self, frame, instr.op)),
            };
            match control {
                Ok(Control::Next) => {}
                Ok(Control::Jump(target)) => frame.pc = target as usize,
                Ok(Control::Return(value)) => {
                    if !self.mortals.is_empty() && self.stack.len() > 1 {
                        self.end_frame(frame, &value);
                    }
                    return Ok(FrameEnd::Return(value));
                }
                Ok(Control::Yield(value)) => return Ok(FrameEnd::Yield(value)),
                Ok(Control::Generator) => return Ok(FrameEnd::Generator),
                Err(Stop::Raise(exception)) => {
                    self.set_first_context(&exception);
                    // Deeper means it only passes through here.
                    if self.raised_at.len() <= self.stack.len() {
                        self.raised_at = self.locations();
                    }
                    handle(frame, at, exception)?;
                    self.raised_at.clear();
                }
                Err(Stop::Break(mut reason)) => {
                    self.freeze(frame, at, before, &mut reason);
                    return Err(Stop::Break(reason));
                }
            }
            if !self.mortals.is_empty() {
                self.let_go(frame, at, &before)?;
            }
        }
    }

    /// Whether the frame has a handler for instruction `at` other than that of a `with torch.no_grad()` and its like.
    fn handles(&self, frame: &PyFrame, at: usize) -> bool {
        let Some(handler) = frame.decoded.handler(at) else { return false };
        let exit = (handler.depth as usize).checked_sub(1).and_then(|i| frame.stack.get(i)?.as_ref());
        let restores = match exit {
            Some(Value::Method(m)) => match &m.receiver {
                Value::Instance(id) => {
                    let class = &self.arenas.instances[*id].class;
                    ["no_grad", "enable_grad", "set_grad_enabled"]
                        .iter()
                        .any(|name| class.is(&format!("torch.autograd.grad_mode.{name}")))
                }
                _ => false,
            },
            _ => false,
        };
        !restores
    }

    /// Inlines a call: the frame's result, or a generator.
    pub(crate) fn run_call(&mut self, mut frame: PyFrame) -> Flow<Value> {
        match self.run_frame(&mut frame)? {
            FrameEnd::Return(value) => Ok(value),
            FrameEnd::Generator => {
                let generator =
                    Generator { frame: Some(Box::new(frame)), running: false, started: false, handling: vec![] };
                Ok(Value::Generator(self.arenas.generators.push(generator)))
            }
            FrameEnd::Yield(_) => stop(ReasonCode::Internal, "a frame that is no generator yielded"),
        }
    }

    /// Resumes a generator with a value sent into it (`None` to start it), or an exception thrown into it.
    pub(crate) fn resume(&mut self, id: GeneratorId, sent: Result<Value, Value>) -> Flow<FrameEnd> {
        let generator = &mut self.arenas.generators[id];
        if generator.running {
            return self.raise_named("ValueError", "generator already executing");
        }
        let Some(mut frame) = generator.frame.take() else {
            return match sent {
                Ok(_) => Ok(FrameEnd::Return(Value::NONE)),
                Err(exception) => Err(Stop::Raise(exception)),
            };
        };
        generator.running = true;
        let started = std::mem::replace(&mut generator.started, true);
        // What it handles it handles alone.
        let of_callers = self.handling.len();
        self.handling.append(&mut generator.handling);
        if let Err(exception) = &sent
            && let Some(raised) = self.raised_mut(exception)
            && !std::mem::replace(&mut raised.is_raised, true)
            && self.handling.len() > of_callers
        {
            self.set_context(exception);
        }
        let result = match sent {
            Ok(value) => {
                frame.push(value);
                self.run_frame(&mut frame)
            }
            Err(exception) if started => match frame.delegates() {
                None => self.throw_here(&mut frame, exception),
                Some((Value::Generator(inner), target)) if frame.handling == 0 => {
                    self.throw_deeper(&mut frame, inner, target, exception)
                }
                Some(_) => stop(ReasonCode::UnsupportedObject, "an exception thrown into a generator that delegates"),
            },
            Err(exception) => Err(Stop::Raise(exception)),
        };
        let handling = self.handling.split_off(of_callers);
        let generator = &mut self.arenas.generators[id];
        generator.running = false;
        if matches!(result, Ok(FrameEnd::Yield(_))) {
            generator.frame = Some(frame);
            generator.handling = handling;
        }
        // PEP 479: a StopIteration that leaves a generator is a RuntimeError.
        if self.is_raise_of(&result, "StopIteration")
            && let Err(Stop::Raise(cause)) = result
        {
            let class = self.exception_class("RuntimeError");
            let error = self.new_exception(class, vec![Value::str("generator raised StopIteration")]);
            self.set_cause(&error, cause.clone());
            if let Some(raised) = self.raised_mut(&error) {
                (raised.context, raised.is_raised) = (Some(cause), true);
            }
            return Err(Stop::Raise(error));
        }
        result
    }
}

impl Tracer<'_> {
    /// Raises an exception where a generator's frame waits.
    fn throw_here(&mut self, frame: &mut PyFrame, exception: Value) -> Flow<FrameEnd> {
        handle(frame, frame.pc - 1, exception)?;
        self.run_frame(frame)
    }

    /// Throws an exception into the generator that the frame's waits for, which ends at `target` (`_gen_throw` in CPython's
    /// `Objects/genobject.c`).
    fn throw_deeper(
        &mut self,
        frame: &mut PyFrame,
        inner: GeneratorId,
        target: u32,
        exception: Value,
    ) -> Flow<FrameEnd> {
        if self.class_of(&exception)?.derives("builtins.GeneratorExit") {
            let raised = match generators::close(self, inner) {
                Err(Stop::Raise(other)) => other,
                closed => closed.map(|_| exception)?,
            };
            return self.throw_here(frame, raised);
        }
        match self.resume(inner, Err(exception)) {
            Ok(FrameEnd::Return(value)) => {
                frame.pop()?;
                frame.push(value);
                frame.pc = target as usize;
                self.run_frame(frame)
            }
            Err(Stop::Raise(raised)) => self.throw_here(frame, raised),
            yielded => yielded,
        }
    }
}

impl PyFrame {
    /// What a generator's frame waits for, where that may be thrown into (a generator, or an object of a Python class), and
    /// where the frame goes on when it ends.
    fn delegates(&self) -> Option<(Value, u32)> {
        let sends = self.pc.checked_sub(2).and_then(|at| self.decoded.instrs.get(at))?;
        let (Op::Send(target), Some(receiver)) = (sends.op, self.stack.last().and_then(Option::as_ref)) else {
            return None;
        };
        matches!(receiver, Value::Generator(_) | Value::Instance(_)).then(|| (receiver.clone(), target))
    }
}

/// Goes to the handler of an exception raised by instruction `at`; if there is none it leaves the frame.
fn handle(frame: &mut PyFrame, at: usize, exception: Value) -> Flow<()> {
    let decoded = frame.decoded.clone();
    let Some(handler) = decoded.handler(at) else { return Err(Stop::Raise(exception)) };
    frame.stack.truncate(handler.depth as usize);
    if handler.lasti {
        frame.push(Value::int(at as i64));
    }
    frame.push(exception);
    frame.pc = handler.target as usize;
    frame.kw_names.clear();
    Ok(())
}
