//! The buffer that the assembler writes code units to.

use crate::dialect::Dialect;
use crate::op::Op;
use crate::point::AssembleError;

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
        let dialect = self.dialect;
        dialect.write(op, &mut |opcode, arg| self.raw(opcode, arg)).ok_or(AssembleError::NotWritten(op))
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

    /// Writes the instruction at which a call begins (0), or goes on behind a `yield` and the like.
    pub fn resume(&mut self, behind: u32) {
        self.raw(self.dialect.resume, behind);
    }

    /// Writes a `yield` and what is behind it, with this argument in the user's code.
    pub fn yields(&mut self, behind: u32) {
        (self.dialect.yields)(behind, &mut |opcode, arg| self.raw(opcode, arg));
    }

    /// What to write before a callable and behind it for the null of its call.
    pub fn nulls(&self) -> [Option<Op>; 2] {
        let above = self.dialect.null_above;
        [(!above).then_some(Op::PushNull), above.then_some(Op::PushNull)]
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
        if let Some(known) = self.dialect.opcode(opcode) {
            self.bytes.extend(std::iter::repeat_n(0, usize::from(known.caches) * 2));
            self.depth += (known.effect)(arg as i32, false);
            self.deepest = self.deepest.max(self.depth);
        }
    }
}
