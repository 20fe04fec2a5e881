//! Gradients in the graph itself: what they read of what came before is computed again beside them where that costs little, so
//! that less has to stay in memory until then ([`crate::keep`]).

use crate::keep::Keep;
use crate::split::{behind, is_done_again, is_free, same};
use flambeau_core::graph::{Core, CoreId, CoreOp, ExternArg};
use flambeau_ir::bounds::check_time;
use std::collections::{BTreeMap, BTreeSet};

/// The first `count` values of a graph, and beside them those of the others that `wanted` are made of, which read only what
/// is kept of the first. Gives the graph, and what the wanted ones are in it.
pub fn compute_again(joint: &Core, mut graph: Core, wanted: &[CoreId]) -> (Core, Vec<CoreId>) {
    let count = graph.nodes().len();
    let is_new = |id: CoreId| id.0 as usize >= count;
    let mut live = BTreeSet::new();
    let mut todo: Vec<CoreId> = wanted.to_vec();
    let mut needed = BTreeSet::new();
    while let Some(id) = todo.pop() {
        if !is_new(id) || !live.insert(id) {
            continue;
        }
        for operand in joint.node(id).op.operands() {
            todo.push(operand);
            if !is_new(operand) {
                needed.insert((behind(joint, operand), joint.region_of(id)));
            }
        }
    }
    needed.retain(|(id, _)| !is_free(&joint.node(*id).op));
    let same = same(joint);
    let keep = Keep { core: joint, same: &same, leaves: BTreeSet::new(), behind: &|id| behind(joint, id) };
    let kept = keep.choose(&needed);
    graph.begin_part();
    let mut again = Again { joint, graph, count, same: &same, kept, map: BTreeMap::new() };
    for id in live {
        check_time();
        again.copy(id);
    }
    graph = again.graph;
    (graph, wanted.iter().map(|id| again.map.get(id).copied().unwrap_or(*id)).collect())
}

struct Again<'a> {
    joint: &'a Core,
    graph: Core,
    count: usize,
    same: &'a [CoreId],
    kept: BTreeSet<CoreId>,
    /// What values are in the new graph, where they are other ones.
    map: BTreeMap<CoreId, CoreId>,
}

impl Again<'_> {
    /// A value of the first part as a later one reads it.
    fn read(&mut self, wanted: CoreId, region: Option<u32>) {
        let mut todo = vec![(wanted, false)];
        while let Some((id, made)) = todo.pop() {
            check_time();
            if made {
                self.copy(id);
            } else if id.0 as usize >= self.count || self.map.contains_key(&id) {
            } else if self.kept.contains(&self.same[id.0 as usize]) {
                self.map.insert(id, self.same[id.0 as usize]);
            } else if self.is_made_again(id, region) {
                todo.push((id, true));
                todo.extend(self.joint.node(id).op.operands().into_iter().map(|of| (of, false)));
            }
        }
    }

    fn is_made_again(&self, id: CoreId, region: Option<u32>) -> bool {
        let own = self.joint.region_of(id);
        let op = &self.joint.node(id).op;
        !is_free(op) && (is_done_again(op) || own.is_some() && own == region && !op.is_input())
    }

    fn copy(&mut self, id: CoreId) {
        let mut node = self.joint.node(id).clone();
        let region = self.joint.region_of(id);
        if id.0 as usize >= self.count {
            node.op.operands().into_iter().for_each(|of| self.read(of, region));
        }
        let map = |of: CoreId| self.map.get(&of).copied().unwrap_or(of);
        match &mut node.op {
            CoreOp::Extern(call) => {
                let mut changed = (**call).clone();
                changed.args.iter_mut().for_each(|arg: &mut ExternArg| arg.values_mut(&mut |of| *of = map(*of)));
                *call = changed.into();
            }
            op => op.operands_mut().into_iter().for_each(|of| *of = map(*of)),
        }
        self.graph.region = region;
        let strides = node.strides.clone();
        let to = self.graph.add(node);
        if (id.0 as usize) < self.count {
            self.graph.note_again(to);
        }
        if self.joint.is_pinned(id) {
            self.graph.pin(to, &strides);
        }
        self.map.insert(id, to);
    }
}
