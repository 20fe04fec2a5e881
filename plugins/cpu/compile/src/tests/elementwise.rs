//! Every operation in the table, on edge values and many others, within the accuracy the table promises.

use super::build::{Builder, Random, consts};
use super::reference::{Buffer, from_f64, from_i64};
use super::{check, ulps};
use flambeau_cpu_artifact::capabilities;
use flambeau_plugin::kernel::{Binary, DType, Op, Role, Scope, Unary};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_PI_2, PI};

fn float_edges() -> Vec<f64> {
    let mut edges = vec![0.0, f64::NAN, f64::INFINITY, f64::MAX, f64::MIN_POSITIVE, 5e-324, 1e-310];
    edges.extend([f64::from(f32::MAX), f64::from(f32::MIN_POSITIVE), 1e-45, 1e-40, 3e-39]);
    edges.extend([0.5, 1.0, 1.5, 2.0, 2.5, 3.5, 0.49999997, 1.0000001, 0.99999994, 8_388_607.5, 16_777_217.0]);
    edges.extend([88.7, 88.73, 87.3, 103.9, 104.1, 709.7, 710.0, 745.0, 746.0, 126.5, 128.0, 149.0, 150.0, 1024.0]);
    edges.extend([
        0.6249,
        0.625,
        0.92,
        0.9199,
        3.99,
        4.0,
        9.0,
        20.0,
        1e-8,
        1e-20,
        1e-5,
        0.3,
        FRAC_1_SQRT_2 - 8e-8,
        FRAC_1_SQRT_2,
    ]);
    edges.extend([65504.0, 65519.9, 65520.0, 6e-8, 2.9e-8, 6.1e-5, 127.5, 255.9, 300.0, 32768.0, 2e9, 3e9, 1e19, 1e30]);
    // Near multiples of pi / 2, and where the reduction of arguments changes.
    edges.extend([FRAC_PI_2, PI, 1e5, 1_073_741_824.0, 1_073_741_888.0, 16_367_173.0 * f64::exp2(72.0)]);
    let negative: Vec<f64> = edges.iter().map(|e| -e).collect();
    edges.extend(negative);
    edges
}

/// Edge values, then others over the whole range and over the interesting one.
pub fn inputs(dtype: DType, seed: u64) -> Vec<u64> {
    let mut random = Random::new(seed);
    if dtype.is_float() {
        let mut values: Vec<u64> = float_edges().into_iter().map(|v| from_f64(dtype, v)).collect();
        values.extend((0..500).map(|_| from_f64(dtype, random.unit() * 3.0)));
        values.extend((0..500).map(|_| from_f64(dtype, random.unit() * 100.0)));
        values.extend((0..300).map(|_| random.bits() & (u64::MAX >> (64 - 8 * dtype.size()))));
        return values;
    }
    if dtype == DType::Bool {
        return (0..203).map(|_| random.bits() & 1).collect();
    }
    let edges =
        [0, 1, -1, 2, -2, 7, -7, 63, 64, i64::MIN, i64::MAX, 127, -128, 255, 32767, -32768, 1 << 31, -(1 << 31)];
    let mut values: Vec<u64> = edges.into_iter().map(|v| from_i64(dtype, v)).collect();
    values.extend((0..300).map(|_| from_i64(dtype, random.bits() as i64)));
    values.extend((0..100).map(|_| from_i64(dtype, (random.unit() * 20.0) as i64)));
    values
}

/// How far from the correctly rounded result, in units in the last place.
fn tolerance(op: Unary, dtype: DType) -> u64 {
    match op {
        // The reference rounds in f64 too.
        Unary::Sigmoid if dtype == DType::F64 => 4,
        Unary::Sigmoid | Unary::Tanh | Unary::Expm1 | Unary::Log1p | Unary::Erf | Unary::Log2 | Unary::Log10 => 2,
        Unary::Asin | Unary::Acos | Unary::Atan => 2,
        Unary::Exp | Unary::Exp2 | Unary::Log | Unary::Sin | Unary::Cos | Unary::Tan => 1,
        Unary::Rsqrt | Unary::Reciprocal => u64::from(op == Unary::Rsqrt),
        _ => u64::from(dtype == DType::F16),
    }
}

#[test]
fn unary_operations() {
    for (op, dtype) in capabilities().unary {
        let output = if matches!(op, Unary::IsNan | Unary::IsInf) { DType::Bool } else { dtype };
        let values = inputs(dtype, 1);
        let n = values.len() as i64;
        let mut b = Builder::new(&format!("{op:?}_{}", dtype.short()), consts(&[n]), 0);
        let (x, y) = (b.param(dtype, Role::In), b.param(output, Role::Out));
        b.stage(Scope::Row);
        let v = b.load(x, &[1]);
        let r = b.inst(output, Op::Unary(op, v));
        b.store(y, &[1], r);
        check(&b.kernel, &[Buffer::new(dtype, values), Buffer::zeros(output, n as usize)], &[], tolerance(op, dtype));
    }
}

