//! The user's part of a code object: all of it, or what follows the prologue of a resume code. Its slots are numbered as
//! in a resume code, its code units from 0.
//!
//! A resume code's parameters arrive in the slots of the user's first two local variables, so that instructions keep the
//! slots that they name. Where there are fewer, further local variables make up for them, and cells move behind those.

use crate::dialect::Dialect;
use crate::op::{Condition, Op, Unary};
use crate::point::{AssembleError, Entry};
use crate::{Decoded, Target, tables};
use flambeau_ir::code::{Code, Const};

/// How many parameters a resume code has.
pub const PARAMETERS: u32 = NAMES.len() as u32;
/// Their names where the user's code has no local variable in their place; no user's code can have them.
pub const NAMES: [&str; 2] = [".state", ".value"];

const ASYNC_GENERATOR: u32 = 0x200;

/// The user's part of a code object.
pub struct Body<'a> {
    /// The whole.
    pub code: &'a Code,
    /// Its names without the mark of a resume code.
    pub names: &'a [String],
    /// Its constants without those of a prologue.
    pub consts: &'a [Const],
    /// Its location table without that of a prologue.
    pub linetable: &'a [u8],
    /// The stack size that it needs by itself.
    pub stacksize: u32,
    /// Code units of its prologue, 0 for the user's own code.
    length: u32,
    /// How many local variables it has, and how many its resume code has on top.
    locals: usize,
    padding: usize,
}

/// Where a prologue leads.
pub struct Way {
    /// Where in the body.
    pub target: u32,
    /// What is left to do of what stands before it.
    pub first: Option<Op>,
    /// How it goes on.
    pub entry: Entry,
}

/// How a generator stands at a `yield`.
pub struct Suspended {
    /// The argument of the `RESUME` behind it.
    pub resume: u32,
    /// Where in the body it goes with the result of the iterator that it delegates to.
    pub sent: Option<u32>,
}

