//! Reductions of very many elements to few take two steps, of which threads share the first.

use crate::graph::layout::LaidOut;
use flambeau_core::graph::{Core, CoreId, CoreNode, CoreOp};
use flambeau_core::rebuild::rebuild;
use flambeau_ir::dim::Dim;
use flambeau_ir::kernel::ReduceOp;

/// Fewer elements than this are reduced in one step.
const LONG: i64 = 1 << 16;
/// As many results as this are enough for threads to share.
const SHARES: i64 = 16;
/// Most results of the first step for each of the second.
const MOST: i64 = 2048;

/// The graph with such reductions in two steps. Only of sizes that are known.
pub fn share(laid_out: LaidOut) -> LaidOut {
    let core = &laid_out.core;
    let plan: Vec<Option<Steps>> = core.nodes().iter().map(|node| Steps::of(core, node)).collect();
    if plan.iter().all(Option::is_none) {
        return laid_out;
    }
    let (new, map) = rebuild(core, |new, map, id| {
        let steps = plan[id.0 as usize].as_ref()?;
        Some(steps.made(core, new, map[steps.of.0 as usize], id))
    });
    let once = laid_out.once.iter().map(|id| map[id.0 as usize]).collect();
    LaidOut { core: new, once }
}

/// A reduction in two steps.
struct Steps {
    op: ReduceOp,
    of: CoreId,
    /// The operand's sizes, one of them perhaps as two.
    sizes: Vec<i64>,
    first: Vec<u32>,
    second: Vec<u32>,
}

impl Steps {
    fn of(core: &Core, node: &CoreNode) -> Option<Steps> {
        let CoreOp::Reduce(op, of, dims) = &node.op else { return None };
        let mut sizes: Vec<i64> = core.node(*of).sizes.iter().map(Dim::as_const).collect::<Option<_>>()?;
        let reduced = dims.iter().try_fold(1_i64, |all, d| all.checked_mul(sizes[*d as usize]))?;
        let all = sizes.iter().try_fold(1_i64, |all, size| all.checked_mul(*size))?;
        if reduced < LONG || all / reduced >= SHARES {
            return None;
        }
        let (mut first, mut second) = (dims.clone(), Vec::new());
        first.sort_unstable();
        let mut results = 1;
        while results * (all / reduced) < SHARES {
            let dim = first.remove(0);
            let size = sizes[dim as usize];
            if results * size <= MOST && !first.is_empty() {
                second.push(dim);
                results *= size;
                continue;
            }
            let shares = (8..=64.min(MOST / results)).rev().find(|shares| size % shares == 0 && size > *shares)?;
            sizes[dim as usize] = size / shares;
            sizes.insert(dim as usize, shares);
            first.iter_mut().for_each(|d| *d += 1);
            first.insert(0, dim + 1);
            second.push(dim);
            break;
        }
        Some(Steps { op: *op, of: *of, sizes, first, second })
    }

    /// `of`: what the operand is in the new graph.
    fn made(&self, old: &Core, new: &mut Core, of: CoreId, id: CoreId) -> CoreId {
        let node = old.node(id);
        let dims = |sizes: &[i64]| sizes.iter().copied().map(Dim::Const).collect::<Vec<_>>();
        let mut sizes = self.sizes.clone();
        let operand = new.node(of);
        let operand = if operand.sizes.len() == sizes.len() {
            of
        } else {
            new.push(CoreOp::Reshape(of), operand.dtype, dims(&sizes))
        };
        let mut reduce = |new: &mut Core, of: CoreId, along: &[u32]| {
            along.iter().for_each(|d| sizes[*d as usize] = 1);
            new.push(CoreOp::Reduce(self.op, of, along.to_vec()), node.dtype, dims(&sizes))
        };
        let partial = reduce(new, operand, &self.first);
        if operand == of {
            let op = CoreOp::Reduce(self.op, partial, self.second.clone());
            return new.add_for(old, id, CoreNode { op, ..node.clone() });
        }
        let whole = reduce(new, partial, &self.second);
        new.add_for(old, id, CoreNode { op: CoreOp::Reshape(whole), ..node.clone() })
    }
}
