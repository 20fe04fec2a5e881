//! Derivatives of indexing: what was picked is added where it was.

use crate::build::Build;
use crate::decompose::{refuse, row_major};
use crate::derivative::{Back, size};
use flambeau_core::graph::{CoreId, CoreOp, ExternArg};
use flambeau_ir::code::Const;
use flambeau_ir::dim::Dim;
use flambeau_ir::reason::Reason;

/// Zeros of the sizes and type of a value, in memory of their own.
fn zeros(cx: &mut Back<'_>, of: CoreId) -> CoreId {
    let (sizes, dtype) = (cx.sizes(of), cx.dtype(of));
    let zero = cx.core_mut().push(CoreOp::Const(0), dtype, sizes);
    row_major(cx.core_mut(), zero)
}

pub(crate) fn embedding(cx: &mut Back<'_>) -> Result<(), Reason> {
    let gradient = cx.gradient(0)?;
    if cx.arg(4) == ExternArg::Const(Const::Bool(true)) {
        return refuse("no derivative of an embedding with sparse gradients");
    }
    let (weight, indices) = (cx.tensor(0)?, cx.tensor(1)?);
    let rows = size(cx.sizes(weight)[0].clone());
    let mut args = vec![ExternArg::Value(gradient), ExternArg::Value(indices), rows];
    args.extend([(2, Const::Int(-1)), (3, Const::Bool(false))].map(|(i, default)| match cx.arg(i) {
        ExternArg::Const(Const::None) => ExternArg::Const(default),
        given => given,
    }));
    let meta = cx.like(weight);
    let given = cx.torch(("aten::embedding_dense_backward", "default"), None, args, &meta);
    cx.give(0, given)
}

/// Gives what was picked from its gradient: zeros, to which torch's op adds. `rest`: what it takes after them.
fn added(cx: &mut Back<'_>, op: &str, out: Option<&str>, rest: [ExternArg; 3]) -> Result<(), Reason> {
    let of = cx.tensor(0)?;
    let mut args = vec![ExternArg::Value(zeros(cx, of))];
    args.extend(rest);
    let meta = cx.like(of);
    let given = cx.torch((op, "default"), out, args, &meta);
    cx.give(0, given)
}

pub(crate) fn index(cx: &mut Back<'_>) -> Result<(), Reason> {
    let gradient = ExternArg::Value(cx.gradient(0)?);
    added(cx, "aten::index_put", None, [cx.arg(1), gradient, ExternArg::Const(Const::Bool(true))])
}

pub(crate) fn gather(cx: &mut Back<'_>) -> Result<(), Reason> {
    let gradient = ExternArg::Value(cx.gradient(0)?);
    added(cx, "aten::scatter_add", Some("out"), [cx.arg(1), cx.arg(2), gradient])
}

/// Each part gets what lies where it was put. Tensors of shape (0,) are skipped, whatever the others' rank.
pub(crate) fn cat(cx: &mut Back<'_>) -> Result<(), Reason> {
    let gradient = cx.gradient(0)?;
    let (ExternArg::List(parts), ExternArg::Const(Const::Int(dim))) = (cx.arg(0), cx.arg(1)) else {
        return refuse("no derivative of a join along no dimension");
    };
    let rank = cx.sizes(gradient).len();
    let dim = if dim < 0 { dim + rank as i64 } else { dim } as usize;
    let mut start = Dim::Const(0);
    for part in parts {
        let ExternArg::Value(part) = part else { return refuse("a join of something else than tensors") };
        let sizes = cx.sizes(part);
        if sizes.len() != rank {
            if cx.wants_value(part) {
                let none = zeros(cx, part);
                cx.give_value(part, none);
            }
            continue;
        }
        if cx.wants_value(part) {
            let given = cx.slice(gradient, dim, start.clone(), 1, sizes[dim].clone());
            cx.give_value(part, given);
        }
        start = start.add(&sizes[dim]);
    }
    Ok(())
}
