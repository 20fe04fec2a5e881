//! Derivatives of matrix products.

use crate::build::Build;
use crate::decompose::refuse;
use crate::derivative::Back;
use flambeau_core::graph::{CoreId, ExternArg};
use flambeau_ir::code::Const;
use flambeau_ir::kernel::ReduceOp;
use flambeau_ir::reason::Reason;

/// `a @ b`, of matrices or of batches of them.
fn product(cx: &mut Back<'_>, op: &str, a: CoreId, b: CoreId) -> CoreId {
    let (left, right) = (cx.sizes(a), cx.sizes(b));
    let rank = left.len();
    let mut sizes = left;
    sizes[rank - 1] = right[rank - 1].clone();
    let meta = cx.meta(a, sizes);
    cx.torch((op, "default"), Some("out"), vec![ExternArg::Value(a), ExternArg::Value(b)], &meta)
}

fn turned(cx: &mut Back<'_>, of: CoreId) -> CoreId {
    let rank = cx.sizes(of).len();
    let mut order: Vec<usize> = (0..rank).collect();
    order.swap(rank - 1, rank - 2);
    cx.permute(of, &order)
}

/// `gradient @ b.T` and `a.T @ gradient`. The second is computed as `(gradient.T @ a).T` where `b` is a transposed view, as
/// weights are: its gradient then lies in memory as it does.
fn factors(cx: &mut Back<'_>, op: &str, (left, right): (usize, usize), gradient: CoreId) -> Result<(), Reason> {
    let (a, b) = (cx.tensor(left)?, cx.tensor(right)?);
    if cx.wants(left) {
        let other = turned(cx, b);
        let given = product(cx, op, gradient, other);
        cx.give(left, given)?;
    }
    if cx.wants(right) {
        let transposed = turned(cx, gradient);
        let given = product(cx, op, transposed, a);
        let given = turned(cx, given);
        cx.give(right, given)?;
    }
    Ok(())
}

pub(crate) fn mm(cx: &mut Back<'_>) -> Result<(), Reason> {
    let gradient = cx.gradient(0)?;
    factors(cx, "aten::mm", (0, 1), gradient)
}

pub(crate) fn bmm(cx: &mut Back<'_>) -> Result<(), Reason> {
    let gradient = cx.gradient(0)?;
    factors(cx, "aten::bmm", (0, 1), gradient)
}

/// `bias + a @ b`
pub(crate) fn addmm(cx: &mut Back<'_>) -> Result<(), Reason> {
    let is_one = |arg: ExternArg| match arg {
        ExternArg::Const(Const::Int(1) | Const::None) => true,
        ExternArg::Const(Const::Float(x)) => x == 1.0,
        _ => false,
    };
    if !is_one(cx.arg(3)) || !is_one(cx.arg(4)) {
        return refuse("no derivative of a product with factors");
    }
    let gradient = cx.gradient(0)?;
    if cx.wants(0) {
        let given = summed_to(cx, gradient, 0)?;
        cx.give(0, given)?;
    }
    factors(cx, "aten::mm", (1, 2), gradient)
}

/// The sum of a gradient over what argument `i` was repeated along.
fn summed_to(cx: &mut Back<'_>, gradient: CoreId, i: usize) -> Result<CoreId, Reason> {
    let (of, whole) = (cx.tensor(i)?, cx.sizes(gradient));
    let sizes = cx.sizes(of);
    let lead = whole.len() - sizes.len();
    let repeated = |d: &usize| *d < lead || sizes[*d - lead] != whole[*d];
    let over: Vec<usize> = (0..whole.len()).filter(repeated).collect();
    let sum = cx.reduce(ReduceOp::Sum, gradient, &over);
    Ok(cx.reshape(sum, sizes))
}
