//! What CPython 3.13 writes in its own way, in prologues and thin functions.

use crate::dialect::{Builtins, Dialect};
use crate::op::{Op, Unary};

/// The version, for the assembler.
pub const DIALECT: Dialect = Dialect {
    opcodes: super::OPCODES,
    extended_arg: 71,
    resume: RESUME,
    nop: 30,
    uses_slot,
    belongs_to_call: |_| false,
    null_above: true,
    to_bool: Some(TO_BOOL),
    throw_takes_send: false,
    yields,
    writes,
    without_null,
    builtins: Builtins {
        sum_compensates: true,
        inverted_bool_warns: true,
        extreme_of_nothing: "iterable argument is empty",
        no_dict: " and no __dict__ for setting new attributes",
        close_returns: true,
        throw_warns: true,
        no_items: "must assign iterable to extended slice",
        type_params: true,
    },
};

const END_FOR: u8 = 11;
const POP_TOP: u8 = 32;
const TO_BOOL: u8 = 40;
const UNARY_NOT: u8 = 43;
const YIELD_VALUE: u8 = 118;
const RESUME: u8 = 149;

/// `DELETE_DEREF`, `DELETE_FAST`, `LOAD_DEREF`, `LOAD_FAST`, `LOAD_FAST_AND_CLEAR`, `LOAD_FAST_CHECK`,
/// `LOAD_FROM_DICT_OR_DEREF`, `MAKE_CELL`, `STORE_DEREF`, `STORE_FAST`.
fn uses_slot(opcode: u8) -> bool {
    matches!(opcode, 64 | 65 | 84..=87 | 89 | 94 | 109 | 110)
}

/// `LOAD_ATTR`, `LOAD_GLOBAL`, `LOAD_SUPER_ATTR`.
fn without_null(opcode: u8, arg: u32) -> Option<(u8, u32)> {
    matches!(opcode, 82 | 91 | 93).then_some((opcode, arg & !1))
}

fn yields(behind: u32, put: &mut dyn FnMut(u8, u32)) {
    // Whether the generator delegates. Four would say of `RESUME` that no handler of the user's is there, so that `close()`
    // may leave it out.
    put(YIELD_VALUE, u32::from(behind & 3 > 1));
    put(RESUME, behind & 3);
}

fn writes(op: Op, put: &mut dyn FnMut(u8, u32)) -> Option<()> {
    match op {
        Op::Unary(Unary::Not) => {
            put(TO_BOOL, 0);
            put(UNARY_NOT, 0);
        }
        Op::EndFor => {
            put(END_FOR, 0);
            put(POP_TOP, 0);
        }
        _ => return None,
    }
    Some(())
}
