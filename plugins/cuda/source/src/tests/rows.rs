//! Kernels whose rows are read once for two reductions, for the tests of the text and of what NVRTC makes of it.

use super::build::Builder;
use super::norms::binary;
use flambeau_plugin::kernel::{Binary, DType, Extent, Kernel, Op, ReduceOp, Role, Scope, Unary};

/// The variance of each row, whose elements lie so far apart.
pub fn variance(rows: i64, length: i64, strides: &[i64]) -> Kernel {
    let mut k = Builder::new("variance", [rows, length].map(Extent::Const).to_vec(), 1);
    let (x, y) = (k.param(DType::F32, Role::In), k.param(DType::F32, Role::Out));
    k.stage(Scope::Row);
    let v = k.load(x, strides);
    let sum = k.reduce(ReduceOp::Sum, DType::F32, v);
    k.stage(Scope::Outer);
    let n = k.f32(length as f32);
    let mean = binary(&mut k, Binary::Div, sum, n);
    k.stage(Scope::Row);
    let v = k.load(x, strides);
    let off = binary(&mut k, Binary::Sub, v, mean);
    let square = binary(&mut k, Binary::Mul, off, off);
    let squares = k.reduce(ReduceOp::Sum, DType::F32, square);
    k.stage(Scope::Outer);
    let variance = binary(&mut k, Binary::Div, squares, n);
    k.store(y, &[1, 0], variance);
    k.kernel
}

/// The logarithm of each row's sum of exponentials, of elements in bf16. An infinite maximum counts as 0.
pub fn logsumexp(rows: i64, length: i64) -> Kernel {
    let mut k = Builder::new("logsumexp", [rows, length].map(Extent::Const).to_vec(), 1);
    let (x, y) = (k.param(DType::Bf16, Role::In), k.param(DType::F32, Role::Out));
    let load = |k: &mut Builder| {
        let v = k.load(x, &[length, 1]);
        k.inst(DType::F32, Op::Cast(v))
    };
    k.stage(Scope::Row);
    let v = load(&mut k);
    let most = k.reduce(ReduceOp::Max, DType::F32, v);
    k.stage(Scope::Outer);
    let zero = k.f32(0.0);
    let infinite = k.inst(DType::Bool, Op::Unary(Unary::IsInf, most));
    let from = k.inst(DType::F32, Op::Select(infinite, zero, most));
    k.stage(Scope::Row);
    let v = load(&mut k);
    let above = binary(&mut k, Binary::Sub, v, from);
    let raised = k.inst(DType::F32, Op::Unary(Unary::Exp, above));
    let sum = k.reduce(ReduceOp::Sum, DType::F32, raised);
    k.stage(Scope::Outer);
    let log = k.inst(DType::F32, Op::Unary(Unary::Log, sum));
    let result = binary(&mut k, Binary::Add, log, from);
    k.store(y, &[1, 0], result);
    k.kernel
}
