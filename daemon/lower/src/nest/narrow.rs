//! Values that are only used repeated to larger sizes: those that kernels compute once per outer point, and those that would be
//! computed along the rows of what uses them, again for each row.

use crate::nest::body::computes;
use flambeau_core::graph::{Core, CoreId, CoreOp};
use flambeau_ir::dim::Dim;
use std::collections::BTreeSet;

/// Repeated to fewer elements than this, a value is no work.
const FEW: i64 = 4096;

/// Such values, whatever the rows are. `must`: values with memory; `operands`: what a value is computed of.
pub fn narrow(
    core: &Core,
    live: &[bool],
    must: &BTreeSet<CoreId>,
    operands: impl Fn(CoreId) -> Vec<CoreId>,
) -> Vec<bool> {
    let mut narrow = vec![true; live.len()];
    for id in core.ids().rev().filter(|id| live[id.0 as usize]) {
        let op = &core.node(id).op;
        let passes = match op {
            CoreOp::Expand(_) => true,
            CoreOp::Reduce(..) => false,
            _ => computes(op) && narrow[id.0 as usize] && !must.contains(&id),
        };
        if !passes {
            operands(id).into_iter().for_each(|o| narrow[o.0 as usize] = false);
        }
    }
    narrow
}

/// Values that are repeated to many elements, in which they differ along rows.
pub fn repeated_along_rows(core: &Core, live: &[bool]) -> BTreeSet<CoreId> {
    let rows = rows(core, live);
    let mut found = BTreeSet::new();
    for id in core.ids().filter(|id| live[id.0 as usize]) {
        let node = core.node(id);
        let CoreOp::Expand(of) = node.op else { continue };
        let sizes = &core.node(of).sizes;
        let differs = (0..sizes.len()).any(|d| rows[id.0 as usize] & bit(d) != 0 && !sizes[d].is(1));
        if differs && Dim::product(&node.sizes).as_const().is_none_or(|count| count >= FEW) {
            found.insert(beneath_views(core, of));
        }
    }
    found
}

/// The value that this is a view of, as long as it is all of it.
fn beneath_views(core: &Core, id: CoreId) -> CoreId {
    match core.node(id).op {
        CoreOp::Reshape(of) | CoreOp::Permute(of, _) => beneath_views(core, of),
        _ => id,
    }
}

fn bit(dim: usize) -> u64 {
    1_u64.checked_shl(dim as u32).unwrap_or(0)
}

/// The dimensions along which the kernels that compute each value go in their rows, as far as the graph tells: those that a
/// reduction takes together, else those along which what a reduction gave is repeated, else the last.
fn rows(core: &Core, live: &[bool]) -> Vec<u64> {
    let repeated = repeated(core, live);
    let mut rows = vec![0_u64; live.len()];
    for id in core.ids().rev().filter(|id| live[id.0 as usize]) {
        let node = core.node(id);
        if rows[id.0 as usize] == 0 {
            let last = node.sizes.iter().rposition(|size| !size.is(1)).map_or(0, bit);
            rows[id.0 as usize] = if repeated[id.0 as usize] == 0 { last } else { repeated[id.0 as usize] };
        }
        let own = rows[id.0 as usize];
        match &node.op {
            CoreOp::Reduce(_, of, dims) => {
                rows[of.0 as usize] |= dims.iter().map(|d| bit(*d as usize)).sum::<u64>();
            }
            CoreOp::Permute(of, order) => {
                let along = order.iter().zip(0..).filter(|(_, d)| own & bit(*d) != 0);
                rows[of.0 as usize] |= along.map(|(d, _)| bit(*d as usize)).sum::<u64>();
            }
            op @ CoreOp::Expand(_) => rows[op.operands()[0].0 as usize] |= own,
            op if is_by_element(op) => op.operands().into_iter().for_each(|o| rows[o.0 as usize] |= own),
            _ => {}
        }
    }
    rows
}

/// The dimensions along which what a reduction gave is repeated.
fn repeated(core: &Core, live: &[bool]) -> Vec<u64> {
    let mut reduced = vec![false; live.len()];
    let mut repeated = vec![0_u64; live.len()];
    for id in core.ids().filter(|id| live[id.0 as usize]) {
        let node = core.node(id);
        let operands = node.op.operands();
        let of_reduced = operands.iter().any(|o| reduced[o.0 as usize]);
        let at = id.0 as usize;
        match &node.op {
            CoreOp::Reduce(..) => reduced[at] = true,
            CoreOp::Expand(of) if of_reduced => {
                let sizes = core.node(*of).sizes.iter().zip(&node.sizes);
                repeated[at] = sizes.enumerate().filter(|(_, (a, b))| a != b).map(|(d, _)| bit(d)).sum();
            }
            op if is_by_element(op) => {
                reduced[at] = of_reduced;
                repeated[at] = operands.iter().fold(0, |all, o| all | repeated[o.0 as usize]);
            }
            CoreOp::Reshape(_) | CoreOp::Permute(..) => reduced[at] = of_reduced,
            _ => {}
        }
    }
    repeated
}

fn is_by_element(op: &CoreOp) -> bool {
    matches!(op, CoreOp::Unary(..) | CoreOp::Binary(..) | CoreOp::Select(..) | CoreOp::Cast(_) | CoreOp::Copy(_))
}
