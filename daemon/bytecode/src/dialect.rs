//! What differs between interpreter versions: their opcodes, for the decoder, and how instructions are written, for the
//! assembler. A version is a module with a table of opcodes and a line in [`VERSIONS`].

use crate::op::{Binary, Compare, Condition, Op, Parts, Unary};

/// One interpreter version.
pub struct Dialect {
    /// Its opcodes, by number.
    pub opcodes: &'static [Opcode],
    /// `EXTENDED_ARG`
    pub extended_arg: u8,
    /// `RESUME`
    pub resume: u8,
    /// `NOP`
    pub nop: u8,
    /// Its argument is an index into `localsplus`, of any kind of slot.
    pub uses_slot: fn(u8) -> bool,
    /// It prepares the call that follows (`PRECALL`).
    pub belongs_to_call: fn(u8) -> bool,
    /// A call's null lies above the callable.
    pub null_above: bool,
    /// What takes the truth for the jumps and `not` that follow it (`TO_BOOL`), if they do not do so themselves.
    pub to_bool: Option<u8>,
    /// Where `throw()` finds that the iterator a generator delegates to has ended, it takes the jump of the `SEND` before
    /// the `YIELD_VALUE` itself.
    pub throw_takes_send: bool,
    /// Writes a `yield` before which no handler of the user's is looked for, and the `RESUME` behind it, by that one's
    /// argument in the user's code.
    pub yields: fn(u32, &mut dyn FnMut(u8, u32)),
    /// Writes an instruction that others write in another way, as [`Dialect::write`] does; `None` for all else.
    pub writes: fn(Op, &mut dyn FnMut(u8, u32)) -> Option<()>,
    /// For what pushes a value and a null, or may: the instruction that pushes the value only.
    pub without_null: fn(u8, u32) -> Option<(u8, u32)>,
    /// What built-ins do.
    pub builtins: Builtins,
}

/// What built-in functions and operators do differently in some version.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a difference of its own")]
pub struct Builtins {
    /// `sum` of floats keeps what rounding loses (`cs_add` in CPython's `Python/bltinmodule.c`).
    pub sum_compensates: bool,
    /// `~` of a bool warns.
    pub inverted_bool_warns: bool,
    /// What `min` and `max` say, after their names, of nothing.
    pub extreme_of_nothing: &'static str,
    /// What is said in the end where an object without a dict has no such attribute to set or delete.
    pub no_dict: &'static str,
    /// `close` of a generator gives what it returns.
    pub close_returns: bool,
    /// `throw` warns where it is given more than an exception.
    pub throw_warns: bool,
    /// What a list says of what cannot be assigned to a plain slice of it.
    pub no_items: &'static str,
    /// Functions have `__type_params__`.
    pub type_params: bool,
}

/// As in the first version.
pub const BUILTINS: Builtins = Builtins {
    sum_compensates: false,
    inverted_bool_warns: false,
    extreme_of_nothing: "arg is an empty sequence",
    no_dict: "",
    close_returns: false,
    throw_warns: false,
    no_items: "can only assign an iterable",
    type_params: false,
};

impl Dialect {
    /// The opcode with this byte.
    pub fn opcode(&self, number: u8) -> Option<&'static Opcode> {
        self.opcodes.binary_search_by_key(&number, |o| o.number).ok().map(|i| &self.opcodes[i])
    }

    /// Writes the opcodes and arguments of an instruction; jumps have the distance in code units as target. `None` for
    /// what the assembler does not write.
    pub fn write(&self, op: Op, put: &mut dyn FnMut(u8, u32)) -> Option<()> {
        if (self.writes)(op, put).is_some() {
            return Some(());
        }
        if op == Op::ToBool && self.to_bool.is_none() {
            return [Op::Unary(Unary::Not); 2].into_iter().try_for_each(|not| self.write(not, put));
        }
        let (name, arg) = written(op)?;
        put(self.opcodes.iter().find(|o| o.name == name)?.number, arg);
        Some(())
    }
}

