//! The kernel IR's meaning, one scalar at a time. Values are bits in the low end of a `u64`.

use crate::ops::{bf16_bits, f16_bits};
use flambeau_plugin::kernel::{Access, Binary, DType, Extent, Kernel, Op, ReduceOp, Scope, Stage, Unary, ValueId};
use std::collections::HashMap;

/// Memory of one parameter, and where its element 0 lies.
#[derive(Clone, Debug)]
pub struct Buffer {
    pub dtype: DType,
    pub bytes: Vec<u8>,
}

impl Buffer {
    pub fn new(dtype: DType, bits: impl IntoIterator<Item = u64>) -> Buffer {
        let bytes = bits.into_iter().flat_map(|b| b.to_le_bytes()[..dtype.size()].to_vec()).collect();
        Buffer { dtype, bytes }
    }

    pub fn f32(values: &[f32]) -> Buffer {
        Buffer::new(DType::F32, values.iter().map(|v| u64::from(v.to_bits())))
    }

    pub fn zeros(dtype: DType, len: usize) -> Buffer {
        Buffer { dtype, bytes: vec![0; len * dtype.size()] }
    }

    pub fn len(&self) -> usize {
        self.bytes.len() / self.dtype.size()
    }

    pub fn get(&self, index: i64) -> u64 {
        let size = self.dtype.size();
        let at = usize::try_from(index).unwrap() * size;
        let mut bits = [0; 8];
        bits[..size].copy_from_slice(&self.bytes[at..at + size]);
        let bits = u64::from_le_bytes(bits);
        if self.dtype == DType::Bool { u64::from(bits != 0) } else { bits }
    }

    fn set(&mut self, index: i64, bits: u64) {
        let size = self.dtype.size();
        let at = usize::try_from(index).unwrap() * size;
        self.bytes[at..at + size].copy_from_slice(&bits.to_le_bytes()[..size]);
    }
}

/// The float a value holds.
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

pub fn from_f64(dtype: DType, value: f64) -> u64 {
    match dtype {
        DType::F64 => value.to_bits(),
        DType::F32 => u64::from((value as f32).to_bits()),
        DType::F16 => u64::from(f16_bits(value as f32)),
        DType::Bf16 => u64::from(bf16_bits(value as f32)),
        _ => unreachable!("{dtype:?} is no float"),
    }
}

pub fn from_i64(dtype: DType, value: i64) -> u64 {
    let bits = dtype.size() * 8;
    if bits == 64 { value as u64 } else { value as u64 & ((1 << bits) - 1) }
}

fn cast(from: DType, to: DType, bits: u64) -> u64 {
    match (from.is_float(), to) {
        (true, DType::Bool) => u64::from(to_f64(from, bits) != 0.0),
        (true, _) if to.is_float() => from_f64(to, to_f64(from, bits)),
        (true, _) => {
            let value = to_f64(from, bits);
            let (limit, indefinite) = if to == DType::I64 {
                (9_223_372_036_854_775_808.0, i64::MIN)
            } else {
                (2_147_483_648.0, i64::from(i32::MIN))
            };
            let inside = value.trunc() < limit && value.trunc() >= -limit;
            from_i64(to, if inside { value as i64 } else { indefinite })
        }
        (false, DType::Bool) => u64::from(to_i64(from, bits) != 0),
        (false, DType::F32) => u64::from((to_i64(from, bits) as f32).to_bits()),
        (false, DType::F16 | DType::Bf16) => from_f64(to, f64::from(to_i64(from, bits) as f32)),
        (false, _) if to.is_float() => from_f64(to, to_i64(from, bits) as f64),
        (false, _) => from_i64(to, to_i64(from, bits)),
    }
}

/// erf by its series, and by the continued fraction of erfc for large arguments.
pub fn erf(x: f64) -> f64 {
    let a = x.abs();
    let y = if a < 2.5 {
        let (mut term, mut sum) = (a, a);
        for n in 1..80 {
            term *= -a * a / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        sum * std::f64::consts::FRAC_2_SQRT_PI
    } else if a.is_nan() {
        a
    } else {
        let mut fraction = 0.0;
        for k in (1..60).rev() {
            fraction = f64::from(k) / 2.0 / (a + fraction);
        }
        1.0 - (-a * a).exp() / (a + fraction) / std::f64::consts::PI.sqrt()
    };
    y.copysign(x)
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
        Unary::Asinh => x.asinh(),
        Unary::Acosh => x.acosh(),
        Unary::Atanh => x.atanh(),
        Unary::Tanh => x.tanh(),
        Unary::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Unary::Erf => erf(x),
        Unary::Floor => x.floor(),
        Unary::Ceil => x.ceil(),
        Unary::Round => x.round_ties_even(),
        Unary::Trunc => x.trunc(),
        _ => unreachable!("{op:?}"),
    }
}

