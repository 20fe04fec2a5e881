//! How many neighbours along the last dimension a thread does at once, and what that asks of buffers and sizes.

use flambeau_plugin::kernel::{Access, Extent, Kernel, Op, Scope, Stage};
use std::collections::BTreeMap;

/// Bytes of the widest access of a thread.
const WIDEST: usize = 16;

/// Bytes of one input or output that a thread does at once, at most.
const MOST: usize = 32;

/// Elements at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vector {
    /// How many; 1: one after the other.
    pub width: usize,
    /// Whether loops stay loops.
    pub short: bool,
    /// See [`flambeau_cuda_artifact::Fast`].
    pub alignments: Vec<u32>,
    /// See there.
    pub multiples: Vec<(u32, u32)>,
}

/// Which elements neighbours along the last dimension access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walk {
    /// Neighbours, all at once.
    Packed,
    /// One for all.
    Same,
    /// Any.
    Apart,
}

impl Vector {
    /// One element after the other, wherever it is.
    pub fn none(kernel: &Kernel) -> Vector {
        Vector { width: 1, short: false, alignments: vec![1; kernel.params.len()], multiples: Vec::new() }
    }

    /// The widest that pays.
    pub fn of(kernel: &Kernel) -> Option<Vector> {
        let last = kernel.dims.len().checked_sub(1).filter(|last| *last >= kernel.outer)?;
        let neighbours: Vec<&Access> = row_accesses(kernel).filter(|a| a.strides[last] == Extent::Const(1)).collect();
        let sizes = || neighbours.iter().map(|a| kernel.params[a.param as usize].dtype.size());
        let most = (WIDEST / sizes().min()?).min(MOST / sizes().max()?);
        let widths = [16, 8, 4, 2].into_iter().filter(|width| *width <= most);
        widths.map(|width| Vector::with_width(kernel, &neighbours, width)).find_map(|vector| vector)
    }

    fn with_width(kernel: &Kernel, neighbours: &[&Access], width: usize) -> Option<Vector> {
        let mut vector = Vector { width, ..Vector::none(kernel) };
        let mut multiples = BTreeMap::new();
        let last = *kernel.dims.last()?;
        if matches!(last, Extent::Const(size) if size == 0 || size % width as i64 != 0) {
            return None;
        }
        let packed: Vec<&&Access> = neighbours.iter().filter(|a| vector.walk(a) == Walk::Packed).collect();
        if packed.is_empty() {
            return None;
        }
        for access in packed {
            let bytes = (width * kernel.params[access.param as usize].dtype.size()).min(WIDEST) as u32;
            let alignment = &mut vector.alignments[access.param as usize];
            *alignment = bytes.max(*alignment);
            let (_, others) = access.strides.split_last()?;
            for extent in others.iter().chain([&access.offset, &last]) {
                if let Extent::Scalar(at) = extent {
                    multiples.insert(*at, width as u32);
                }
            }
        }
        vector.multiples = multiples.into_iter().collect();
        Some(vector)
    }

    /// What neighbours do in an access.
    pub fn walk(&self, access: &Access) -> Walk {
        let divides = |extent: &Extent| match extent {
            Extent::Const(size) => size % self.width as i64 == 0,
            Extent::Scalar(_) => true,
        };
        match access.strides.split_last() {
            Some((Extent::Const(0), _)) => Walk::Same,
            Some((Extent::Const(1), others)) if others.iter().chain([&access.offset]).all(divides) => Walk::Packed,
            _ => Walk::Apart,
        }
    }
}

/// What is read and written for every element of a row, but for what is read on a condition.
fn row_accesses(kernel: &Kernel) -> impl Iterator<Item = &Access> {
    let stages = kernel.stages.iter().filter(|stage| stage.scope == Scope::Row);
    stages.flat_map(|stage| loads(stage).chain(stage.stores.iter().map(|store| &store.access)))
}

/// What a stage reads whatever happens.
pub fn loads(stage: &Stage) -> impl Iterator<Item = &Access> {
    stage.insts.iter().filter_map(|inst| match &inst.op {
        Op::Load(access) => Some(access),
        _ => None,
    })
}
