//! Attention: the product itself stays torch's; the fused encoder layer is taken apart around it.

use crate::build::Build;
use crate::decompose::{Decompose, Outcome, refuse};
use crate::matmul::decompose::linear_of;
use crate::norm::decompose::layer_normed;
use flambeau_core::graph::{CoreId, ExternArg};
use flambeau_ir::code::Const;
use flambeau_ir::dim::Dim;
use flambeau_ir::kernel::{Binary, DType, Unary};
use flambeau_ir::reason::Reason;
use flambeau_ir::tensor::TensorMeta;

type Done = Result<Outcome, Reason>;

pub(super) fn attention(cx: &mut Decompose) -> Done {
    if cx.float("dropout_p")?.is_some_and(|p| p != 0.0) {
        return refuse("attention with dropout");
    }
    let (q, k, v) = (cx.tensor("query")?, cx.tensor("key")?, cx.tensor("value")?);
    let mask = cx.maybe_tensor("attn_mask")?.map_or(ExternArg::Const(Const::None), ExternArg::Value);
    let scale = cx.float("scale")?.map_or(Const::None, Const::Float);
    let args = vec![
        ExternArg::Value(q),
        ExternArg::Value(k),
        ExternArg::Value(v),
        mask,
        ExternArg::Const(Const::Float(0.0)),
        ExternArg::Const(Const::Bool(cx.flag("is_causal")?)),
        ExternArg::Const(scale),
        ExternArg::Const(Const::Bool(cx.flag("enable_gqa")?)),
    ];
    let meta = cx.result()?;
    if cx.training {
        return torchs(cx, [q, k, v], &meta);
    }
    Ok(Outcome::Fresh(cx.call(("aten::scaled_dot_product_attention", "default"), None, args, &[meta])[0]))
}

/// The op that torch's takes on the CPU, which has a derivative of its own.
fn torchs(cx: &mut Decompose, [q, k, v]: [CoreId; 3], meta: &TensorMeta) -> Done {
    let sizes = [q, k, v].map(|x| cx.sizes(x));
    let [batch, heads, time, _] = &sizes[0][..] else { return refuse("a derivative of attention without heads") };
    let same = |other: &[Dim]| other.len() == 4 && other[..2] == sizes[0][..2] && other[3] == sizes[0][3];
    let plain = cx.maybe_tensor("attn_mask")?.is_none() && !cx.flag("enable_gqa")? && meta.device.is_host();
    if !plain || !same(&sizes[1]) || !same(&sizes[2]) || meta.dtype == DType::F16 {
        return refuse("a derivative of attention with a mask, or with other heads for keys");
    }
    let scale = cx.float("scale")?.map_or(Const::None, Const::Float);
    let args = vec![
        ExternArg::Value(q),
        ExternArg::Value(k),
        ExternArg::Value(v),
        ExternArg::Const(Const::Float(0.0)),
        ExternArg::Const(Const::Bool(cx.flag("is_causal")?)),
        ExternArg::Const(Const::None),
        ExternArg::Const(scale),
    ];
    let dtype = if meta.dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let row = time.mul(heads);
    let sums = TensorMeta {
        dtype,
        sizes: vec![batch.clone(), heads.clone(), time.clone()],
        strides: vec![row, Dim::Const(1), heads.clone()],
        ..meta.clone()
    };
    let op = ("aten::_scaled_dot_product_flash_attention_for_cpu", "default");
    Ok(Outcome::Fresh(cx.call(op, None, args, &[meta.clone(), sums])[0]))
}

