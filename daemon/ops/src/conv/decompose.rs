//! Convolutions: torch's, with their arguments in full.

use crate::decompose::{Decompose, Outcome, Rule, refuse};
use flambeau_core::graph::ExternArg;
use flambeau_ir::code::Const;
use flambeau_ir::reason::Reason;

type Done = Result<Outcome, Reason>;

/// The decomposition of an op of this family.
pub(crate) fn rule(name: &str) -> Option<Rule> {
    Some(match name {
        "conv1d" => |cx| convolution(cx, 1, false),
        "conv2d" => |cx| convolution(cx, 2, false),
        "conv3d" => |cx| convolution(cx, 3, false),
        "conv_transpose1d" => |cx| convolution(cx, 1, true),
        "conv_transpose2d" => |cx| convolution(cx, 2, true),
        "conv_transpose3d" => |cx| convolution(cx, 3, true),
        _ => return None,
    })
}

/// A parameter as one int per spatial dimension.
fn spatial(cx: &Decompose, name: &str, rank: usize) -> Result<ExternArg, Reason> {
    let mut list = cx.ints(name)?.unwrap_or_default();
    if list.len() == 1 {
        list = vec![list[0]; rank];
    }
    if list.len() != rank {
        return refuse(format!("{}: {name} has {} entries", cx.name, list.len()));
    }
    Ok(ExternArg::List(list.into_iter().map(|i| ExternArg::Const(Const::Int(i))).collect()))
}

fn convolution(cx: &mut Decompose, rank: usize, transposed: bool) -> Done {
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
