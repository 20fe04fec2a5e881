//! Which reductions are found a pass earlier than the kernel says, and which are not.

use super::build::{Builder, consts};
use super::functions;
use super::norms::{binary, layer_norm, softmax};
use super::rows::{logsumexp, variance};
use crate::source;
use flambeau_cuda_artifact::Launch;
use flambeau_plugin::kernel::{Binary, DType, Extent, Kernel, Op, ReduceOp, Role, Scope, Unary};

/// More than registers hold.
const LENGTH: i64 = 65536;

/// The kinds of reductions that a function finds in an earlier pass, and how often it goes over the rows.
fn passes(text: &str, entry: &str) -> (&'static str, usize) {
    let start = text.find(&format!("{entry}(")).unwrap_or_else(|| panic!("no {entry}"));
    let body = &text[start..];
    let body = &body[..body.find("extern \"C\"").unwrap_or(body.len())];
    let kinds = ["Spread<", "Exponentials<"].map(|kind| body.contains(&format!("{kind}float> a")));
    let kind = match kinds {
        [false, false] => "none",
        [true, false] => "spread",
        [false, true] => "exponentials",
        [true, true] => "both",
    };
    (kind, body.matches("element = ").count())
}

/// Of all launches: those that are right for all arguments, and the fast ones.
fn all_passes(kernel: &Kernel) -> [Vec<(&'static str, usize)>; 2] {
    let source = source(kernel, "sm_90").unwrap();
    let of = |launches: &[Launch]| launches.iter().map(|launch| passes(&source.text, &launch.entry)).collect();
    [of(&source.header.plain), source.header.fast.as_ref().map_or_else(Vec::new, |fast| of(&fast.launches))]
}

#[test]
fn long_rows_are_read_once_for_two_reductions() {
    let (rows, length) = (1000, Extent::Const(LENGTH));
    let one = |kind, passes| [vec![(kind, passes)], vec![(kind, passes)]];
    assert_eq!(all_passes(&variance(rows, LENGTH, &[LENGTH, 1])), one("spread", 1));
    assert_eq!(all_passes(&layer_norm(Extent::Const(rows), LENGTH)), one("spread", 2));
    assert_eq!(all_passes(&logsumexp(rows, LENGTH)), one("exponentials", 1));
    assert_eq!(all_passes(&softmax(Extent::Const(rows), length)), one("exponentials", 2));
    assert_eq!(all_passes(&softmax(Extent::Scalar(0), Extent::Scalar(1))), one("exponentials", 2));
    assert_eq!(all_passes(&variance(1000, 1 << 20, &[1, 1000])), [vec![("spread", 1), ("spread", 0)], vec![]]);
}

#[test]
fn rows_that_blocks_share_take_a_launch_less() {
    let kernel = softmax(Extent::Const(4), Extent::Const(LENGTH));
    let both = vec![("exponentials", 1); 2];
    assert_eq!(all_passes(&kernel), [both.clone(), both]);
    let header = source(&kernel, "sm_90").unwrap().header;
    assert_eq!(header.plain.iter().map(|launch| launch.grid(&[0; 2])).collect::<Vec<_>>(), [32, 32]);
    // A maximum, and of the exponentials a maximum and a sum in f32: 8 bytes each.
    assert_eq!(header.scratch.unwrap().value(&[0; 2]), 2 * 8 * 32);
    let header = source(&variance(4, LENGTH, &[LENGTH, 1]), "sm_90").unwrap().header;
    assert_eq!(header.scratch.unwrap().value(&[]), 3 * 8 * 32);
}

#[test]
fn rows_in_registers_stay_as_the_kernel_has_them() {
    for length in [256, 1000, 8192, 32_768] {
        for kernel in [softmax(Extent::Const(1000), Extent::Const(length)), layer_norm(Extent::Const(1000), length)] {
            let [plain, fast] = all_passes(&kernel);
            // One that reads what is kept, and the three of the kernel.
            assert_eq!(fast, [("none", 4)], "{length}");
            // Keeps nothing, as it is short.
            assert_eq!(plain[0].1, 2, "{length}");
        }
    }
    // There is no other form of it.
    let kernel = softmax(Extent::Const(1000), Extent::Const(999));
    assert_eq!(all_passes(&kernel), [vec![("none", 4)], vec![]]);
    assert!(!source(&kernel, "sm_90").unwrap().text.contains("Spread"), "what is not needed is not compiled");
}

/// What is other than in a variance, or nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    Nothing,
    /// The mean is the sum times a constant.
    Factor,
    /// Both passes double the element, with a constant of their own.
    BothDouble,
    /// The second one does.
    SecondDoubles,
    Buffer,
    Place,
    LoadedMean,
    MeanOfOther,
    NegativeCount,
    RoundedMean,
    /// It is computed for each element.
    MeanOfElement,
    OtherProduct,
    Store,
    Reduction,
    InPlace,
    WrittenBetween,
    WrittenWithFirst,
}

