//! Softmax and layer norm as kernels, for the tests and for the example that times them.

use super::build::Builder;
use flambeau_plugin::kernel::{Binary, DType, Extent, Kernel, Op, ReduceOp, Role, Scope, Unary, ValueId};

/// One operation on two f32 values.
pub fn binary(k: &mut Builder, op: Binary, a: ValueId, b: ValueId) -> ValueId {
    k.inst(DType::F32, Op::Binary(op, a, b))
}

/// Softmax over the last dimension: three passes over the row.
pub fn softmax(rows: Extent, length: Extent) -> Kernel {
    let mut k = Builder::new("softmax", vec![rows, length], 1);
    k.kernel.scalars = 2;
    let (x, y) = (k.param(DType::F32, Role::In), k.param(DType::F32, Role::Out));
    let strides = vec![length, Extent::Const(1)];
    let load = |k: &mut Builder| k.load_at(x, Extent::Const(0), strides.clone());
    k.stage(Scope::Row);
    let v = load(&mut k);
    let max = k.reduce(ReduceOp::Max, DType::F32, v);
    k.stage(Scope::Row);
    let v = load(&mut k);
    let shifted = binary(&mut k, Binary::Sub, v, max);
    let e = k.inst(DType::F32, Op::Unary(Unary::Exp, shifted));
    let sum = k.reduce(ReduceOp::Sum, DType::F32, e);
    k.stage(Scope::Row);
    let v = load(&mut k);
    let shifted = binary(&mut k, Binary::Sub, v, max);
    let e = k.inst(DType::F32, Op::Unary(Unary::Exp, shifted));
    let p = binary(&mut k, Binary::Div, e, sum);
    k.store_at(y, Extent::Const(0), strides.clone(), p);
    k.kernel
}

/// Layer norm over the last dimension with weight and bias.
pub fn layer_norm(rows: Extent, length: i64) -> Kernel {
    let mut k = Builder::new("layer_norm", vec![rows, Extent::Const(length)], 1);
    k.kernel.scalars = 1;
    let x = k.param(DType::F32, Role::In);
    let (weight, bias) = (k.param(DType::F32, Role::In), k.param(DType::F32, Role::In));
    let y = k.param(DType::F32, Role::Out);
    k.stage(Scope::Row);
    let v = k.load(x, &[length, 1]);
    let sum = k.reduce(ReduceOp::Sum, DType::F32, v);
    k.stage(Scope::Outer);
    let n = k.f32(1.0 / length as f32);
    let mean = binary(&mut k, Binary::Mul, sum, n);
    k.stage(Scope::Row);
    let v = k.load(x, &[length, 1]);
    let centred = binary(&mut k, Binary::Sub, v, mean);
    let square = binary(&mut k, Binary::Mul, centred, centred);
    let squares = k.reduce(ReduceOp::Sum, DType::F32, square);
    k.stage(Scope::Outer);
    let variance = binary(&mut k, Binary::Mul, squares, n);
    let epsilon = k.f32(1e-5);
    let safe = binary(&mut k, Binary::Add, variance, epsilon);
    let scale = k.inst(DType::F32, Op::Unary(Unary::Rsqrt, safe));
    k.stage(Scope::Row);
    let v = k.load(x, &[length, 1]);
    let centred = binary(&mut k, Binary::Sub, v, mean);
    let scaled = binary(&mut k, Binary::Mul, centred, scale);
    let w = k.load(weight, &[0, 1]);
    let scaled = binary(&mut k, Binary::Mul, scaled, w);
    let b = k.load(bias, &[0, 1]);
    let shifted = binary(&mut k, Binary::Add, scaled, b);
    k.store(y, &[length, 1], shifted);
    k.kernel
}
