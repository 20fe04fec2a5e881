//! Attention: the product itself stays torch's; the fused encoder layer is taken apart around it.

use crate::build::Build;
use crate::decompose::{Decompose, Outcome, compute_type, refuse};
use crate::matmul::decompose::linear_of;
use crate::norm::decompose::layer_normed;
use crate::random::decompose::by_noise;
use crate::reduce::decompose::softmaxed;
use flambeau_core::graph::{CoreId, CoreOp, ExternArg};
use flambeau_ir::code::Const;
use flambeau_ir::dim::Dim;
use flambeau_ir::graph::ValueMeta;
use flambeau_ir::kernel::{Binary, DType, ReduceOp, Unary};
use flambeau_ir::reason::Reason;
use flambeau_ir::tensor::TensorMeta;

type Done = Result<Outcome, Reason>;

pub(super) fn attention(cx: &mut Decompose) -> Done {
    if cx.training.is_some() {
        return derived(cx);
    }
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
    Ok(Outcome::Fresh(cx.call(("aten::scaled_dot_product_attention", "default"), None, args, &[meta])[0]))
}

/// By the ops that torch takes on the CPU, which have derivatives.
fn derived(cx: &mut Decompose) -> Done {
    let (q, k, v, meta) = (cx.tensor("query")?, cx.tensor("key")?, cx.tensor("value")?, cx.result()?);
    let sizes = [q, k, v].map(|x| cx.sizes(x));
    let same = |other: &[Dim]| other.len() == 4 && other[..2] == sizes[0][..2] && other[3] == sizes[0][3];
    if !sizes.iter().all(|sizes| same(sizes)) || !meta.device.is_host() || cx.flag("enable_gqa")? {
        return refuse("a derivative of attention with other heads for keys");
    }
    let by_mask = cx.maybe_tensor("attn_mask")?.is_some() && cx.meta_of("attn_mask")?.requires_grad;
    let mask = match cx.maybe_tensor("attn_mask")? {
        Some(mask) if cx.dtype(mask) == DType::Bool => {
            let (zero, low) = (cx.real(0.0, meta.dtype), cx.real(f64::NEG_INFINITY, meta.dtype));
            Some(cx.select(mask, zero, low))
        }
        mask => mask,
    };
    match cx.float("dropout_p")?.unwrap_or(0.0) {
        0.0 if meta.dtype != DType::F16 && !by_mask => fused(cx, [q, k, v], mask, &meta),
        p => in_steps(cx, [q, k, v], mask, p),
    }
}

/// The op that keeps no product of all queries and keys.
fn fused(cx: &mut Decompose, [q, k, v]: [CoreId; 3], mask: Option<CoreId>, meta: &TensorMeta) -> Done {
    let sizes = cx.sizes(q);
    let [batch, heads, time, _] = &sizes[..] else { return refuse("attention without heads") };
    let scale = cx.float("scale")?.map_or(Const::None, Const::Float);
    let args = vec![
        ExternArg::Value(q),
        ExternArg::Value(k),
        ExternArg::Value(v),
        ExternArg::Const(Const::Float(0.0)),
        ExternArg::Const(Const::Bool(cx.flag("is_causal")?)),
        mask.map_or(ExternArg::Const(Const::None), ExternArg::Value),
        ExternArg::Const(scale),
    ];
    let sums = TensorMeta {
        dtype: if meta.dtype == DType::F64 { DType::F64 } else { DType::F32 },
        sizes: vec![batch.clone(), heads.clone(), time.clone()],
        strides: vec![time.mul(heads), Dim::Const(1), heads.clone()],
        ..meta.clone()
    };
    let op = ("aten::_scaled_dot_product_flash_attention_for_cpu", "default");
    Ok(Outcome::Fresh(cx.call(op, None, args, &[meta.clone(), sums])[0]))
}

