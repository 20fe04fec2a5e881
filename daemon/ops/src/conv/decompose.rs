//! Convolutions: torch's, with their arguments in full.

use crate::build::Build;
use crate::decompose::{Decompose, Outcome, refuse};
use flambeau_core::graph::ExternArg;
use flambeau_ir::code::Const;
use flambeau_ir::reason::Reason;

type Done = Result<Outcome, Reason>;

/// A parameter as one int per spatial dimension.
fn spatial(cx: &Decompose, name: &str, rank: usize) -> Result<ExternArg, Reason> {
    let mut list = cx.ints(name)?.unwrap_or_default();
    if list.len() == 1 {
        list = vec![list[0]; rank];
    }
    if list.len() != rank {
        return refuse(format!("{}: {name} has {} entries", cx.op.name, list.len()));
    }
    Ok(ExternArg::List(list.into_iter().map(|i| ExternArg::Const(Const::Int(i))).collect()))
}

pub(super) fn convolution(cx: &mut Decompose, rank: usize, transposed: bool) -> Done {
    let (x, weight) = (cx.tensor("input")?, cx.tensor("weight")?);
    if cx.sizes(x).len() != rank + 2 {
        return refuse("a convolution without a batch dimension");
    }
    let bias = cx.maybe_tensor("bias")?.map_or(ExternArg::Const(Const::None), ExternArg::Value);
    let zeros = ExternArg::List(vec![ExternArg::Const(Const::Int(0)); rank]);
    let output_padding = if transposed { spatial(cx, "output_padding", rank)? } else { zeros };
    let groups = cx.number("groups")?;
    let args = vec![
        ExternArg::Value(x),
        ExternArg::Value(weight),
        bias,
        spatial(cx, "stride", rank)?,
        spatial(cx, "padding", rank)?,
        spatial(cx, "dilation", rank)?,
        ExternArg::Const(Const::Bool(transposed)),
        output_padding,
        ExternArg::Const(groups),
    ];
    let meta = cx.result()?;
    Ok(Outcome::Fresh(cx.call(("aten::convolution", "default"), None, args, &[meta])[0]))
}
