//! What assembling for CPython 3.12 needs: the bytes of the instructions that prologues and thin functions are made of.

use crate::dialect::{Builtins, Dialect};
use crate::op::{Op, Unary};

/// The version, for the assembler.
pub const DIALECT: Dialect = Dialect {
    opcodes: super::OPCODES,
    extended_arg: 144,
    resume: 151,
    nop: 9,
    uses_slot,
    belongs_to_call: |_| false,
    throw_takes_send: false,
    encode,
    push_null,
    builtins: Builtins {
        sum_compensates: true,
        inverted_bool_warns: true,
        extreme_of_nothing: "iterable argument is empty",
    },
};

/// `LOAD_FAST`, `STORE_FAST`, `DELETE_FAST`, `LOAD_FAST_CHECK`, `MAKE_CELL`, `LOAD_CLOSURE`, `LOAD_DEREF`, `STORE_DEREF`,
/// `DELETE_DEREF`, `LOAD_FAST_AND_CLEAR`, `LOAD_FROM_DICT_OR_DEREF`.
fn uses_slot(opcode: u8) -> bool {
    matches!(opcode, 124..=127 | 135..=139 | 143 | 176)
}

/// The instruction that pushes, without the null, what this one pushes together with one (`LOAD_ATTR`, `LOAD_GLOBAL`,
/// `LOAD_SUPER_ATTR`).
fn push_null(opcode: u8, arg: u32) -> Option<(u8, u32)> {
    matches!(opcode, 106 | 116 | 141).then_some((opcode, arg & !1))
}

fn encode(op: Op, put: &mut dyn FnMut(u8, u32)) -> Option<()> {
    let (opcode, arg) = match op {
        Op::PopTop => (1, 0),
        Op::PushNull => (2, 0),
        Op::EndFor => (4, 0),
        Op::Unary(Unary::Not) => (12, 0),
        Op::BinarySubscr => (25, 0),
        Op::PushExcInfo => (35, 0),
        Op::ReturnGenerator => (75, 0),
        Op::ReturnValue => (83, 0),
        Op::PopExcept => (89, 0),
        // At its end an iterator is gone, and the `END_FOR` there is skipped.
        Op::ForIter(distance) => (93, distance),
        Op::Swap(depth) => (99, depth),
        Op::LoadConst(index) => (100, index),
        Op::BuildTuple(count) => (102, count),
        Op::Jump(distance) => (110, distance),
        Op::Reraise(depth) => (119, depth),
        Op::LoadFast(slot) => (124, slot),
        Op::StoreFast(slot) => (125, slot),
        Op::DeleteFast(slot) => (126, slot),
        Op::RaiseVarargs(count) => (130, count),
        Op::MakeCell(slot) => (135, slot),
        Op::LoadDeref(slot) => (137, slot),
        Op::CallEx { kwargs } => (142, u32::from(kwargs)),
        Op::CopyFreeVars(count) => (149, count),
        // One says that no handler of the user's is there, so that `close()` may leave it out.
        Op::YieldValue => (150, 2),
        Op::Call { argc } => (171, argc),
        _ => return None,
    };
    put(opcode, arg);
    Some(())
}
