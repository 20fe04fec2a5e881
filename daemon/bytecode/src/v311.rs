//! CPython 3.11. One table line per opcode: number, name, argument, caches, stack effect, instruction.

use crate::op::{Binary, Compare, Condition, Op, Unary};
use crate::{DecodeError, Decoded, Handler, Instr, tables};
use flambeau_ir::code::Code;

mod encode;

pub(crate) use encode::DIALECT;

/// How an argument is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgKind {
    /// There is none.
    None,
    /// A number, slot or index: itself.
    Plain,
    /// Code units forward from the next instruction.
    Forward,
    /// Code units backward from the next instruction.
    Backward,
}

/// What an opcode becomes.
enum Becomes {
    /// An instruction.
    Op(Op),
    /// Nothing.
    Dropped,
    /// The argument is not allowed.
    Bad,
}

/// One opcode.
pub struct Opcode {
    /// Its byte.
    pub number: u8,
    /// CPython's name.
    pub name: &'static str,
    /// How its argument is read.
    pub arg: ArgKind,
    /// Inline cache entries behind it, in code units.
    pub caches: u8,
    /// Change of the stack depth by argument, and by whether it jumps.
    pub effect: fn(i32, bool) -> i32,
    make: fn(u32) -> Becomes,
}

const EXTENDED_ARG: u8 = 144;

/// Shortens the table's lines.
macro_rules! opcodes {
    ($($number:literal $name:ident $arg:ident $caches:literal, $effect:expr, $make:expr;)*) => {
        /// Every opcode of the version, by number.
        pub const OPCODES: &[Opcode] = &[$(Opcode {
            number: $number,
            name: stringify!($name),
            arg: ArgKind::$arg,
            caches: $caches,
            effect: $effect,
            make: $make,
        },)*];
    };
}

const fn op(op: Op) -> Becomes {
    Becomes::Op(op)
}

fn jump_if(cond: Condition, target: u32) -> Becomes {
    op(Op::PopJumpIf { cond, target })
}

fn binary(number: u32) -> Becomes {
    match Binary::ALL.get(number as usize % 13) {
        Some(&kind) if number < 26 => op(Op::Binary { kind, inplace: number >= 13 }),
        _ => Becomes::Bad,
    }
}

fn compare(number: u32) -> Becomes {
    Compare::ALL.get(number as usize).map_or(Becomes::Bad, |&c| op(Op::Compare(c)))
}

fn function(flags: u32) -> Becomes {
    let has = |bit: u32| flags & bit != 0;
    op(Op::MakeFunction { defaults: has(1), kwdefaults: has(2), annotations: has(4), closure: has(8) })
}

fn ones(flags: i32) -> i32 {
    (flags & 15).count_ones() as i32
}

