//! Loop nests: strides, tails, symbolic sizes, reductions, several stages, splitting between threads.

use super::build::{Builder, Random, consts};
use super::check;
use super::norms::{binary, layer_norm, softmax};
use super::reference::{Buffer, from_i64};
use flambeau_plugin::kernel::{Access, Binary, DType, Extent, Kernel, Op, ReduceOp, Role, Scope, Unary};

fn row_major(dims: &[i64]) -> Vec<i64> {
    let mut strides = vec![1; dims.len()];
    for d in (0..dims.len().saturating_sub(1)).rev() {
        strides[d] = strides[d + 1] * dims[d + 1];
    }
    strides
}

/// `out = a * b + index` with given strides.
fn combine(dims: &[i64], outer: usize, a: &[i64], b: &[i64], out: &[i64]) -> Kernel {
    let mut k = Builder::new(&format!("combine_{dims:?}_{outer}_{a:?}_{b:?}_{out:?}"), consts(dims), outer);
    let (x, y, z) = (k.param(DType::F32, Role::In), k.param(DType::F32, Role::In), k.param(DType::F32, Role::Out));
    k.stage(Scope::Row);
    let (v, w) = (k.load(x, a), k.load(y, b));
    let product = k.inst(DType::F32, Op::Binary(Binary::Mul, v, w));
    let mut sum = product;
    for d in 0..dims.len() as u32 {
        let index = k.inst(DType::I64, Op::Index(d));
        let index = k.inst(DType::F32, Op::Cast(index));
        sum = k.inst(DType::F32, Op::Binary(Binary::Add, sum, index));
    }
    k.store(z, out, sum);
    k.kernel
}

fn memory(random: &mut Random, n: usize) -> Buffer {
    Buffer::f32(&random.f32s(n))
}

#[test]
fn tails_of_every_length() {
    let mut random = Random::new(1);
    for n in (0..36).chain([48, 63, 64, 65]) {
        let kernel = combine(&[n], 0, &[1], &[1], &[1]);
        let buffers =
            [memory(&mut random, n as usize), memory(&mut random, n as usize), memory(&mut random, n as usize)];
        check(&kernel, &buffers, &[], 0);
    }
}

#[test]
fn strides_broadcasts_and_orders() {
    let mut random = Random::new(2);
    let shapes: [&[i64]; 5] = [&[3, 5, 37], &[2, 64, 16], &[1, 1, 1], &[4, 129], &[5, 3, 2, 18]];
    for dims in shapes {
        let size = dims.iter().product::<i64>() as usize;
        let contiguous = row_major(dims);
        let transposed: Vec<i64> = {
            let reversed: Vec<i64> = dims.iter().rev().copied().collect();
            row_major(&reversed).into_iter().rev().collect()
        };
        let broadcast: Vec<i64> = contiguous.iter().enumerate().map(|(d, s)| if d == 1 { *s } else { 0 }).collect();
        let spread: Vec<i64> = contiguous.iter().map(|s| s * 3).collect();
        for outer in [0, dims.len() - 1, dims.len()] {
            for (a, b, out) in [
                (&contiguous, &contiguous, &contiguous),
                (&contiguous, &transposed, &contiguous),
                (&contiguous, &broadcast, &transposed),
                (&spread, &broadcast, &spread),
            ] {
                let kernel = combine(dims, outer, a, b, out);
                let buffers =
                    [memory(&mut random, 3 * size), memory(&mut random, 3 * size), memory(&mut random, 3 * size)];
                check(&kernel, &buffers, &[], 0);
            }
        }
    }
}

#[test]
fn long_rows_are_split_between_threads() {
    let mut random = Random::new(3);
    for dims in [&[1_000_003][..], &[2, 300_001], &[700, 500]] {
        let n = dims.iter().product::<i64>() as usize;
        let strides = row_major(dims);
        let kernel = combine(dims, 0, &strides, &strides, &strides);
        check(&kernel, &[memory(&mut random, n), memory(&mut random, n), memory(&mut random, n)], &[], 0);
    }
}

