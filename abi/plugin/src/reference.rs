//! What the kernel IR's operations mean, one scalar at a time: for tests, and for back ends that interpret. Right, not
//! fast. A value is its bits in the low end of a `u64`, in its dtype's form in memory.
//!
//! f16 and bf16 are types of memory: they are loaded, stored, chosen between and converted, and all else happens in
//! another type. Complex types are in no kernel, as constants of theirs have no form.

use crate::capabilities::Capabilities;
use crate::kernel::{Binary, DType, ReduceOp, Unary};
use std::cmp::Ordering;

/// Types of buffers and values.
pub const DTYPES: [DType; 10] = [
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

/// All there is in kernel IR 1: what a back end's own table is a part of.
pub fn capabilities() -> Capabilities {
    use Binary::{Add, And, Atan2, Div, FloorDiv, Fmod, Max, Min, Mul, Or, Pow, Rem, Shl, Shr, Sub, TruncDiv, Xor};
    use Unary::{Abs, BitNot, Neg, Not, Sign};
    fn pairs<O: Copy>(ops: &[O], dtypes: &[DType]) -> impl Iterator<Item = (O, DType)> {
        ops.iter().flat_map(move |op| dtypes.iter().map(move |dtype| (*op, *dtype)))
    }
    let floats: Vec<Unary> = Unary::ALL.into_iter().filter(|op| !matches!(op, Not | BitNot)).collect();
    let mut table = Capabilities { buffers: DTYPES.into(), ..Capabilities::default() };
    table.unary.extend(pairs(&floats, &FLOATS));
    table.unary.extend(pairs(&[Neg, Abs, Sign, BitNot], &INTS));
    table.unary.extend(pairs(&[Not, BitNot], &[DType::Bool]));
    table.binary.extend(pairs(&[Add, Sub, Mul, Div, FloorDiv, TruncDiv, Rem, Fmod, Pow, Atan2, Max, Min], &FLOATS));
    let ints = [Add, Sub, Mul, FloorDiv, TruncDiv, Rem, Fmod, Max, Min, And, Or, Xor, Shl, Shr];
    table.binary.extend(pairs(&ints, &INTS));
    table.binary.extend(pairs(&[And, Or, Xor, Max, Min], &[DType::Bool]));
    let comparisons: Vec<Binary> = Binary::ALL.into_iter().filter(|op| op.is_comparison()).collect();
    for dtypes in [&FLOATS[..], &INTS, &[DType::Bool]] {
        table.binary.extend(pairs(&comparisons, dtypes));
    }
    table.casts.extend(DTYPES.into_iter().flat_map(|from| DTYPES.map(|to| (from, to))));
    for dtypes in [&FLOATS[..], &INTS] {
        table.reduces.extend(pairs(&[ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min], dtypes));
    }
    table.reduces.extend(pairs(&[ReduceOp::Any, ReduceOp::All], &[DType::Bool]));
    table
}

/// The value of [`crate::kernel::Op::Const`].
pub fn constant(dtype: DType, bits: u64) -> u64 {
    match dtype {
        DType::F16 => u64::from(f16_bits(f32::from_bits(bits as u32))),
        DType::Bf16 => u64::from(bf16_bits(f32::from_bits(bits as u32))),
        DType::Bool => bits & 1,
        _ => from_i64(dtype, bits as i64),
    }
}

/// The value of [`crate::kernel::Op::Scalar`].
pub fn scalar(dtype: DType, argument: i64) -> u64 {
    if dtype.is_float() { cast(DType::F64, dtype, argument as u64) } else { cast(DType::I64, dtype, argument as u64) }
}

/// The value of [`crate::kernel::Op::Unary`] of an operand of type `dtype`.
pub fn unary(op: Unary, dtype: DType, a: u64) -> u64 {
    if dtype == DType::Bool {
        return a ^ 1;
    }
    if dtype.is_float() {
        let x = to_f64(dtype, a);
        return match op {
            Unary::IsNan => u64::from(x.is_nan()),
            Unary::IsInf => u64::from(x.is_infinite()),
            // As torch: exp(-x) overflows in the type before the quotient would be subnormal.
            Unary::Sigmoid if dtype == DType::F32 && x < -88.73 => 0,
            _ => from_f64(dtype, float_unary(op, x)),
        };
    }
    let x = to_i64(dtype, a);
    let y = match op {
        Unary::Neg => x.wrapping_neg(),
        Unary::Abs => x.wrapping_abs(),
        Unary::Sign => x.signum(),
        Unary::BitNot => !x,
        _ => unreachable!("{op:?} of {}", dtype.short()),
    };
    from_i64(dtype, y)
}

fn float_unary(op: Unary, x: f64) -> f64 {
    match op {
        Unary::Neg => -x,
        Unary::Abs => x.abs(),
        Unary::Sign => f64::from(i8::from(x > 0.0) - i8::from(x < 0.0)),
        Unary::Exp => x.exp(),
        Unary::Exp2 => x.exp2(),
        Unary::Expm1 => x.exp_m1(),
        Unary::Log => x.ln(),
        Unary::Log2 => x.log2(),
        Unary::Log10 => x.log10(),
        Unary::Log1p => x.ln_1p(),
        Unary::Sqrt => x.sqrt(),
        Unary::Rsqrt => 1.0 / x.sqrt(),
        Unary::Reciprocal => 1.0 / x,
        Unary::Sin => x.sin(),
        Unary::Cos => x.cos(),
        Unary::Tan => x.tan(),
        Unary::Asin => x.asin(),
        Unary::Acos => x.acos(),
        Unary::Atan => x.atan(),
        Unary::Sinh => x.sinh(),
        Unary::Cosh => x.cosh(),
        Unary::Tanh => x.tanh(),
        // Those of `std` lose digits near zero.
        Unary::Asinh => libm::asinh(x),
        Unary::Acosh if x < 1.0 => f64::NAN,
        Unary::Acosh => libm::acosh(x),
        Unary::Atanh => libm::atanh(x),
        Unary::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Unary::Erf => libm::erf(x),
        Unary::Erfc => libm::erfc(x),
        Unary::Floor => x.floor(),
        Unary::Ceil => x.ceil(),
        Unary::Round => x.round_ties_even(),
        Unary::Trunc => x.trunc(),
        Unary::Not | Unary::BitNot | Unary::IsNan | Unary::IsInf => unreachable!("{op:?} of a float"),
    }
}

/// The value of [`crate::kernel::Op::Binary`] of operands of type `dtype`.
pub fn binary(op: Binary, dtype: DType, a: u64, b: u64) -> u64 {
    let order = if dtype.is_float() {
        to_f64(dtype, a).partial_cmp(&to_f64(dtype, b))
    } else {
        Some(to_i64(dtype, a).cmp(&to_i64(dtype, b)))
    };
    match op {
        Binary::Eq => u64::from(order == Some(Ordering::Equal)),
        Binary::Ne => u64::from(order != Some(Ordering::Equal)),
        Binary::Lt => u64::from(order == Some(Ordering::Less)),
        Binary::Le => u64::from(matches!(order, Some(Ordering::Less | Ordering::Equal))),
        Binary::Gt => u64::from(order == Some(Ordering::Greater)),
        Binary::Ge => u64::from(matches!(order, Some(Ordering::Greater | Ordering::Equal))),
        _ => match dtype {
            DType::F64 => double(op, f64::from_bits(a), f64::from_bits(b)).to_bits(),
            DType::F32 => u64::from(single(op, f32::from_bits(a as u32), f32::from_bits(b as u32)).to_bits()),
            _ => from_i64(dtype, int_binary(op, dtype, to_i64(dtype, a), to_i64(dtype, b))),
        },
    }
}

/// Each step rounds in the type, as torch's do: the divisions are c10's `div_floor_floating` and `remainder`.
macro_rules! float_binary {
    ($name:ident, $float:ty) => {
        fn $name(op: Binary, a: $float, b: $float) -> $float {
            let wrong_side = |rest: $float| rest != 0.0 && (b < 0.0) != (rest < 0.0);
            match op {
                Binary::Add => a + b,
                Binary::Sub => a - b,
                Binary::Mul => a * b,
                Binary::Div => a / b,
                Binary::TruncDiv => (a / b).trunc(),
                Binary::FloorDiv if b == 0.0 => a / b,
                Binary::FloorDiv => {
                    let rest = a % b;
                    let quotient = (a - rest) / b - if wrong_side(rest) { 1.0 } else { 0.0 };
                    let floor = quotient.floor();
                    match quotient {
                        0.0 => <$float>::copysign(0.0, a / b),
                        _ if quotient - floor > 0.5 => floor + 1.0,
                        _ => floor,
                    }
                }
                Binary::Rem => {
                    let rest = a % b;
                    if wrong_side(rest) { rest + b } else { rest }
                }
                Binary::Fmod => a % b,
                // In f64 also for f32, whose result it rounds right.
                Binary::Pow => f64::from(a).powf(f64::from(b)) as $float,
                Binary::Atan2 => f64::from(a).atan2(f64::from(b)) as $float,
                Binary::Max | Binary::Min if a.is_nan() || b.is_nan() => <$float>::NAN,
                Binary::Max => {
                    if b > a {
                        b
                    } else {
                        a
                    }
                }
                Binary::Min => {
                    if b < a {
                        b
                    } else {
                        a
                    }
                }
                _ => unreachable!("{op:?} of floats"),
            }
        }
    };
}

float_binary!(double, f64);
float_binary!(single, f32);

fn int_binary(op: Binary, dtype: DType, x: i64, y: i64) -> i64 {
    let bits = dtype.size() as i64 * 8;
    let fits = (0..bits).contains(&y);
    let floor_div = || {
        let quotient = x.wrapping_div(y);
        if x.wrapping_rem(y) != 0 && (x < 0) != (y < 0) { quotient - 1 } else { quotient }
    };
    match op {
        Binary::Add => x.wrapping_add(y),
        Binary::Sub => x.wrapping_sub(y),
        Binary::Mul => x.wrapping_mul(y),
        // Not lowered to a kernel; any value will do.
        Binary::FloorDiv | Binary::TruncDiv | Binary::Rem | Binary::Fmod if y == 0 => 0,
        Binary::FloorDiv => floor_div(),
        Binary::TruncDiv => x.wrapping_div(y),
        Binary::Rem => x.wrapping_sub(floor_div().wrapping_mul(y)),
        Binary::Fmod => x.wrapping_rem(y),
        Binary::Max => x.max(y),
        Binary::Min => x.min(y),
        Binary::And => x & y,
        Binary::Or => x | y,
        Binary::Xor => x ^ y,
        // A count that is negative or too large shifts everything out.
        Binary::Shl => {
            if fits {
                x << y
            } else {
                0
            }
        }
        Binary::Shr => x >> if fits { y } else { 63 },
        _ => unreachable!("{op:?} of {}", dtype.short()),
    }
}

/// The value of [`crate::kernel::Op::Cast`]. A float that an integer type does not hold becomes what x86-64's conversions
/// give, as in torch: the least number of 32 or 64 bits, cut off to the type.
pub fn cast(from: DType, to: DType, a: u64) -> u64 {
    match (from.is_float(), to) {
        _ if from == to => a,
        (true, DType::Bool) => u64::from(to_f64(from, a) != 0.0),
        (true, _) if to.is_float() => from_f64(to, to_f64(from, a)),
        (true, _) => {
            let value = to_f64(from, a).trunc();
            let least = if to == DType::I64 { i64::MIN } else { i64::from(i32::MIN) };
            let inside = value >= least as f64 && value < -(least as f64);
            from_i64(to, if inside { value as i64 } else { least })
        }
        (false, DType::Bool) => u64::from(to_i64(from, a) != 0),
        (false, DType::F32) => u64::from((to_i64(from, a) as f32).to_bits()),
        (false, DType::F16 | DType::Bf16) => from_f64(to, f64::from(to_i64(from, a) as f32)),
        (false, _) if to.is_float() => from_f64(to, to_i64(from, a) as f64),
        (false, _) => from_i64(to, to_i64(from, a)),
    }
}

/// A reduction on its way. Sums and products of floats are kept in f64.
#[derive(Clone, Copy, Debug)]
pub struct Accumulator {
    op: ReduceOp,
    dtype: DType,
    bits: u64,
}

impl Accumulator {
    /// Of no elements.
    pub fn new(op: ReduceOp, dtype: DType) -> Accumulator {
        let least = if dtype == DType::U8 { 0 } else { i64::MIN >> (64 - 8 * dtype.size()) };
        let (float, int) = match op {
            ReduceOp::Sum | ReduceOp::Any => (0.0, 0),
            ReduceOp::Prod | ReduceOp::All => (1.0, 1),
            ReduceOp::Max => (f64::NEG_INFINITY, least),
            ReduceOp::Min => (f64::INFINITY, !least),
        };
        Accumulator { op, dtype, bits: if dtype.is_float() { float.to_bits() } else { from_i64(dtype, int) } }
    }

    /// One more element, in the reduction's dtype. Of a positive and a negative zero, the greatest and the least are the
    /// later one, as in torch's loops over few elements.
    pub fn add(&mut self, a: u64) {
        let op = self.op.step();
        self.bits = if self.dtype.is_float() {
            double(op, to_f64(self.dtype, a), f64::from_bits(self.bits)).to_bits()
        } else {
            binary(op, self.dtype, a, self.bits)
        };
    }

    /// The result, in the reduction's dtype.
    pub fn value(&self) -> u64 {
        if self.dtype.is_float() { from_f64(self.dtype, f64::from_bits(self.bits)) } else { self.bits }
    }
}

/// The number that a float value is.
pub fn to_f64(dtype: DType, bits: u64) -> f64 {
    match dtype {
        DType::F64 => f64::from_bits(bits),
        DType::F32 => f64::from(f32::from_bits(bits as u32)),
        DType::Bf16 => f64::from(f32::from_bits((bits as u32) << 16)),
        DType::F16 => {
            let (sign, exponent, mantissa) = ((bits >> 15) & 1, (bits >> 10) & 31, (bits & 1023) as f64);
            let magnitude = match exponent {
                0 => mantissa * f64::exp2(-24.0),
                31 if mantissa == 0.0 => f64::INFINITY,
                31 => f64::NAN,
                e => (1024.0 + mantissa) * f64::exp2(e as f64 - 25.0),
            };
            if sign == 1 { -magnitude } else { magnitude }
        }
        _ => to_i64(dtype, bits) as f64,
    }
}

/// The nearest value of a float type; f16 and bf16 by way of f32, as in torch.
pub fn from_f64(dtype: DType, value: f64) -> u64 {
    match dtype {
        DType::F64 => value.to_bits(),
        DType::F32 => u64::from((value as f32).to_bits()),
        DType::F16 => u64::from(f16_bits(value as f32)),
        DType::Bf16 => u64::from(bf16_bits(value as f32)),
        _ => unreachable!("{} is no float", dtype.short()),
    }
}

/// The number that an integer or a bool is.
pub fn to_i64(dtype: DType, bits: u64) -> i64 {
    match dtype {
        DType::U8 => i64::from(bits as u8),
        DType::I8 => i64::from(bits as i8),
        DType::I16 => i64::from(bits as i16),
        DType::I32 => i64::from(bits as i32),
        DType::Bool => i64::from(bits != 0),
        _ => bits as i64,
    }
}

/// The low bits of a number, as many as the type has.
pub fn from_i64(dtype: DType, value: i64) -> u64 {
    let bits = dtype.size() * 8;
    if bits >= 64 { value as u64 } else { value as u64 & ((1 << bits) - 1) }
}

/// Round to nearest even; NaN becomes torch's quiet NaN.
pub fn bf16_bits(value: f32) -> u16 {
    if value.is_nan() {
        return 0x7fc0;
    }
    let bits = value.to_bits();
    ((bits.wrapping_add(0x7fff + ((bits >> 16) & 1))) >> 16) as u16
}

/// Round to nearest even, by scaling into the subnormal or normal range of the format.
pub fn f16_bits(value: f32) -> u16 {
    let sign = ((value.to_bits() >> 16) & 0x8000) as u16;
    let a = f64::from(value.abs());
    if value.is_nan() {
        return sign | 0x7e00;
    }
    if a >= 65520.0 {
        return sign | 0x7c00;
    }
    let exponent = if a < 6.103_515_625e-5 { -14 } else { ((a.to_bits() >> 52) as i32 - 1023).max(-14) };
    let units = (a * f64::exp2(f64::from(10 - exponent))).round_ties_even() as u32;
    // `units` counts 2^(exponent - 10); the implicit bit carries into the exponent field by itself.
    let field = if a < 6.103_515_625e-5 { units } else { units + (((exponent + 14) as u32) << 10) };
    sign | field as u16
}