opcodes! {
    0   CACHE                        None     0, |_, _| 0,                 |_| Becomes::Dropped;
    1   POP_TOP                      None     0, |_, _| -1,                |_| op(Op::PopTop);
    2   PUSH_NULL                    None     0, |_, _| 1,                 |_| op(Op::PushNull);
    9   NOP                          None     0, |_, _| 0,                 |_| Becomes::Dropped;
    10  UNARY_POSITIVE               None     0, |_, _| 0,                 |_| op(Op::Unary(Unary::Positive));
    11  UNARY_NEGATIVE               None     0, |_, _| 0,                 |_| op(Op::Unary(Unary::Negative));
    12  UNARY_NOT                    None     0, |_, _| 0,                 |_| op(Op::Unary(Unary::Not));
    15  UNARY_INVERT                 None     0, |_, _| 0,                 |_| op(Op::Unary(Unary::Invert));
    25  BINARY_SUBSCR                None     4, |_, _| -1,                |_| op(Op::BinarySubscr);
    30  GET_LEN                      None     0, |_, _| 1,                 |_| op(Op::GetLen);
    31  MATCH_MAPPING                None     0, |_, _| 1,                 |_| op(Op::MatchMapping);
    32  MATCH_SEQUENCE               None     0, |_, _| 1,                 |_| op(Op::MatchSequence);
    33  MATCH_KEYS                   None     0, |_, _| 1,                 |_| op(Op::MatchKeys);
    35  PUSH_EXC_INFO                None     0, |_, _| 1,                 |_| op(Op::PushExcInfo);
    36  CHECK_EXC_MATCH              None     0, |_, _| 0,                 |_| op(Op::CheckExcMatch);
    37  CHECK_EG_MATCH               None     0, |_, _| 0,                 |_| op(Op::CheckEgMatch);
    49  WITH_EXCEPT_START            None     0, |_, _| 1,                 |_| op(Op::WithExceptStart);
    50  GET_AITER                    None     0, |_, _| 0,                 |_| op(Op::GetAiter);
    51  GET_ANEXT                    None     0, |_, _| 1,                 |_| op(Op::GetAnext);
    52  BEFORE_ASYNC_WITH            None     0, |_, _| 1,                 |_| op(Op::BeforeAsyncWith);
    53  BEFORE_WITH                  None     0, |_, _| 1,                 |_| op(Op::BeforeWith);
    54  END_ASYNC_FOR                None     0, |_, _| -2,                |_| op(Op::EndAsyncFor);
    60  STORE_SUBSCR                 None     1, |_, _| -3,                |_| op(Op::StoreSubscr);
    61  DELETE_SUBSCR                None     0, |_, _| -2,                |_| op(Op::DeleteSubscr);
    68  GET_ITER                     None     0, |_, _| 0,                 |_| op(Op::GetIter);
    69  GET_YIELD_FROM_ITER          None     0, |_, _| 0,                 |_| op(Op::GetYieldFromIter);
    70  PRINT_EXPR                   None     0, |_, _| -1,                |_| op(Op::PrintExpr);
    71  LOAD_BUILD_CLASS             None     0, |_, _| 1,                 |_| op(Op::LoadBuildClass);
    74  LOAD_ASSERTION_ERROR         None     0, |_, _| 1,                 |_| op(Op::LoadAssertionError);
    75  RETURN_GENERATOR             None     0, |_, _| 0,                 |_| op(Op::ReturnGenerator);
    82  LIST_TO_TUPLE                None     0, |_, _| 0,                 |_| op(Op::ListToTuple);
    83  RETURN_VALUE                 None     0, |_, _| -1,                |_| op(Op::ReturnValue);
    84  IMPORT_STAR                  None     0, |_, _| -1,                |_| op(Op::ImportStar);
    85  SETUP_ANNOTATIONS            None     0, |_, _| 0,                 |_| op(Op::SetupAnnotations);
    86  YIELD_VALUE                  None     0, |_, _| 0,                 |_| op(Op::YieldValue);
    87  ASYNC_GEN_WRAP               None     0, |_, _| 0,                 |_| op(Op::AsyncGenWrap);
    88  PREP_RERAISE_STAR            None     0, |_, _| -1,                |_| op(Op::PrepReraiseStar);
    89  POP_EXCEPT                   None     0, |_, _| -1,                |_| op(Op::PopExcept);
    90  STORE_NAME                   Plain    0, |_, _| -1,                |a| op(Op::StoreName(a));
    91  DELETE_NAME                  Plain    0, |_, _| 0,                 |a| op(Op::DeleteName(a));
    92  UNPACK_SEQUENCE              Plain    1, |a, _| a - 1,             |a| op(Op::UnpackSequence(a));
    93  FOR_ITER                     Forward  0, |_, j| if j { -1 } else { 1 }, |t| op(Op::ForIter(t));
    94  UNPACK_EX                    Plain    0, |a, _| (a & 255) + (a >> 8), |a| op(Op::UnpackEx { before: a & 255, after: a >> 8 });
    95  STORE_ATTR                   Plain    4, |_, _| -2,                |a| op(Op::StoreAttr(a));
    96  DELETE_ATTR                  Plain    0, |_, _| -1,                |a| op(Op::DeleteAttr(a));
    97  STORE_GLOBAL                 Plain    0, |_, _| -1,                |a| op(Op::StoreGlobal(a));
    98  DELETE_GLOBAL                Plain    0, |_, _| 0,                 |a| op(Op::DeleteGlobal(a));
    99  SWAP                         Plain    0, |_, _| 0,                 |a| op(Op::Swap(a));
    100 LOAD_CONST                   Plain    0, |_, _| 1,                 |a| op(Op::LoadConst(a));
    101 LOAD_NAME                    Plain    0, |_, _| 1,                 |a| op(Op::LoadName(a));
    102 BUILD_TUPLE                  Plain    0, |a, _| 1 - a,             |a| op(Op::BuildTuple(a));
    103 BUILD_LIST                   Plain    0, |a, _| 1 - a,             |a| op(Op::BuildList(a));
    104 BUILD_SET                    Plain    0, |a, _| 1 - a,             |a| op(Op::BuildSet(a));
    105 BUILD_MAP                    Plain    0, |a, _| 1 - 2 * a,         |a| op(Op::BuildMap(a));
    106 LOAD_ATTR                    Plain    4, |_, _| 0,                 |a| op(Op::LoadAttr { name: a, method: false });
    107 COMPARE_OP                   Plain    2, |_, _| -1,                compare;
    108 IMPORT_NAME                  Plain    0, |_, _| -1,                |a| op(Op::ImportName(a));
    109 IMPORT_FROM                  Plain    0, |_, _| 1,                 |a| op(Op::ImportFrom(a));
    110 JUMP_FORWARD                 Forward  0, |_, _| 0,                 |t| op(Op::Jump(t));
    111 JUMP_IF_FALSE_OR_POP         Forward  0, |_, j| if j { 0 } else { -1 }, |t| op(Op::JumpIfOrPop { cond: false, target: t });
    112 JUMP_IF_TRUE_OR_POP          Forward  0, |_, j| if j { 0 } else { -1 }, |t| op(Op::JumpIfOrPop { cond: true, target: t });
    114 POP_JUMP_FORWARD_IF_FALSE    Forward  0, |_, _| -1,                |t| jump_if(Condition::False, t);
    115 POP_JUMP_FORWARD_IF_TRUE     Forward  0, |_, _| -1,                |t| jump_if(Condition::True, t);
    116 LOAD_GLOBAL                  Plain    5, |a, _| 1 + (a & 1),       |a| op(Op::LoadGlobal { name: a >> 1, push_null: a & 1 != 0 });
    117 IS_OP                        Plain    0, |_, _| -1,                |a| op(Op::Is { invert: a != 0 });
    118 CONTAINS_OP                  Plain    0, |_, _| -1,                |a| op(Op::Contains { invert: a != 0 });
    119 RERAISE                      Plain    0, |_, _| -1,                |a| op(Op::Reraise(a));
    120 COPY                         Plain    0, |_, _| 1,                 |a| op(Op::Copy(a));
    122 BINARY_OP                    Plain    1, |_, _| -1,                binary;
    123 SEND                         Forward  0, |_, j| if j { -1 } else { 0 }, |t| op(Op::Send(t));
    124 LOAD_FAST                    Plain    0, |_, _| 1,                 |a| op(Op::LoadFast(a));
    125 STORE_FAST                   Plain    0, |_, _| -1,                |a| op(Op::StoreFast(a));
    126 DELETE_FAST                  Plain    0, |_, _| 0,                 |a| op(Op::DeleteFast(a));
    128 POP_JUMP_FORWARD_IF_NOT_NONE Forward  0, |_, _| -1,                |t| jump_if(Condition::NotNone, t);
    129 POP_JUMP_FORWARD_IF_NONE     Forward  0, |_, _| -1,                |t| jump_if(Condition::None, t);
    130 RAISE_VARARGS                Plain    0, |a, _| -a,                |a| op(Op::RaiseVarargs(a));
    131 GET_AWAITABLE                Plain    0, |_, _| 0,                 |a| op(Op::GetAwaitable(a));
    132 MAKE_FUNCTION                Plain    0, |a, _| -ones(a),          function;
    133 BUILD_SLICE                  Plain    0, |a, _| 1 - a,             |a| if a == 2 || a == 3 { op(Op::BuildSlice(a)) } else { Becomes::Bad };
    134 JUMP_BACKWARD_NO_INTERRUPT   Backward 0, |_, _| 0,                 |t| op(Op::Jump(t));
    135 MAKE_CELL                    Plain    0, |_, _| 0,                 |a| op(Op::MakeCell(a));
    136 LOAD_CLOSURE                 Plain    0, |_, _| 1,                 |a| op(Op::LoadClosure(a));
    137 LOAD_DEREF                   Plain    0, |_, _| 1,                 |a| op(Op::LoadDeref(a));
    138 STORE_DEREF                  Plain    0, |_, _| -1,                |a| op(Op::StoreDeref(a));
    139 DELETE_DEREF                 Plain    0, |_, _| 0,                 |a| op(Op::DeleteDeref(a));
    140 JUMP_BACKWARD                Backward 0, |_, _| 0,                 |t| op(Op::Jump(t));
    142 CALL_FUNCTION_EX             Plain    0, |a, _| -2 - (a & 1),      |a| op(Op::CallEx { kwargs: a & 1 != 0 });
    144 EXTENDED_ARG                 Plain    0, |_, _| 0,                 |_| Becomes::Dropped;
    145 LIST_APPEND                  Plain    0, |_, _| -1,                |a| op(Op::ListAppend(a));
    146 SET_ADD                      Plain    0, |_, _| -1,                |a| op(Op::SetAdd(a));
    147 MAP_ADD                      Plain    0, |_, _| -2,                |a| op(Op::MapAdd(a));
    148 LOAD_CLASSDEREF              Plain    0, |_, _| 1,                 |a| op(Op::LoadClassDeref(a));
    149 COPY_FREE_VARS               Plain    0, |_, _| 0,                 |a| op(Op::CopyFreeVars(a));
    151 RESUME                       Plain    0, |_, _| 0,                 |_| Becomes::Dropped;
    152 MATCH_CLASS                  Plain    0, |_, _| -2,                |a| op(Op::MatchClass(a));
    155 FORMAT_VALUE                 Plain    0, |a, _| if a & 4 != 0 { -1 } else { 0 }, |a| op(Op::FormatValue { conversion: (a & 3) as u8, spec: a & 4 != 0 });
    156 BUILD_CONST_KEY_MAP          Plain    0, |a, _| -a,                |a| op(Op::BuildConstKeyMap(a));
    157 BUILD_STRING                 Plain    0, |a, _| 1 - a,             |a| op(Op::BuildString(a));
    160 LOAD_METHOD                  Plain    10, |_, _| 1,                |a| op(Op::LoadAttr { name: a, method: true });
    162 LIST_EXTEND                  Plain    0, |_, _| -1,                |a| op(Op::ListExtend(a));
    163 SET_UPDATE                   Plain    0, |_, _| -1,                |a| op(Op::SetUpdate(a));
    164 DICT_MERGE                   Plain    0, |_, _| -1,                |a| op(Op::DictMerge(a));
    165 DICT_UPDATE                  Plain    0, |_, _| -1,                |a| op(Op::DictUpdate(a));
    166 PRECALL                      Plain    1, |a, _| -a,                |_| Becomes::Dropped;
    171 CALL                         Plain    4, |_, _| -1,                |a| op(Op::Call { argc: a });
    172 KW_NAMES                     Plain    0, |_, _| 0,                 |a| op(Op::KwNames(a));
    173 POP_JUMP_BACKWARD_IF_NOT_NONE Backward 0, |_, _| -1,               |t| jump_if(Condition::NotNone, t);
    174 POP_JUMP_BACKWARD_IF_NONE    Backward 0, |_, _| -1,                |t| jump_if(Condition::None, t);
    175 POP_JUMP_BACKWARD_IF_FALSE   Backward 0, |_, _| -1,                |t| jump_if(Condition::False, t);
    176 POP_JUMP_BACKWARD_IF_TRUE    Backward 0, |_, _| -1,                |t| jump_if(Condition::True, t);
}

