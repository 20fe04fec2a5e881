//! What CPython 3.11 writes in its own way, in prologues and thin functions.

use crate::dialect::{BUILTINS, Dialect};
use crate::op::Op;

/// The version, for the assembler.
pub const DIALECT: Dialect = Dialect {
    opcodes: super::OPCODES,
    extended_arg: 144,
    resume: RESUME,
    nop: 9,
    uses_slot,
    belongs_to_call: |opcode| opcode == PRECALL,
    null_above: false,
    to_bool: None,
    throw_takes_send: true,
    yields,
    writes,
    without_null,
    builtins: BUILTINS,
};

const YIELD_VALUE: u8 = 86;
const RESUME: u8 = 151;
const PRECALL: u8 = 166;
const CALL: u8 = 171;
const SEND: u8 = 123;
const LOAD_GLOBAL: u8 = 116;
const LOAD_ATTR: u8 = 106;

/// `LOAD_FAST`, `STORE_FAST`, `DELETE_FAST`, `MAKE_CELL`, `LOAD_CLOSURE`, `LOAD_DEREF`, `STORE_DEREF`, `DELETE_DEREF`,
/// `LOAD_CLASSDEREF`.
fn uses_slot(opcode: u8) -> bool {
    matches!(opcode, 124..=126 | 135..=139 | 148)
}

/// `LOAD_METHOD`, `LOAD_GLOBAL`.
fn without_null(opcode: u8, arg: u32) -> Option<(u8, u32)> {
    match opcode {
        160 => Some((LOAD_ATTR, arg)),
        LOAD_GLOBAL => Some((LOAD_GLOBAL, arg & !1)),
        _ => None,
    }
}

fn yields(behind: u32, put: &mut dyn FnMut(u8, u32)) {
    put(YIELD_VALUE, 0);
    put(RESUME, behind);
}

fn writes(op: Op, put: &mut dyn FnMut(u8, u32)) -> Option<()> {
    match op {
        // Nothing stands where a loop ends.
        Op::EndFor => {}
        Op::Send(distance) => put(SEND, distance),
        Op::Call { argc } => {
            put(PRECALL, argc);
            put(CALL, argc);
        }
        _ => return None,
    }
    Some(())
}
