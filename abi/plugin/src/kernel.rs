//! Kernel IR: what a back end compiles. One loop kernel is a nest of parallel outer dimensions around a row;
//! stages run in order for every outer point. Nothing here knows of graphs, torch or any one device.

use serde::{Deserialize, Serialize};

/// Element types, numbered as torch's `c10::ScalarType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are the element types themselves")]
pub enum DType {
    U8 = 0,
    I8 = 1,
    I16 = 2,
    I32 = 3,
    I64 = 4,
    F16 = 5,
    F32 = 6,
    F64 = 7,
    C32 = 8,
    C64 = 9,
    C128 = 10,
    Bool = 11,
    Bf16 = 15,
}

impl DType {
    /// All element types flambeau knows, in torch's numbering order.
    pub const ALL: [DType; 13] = [
        DType::U8,
        DType::I8,
        DType::I16,
        DType::I32,
        DType::I64,
        DType::F16,
        DType::F32,
        DType::F64,
        DType::C32,
        DType::C64,
        DType::C128,
        DType::Bool,
        DType::Bf16,
    ];

    /// The type with torch's `ScalarType` number `code`.
    #[inline]
    pub fn from_torch(code: u8) -> Option<DType> {
        Self::ALL.into_iter().find(|d| *d as u8 == code)
    }

    /// Size of one element in bytes.
    #[inline]
    pub fn size(self) -> usize {
        match self {
            DType::U8 | DType::I8 | DType::Bool => 1,
            DType::I16 | DType::F16 | DType::Bf16 => 2,
            DType::I32 | DType::F32 | DType::C32 => 4,
            DType::I64 | DType::F64 | DType::C64 => 8,
            DType::C128 => 16,
        }
    }

    /// True for f16, bf16, f32 and f64.
    pub fn is_float(self) -> bool {
        matches!(self, DType::F16 | DType::Bf16 | DType::F32 | DType::F64)
    }

    /// True for the complex types.
    pub fn is_complex(self) -> bool {
        matches!(self, DType::C32 | DType::C64 | DType::C128)
    }

    /// True for integer types; `Bool` is not one.
    pub fn is_integer(self) -> bool {
        matches!(self, DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64)
    }

    /// Torch's name without the `torch.` prefix, e.g. `float32`.
    pub fn torch_name(self) -> &'static str {
        match self {
            DType::U8 => "uint8",
            DType::I8 => "int8",
            DType::I16 => "int16",
            DType::I32 => "int32",
            DType::I64 => "int64",
            DType::F16 => "float16",
            DType::F32 => "float32",
            DType::F64 => "float64",
            DType::C32 => "complex32",
            DType::C64 => "complex64",
            DType::C128 => "complex128",
            DType::Bool => "bool",
            DType::Bf16 => "bfloat16",
        }
    }

    /// The short name used in IR text, e.g. `f32`.
    pub fn short(self) -> &'static str {
        match self {
            DType::U8 => "u8",
            DType::I8 => "i8",
            DType::I16 => "i16",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::F16 => "f16",
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::C32 => "c32",
            DType::C64 => "c64",
            DType::C128 => "c128",
            DType::Bool => "b8",
            DType::Bf16 => "bf16",
        }
    }
}

/// A size or stride that is fixed, or read at launch from the kernel's `i64` scalar arguments. Unit: elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Extent {
    /// Known when the kernel is compiled.
    Const(i64),
    /// The scalar argument with this index.
    Scalar(u32),
}

/// What a kernel does with a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Role {
    /// Only read.
    In,
    /// Only written.
    Out,
    /// Read and written; an element that is written is read by the same outer point and row position alone, and before.
    InOut,
}

/// One buffer argument. Distinct parameters do not overlap in memory, except two `In`s.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Param {
    /// Element type in memory.
    pub dtype: DType,
    /// How the kernel uses it.
    pub role: Role,
}

/// One loop kernel.
///
/// `dims[..outer]` are iterated in parallel (any order); `dims[outer..]` are the *row*: each `Row` stage loops over all
/// of them. With no reductions and `outer == 0` the row itself may be split between threads.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Kernel {
    /// A readable name for logs and symbol tables, e.g. `fused_add_relu`.
    pub name: String,
    /// Buffer arguments, in launch order.
    pub params: Vec<Param>,
    /// How many `i64` scalar arguments follow the buffers.
    pub scalars: u32,
    /// Extents of the iteration space, outermost first.
    pub dims: Vec<Extent>,
    /// How many leading `dims` are outer.
    pub outer: usize,
    /// Stages in execution order.
    pub stages: Vec<Stage>,
}

/// Where a stage runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Scope {
    /// Once per outer point. Its values stay visible in later stages.
    Outer,
    /// Once per element of the row. Its values are visible in this stage only.
    Row,
}

/// A straight-line body run once per point of its scope, then its stores and reductions.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Stage {
    /// Where it runs.
    pub scope: Scope,
    /// Instructions; each defines the value with its `id`.
    pub insts: Vec<Inst>,
    /// Writes, after the instructions.
    pub stores: Vec<Store>,
    /// Reductions over the row (only with [`Scope::Row`]); each defines an accumulator value visible in later stages.
    pub reduces: Vec<Reduce>,
}

/// Names one value; unique within a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ValueId(pub u32);

/// One instruction: `id: dtype = op`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Inst {
    /// The value it defines.
    pub id: ValueId,
    /// Type of that value. Floats compute in this type: a bf16 chain is cast to f32 explicitly.
    pub dtype: DType,
    /// What it computes.
    pub op: Op,
}

/// `address = base + offset + sum(strides[d] * index[d])`, in elements. One stride per dimension of the kernel; strides
/// of row dimensions are zero in an `Outer` stage.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Access {
    /// Index into [`Kernel::params`].
    pub param: u32,
    /// Elements from the start of the buffer.
    pub offset: Extent,
    /// One stride per kernel dimension.
    pub strides: Vec<Extent>,
}

