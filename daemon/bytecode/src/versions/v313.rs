//! CPython 3.13. One table line per opcode: number, name, argument, caches, stack effect, instruction.

use crate::dialect::{Becomes, binary, compare, intrinsic, jump_if, op, opcodes};
use crate::op::{Condition, Op, Parts, Unary};

mod encode;

pub use encode::DIALECT;

/// An instruction that pushes, if the lowest bit says so, a null behind its value.
fn maybe_null(first: Op, arg: u32) -> Becomes {
    if arg & 1 != 0 { Becomes::Two(first, Op::PushNull) } else { op(first) }
}

/// Two instructions, for the slots in half a byte each.
fn two(first: fn(u32) -> Op, second: fn(u32) -> Op, slots: u32) -> Becomes {
    Becomes::Two(first(slots >> 4), second(slots & 15))
}

opcodes! {
    0   CACHE                      None     0, |_, _| 0,              |_| Becomes::Dropped;
    1   BEFORE_ASYNC_WITH          None     0, |_, _| 1,              |_| op(Op::BeforeAsyncWith);
    2   BEFORE_WITH                None     0, |_, _| 1,              |_| op(Op::BeforeWith);
    4   BINARY_SLICE               None     0, |_, _| -2,             |_| op(Op::BinarySlice);
    5   BINARY_SUBSCR              None     1, |_, _| -1,             |_| op(Op::BinarySubscr);
    6   CHECK_EG_MATCH             None     0, |_, _| 0,              |_| op(Op::CheckEgMatch);
    7   CHECK_EXC_MATCH            None     0, |_, _| 0,              |_| op(Op::CheckExcMatch);
    8   CLEANUP_THROW              None     0, |_, _| -1,             |_| op(Op::CleanupThrow);
    9   DELETE_SUBSCR              None     0, |_, _| -2,             |_| op(Op::DeleteSubscr);
    10  END_ASYNC_FOR              None     0, |_, _| -2,             |_| op(Op::EndAsyncFor);
    11  END_FOR                    None     0, |_, _| -1,             |_| op(Op::PopTop);
    12  END_SEND                   None     0, |_, _| -1,             |_| op(Op::EndSend);
    13  EXIT_INIT_CHECK            None     0, |_, _| -1,             |_| Becomes::Bad;
    14  FORMAT_SIMPLE              None     0, |_, _| 0,              |_| op(Op::FormatValue { conversion: 0, spec: false });
    15  FORMAT_WITH_SPEC           None     0, |_, _| -1,             |_| op(Op::FormatValue { conversion: 0, spec: true });
    16  GET_AITER                  None     0, |_, _| 0,              |_| op(Op::GetAiter);
    17  RESERVED                   None     0, |_, _| 0,              |_| Becomes::Bad;
    18  GET_ANEXT                  None     0, |_, _| 1,              |_| op(Op::GetAnext);
    19  GET_ITER                   None     0, |_, _| 0,              |_| op(Op::GetIter);
    20  GET_LEN                    None     0, |_, _| 1,              |_| op(Op::GetLen);
    21  GET_YIELD_FROM_ITER        None     0, |_, _| 0,              |_| op(Op::GetYieldFromIter);
    22  INTERPRETER_EXIT           None     0, |_, _| -1,             |_| Becomes::Bad;
    23  LOAD_ASSERTION_ERROR       None     0, |_, _| 1,              |_| op(Op::LoadAssertionError);
    24  LOAD_BUILD_CLASS           None     0, |_, _| 1,              |_| op(Op::LoadBuildClass);
    25  LOAD_LOCALS                None     0, |_, _| 1,              |_| op(Op::LoadLocals);
    26  MAKE_FUNCTION              None     0, |_, _| 0,              |_| op(Op::MakeFunction(Parts::NONE));
    27  MATCH_KEYS                 None     0, |_, _| 1,              |_| op(Op::MatchKeys);
    28  MATCH_MAPPING              None     0, |_, _| 1,              |_| op(Op::MatchMapping);
    29  MATCH_SEQUENCE             None     0, |_, _| 1,              |_| op(Op::MatchSequence);
    30  NOP                        None     0, |_, _| 0,              |_| Becomes::Dropped;
    31  POP_EXCEPT                 None     0, |_, _| -1,             |_| op(Op::PopExcept);
    32  POP_TOP                    None     0, |_, _| -1,             |_| op(Op::PopTop);
    33  PUSH_EXC_INFO              None     0, |_, _| 1,              |_| op(Op::PushExcInfo);
    34  PUSH_NULL                  None     0, |_, _| 1,              |_| op(Op::PushNull);
    35  RETURN_GENERATOR           None     0, |_, _| 1,              |_| op(Op::ReturnGenerator);
    36  RETURN_VALUE               None     0, |_, _| -1,             |_| op(Op::ReturnValue);
    37  SETUP_ANNOTATIONS          None     0, |_, _| 0,              |_| op(Op::SetupAnnotations);
    38  STORE_SLICE                None     0, |_, _| -4,             |_| op(Op::StoreSlice);
    39  STORE_SUBSCR               None     1, |_, _| -3,             |_| op(Op::StoreSubscr);
    40  TO_BOOL                    None     3, |_, _| 0,              |_| Becomes::Dropped;
    41  UNARY_INVERT               None     0, |_, _| 0,              |_| op(Op::Unary(Unary::Invert));
    42  UNARY_NEGATIVE             None     0, |_, _| 0,              |_| op(Op::Unary(Unary::Negative));
    43  UNARY_NOT                  None     0, |_, _| 0,              |_| op(Op::Unary(Unary::Not));
    44  WITH_EXCEPT_START          None     0, |_, _| 1,              |_| op(Op::WithExceptStart);
    45  BINARY_OP                  Plain    1, |_, _| -1,             binary;
    46  BUILD_CONST_KEY_MAP        Plain    0, |a, _| -a,             |a| op(Op::BuildConstKeyMap(a));
    47  BUILD_LIST                 Plain    0, |a, _| 1 - a,          |a| op(Op::BuildList(a));
    48  BUILD_MAP                  Plain    0, |a, _| 1 - 2 * a,      |a| op(Op::BuildMap(a));
    49  BUILD_SET                  Plain    0, |a, _| 1 - a,          |a| op(Op::BuildSet(a));
    50  BUILD_SLICE                Plain    0, |a, _| if a == 3 { -2 } else { -1 },|a| if a == 2 || a == 3 { op(Op::BuildSlice(a)) } else { Becomes::Bad };
    51  BUILD_STRING               Plain    0, |a, _| 1 - a,          |a| op(Op::BuildString(a));
    52  BUILD_TUPLE                Plain    0, |a, _| 1 - a,          |a| op(Op::BuildTuple(a));
    53  CALL                       Plain    3, |a, _| -1 - a,         |a| op(Op::Call { argc: a });
    54  CALL_FUNCTION_EX           Plain    0, |a, _| -2 - (a & 1),   |a| op(Op::CallEx { kwargs: a & 1 != 0 });
    55  CALL_INTRINSIC_1           Plain    0, |_, _| 0,              intrinsic;
    56  CALL_INTRINSIC_2           Plain    0, |_, _| -1,             |a| op(if a == 1 { Op::PrepReraiseStar } else { Op::Intrinsic { inputs: 2, number: a } });
    57  CALL_KW                    Plain    0, |a, _| -2 - a,         |a| op(Op::CallKw { argc: a });
    58  COMPARE_OP                 Plain    1, |_, _| -1,             |a| compare(a >> 5);
    59  CONTAINS_OP                Plain    1, |_, _| -1,             |a| op(Op::Contains { invert: a != 0 });
    60  CONVERT_VALUE              Plain    0, |_, _| 0,              |a| op(Op::ConvertValue((a & 3) as u8));
    61  COPY                       Plain    0, |_, _| 1,              |a| op(Op::Copy(a));
    62  COPY_FREE_VARS             Plain    0, |_, _| 0,              |a| op(Op::CopyFreeVars(a));
    63  DELETE_ATTR                Plain    0, |_, _| -1,             |a| op(Op::DeleteAttr(a));
    64  DELETE_DEREF               Plain    0, |_, _| 0,              |a| op(Op::DeleteDeref(a));
    65  DELETE_FAST                Plain    0, |_, _| 0,              |a| op(Op::DeleteFast(a));
    66  DELETE_GLOBAL              Plain    0, |_, _| 0,              |a| op(Op::DeleteGlobal(a));
    67  DELETE_NAME                Plain    0, |_, _| 0,              |a| op(Op::DeleteName(a));
    68  DICT_MERGE                 Plain    0, |_, _| -1,             |a| op(Op::DictMerge { dict: a, callable: a + 3 });
    69  DICT_UPDATE                Plain    0, |_, _| -1,             |a| op(Op::DictUpdate(a));
    70  ENTER_EXECUTOR             Plain    0, |_, _| 0,              |_| Becomes::Bad;
    71  EXTENDED_ARG               Plain    0, |_, _| 0,              |_| Becomes::Dropped;
    72  FOR_ITER                   Forward  1, |_, _| 1,              |t| op(Op::ForIter(t + 2));
    73  GET_AWAITABLE              Plain    0, |_, _| 0,              |a| op(Op::GetAwaitable(a));
    74  IMPORT_FROM                Plain    0, |_, _| 1,              |a| op(Op::ImportFrom(a));
    75  IMPORT_NAME                Plain    0, |_, _| -1,             |a| op(Op::ImportName(a));
    76  IS_OP                      Plain    0, |_, _| -1,             |a| op(Op::Is { invert: a != 0 });
    77  JUMP_BACKWARD              Backward 1, |_, _| 0,              |t| op(Op::Jump(t));
    78  JUMP_BACKWARD_NO_INTERRUPT Backward 0, |_, _| 0,              |t| op(Op::Jump(t));
    79  JUMP_FORWARD               Forward  0, |_, _| 0,              |t| op(Op::Jump(t));
    80  LIST_APPEND                Plain    0, |_, _| -1,             |a| op(Op::ListAppend(a));
    81  LIST_EXTEND                Plain    0, |_, _| -1,             |a| op(Op::ListExtend(a));
    82  LOAD_ATTR                  Plain    9, |a, _| a & 1,          |a| maybe_null(Op::LoadAttr { name: a >> 1, method: false }, a);
    83  LOAD_CONST                 Plain    0, |_, _| 1,              |a| op(Op::LoadConst(a));
    84  LOAD_DEREF                 Plain    0, |_, _| 1,              |a| op(Op::LoadDeref(a));
    85  LOAD_FAST                  Plain    0, |_, _| 1,              |a| op(Op::LoadFast(a));
    86  LOAD_FAST_AND_CLEAR        Plain    0, |_, _| 1,              |a| op(Op::LoadFastAndClear(a));
    87  LOAD_FAST_CHECK            Plain    0, |_, _| 1,              |a| op(Op::LoadFast(a));
    88  LOAD_FAST_LOAD_FAST        Plain    0, |_, _| 2,              |a| two(Op::LoadFast, Op::LoadFast, a);
    89  LOAD_FROM_DICT_OR_DEREF    Plain    0, |_, _| 0,              |a| op(Op::LoadFromDictOrDeref(a));
    90  LOAD_FROM_DICT_OR_GLOBALS  Plain    0, |_, _| 0,              |a| op(Op::LoadFromDictOrGlobals(a));
    91  LOAD_GLOBAL                Plain    4, |a, _| 1 + (a & 1),    |a| maybe_null(Op::LoadGlobal { name: a >> 1, push_null: false }, a);
    92  LOAD_NAME                  Plain    0, |_, _| 1,              |a| op(Op::LoadName(a));
    93  LOAD_SUPER_ATTR            Plain    1, |a, _| (a & 1) - 2,    |a| maybe_null(Op::LoadSuperAttr { name: a >> 2, method: false, explicit: a & 2 != 0 }, a);
    94  MAKE_CELL                  Plain    0, |_, _| 0,              |a| op(Op::MakeCell(a));
    95  MAP_ADD                    Plain    0, |_, _| -2,             |a| op(Op::MapAdd(a));
    96  MATCH_CLASS                Plain    0, |_, _| -2,             |a| op(Op::MatchClass(a));
    97  POP_JUMP_IF_FALSE          Forward  1, |_, _| -1,             |t| jump_if(Condition::False, t);
    98  POP_JUMP_IF_NONE           Forward  1, |_, _| -1,             |t| jump_if(Condition::None, t);
    99  POP_JUMP_IF_NOT_NONE       Forward  1, |_, _| -1,             |t| jump_if(Condition::NotNone, t);
    100 POP_JUMP_IF_TRUE           Forward  1, |_, _| -1,             |t| jump_if(Condition::True, t);
    101 RAISE_VARARGS              Plain    0, |a, _| -a,             |a| op(Op::RaiseVarargs(a));
    102 RERAISE                    Plain    0, |_, _| -1,             |a| op(Op::Reraise(a));
    103 RETURN_CONST               Plain    0, |_, _| 0,              |a| Becomes::Two(Op::LoadConst(a), Op::ReturnValue);
    104 SEND                       Forward  1, |_, _| 0,              |t| op(Op::Send(t + 1));
    105 SET_ADD                    Plain    0, |_, _| -1,             |a| op(Op::SetAdd(a));
    106 SET_FUNCTION_ATTRIBUTE     Plain    0, |_, _| -1,             |a| if a.is_power_of_two() && a < 16 { op(Op::SetFunctionAttribute(Parts::of(a))) } else { Becomes::Bad };
    107 SET_UPDATE                 Plain    0, |_, _| -1,             |a| op(Op::SetUpdate(a));
    108 STORE_ATTR                 Plain    4, |_, _| -2,             |a| op(Op::StoreAttr(a));
    109 STORE_DEREF                Plain    0, |_, _| -1,             |a| op(Op::StoreDeref(a));
    110 STORE_FAST                 Plain    0, |_, _| -1,             |a| op(Op::StoreFast(a));
    111 STORE_FAST_LOAD_FAST       Plain    0, |_, _| 0,              |a| two(Op::StoreFast, Op::LoadFast, a);
    112 STORE_FAST_STORE_FAST      Plain    0, |_, _| -2,             |a| two(Op::StoreFast, Op::StoreFast, a);
    113 STORE_GLOBAL               Plain    0, |_, _| -1,             |a| op(Op::StoreGlobal(a));
    114 STORE_NAME                 Plain    0, |_, _| -1,             |a| op(Op::StoreName(a));
    115 SWAP                       Plain    0, |_, _| 0,              |a| op(Op::Swap(a));
    116 UNPACK_EX                  Plain    0, |a, _| (a & 255) + (a >> 8),|a| op(Op::UnpackEx { before: a & 255, after: a >> 8 });
    117 UNPACK_SEQUENCE            Plain    1, |a, _| a - 1,          |a| op(Op::UnpackSequence(a));
    118 YIELD_VALUE                Plain    0, |_, _| 0,              |_| op(Op::YieldValue);
    149 RESUME                     Plain    0, |_, _| 0,              |_| Becomes::Dropped;
}
