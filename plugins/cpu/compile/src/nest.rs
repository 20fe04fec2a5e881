//! A kernel brought into the form the emitter wants: simplified, the dimension that fits vectors best chosen, and the axis
//! that threads share.

use crate::cost::inst_ps;
use crate::found::rows;
use crate::strided::NEAR;
use crate::tile;
use flambeau_cpu_artifact::Isa;
use flambeau_plugin::kernel::{Access, DType, Extent, Inst, Kernel, Op, Role, Scope, Stage};
use flambeau_plugin::simplify::{
    accesses, append_unit_row, check, is_free, merge_neighbours, merge_stages, permute, remove_unit_dims,
    sort_by_stride, stage_accesses,
};

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

/// Picoseconds of an operation that takes longer than to reach memory.
const HEAVY_PS: u32 = 250;

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
    /// Registers that a vector of the computed type takes.
    pub registers: u32,
    /// What threads share.
    pub split: Split,
    /// The last outer dimension, if it is walked with the vectorised one in square tiles.
    pub tiled: Option<usize>,
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
            merge_stages(&mut kernel);
        }
        sort_by_stride(&mut kernel);
        merge_neighbours(&mut kernel);
        if kernel.outer == kernel.dims.len() {
            append_unit_row(&mut kernel);
        }
        let (dim, lanes) = choose_vector_dim(&kernel, width);
        move_last(&mut kernel, dim, lanes);
        if lanes == Lanes::Row {
            rows::keep(&mut kernel);
        }
        if free {
            kernel.outer = kernel.dims.len() - 1;
        }
        let split = if free && prefers_row_split(&kernel) { Split::Row } else { Split::Outer };
        let tiled = if free && split == Split::Outer { tile(&mut kernel) } else { None };
        let streams = split == Split::Row && bytes(&kernel).is_some_and(|bytes| bytes >= STREAM_BYTES);
        let registers = if lanes == Lanes::Outer { registers(&kernel, width) } else { 1 };
        Ok(Nest { kernel, lanes, width: width * registers, registers, split, tiled, streams })
    }
}

