//! How long a kernel takes, roughly: whether a second thread is worth waking. Measured on one core of a server CPU.

use crate::nest::Nest;
use crate::strided::NEAR;
use crate::tile::is_turned;
use flambeau_plugin::kernel::{Access, Binary, Extent, Inst, Kernel, Op, Stage, Unary};

/// Picoseconds of an access to one element of a tile that is turned.
const TURNED_PS: u32 = 150;

/// Picoseconds of one point of the iteration space.
pub fn point_ps(nest: &Nest) -> u32 {
    let kernel = &nest.kernel;
    let turned = |access: &Access| nest.tiled.is_some_and(|other| is_turned(access, nest.vector_dim(), other));
    let of_stage = |stage: &Stage| {
        let of_inst = |inst: &Inst| match &inst.op {
            Op::Load(access) if turned(access) => TURNED_PS,
            _ => inst_ps(kernel, inst),
        };
        let of_access = |access: &Access| if turned(access) { TURNED_PS } else { access_ps(kernel, access) };
        let insts = stage.insts.iter().map(of_inst).sum::<u32>();
        let stores = stage.stores.iter().map(|store| of_access(&store.access)).sum::<u32>();
        insts + stores + 20 * stage.reduces.len() as u32
    };
    20 + kernel.stages.iter().map(of_stage).sum::<u32>()
}

/// Picoseconds of an access to one element.
pub fn access_ps(kernel: &Kernel, access: &Access) -> u32 {
    match access.strides.last() {
        Some(Extent::Const(0)) => 1,
        Some(Extent::Const(-1 | 1)) => 20 * kernel.params[access.param as usize].dtype.size() as u32,
        Some(Extent::Const(stride)) if NEAR.contains(stride) => 150,
        _ => 500,
    }
}

/// Picoseconds of an instruction.
pub fn inst_ps(kernel: &Kernel, inst: &Inst) -> u32 {
    match &inst.op {
        Op::Load(access) | Op::LoadIf { access, .. } => access_ps(kernel, access),
        Op::Unary(op, _) => unary_ps(*op),
        Op::Binary(Binary::Pow, ..) => 1500,
        Op::Binary(Binary::Rem | Binary::Fmod | Binary::Atan2, ..) if inst.dtype.is_float() => 500,
        Op::Binary(Binary::Div | Binary::TruncDiv, ..) if inst.dtype.is_float() => 100,
        Op::Binary(Binary::FloorDiv | Binary::TruncDiv | Binary::Rem | Binary::Fmod, ..) => 2000,
        Op::Binary(..) | Op::Select(..) | Op::Cast(_) => 10 * inst.dtype.size().max(4) as u32 / 4,
        Op::Const(_) | Op::Scalar(_) | Op::Index(_) => 1,
    }
}

fn unary_ps(op: Unary) -> u32 {
    match op {
        Unary::Neg | Unary::Abs | Unary::Sign | Unary::Not | Unary::BitNot | Unary::IsNan | Unary::IsInf => 10,
        Unary::Floor | Unary::Ceil | Unary::Round | Unary::Trunc => 20,
        Unary::Reciprocal => 100,
        Unary::Tan | Unary::Sinh | Unary::Cosh | Unary::Asinh | Unary::Acosh | Unary::Atanh => 800,
        Unary::Sin | Unary::Cos => 350,
        _ => 250,
    }
}
