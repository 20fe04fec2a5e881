//! Ops that draw random numbers: torch draws, in program order.

use crate::decompose::{Decompose, Outcome, refuse};
use flambeau_core::graph::ExternArg;
use flambeau_ir::code::Const;
use flambeau_ir::reason::Reason;

pub(super) fn dropout(cx: &mut Decompose) -> Result<Outcome, Reason> {
    let p = cx.float("p")?.unwrap_or(0.5);
    if !cx.flag("train")? {
        return Ok(Outcome::Same(cx.node_of("input")?));
    }
    if p == 0.0 {
        return refuse("dropout that drops nothing in training");
    }
    let x = cx.tensor("input")?;
    let meta = cx.result()?;
    let args = vec![ExternArg::Value(x), ExternArg::Const(Const::Float(p)), ExternArg::Const(Const::Bool(true))];
    Ok(Outcome::Fresh(cx.draw(("aten::dropout", "default"), args, &[meta])[0]))
}
