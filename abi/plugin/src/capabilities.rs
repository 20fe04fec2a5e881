//! What a back end can compile, as data: lowering asks it before it fuses an op, the compile half checks it again.

use crate::kernel::{Binary, DType, Kernel, Op, ReduceOp, Unary};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Supported operations by operand dtype.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    /// Element types buffers may have.
    pub buffers: BTreeSet<DType>,
    /// Unary operations, by the operand's type.
    pub unary: BTreeSet<(Unary, DType)>,
    /// Binary operations, by the operands' type.
    pub binary: BTreeSet<(Binary, DType)>,
    /// Casts, from and to.
    pub casts: BTreeSet<(DType, DType)>,
    /// Reductions, by the accumulator's type.
    pub reduces: BTreeSet<(ReduceOp, DType)>,
}

impl Capabilities {
    /// The capabilities in a [`crate::Description`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, postcard::Error> {
        postcard::from_bytes(bytes)
    }

    /// The form that a [`crate::Description`] holds.
    pub fn to_bytes(&self) -> Vec<u8> {
        postcard::to_stdvec(self).unwrap_or_default()
    }

    /// Checks every operation of a kernel; the error names the first one that is missing. Also an error: a value that
    /// is used before it is defined.
    pub fn check(&self, kernel: &Kernel) -> Result<(), String> {
        let mut types = BTreeMap::new();
        for (i, param) in kernel.params.iter().enumerate() {
            if !self.buffers.contains(&param.dtype) {
                return Err(format!("buffer {i} has type {}", param.dtype.short()));
            }
        }
        for stage in &kernel.stages {
            for inst in &stage.insts {
                let type_of =
                    |id| types.get(&id).copied().ok_or_else(|| format!("value {id:?} is used but not defined"));
                let missing = match &inst.op {
                    Op::Unary(op, a) => {
                        let dtype = type_of(*a)?;
                        (!self.unary.contains(&(*op, dtype))).then(|| format!("{op:?} of {}", dtype.short()))
                    }
                    Op::Binary(op, a, b) => {
                        let dtype = type_of(*a)?;
                        type_of(*b)?;
                        (!self.binary.contains(&(*op, dtype))).then(|| format!("{op:?} of {}", dtype.short()))
                    }
                    Op::Cast(a) => {
                        let dtype = type_of(*a)?;
                        let known = self.casts.contains(&(dtype, inst.dtype));
                        (!known).then(|| format!("cast from {} to {}", dtype.short(), inst.dtype.short()))
                    }
                    Op::Load(_) | Op::LoadIf { .. } | Op::Const(_) | Op::Scalar(_) | Op::Index(_) | Op::Select(..) => {
                        None
                    }
                };
                if let Some(what) = missing {
                    return Err(format!("the back end has no {what}"));
                }
                types.insert(inst.id, inst.dtype);
            }
            for reduce in &stage.reduces {
                if !self.reduces.contains(&(reduce.op, reduce.dtype)) {
                    return Err(format!("the back end has no {:?} reduction of {}", reduce.op, reduce.dtype.short()));
                }
                types.insert(reduce.id, reduce.dtype);
            }
        }
        Ok(())
    }
}