/// Large outputs are written past the caches where their addresses are multiples of a cache line, which one of these
/// offsets makes them: allocations begin at multiples of 16 bytes.
#[test]
fn outputs_larger_than_caches_at_every_alignment() {
    const COUNT: i64 = 1_600_003;
    let mut random = Random::new(14);
    let values: Vec<u64> = (0..COUNT).map(|_| random.unit().to_bits()).collect();
    for offset in [0, 2, 4, 6] {
        let mut k = Builder::new("large", consts(&[COUNT]), 0);
        let (x, y, z) =
            (k.param(DType::F64, Role::In), k.param(DType::F64, Role::Out), k.param(DType::Bool, Role::Out));
        k.stage(Scope::Row);
        let v = k.load(x, &[1]);
        let negated = k.inst(DType::F64, Op::Unary(Unary::Neg, v));
        let positive = k.inst(DType::Bool, Op::Binary(Binary::Gt, v, negated));
        k.store_at(y, Extent::Const(offset), consts(&[1]), negated);
        k.store_at(z, Extent::Const(offset * 8), consts(&[1]), positive);
        let buffers = [
            Buffer::new(DType::F64, values.iter().copied()),
            Buffer::zeros(DType::F64, (COUNT + offset) as usize),
            Buffer::zeros(DType::Bool, (COUNT + offset * 8) as usize),
        ];
        check(&k.kernel, &buffers, &[], 0);
    }
}

#[test]
fn symbolic_sizes_strides_and_offsets() {
    let mut random = Random::new(4);
    for outer in 0..=2 {
        let mut k = Builder::new("symbolic", vec![Extent::Scalar(0), Extent::Scalar(1)], outer);
        k.kernel.scalars = 4;
        let (x, y) = (k.param(DType::F32, Role::In), k.param(DType::F32, Role::Out));
        k.stage(Scope::Row);
        let v = k.load_at(x, Extent::Scalar(3), vec![Extent::Scalar(2), Extent::Const(1)]);
        let w = k.load_at(x, Extent::Const(0), vec![Extent::Const(1), Extent::Scalar(2)]);
        let sum = k.inst(DType::F32, Op::Binary(Binary::Add, v, w));
        k.store_at(y, Extent::Const(0), vec![Extent::Scalar(1), Extent::Const(1)], sum);
        for (rows, columns) in [(3, 5), (1, 100), (17, 16), (40, 33), (0, 4), (4, 0), (2, 1)] {
            let stride = rows.max(columns) + 2;
            let size = (stride * stride + 10) as usize;
            let buffers = [memory(&mut random, size), memory(&mut random, (rows * columns) as usize)];
            check(&k.kernel, &buffers, &[rows, columns, stride, 7], 0);
        }
    }
}

/// One reduction of each row; with `strided` rows run down columns.
fn reduction(op: ReduceOp, dtype: DType, rows: Extent, length: Extent, strided: bool) -> Kernel {
    let mut k = Builder::new(&format!("{op:?}_{}_{rows:?}_{length:?}_{strided}", dtype.short()), vec![rows, length], 1);
    k.kernel.scalars = 2;
    let (x, y) = (k.param(dtype, Role::In), k.param(dtype, Role::Out));
    k.stage(Scope::Row);
    let strides = if strided { vec![Extent::Const(1), rows] } else { vec![length, Extent::Const(1)] };
    let v = k.load_at(x, Extent::Const(0), strides);
    let total = k.reduce(op, dtype, v);
    k.stage(Scope::Outer);
    k.store(y, &[1, 0], total);
    k.kernel
}

