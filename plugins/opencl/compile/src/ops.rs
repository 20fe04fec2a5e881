//! What one operation of the kernel IR is in OpenCL C.
//!
//! Functions of f32 that OpenCL lets be off by more than four units in the last place are computed in f64.

use flambeau_plugin::kernel::{Binary, DType, ReduceOp, Unary};
use flambeau_plugin::reference;

/// The type that holds values.
pub fn ctype(dtype: DType) -> &'static str {
    match dtype {
        DType::U8 | DType::Bool => "uchar",
        DType::I8 => "char",
        DType::I16 => "short",
        DType::I32 => "int",
        DType::I64 => "long",
        DType::F16 | DType::Bf16 => "ushort",
        DType::F32 => "float",
        DType::F64 => "double",
        DType::C32 | DType::C64 | DType::C128 => unreachable!("no kernel has complex values"),
    }
}

/// A value of which the bits in memory are known.
pub fn literal(dtype: DType, bits: u64) -> String {
    match dtype {
        DType::F32 => format!("as_float({bits:#x}u)"),
        DType::F64 => format!("as_double({bits:#x}ul)"),
        DType::I64 => format!("as_long({bits:#x}ul)"),
        DType::I32 => format!("as_int({bits:#x}u)"),
        _ => format!("({}){bits:#x}", ctype(dtype)),
    }
}

/// A scalar argument as a value.
pub fn scalar(dtype: DType, argument: &str) -> String {
    if dtype.is_float() {
        cast(DType::F64, dtype, &format!("as_double({argument})"))
    } else {
        cast(DType::I64, dtype, argument)
    }
}

/// Of an operand of this type.
pub fn unary(op: Unary, dtype: DType, a: &str) -> String {
    let c = ctype(dtype);
    let function = match op {
        Unary::Not => return format!("(uchar)({a} ^ 1)"),
        Unary::BitNot if dtype == DType::Bool => return format!("(uchar)({a} ^ 1)"),
        Unary::BitNot => return format!("({c})~{a}"),
        Unary::Sign => return format!("({c})(({a} > 0) - ({a} < 0))"),
        Unary::Neg if dtype.is_float() => return format!("-{a}"),
        Unary::Neg => return format!("sub_{c}(0, {a})"),
        Unary::Abs if !dtype.is_float() => return format!("abs_{c}({a})"),
        Unary::Reciprocal => return format!("div_{c}(1, {a})"),
        Unary::Sqrt => return format!("sqrt_{c}({a})"),
        Unary::Rsqrt => return format!("div_{c}(1, sqrt_{c}({a}))"),
        Unary::Sigmoid => return format!("div_{c}(1, 1 + exp(-{a}))"),
        Unary::IsNan => return format!("(uchar)isnan({a})"),
        Unary::IsInf => return format!("(uchar)isinf({a})"),
        Unary::Abs => "fabs".to_owned(),
        Unary::Round => "rint".to_owned(),
        Unary::Atan | Unary::Atanh | Unary::Erf | Unary::Erfc | Unary::Tan | Unary::Tanh if dtype == DType::F32 => {
            return format!("(float){}((double){a})", lower(op));
        }
        _ => lower(op),
    };
    format!("{function}({a})")
}

/// Of operands of this type.
pub fn binary(op: Binary, dtype: DType, a: &str, b: &str) -> String {
    let c = ctype(dtype);
    let float = dtype.is_float();
    let operator = |sign: &str| format!("({c})({a} {sign} {b})");
    let function = |name: &str| format!("{name}_{c}({a}, {b})");
    let comparison = |sign: &str| format!("(uchar)({a} {sign} {b})");
    let wide = |name: &str| format!("({c}){name}((double){a}, (double){b})");
    match op {
        Binary::Add if float => operator("+"),
        Binary::Sub if float => operator("-"),
        Binary::Mul if float => operator("*"),
        Binary::Add => function("add"),
        Binary::Sub => function("sub"),
        Binary::Mul => function("mul"),
        Binary::Div => function("div"),
        Binary::TruncDiv if float => format!("trunc(div_{c}({a}, {b}))"),
        Binary::TruncDiv => function("trunc_div"),
        Binary::FloorDiv => function("floor_div"),
        Binary::Rem => function("rem"),
        Binary::Fmod if float => format!("fmod({a}, {b})"),
        Binary::Fmod => function("fmod"),
        Binary::Pow => wide("pow"),
        Binary::Atan2 => wide("atan2"),
        Binary::Max => function("max"),
        Binary::Min => function("min"),
        Binary::And => operator("&"),
        Binary::Or => operator("|"),
        Binary::Xor => operator("^"),
        Binary::Shl => function("shl"),
        Binary::Shr => function("shr"),
        Binary::Eq => comparison("=="),
        Binary::Ne => comparison("!="),
        Binary::Lt => comparison("<"),
        Binary::Le => comparison("<="),
        Binary::Gt => comparison(">"),
        Binary::Ge => comparison(">="),
    }
}

/// Conversion as torch's `.to`.
pub fn cast(from: DType, to: DType, a: &str) -> String {
    let c = ctype(to);
    match (from, to) {
        _ if from == to => a.to_owned(),
        (DType::F16, _) => cast(DType::F32, to, &format!("f16_to_float({a})")),
        (DType::Bf16, _) => cast(DType::F32, to, &format!("bf16_to_float({a})")),
        (_, DType::F16) => format!("float_to_f16((float){a})"),
        (_, DType::Bf16) => format!("float_to_bf16((float){a})"),
        (_, DType::Bool) => format!("(uchar)({a} != 0)"),
        (DType::F32 | DType::F64, DType::I64) => format!("to_long({a})"),
        (DType::F32 | DType::F64, _) if to.is_integer() => format!("({c})to_int({a})"),
        _ => format!("({c}){a}"),
    }
}

/// The type in which a reduction is kept, and its value over no elements.
pub fn accumulator(op: ReduceOp, dtype: DType) -> (DType, String) {
    let kept = match op {
        ReduceOp::Sum | ReduceOp::Prod if dtype.is_float() => DType::F64,
        _ => dtype,
    };
    (kept, literal(kept, reference::Accumulator::new(op, kept).value()))
}

fn lower(op: Unary) -> String {
    format!("{op:?}").to_lowercase()
}