/// What prologues and thin functions are made of: opcode and argument, where a version does not say otherwise.
fn written(op: Op) -> Option<(&'static str, u32)> {
    Some(match op {
        Op::PopTop => ("POP_TOP", 0),
        Op::PushNull => ("PUSH_NULL", 0),
        Op::EndFor => ("END_FOR", 0),
        Op::Unary(Unary::Not) => ("UNARY_NOT", 0),
        Op::ToBool => ("TO_BOOL", 0),
        Op::BinarySubscr => ("BINARY_SUBSCR", 0),
        Op::PushExcInfo => ("PUSH_EXC_INFO", 0),
        Op::ReturnGenerator => ("RETURN_GENERATOR", 0),
        Op::ReturnValue => ("RETURN_VALUE", 0),
        Op::PopExcept => ("POP_EXCEPT", 0),
        Op::ForIter(distance) => ("FOR_ITER", distance),
        Op::Swap(depth) => ("SWAP", depth),
        Op::LoadConst(index) => ("LOAD_CONST", index),
        Op::BuildTuple(count) => ("BUILD_TUPLE", count),
        Op::Jump(distance) => ("JUMP_FORWARD", distance),
        Op::Reraise(depth) => ("RERAISE", depth),
        Op::LoadFast(slot) => ("LOAD_FAST", slot),
        Op::StoreFast(slot) => ("STORE_FAST", slot),
        Op::DeleteFast(slot) => ("DELETE_FAST", slot),
        Op::RaiseVarargs(count) => ("RAISE_VARARGS", count),
        Op::MakeCell(slot) => ("MAKE_CELL", slot),
        Op::LoadDeref(slot) => ("LOAD_DEREF", slot),
        Op::CallEx { kwargs } => ("CALL_FUNCTION_EX", u32::from(kwargs)),
        Op::CopyFreeVars(count) => ("COPY_FREE_VARS", count),
        Op::Call { argc } => ("CALL", argc),
        _ => return None,
    })
}

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
pub enum Becomes {
    /// An instruction.
    Op(Op),
    /// Two, of which only the first can be entered.
    Two(Op, Op),
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
    /// What it becomes, by its argument; jumps have a code unit as target.
    pub make: fn(u32) -> Becomes,
}

/// Shortens the lines of a version's table.
macro_rules! opcodes {
    ($($number:literal $name:ident $arg:ident $caches:literal, $effect:expr, $make:expr;)*) => {
        /// Every opcode of the version, by number.
        pub const OPCODES: &[$crate::dialect::Opcode] = &[$($crate::dialect::Opcode {
            number: $number,
            name: stringify!($name),
            arg: $crate::dialect::ArgKind::$arg,
            caches: $caches,
            effect: $effect,
            make: $make,
        },)*];
    };
}
pub(crate) use opcodes;

/// An instruction.
pub const fn op(op: Op) -> Becomes {
    Becomes::Op(op)
}

/// A conditional jump.
pub fn jump_if(cond: Condition, target: u32) -> Becomes {
    op(Op::PopJumpIf { cond, target })
}

/// `BINARY_OP` with this number.
pub fn binary(number: u32) -> Becomes {
    match Binary::ALL.get(number as usize % 13) {
        Some(&kind) if number < 26 => op(Op::Binary { kind, inplace: number >= 13 }),
        _ => Becomes::Bad,
    }
}

/// The comparison with this number.
pub fn compare(number: u32) -> Becomes {
    Compare::ALL.get(number as usize).map_or(Becomes::Bad, |&c| op(Op::Compare(c)))
}

/// `CALL_INTRINSIC_1` with this number.
pub fn intrinsic(number: u32) -> Becomes {
    op(match number {
        3 => Op::StopIterationError,
        4 => Op::AsyncGenWrap,
        5 => Op::Unary(Unary::Positive),
        6 => Op::ListToTuple,
        _ => Op::Intrinsic { inputs: 1, number },
    })
}

/// `MAKE_FUNCTION` with these flags.
pub fn function(flags: u32) -> Becomes {
    op(Op::MakeFunction(Parts::of(flags)))
}

/// How many of `MAKE_FUNCTION`'s flags are set.
pub fn ones(flags: i32) -> i32 {
    (flags & 15).count_ones() as i32
}
