//! Values of the error function in single precision that are only added to 1, as GELU does: what they are off by beside zero does
//! not matter, and a cheaper approximation will do.

use crate::found::horner::uses;
use flambeau_plugin::kernel::{Binary, DType, Inst, Kernel, Op, Unary, ValueId};
use std::collections::{HashMap, HashSet};

/// These values.
pub fn erfs(kernel: &Kernel) -> HashSet<ValueId> {
    let insts = || kernel.stages.iter().flat_map(|s| &s.insts);
    let is_one = |inst: &&Inst| inst.dtype == DType::F32 && inst.op == Op::Const(1.0_f32.to_bits().into());
    let ones: HashSet<ValueId> = insts().filter(is_one).map(|inst| inst.id).collect();
    let uses = uses(kernel);
    let mut sums: HashMap<ValueId, u32> = HashMap::new();
    for inst in insts() {
        if let Op::Binary(Binary::Add, a, b) = inst.op {
            *sums.entry(a).or_default() += u32::from(ones.contains(&b));
            *sums.entry(b).or_default() += u32::from(ones.contains(&a));
        }
    }
    let only_sums = |id: &ValueId| uses.get(id).is_some_and(|u| sums.get(id) == Some(&u.all));
    let erfs = insts().filter(|inst| inst.dtype == DType::F32 && matches!(inst.op, Op::Unary(Unary::Erf, _)));
    erfs.map(|inst| inst.id).filter(only_sums).collect()
}
