//! Convolutions whose weight is larger than all activations, computed in two halves of their output channels: torch's
//! CPU library reorders a weight into scratch memory at every call, and that copy is then what a call's memory peaks at.
//! Each output is computed as before; measured at 512 channels, two halves take as long as the whole.

use crate::nest::affine::same_layout;
use crate::nest::group::memory_view;
use flambeau_core::graph::{Core, CoreId, CoreNode, CoreOp, ExternArg};
use flambeau_core::rebuild::{GONE, rebuild, renamed};
use flambeau_ir::code::Const;
use flambeau_ir::dim::Dim;
use flambeau_ir::kernel::DType;
use flambeau_ir::plan::Symbol;
use flambeau_ir::tensor::contiguous_strides;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A weight of fewer elements is left whole.
const LEAST_WEIGHT: i64 = 1 << 20;
/// Half of the output channels are a multiple of this: the library's blocks stay full.
const CHANNEL_BLOCK: i64 = 64;

/// The graph with such convolutions halved.
pub fn halve_convolutions(core: Core, symbols: &[Symbol]) -> Core {
    let hint = |id| symbols.iter().find(|s| s.id == id).map_or(2, |s| s.hint);
    let count = |id: CoreId| Dim::product(&core.node(id).sizes).eval(&hint).unwrap_or(i64::MAX);
    let all: Vec<Convolution> = core.ids().filter_map(|id| Convolution::of(&core, id)).collect();
    let most = all.iter().map(|c| count(c.input).saturating_add(count(c.output))).max().unwrap_or(i64::MAX);
    let halved = all.iter().filter(|c| c.halves(&core) && count(c.weight) > most.max(LEAST_WEIGHT));
    let chosen: BTreeSet<CoreId> = halved.map(|c| c.call).collect();
    if chosen.is_empty() { core } else { divided(&core, &chosen) }
}

/// A two-dimensional convolution.
struct Convolution {
    call: CoreId,
    input: CoreId,
    weight: CoreId,
    output: CoreId,
}

impl Convolution {
    fn of(core: &Core, call: CoreId) -> Option<Convolution> {
        let CoreOp::Extern(made) = &core.node(call).op else { return None };
        let [ExternArg::Value(input), ExternArg::Value(weight), ..] = made.args[..] else { return None };
        let output = core.ids().find(|id| core.node(*id).op == CoreOp::Result(call, 0))?;
        let ours = &*made.op == "aten::convolution" && core.node(output).sizes.len() == 4;
        ours.then_some(Convolution { call, input, weight, output })
    }

    /// One group, not transposed, all in torch's default layout, and channels enough.
    fn halves(&self, core: &Core) -> bool {
        let CoreOp::Extern(call) = &core.node(self.call).op else { return false };
        let constant = |at: usize, value: Const| call.args.get(at) == Some(&ExternArg::Const(value));
        let plain = |id: CoreId| {
            let node = core.node(id);
            let strides = memory_view(core, &BTreeSet::new(), id).strides;
            node.dtype == DType::F32 && same_layout(&node.sizes, &strides, &contiguous_strides(&node.sizes))
        };
        let channels = core.node(self.weight).sizes[0].as_const().unwrap_or(1);
        constant(6, Const::Bool(false))
            && constant(8, Const::Int(1))
            && plain(self.weight)
            && plain(self.output)
            && channels % (2 * CHANNEL_BLOCK) == 0
    }
}

fn divided(old: &Core, chosen: &BTreeSet<CoreId>) -> Core {
    let (new, _) = rebuild(old, |new, map, id| match &old.node(id).op {
        CoreOp::Result(call, 0) if chosen.contains(call) => halves(old, new, map, *call, old.node(id)),
        // Its result makes the halves.
        CoreOp::Extern(_) if chosen.contains(&id) => Some(GONE),
        _ => None,
    });
    new
}

/// Both halves of a convolution, joined: stands for its result.
fn halves(old: &Core, new: &mut Core, map: &[CoreId], id: CoreId, result: &CoreNode) -> Option<CoreId> {
    let node = old.node(id);
    let CoreOp::Extern(whole) = &node.op else { return None };
    let call = renamed(whole, map);
    let mut sizes = result.sizes.clone();
    let half = sizes[1].as_const()? / 2;
    sizes[1] = Dim::Const(half);
    let mut parts = Vec::new();
    for start in [0, half] {
        let mut call = call.clone();
        // Weight and bias, where there is one.
        for arg in &mut call.args[1..3] {
            if let ExternArg::Value(value) = arg {
                let mut part = new.node(*value).clone();
                part.op = CoreOp::Slice(*value, 0, Dim::Const(start), 1);
                part.sizes[0] = Dim::Const(half);
                *value = new.add(part);
            }
        }
        let made = new.add(CoreNode { op: CoreOp::Extern(Arc::new(call)), ..node.clone() });
        parts.push(new.push(CoreOp::Result(made, 0), result.dtype, sizes.clone()));
    }
    Some(new.add(CoreNode { op: CoreOp::Join(parts, 1), ..result.clone() }))
}
