//! What one operation of the kernel IR is in C, and where the dialects differ.

use crate::text::name;
use flambeau_plugin::kernel::{Access, Binary, DType, Inst, Op, ReduceOp, Unary, ValueId};
use flambeau_plugin::reference;
use std::collections::BTreeMap;

/// A language with C's operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Functions are overloaded. Those of f32 that OpenCL lets be off by more than four units in the last place are computed in
    /// f64, and so are sums and products.
    OpenCl,
    /// Functions of f32 end in `f`, and all that are used here are within four units. Sums and products are kept in their own
    /// type, as torch does on these devices.
    Cuda,
}

/// What an instruction computes; `types` has its operands, and `read` is a value in memory.
pub fn value(
    dialect: Dialect,
    inst: &Inst,
    types: &BTreeMap<ValueId, DType>,
    read: impl FnOnce(&Access) -> String,
) -> String {
    match &inst.op {
        Op::Load(access) => read(access),
        Op::LoadIf { cond, access, other } => format!("{} ? {} : {}", name(*cond), read(access), name(*other)),
        Op::Const(bits) => literal(inst.dtype, reference::constant(inst.dtype, *bits)),
        Op::Scalar(at) => scalar(inst.dtype, &format!("s{at}")),
        Op::Index(dim) => format!("i{dim}"),
        Op::Unary(op, a) => dialect.unary(*op, types[a], &name(*a)),
        Op::Binary(op, a, b) => dialect.binary(*op, types[a], &name(*a), &name(*b)),
        Op::Select(cond, a, b) => format!("{} ? {} : {}", name(*cond), name(*a), name(*b)),
        Op::Cast(a) => cast(types[a], inst.dtype, &name(*a)),
    }
}

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
fn literal(dtype: DType, bits: u64) -> String {
    match dtype {
        DType::F32 => format!("as_float({bits:#x}u)"),
        DType::F64 => format!("as_double({bits:#x}ul)"),
        DType::I64 => format!("as_long({bits:#x}ul)"),
        DType::I32 => format!("as_int({bits:#x}u)"),
        _ => format!("({}){bits:#x}", ctype(dtype)),
    }
}

/// A scalar argument as a value.
fn scalar(dtype: DType, argument: &str) -> String {
    if dtype.is_float() {
        cast(DType::F64, dtype, &format!("as_double({argument})"))
    } else {
        cast(DType::I64, dtype, argument)
    }
}

impl Dialect {
    /// Of an operand of this type.
    fn unary(self, op: Unary, dtype: DType, a: &str) -> String {
        let c = ctype(dtype);
        let lower = format!("{op:?}").to_lowercase();
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
            Unary::Sigmoid => return format!("div_{c}(1, 1 + {}(-{a}))", self.function("exp", dtype)),
            Unary::IsNan => return format!("(uchar)isnan({a})"),
            Unary::IsInf => return format!("(uchar)isinf({a})"),
            Unary::Abs => "fabs",
            Unary::Round => "rint",
            Unary::Atan | Unary::Atanh | Unary::Erf | Unary::Erfc | Unary::Tan | Unary::Tanh
                if self == Dialect::OpenCl && dtype == DType::F32 =>
            {
                return format!("(float){lower}((double){a})");
            }
            _ => &lower,
        };
        format!("{}({a})", self.function(function, dtype))
    }

    /// Of operands of this type.
    fn binary(self, op: Binary, dtype: DType, a: &str, b: &str) -> String {
        let c = ctype(dtype);
        let float = dtype.is_float();
        let operator = |sign: &str| format!("({c})({a} {sign} {b})");
        let function = |name: &str| format!("{name}_{c}({a}, {b})");
        let comparison = |sign: &str| format!("(uchar)({a} {sign} {b})");
        let wide = |name: &str| match self {
            Dialect::OpenCl => format!("({c}){name}((double){a}, (double){b})"),
            Dialect::Cuda => format!("{}({a}, {b})", self.function(name, dtype)),
        };
        match op {
            Binary::Add if float => operator("+"),
            Binary::Sub if float => operator("-"),
            Binary::Mul if float => operator("*"),
            Binary::Add => function("add"),
            Binary::Sub => function("sub"),
            Binary::Mul => function("mul"),
            Binary::Div => function("div"),
            Binary::TruncDiv if float => format!("{}(div_{c}({a}, {b}))", self.function("trunc", dtype)),
            Binary::TruncDiv => function("trunc_div"),
            Binary::FloorDiv => function("floor_div"),
            Binary::Rem => function("rem"),
            Binary::Fmod if float => format!("{}({a}, {b})", self.function("fmod", dtype)),
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

    /// The type in which a reduction is kept, and its value over no elements.
    pub fn accumulator(self, op: ReduceOp, dtype: DType) -> (DType, String) {
        let kept = match op {
            ReduceOp::Sum | ReduceOp::Prod if dtype.is_float() && self == Dialect::OpenCl => DType::F64,
            _ => dtype,
        };
        (kept, literal(kept, reference::Accumulator::new(op, kept).value()))
    }

    /// One more element of it: `value` is the element's, `kept` the variable it is kept in.
    pub fn step(self, op: ReduceOp, dtype: DType, value: &str, kept: &str) -> String {
        let (wide, _) = self.accumulator(op, dtype);
        self.binary(op.step(), wide, &cast(dtype, wide, value), kept)
    }

    /// The name of a mathematical function for this type.
    fn function(self, name: &str, dtype: DType) -> String {
        let suffix = if self == Dialect::Cuda && dtype == DType::F32 { "f" } else { "" };
        format!("{name}{suffix}")
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