#[test]
fn reductions_of_every_length_and_type() {
    let mut random = Random::new(5);
    let table = flambeau_cpu_artifact::capabilities().reduces;
    for (op, dtype) in table {
        for (rows, length) in [(2, 0), (5, 7), (33, 65), (4, 768)] {
            for strided in [false, true] {
                for symbolic in [false, true] {
                    let extent = |value, i| if symbolic { Extent::Scalar(i) } else { Extent::Const(value) };
                    let kernel = reduction(op, dtype, extent(rows, 0), extent(length, 1), strided);
                    let n = (rows * length) as usize;
                    let values: Vec<u64> = (0..n)
                        .map(|_| match dtype {
                            DType::F32 => u64::from((1.0 + random.unit() as f32 * 0.25).to_bits()),
                            DType::F64 => (1.0 + random.unit() * 0.25).to_bits(),
                            DType::Bool => u64::from(random.bits().is_multiple_of(8)),
                            _ => from_i64(dtype, random.bits() as i64),
                        })
                        .collect();
                    let exact = !matches!(op, ReduceOp::Sum | ReduceOp::Prod) || !dtype.is_float();
                    // The reference adds f64s one by one: there it is the one that is less accurate.
                    let tolerance = match (exact, dtype, op) {
                        (true, ..) => 0,
                        (_, DType::F32, ReduceOp::Sum) => 4,
                        _ => 100,
                    };
                    let buffers = [Buffer::new(dtype, values), Buffer::zeros(dtype, rows as usize)];
                    check(&kernel, &buffers, &[rows, length], tolerance);
                }
            }
        }
    }
}

#[test]
fn maxima_see_nan_and_infinities_anywhere() {
    for op in [ReduceOp::Max, ReduceOp::Min] {
        for at in 0..40 {
            for special in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let mut values = vec![1.0_f32; 40];
                values[at] = special;
                let kernel = reduction(op, DType::F32, Extent::Const(1), Extent::Const(40), false);
                check(&kernel, &[Buffer::f32(&values), Buffer::zeros(DType::F32, 1)], &[1, 40], 0);
            }
        }
    }
}

#[test]
fn long_sums_are_accurate() {
    let mut random = Random::new(6);
    let n = 2_000_003;
    let values: Vec<f32> = (0..n).map(|_| random.unit() as f32 + 1.0).collect();
    let kernel = reduction(ReduceOp::Sum, DType::F32, Extent::Const(1), Extent::Scalar(1), false);
    check(&kernel, &[Buffer::f32(&values), Buffer::zeros(DType::F32, 1)], &[1, n], 4);
}

/// Softmax of the sum of `x` and of a `bias` whose rows lie `apart`; `x` is where the result goes if `in_place`.
fn biased_softmax([rows, length, apart]: [i64; 3], in_place: bool) -> Kernel {
    let dims = vec![Extent::Const(rows), Extent::Const(length)];
    let mut k = Builder::new(&format!("biased_{rows}_{length}_{apart}_{in_place}"), dims, 1);
    let x = k.param(DType::F32, if in_place { Role::InOut } else { Role::In });
    let bias = k.param(DType::F32, Role::In);
    let y = if in_place { x } else { k.param(DType::F32, Role::Out) };
    let sum = |k: &mut Builder| {
        let (v, b) = (k.load(x, &[length, 1]), k.load(bias, &[1, apart]));
        let half = k.f32(0.5);
        let v = binary(k, Binary::Mul, v, half);
        binary(k, Binary::Add, v, b)
    };
    k.stage(Scope::Row);
    let v = sum(&mut k);
    let max = k.reduce(ReduceOp::Max, DType::F32, v);
    let exp = |k: &mut Builder| {
        let v = sum(k);
        let shifted = binary(k, Binary::Sub, v, max);
        k.inst(DType::F32, Op::Unary(Unary::Exp, shifted))
    };
    k.stage(Scope::Row);
    let e = exp(&mut k);
    let total = k.reduce(ReduceOp::Sum, DType::F32, e);
    k.stage(Scope::Row);
    let e = exp(&mut k);
    let p = binary(&mut k, Binary::Div, e, total);
    k.store(y, &[length, 1], p);
    k.kernel
}