/// The opcode with this byte.
pub fn opcode(number: u8) -> Option<&'static Opcode> {
    OPCODES.binary_search_by_key(&number, |o| o.number).ok().map(|i| &OPCODES[i])
}

/// Decodes one code object of CPython 3.11.
pub fn decode(code: &Code) -> Result<Decoded, DecodeError> {
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
        let opcode = opcode(byte).ok_or(DecodeError::UnknownOpcode { opcode: byte, offset })?;
        let arg = extended << 8 | u32::from(low);
        let next = at + 1 + usize::from(opcode.caches);
        if next > units.len() {
            return Err(DecodeError::Truncated);
        }
        index[at..next].fill(instrs.len() as u32);
        extended = if byte == EXTENDED_ARG { arg } else { 0 };
        let operand = match opcode.arg {
            ArgKind::None | ArgKind::Plain => Some(arg),
            ArgKind::Forward => (next as u32).checked_add(arg),
            ArgKind::Backward => (next as u32).checked_sub(arg),
        };
        match (opcode.make)(operand.ok_or(DecodeError::BadTarget(offset))?) {
            Becomes::Op(op) => {
                index[at + 1..next].fill(instrs.len() as u32 + 1);
                instrs.push(Instr { op, offset, line: lines[at] });
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
    let handlers = handlers(code, &index)?;
    Ok(Decoded { instrs, handlers })
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