/// What many rows are off their mean.
fn squares(change: Change) -> Kernel {
    use Change::*;
    let mut k = Builder::new("squares", consts(&[1000, LENGTH]), 1);
    let role = if matches!(change, InPlace | WrittenBetween | WrittenWithFirst) { Role::InOut } else { Role::In };
    let (x, other) = (k.param(DType::F32, role), k.param(DType::F32, Role::In));
    let (y, z) = (k.param(DType::F32, Role::Out), k.param(DType::F32, Role::Out));
    let strides = [LENGTH, 1];
    let double = |k: &mut Builder, v| {
        let two = k.f32(2.0);
        binary(k, Binary::Mul, v, two)
    };
    k.stage(Scope::Row);
    let mut v = k.load(x, &strides);
    if change == BothDouble {
        v = double(&mut k, v);
    }
    if change == WrittenWithFirst {
        k.store(x, &strides, v);
    }
    let sum = k.reduce(ReduceOp::Sum, DType::F32, v);
    let w = k.load(other, &strides);
    let other_sum = k.reduce(ReduceOp::Sum, DType::F32, w);
    k.stage(Scope::Outer);
    let count = if change == NegativeCount { -LENGTH } else { LENGTH };
    let n = k.f32(count as f32);
    let mut mean = match change {
        LoadedMean => k.load(other, &[1, 0]),
        MeanOfOther => binary(&mut k, Binary::Div, other_sum, n),
        Factor => binary(&mut k, Binary::Mul, n, sum),
        _ => binary(&mut k, Binary::Div, sum, n),
    };
    if change == RoundedMean {
        mean = k.inst(DType::Bf16, Op::Cast(mean));
        mean = k.inst(DType::F32, Op::Cast(mean));
    }
    if change == WrittenBetween {
        k.stage(Scope::Row);
        let v = k.load(x, &strides);
        let doubled = double(&mut k, v);
        k.store(x, &strides, doubled);
    }
    k.stage(Scope::Row);
    let place = Extent::Const(if change == Place { 4 } else { 0 });
    let mut v = k.load_at(if change == Buffer { other } else { x }, place, consts(&strides));
    if matches!(change, BothDouble | SecondDoubles) {
        v = double(&mut k, v);
    }
    if change == MeanOfElement {
        mean = binary(&mut k, Binary::Div, sum, n);
    }
    let off = binary(&mut k, Binary::Sub, v, mean);
    let square = binary(&mut k, Binary::Mul, off, if change == OtherProduct { v } else { off });
    if change == Store {
        k.store(z, &strides, off);
    }
    let greatest = (change == Reduction).then(|| k.reduce(ReduceOp::Max, DType::F32, off));
    let squares = k.reduce(ReduceOp::Sum, DType::F32, square);
    k.stage(Scope::Outer);
    k.store(y, &[1, 0], squares);
    if let Some(greatest) = greatest {
        k.store(z, &[1, 0], greatest);
    }
    if change == InPlace {
        k.stage(Scope::Row);
        let v = k.load(x, &strides);
        let off = binary(&mut k, Binary::Sub, v, squares);
        k.store(x, &strides, off);
    }
    k.kernel
}

#[test]
fn only_squares_of_the_same_elements_off_their_own_mean_are_found_earlier() {
    use Change::*;
    let kinds = |change| all_passes(&squares(change)).map(|launches| launches[0]);
    for change in [Nothing, Factor, BothDouble] {
        assert_eq!(kinds(change), [("spread", 1); 2], "{change:?}");
    }
    let others = [SecondDoubles, Buffer, Place, LoadedMean, MeanOfOther, NegativeCount, RoundedMean, OtherProduct];
    for change in [&others[..], &[MeanOfElement, Store, Reduction]].concat() {
        assert_eq!(kinds(change), [("none", 2); 2], "{change:?}");
    }
}

#[test]
fn what_a_stage_writes_is_not_what_was_there_before() {
    use Change::{InPlace, WrittenBetween, WrittenWithFirst};
    let kinds = |change| all_passes(&squares(change)).map(|launches| launches[0]);
    assert_eq!(kinds(InPlace), [("spread", 2); 2]);
    assert_eq!(kinds(WrittenWithFirst), [("none", 2); 2]);
    assert_eq!(kinds(WrittenBetween), [("none", 3); 2]);
}

