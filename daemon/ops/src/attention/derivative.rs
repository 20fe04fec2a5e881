//! Derivatives of attention.

use crate::build::Build;
use crate::derivative::Back;
use flambeau_core::graph::ExternArg;
use flambeau_ir::dim::Dim;
use flambeau_ir::kernel::DType;
use flambeau_ir::reason::Reason;

/// By torch's own op for the CPU, from the result and the logarithms of its sums.
pub(crate) fn attention(cx: &mut Back<'_>) -> Result<(), Reason> {
    let gradient = cx.gradient(0)?;
    let (q, k, v) = (cx.tensor(0)?, cx.tensor(1)?, cx.tensor(2)?);
    let sizes: Vec<Dim> = cx.sizes(q)[..3].to_vec();
    let mut sums = cx.meta(q, sizes);
    sums.dtype = if cx.dtype(q) == DType::F64 { DType::F64 } else { DType::F32 };
    let like = cx.like(q);
    let (out, sums) = (cx.result(0, &like), cx.result(1, &sums));
    let mut args: Vec<ExternArg> = [gradient, q, k, v, out, sums].map(ExternArg::Value).into();
    args.extend((3..7).map(|i| cx.arg(i)));
    // They lie in memory as (batch, time, heads, width).
    let turned = |cx: &Back<'_>, of| {
        let mut meta = cx.like(of);
        let [_, heads, time, width] = &meta.sizes[..] else { return meta };
        let row = heads.mul(width);
        meta.strides = vec![row.mul(time), width.clone(), row, Dim::Const(1)];
        meta
    };
    let metas = [turned(cx, q), turned(cx, k), turned(cx, v)];
    let op = ("aten::_scaled_dot_product_flash_attention_for_cpu_backward", "default");
    let given = cx.torch_all(op, None, args, &metas);
    cx.give_each(&given)
}
