//! Derivatives of convolutions.

use crate::build::Build;
use crate::decompose::refuse;
use crate::derivative::{Back, fixed, mask, none};
use flambeau_core::graph::{CoreId, ExternArg};
use flambeau_ir::reason::Reason;
use flambeau_ir::tensor::{TensorMeta, channels_last, contiguous_strides};

/// A tensor like this one in the layout of the convolution's result: torch computes all of them in one.
fn in_layout_of_result(cx: &mut Back<'_>, like: CoreId) -> Result<TensorMeta, Reason> {
    let meta = cx.like(like);
    let result = cx.result(0, &meta);
    let node = cx.core().node(result);
    if node.strides == contiguous_strides(&node.sizes) {
        return Ok(meta);
    }
    if node.strides != channels_last(&node.sizes) {
        return refuse("a derivative of a convolution in another layout");
    }
    Ok(TensorMeta { strides: channels_last(&meta.sizes), ..meta })
}

/// Has the gradient computed in the layout of the convolution's result where it may be in any: torch copies it otherwise.
fn lay_out(cx: &mut Back<'_>, gradient: CoreId) {
    let meta = cx.like(gradient);
    let result = cx.result(0, &meta);
    let strides = cx.core().node(result).strides.clone();
    let op = &cx.core().node(gradient).op;
    if !op.is_view() && !op.is_input() {
        cx.core_mut().pin(gradient, &strides);
    }
}

/// By torch's own op, which gives the gradients of input, weight and bias.
pub(crate) fn convolution(cx: &mut Back<'_>) -> Result<(), Reason> {
    let gradient = cx.gradient(0)?;
    lay_out(cx, gradient);
    let (x, weight) = (cx.tensor(0)?, cx.tensor(1)?);
    let wanted = [cx.wants(0), cx.wants(1), cx.wants(2)];
    let bias_sizes = cx.maybe(2).map(|bias| cx.sizes(bias));
    let mut args = vec![ExternArg::Value(gradient), ExternArg::Value(x), ExternArg::Value(weight)];
    args.push(bias_sizes.as_deref().map_or_else(none, fixed));
    args.extend((3..9).map(|i| cx.arg(i)));
    args.push(mask(&wanted));
    let channels = bias_sizes.unwrap_or_else(|| vec![cx.sizes(gradient)[1].clone()]);
    let metas = [in_layout_of_result(cx, x)?, in_layout_of_result(cx, weight)?, cx.meta(weight, channels)];
    let given = cx.torch_all(("aten::convolution_backward", "default"), None, args, &metas);
    cx.give_each(&given)
}