#[test]
fn values_of_a_row_are_computed_once() {
    let mut random = Random::new(11);
    for in_place in [false, true] {
        for [rows, length] in [[1, 16], [5, 37], [3, 200]] {
            let kernel = biased_softmax([rows, length, 7], in_place);
            let mut kept = kernel.clone();
            crate::found::rows::keep(&mut kept);
            let count = |kernel: &Kernel, is: fn(&Op) -> bool| {
                kernel.stages.iter().flat_map(|stage| &stage.insts).filter(|inst| is(&inst.op)).count()
            };
            let exps = |kernel: &Kernel| count(kernel, |op| matches!(op, Op::Unary(Unary::Exp, _)));
            assert_eq!((exps(&kernel), exps(&kept)), (2, 1));
            assert_eq!(count(&kept, |op| matches!(op, Op::Load(access) if access.param == 1)), 1);
            let size = (rows * length) as usize;
            let bias = memory(&mut random, (rows + 7 * length) as usize);
            let mut buffers = vec![memory(&mut random, size), bias];
            buffers.extend((!in_place).then(|| memory(&mut random, size)));
            check(&kernel, &buffers, &[], 4);
        }
    }
}

#[test]
fn nothing_is_kept_where_it_would_be_overwritten_or_read() {
    let mut kernel = biased_softmax([4, 32, 4], true);
    let last = kernel.stages.len() - 1;
    // The last pass reads what the first one would have replaced.
    for inst in &mut kernel.stages[last].insts {
        if let Op::Binary(Binary::Sub, a, b) = inst.op {
            inst.op = Op::Binary(Binary::Add, a, b);
        }
    }
    let mut kept = kernel.clone();
    crate::found::rows::keep(&mut kept);
    let reads = |kernel: &Kernel, stage: usize| {
        let loads = kernel.stages[stage].insts.iter();
        loads.filter(|inst| matches!(&inst.op, Op::Load(access) if access.param == 0)).count()
    };
    assert!((0..=last).all(|stage| kept.stages[stage].stores.is_empty() || reads(&kept, stage) <= 1));
    let mut random = Random::new(12);
    check(&kernel, &[memory(&mut random, 128), memory(&mut random, 128)], &[], 64);
}

#[test]
fn softmax_in_three_stages() {
    let mut random = Random::new(7);
    for (rows, length) in [(3, 5), (2, 197), (9, 64), (64, 768), (1, 1)] {
        for symbolic in [false, true] {
            let extent = |value, i| if symbolic { Extent::Scalar(i) } else { Extent::Const(value) };
            let kernel = softmax(extent(rows, 0), extent(length, 1));
            let n = (rows * length) as usize;
            check(&kernel, &[memory(&mut random, n), Buffer::zeros(DType::F32, n)], &[rows, length], 8);
        }
    }
}

#[test]
fn layer_norm_in_five_stages() {
    let mut random = Random::new(8);
    for (rows, length) in [(3, 8), (5, 100), (128, 192)] {
        let n = (rows * length) as usize;
        // Away from zero, where the difference of the mean cancels: inputs in [1, 2), bias 8.
        let x: Vec<f32> = (0..n).map(|_| random.unit() as f32 * 0.5 + 1.5).collect();
        let ones = vec![1.0_f32; length as usize];
        let buffers = [
            Buffer::f32(&x),
            Buffer::f32(&ones),
            Buffer::f32(&vec![8.0; length as usize]),
            Buffer::zeros(DType::F32, n),
        ];
        check(&layer_norm(Extent::Scalar(0), length), &buffers, &[rows], 4);
    }
}