/// What an instruction computes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Op {
    /// Reads memory.
    Load(Access),
    /// Reads memory where `cond` (a `Bool`) is true; elsewhere the value is `other` and the address is never touched.
    LoadIf {
        /// Whether to read.
        cond: ValueId,
        /// Where; may lie outside of the buffer where `cond` is false.
        access: Access,
        /// The value where `cond` is false.
        other: ValueId,
    },
    /// A constant: bits of the value in its dtype, zero-extended (floats by `to_bits`, f16/bf16 as f32 bits).
    Const(u64),
    /// A scalar argument: integers by value, floats by the bits of an `f64` (converted to the dtype).
    Scalar(u32),
    /// The index along one kernel dimension, as `I64`.
    Index(u32),
    /// One operand.
    Unary(Unary, ValueId),
    /// Two operands of one dtype. Comparisons give `Bool`.
    Binary(Binary, ValueId, ValueId),
    /// `cond ? a : b`.
    Select(ValueId, ValueId, ValueId),
    /// Conversion to the instruction's dtype as torch's `.to(dtype)`: float to int truncates, to bool is `!= 0`.
    Cast(ValueId),
}

/// One-operand operations, with torch's semantics for NaN, infinities and signed zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are torch's")]
pub enum Unary {
    Neg,
    Abs,
    Sign,
    Not,
    BitNot,
    Exp,
    Exp2,
    Expm1,
    Log,
    Log2,
    Log10,
    Log1p,
    Sqrt,
    Rsqrt,
    Reciprocal,
    Sin,
    Cos,
    Tan,
    Asin,
    Acos,
    Atan,
    Sinh,
    Cosh,
    Tanh,
    Asinh,
    Acosh,
    Atanh,
    Sigmoid,
    Erf,
    Erfc,
    Floor,
    Ceil,
    Round,
    Trunc,
    IsNan,
    IsInf,
}

impl Unary {
    /// All of them, in order.
    pub const ALL: [Unary; 36] = [
        Unary::Neg,
        Unary::Abs,
        Unary::Sign,
        Unary::Not,
        Unary::BitNot,
        Unary::Exp,
        Unary::Exp2,
        Unary::Expm1,
        Unary::Log,
        Unary::Log2,
        Unary::Log10,
        Unary::Log1p,
        Unary::Sqrt,
        Unary::Rsqrt,
        Unary::Reciprocal,
        Unary::Sin,
        Unary::Cos,
        Unary::Tan,
        Unary::Asin,
        Unary::Acos,
        Unary::Atan,
        Unary::Sinh,
        Unary::Cosh,
        Unary::Tanh,
        Unary::Asinh,
        Unary::Acosh,
        Unary::Atanh,
        Unary::Sigmoid,
        Unary::Erf,
        Unary::Erfc,
        Unary::Floor,
        Unary::Ceil,
        Unary::Round,
        Unary::Trunc,
        Unary::IsNan,
        Unary::IsInf,
    ];

    /// Whether it gives a `Bool`, whatever it looks at.
    pub fn is_test(self) -> bool {
        matches!(self, Unary::IsNan | Unary::IsInf)
    }
}

/// Two-operand operations, with torch's semantics. `Max`/`Min` propagate NaN; `FloorDiv` rounds down, `TruncDiv` to
/// zero, `Rem` has the divisor's sign, `Fmod` the dividend's. Integer overflow wraps. Integer division by zero is not
/// lowered to a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are torch's")]
pub enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    FloorDiv,
    TruncDiv,
    Rem,
    Fmod,
    Pow,
    Atan2,
    Max,
    Min,
    And,
    Or,
    Xor,
    Shl,
    Shr,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

impl Binary {
    /// All of them, in order.
    pub const ALL: [Binary; 23] = [
        Binary::Add,
        Binary::Sub,
        Binary::Mul,
        Binary::Div,
        Binary::FloorDiv,
        Binary::TruncDiv,
        Binary::Rem,
        Binary::Fmod,
        Binary::Pow,
        Binary::Atan2,
        Binary::Max,
        Binary::Min,
        Binary::And,
        Binary::Or,
        Binary::Xor,
        Binary::Shl,
        Binary::Shr,
        Binary::Eq,
        Binary::Ne,
        Binary::Lt,
        Binary::Le,
        Binary::Gt,
        Binary::Ge,
    ];

    /// Whether it gives a `Bool`, whatever it compares.
    pub fn is_comparison(self) -> bool {
        matches!(self, Binary::Eq | Binary::Ne | Binary::Lt | Binary::Le | Binary::Gt | Binary::Ge)
    }
}

/// One write.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Store {
    /// Where; the value has the parameter's dtype.
    pub access: Access,
    /// What.
    pub value: ValueId,
}

/// Reductions over a row, in the accumulator's dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are torch's")]
pub enum ReduceOp {
    Sum,
    Prod,
    Max,
    Min,
    Any,
    All,
}

impl ReduceOp {
    /// Combines one element into the accumulator.
    pub fn step(self) -> Binary {
        match self {
            ReduceOp::Sum => Binary::Add,
            ReduceOp::Prod => Binary::Mul,
            ReduceOp::Max => Binary::Max,
            ReduceOp::Min => Binary::Min,
            ReduceOp::Any => Binary::Or,
            ReduceOp::All => Binary::And,
        }
    }
}

/// One reduction of a row value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Reduce {
    /// The accumulator value it defines.
    pub id: ValueId,
    /// Its dtype, equal to the value's.
    pub dtype: DType,
    /// How.
    pub op: ReduceOp,
    /// Of what.
    pub value: ValueId,
}