/// f32 functions on a dense sample of all floats, in exact ulps against f64.
#[test]
fn unary_accuracy_over_all_of_f32() {
    let mut random = Random::new(99);
    let mut values: Vec<u64> = (0..200_000).map(|_| random.bits() & 0xffff_ffff).collect();
    values.extend((0..100_000).map(|_| from_f64(DType::F32, random.unit() * 5.0)));
    // Where sine and cosine are nearly zero.
    let quarter = |k: u64| from_f64(DType::F32, k as f64 * std::f64::consts::FRAC_PI_2);
    values.extend((1..30_000).map(quarter).flat_map(|v| [v - 1, v, v + 1]));
    for (op, dtype) in capabilities().unary {
        if dtype != DType::F32 || matches!(op, Unary::IsNan | Unary::IsInf) {
            continue;
        }
        let n = values.len();
        let mut b = Builder::new(&format!("{op:?}"), consts(&[n as i64]), 0);
        let (x, y) = (b.param(dtype, Role::In), b.param(dtype, Role::Out));
        b.stage(Scope::Row);
        let v = b.load(x, &[1]);
        let r = b.inst(dtype, Op::Unary(op, v));
        b.store(y, &[1], r);
        for isa in super::isas() {
            let mut buffers = [Buffer::new(dtype, values.clone()), Buffer::zeros(dtype, n)];
            super::run(&super::compile(&b.kernel, isa), &mut buffers, &[], 1);
            let worst = values
                .iter()
                .enumerate()
                .map(|(i, v)| (ulps(dtype, super::reference::unary(op, dtype, *v), buffers[1].get(i as i64)), *v))
                .max()
                .unwrap();
            let at = f32::from_bits(worst.1 as u32);
            assert!(worst.0 <= tolerance(op, dtype), "{op:?} on {}: {} ulp at {at:e}", isa.target(), worst.0);
        }
    }
}

/// `1 + erf(x)`, and `erf(x)` beside it if it is `seen`.
fn one_and_erf(n: i64, seen: bool) -> Builder {
    let mut b = Builder::new(&format!("one_and_erf_{seen}"), consts(&[n]), 0);
    let (x, y) = (b.param(DType::F32, Role::In), b.param(DType::F32, Role::Out));
    b.stage(Scope::Row);
    let v = b.load(x, &[1]);
    let erf = b.inst(DType::F32, Op::Unary(Unary::Erf, v));
    let one = b.f32(1.0);
    let sum = b.inst(DType::F32, Op::Binary(Binary::Add, erf, one));
    b.store(y, &[1], sum);
    if seen {
        let z = b.param(DType::F32, Role::Out);
        b.store(z, &[1], erf);
    }
    b
}

#[test]
fn the_error_function_near_one() {
    let mut random = Random::new(98);
    let values: Vec<f32> = (0..200_000)
        .map(|_| (random.unit() * 12.0 - 6.0) as f32)
        .chain([0.0, f32::INFINITY, -f32::INFINITY, 1e-30])
        .collect();
    let kernel = one_and_erf(values.len() as i64, false).kernel;
    assert_eq!(crate::found::near_one::erfs(&kernel).len(), 1);
    assert!(crate::found::near_one::erfs(&one_and_erf(8, true).kernel).is_empty());
    for isa in super::isas() {
        let mut buffers = [Buffer::f32(&values), Buffer::zeros(DType::F32, values.len())];
        super::run(&super::compile(&kernel, isa), &mut buffers, &[], 1);
        for (at, x) in values.iter().enumerate() {
            let erf = super::reference::unary(Unary::Erf, DType::F64, f64::from(*x).to_bits());
            let off = f64::from(f32::from_bits(buffers[1].get(at as i64) as u32)) - 1.0 - f64::from_bits(erf);
            assert!(off.abs() <= 1.9e-7, "{x:e} is off by {off:e}");
        }
    }
    let mut buffers = [Buffer::f32(&[f32::NAN]), Buffer::zeros(DType::F32, 1)];
    super::run(&super::compile(&one_and_erf(1, false).kernel, super::isas()[0]), &mut buffers, &[], 1);
    assert!(f32::from_bits(buffers[1].get(0) as u32).is_nan());
}

#[test]
fn binary_operations() {
    for (op, dtype) in capabilities().binary {
        let comparison = matches!(op, Binary::Eq | Binary::Ne | Binary::Lt | Binary::Le | Binary::Gt | Binary::Ge);
        let output = if comparison { DType::Bool } else { dtype };
        let edges: Vec<u64> = inputs(dtype, 2).into_iter().take(64).collect();
        let mut pairs: Vec<(u64, u64)> = edges.iter().flat_map(|a| edges.iter().map(|b| (*a, *b))).collect();
        pairs.extend(inputs(dtype, 3).into_iter().zip(inputs(dtype, 4)));
        if dtype.is_integer() && matches!(op, Binary::FloorDiv | Binary::TruncDiv | Binary::Rem | Binary::Fmod) {
            pairs.retain(|(_, b)| *b != 0);
        }
        let n = pairs.len() as i64;
        let mut b = Builder::new(&format!("{op:?}_{}", dtype.short()), consts(&[n]), 0);
        let (x, z, y) = (b.param(dtype, Role::In), b.param(dtype, Role::In), b.param(output, Role::Out));
        b.stage(Scope::Row);
        let (v, w) = (b.load(x, &[1]), b.load(z, &[1]));
        let r = b.inst(output, Op::Binary(op, v, w));
        b.store(y, &[1], r);
        let (left, right): (Vec<u64>, Vec<u64>) = pairs.into_iter().unzip();
        let buffers = [Buffer::new(dtype, left), Buffer::new(dtype, right), Buffer::zeros(output, n as usize)];
        let tolerance = match op {
            Binary::Atan2 => 2,
            _ => u64::from(op == Binary::Pow),
        };
        check(&b.kernel, &buffers, &[], tolerance);
    }
}