#[test]
fn rows_of_several_dimensions() {
    let mut random = Random::new(9);
    // Mean over height and width of a channels-last image, then subtracted.
    let (n, h, w, c) = (2, 5, 7, 19);
    let strides = [h * w * c, 1, w * c, c];
    let mut k = Builder::new("channel_mean", consts(&[n, c, h, w]), 2);
    let (x, y, m) = (k.param(DType::F32, Role::In), k.param(DType::F32, Role::Out), k.param(DType::F32, Role::Out));
    k.stage(Scope::Row);
    let v = k.load(x, &strides);
    let sum = k.reduce(ReduceOp::Sum, DType::F32, v);
    k.stage(Scope::Outer);
    let scale = k.f32(1.0 / 32.0);
    let mean = binary(&mut k, Binary::Mul, sum, scale);
    k.store(m, &[c, 1, 0, 0], mean);
    k.stage(Scope::Row);
    let v = k.load(x, &strides);
    let row = k.inst(DType::I64, Op::Index(2));
    let row = k.inst(DType::F32, Op::Cast(row));
    let eight = k.f32(8.0);
    let row = binary(&mut k, Binary::Add, row, eight);
    let product = binary(&mut k, Binary::Mul, v, row);
    let sum = binary(&mut k, Binary::Add, product, mean);
    k.store(y, &strides, sum);
    let size = (n * h * w * c) as usize;
    let x: Vec<f32> = (0..size).map(|_| random.unit() as f32 + 1.5).collect();
    let buffers = [Buffer::f32(&x), Buffer::zeros(DType::F32, size), Buffer::zeros(DType::F32, (n * c) as usize)];
    check(&k.kernel, &buffers, &[], 8);
}

#[test]
fn conditional_loads_never_touch_what_is_outside() {
    let mut random = Random::new(10);
    // A 3-wide window sum with zero padding: reads at index - 1, index, index + 1.
    for n in [1, 15, 16, 40, 65] {
        for stride in [1, 2] {
            let mut k = Builder::new("window", consts(&[3, n]), 1);
            let (x, y) = (k.param(DType::F32, Role::In), k.param(DType::F32, Role::Out));
            k.stage(Scope::Row);
            let index = k.inst(DType::I64, Op::Index(1));
            let mut sum = k.f32(0.0);
            let other = k.f32(-3.5);
            for shift in [-1, 0, 1] {
                let offset = k.inst(DType::I64, Op::Const(shift as u64));
                let at = k.inst(DType::I64, Op::Binary(Binary::Add, index, offset));
                let (zero, end) = (k.inst(DType::I64, Op::Const(0)), k.inst(DType::I64, Op::Const(n as u64)));
                let above = k.inst(DType::Bool, Op::Binary(Binary::Ge, at, zero));
                let below = k.inst(DType::Bool, Op::Binary(Binary::Lt, at, end));
                let cond = k.inst(DType::Bool, Op::Binary(Binary::And, above, below));
                let access =
                    Access { param: x, offset: Extent::Const(shift * stride), strides: consts(&[n * stride, stride]) };
                let v = k.inst(DType::F32, Op::LoadIf { cond, access, other });
                sum = binary(&mut k, Binary::Add, sum, v);
            }
            k.store(y, &[n, 1], sum);
            let buffers = [memory(&mut random, (3 * n * stride) as usize), Buffer::zeros(DType::F32, (3 * n) as usize)];
            check(&k.kernel, &buffers, &[], 0);
        }
    }
}

#[test]
fn in_place_and_half_precision() {
    let mut random = Random::new(11);
    for dtype in [DType::F16, DType::Bf16, DType::F64, DType::Bool] {
        let n = 45;
        let mut k = Builder::new(&format!("in_place_{}", dtype.short()), consts(&[n]), 0);
        let x = k.param(dtype, Role::InOut);
        k.stage(Scope::Row);
        let v = k.load(x, &[1]);
        let single = k.inst(DType::F32, Op::Cast(v));
        let three = k.f32(3.25);
        let product = binary(&mut k, Binary::Mul, single, three);
        let back = k.inst(dtype, Op::Cast(product));
        k.store(x, &[1], back);
        let values = (0..n).map(|_| {
            if dtype == DType::Bool { random.bits() & 1 } else { super::reference::from_f64(dtype, random.unit()) }
        });
        check(&k.kernel, &[Buffer::new(dtype, values.collect::<Vec<_>>())], &[], 0);
    }
}

