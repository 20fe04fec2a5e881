//! CPython 3.12. One table line per opcode: number, name, argument, caches, stack effect, instruction.

use crate::dialect::{Becomes, binary, compare, function, jump_if, ones, op, opcodes};
use crate::op::{Condition, Op, Unary};

mod encode;

pub use encode::DIALECT;

/// `CALL_INTRINSIC_1` with this number.
fn intrinsic(number: u32) -> Becomes {
    op(match number {
        3 => Op::StopIterationError,
        4 => Op::AsyncGenWrap,
        5 => Op::Unary(Unary::Positive),
        6 => Op::ListToTuple,
        _ => Op::Intrinsic { inputs: 1, number },
    })
}

opcodes! {
    0   CACHE                      None     0, |_, _| 0,              |_| Becomes::Dropped;
    1   POP_TOP                    None     0, |_, _| -1,             |_| op(Op::PopTop);
    2   PUSH_NULL                  None     0, |_, _| 1,              |_| op(Op::PushNull);
    3   INTERPRETER_EXIT           None     0, |_, _| -1,             |_| Becomes::Bad;
    4   END_FOR                    None     0, |_, _| -2,             |_| op(Op::EndFor);
    5   END_SEND                   None     0, |_, _| -1,             |_| op(Op::EndSend);
    9   NOP                        None     0, |_, _| 0,              |_| Becomes::Dropped;
    11  UNARY_NEGATIVE             None     0, |_, _| 0,              |_| op(Op::Unary(Unary::Negative));
    12  UNARY_NOT                  None     0, |_, _| 0,              |_| op(Op::Unary(Unary::Not));
    15  UNARY_INVERT               None     0, |_, _| 0,              |_| op(Op::Unary(Unary::Invert));
    17  RESERVED                   None     0, |_, _| 0,              |_| Becomes::Bad;
    25  BINARY_SUBSCR              None     1, |_, _| -1,             |_| op(Op::BinarySubscr);
    26  BINARY_SLICE               None     0, |_, _| -2,             |_| op(Op::BinarySlice);
    27  STORE_SLICE                None     0, |_, _| -4,             |_| op(Op::StoreSlice);
    30  GET_LEN                    None     0, |_, _| 1,              |_| op(Op::GetLen);
    31  MATCH_MAPPING              None     0, |_, _| 1,              |_| op(Op::MatchMapping);
    32  MATCH_SEQUENCE             None     0, |_, _| 1,              |_| op(Op::MatchSequence);
    33  MATCH_KEYS                 None     0, |_, _| 1,              |_| op(Op::MatchKeys);
    35  PUSH_EXC_INFO              None     0, |_, _| 1,              |_| op(Op::PushExcInfo);
    36  CHECK_EXC_MATCH            None     0, |_, _| 0,              |_| op(Op::CheckExcMatch);
    37  CHECK_EG_MATCH             None     0, |_, _| 0,              |_| op(Op::CheckEgMatch);
    49  WITH_EXCEPT_START          None     0, |_, _| 1,              |_| op(Op::WithExceptStart);
    50  GET_AITER                  None     0, |_, _| 0,              |_| op(Op::GetAiter);
    51  GET_ANEXT                  None     0, |_, _| 1,              |_| op(Op::GetAnext);
    52  BEFORE_ASYNC_WITH          None     0, |_, _| 1,              |_| op(Op::BeforeAsyncWith);
    53  BEFORE_WITH                None     0, |_, _| 1,              |_| op(Op::BeforeWith);
    54  END_ASYNC_FOR              None     0, |_, _| -2,             |_| op(Op::EndAsyncFor);
    55  CLEANUP_THROW              None     0, |_, _| -1,             |_| op(Op::CleanupThrow);
    60  STORE_SUBSCR               None     1, |_, _| -3,             |_| op(Op::StoreSubscr);
    61  DELETE_SUBSCR              None     0, |_, _| -2,             |_| op(Op::DeleteSubscr);
    68  GET_ITER                   None     0, |_, _| 0,              |_| op(Op::GetIter);
    69  GET_YIELD_FROM_ITER        None     0, |_, _| 0,              |_| op(Op::GetYieldFromIter);
    71  LOAD_BUILD_CLASS           None     0, |_, _| 1,              |_| op(Op::LoadBuildClass);
    74  LOAD_ASSERTION_ERROR       None     0, |_, _| 1,              |_| op(Op::LoadAssertionError);
    75  RETURN_GENERATOR           None     0, |_, _| 0,              |_| op(Op::ReturnGenerator);
    83  RETURN_VALUE               None     0, |_, _| -1,             |_| op(Op::ReturnValue);
    85  SETUP_ANNOTATIONS          None     0, |_, _| 0,              |_| op(Op::SetupAnnotations);
    87  LOAD_LOCALS                None     0, |_, _| 1,              |_| op(Op::LoadLocals);
    89  POP_EXCEPT                 None     0, |_, _| -1,             |_| op(Op::PopExcept);
    90  STORE_NAME                 Plain    0, |_, _| -1,             |a| op(Op::StoreName(a));
    91  DELETE_NAME                Plain    0, |_, _| 0,              |a| op(Op::DeleteName(a));
    92  UNPACK_SEQUENCE            Plain    1, |a, _| a - 1,          |a| op(Op::UnpackSequence(a));
    93  FOR_ITER                   Forward  1, |_, _| 1,              |t| op(Op::ForIter(t + 1));
    94  UNPACK_EX                  Plain    0, |a, _| (a & 255) + (a >> 8),|a| op(Op::UnpackEx { before: a & 255, after: a >> 8 });
    95  STORE_ATTR                 Plain    4, |_, _| -2,             |a| op(Op::StoreAttr(a));
    96  DELETE_ATTR                Plain    0, |_, _| -1,             |a| op(Op::DeleteAttr(a));
    97  STORE_GLOBAL               Plain    0, |_, _| -1,             |a| op(Op::StoreGlobal(a));
    98  DELETE_GLOBAL              Plain    0, |_, _| 0,              |a| op(Op::DeleteGlobal(a));
    99  SWAP                       Plain    0, |_, _| 0,              |a| op(Op::Swap(a));
    100 LOAD_CONST                 Plain    0, |_, _| 1,              |a| op(Op::LoadConst(a));
    101 LOAD_NAME                  Plain    0, |_, _| 1,              |a| op(Op::LoadName(a));
    102 BUILD_TUPLE                Plain    0, |a, _| 1 - a,          |a| op(Op::BuildTuple(a));
    103 BUILD_LIST                 Plain    0, |a, _| 1 - a,          |a| op(Op::BuildList(a));
    104 BUILD_SET                  Plain    0, |a, _| 1 - a,          |a| op(Op::BuildSet(a));
    105 BUILD_MAP                  Plain    0, |a, _| 1 - 2 * a,      |a| op(Op::BuildMap(a));
    106 LOAD_ATTR                  Plain    9, |a, _| a & 1,          |a| op(Op::LoadAttr { name: a >> 1, method: a & 1 != 0 });
    107 COMPARE_OP                 Plain    1, |_, _| -1,             |a| compare(a >> 4);
    108 IMPORT_NAME                Plain    0, |_, _| -1,             |a| op(Op::ImportName(a));
    109 IMPORT_FROM                Plain    0, |_, _| 1,              |a| op(Op::ImportFrom(a));
    110 JUMP_FORWARD               Forward  0, |_, _| 0,              |t| op(Op::Jump(t));
    114 POP_JUMP_IF_FALSE          Forward  0, |_, _| -1,             |t| jump_if(Condition::False, t);
    115 POP_JUMP_IF_TRUE           Forward  0, |_, _| -1,             |t| jump_if(Condition::True, t);
    116 LOAD_GLOBAL                Plain    4, |a, _| 1 + (a & 1),    |a| op(Op::LoadGlobal { name: a >> 1, push_null: a & 1 != 0 });
    117 IS_OP                      Plain    0, |_, _| -1,             |a| op(Op::Is { invert: a != 0 });
    118 CONTAINS_OP                Plain    0, |_, _| -1,             |a| op(Op::Contains { invert: a != 0 });
    119 RERAISE                    Plain    0, |_, _| -1,             |a| op(Op::Reraise(a));
    120 COPY                       Plain    0, |_, _| 1,              |a| op(Op::Copy(a));
    121 RETURN_CONST               Plain    0, |_, _| 0,              |a| Becomes::Two(Op::LoadConst(a), Op::ReturnValue);
    122 BINARY_OP                  Plain    1, |_, _| -1,             binary;
    123 SEND                       Forward  1, |_, _| 0,              |t| op(Op::Send(t + 1));
    124 LOAD_FAST                  Plain    0, |_, _| 1,              |a| op(Op::LoadFast(a));
    125 STORE_FAST                 Plain    0, |_, _| -1,             |a| op(Op::StoreFast(a));
    126 DELETE_FAST                Plain    0, |_, _| 0,              |a| op(Op::DeleteFast(a));
    127 LOAD_FAST_CHECK            Plain    0, |_, _| 1,              |a| op(Op::LoadFast(a));
    128 POP_JUMP_IF_NOT_NONE       Forward  0, |_, _| -1,             |t| jump_if(Condition::NotNone, t);
    129 POP_JUMP_IF_NONE           Forward  0, |_, _| -1,             |t| jump_if(Condition::None, t);
    130 RAISE_VARARGS              Plain    0, |a, _| -a,             |a| op(Op::RaiseVarargs(a));
    131 GET_AWAITABLE              Plain    0, |_, _| 0,              |a| op(Op::GetAwaitable(a));
    132 MAKE_FUNCTION              Plain    0, |a, _| -ones(a),       function;
    133 BUILD_SLICE                Plain    0, |a, _| if a == 3 { -2 } else { -1 },|a| if a == 2 || a == 3 { op(Op::BuildSlice(a)) } else { Becomes::Bad };
    134 JUMP_BACKWARD_NO_INTERRUPT Backward 0, |_, _| 0,              |t| op(Op::Jump(t));
    135 MAKE_CELL                  Plain    0, |_, _| 0,              |a| op(Op::MakeCell(a));
    136 LOAD_CLOSURE               Plain    0, |_, _| 1,              |a| op(Op::LoadClosure(a));
    137 LOAD_DEREF                 Plain    0, |_, _| 1,              |a| op(Op::LoadDeref(a));
    138 STORE_DEREF                Plain    0, |_, _| -1,             |a| op(Op::StoreDeref(a));
    139 DELETE_DEREF               Plain    0, |_, _| 0,              |a| op(Op::DeleteDeref(a));
    140 JUMP_BACKWARD              Backward 0, |_, _| 0,              |t| op(Op::Jump(t));
    141 LOAD_SUPER_ATTR            Plain    1, |a, _| (a & 1) - 2,    |a| op(Op::LoadSuperAttr { name: a >> 2, method: a & 1 != 0, explicit: a & 2 != 0 });
    142 CALL_FUNCTION_EX           Plain    0, |a, _| -2 - (a & 1),   |a| op(Op::CallEx { kwargs: a & 1 != 0 });
    143 LOAD_FAST_AND_CLEAR        Plain    0, |_, _| 1,              |a| op(Op::LoadFastAndClear(a));
    144 EXTENDED_ARG               Plain    0, |_, _| 0,              |_| Becomes::Dropped;
    145 LIST_APPEND                Plain    0, |_, _| -1,             |a| op(Op::ListAppend(a));
    146 SET_ADD                    Plain    0, |_, _| -1,             |a| op(Op::SetAdd(a));
    147 MAP_ADD                    Plain    0, |_, _| -2,             |a| op(Op::MapAdd(a));
    149 COPY_FREE_VARS             Plain    0, |_, _| 0,              |a| op(Op::CopyFreeVars(a));
    150 YIELD_VALUE                Plain    0, |_, _| 0,              |_| op(Op::YieldValue);
    151 RESUME                     Plain    0, |_, _| 0,              |_| Becomes::Dropped;
    152 MATCH_CLASS                Plain    0, |_, _| -2,             |a| op(Op::MatchClass(a));
    155 FORMAT_VALUE               Plain    0, |a, _| if a & 4 != 0 { -1 } else { 0 },|a| op(Op::FormatValue { conversion: (a & 3) as u8, spec: a & 4 != 0 });
    156 BUILD_CONST_KEY_MAP        Plain    0, |a, _| -a,             |a| op(Op::BuildConstKeyMap(a));
    157 BUILD_STRING               Plain    0, |a, _| 1 - a,          |a| op(Op::BuildString(a));
    162 LIST_EXTEND                Plain    0, |_, _| -1,             |a| op(Op::ListExtend(a));
    163 SET_UPDATE                 Plain    0, |_, _| -1,             |a| op(Op::SetUpdate(a));
    164 DICT_MERGE                 Plain    0, |_, _| -1,             |a| op(Op::DictMerge { dict: a, callable: a + 2 });
    165 DICT_UPDATE                Plain    0, |_, _| -1,             |a| op(Op::DictUpdate(a));
    171 CALL                       Plain    3, |a, _| -1 - a,         |a| op(Op::Call { argc: a });
    172 KW_NAMES                   Plain    0, |_, _| 0,              |a| op(Op::KwNames(a));
    173 CALL_INTRINSIC_1           Plain    0, |_, _| 0,              intrinsic;
    174 CALL_INTRINSIC_2           Plain    0, |_, _| -1,             |a| op(if a == 1 { Op::PrepReraiseStar } else { Op::Intrinsic { inputs: 2, number: a } });
    175 LOAD_FROM_DICT_OR_GLOBALS  Plain    0, |_, _| 0,              |a| op(Op::LoadFromDictOrGlobals(a));
    176 LOAD_FROM_DICT_OR_DEREF    Plain    0, |_, _| 0,              |a| op(Op::LoadFromDictOrDeref(a));
}