/// The dimension where most accesses are contiguous; where equal, the last row dimension.
fn choose_vector_dim(kernel: &Kernel, width: u32) -> (usize, Lanes) {
    let reduces = kernel.stages.iter().any(|s| !s.reduces.is_empty());
    let width = i64::from(width);
    // What takes long is worth full vectors, however memory is reached.
    let insts = kernel.stages.iter().flat_map(|s| &s.insts);
    let heavy =
        insts.filter(|inst| inst_ps(kernel, inst) >= HEAVY_PS && matches!(inst.op, Op::Unary(..))).count() as i64;
    let score = |d: usize| -> i64 {
        let fit = match kernel.dims[d] {
            Extent::Const(n) => n * 100 / (((n + width - 1) / width).max(1) * width),
            Extent::Scalar(_) => 90,
        };
        let row_stages = kernel.stages.iter().filter(|s| s.scope == Scope::Row);
        let of = |access: &Access, weight: i64| match access.strides[d] {
            Extent::Const(-1 | 1) => 4 * weight,
            Extent::Const(0) => 3 * weight,
            Extent::Const(stride) if NEAR.contains(&stride) => 2 * weight,
            _ => 0,
        };
        let total: i64 = row_stages
            .map(|s| {
                let stores: i64 = s.stores.iter().map(|s| of(&s.access, 2)).sum();
                stage_accesses(s).map(|a| of(a, 2)).sum::<i64>() + stores
            })
            .sum();
        (total + 16 * heavy) * (10 + fit.min(100))
    };
    let last = kernel.dims.len() - 1;
    let mut best = (last, Lanes::Row, score(last));
    for d in (kernel.outer..last).rev() {
        if score(d) > best.2 {
            best = (d, Lanes::Row, score(d));
        }
    }
    if reduces && let Some(short) = short_rows(kernel, width) {
        return short;
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

/// Points of rows that are short: to join the lanes that a row lies along costs more than to reduce it.
const SHORT: i64 = 16;

/// The dimension along which reducing short rows takes the fewest instructions, roughly.
fn short_rows(kernel: &Kernel, width: i64) -> Option<(usize, Lanes)> {
    let last = kernel.dims.len() - 1;
    let size = |d: usize| points(std::iter::once(&kernel.dims[d]));
    let row = points(kernel.dims[kernel.outer..].iter()).filter(|row| (1..=SHORT).contains(row))?;
    let in_vectors = |n: i64| (n + width - 1) / width;
    let of_inst = |inst: &Inst| match (&inst.op, inst_ps(kernel, inst)) {
        (Op::Load(_) | Op::LoadIf { .. } | Op::Const(_) | Op::Scalar(_) | Op::Index(_), _) => 0,
        (_, HEAVY_PS..) => 15,
        (_, 100..) => 5,
        _ => 1,
    };
    let of_access = |access: &Access, d: usize| match access.strides[d] {
        Extent::Const(0 | 1) => 1,
        Extent::Const(stride) if stride == -1 || NEAR.contains(&stride) => 3,
        _ => width,
    };
    let of_stage = |stage: &Stage, d: usize| {
        let reached = stage_accesses(stage).chain(stage.stores.iter().map(|store| &store.access));
        stage.insts.iter().map(of_inst).sum::<i64>() + reached.map(|access| of_access(access, d)).sum::<i64>()
    };
    let total = |d: usize| -> i64 {
        let of = |stage: &Stage| match stage.scope {
            Scope::Row => row * of_stage(stage, d),
            Scope::Outer => of_stage(stage, d),
        };
        kernel.stages.iter().map(of).sum()
    };
    // Per row; joining lanes takes two instructions for each halving.
    let along: i64 = kernel
        .stages
        .iter()
        .map(|stage| match stage.scope {
            Scope::Row => {
                let vectors = row / size(last).unwrap_or(1) * in_vectors(size(last).unwrap_or(1));
                vectors * of_stage(stage, last) + 8 * stage.reduces.len() as i64
            }
            Scope::Outer => of_stage(stage, last),
        })
        .sum();
    let across = (0..kernel.outer).filter_map(|d| {
        let lanes = size(d).map_or(width, |size| size / in_vectors(size).max(1)).max(1);
        let cost = total(d) / lanes;
        (cost < along).then_some((cost, d))
    });
    let (_, d) = across.min()?;
    Some((d, Lanes::Outer))
}

/// Registers for the sums of neighbours that are reduced at once: rows are read in longer pieces, where nothing else needs
/// registers.
fn registers(kernel: &Kernel, width: u32) -> u32 {
    const FEW: usize = 8;
    const BLOCKS: i64 = 4;
    let insts = || kernel.stages.iter().filter(|s| s.scope == Scope::Row).flat_map(|s| &s.insts);
    let is_plain = |op: &Op| !matches!(op, Op::Unary(..) | Op::LoadIf { .. });
    let Extent::Const(size) = kernel.dims[kernel.outer - 1] else { return 1 };
    let others = points(kernel.dims[..kernel.outer - 1].iter()).unwrap_or(1);
    if insts().count() > FEW || !insts().all(|inst| is_plain(&inst.op) && inst.dtype.size() <= 4) {
        return 1;
    }
    let fits = |count: &i64| {
        size.saturating_mul(others) >= BLOCKS * count * i64::from(width) && size >= count * i64::from(width)
    };
    [4, 2].into_iter().find(fits).unwrap_or(1) as u32
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

/// Moves the dimension that tiles reach along, if there is one, before the vectorised one, which is the last.
fn tile(kernel: &mut Kernel) -> Option<usize> {
    let other = tile::other_dim(kernel, kernel.dims.len() - 1)?;
    let to = kernel.outer - 1;
    let mut order: Vec<usize> = (0..kernel.dims.len()).filter(|d| *d != other).collect();
    order.insert(to, other);
    permute(kernel, &order);
    Some(to)
}

/// How many points these dimensions have, if all sizes are known.
pub fn points<'a>(mut dims: impl Iterator<Item = &'a Extent>) -> Option<i64> {
    dims.try_fold(1_i64, |n, extent| match extent {
        Extent::Const(size) => Some(n.saturating_mul(*size)),
        Extent::Scalar(_) => None,
    })
}

/// Few outer points and a long row: the row is what threads share.
fn prefers_row_split(kernel: &Kernel) -> bool {
    let outer = points(kernel.dims[..kernel.outer].iter());
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
            let elements = points(dims.map(|(extent, _)| extent))?;
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
