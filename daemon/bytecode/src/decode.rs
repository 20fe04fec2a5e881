//! Code objects to instructions.

use crate::dialect::{ArgKind, Becomes};
use crate::op::Op;
use crate::versions::dialect;
use crate::{DecodeError, Decoded, Handler, Instr, tables};
use flambeau_ir::code::Code;

/// Decodes `code` by the rules of the interpreter that made it.
pub fn decode(code: &Code) -> Result<Decoded, DecodeError> {
    let dialect = dialect(code).map_err(|(major, minor)| DecodeError::Version(major, minor))?;
    let (units, rest) = code.bytecode.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(DecodeError::Truncated);
    }
    let lines = tables::lines(&code.linetable, code.firstlineno, units.len())?;
    let mut instrs: Vec<Instr> = Vec::with_capacity(units.len() / 2);
    // Per code unit: the first instruction kept at or behind it.
    let mut index = vec![0_u32; units.len() + 1];
    let (mut at, mut extended) = (0, 0_u32);
    while at < units.len() {
        let [byte, low] = units[at];
        let offset = at as u32;
        let opcode = dialect.opcode(byte).ok_or(DecodeError::UnknownOpcode { opcode: byte, offset })?;
        let arg = extended << 8 | u32::from(low);
        let next = at + 1 + usize::from(opcode.caches);
        if next > units.len() {
            return Err(DecodeError::Truncated);
        }
        index[at..next].fill(instrs.len() as u32);
        extended = if byte == dialect.extended_arg { arg } else { 0 };
        let operand = match opcode.arg {
            ArgKind::None | ArgKind::Plain => Some(arg),
            ArgKind::Forward => (next as u32).checked_add(arg),
            ArgKind::Backward => (next as u32).checked_sub(arg),
        };
        let becomes = (opcode.make)(operand.ok_or(DecodeError::BadTarget(offset))?);
        let inside = match becomes {
            Becomes::Op(op) => is_inside(op, code),
            Becomes::Two(first, second) => is_inside(first, code) && is_inside(second, code),
            Becomes::Dropped | Becomes::Bad => true,
        };
        if !inside {
            return Err(DecodeError::BadArgument { opcode: byte, arg, offset });
        }
        match becomes {
            Becomes::Op(op) => {
                index[at + 1..next].fill(instrs.len() as u32 + 1);
                instrs.push(Instr { op, offset, line: lines[at] });
            }
            Becomes::Two(first, second) => {
                index[at + 1..next].fill(instrs.len() as u32 + 2);
                instrs.extend([first, second].map(|op| Instr { op, offset, line: lines[at] }));
            }
            Becomes::Dropped => {}
            Becomes::Bad => return Err(DecodeError::BadArgument { opcode: byte, arg, offset }),
        }
        at = next;
    }
    if extended != 0 {
        return Err(DecodeError::Truncated);
    }
    index[units.len()] = instrs.len() as u32;
    resolve(&mut instrs, &index)?;
    let mut handlers = handlers(code, &index)?;
    // What runs a generator does the same: the handler would only hide which exceptions the program handles.
    handlers.retain(|h| instrs.get(h.target as usize).is_none_or(|i| i.op != Op::StopIterationError));
    Ok(Decoded { instrs, handlers })
}

/// Whether the constant, name or slot that an instruction is about is one of the code's: nobody asks again.
fn is_inside(op: Op, code: &Code) -> bool {
    let (index, count) = match op {
        Op::LoadConst(i) | Op::KwNames(i) => (i, code.consts.len()),
        Op::LoadGlobal { name: i, .. } | Op::LoadAttr { name: i, .. } | Op::LoadSuperAttr { name: i, .. } => {
            (i, code.names.len())
        }
        Op::StoreGlobal(i) | Op::DeleteGlobal(i) | Op::LoadName(i) | Op::StoreName(i) | Op::DeleteName(i) => {
            (i, code.names.len())
        }
        Op::StoreAttr(i) | Op::DeleteAttr(i) | Op::ImportName(i) | Op::ImportFrom(i) | Op::LoadFromDictOrGlobals(i) => {
            (i, code.names.len())
        }
        Op::LoadFast(i) | Op::StoreFast(i) | Op::DeleteFast(i) | Op::LoadFastAndClear(i) | Op::MakeCell(i) => {
            (i, code.localsplusnames.len())
        }
        Op::LoadClosure(i) | Op::LoadDeref(i) | Op::StoreDeref(i) | Op::DeleteDeref(i) | Op::LoadClassDeref(i) => {
            (i, code.localsplusnames.len())
        }
        Op::LoadFromDictOrDeref(i) => (i, code.localsplusnames.len()),
        _ => return true,
    };
    (index as usize) < count
}

/// Turns jump targets from code units to instruction indices.
fn resolve(instrs: &mut [Instr], index: &[u32]) -> Result<(), DecodeError> {
    let count = instrs.len() as u32;
    for instr in instrs {
        if let Op::Jump(t)
        | Op::PopJumpIf { target: t, .. }
        | Op::JumpIfOrPop { target: t, .. }
        | Op::ForIter(t)
        | Op::Send(t) = &mut instr.op
        {
            let found = index.get(*t as usize).filter(|i| **i < count);
            *t = *found.ok_or(DecodeError::BadTarget(instr.offset))?;
        }
    }
    Ok(())
}

fn handlers(code: &Code, index: &[u32]) -> Result<Vec<Handler>, DecodeError> {
    let entries = tables::exceptions(&code.exceptiontable)?;
    let found = |unit: u32| index.get(unit as usize).copied().ok_or(DecodeError::BadTarget(unit));
    let handler = |e: &tables::Entry| {
        Ok(Handler {
            start: found(e.start)?,
            end: found(e.start.saturating_add(e.length))?,
            target: found(e.target)?,
            depth: e.depth,
            lasti: e.lasti,
        })
    };
    entries.iter().map(handler).collect()
}
