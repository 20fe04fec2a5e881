//! What CPython 3.12 writes in its own way, in prologues and thin functions.

use crate::dialect::{BUILTINS, Builtins, Dialect};

/// The version, for the assembler.
pub const DIALECT: Dialect = Dialect {
    opcodes: super::OPCODES,
    extended_arg: 144,
    resume: RESUME,
    nop: 9,
    uses_slot,
    belongs_to_call: |_| false,
    null_above: false,
    to_bool: None,
    throw_takes_send: false,
    yields,
    writes: |_, _| None,
    without_null,
    builtins: Builtins {
        sum_compensates: true,
        inverted_bool_warns: true,
        extreme_of_nothing: "iterable argument is empty",
        throw_warns: true,
        type_params: true,
        ..BUILTINS
    },
};

const YIELD_VALUE: u8 = 150;
const RESUME: u8 = 151;

/// `LOAD_FAST`, `STORE_FAST`, `DELETE_FAST`, `LOAD_FAST_CHECK`, `MAKE_CELL`, `LOAD_CLOSURE`, `LOAD_DEREF`, `STORE_DEREF`,
/// `DELETE_DEREF`, `LOAD_FAST_AND_CLEAR`, `LOAD_FROM_DICT_OR_DEREF`.
fn uses_slot(opcode: u8) -> bool {
    matches!(opcode, 124..=127 | 135..=139 | 143 | 176)
}

/// `LOAD_ATTR`, `LOAD_GLOBAL`, `LOAD_SUPER_ATTR`.
fn without_null(opcode: u8, arg: u32) -> Option<(u8, u32)> {
    matches!(opcode, 106 | 116 | 141).then_some((opcode, arg & !1))
}

fn yields(behind: u32, put: &mut dyn FnMut(u8, u32)) {
    // One says that no handler of the user's is there, so that `close()` may leave it out.
    put(YIELD_VALUE, 2);
    put(RESUME, behind);
}
