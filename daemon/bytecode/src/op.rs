//! The instruction set the tracer sees. A call's stack is `[NULL, callable, args...]`, from CPython 3.13 on
//! `[callable, NULL, args...]`, in all of them `[unbound method, self, args...]`; keyword values last.

/// Index of an instruction in [`crate::Decoded::instrs`].
pub type Target = u32;

/// What an instruction does. Slots index `localsplus`, names `co_names`, constants `co_consts`; the stack top is
/// position 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Drops the top.
    PopTop,
    /// Pushes the null that marks a call of a plain callable.
    PushNull,
    /// Swaps the top with the value at this position.
    Swap(u32),
    /// Pushes a copy of the value at this position.
    Copy(u32),
    /// Operator on the top.
    Unary(Unary),
    /// Replaces the top by its truth. Only written: what tests a truth takes it itself.
    ToBool,
    /// Operator on the two topmost, in-place or not.
    Binary {
        /// Which.
        kind: Binary,
        /// The augmented assignment's operator.
        inplace: bool,
    },
    /// Rich comparison of the two topmost.
    Compare(Compare),
    /// `is`, or `is not`.
    Is {
        /// `is not`
        invert: bool,
    },
    /// `in` (container on top), or `not in`.
    Contains {
        /// `not in`
        invert: bool,
    },
    /// `container[key]`, key on top.
    BinarySubscr,
    /// `container[key] = value`: value, container, key (top).
    StoreSubscr,
    /// `del container[key]`, key on top.
    DeleteSubscr,
    /// `container[start:stop]`: container, start, stop (top).
    BinarySlice,
    /// `container[start:stop] = value`: value, container, start, stop (top).
    StoreSlice,
    /// Pushes a constant.
    LoadConst(u32),
    /// Pushes a local; unbound is an error.
    LoadFast(u32),
    /// Pops into a local.
    StoreFast(u32),
    /// Unbinds a local.
    DeleteFast(u32),
    /// Pushes a local, or a null where it is unbound, and unbinds it: a comprehension takes its slot.
    LoadFastAndClear(u32),
    /// Pushes a global or built-in, over a null if asked for.
    LoadGlobal {
        /// Name index.
        name: u32,
        /// Push a null first.
        push_null: bool,
    },
    /// Pops into a global.
    StoreGlobal(u32),
    /// Deletes a global.
    DeleteGlobal(u32),
    /// Class body or module: locals, globals, builtins.
    LoadName(u32),
    /// Class body or module.
    StoreName(u32),
    /// Class body or module.
    DeleteName(u32),
    /// Replaces the top by its attribute; as `method`, by `[function, self]` or `[NULL, attribute]`.
    LoadAttr {
        /// Name index.
        name: u32,
        /// Made for a call that follows.
        method: bool,
    },
    /// An attribute of `super()`: super, class, self (top), replaced as by [`Op::LoadAttr`].
    LoadSuperAttr {
        /// Name index.
        name: u32,
        /// Made for a call that follows.
        method: bool,
        /// The program wrote both arguments.
        explicit: bool,
    },
    /// `top.name = value`: value, object (top).
    StoreAttr(u32),
    /// `del top.name`
    DeleteAttr(u32),
    /// Turns the local in this slot into a cell.
    MakeCell(u32),
    /// Pushes the cell itself.
    LoadClosure(u32),
    /// Pushes what the cell holds.
    LoadDeref(u32),
    /// Pops into the cell.
    StoreDeref(u32),
    /// Empties the cell.
    DeleteDeref(u32),
    /// Class body: locals first, then the cell.
    LoadClassDeref(u32),
    /// Class body: pushes its names.
    LoadLocals,
    /// Class body: the names on top first, then the cell.
    LoadFromDictOrDeref(u32),
    /// Class body: the names on top first, then globals and builtins.
    LoadFromDictOrGlobals(u32),
    /// Copies this many closure cells into the last slots.
    CopyFreeVars(u32),
    /// A tuple of the topmost n.
    BuildTuple(u32),
    /// A list of the topmost n.
    BuildList(u32),
    /// A set of the topmost n.
    BuildSet(u32),
    /// A dict of n pairs.
    BuildMap(u32),
    /// A dict of n values and a tuple of keys on top.
    BuildConstKeyMap(u32),
    /// Joins n strings.
    BuildString(u32),
    /// A slice of 2 or 3 values.
    BuildSlice(u32),
    /// Appends the top to the list at this position (counted without the top).
    ListAppend(u32),
    /// Adds the top to the set at this position.
    SetAdd(u32),
    /// Stores key, value (top) into the dict at this position.
    MapAdd(u32),
    /// Extends the list at this position by the top.
    ListExtend(u32),
    /// Updates the set at this position by the top.
    SetUpdate(u32),
    /// Updates the dict at this position by the top.
    DictUpdate(u32),
    /// As [`Op::DictUpdate`], for call keywords: a repeated key is an error.
    DictMerge {
        /// Position of the dict.
        dict: u32,
        /// Position of the callable, which the error names.
        callable: u32,
    },
    /// Replaces a list by a tuple.
    ListToTuple,
    /// Unpacks the top into exactly n values, first on top.
    UnpackSequence(u32),
    /// Unpacks with a starred target.
    UnpackEx {
        /// Values before the star.
        before: u32,
        /// Values behind the star.
        after: u32,
    },
    /// `f"{value!conversion:spec}"`
    FormatValue {
        /// 0 none, 1 `str`, 2 `repr`, 3 `ascii`.
        conversion: u8,
        /// The format spec is on top of the value.
        spec: bool,
    },
    /// Replaces the top by its `str` (1), `repr` (2) or `ascii` (3).
    ConvertValue(u8),
    /// Makes a function from the code on top.
    MakeFunction(Parts),
    /// Gives the function on top what is below it, as the one part that is set.
    SetFunctionAttribute(Parts),
    /// The next call's keyword names: a constant.
    KwNames(u32),
    /// Calls with this many arguments (keyword values included).
    Call {
        /// Arguments above callable and self.
        argc: u32,
    },
    /// As [`Op::Call`], with a tuple of the keyword names on top.
    CallKw {
        /// Arguments above callable and self.
        argc: u32,
    },
    /// `callable(*args, **kwargs)`: null and callable (or the other way round), tuple, maybe dict.
    CallEx {
        /// A dict is on top.
        kwargs: bool,
    },
    /// Goes there; backward if the target is not behind this instruction.
    Jump(Target),
    /// Pops; goes there if the condition holds of it.
    PopJumpIf {
        /// What is tested.
        cond: Condition,
        /// Where to.
        target: Target,
    },
    /// Goes there keeping the top if its truth is `cond`, else pops it.
    JumpIfOrPop {
        /// The truth that jumps.
        cond: bool,
        /// Where to.
        target: Target,
    },
    /// Replaces the top by its iterator.
    GetIter,
    /// Pushes the iterator's next value, or pops it and goes there.
    ForIter(Target),
    /// Behind a loop: drops the iterator of a generator that has ended, and its result.
    EndFor,
    /// Returns the top.
    ReturnValue,
    /// Pops the name list and the level, pushes the module.
    ImportName(u32),
    /// Pushes an attribute of the module on top, which stays.
    ImportFrom(u32),
    /// `from module import *`
    ImportStar,
    /// Raises 0 (again), 1 (exception) or 2 (and cause) values.
    RaiseVarargs(u32),
    /// Raises the exception on top again; if not 0, the offset at this position becomes the frame's.
    Reraise(u32),
    /// Makes the exception on top the handled one, keeping the former below it.
    PushExcInfo,
    /// Restores the former handled exception.
    PopExcept,
    /// Replaces the class on top by whether the exception below matches it.
    CheckExcMatch,
    /// As above for `except*`.
    CheckEgMatch,
    /// Raises what `except*` blocks left.
    PrepReraiseStar,
    /// Pushes `AssertionError`.
    LoadAssertionError,
    /// Enters a context manager: pushes its `__exit__`, then the entered value.
    BeforeWith,
    /// Calls the `__exit__` below with the exception on top.
    WithExceptStart,
    /// Returns a generator for the rest of the code.
    ReturnGenerator,
    /// Yields the top; the value sent replaces it.
    YieldValue,
    /// Sends the top to the iterator below: pushes what it yields, or goes there with its result.
    Send(Target),
    /// Behind a [`Op::Send`]: drops what is below the top.
    EndSend,
    /// Replaces iterator, sent value and exception (top), which `throw()` brought, by `None` and the value of a
    /// `StopIteration`; raises others again.
    CleanupThrow,
    /// Replaces a `StopIteration` on top, which leaves a generator, by a `RuntimeError`.
    StopIterationError,
    /// `yield from`'s iterator.
    GetYieldFromIter,
    /// `await`'s iterator; the argument says where in `async with` it is.
    GetAwaitable(u32),
    /// Async iteration.
    GetAiter,
    /// Async iteration.
    GetAnext,
    /// Async iteration.
    EndAsyncFor,
    /// Async generators.
    AsyncGenWrap,
    /// Async context managers.
    BeforeAsyncWith,
    /// Pushes the length of the top.
    GetLen,
    /// Pattern matching: pushes whether the top is a mapping.
    MatchMapping,
    /// Pattern matching: pushes whether the top is a sequence.
    MatchSequence,
    /// Pattern matching.
    MatchKeys,
    /// Pattern matching with this many positional sub-patterns.
    MatchClass(u32),
    /// Pushes `__build_class__`.
    LoadBuildClass,
    /// Makes `__annotations__`.
    SetupAnnotations,
    /// The interactive prompt's echo.
    PrintExpr,
    /// A rare function of CPython's, by its number: replaces the topmost.
    Intrinsic {
        /// 1 or 2.
        inputs: u8,
        /// Among those with as many inputs.
        number: u32,
    },
}