/// The sum of exponentials of what many rows are above what a reduction gives, or above half of that.
fn exponentials(op: ReduceOp, half: bool) -> Kernel {
    let mut k = Builder::new("exponentials", consts(&[1000, LENGTH]), 1);
    let (x, y) = (k.param(DType::F32, Role::In), k.param(DType::F32, Role::Out));
    k.stage(Scope::Row);
    let v = k.load(x, &[LENGTH, 1]);
    let mut from = k.reduce(op, DType::F32, v);
    if half {
        k.stage(Scope::Outer);
        let factor = k.f32(0.5);
        from = binary(&mut k, Binary::Mul, from, factor);
    }
    k.stage(Scope::Row);
    let v = k.load(x, &[LENGTH, 1]);
    let above = binary(&mut k, Binary::Sub, v, from);
    let raised = k.inst(DType::F32, Op::Unary(Unary::Exp, above));
    let sum = k.reduce(ReduceOp::Sum, DType::F32, raised);
    k.stage(Scope::Outer);
    k.store(y, &[1, 0], sum);
    k.kernel
}

#[test]
fn only_exponentials_above_the_maximum_are_found_earlier() {
    let kinds = |op, half| all_passes(&exponentials(op, half)).map(|launches| launches[0]);
    assert_eq!(kinds(ReduceOp::Max, false), [("exponentials", 1); 2]);
    for (op, half) in [(ReduceOp::Max, true), (ReduceOp::Min, false), (ReduceOp::Sum, false)] {
        assert_eq!(kinds(op, half), [("none", 2); 2], "{op:?} {half}");
    }
}

#[test]
fn a_stage_that_is_gone_finds_nothing_for_later_ones() {
    // The squares' own variance: their sum is not found in a pass of its own any more.
    let mut k = Builder::new("squares of squares", consts(&[1000, LENGTH]), 1);
    let (x, y) = (k.param(DType::F32, Role::In), k.param(DType::F32, Role::Out));
    let mut means = Vec::new();
    for _ in 0..3 {
        k.stage(Scope::Row);
        let mut v = k.load(x, &[LENGTH, 1]);
        for mean in &means {
            let off = binary(&mut k, Binary::Sub, v, *mean);
            v = binary(&mut k, Binary::Mul, off, off);
        }
        let sum = k.reduce(ReduceOp::Sum, DType::F32, v);
        k.stage(Scope::Outer);
        let n = k.f32(LENGTH as f32);
        means.push(binary(&mut k, Binary::Div, sum, n));
    }
    k.store(y, &[1, 0], means[2]);
    assert_eq!(all_passes(&k.kernel).map(|launches| launches[0]), [("spread", 2); 2]);
}

/// The variances of many buffers' columns in f64.
fn variances(buffers: usize) -> Kernel {
    let mut k = Builder::new("variances", consts(&[1000, LENGTH]), 1);
    let inputs: Vec<u32> = (0..buffers).map(|_| k.param(DType::F64, Role::In)).collect();
    let outputs: Vec<u32> = (0..buffers).map(|_| k.param(DType::F64, Role::Out)).collect();
    let two = |k: &mut Builder, op, a, b| k.inst(DType::F64, Op::Binary(op, a, b));
    k.stage(Scope::Row);
    let read: Vec<_> = inputs.iter().map(|x| k.load(*x, &[1, 1000])).collect();
    let sums: Vec<_> = read.into_iter().map(|v| k.reduce(ReduceOp::Sum, DType::F64, v)).collect();
    k.stage(Scope::Outer);
    let n = k.inst(DType::F64, Op::Const((LENGTH as f64).to_bits()));
    let means: Vec<_> = sums.into_iter().map(|sum| two(&mut k, Binary::Div, sum, n)).collect();
    let mut squares = Vec::new();
    for (x, mean) in inputs.iter().zip(means) {
        k.stage(Scope::Row);
        let v = k.load(*x, &[1, 1000]);
        let off = two(&mut k, Binary::Sub, v, mean);
        let square = two(&mut k, Binary::Mul, off, off);
        squares.push(k.reduce(ReduceOp::Sum, DType::F64, square));
    }
    k.stage(Scope::Outer);
    outputs.iter().zip(squares).for_each(|(y, total)| k.store(*y, &[1, 0], total));
    k.kernel
}

#[test]
fn as_many_are_found_earlier_as_there_is_memory_to_share() {
    for (buffers, joined) in [(1, 1), (4, 4), (5, 3), (10, 0)] {
        let text = functions(&variances(buffers));
        let first = text.split("extern").nth(1).unwrap();
        let shared = first.lines().filter_map(|line| line.trim().strip_prefix("__shared__ "));
        let sizes = shared.map(|line| (if line.starts_with("Spread<double>") { 32 } else { 8 }, line));
        let bytes = |(each, line): (usize, &str)| {
            let count = &line[line.find('[').unwrap() + 1..line.find(']').unwrap()];
            each * count.parse::<usize>().unwrap()
        };
        let all: usize = sizes.map(bytes).sum();
        assert!(all <= 48 << 10, "{buffers}: {all}");
        assert_eq!(first.matches("Spread<double> a").count(), joined, "{buffers}");
    }
}
