//! How long a kernel takes, roughly: whether a second thread is worth waking. Measured on one core of a server CPU.

use flambeau_plugin::kernel::{Binary, DType, Extent, Kernel, Op, Unary};

/// Picoseconds of one point of the iteration space.
pub fn point_ps(kernel: &Kernel) -> u32 {
    let last = kernel.dims.len().saturating_sub(1);
    let access = |strides: &[Extent], dtype: DType| match strides.get(last) {
        Some(Extent::Const(0)) => 1,
        Some(Extent::Const(1)) => 20 * dtype.size() as u32,
        _ => 500,
    };
    let mut ps = 20;
    for stage in &kernel.stages {
        for inst in &stage.insts {
            ps += match &inst.op {
                Op::Load(a) | Op::LoadIf { access: a, .. } => access(&a.strides, inst.dtype),
                Op::Unary(op, _) => unary_ps(*op),
                Op::Binary(Binary::Pow, ..) => 1500,
                Op::Binary(Binary::Div | Binary::TruncDiv, ..) if inst.dtype.is_float() => 100,
                Op::Binary(Binary::FloorDiv | Binary::TruncDiv | Binary::Rem | Binary::Fmod, ..) => 2000,
                Op::Binary(..) | Op::Select(..) | Op::Cast(_) => 10 * inst.dtype.size().max(4) as u32 / 4,
                Op::Const(_) | Op::Scalar(_) | Op::Index(_) => 1,
            };
        }
        for store in &stage.stores {
            let dtype = kernel.params[store.access.param as usize].dtype;
            ps += access(&store.access.strides, dtype);
        }
        ps += 20 * stage.reduces.len() as u32;
    }
    ps
}

fn unary_ps(op: Unary) -> u32 {
    match op {
        Unary::Neg | Unary::Abs | Unary::Sign | Unary::Not | Unary::BitNot | Unary::IsNan | Unary::IsInf => 10,
        Unary::Floor | Unary::Ceil | Unary::Round | Unary::Trunc => 20,
        Unary::Reciprocal => 100,
        Unary::Sin | Unary::Cos | Unary::Tan => 800,
        _ => 250,
    }
}