impl Op {
    /// Whether it binds this slot anew, or unbinds it.
    pub fn rebinds(self, slot: u32) -> bool {
        matches!(self, Op::StoreFast(bound) | Op::DeleteFast(bound) if bound == slot)
    }
}

/// What lies below a function or its code, deepest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "one per flag of CPython's")]
pub struct Parts {
    /// A tuple of positional defaults.
    pub defaults: bool,
    /// A dict of keyword defaults.
    pub kwdefaults: bool,
    /// Annotations.
    pub annotations: bool,
    /// A tuple of cells.
    pub closure: bool,
}

impl Parts {
    /// Nothing.
    pub const NONE: Parts = Parts::of(0);

    /// The parts that CPython has these flags for.
    pub const fn of(flags: u32) -> Parts {
        Parts {
            defaults: flags & 1 != 0,
            kwdefaults: flags & 2 != 0,
            annotations: flags & 4 != 0,
            closure: flags & 8 != 0,
        }
    }

    /// How many.
    pub fn count(self) -> u32 {
        [self.defaults, self.kwdefaults, self.annotations, self.closure].map(u32::from).iter().sum()
    }
}

/// Unary operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are Python's")]
pub enum Unary {
    Positive,
    Negative,
    Not,
    Invert,
}

/// Binary operators, in the order of CPython's `NB_*` numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are Python's")]
pub enum Binary {
    Add,
    And,
    FloorDivide,
    Lshift,
    MatrixMultiply,
    Multiply,
    Remainder,
    Or,
    Power,
    Rshift,
    Subtract,
    TrueDivide,
    Xor,
}

