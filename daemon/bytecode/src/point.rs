//! Where and how a frame is taken up, and why code for it could not be assembled.

use crate::op::Op;
use crate::{DecodeError, Target};

/// A position of a frame's value stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Item {
    /// The null of calls.
    Null,
    /// A value.
    Value,
    /// The exception that was handled before the frame began to handle another, in the place where `PUSH_EXC_INFO` left it.
    /// The item of `state` is the other: the prologue makes it the handled one, over whatever is handled when the resume
    /// function is called.
    Handled,
}

/// What a resume function does between restoring its frame and going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Entry {
    /// Pushes nothing.
    Nothing,
    /// Pushes `value`.
    Value,
    /// Pushes a null and `value`.
    NullValue,
    /// Pushes the items of the tuple `value`, the last on top.
    Items(u32),
    /// Calls the resume function of the frame below, `child(child_state, value)`, where instruction `at` stands, and pushes
    /// its result. `child` and `child_state` are the last two items of `state`.
    Child,
    /// As [`Entry::Child`], but drops the result: the frame below is that of an `__init__` or a `__setattr__`.
    ChildDropped,
    /// Raises an exception where instruction `at` stands. `value` is a tuple of the exception and its `__context__`, which
    /// it keeps: raising it again while another exception is handled must not replace the one it came with.
    Raise,
    /// For a suspended generator: yields `value` where instruction `at`, its `yield`, stands, and pushes what is sent. The
    /// function gives a generator that stands as the original did once it is advanced a first time.
    Yield,
}

/// Where and how a frame is taken up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ResumePoint {
    /// The instruction that broke (index into the decoded instructions).
    pub at: Target,
    /// The instruction to go on with.
    pub target: Target,
    /// Slots to restore from the first items of `state`, in this order; for the slot of a cell variable, the cell.
    pub locals: Vec<u32>,
    /// The stack, deepest first; its values are the items of `state` after the locals.
    pub stack: Vec<Item>,
    /// How it goes on.
    pub entry: Entry,
}

/// Why a code object could not be assembled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AssembleError {
    /// The given code does not decode.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// No module for this interpreter.
    #[error("no assembler for CPython {0}.{1}")]
    Version(u8, u8),
    /// The assembler does not write this instruction.
    #[error("cannot write {0:?}")]
    NotWritten(Op),
    /// No such instruction, or the second one of an opcode that is two.
    #[error("no instruction {0}")]
    Instruction(Target),
    /// A resume code can be taken up behind its prologue only.
    #[error("instruction {0} is in a prologue")]
    InPrologue(Target),
    /// A code that looks like a resume code but was not assembled here.
    #[error("malformed prologue")]
    Prologue,
    /// Not as many kinds of slots as names.
    #[error("slots without a kind or a name")]
    Slots,
    /// No such slot.
    #[error("slot {0} cannot be restored")]
    Slot(u32),
    /// The body of a class or module: its names are not in slots.
    #[error("not the code of a function")]
    NoFunction,
    /// An instruction names a slot that its argument has no room for.
    #[error("too many local variables")]
    TooManySlots,
    /// The stack is lower than the handler of the broken instruction wants it.
    #[error("the stack is lower than its handler's")]
    Stack,
    /// The instruction cannot run alone with these inputs or for this output.
    #[error("instruction {0} cannot run alone in this way")]
    Alone(Target),
}