impl<'a> Body<'a> {
    /// Takes a prologue off, if there is one.
    pub fn of(code: &'a Code, dialect: &Dialect) -> Result<Body<'a>, AssembleError> {
        if code.localsplusnames.len() != code.localspluskinds.len() {
            return Err(AssembleError::Slots);
        }
        let locals = code.localspluskinds.iter().take_while(|kind| **kind & Code::LOCAL != 0).count();
        let Some(length) = prologue(code) else {
            let (names, consts, linetable, stacksize) = (&code.names, &code.consts, &code.linetable, code.stacksize);
            let padding = (PARAMETERS as usize).saturating_sub(locals);
            return Ok(Body { code, names, consts, linetable, stacksize, length: 0, locals, padding });
        };
        let names = &code.names[..code.names.len() - 1];
        let linetable = tables::locations_behind(&code.linetable, length as usize)?;
        let [.., Const::Int(stacksize), _] = code.consts[..] else { return Err(AssembleError::Prologue) };
        let stacksize = u32::try_from(stacksize).map_err(|_| AssembleError::Prologue)?;
        let consts = brought(code, length, dialect).and_then(|first| code.consts.get(..first));
        match (linetable, consts) {
            (Some(linetable), Some(consts)) if locals >= PARAMETERS as usize => {
                Ok(Body { code, names, consts, linetable, stacksize, length, locals, padding: 0 })
            }
            _ => Err(AssembleError::Prologue),
        }
    }

    /// A slot of the code as one of the resume code.
    pub fn slot(&self, slot: u32) -> Result<u32, AssembleError> {
        let known = (slot as usize) < self.code.localsplusnames.len();
        let behind = if (slot as usize) < self.locals { 0 } else { self.padding };
        if known { Ok(slot + behind as u32) } else { Err(AssembleError::Slot(slot)) }
    }

    /// Names of the resume code's slots.
    pub fn slot_names(&self) -> Vec<String> {
        let (locals, others) = self.code.localsplusnames.split_at(self.locals);
        let padding = NAMES[NAMES.len() - self.padding..].iter().map(ToString::to_string);
        locals.iter().cloned().chain(padding).chain(others.iter().cloned()).collect()
    }

    /// Kinds of the resume code's slots.
    pub fn slot_kinds(&self) -> Vec<u8> {
        let (locals, others) = self.code.localspluskinds.split_at(self.locals);
        [locals, &vec![Code::LOCAL; self.padding], others].concat()
    }

    /// The names of a resume code.
    pub fn marked_names(&self) -> Vec<String> {
        self.names.iter().cloned().chain([Code::RESUME_NAME.to_owned()]).collect()
    }

    /// Where to enter the body to go on with this instruction, and how. In a prologue only what follows its call will do:
    /// the jumps at its end, or before them the drop of the call's result, which becomes part of the entry.
    pub fn enter_by(
        &self,
        decoded: &Decoded,
        target: Target,
        entry: Entry,
        dialect: &Dialect,
    ) -> Result<Way, AssembleError> {
        let dropped = decoded.instrs.get(target as usize).is_some_and(|i| i.op == Op::PopTop && i.offset < self.length);
        if !dropped {
            return Ok(Way { entry, ..self.enter(decoded, target, dialect)? });
        }
        let entry = match entry {
            Entry::Child => Entry::ChildDropped,
            Entry::Value => Entry::Nothing,
            Entry::Raise => Entry::Raise,
            _ => return Err(AssembleError::InPrologue(target)),
        };
        Ok(Way { entry, ..self.enter(decoded, target + 1, dialect)? })
    }

    /// Where to enter the body to go on with this instruction.
    fn enter(&self, decoded: &Decoded, target: Target, dialect: &Dialect) -> Result<Way, AssembleError> {
        let instr = |at: Target| decoded.instrs.get(at as usize).ok_or(AssembleError::Instruction(at));
        let (mut target, mut first) = (target, None);
        while instr(target)?.offset < self.length {
            target = match instr(target)?.op {
                Op::Jump(behind) if behind > target => behind,
                op if first.is_none() => {
                    first = Some(self.second_half(op).ok_or(AssembleError::InPrologue(target))?);
                    target + 1
                }
                _ => return Err(AssembleError::InPrologue(target)),
            };
        }
        // A call's keyword names are part of it.
        let kw_names = |at: Target| matches!(instr(at), Ok(crate::Instr { op: Op::KwNames(_), .. }));
        let call = matches!(instr(target)?.op, Op::Call { .. });
        let target = if call && target > 0 && kw_names(target - 1) { target - 1 } else { target };
        // It begins where the one before it ends: with its `EXTENDED_ARG`s, what prepares it, or a `NOP` that has a line of
        // its own. Only a `RESUME` does not count, which would tell tracing functions of a second call.
        let crate::Instr { op, offset, .. } = *instr(target)?;
        let end = |offset: u32| offset + 1 + u32::from(self.opcode(offset, dialect).1);
        let before = target.checked_sub(1).map(instr).transpose()?;
        let halved = before.is_some_and(|before| before.offset == offset);
        let mut unit = if halved { end(offset) } else { before.map_or(0, |i| end(i.offset)).max(self.length) };
        if halved {
            first = Some(self.second_half(op).ok_or(AssembleError::Instruction(target))?);
        } else if let Some(to_bool) = dialect.to_bool
            && matches!(op, Op::PopJumpIf { cond: Condition::True | Condition::False, .. } | Op::Unary(Unary::Not))
            && (unit..offset).all(|unit| self.opcode(unit, dialect).0 != to_bool)
        {
            first = Some(Op::ToBool);
        }
        while self.opcode(unit, dialect).0 == dialect.resume {
            unit += 1;
        }
        Ok(Way { target: unit - self.length, first, entry: Entry::Nothing })
    }

    /// The second instruction of an opcode that is two, as an instruction of its own.
    fn second_half(&self, op: Op) -> Option<Op> {
        match op {
            Op::PushNull => Some(op),
            Op::LoadFast(slot) => self.slot(slot).ok().map(Op::LoadFast),
            Op::StoreFast(slot) => self.slot(slot).ok().map(Op::StoreFast),
            _ => None,
        }
    }

    /// The generator that stands at the `yield` at instruction `at`.
    pub fn suspended(&self, decoded: &Decoded, at: Target, dialect: &Dialect) -> Result<Suspended, AssembleError> {
        let op = |at: Target| decoded.instrs.get(at as usize).map(|i| i.op);
        // What asynchronous generators yield is wrapped, which whoever advances them expects.
        let (Some(Op::YieldValue), 0) = (op(at), self.code.flags & ASYNC_GENERATOR) else {
            return Err(AssembleError::Alone(at));
        };
        let behind = decoded.instrs[at as usize].offset + 1;
        let resume = match self.code.bytecode.get(behind as usize * 2..behind as usize * 2 + 2) {
            Some(&[opcode, behind]) if opcode == dialect.resume => u32::from(behind),
            _ => return Err(AssembleError::Alone(at)),
        };
        let sent = match at.checked_sub(1).and_then(op) {
            Some(Op::Send(target)) if dialect.throw_takes_send => Some(self.enter(decoded, target, dialect)?.target),
            _ => None,
        };
        Ok(Suspended { resume, sent })
    }

    /// The opcode at this code unit, and its caches.
    fn opcode(&self, unit: u32, dialect: &Dialect) -> (u8, u8) {
        let byte = self.code.bytecode.get(unit as usize * 2).copied().unwrap_or(dialect.nop);
        (byte, dialect.opcode(byte).map_or(0, |o| o.caches))
    }

    /// The body's bytes.
    pub fn bytecode(&self, dialect: &Dialect) -> Result<Vec<u8>, AssembleError> {
        let mut bytes = self.code.bytecode[self.length as usize * 2..].to_vec();
        if self.padding > 0 {
            move_slots(&mut bytes, dialect, self.locals as u32, self.padding as u32)?;
        }
        Ok(bytes)
    }

    /// The exception table's entries, in the body's units.
    pub fn exceptions(&self) -> Result<Vec<tables::Entry>, AssembleError> {
        let length = self.length;
        let entries = tables::exceptions(&self.code.exceptiontable)?.into_iter();
        let moved = |e: tables::Entry| tables::Entry { start: e.start - length, target: e.target - length, ..e };
        Ok(entries.filter(|e| e.start >= length && e.target >= length).map(moved).collect())
    }

    /// The entry that handles what the code unit `at` of the whole code raises; its target is in the body's units.
    pub fn handler(&self, at: u32) -> Result<Option<tables::Entry>, AssembleError> {
        let covers = |e: &tables::Entry| (e.start..e.start + e.length).contains(&at);
        let found = tables::exceptions(&self.code.exceptiontable)?.into_iter().find(covers);
        let length = self.length;
        let inside = |e: tables::Entry| {
            let target = e.target.checked_sub(length).ok_or(AssembleError::Prologue)?;
            Ok(tables::Entry { target, ..e })
        };
        found.map(inside).transpose()
    }
}

/// The length of a resume code's prologue in code units: its last constant.
pub fn prologue(code: &Code) -> Option<u32> {
    match code.consts.last() {
        Some(Const::Int(length)) if code.is_resume() => {
            u32::try_from(*length).ok().filter(|l| *l as usize * 2 <= code.bytecode.len())
        }
        _ => None,
    }
}

/// The first constant that a prologue of so many code units brought: the first that it loads, or the last but one.
/// `None` if no instruction ends where it does.
fn brought(code: &Code, length: u32, dialect: &Dialect) -> Option<usize> {
    let (units, _) = code.bytecode[..length as usize * 2].as_chunks::<2>();
    let (mut at, mut extended, mut found) = (0, 0, code.consts.len().checked_sub(2)?);
    while let Some(&[byte, low]) = units.get(at) {
        let arg = extended << 8 | u32::from(low);
        extended = if byte == dialect.extended_arg { arg } else { 0 };
        let mut loads = false;
        dialect.write(Op::LoadConst(arg), &mut |opcode, _| loads = opcode == byte);
        if loads {
            found = found.min(arg as usize);
        }
        at += 1 + usize::from(dialect.opcode(byte)?.caches);
    }
    (at == units.len() && extended == 0).then_some(found)
}

/// Adds to the slots that the instructions name, from this slot on. The opcodes that name two slots are for local
/// variables only, which are before it.
fn move_slots(bytes: &mut [u8], dialect: &Dialect, from: u32, by: u32) -> Result<(), AssembleError> {
    let (units, _) = bytes.as_chunks_mut::<2>();
    let (mut at, mut first) = (0, 0);
    while at < units.len() {
        let byte = units[at][0];
        if byte == dialect.extended_arg {
            at += 1;
            continue;
        }
        let slot = units[first..=at].iter().fold(0, |arg, unit| arg << 8 | u32::from(unit[1]));
        if (dialect.uses_slot)(byte) && slot >= from {
            let mut carry = by;
            for unit in units[first..=at].iter_mut().rev() {
                carry += u32::from(unit[1]);
                unit[1] = (carry & 255) as u8;
                carry >>= 8;
            }
            if carry != 0 {
                return Err(AssembleError::TooManySlots);
            }
        }
        at += 1 + usize::from(dialect.opcode(byte).map_or(0, |o| o.caches));
        first = at;
    }
    Ok(())
}