impl Binary {
    /// All operators, by their `NB_*` number.
    pub const ALL: [Binary; 13] = [
        Binary::Add,
        Binary::And,
        Binary::FloorDivide,
        Binary::Lshift,
        Binary::MatrixMultiply,
        Binary::Multiply,
        Binary::Remainder,
        Binary::Or,
        Binary::Power,
        Binary::Rshift,
        Binary::Subtract,
        Binary::TrueDivide,
        Binary::Xor,
    ];

    /// The operator's sign.
    pub fn symbol(self) -> &'static str {
        ["+", "&", "//", "<<", "@", "*", "%", "|", "**", ">>", "-", "/", "^"][self as usize]
    }

    /// The method's name without underscores (`add`, `truediv`), as in `__add__`, `__radd__`, `__iadd__`.
    pub fn method(self) -> &'static str {
        ["add", "and", "floordiv", "lshift", "matmul", "mul", "mod", "or", "pow", "rshift", "sub", "truediv", "xor"]
            [self as usize]
    }
}

/// Rich comparisons, in the order of CPython's `Py_LT..Py_GE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are Python's")]
pub enum Compare {
    Lt,
    Le,
    Eq,
    Ne,
    Gt,
    Ge,
}

impl Compare {
    /// All comparisons, by number.
    pub const ALL: [Compare; 6] = [Compare::Lt, Compare::Le, Compare::Eq, Compare::Ne, Compare::Gt, Compare::Ge];

    /// The operator's sign.
    pub fn symbol(self) -> &'static str {
        ["<", "<=", "==", "!=", ">", ">="][self as usize]
    }

    /// The method's name without underscores (`lt`).
    pub fn method(self) -> &'static str {
        ["lt", "le", "eq", "ne", "gt", "ge"][self as usize]
    }

    /// The comparison with its sides exchanged.
    #[must_use]
    pub fn reflected(self) -> Compare {
        match self {
            Compare::Lt => Compare::Gt,
            Compare::Le => Compare::Ge,
            Compare::Gt => Compare::Lt,
            Compare::Ge => Compare::Le,
            same => same,
        }
    }
}

/// What a conditional jump tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Condition {
    /// Truthy.
    True,
    /// Falsy.
    False,
    /// Is `None`.
    None,
    /// Is not `None`.
    NotNone,
}
