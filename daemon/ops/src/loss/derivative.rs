//! Derivatives of losses that torch computes.

use crate::build::Build;
use crate::decompose::refuse;
use crate::derivative::Back;
use flambeau_core::graph::{CoreOp, ExternArg};
use flambeau_ir::code::Const;
use flambeau_ir::dim::Dim;
use flambeau_ir::kernel::{Binary, DType, Unary};
use flambeau_ir::reason::Reason;

/// Of losses that are not reduced, of scores whose last dimension are the classes: the negative gradient at the target's
/// class, if that is not ignored.
pub(crate) fn nll_loss(cx: &mut Back<'_>) -> Result<(), Reason> {
    let gradient = cx.gradient(0)?;
    let (scores, target) = (cx.tensor(0)?, cx.tensor(1)?);
    let (sizes, each) = (cx.sizes(scores), cx.sizes(target));
    let ExternArg::Const(Const::Int(ignored)) = cx.arg(4) else { return refuse("a loss without an ignored class") };
    if cx.maybe(2).is_some() || cx.arg(3) != ExternArg::Const(Const::Int(0)) || sizes.len() > 2 {
        return refuse("no derivative of a loss with weights, or of more dimensions");
    }
    let class = sizes.len() - 1;
    let mut column = each;
    column.push(Dim::Const(1));
    let dtype = cx.dtype(scores);
    let (target, gradient) = (cx.reshape(target, column.clone()), cx.reshape(gradient, column));
    let at = cx.core_mut().push(CoreOp::Iota(class as u32), DType::I64, sizes);
    let hit = cx.binary(Binary::Eq, at, target);
    let ignored = cx.scalar(&Dim::Const(ignored), DType::I64);
    let counts = cx.binary(Binary::Ne, target, ignored);
    let (negative, zero) = (cx.unary(Unary::Neg, gradient), cx.real(0.0, dtype));
    let share = cx.select(counts, negative, zero);
    let given = cx.select(hit, share, zero);
    cx.give(0, given)
}
