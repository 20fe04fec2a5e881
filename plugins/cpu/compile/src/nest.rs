//! A kernel brought into the form the emitter wants: no unit dimensions, neighbours that can be one dimension merged,
//! the dimension that fits vectors best chosen, and the axis that threads share.

use flambeau_cpu_artifact::Isa;
use flambeau_plugin::kernel::{Access, DType, Extent, Kernel, Op, Role, Scope, Stage};
use std::collections::BTreeMap;

/// Bytes a kernel moves from which on its results are written past the caches: about the last-level cache of a few cores.
/// The first of them would have left the caches by the time the kernel ends, and would have pushed out its inputs.
const STREAM_BYTES: i64 = 24 << 20;

/// Which dimension lies along vector lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lanes {
    /// The last row dimension.
    Row,
    /// The last outer dimension: each lane reduces its own rows.
    Outer,
}

/// What `[begin, end)` counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// Outer points in row-major order (the last dimension in blocks of the width, for [`Lanes::Outer`]).
    Outer,
    /// Indices of the last row dimension.
    Row,
}

/// A kernel ready for emission.
#[derive(Clone, Debug)]
pub struct Nest {
    /// With the dimensions of the nest.
    pub kernel: Kernel,
    /// Which dimension is vectorised.
    pub lanes: Lanes,
    /// Elements of a vector.
    pub width: u32,
    /// What threads share.
    pub split: Split,
    /// Whether buffers that are only written are written past the caches.
    pub streams: bool,
}

impl Nest {
    /// The vectorised dimension.
    pub fn vector_dim(&self) -> usize {
        match self.lanes {
            Lanes::Row => self.kernel.dims.len() - 1,
            Lanes::Outer => self.kernel.outer - 1,
        }
    }

    /// Whether this store is one element per lane of a buffer that nothing reads meanwhile, in a nest that streams.
    pub fn streams_to(&self, access: &Access) -> bool {
        let last = access.strides[self.vector_dim()];
        self.streams && self.kernel.params[access.param as usize].role == Role::Out && last == Extent::Const(1)
    }

    /// Prepares a kernel. The error says what is malformed.
    pub fn new(kernel: &Kernel, isa: Isa) -> Result<Nest, String> {
        check(kernel)?;
        let mut kernel = kernel.clone();
        let width = width(&kernel, isa);
        remove_unit_dims(&mut kernel);
        let free = is_free(&kernel);
        if free {
            let stages = std::mem::take(&mut kernel.stages);
            let mut merged = Stage { scope: Scope::Row, insts: vec![], stores: vec![], reduces: vec![] };
            for stage in stages {
                merged.insts.extend(stage.insts);
                merged.stores.extend(stage.stores);
            }
            kernel.stages = vec![merged];
            kernel.outer = 0;
        }
        sort_by_stride(&mut kernel);
        merge_neighbours(&mut kernel);
        if kernel.outer == kernel.dims.len() {
            append_unit_row(&mut kernel);
        }
        let (dim, lanes) = choose_vector_dim(&kernel, width);
        move_last(&mut kernel, dim, lanes);
        if free {
            kernel.outer = kernel.dims.len() - 1;
        }
        let split = if free && prefers_row_split(&kernel) { Split::Row } else { Split::Outer };
        let streams = split == Split::Row && bytes(&kernel).is_some_and(|bytes| bytes >= STREAM_BYTES);
        Ok(Nest { kernel, lanes, width, split, streams })
    }
}

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

