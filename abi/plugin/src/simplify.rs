//! Kernels in simpler forms of the same meaning, for back ends: bounds checked, no unit dimensions, neighbours that can be one
//! dimension merged. Nothing here knows of a device.

use crate::kernel::{Access, Extent, Kernel, Op, Scope, Stage};
use std::collections::BTreeMap;

/// All memory accesses of a kernel.
pub fn accesses(kernel: &Kernel) -> impl Iterator<Item = &Access> {
    kernel.stages.iter().flat_map(stage_accesses)
}

/// All memory accesses of a stage, loads first.
pub fn stage_accesses(stage: &Stage) -> impl Iterator<Item = &Access> {
    let loads = stage.insts.iter().filter_map(|inst| match &inst.op {
        Op::Load(access) | Op::LoadIf { access, .. } => Some(access),
        _ => None,
    });
    loads.chain(stage.stores.iter().map(|s| &s.access))
}

fn for_each_access(kernel: &mut Kernel, mut change: impl FnMut(&mut Access)) {
    for stage in &mut kernel.stages {
        for inst in &mut stage.insts {
            if let Op::Load(access) | Op::LoadIf { access, .. } = &mut inst.op {
                change(access);
            }
        }
        stage.stores.iter_mut().for_each(|s| change(&mut s.access));
    }
}