#[test]
fn casts() {
    for (from, to) in capabilities().casts {
        let values = inputs(from, 5);
        let n = values.len() as i64;
        let mut b = Builder::new(&format!("cast_{}_{}", from.short(), to.short()), consts(&[n]), 0);
        let (x, y) = (b.param(from, Role::In), b.param(to, Role::Out));
        b.stage(Scope::Row);
        let v = b.load(x, &[1]);
        let r = b.inst(to, Op::Cast(v));
        b.store(y, &[1], r);
        check(&b.kernel, &[Buffer::new(from, values), Buffer::zeros(to, n as usize)], &[], 0);
    }
}

#[test]
fn select_constants_scalars_and_indices() {
    let n = 77;
    for dtype in capabilities().buffers {
        let mut b = Builder::new(&format!("select_{}", dtype.short()), consts(&[3, n]), 0);
        b.kernel.scalars = 2;
        let (x, c) = (b.param(dtype, Role::In), b.param(DType::Bool, Role::In));
        let (y, z) = (b.param(dtype, Role::Out), b.param(DType::I64, Role::Out));
        b.stage(Scope::Row);
        let (v, cond) = (b.load(x, &[n, 1]), b.load(c, &[n, 1]));
        let bits = if dtype.is_float() && dtype != DType::F64 { u64::from(1.5_f32.to_bits()) } else { 1 };
        let constant = b.inst(dtype, Op::Const(bits));
        let argument = b.inst(dtype, Op::Scalar(u32::from(dtype.is_float())));
        let first = b.inst(dtype, Op::Select(cond, v, constant));
        let (i, j) = (b.inst(DType::I64, Op::Index(0)), b.inst(DType::I64, Op::Index(1)));
        let both = b.inst(DType::I64, Op::Binary(Binary::Mul, i, j));
        let limit = b.inst(DType::I64, Op::Const(40));
        let near = b.inst(DType::Bool, Op::Binary(Binary::Lt, j, limit));
        let second = b.inst(dtype, Op::Select(near, first, argument));
        b.store(y, &[n, 1], second);
        b.store(z, &[n, 1], both);
        let len = 3 * n as usize;
        let values = inputs(dtype, 6).into_iter().cycle().take(len);
        let buffers = [
            Buffer::new(dtype, values),
            Buffer::new(DType::Bool, inputs(DType::Bool, 7).into_iter().cycle().take(len)),
            Buffer::zeros(dtype, len),
            Buffer::zeros(DType::I64, len),
        ];
        check(&b.kernel, &buffers, &[1, 2.25_f64.to_bits() as i64], 0);
    }
}

/// Steps of a polynomial are fused in every form: `c + a * b`, `c - a * b`, `a * b - c`.
#[test]
fn polynomial_steps() {
    for dtype in [DType::F32, DType::F64] {
        let n = 203;
        let mut b = Builder::new("polynomial", consts(&[n]), 0);
        let (x, y) = (b.param(dtype, Role::In), b.param(dtype, Role::Out));
        b.stage(Scope::Row);
        let two = if dtype == DType::F64 { 2.0_f64.to_bits() } else { u64::from(2.0_f32.to_bits()) };
        let (v, two) = (b.load(x, &[1]), b.inst(dtype, Op::Const(two)));
        let mut sum = v;
        for (op, first) in [(Binary::Add, false), (Binary::Sub, false), (Binary::Sub, true), (Binary::Add, true)] {
            let product = b.inst(dtype, Op::Binary(Binary::Mul, sum, v));
            let (l, r) = if first { (product, two) } else { (two, product) };
            sum = b.inst(dtype, Op::Binary(op, l, r));
        }
        let last = b.inst(dtype, Op::Binary(Binary::Mul, sum, v));
        b.store(y, &[1], last);
        // Inputs in [1/4, 1/2): nothing cancels, so one rounding less is one unit or two.
        let values = (0..n).map(|i| 0.25 + i as f64 / 1024.0);
        let bits = values.map(|v| if dtype == DType::F64 { v.to_bits() } else { u64::from((v as f32).to_bits()) });
        let buffers = [Buffer::new(dtype, bits.collect::<Vec<u64>>()), Buffer::zeros(dtype, n as usize)];
        check(&b.kernel, &buffers, &[], 3);
    }
}
