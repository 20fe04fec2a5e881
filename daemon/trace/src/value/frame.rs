//! Frames and generators, as data.

use super::flow::{Flow, stop};
use super::{DictId, Function, Id, Value};
use flambeau_bytecode::Decoded;
use flambeau_ir::code::Code;
use flambeau_ir::object::ObjId;
use flambeau_ir::reason::ReasonCode;
use flambeau_ir::source::SourceId;
use std::rc::Rc;
use std::sync::Arc;

/// What is known of an inlined frame from outside it.
#[derive(Clone, Debug)]
pub struct FrameInfo {
    /// Function's qualified name.
    pub qualname: Arc<str>,
    /// File name.
    pub file: Arc<str>,
    /// Present line.
    pub line: u32,
    /// Its globals.
    pub globals: DictId,
    /// Its instructions.
    pub decoded: Rc<Decoded>,
    /// The next instruction.
    pub next: usize,
    /// Number of the instruction it is at, among all that the trace ran.
    pub executed: usize,
    /// It handles exceptions of its instruction, in a way that user code can see.
    pub handles: bool,
    /// Its result is what the caller's instruction pushes, as it is.
    pub direct: bool,
    /// Nodes of the graph when it began.
    pub nodes: usize,
}

/// Names a generator.
pub type GeneratorId = Id<Generator>;

/// A generator.
#[derive(Debug)]
pub struct Generator {
    /// The suspended frame; `None` while it runs and when it ended.
    pub frame: Option<Box<PyFrame>>,
    /// It runs now.
    pub running: bool,
    /// It was resumed at least once.
    pub started: bool,
    /// The exceptions that it handles where it waits, innermost last.
    pub handling: Vec<Value>,
}

/// A local variable's slot.
#[derive(Clone, Debug)]
pub enum Slot {
    /// Unbound.
    Empty,
    /// A value; a [`Value::Cell`] in the slot of a cell or free variable.
    Value(Value),
    /// An argument of the traced frame that was not read yet.
    Lazy(ObjId, SourceId),
}

/// A Python frame.
#[derive(Debug)]
pub struct PyFrame {
    /// The function.
    pub function: Rc<Function>,
    /// Its code.
    pub code: Arc<Code>,
    /// Its instructions.
    pub decoded: Rc<Decoded>,
    /// Next instruction.
    pub pc: usize,
    /// Value stack; `None` is the null of calls.
    pub stack: Vec<Option<Value>>,
    /// `localsplus`
    pub locals: Vec<Slot>,
    /// Names of the next call's keyword arguments.
    pub kw_names: Vec<Arc<str>>,
    /// Names of a class body; `None` in functions.
    pub names: Option<DictId>,
    /// Exceptions that it handles: in how many `except` and `finally` blocks it is.
    pub handling: usize,
}

/// What an instruction does to its frame.
#[derive(Debug)]
pub enum Control {
    /// Go on.
    Next,
    /// Go there.
    Jump(u32),
    /// The frame returns.
    Return(Value),
    /// The frame yields.
    Yield(Value),
    /// The frame becomes a generator.
    Generator,
}

/// How running a frame ended.
#[derive(Debug)]
pub enum FrameEnd {
    /// It returned.
    Return(Value),
    /// It yielded and can be resumed.
    Yield(Value),
    /// It became a generator.
    Generator,
}

impl PyFrame {
    /// Pops a value.
    pub fn pop(&mut self) -> Flow<Value> {
        match self.stack.pop() {
            Some(Some(v)) => Ok(v),
            _ => stop(ReasonCode::Internal, "value stack underflow"),
        }
    }

    /// Where the `n`-th item from the top of the stack lies; the topmost is the first.
    pub(crate) fn nth_from_top(&self, n: u32) -> Flow<usize> {
        match self.stack.len().checked_sub(n as usize) {
            Some(at) if n > 0 => Ok(at),
            _ => stop(ReasonCode::Internal, "no such item on the value stack"),
        }
    }

    /// Pops `n` values, deepest first.
    pub fn pop_n(&mut self, n: usize) -> Flow<Vec<Value>> {
        let Some(at) = self.stack.len().checked_sub(n) else {
            return stop(ReasonCode::Internal, "value stack underflow");
        };
        let values: Option<Vec<Value>> = self.stack.drain(at..).collect();
        match values {
            Some(values) => Ok(values),
            None => stop(ReasonCode::Internal, "a null among values"),
        }
    }

    /// Pushes a value.
    pub fn push(&mut self, value: Value) {
        self.stack.push(Some(value));
    }

    /// The value at a position counted from the top, from 1.
    pub fn peek(&self, position: usize) -> Flow<&Value> {
        let at = self.stack.len().checked_sub(position);
        match at.and_then(|at| self.stack.get(at)) {
            Some(Some(v)) => Ok(v),
            _ => stop(ReasonCode::Internal, "value stack underflow"),
        }
    }

    /// The name with this index.
    pub fn name(&self, index: u32) -> Flow<&str> {
        match self.code.names.get(index as usize) {
            Some(name) => Ok(name),
            None => stop(ReasonCode::Internal, "no such name in the code"),
        }
    }
}