pub fn unary(op: Unary, dtype: DType, bits: u64) -> u64 {
    if dtype == DType::Bool {
        return bits ^ 1;
    }
    if dtype.is_float() {
        let x = to_f64(dtype, bits);
        return match op {
            Unary::IsNan => u64::from(x.is_nan()),
            Unary::IsInf => u64::from(x.is_infinite()),
            // As torch: exp(-x) overflows in the type before the quotient would be subnormal.
            Unary::Sigmoid if dtype == DType::F32 && x < -88.73 => 0,
            _ => from_f64(dtype, float_unary(op, x)),
        };
    }
    let x = to_i64(dtype, bits);
    from_i64(
        dtype,
        match op {
            Unary::Neg => x.wrapping_neg(),
            Unary::Abs => x.wrapping_abs(),
            Unary::Sign => x.signum(),
            Unary::BitNot => !x,
            _ => unreachable!("{op:?}"),
        },
    )
}

fn compare(op: Binary, order: Option<std::cmp::Ordering>) -> Option<u64> {
    use std::cmp::Ordering::{Equal, Greater, Less};
    Some(u64::from(match op {
        Binary::Eq => order == Some(Equal),
        Binary::Ne => order != Some(Equal),
        Binary::Lt => order == Some(Less),
        Binary::Le => matches!(order, Some(Less | Equal)),
        Binary::Gt => order == Some(Greater),
        Binary::Ge => matches!(order, Some(Greater | Equal)),
        _ => return None,
    }))
}

/// One rounding in the type: f64 arithmetic on f32 operands rounds to the same f32 for these operations.
fn float_binary(op: Binary, a: f64, b: f64) -> f64 {
    match op {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Div => a / b,
        Binary::Pow => a.powf(b),
        Binary::Atan2 => a.atan2(b),
        Binary::Max | Binary::Min if a.is_nan() => a,
        Binary::Max | Binary::Min if b.is_nan() => b,
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
        _ => unreachable!("{op:?}"),
    }
}

pub fn binary(op: Binary, dtype: DType, a: u64, b: u64) -> u64 {
    if dtype.is_float() {
        let (x, y) = (to_f64(dtype, a), to_f64(dtype, b));
        if let Some(answer) = compare(op, x.partial_cmp(&y)) {
            return answer;
        }
        if op == Binary::TruncDiv {
            let quotient = to_f64(dtype, from_f64(dtype, x / y));
            return from_f64(dtype, quotient.trunc());
        }
        return from_f64(dtype, float_binary(op, x, y));
    }
    let (x, y) = (to_i64(dtype, a), to_i64(dtype, b));
    if let Some(answer) = compare(op, Some(x.cmp(&y))) {
        return answer;
    }
    let bits = dtype.size() as i64 * 8;
    let floor_div = |x: i64, y: i64| {
        let q = x.wrapping_div(y);
        if x.wrapping_rem(y) != 0 && (x < 0) != (y < 0) { q - 1 } else { q }
    };
    from_i64(
        dtype,
        match op {
            Binary::Add => x.wrapping_add(y),
            Binary::Sub => x.wrapping_sub(y),
            Binary::Mul => x.wrapping_mul(y),
            Binary::FloorDiv => floor_div(x, y),
            Binary::TruncDiv => x.wrapping_div(y),
            Binary::Rem => x.wrapping_sub(floor_div(x, y).wrapping_mul(y)),
            Binary::Fmod => x.wrapping_rem(y),
            Binary::Max => x.max(y),
            Binary::Min => x.min(y),
            Binary::And => x & y,
            Binary::Or => x | y,
            Binary::Xor => x ^ y,
            Binary::Shl if !(0..bits).contains(&y) => 0,
            Binary::Shl => x << y,
            Binary::Shr if !(0..bits).contains(&y) => x >> 63,
            Binary::Shr => x >> y,
            _ => unreachable!("{op:?}"),
        },
    )
}

struct Machine<'a> {
    kernel: &'a Kernel,
    scalars: &'a [i64],
    buffers: &'a mut [Buffer],
    values: HashMap<ValueId, (DType, u64)>,
    index: Vec<i64>,
}

/// Runs a kernel on buffers.
pub fn run(kernel: &Kernel, buffers: &mut [Buffer], scalars: &[i64]) {
    let index = vec![0; kernel.dims.len()];
    let mut machine = Machine { kernel, scalars, buffers, values: HashMap::new(), index };
    machine.nest(0, kernel.outer, &mut |m| m.outer_point());
}