/// `dropout(softmax(q @ k.T * scale + mask)) @ v`, where torch gives each factor the root of the scale.
fn in_steps(cx: &mut Decompose, [q, k, v]: [CoreId; 3], mask: Option<CoreId>, p: f64) -> Done {
    let meta = cx.result()?;
    if compute_type(meta.dtype) != meta.dtype || cx.flag("is_causal")? && mask.is_some() {
        return refuse("a derivative of attention of halves with dropout");
    }
    let (sizes, keys) = (cx.sizes(q), cx.sizes(k));
    let [batch, heads, time, width] = &sizes[..] else { return refuse("attention without heads") };
    let Some(wide) = width.as_const() else { return refuse("attention of a width that varies") };
    let scale = cx.float("scale")?.unwrap_or_else(|| 1.0 / (wide as f64).sqrt());
    if scale < 0.0 {
        return refuse("attention with a negative scale");
    }
    let (q, k) = (cx.scale(q, scale.sqrt()), cx.scale(k, scale.sqrt()));
    let many = batch.mul(heads);
    let fold = |cx: &mut Decompose, x: CoreId| {
        let sizes = cx.sizes(x);
        cx.reshape(x, vec![many.clone(), sizes[2].clone(), sizes[3].clone()])
    };
    let (q, k, v) = (fold(cx, q), fold(cx, k), fold(cx, v));
    let k = cx.permute(k, &[0, 2, 1]);
    let like = |sizes: Vec<Dim>| TensorMeta::contiguous(meta.dtype, meta.device, sizes);
    let product = |cx: &mut Decompose, a: CoreId, b: CoreId| {
        let sizes = vec![many.clone(), cx.sizes(a)[1].clone(), cx.sizes(b)[2].clone()];
        let pair = vec![ExternArg::Value(a), ExternArg::Value(b)];
        cx.call(("aten::bmm", "default"), Some("out"), pair, &[like(sizes)])[0]
    };
    let scores = product(cx, q, k);
    let all = vec![batch.clone(), heads.clone(), time.clone(), keys[2].clone()];
    let mut scores = cx.reshape(scores, all.clone());
    if cx.flag("is_causal")? {
        let (zero, low) = (cx.real(0.0, meta.dtype), cx.real(f64::NEG_INFINITY, meta.dtype));
        let along = |cx: &mut Decompose, d: u32| cx.core.push(CoreOp::Iota(d), DType::I64, all.clone());
        let (row, column) = (along(cx, 2), along(cx, 3));
        let sees = cx.binary(Binary::Le, column, row);
        let causal = cx.select(sees, zero, low);
        scores = cx.add(scores, causal);
    }
    if let Some(mask) = mask {
        scores = cx.add(scores, mask);
    }
    // A query that sees no key gets zeros.
    let (zero, low) = (cx.real(0.0, meta.dtype), cx.real(f64::NEG_INFINITY, meta.dtype));
    let top = cx.reduce(ReduceOp::Max, scores, &[3]);
    let top = cx.stopped(top);
    let blind = cx.binary(Binary::Eq, top, low);
    let scores = cx.select(blind, zero, scores);
    let weights = softmaxed(cx, scores, 3, false);
    let weights = cx.select(blind, zero, weights);
    let weights = if p > 0.0 { by_noise(cx, weights, p)? } else { weights };
    let weights = cx.reshape(weights, vec![many.clone(), time.clone(), keys[2].clone()]);
    let out = product(cx, weights, v);
    let out = cx.reshape(out, vec![batch.clone(), heads.clone(), time.clone(), width.clone()]);
    Ok(Outcome::Fresh(out))
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

/// Attention of a tensor to itself with its projections, without masks.
pub(super) fn multi_head(cx: &mut Decompose) -> Done {
    let (ValueMeta::Tuple(results), Some(heads)) = (cx.meta, cx.int("num_head")?) else {
        return refuse("attention without a number of heads");
    };
    let [ValueMeta::Tensor(meta), ValueMeta::Const(Const::None)] = &results[..] else {
        return refuse("attention that gives its weights");
    };
    if cx.bound.arg("mask").is_some() || !meta.device.is_host() {
        return refuse("attention with a mask");
    }
    let mut v = Vec::new();
    for name in ["query", "qkv_weight", "qkv_bias", "proj_weight", "proj_bias"] {
        v.push(cx.tensor(name)?);
    }
    let packed = linear_of(cx, v[0], v[1], Some(v[2]), meta);
    let attended = self_attention(cx, packed, heads, meta);
    let projected = linear_of(cx, attended, v[3], Some(v[4]), meta);
    Ok(Outcome::Tuple(vec![Outcome::Fresh(projected), Outcome::None]))
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
