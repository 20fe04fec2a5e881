//! What the assembler knows of an interpreter version, and the buffer it writes code units to.

use crate::op::Op;
use crate::resume::AssembleError;
use crate::v311::{self, Opcode};
use flambeau_ir::code::Code;

/// One interpreter version, for the assembler.
pub struct Dialect {
    /// The opcode with this byte.
    pub opcode: fn(u8) -> Option<&'static Opcode>,
    /// `EXTENDED_ARG`
    pub extended_arg: u8,
    /// `RESUME`
    pub resume: u8,
    /// `NOP`
    pub nop: u8,
    /// Its argument is an index into `localsplus`.
    pub uses_slot: fn(u8) -> bool,
    /// It prepares the call that follows (`PRECALL`).
    pub belongs_to_call: fn(u8) -> bool,
    /// Writes the opcodes and arguments of an instruction; jumps have the distance in code units as target. `None` for
    /// what the assembler does not write.
    pub encode: fn(Op, &mut dyn FnMut(u8, u32)) -> Option<()>,
    /// For what pushes a null and a value: the instruction that pushes the value only.
    pub push_null: fn(u8, u32) -> Option<(u8, u32)>,
}

/// The version that made `code`.
pub fn dialect(code: &Code) -> Result<&'static Dialect, AssembleError> {
    match code.python {
        (3, 11) => Ok(&v311::DIALECT),
        (major, minor) => Err(AssembleError::Version(major, minor)),
    }
}

/// Code units as they are written.
pub struct Units {
    dialect: &'static Dialect,
    bytes: Vec<u8>,
    depth: i32,
    deepest: i32,
}

impl Units {
    /// Starts with so many values on the stack.
    pub fn new(dialect: &'static Dialect, depth: i32) -> Units {
        Units { dialect, bytes: Vec::new(), depth, deepest: depth }
    }

    /// Code units written.
    pub fn len(&self) -> u32 {
        (self.bytes.len() / 2) as u32
    }

    /// The greatest stack depth so far.
    pub fn deepest(&self) -> u32 {
        self.deepest.max(0) as u32
    }

    /// The bytes.
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }

    /// Writes one instruction; jumps have the distance in code units as target.
    pub fn put(&mut self, op: Op) -> Result<(), AssembleError> {
        (self.dialect.encode)(op, &mut |opcode, arg| self.raw(opcode, arg)).ok_or(AssembleError::NotWritten(op))
    }

    /// Writes several.
    pub fn put_all(&mut self, ops: impl IntoIterator<Item = Op>) -> Result<(), AssembleError> {
        ops.into_iter().try_for_each(|op| self.put(op))
    }

    /// Writes what another buffer holds, which is not part of the way on.
    pub fn append(&mut self, other: Units) {
        self.deepest = self.deepest.max(other.deepest);
        self.bytes.extend(other.bytes);
    }

    /// How many code units an instruction takes.
    pub fn size(&self, op: Op) -> Result<u32, AssembleError> {
        let mut alone = Units::new(self.dialect, 0);
        alone.put(op)?;
        Ok(alone.len())
    }

    /// Writes the instruction at which a call begins (0), or goes on behind a `yield` (1), `yield from` or `await`.
    pub fn resume(&mut self, behind: u32) {
        self.raw(self.dialect.resume, behind);
    }

    /// Writes an instruction that does nothing.
    pub fn nop(&mut self) {
        self.raw(self.dialect.nop, 0);
    }

    /// Writes an opcode with its extended arguments and empty caches.
    pub fn raw(&mut self, opcode: u8, arg: u32) {
        for shift in [24, 16, 8] {
            if arg >> shift != 0 {
                self.bytes.extend([self.dialect.extended_arg, (arg >> shift & 255) as u8]);
            }
        }
        self.bytes.extend([opcode, (arg & 255) as u8]);
        if let Some(known) = (self.dialect.opcode)(opcode) {
            self.bytes.extend(std::iter::repeat_n(0, usize::from(known.caches) * 2));
            self.depth += (known.effect)(arg as i32, false);
            self.deepest = self.deepest.max(self.depth);
        }
    }
}