impl Machine<'_> {
    fn extent(&self, extent: Extent) -> i64 {
        match extent {
            Extent::Const(c) => c,
            Extent::Scalar(i) => self.scalars[i as usize],
        }
    }

    fn nest(&mut self, dim: usize, end: usize, body: &mut dyn FnMut(&mut Self)) {
        if dim == end {
            return body(self);
        }
        for i in 0..self.extent(self.kernel.dims[dim]) {
            self.index[dim] = i;
            self.nest(dim + 1, end, body);
        }
        self.index[dim] = 0;
    }

    fn outer_point(&mut self) {
        for stage in &self.kernel.stages {
            match stage.scope {
                Scope::Outer => self.body(stage, &mut Vec::new()),
                Scope::Row => {
                    let mut sums: Vec<Sum> = stage.reduces.iter().map(|r| Sum::new(r.op, r.dtype)).collect();
                    self.nest(self.kernel.outer, self.kernel.dims.len(), &mut |m| m.body(stage, &mut sums));
                    for (reduce, sum) in stage.reduces.iter().zip(sums) {
                        self.values.insert(reduce.id, (reduce.dtype, sum.finish()));
                    }
                }
            }
        }
    }

    fn address(&self, access: &Access) -> i64 {
        let steps = access.strides.iter().zip(&self.index).map(|(s, i)| self.extent(*s) * i);
        self.extent(access.offset) + steps.sum::<i64>()
    }

    fn body(&mut self, stage: &Stage, sums: &mut Vec<Sum>) {
        for inst in &stage.insts {
            let of = |id: &ValueId| self.values[id];
            let bits = match &inst.op {
                Op::Load(access) => self.buffers[access.param as usize].get(self.address(access)),
                Op::LoadIf { cond, access, other } => {
                    if of(cond).1 != 0 {
                        self.buffers[access.param as usize].get(self.address(access))
                    } else {
                        of(other).1
                    }
                }
                Op::Const(bits) => match inst.dtype {
                    DType::F16 => u64::from(f16_bits(f32::from_bits(*bits as u32))),
                    DType::Bf16 => u64::from(bf16_bits(f32::from_bits(*bits as u32))),
                    _ => *bits,
                },
                Op::Scalar(i) if inst.dtype.is_float() => {
                    from_f64(inst.dtype, f64::from_bits(self.scalars[*i as usize] as u64))
                }
                Op::Scalar(i) => cast(DType::I64, inst.dtype, self.scalars[*i as usize] as u64),
                Op::Index(d) => self.index[*d as usize] as u64,
                Op::Unary(op, a) => unary(*op, of(a).0, of(a).1),
                Op::Binary(op, a, b) => binary(*op, of(a).0, of(a).1, of(b).1),
                Op::Select(c, a, b) => {
                    if of(c).1 != 0 {
                        of(a).1
                    } else {
                        of(b).1
                    }
                }
                Op::Cast(a) => cast(of(a).0, inst.dtype, of(a).1),
            };
            self.values.insert(inst.id, (inst.dtype, bits));
        }
        for store in &stage.stores {
            let address = self.address(&store.access);
            let bits = self.values[&store.value].1;
            self.buffers[store.access.param as usize].set(address, bits);
        }
        for (reduce, sum) in stage.reduces.iter().zip(sums) {
            sum.add(self.values[&reduce.value].1);
        }
    }
}

/// A reduction; float sums and products in f64, so that the reference is the better one.
struct Sum {
    op: ReduceOp,
    dtype: DType,
    wide: f64,
    bits: u64,
}

impl Sum {
    fn new(op: ReduceOp, dtype: DType) -> Sum {
        let (wide, low) = match op {
            ReduceOp::Sum | ReduceOp::Any => (0.0, 0),
            ReduceOp::Prod | ReduceOp::All => (1.0, 1),
            ReduceOp::Max => {
                (f64::NEG_INFINITY, if dtype == DType::U8 { 0 } else { i64::MIN >> (64 - 8 * dtype.size()) })
            }
            ReduceOp::Min => {
                (f64::INFINITY, if dtype == DType::U8 { 255 } else { i64::MAX >> (64 - 8 * dtype.size()) })
            }
        };
        Sum { op, dtype, wide, bits: from_i64(dtype, low) }
    }

    fn add(&mut self, bits: u64) {
        let op = match self.op {
            ReduceOp::Sum => Binary::Add,
            ReduceOp::Prod => Binary::Mul,
            ReduceOp::Max => Binary::Max,
            ReduceOp::Min => Binary::Min,
            ReduceOp::Any => Binary::Or,
            ReduceOp::All => Binary::And,
        };
        if self.dtype.is_float() {
            self.wide = float_binary(op, self.wide, to_f64(self.dtype, bits));
        } else {
            self.bits = binary(op, self.dtype, self.bits, bits);
        }
    }

    fn finish(&self) -> u64 {
        if self.dtype.is_float() { from_f64(self.dtype, self.wide) } else { self.bits }
    }
}
