//! Derivatives of scans.

use crate::build::Build;
use crate::decompose::refuse;
use crate::derivative::Back;
use flambeau_core::graph::ExternArg;
use flambeau_ir::code::Const;
use flambeau_ir::dim::Dim;
use flambeau_ir::reason::Reason;

/// The sums from the other end.
pub(crate) fn cumsum(cx: &mut Back<'_>) -> Result<(), Reason> {
    let gradient = cx.gradient(0)?;
    let x = cx.tensor(0)?;
    let sizes = cx.sizes(x);
    let ExternArg::Const(Const::Int(dim)) = cx.arg(1) else { return refuse("a sum along no dimension") };
    if sizes.is_empty() {
        return cx.give(0, gradient);
    }
    let dim = if dim < 0 { dim + sizes.len() as i64 } else { dim } as usize;
    let last = sizes[dim].sub(&Dim::Const(1));
    let turned = cx.slice(gradient, dim, last.clone(), -1, sizes[dim].clone());
    let args = vec![ExternArg::Value(turned), ExternArg::Const(Const::Int(dim as i64)), ExternArg::Const(Const::None)];
    let meta = cx.like(x);
    let sums = cx.torch(("aten::cumsum", "default"), Some("out"), args, &meta);
    let given = cx.slice(sums, dim, last, -1, sizes[dim].clone());
    cx.give(0, given)
}