/// Indices within bounds, so that later code may index freely.
fn check(kernel: &Kernel) -> Result<(), String> {
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
fn is_free(kernel: &Kernel) -> bool {
    let stores = || kernel.stages.iter().flat_map(|s| &s.stores);
    kernel.stages.iter().all(|s| s.reduces.is_empty())
        && stores().all(|s| s.access.strides.iter().all(|stride| *stride != Extent::Const(0)))
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

fn remove_unit_dims(kernel: &mut Kernel) {
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

fn append_unit_row(kernel: &mut Kernel) {
    kernel.dims.push(Extent::Const(1));
    for_each_access(kernel, |access| access.strides.push(Extent::Const(0)));
}

/// Reorders dimensions: `order[new] = old`.
fn permute(kernel: &mut Kernel, order: &[usize]) {
    let map = order.iter().enumerate().map(|(new, old)| (*old as u32, Some(new as u32))).collect();
    reindex(kernel, &map);
    let permuted = |values: &[Extent]| order.iter().map(|old| values[*old]).collect::<Vec<_>>();
    kernel.dims = permuted(&kernel.dims);
    for_each_access(kernel, |access| access.strides = permuted(&access.strides));
}

/// Within outer and row dimensions, longest strides first, going by the first store (outer) and the first load along the
/// row (row). Dimensions with unknown strides stay as they are.
fn sort_by_stride(kernel: &mut Kernel) {
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
fn merge_neighbours(kernel: &mut Kernel) {
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

/// The dimension where most accesses are contiguous; where equal, the last row dimension.
fn choose_vector_dim(kernel: &Kernel, width: u32) -> (usize, Lanes) {
    let reduces = kernel.stages.iter().any(|s| !s.reduces.is_empty());
    let width = i64::from(width);
    let score = |d: usize| -> i64 {
        let fit = match kernel.dims[d] {
            Extent::Const(n) => n * 100 / (((n + width - 1) / width).max(1) * width),
            Extent::Scalar(_) => 90,
        };
        let row_stages = kernel.stages.iter().filter(|s| s.scope == Scope::Row);
        let of = |access: &Access, weight: i64| match access.strides[d] {
            Extent::Const(1) => 4 * weight,
            Extent::Const(0) => 3 * weight,
            _ => 0,
        };
        let total: i64 = row_stages
            .map(|s| {
                let stores: i64 = s.stores.iter().map(|s| of(&s.access, 2)).sum();
                stage_accesses(s).map(|a| of(a, 2)).sum::<i64>() + stores
            })
            .sum();
        total * (10 + fit.min(100))
    };
    let last = kernel.dims.len() - 1;
    let mut best = (last, Lanes::Row, score(last));
    for d in (kernel.outer..last).rev() {
        if score(d) > best.2 {
            best = (d, Lanes::Row, score(d));
        }
    }
    // A lane per row leaves the work of a row on one core's lanes: only where rows are strided.
    if reduces {
        for d in (0..kernel.outer).rev() {
            if score(d) > best.2 {
                best = (d, Lanes::Outer, score(d));
            }
        }
    }
    (best.0, best.1)
}

fn move_last(kernel: &mut Kernel, dim: usize, lanes: Lanes) {
    let to = match lanes {
        Lanes::Row => kernel.dims.len() - 1,
        Lanes::Outer => kernel.outer - 1,
    };
    let mut order: Vec<usize> = (0..kernel.dims.len()).collect();
    let moved = order.remove(dim);
    order.insert(to, moved);
    permute(kernel, &order);
}

/// Few outer points and a long row: the row is what threads share.
fn prefers_row_split(kernel: &Kernel) -> bool {
    let outer = kernel.dims[..kernel.outer].iter().try_fold(1_i64, |n, d| match d {
        Extent::Const(c) => Some(n.saturating_mul(*c)),
        Extent::Scalar(_) => None,
    });
    match (outer, kernel.dims[kernel.dims.len() - 1]) {
        (Some(1), _) => true,
        (Some(outer), Extent::Const(row)) => outer < 16 && row >= 4096,
        _ => false,
    }
}

/// Bytes of memory that a kernel reads and writes, if all sizes are known.
fn bytes(kernel: &Kernel) -> Option<i64> {
    let mut total = 0_i64;
    for (param, at) in kernel.params.iter().zip(0..) {
        let mut reached = 0_i64;
        for access in accesses(kernel).filter(|a| a.param == at) {
            let dims = kernel.dims.iter().zip(&access.strides).filter(|(_, stride)| **stride != Extent::Const(0));
            let elements = dims.map(|(extent, _)| *extent).try_fold(1_i64, |n, extent| match extent {
                Extent::Const(c) => Some(n.saturating_mul(c)),
                Extent::Scalar(_) => None,
            })?;
            reached = reached.max(elements);
        }
        total = total.saturating_add(reached.saturating_mul(param.dtype.size() as i64));
    }
    Some(total)
}

/// Elements of a vector: as many of the kernel's computed type as fill a register. Wider types take several registers.
fn width(kernel: &Kernel, isa: Isa) -> u32 {
    let sizes = || {
        let insts = kernel.stages.iter().flat_map(|s| &s.insts);
        insts.map(|i| i.dtype).filter(|d| *d != DType::Bool && !matches!(d, DType::F16 | DType::Bf16)).map(DType::size)
    };
    let size = if sizes().any(|s| s == 4) { 4 } else { sizes().max().unwrap_or(1) };
    (isa.vector_bytes() / size) as u32
}