/// Indices within bounds, so that later code may index freely. The error says what is malformed.
pub fn check(kernel: &Kernel) -> Result<(), String> {
    let dims = kernel.dims.len();
    if kernel.outer > dims {
        return Err(format!("{} outer dimensions of {dims}", kernel.outer));
    }
    let extent = |e: &Extent| match e {
        Extent::Scalar(i) if *i >= kernel.scalars => Err(format!("scalar {i} of {}", kernel.scalars)),
        Extent::Const(c) if *c < 0 => Err(format!("extent {c}")),
        _ => Ok(()),
    };
    kernel.dims.iter().try_for_each(extent)?;
    for access in accesses(kernel) {
        if access.param as usize >= kernel.params.len() || access.strides.len() != dims {
            return Err(format!("an access to buffer {} with {} strides", access.param, access.strides.len()));
        }
        let scalars = access.strides.iter().chain([&access.offset]);
        if scalars.into_iter().any(|e| matches!(e, Extent::Scalar(i) if *i >= kernel.scalars)) {
            return Err("an access with an unknown scalar".to_owned());
        }
    }
    for stage in &kernel.stages {
        if stage.scope == Scope::Outer && !stage.reduces.is_empty() {
            return Err("a reduction outside of the row".to_owned());
        }
        let strided = |a: &Access| a.strides[kernel.outer..].iter().any(|s| *s != Extent::Const(0));
        if stage.scope == Scope::Outer && stage_accesses(stage).any(strided) {
            return Err("an outer access along the row".to_owned());
        }
        for inst in &stage.insts {
            match inst.op {
                Op::Index(d) if d as usize >= dims => return Err(format!("the index of dimension {d} of {dims}")),
                Op::Scalar(i) if i >= kernel.scalars => return Err(format!("scalar {i} of {}", kernel.scalars)),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Any order of all dimensions gives the same result: no reduction, and every store writes each element once.
pub fn is_free(kernel: &Kernel) -> bool {
    let stores = || kernel.stages.iter().flat_map(|s| &s.stores);
    kernel.stages.iter().all(|s| s.reduces.is_empty())
        && stores().all(|s| s.access.strides.iter().all(|stride| *stride != Extent::Const(0)))
}

/// One stage that does all of a kernel that [`is_free`], in which every dimension is one of the row.
pub fn merge_stages(kernel: &mut Kernel) {
    let mut merged = Stage { scope: Scope::Row, insts: vec![], stores: vec![], reduces: vec![] };
    for stage in std::mem::take(&mut kernel.stages) {
        merged.insts.extend(stage.insts);
        merged.stores.extend(stage.stores);
    }
    kernel.stages = vec![merged];
    kernel.outer = 0;
}

fn reindex(kernel: &mut Kernel, map: &BTreeMap<u32, Option<u32>>) {
    for inst in kernel.stages.iter_mut().flat_map(|s| &mut s.insts) {
        if let Op::Index(d) = inst.op {
            inst.op = match map.get(&d) {
                Some(Some(new)) => Op::Index(*new),
                _ => Op::Const(0),
            };
        }
    }
}

/// Takes out dimensions of size 1.
pub fn remove_unit_dims(kernel: &mut Kernel) {
    let keep: Vec<bool> = kernel.dims.iter().map(|d| *d != Extent::Const(1)).collect();
    let mut next = 0;
    let map = keep
        .iter()
        .enumerate()
        .map(|(d, kept)| {
            next += u32::from(*kept);
            (d as u32, kept.then(|| next - 1))
        })
        .collect();
    reindex(kernel, &map);
    let kept = |values: &[Extent]| values.iter().zip(&keep).filter(|(_, k)| **k).map(|(v, _)| *v).collect::<Vec<_>>();
    kernel.dims = kept(&kernel.dims);
    for_each_access(kernel, |access| access.strides = kept(&access.strides));
    kernel.outer = keep[..kernel.outer].iter().filter(|k| **k).count();
}

/// Adds a row of one element.
pub fn append_unit_row(kernel: &mut Kernel) {
    kernel.dims.push(Extent::Const(1));
    for_each_access(kernel, |access| access.strides.push(Extent::Const(0)));
}

/// Reorders dimensions: `order[new] = old`.
pub fn permute(kernel: &mut Kernel, order: &[usize]) {
    let map = order.iter().enumerate().map(|(new, old)| (*old as u32, Some(new as u32))).collect();
    reindex(kernel, &map);
    let permuted = |values: &[Extent]| order.iter().map(|old| values[*old]).collect::<Vec<_>>();
    kernel.dims = permuted(&kernel.dims);
    for_each_access(kernel, |access| access.strides = permuted(&access.strides));
}

/// Within outer and row dimensions, longest strides first, going by the first store (outer) and the first load along the
/// row (row). Dimensions with unknown strides stay as they are.
pub fn sort_by_stride(kernel: &mut Kernel) {
    let constant = |access: &Access, range: std::ops::Range<usize>| {
        access.strides[range].iter().all(|s| matches!(s, Extent::Const(c) if *c != 0))
    };
    let size = |access: &Access, d: usize| match access.strides[d] {
        Extent::Const(c) => c,
        Extent::Scalar(_) => i64::MAX,
    };
    let mut order: Vec<usize> = (0..kernel.dims.len()).collect();
    for range in [0..kernel.outer, kernel.outer..kernel.dims.len()] {
        let stores = kernel.stages.iter().flat_map(|s| &s.stores).map(|s| &s.access);
        if let Some(guide) = stores.chain(accesses(kernel)).find(|a| constant(a, range.clone())) {
            let key: BTreeMap<usize, i64> = range.clone().map(|d| (d, size(guide, d))).collect();
            order[range].sort_by_key(|d| std::cmp::Reverse(key[d]));
        }
    }
    permute(kernel, &order);
}

/// Makes one dimension of two wherever every access walks them as one.
pub fn merge_neighbours(kernel: &mut Kernel) {
    let mut d = 0;
    while d + 1 < kernel.dims.len() {
        let uses_index = kernel
            .stages
            .iter()
            .flat_map(|s| &s.insts)
            .any(|i| matches!(i.op, Op::Index(at) if at as usize == d || at as usize == d + 1));
        let (Extent::Const(a), Extent::Const(b)) = (kernel.dims[d], kernel.dims[d + 1]) else {
            d += 1;
            continue;
        };
        let one_walk = |access: &Access| matches!((access.strides[d], access.strides[d + 1]), (Extent::Const(s), Extent::Const(t)) if s == t * b);
        if d + 1 == kernel.outer || uses_index || !accesses(kernel).all(one_walk) {
            d += 1;
            continue;
        }
        kernel.dims[d] = Extent::Const(a * b);
        kernel.dims.remove(d + 1);
        for_each_access(kernel, |access| {
            access.strides.remove(d);
        });
        let map = (0..=kernel.dims.len() as u32).map(|i| (i, Some(if i as usize > d { i - 1 } else { i }))).collect();
        reindex(kernel, &map);
        if d < kernel.outer {
            kernel.outer -= 1;
        }
        d = d.saturating_sub(1);
    }
}
