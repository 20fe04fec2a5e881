//! What the CPU back end compiles: one table that both halves describe. An operation is here when its worst error is
//! within about two units in the last place (all of torch's exact ones are exact).

use flambeau_plugin::Capabilities;
use flambeau_plugin::kernel::{Binary, DType, ReduceOp, Unary};

const BUFFERS: [DType; 10] = [
    DType::U8,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::F16,
    DType::F32,
    DType::F64,
    DType::Bool,
    DType::Bf16,
];
const INTS: [DType; 5] = [DType::U8, DType::I8, DType::I16, DType::I32, DType::I64];
const FLOATS: [DType; 2] = [DType::F32, DType::F64];
const F32: [DType; 1] = [DType::F32];
const BOOL: [DType; 1] = [DType::Bool];

/// The table.
pub fn capabilities() -> Capabilities {
    let mut table = Capabilities { buffers: BUFFERS.into(), ..Capabilities::default() };
    unary(&mut table);
    binary(&mut table);
    for from in BUFFERS {
        table.casts.extend(BUFFERS.map(|to| (from, to)));
    }
    for dtype in INTS.into_iter().chain(FLOATS) {
        table.reduces.extend([ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min].map(|op| (op, dtype)));
    }
    table.reduces.extend([ReduceOp::Any, ReduceOp::All].map(|op| (op, DType::Bool)));
    table
}

fn unary(table: &mut Capabilities) {
    use Unary::{
        Abs, Acos, Acosh, Asin, Asinh, Atan, Atanh, BitNot, Ceil, Cosh, Exp, Exp2, Expm1, Floor, IsInf, IsNan, Log,
        Log1p, Log2, Log10, Neg, Not, Reciprocal, Round, Rsqrt, Sigmoid, Sign, Sinh, Sqrt, Tanh, Trunc,
    };
    let mut add = |ops: &[Unary], dtypes: &[DType]| {
        table.unary.extend(ops.iter().flat_map(|op| dtypes.iter().map(|dtype| (*op, *dtype))));
    };
    add(&[Neg, Abs, Sign, Sqrt, Rsqrt, Reciprocal, Floor, Ceil, Round, Trunc, IsNan, IsInf], &FLOATS);
    add(&[Exp, Exp2, Expm1, Log, Log2, Log10, Log1p, Tanh, Sigmoid], &FLOATS);
    add(&[Unary::Erf, Unary::Sin, Unary::Cos, Unary::Tan], &F32);
    add(&[Asin, Acos, Atan, Sinh, Cosh, Asinh, Acosh, Atanh], &F32);
    add(&[Neg, Abs, Sign, BitNot], &INTS);
    add(&[Not, BitNot], &BOOL);
}

fn binary(table: &mut Capabilities) {
    use Binary::{
        Add, And, Div, Eq, FloorDiv, Fmod, Ge, Gt, Le, Lt, Max, Min, Mul, Ne, Or, Rem, Shl, Shr, Sub, TruncDiv, Xor,
    };
    let mut add = |ops: &[Binary], dtypes: &[DType]| {
        table.binary.extend(ops.iter().flat_map(|op| dtypes.iter().map(|dtype| (*op, *dtype))));
    };
    add(&[Add, Sub, Mul, Div, TruncDiv, Max, Min], &FLOATS);
    add(&[Binary::Pow], &FLOATS);
    add(&[Binary::Atan2, Fmod, Rem], &F32);
    add(&[Add, Sub, Mul, FloorDiv, TruncDiv, Rem, Fmod, Max, Min, And, Or, Xor, Shl, Shr], &INTS);
    add(&[And, Or, Xor, Max, Min], &BOOL);
    for dtypes in [&FLOATS[..], &INTS, &BOOL] {
        add(&[Eq, Ne, Lt, Le, Gt, Ge], dtypes);
    }
}
