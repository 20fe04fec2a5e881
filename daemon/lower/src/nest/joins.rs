//! Joined values: where in their memory each part is written. A part that is joined itself, and that nothing else reads, has no
//! memory of its own: its parts are written there at once.

use crate::nest::affine::{reshaped_strides, same_layout};
use crate::nest::group::memory_view;
use flambeau_core::graph::{Core, CoreId, CoreOp};
use flambeau_ir::dim::Dim;
use std::collections::{BTreeMap, BTreeSet};

/// A part of a joined value's memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Part {
    /// The joined value.
    pub joined: CoreId,
    /// Strides of the part's dimensions there.
    pub strides: Vec<Dim>,
    /// Elements from its first.
    pub offset: Dim,
    /// A value of the same sizes, other parts of which the joined value has where they are.
    pub updates: Option<CoreId>,
}

/// The parts of each joined value that has memory of its own. Values in `once` have.
pub fn parts(core: &Core, once: &BTreeSet<CoreId>) -> BTreeMap<CoreId, Vec<(CoreId, Part)>> {
    let mut all = BTreeMap::new();
    if !core.nodes().iter().any(|node| matches!(node.op, CoreOp::Join(..))) {
        return all;
    }
    let users = users(core, once);
    let mut nested = BTreeSet::new();
    for id in core.ids().rev() {
        if matches!(core.node(id).op, CoreOp::Join(..)) && users[id.0 as usize] > 0 && !nested.contains(&id) {
            let mut parts = Vec::new();
            let place = (id, &core.node(id).strides[..], &Dim::Const(0));
            divide(core, &users, place, &mut nested, &mut parts);
            let updates = updated(core, id, &parts);
            let part = |(node, strides, offset)| (node, Part { joined: id, strides, offset, updates });
            all.insert(id, parts.into_iter().map(part).collect());
        }
    }
    all
}

/// Adds the parts of a joined value that lies with these strides at this offset, and which of them are joined themselves.
fn divide(
    core: &Core,
    users: &[u32],
    (id, strides, offset): (CoreId, &[Dim], &Dim),
    nested: &mut BTreeSet<CoreId>,
    parts: &mut Vec<(CoreId, Vec<Dim>, Dim)>,
) {
    let CoreOp::Join(operands, dim) = &core.node(id).op else { return };
    let mut offset = offset.clone();
    for &part in operands {
        let node = core.node(part);
        if !node.is_empty() {
            match inner(core, users, part, strides) {
                Some((joined, within)) => {
                    nested.insert(joined);
                    divide(core, users, (joined, &within, &offset), nested, parts);
                }
                None => parts.push((part, strides.to_vec(), offset.clone())),
            }
        }
        offset = offset.add(&node.sizes[*dim as usize].mul(&strides[*dim as usize]));
    }
}

/// How often each value is used; one that leaves the graph or is in `once` counts as used twice more.
fn users(core: &Core, once: &BTreeSet<CoreId>) -> Vec<u32> {
    let mut users = vec![0; core.nodes().len()];
    let kept = once.iter().copied().chain(core.writes.iter().map(|(_, id)| *id));
    core.output_values().chain(kept).for_each(|id| users[id.0 as usize] += 2);
    for id in core.ids().rev() {
        let op = &core.node(id).op;
        if users[id.0 as usize] > 0 || matches!(op, CoreOp::Extern(call) if call.order.is_some()) {
            op.operands().iter().for_each(|operand| users[operand.0 as usize] += 1);
        }
    }
    users
}

/// The joined value that a part is, maybe under other sizes, and its strides where the part has these.
fn inner(core: &Core, users: &[u32], part: CoreId, strides: &[Dim]) -> Option<(CoreId, Vec<Dim>)> {
    let node = core.node(part);
    if users[part.0 as usize] != 1 {
        return None;
    }
    match &node.op {
        CoreOp::Join(..) => Some((part, strides.to_vec())),
        CoreOp::Permute(of, order) => {
            let mut within = strides.to_vec();
            order.iter().zip(strides).for_each(|(d, stride)| within[*d as usize] = stride.clone());
            inner(core, users, *of, &within)
        }
        CoreOp::Reshape(of) => {
            let within = reshaped_strides(&node.sizes, strides, &core.node(*of).sizes)?;
            inner(core, users, *of, &within)
        }
        _ => None,
    }
}

/// The value most of which a joined one has where it is.
fn updated(core: &Core, id: CoreId, parts: &[(CoreId, Vec<Dim>, Dim)]) -> Option<CoreId> {
    let joined = core.node(id);
    let mut shared: BTreeMap<CoreId, i64> = BTreeMap::new();
    for (part, strides, offset) in parts {
        let sizes = &core.node(*part).sizes;
        let view = memory_view(core, &BTreeSet::new(), *part);
        let base = core.node(view.base);
        let has_memory =
            !base.op.is_input() && !matches!(base.op, CoreOp::Const(_) | CoreOp::Scalar(_) | CoreOp::Iota(_));
        let fits = has_memory && view.base != *part && base.dtype == joined.dtype && base.sizes == joined.sizes;
        if fits && view.offset == *offset && same_layout(sizes, &view.strides, strides) {
            *shared.entry(view.base).or_default() += Dim::product(sizes).as_const().unwrap_or(1);
        }
    }
    shared.into_iter().max_by_key(|(_, count)| *count).map(|(id, _)| id)
}
