//! A core graph made anew, with some nodes as others.

use crate::graph::{Core, CoreId, CoreOp, CoreOutput, ExternCall, OutputBase};

/// Stands for a node that is not in the new graph.
pub const GONE: CoreId = CoreId(u32::MAX);

/// The graph with the nodes for which `other` gives one of the new graph replaced, and what each became. `other` is given the
/// new graph so far, what earlier nodes became in it, and the node.
pub fn rebuild(
    old: &Core,
    mut other: impl FnMut(&mut Core, &[CoreId], CoreId) -> Option<CoreId>,
) -> (Core, Vec<CoreId>) {
    let mut new = old.emptied();
    let mut map: Vec<CoreId> = Vec::with_capacity(old.nodes().len());
    for id in old.ids() {
        new.enter_part(old, id);
        let to = other(&mut new, &map, id).unwrap_or_else(|| {
            let mut node = old.node(id).clone();
            match &mut node.op {
                CoreOp::Extern(call) => *call = renamed(call, &map).into(),
                op => op.operands_mut().into_iter().for_each(|o| *o = map[o.0 as usize]),
            }
            new.add_for(old, id, node)
        });
        map.push(to);
    }
    let output = |output: &CoreOutput| {
        let base = match output.base {
            OutputBase::Value(id) => OutputBase::Value(map[id.0 as usize]),
            input @ OutputBase::Input(_) => input,
        };
        CoreOutput { base, ..output.clone() }
    };
    new.outputs = old.outputs.iter().map(output).collect();
    new.uncounted.clone_from(&old.uncounted);
    new.writes = old.writes.iter().map(|(input, value)| (*input, map[value.0 as usize])).collect();
    (new, map)
}

/// A call whose arguments are what they became.
pub fn renamed(call: &ExternCall, map: &[CoreId]) -> ExternCall {
    let mut call = call.clone();
    call.args.iter_mut().for_each(|a| a.values_mut(&mut |id| *id = map[id.0 as usize]));
    call
}
