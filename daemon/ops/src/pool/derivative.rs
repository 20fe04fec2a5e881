//! Derivatives of pooling that torch computes.

use crate::build::Build;
use crate::derivative::Back;
use flambeau_core::graph::ExternArg;
use flambeau_ir::reason::Reason;

/// By torch's own op, from the places of the maxima.
pub(crate) fn max_pool(cx: &mut Back<'_>) -> Result<(), Reason> {
    let gradient = cx.gradient(0)?;
    let x = cx.tensor(0)?;
    let (x, meta) = cx.laid_out(x);
    let mut places = cx.like(gradient);
    let result = cx.result(0, &places);
    places.strides.clone_from(&cx.core().node(result).strides);
    places.dtype = flambeau_ir::kernel::DType::I64;
    let places = cx.result(1, &places);
    let mut args = vec![ExternArg::Value(gradient), ExternArg::Value(x)];
    args.extend((1..6).map(|i| cx.arg(i)));
    args.push(ExternArg::Value(places));
    let given = cx.torch(("aten::max_pool2d_with_indices_backward", "default"), None, args, &meta);
    cx.give(0, given)
}

/// By torch's own op.
pub(crate) fn avg_pool(cx: &mut Back<'_>) -> Result<(), Reason> {
    let gradient = cx.gradient(0)?;
    let x = cx.tensor(0)?;
    let (x, meta) = cx.laid_out(x);
    let mut args = vec![ExternArg::Value(gradient), ExternArg::Value(x)];
    args.extend((1..7).map(|i| cx.arg(i)));
    let given = cx.torch(("aten::avg_pool2d_backward", "default"), None, args, &meta);
    cx.give(0, given)
}