#[test]
fn malformed_kernels_are_refused() {
    let generator = crate::llvm::Generator::new(flambeau_cpu_artifact::Isa::Avx2).unwrap();
    let refused = |kernel: &Kernel| crate::compile(kernel, flambeau_cpu_artifact::Isa::Avx2, &generator).unwrap_err();
    let good = combine(&[4, 4], 1, &[4, 1], &[4, 1], &[4, 1]);
    let mut wrong_type = good.clone();
    wrong_type.params[2].dtype = DType::F64;
    assert!(refused(&wrong_type).contains("store"), "{}", refused(&wrong_type));
    let mut wrong_param = good.clone();
    wrong_param.params.pop();
    assert!(refused(&wrong_param).contains("buffer 2"));
    let mut undefined = good.clone();
    undefined.stages[0].insts.remove(0);
    assert!(refused(&undefined).contains("not defined"));
    let mut outside = good;
    outside.outer = 3;
    assert!(refused(&outside).contains("outer"));
}

/// `out = a + turned * 2`, and the sum of both as bool, over all sizes of tiles and types; `out` lies as `turned` or as `a`.
#[test]
fn turned_tiles_of_every_size_and_type() {
    let mut random = Random::new(31);
    let cases = [
        ([16, 16], DType::F32),
        ([19, 37], DType::F32),
        ([64, 33], DType::U8),
        ([8, 100], DType::I64),
        ([35, 8], DType::F64),
        ([19, 37], DType::Bf16),
        ([48, 7], DType::F32),
    ];
    for (dims, dtype) in cases {
        let count = (dims[0] * dims[1]) as usize;
        for (out_turned, in_place) in [(false, false), (true, false), (true, true)] {
            let (straight, turned) = ([dims[1], 1], [1, dims[0]]);
            let mut k = Builder::new(&format!("turned_{dims:?}_{dtype:?}_{out_turned}_{in_place}"), consts(&dims), 2);
            let a = k.param(dtype, Role::In);
            let b = k.param(dtype, if in_place { Role::InOut } else { Role::In });
            let z = if in_place { b } else { k.param(dtype, Role::Out) };
            let flags = k.param(DType::Bool, Role::Out);
            k.stage(Scope::Row);
            let (v, w) = (k.load(a, &straight), k.load(b, &turned));
            let work = if dtype == DType::Bf16 { DType::F32 } else { dtype };
            let (v, w) = match dtype {
                DType::Bf16 => (k.inst(work, Op::Cast(v)), k.inst(work, Op::Cast(w))),
                _ => (v, w),
            };
            let twice = k.inst(work, Op::Binary(Binary::Add, w, w));
            let sum = k.inst(work, Op::Binary(Binary::Add, v, twice));
            let less = k.inst(DType::Bool, Op::Binary(Binary::Lt, v, w));
            let sum = if work == dtype { sum } else { k.inst(dtype, Op::Cast(sum)) };
            k.store(z, if out_turned { &turned } else { &straight }, sum);
            k.store(flags, &turned, less);
            let number = |i: i64| match dtype {
                DType::Bf16 => u64::from(((i * 37 + 11) % 60) as u16 + 0x3f00),
                _ => from_i64(dtype, (i * 37 + 11) % 60),
            };
            let filled = |from: i64| Buffer::new(dtype, (from..from + count as i64).map(number));
            let mut buffers = vec![filled(0), filled(7)];
            buffers.extend((!in_place).then(|| filled(3)));
            buffers.push(Buffer::zeros(DType::Bool, count));
            check(&k.kernel, &buffers, &[], 0);
        }
        let mut kernel = combine(&dims, 2, &[dims[1], 1], &[1, dims[0]], &[dims[1], 1]);
        kernel.dims = vec![Extent::Scalar(0), Extent::Scalar(1)];
        kernel.scalars = 2;
        let buffers = [memory(&mut random, count), memory(&mut random, count), memory(&mut random, count)];
        check(&kernel, &buffers, &[dims[0], dims[1]], 0);
    }
}

