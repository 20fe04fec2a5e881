//! CPython code objects to one instruction set. [`op`] is that set; each interpreter version is one module that knows
//! its opcode numbers, caches, location and exception tables. Nothing outside this crate knows versions of bytecode.

mod body;
mod decode;
pub mod dialect;
mod effect;
mod liveness;
pub mod op;
mod point;
pub mod readers;
pub mod resume;
mod tables;
mod thin;
mod units;
pub mod versions;

pub use decode::decode;
pub use effect::Output;
pub use liveness::{live_for, live_slots, loop_slots};
pub use op::{Binary, Compare, Condition, Op, Parts, Target, Unary};
pub use thin::{thin_call, thin_instr};

/// A code object in the version-independent instruction set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// Instructions in order. `NOP`, `CACHE`, `RESUME`, `PRECALL` and `EXTENDED_ARG` are gone.
    pub instrs: Vec<Instr>,
    /// Exception table in the code object's order (the first entry that covers an instruction handles it), but for what
    /// handles exceptions that leave a generator.
    pub handlers: Vec<Handler>,
}

/// One instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instr {
    /// What it does.
    pub op: Op,
    /// Where its opcode is in the bytecode (behind its `EXTENDED_ARG`s), in code units of two bytes.
    pub offset: u32,
    /// Source line, from 1; instructions that the compiler made up have none.
    pub line: Option<u32>,
}

/// One entry of the exception table: instructions `start..end` are handled at `target`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handler {
    /// First instruction covered.
    pub start: Target,
    /// First instruction behind those covered.
    pub end: Target,
    /// The handler's first instruction.
    pub target: Target,
    /// The stack is cut to this depth before the exception is pushed.
    pub depth: u32,
    /// The offset of the raising instruction is pushed below the exception.
    pub lasti: bool,
}

impl Decoded {
    /// The handler of an exception raised by instruction `at`.
    pub fn handler(&self, at: usize) -> Option<&Handler> {
        self.handlers.iter().find(|h| (h.start as usize..h.end as usize).contains(&at))
    }

    /// Index of the first instruction at or behind `offset` (in code units).
    pub fn index_of(&self, offset: u32) -> usize {
        self.instrs.partition_point(|i| i.offset < offset)
    }
}

/// A code object that is no bytecode of a version we know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// No module for this interpreter.
    #[error("no decoder for CPython {0}.{1}")]
    Version(u8, u8),
    /// The bytecode has an odd number of bytes, or ends inside an instruction.
    #[error("truncated bytecode")]
    Truncated,
    /// Not an opcode of this version.
    #[error("unknown opcode {opcode} at offset {offset}")]
    UnknownOpcode {
        /// The byte.
        opcode: u8,
        /// In code units.
        offset: u32,
    },
    /// The opcode does not allow this argument.
    #[error("bad argument {arg} of opcode {opcode} at offset {offset}")]
    BadArgument {
        /// The byte.
        opcode: u8,
        /// Its argument, extended.
        arg: u32,
        /// In code units.
        offset: u32,
    },
    /// A jump or an exception table entry leaves the code.
    #[error("jump out of the code at offset {0}")]
    BadTarget(u32),
    /// The exception table is cut short.
    #[error("malformed exception table")]
    ExceptionTable,
    /// The location table is cut short.
    #[error("malformed location table")]
    LocationTable,
}
