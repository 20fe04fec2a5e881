//! Kernels that differ only in sizes become one kernel that takes those sizes as scalars: fewer to compile, a faster
//! first call. Strides of the innermost dimension stay fixed, so that contiguous access stays visible.

use flambeau_ir::dim::Dim;
use flambeau_ir::kernel::{Access, Extent, Kernel, Op};
use flambeau_ir::plan::{Plan, PlanKernel, PlanStep};
use std::collections::HashMap;

/// Merges kernels of equal structure. Launches get the sizes in which theirs differed as further scalars.
pub fn generalise(plan: &mut Plan, kernels: &mut Vec<Kernel>) {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut known: HashMap<Kernel, usize> = HashMap::new();
    for (at, kernel) in kernels.iter().enumerate() {
        let mut shape = kernel.clone();
        shape.name = String::new();
        // A value that no size has: a stride of zero is part of the structure.
        sizes(&mut shape, &mut |extent| *extent = Extent::Const(i64::MIN));
        let next = groups.len();
        let group = *known.entry(shape).or_insert(next);
        if group == next {
            groups.push(Vec::new());
        }
        groups[group].push(at);
    }
    let mut merged = Vec::with_capacity(groups.len());
    let mut place: Vec<(u32, Vec<Dim>)> = vec![(0, vec![]); kernels.len()];
    for group in &groups {
        let (kernel, extra) = merge(kernels, group);
        for (member, values) in group.iter().zip(extra) {
            place[*member] = (merged.len() as u32, values.into_iter().map(Dim::Const).collect());
        }
        merged.push(kernel);
    }
    for step in &mut plan.steps {
        if let PlanStep::Launch { kernel, scalars, .. } = step {
            let (to, extra) = &place[*kernel as usize];
            *kernel = *to;
            scalars.extend(extra.iter().cloned());
        }
    }
    plan.kernels = merged.iter().map(PlanKernel::of).collect();
    *kernels = merged;
}

/// The kernel for all members of a group, and each member's values of the added scalars.
fn merge(kernels: &[Kernel], group: &[usize]) -> (Kernel, Vec<Vec<i64>>) {
    let mut kernel = kernels[group[0]].clone();
    let lists: Vec<Vec<i64>> = group.iter().map(|at| constants(&kernels[*at])).collect();
    let columns = lists[0].len();
    let mut added: Vec<Vec<i64>> = Vec::new();
    let mut of: Vec<Option<u32>> = Vec::with_capacity(columns);
    for c in 0..columns {
        let column: Vec<i64> = lists.iter().map(|l| l[c]).collect();
        if column.iter().all(|v| *v == column[0]) {
            of.push(None);
            continue;
        }
        let at = added.iter().position(|a| *a == column).unwrap_or_else(|| {
            added.push(column);
            added.len() - 1
        });
        of.push(Some(kernel.scalars + at as u32));
    }
    let mut c = 0;
    sizes(&mut kernel, &mut |extent| {
        if let Some(scalar) = of[c] {
            *extent = Extent::Scalar(scalar);
        }
        c += 1;
    });
    kernel.scalars += added.len() as u32;
    let extra = (0..group.len()).map(|member| added.iter().map(|column| column[member]).collect()).collect();
    (kernel, extra)
}

fn constants(kernel: &Kernel) -> Vec<i64> {
    let mut kernel = kernel.clone();
    let mut out = Vec::new();
    sizes(&mut kernel, &mut |extent| {
        if let Extent::Const(c) = extent {
            out.push(*c);
        }
    });
    out
}

/// Calls `visit` with every constant size that may differ between kernels of one structure, in a fixed order.
fn sizes(kernel: &mut Kernel, visit: &mut impl FnMut(&mut Extent)) {
    let mut one = |extent: &mut Extent| {
        if matches!(extent, Extent::Const(_)) {
            visit(extent);
        }
    };
    kernel.dims.iter_mut().for_each(&mut one);
    let mut access = |access: &mut Access| {
        one(&mut access.offset);
        let inner = access.strides.len().saturating_sub(1);
        // Zero and one are no sizes: a broadcast stays a broadcast, neighbours stay neighbours.
        access.strides[..inner].iter_mut().filter(|s| !matches!(s, Extent::Const(0 | 1))).for_each(&mut one);
    };
    for stage in &mut kernel.stages {
        for inst in &mut stage.insts {
            if let Op::Load(at) | Op::LoadIf { access: at, .. } = &mut inst.op {
                access(at);
            }
        }
        stage.stores.iter_mut().for_each(|s| access(&mut s.access));
    }
}

#[cfg(test)]
mod tests {
    use super::generalise;
    use flambeau_ir::kernel::{Access, DType, Extent, Inst, Kernel, Op, Scope, Stage, Store, ValueId};
    use flambeau_ir::plan::Plan;

    /// Copies a tensor of these strides into a contiguous 8 by 16 by 32 one.
    fn copy(strides: [i64; 3]) -> Kernel {
        let extents = |v: [i64; 3]| v.into_iter().map(Extent::Const).collect::<Vec<_>>();
        let access = |param, strides| Access { param, offset: Extent::Const(0), strides: extents(strides) };
        let inst = Inst { id: ValueId(0), dtype: DType::F32, op: Op::Load(access(0, strides)) };
        let store = Store { access: access(1, [512, 32, 1]), value: ValueId(0) };
        let stage = Stage { scope: Scope::Row, insts: vec![inst], stores: vec![store], reduces: vec![] };
        Kernel {
            name: String::new(),
            params: vec![],
            scalars: 0,
            dims: extents([8, 16, 32]),
            outer: 2,
            stages: vec![stage],
        }
    }

    fn merged(kernels: &[Kernel]) -> usize {
        let mut kernels = kernels.to_vec();
        generalise(&mut Plan::default(), &mut kernels);
        kernels.len()
    }

    #[test]
    fn sizes_merge_and_broadcasts_stay_apart() {
        assert_eq!(merged(&[copy([512, 32, 1]), copy([1024, 64, 1])]), 1);
        assert_eq!(merged(&[copy([512, 32, 1]), copy([0, 32, 1])]), 2);
        assert_eq!(merged(&[copy([32, 0, 1]), copy([0, 32, 1])]), 2);
    }
}