#[test]
fn columns_are_summed_in_long_pieces() {
    let mut random = Random::new(32);
    for (rows, columns) in [(1100, 512), (40, 300), (7, 1000), (2000, 16)] {
        let mut k = Builder::new(&format!("columns_{rows}_{columns}"), consts(&[columns, rows]), 1);
        let (x, w) = (k.param(DType::F32, Role::In), k.param(DType::F32, Role::In));
        let z = k.param(DType::F32, Role::Out);
        k.stage(Scope::Row);
        let (v, u) = (k.load(x, &[1, columns]), k.load(w, &[0, 1]));
        let product = k.inst(DType::F32, Op::Binary(Binary::Mul, v, u));
        let sum = k.reduce(ReduceOp::Sum, DType::F32, product);
        k.stage(Scope::Outer);
        k.store(z, &[1, 0], sum);
        let sizes = [rows * columns, rows, columns];
        let buffers =
            sizes.map(|n| Buffer::f32(&random.f32s(n as usize).iter().map(|v| v.abs().fract()).collect::<Vec<_>>()));
        check(&k.kernel, &buffers, &[], 64);
    }
}

/// `out = i < 11 ? turned : a`, and `turned + a` beside it: what is turned is read under a condition too.
#[test]
fn conditional_loads_in_turned_tiles() {
    let mut random = Random::new(33);
    for both in [false, true] {
        let mut k = Builder::new(&format!("turned_if_{both}"), consts(&[19, 37]), 2);
        let (a, b) = (k.param(DType::F32, Role::In), k.param(DType::F32, Role::In));
        let (z, y) = (k.param(DType::F32, Role::Out), k.param(DType::F32, Role::Out));
        k.stage(Scope::Row);
        let (index, limit) = (k.inst(DType::I64, Op::Index(0)), k.inst(DType::I64, Op::Const(11)));
        let cond = k.inst(DType::Bool, Op::Binary(Binary::Lt, index, limit));
        let v = k.load(a, &[37, 1]);
        let access = Access { param: b, offset: Extent::Const(0), strides: consts(&[1, 19]) };
        let w = k.inst(DType::F32, Op::LoadIf { cond, access, other: v });
        k.store(z, &[1, 19], w);
        let sum = if both {
            let whole = k.load(b, &[1, 19]);
            k.inst(DType::F32, Op::Binary(Binary::Add, whole, v))
        } else {
            v
        };
        k.store(y, &[37, 1], sum);
        let buffers = [0; 4].map(|_| memory(&mut random, 19 * 37));
        check(&k.kernel, &buffers, &[], 0);
    }
}

/// `out = a + a`, where elements of both lie next to each other in reverse or a few elements apart, in rows of all lengths.
#[test]
fn elements_a_few_apart_and_in_reverse() {
    let types = [DType::F32, DType::F64, DType::U8, DType::Bf16, DType::I64, DType::Bool];
    for (at, (from, to)) in
        [-2, -1, 1, 2, 3, 4, 5].into_iter().flat_map(|s| [-1, 1, 2, 3, 4].map(|t| (s, t))).enumerate()
    {
        let (dtype, length) = (types[at % types.len()], [70, 19, 33, 5][at % 4]);
        let span = |stride: i64| stride.abs() * (length - 1) + 1;
        let mut k = Builder::new(&format!("apart_{from}_{to}_{dtype:?}"), consts(&[3, length]), 1);
        let (a, z) = (k.param(dtype, Role::In), k.param(dtype, Role::Out));
        k.stage(Scope::Row);
        let first = |stride: i64| Extent::Const(if stride < 0 { span(stride) - 1 } else { 0 });
        let v = k.load_at(a, first(from), consts(&[span(from), from]));
        let v = match dtype {
            DType::Bool | DType::Bf16 => v,
            _ => k.inst(dtype, Op::Binary(Binary::Add, v, v)),
        };
        k.store_at(z, first(to), consts(&[span(to), to]), v);
        let number = |i: i64| match dtype {
            DType::Bf16 => u64::from(((i * 37 + 11) % 60) as u16 + 0x3f00),
            DType::Bool => u64::from(i % 3 == 0),
            _ => from_i64(dtype, (i * 37 + 11) % 60),
        };
        let buffers = [span(from), span(to)].map(|n| Buffer::new(dtype, (0..3 * n).map(number)));
        check(&k.kernel, &buffers, &[], 0);
    }
}
