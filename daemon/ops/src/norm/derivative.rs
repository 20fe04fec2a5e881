//! Derivatives of normalisations that torch computes.

use crate::build::Build;
use crate::decompose::refuse;
use crate::derivative::{Back, mask, none};
use flambeau_core::graph::ExternArg;
use flambeau_ir::code::Const;
use flambeau_ir::dim::Dim;
use flambeau_ir::reason::Reason;

/// By torch's own op, from the batch's statistics.
pub(crate) fn batch_norm(cx: &mut Back<'_>) -> Result<(), Reason> {
    let gradient = cx.gradient(0)?;
    let x = cx.tensor(0)?;
    let (x, like) = cx.laid_out(x);
    let wanted = [cx.wants(0), cx.wants(1), cx.wants(2)];
    let last = if matches!(cx.arg(3), ExternArg::Value(_)) { 7 } else { 5 };
    let eps = cx.arg(last);
    if !matches!(eps, ExternArg::Const(Const::Float(_))) {
        return refuse("a batch norm without eps");
    }
    let channels: Vec<Dim> = vec![cx.sizes(x)[1].clone()];
    // Of halves with parameters in float32, statistics are float32 too.
    let parameter = (1..4).find_map(|i| if let ExternArg::Value(of) = cx.arg(i) { Some(of) } else { None });
    let statistic = cx.meta(parameter.unwrap_or(x), channels.clone());
    let (mean, inverse) = (cx.result(1, &statistic), cx.result(2, &statistic));
    let mut args = vec![ExternArg::Value(gradient), ExternArg::Value(x), cx.arg(1), none(), none()];
    args.extend([ExternArg::Value(mean), ExternArg::Value(inverse)]);
    args.extend([ExternArg::Const(Const::Bool(true)), eps, mask(&wanted)]);
    let metas = [like, statistic.clone(), statistic];
    let given = cx.torch_all(("aten::native_batch_norm_backward", "default"), None, args, &metas);
    cx.give_each(&given)
}
