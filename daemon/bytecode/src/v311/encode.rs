//! What assembling for CPython 3.11 needs: the bytes of the instructions that prologues and thin functions are made of.

use crate::dialect::{BUILTINS, Dialect};
use crate::op::{Op, Unary};

/// The version, for the assembler.
pub const DIALECT: Dialect = Dialect {
    opcodes: super::OPCODES,
    extended_arg: 144,
    resume: RESUME,
    nop: 9,
    uses_slot,
    belongs_to_call: |opcode| opcode == PRECALL,
    throw_takes_send: true,
    encode,
    push_null,
    builtins: BUILTINS,
};

const RESUME: u8 = 151;
const PRECALL: u8 = 166;
const LOAD_GLOBAL: u8 = 116;
const LOAD_ATTR: u8 = 106;

/// `LOAD_FAST`, `STORE_FAST`, `DELETE_FAST`, `MAKE_CELL`, `LOAD_CLOSURE`, `LOAD_DEREF`, `STORE_DEREF`, `DELETE_DEREF`,
/// `LOAD_CLASSDEREF`.
fn uses_slot(opcode: u8) -> bool {
    matches!(opcode, 124..=126 | 135..=139 | 148)
}

/// The instruction that pushes, without the null, what this one pushes together with one (`LOAD_METHOD`, `LOAD_GLOBAL`).
fn push_null(opcode: u8, arg: u32) -> Option<(u8, u32)> {
    match opcode {
        160 => Some((LOAD_ATTR, arg)),
        LOAD_GLOBAL => Some((LOAD_GLOBAL, arg & !1)),
        _ => None,
    }
}

fn encode(op: Op, put: &mut dyn FnMut(u8, u32)) -> Option<()> {
    let (opcode, arg) = match op {
        // Nothing stands where a loop ends.
        Op::EndFor => return Some(()),
        Op::PopTop => (1, 0),
        Op::PushNull => (2, 0),
        Op::Unary(Unary::Not) => (12, 0),
        Op::BinarySubscr => (25, 0),
        Op::PushExcInfo => (35, 0),
        Op::ReturnGenerator => (75, 0),
        Op::ReturnValue => (83, 0),
        Op::YieldValue => (86, 0),
        Op::PopExcept => (89, 0),
        Op::ForIter(distance) => (93, distance),
        Op::Swap(depth) => (99, depth),
        Op::LoadConst(index) => (100, index),
        Op::BuildTuple(count) => (102, count),
        Op::Jump(distance) => (110, distance),
        Op::Reraise(depth) => (119, depth),
        Op::Send(distance) => (123, distance),
        Op::LoadFast(slot) => (124, slot),
        Op::StoreFast(slot) => (125, slot),
        Op::DeleteFast(slot) => (126, slot),
        Op::RaiseVarargs(count) => (130, count),
        Op::MakeCell(slot) => (135, slot),
        Op::LoadDeref(slot) => (137, slot),
        Op::CallEx { kwargs } => (142, u32::from(kwargs)),
        Op::CopyFreeVars(count) => (149, count),
        Op::Call { argc } => {
            put(PRECALL, argc);
            (171, argc)
        }
        _ => return None,
    };
    put(opcode, arg);
    Some(())
}
