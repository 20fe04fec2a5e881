//! Ops that draw random numbers: torch draws, in program order.

use crate::decompose::{Decompose, Outcome, Rule, refuse};
use flambeau_core::graph::ExternArg;
use flambeau_ir::code::Const;
use flambeau_ir::reason::Reason;

/// The decomposition of an op of this family.
pub(crate) fn rule(name: &str) -> Option<Rule> {
    Some(match name {
        "dropout" => dropout,
        "alpha_dropout" | "feature_dropout" | "feature_alpha_dropout" => identity_dropout,
        _ => return None,
    })
}

fn training(cx: &Decompose) -> Result<bool, Reason> {
    cx.flag("train").or_else(|_| cx.flag("training"))
}

/// Nothing outside of training.
fn identity_dropout(cx: &mut Decompose) -> Result<Outcome, Reason> {
    if training(cx)? {
        return refuse(format!("{} in training", cx.name));
    }
    Ok(Outcome::Same(cx.node_of("input")?))
}

fn dropout(cx: &mut Decompose) -> Result<Outcome, Reason> {
    let p = cx.float("p")?.unwrap_or(0.5);
    if !training(cx)? || p == 0.0 {
        return identity_or_refuse(cx);
    }
    let x = cx.tensor("input")?;
    let meta = cx.result()?;
    let args = vec![ExternArg::Value(x), ExternArg::Const(Const::Float(p)), ExternArg::Const(Const::Bool(true))];
    Ok(Outcome::Fresh(cx.draw(("aten::dropout", "default"), args, &[meta])[0]))
}

fn identity_or_refuse(cx: &mut Decompose) -> Result<Outcome, Reason> {
    if training(cx)? {
        return refuse("dropout that drops nothing in training");
    }
    Ok(Outcome::Same(cx.node_of("input")?))
}
