//! Calls of torch without a derivative here: each runs under torch's own autograd, which keeps what it likes, and gives one
//! more result, the *tape*, by which the derivative asks torch for the gradients of the call's arguments.

use crate::sweep::Sweep;
use flambeau_core::graph::{Core, CoreId, CoreNode, CoreOp, ExternArg, ExternCall};
use flambeau_ir::code::Const;
use flambeau_ir::kernel::DType;
use flambeau_ir::plan::{CALLED, TAPED, TAPED_BACKWARD};
use flambeau_ir::reason::Reason;
use flambeau_ir::tensor::TensorMeta;
use flambeau_ops::aten::listed;
use flambeau_ops::build::Build;
use flambeau_ops::decompose::{call_result, extern_call, refuse};
use std::collections::BTreeSet;

/// The arguments before those of the op: its name, that of the overload, which tensors get gradients, and the strides of
/// results.
const BEFORE: usize = 4;
/// Of these, which tensors get gradients.
const WANTED: usize = 2;

/// Has these calls run under torch's autograd. `active`: whether autograd follows a value.
pub fn tape(core: &mut Core, active: &[bool], calls: &BTreeSet<CoreId>) -> Result<(), Reason> {
    for id in calls {
        let CoreOp::Extern(call) = &core.node(*id).op else { continue };
        if call.op.starts_with("flambeau::") && &*call.op != CALLED {
            return refuse(format!("no derivative of {}", call.op));
        }
        if call.in_place {
            return refuse(format!("no derivative of {}, which writes to its argument", call.op));
        }
        let sparse = listed(&call.op, &call.overload).and_then(|of| call.args.get(of.place_of("sparse")?));
        if sparse == Some(&ExternArg::Const(Const::Bool(true))) {
            return refuse(format!("no derivative of {} with sparse gradients", call.op));
        }
        let mut wanted = Vec::new();
        for arg in &call.args {
            arg.values(&mut |of| wanted.push(ExternArg::Const(Const::Bool(active[of.0 as usize]))));
        }
        let name = |text: &str| ExternArg::Const(Const::str(text));
        // Only memory that it is given may lie otherwise than torch chooses.
        let laid_out = |at: u32| core.nodes().iter().find(|node| node.op == CoreOp::Result(*id, at));
        let strides = |node: &CoreNode| ExternArg::List(node.strides.iter().cloned().map(ExternArg::Dim).collect());
        let strides: Option<Vec<ExternArg>> =
            call.out.as_ref().and_then(|_| (0..call.results).map(|at| laid_out(at).map(strides)).collect());
        let strides = ExternArg::List(strides.unwrap_or_default());
        let before = [name(&call.op), name(&call.overload), ExternArg::List(wanted), strides];
        let taped = ExternCall {
            op: TAPED.into(),
            // Each has a tape of its own, also where what autograd makes of their arguments is all that tells calls apart.
            overload: format!("call{}", id.0).into(),
            out: None,
            args: before.into_iter().chain(call.args.iter().cloned()).collect(),
            results: call.results + 1,
            ..(**call).clone()
        };
        let tape = taped.results - 1;
        core.change_call(*id, taped);
        let meta = TensorMeta::contiguous(DType::U8, core.device, vec![0.into()]);
        let around = core.region;
        core.region = core.region_of(*id);
        call_result(core, *id, tape, &meta);
        core.region = around;
    }
    Ok(())
}

/// Whether a call runs so.
pub fn is_taped(call: &ExternCall) -> bool {
    &*call.op == TAPED
}

/// Gives the arguments of such a call their gradients. `results` have these `gradients`; the tape is the last one.
pub fn of_taped(cx: &mut Sweep<'_>, call: &ExternCall, results: &[Option<CoreId>], gradients: &[Option<CoreId>]) {
    let Some((Some(tape), given)) = results.last().zip(gradients.split_last().map(|(_, given)| given)) else { return };
    let given = given.iter().map(|gradient| gradient.map_or(ExternArg::Const(Const::None), ExternArg::Value));
    let mut tensors = Vec::new();
    call.args.iter().skip(BEFORE).for_each(|arg| arg.values(&mut |id| tensors.push(id)));
    let flags = if let Some(ExternArg::List(flags)) = call.args.get(WANTED) { flags.as_slice() } else { &[] };
    let is_set = |flag: &&ExternArg| **flag == ExternArg::Const(Const::Bool(true));
    let wanted: Vec<CoreId> =
        tensors.into_iter().zip(flags).filter(|(_, flag)| is_set(flag)).map(|(id, _)| id).collect();
    let metas: Vec<TensorMeta> =
        wanted.iter().map(|id| TensorMeta::contiguous(cx.dtype(*id), cx.core().device, cx.sizes(*id))).collect();
    let args = vec![ExternArg::Value(*tape), ExternArg::List(given.collect())];
    let backward = ExternCall::pure((TAPED_BACKWARD, "default"), None, args, metas.len());
    let made = extern_call(cx.core_mut(), backward, &metas);
    wanted.into_iter().zip(made).for_each(|(of, gradient)| cx.give(of, gradient));
}
