//! Inputs that a plan writes to in the middle: what read their memory before has to be there still when it is used.

use crate::nest::body::computes;
use flambeau_core::graph::{Core, CoreId, CoreOp};
use std::collections::{BTreeMap, BTreeSet};

/// Values that are computed from an input's memory before a write to it, and are used by the write or after it: they get
/// memory of their own.
pub fn read_before_writes(core: &Core) -> BTreeSet<CoreId> {
    let mut kept = BTreeSet::new();
    for id in core.ids() {
        let Some(before) = core.node(id).op.before() else { continue };
        let write = if let CoreOp::Changed(_, call) = core.node(id).op { call } else { id };
        let mut reads = vec![false; core.nodes().len()];
        reads[before.0 as usize] = true;
        for (at, node) in core.ids().zip(core.nodes()) {
            let from: BTreeSet<CoreId> = node.op.operands().into_iter().filter(|id| reads[id.0 as usize]).collect();
            if at >= write {
                // What the write goes to, not what it reads.
                let target = written_by(&node.op).filter(|_| at == write);
                kept.extend(from.into_iter().filter(|id| *id != before && Some(*id) != target));
            } else if computes(&node.op) && !from.is_empty() {
                reads[at.0 as usize] = true;
            }
        }
    }
    kept
}

/// The memory that a call writes to.
pub fn written_by(op: &CoreOp) -> Option<CoreId> {
    match op {
        CoreOp::Extern(call) if call.in_place => op.operands().first().copied(),
        _ => None,
    }
}

/// Inputs that are written in the middle, and of which only what they are at the end is read: to run the graph once more
/// after a failure writes the same.
pub fn overwritten(core: &Core, read: impl Iterator<Item = CoreId>) -> BTreeSet<u32> {
    let last: BTreeMap<u32, CoreId> =
        core.writes.iter().copied().filter(|(_, id)| core.node(*id).op.is_input()).collect();
    let too_early = |id: &CoreId| core.input(*id).is_some_and(|input| last.get(&input) != Some(id));
    let others: BTreeSet<u32> = read.filter(too_early).filter_map(|id| core.input(id)).collect();
    last.into_keys().filter(|input| !others.contains(input)).collect()
}