/// Attention of one packed projection (batch, time, 3 * width), heads apart; gives (batch, time, width).
fn self_attention(cx: &mut Decompose, packed: CoreId, heads: i64, like: &TensorMeta) -> CoreId {
    let sizes = cx.sizes(packed);
    let (batch, time) = (sizes[0].clone(), sizes[1].clone());
    let width = like.sizes[2].clone();
    let head = width.floor_div(&Dim::Const(heads));
    let heads = Dim::Const(heads);
    let split = cx.reshape(packed, vec![batch.clone(), time.clone(), Dim::Const(3), heads.clone(), head.clone()]);
    let turned = cx.permute(split, &[2, 0, 3, 1, 4]);
    let mut parts = Vec::new();
    for i in 0..3 {
        let part = cx.slice(turned, 0, Dim::Const(i), 1, Dim::Const(1));
        let sizes = vec![batch.clone(), heads.clone(), time.clone(), head.clone()];
        parts.push(ExternArg::Value(cx.reshape(part, sizes)));
    }
    let none = ExternArg::Const(Const::None);
    let no = || ExternArg::Const(Const::Bool(false));
    parts.extend([none.clone(), ExternArg::Const(Const::Float(0.0)), no(), none, no()]);
    // The result lies in memory as (batch, time, heads, head), as torch's attention kernel for the CPU makes it.
    let sizes = vec![batch.clone(), heads.clone(), time.clone(), head.clone()];
    let strides = vec![time.mul(&width), head.clone(), width.clone(), Dim::Const(1)];
    let meta = TensorMeta { sizes, strides, ..like.clone() };
    let out = cx.call(("aten::scaled_dot_product_attention", "default"), None, parts, &[meta])[0];
    let back = cx.permute(out, &[0, 2, 1, 3]);
    cx.reshape(back, vec![batch, time, width])
}

/// One encoder layer without masks: attention, then a two-layer perceptron, each with its residual and norm.
pub(super) fn encoder_layer(cx: &mut Decompose) -> Done {
    let meta = cx.result()?;
    if cx.bound.arg("mask").is_some() || !meta.dtype.is_float() || meta.sizes.len() != 3 {
        return refuse("an encoder layer with a mask");
    }
    if !meta.device.is_host() {
        return refuse("an encoder layer whose attention has a layout of the device's own");
    }
    let Some(heads) = cx.int("num_heads")? else { return refuse("an encoder layer without a number of heads") };
    let (gelu, first) = (cx.flag("use_gelu")?, cx.flag("norm_first")?);
    let Some(eps) = cx.float("eps")? else { return refuse("an encoder layer without eps") };
    let names = [
        "src",
        "qkv_weight",
        "qkv_bias",
        "proj_weight",
        "proj_bias",
        "norm_weight_1",
        "norm_bias_1",
        "norm_weight_2",
        "norm_bias_2",
        "ffn_weight_1",
        "ffn_bias_1",
        "ffn_weight_2",
        "ffn_bias_2",
    ];
    let mut v = Vec::new();
    for name in names {
        v.push(cx.tensor(name)?);
    }
    let src = v[0];
    let start = if first { layer_normed(cx, src, v[5], v[6], eps) } else { src };
    let packed = linear_of(cx, start, v[1], Some(v[2]), &meta);
    let attended = self_attention(cx, packed, heads, &meta);
    let projected = linear_of(cx, attended, v[3], Some(v[4]), &meta);
    let mut x = cx.add(projected, src);
    if !first {
        x = layer_normed(cx, x, v[5], v[6], eps);
    }
    let inner = if first { layer_normed(cx, x, v[7], v[8], eps) } else { x };
    let hidden = linear_of(cx, inner, v[9], Some(v[10]), &meta);
    let active = if gelu { gelu_of(cx, hidden) } else { relu_of(cx, hidden) };
    let out = linear_of(cx, active, v[11], Some(v[12]), &meta);
    let mut x = cx.add(out, x);
    if !first {
        x = layer_normed(cx, x, v[7], v[8], eps);
    }
    Ok(Outcome::Fresh(x))
}

fn relu_of(cx: &mut Decompose, x: CoreId) -> CoreId {
    let zero = cx.real(0.0, cx.dtype(x));
    cx.binary(Binary::Max, x, zero)
}

fn gelu_of(cx: &mut Decompose, x: CoreId) -> CoreId {
    let scaled = cx.scale(x, std::f64::consts::FRAC_1_SQRT_2);
    let inner = cx.unary(Unary::Erf, scaled);
    let (factor, half) = (cx.offset(inner, 1.0), cx.scale(x, 0.5));
    cx.mul(half, factor)
}
