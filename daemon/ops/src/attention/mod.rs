//! Attention, and the transformer encoder's fused layers.

pub(crate) mod decompose;

use crate::call::{Answer, Call};
use crate::registry::{OpDef, place::*};
use crate::{InferError, Inferred};
use flambeau_ir::dim::Dim;
use flambeau_ir::kernel::DType;

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new(
        "scaled_dot_product_attention",
        "query:T, key:T, value:T, attn_mask:T=None, dropout_p:N=0.0, is_causal:B=False, *, scale:N=None, enable_gqa:B=False",
        attention,
        NN,
    )
    .also(&["torch.nn.functional.scaled_dot_product_attention"])
    .autocast(),
    OpDef::new(
        "_transformer_encoder_layer_fwd",
        "src:T, embed_dim:I, num_heads:I, qkv_weight:T, qkv_bias:T, proj_weight:T, proj_bias:T, use_gelu:B, norm_first:B, \
         eps:N, norm_weight_1:T, norm_bias_1:T, norm_weight_2:T, norm_bias_2:T, ffn_weight_1:T, ffn_bias_1:T, \
         ffn_weight_2:T, ffn_bias_2:T, mask:T=None, mask_type:I=None",
        encoder_layer,
        FN,
    )
    .autocast(),
];

/// A dense batch keeps its sizes.
fn encoder_layer(call: &mut Call) -> Answer {
    let src = call.tensor("src")?;
    if src.ndim() != 3 || !src.dtype.is_float() {
        return Err(InferError::NoRule);
    }
    Ok(Inferred::tensor(call.contiguous(src, src.dtype, src.sizes.clone())))
}

/// The CPU's flash kernel yields `[batch, heads, rows, features]` stored as `[batch, rows, heads, features]`. What does not
/// run there has no rule.
fn attention(call: &mut Call) -> Answer {
    let (q, k, v) = (call.tensor("query")?, call.tensor("key")?, call.tensor("value")?);
    let plain = call.bound.float("dropout_p")? == Some(0.0) && !call.bound.bool("enable_gqa")?;
    if !plain || [q, k, v].iter().any(|t| t.ndim() != 4 || t.dtype != q.dtype) || !q.dtype.is_float() {
        return Err(InferError::NoRule);
    }
    let last = |t: &flambeau_ir::tensor::TensorMeta| t.strides[3].clone();
    let same_heads = (0..2).all(|d| call.env.eq(&q.sizes[d], &k.sizes[d]) && call.env.eq(&q.sizes[d], &v.sizes[d]));
    let fits = same_heads
        && call.env.eq(&q.sizes[3], &k.sizes[3])
        && call.env.eq(&q.sizes[3], &v.sizes[3])
        && call.env.eq(&k.sizes[2], &v.sizes[2])
        && [q, k, v].iter().all(|t| call.env.is(&last(t), 1) && !call.env.is_empty(&t.sizes));
    if !fits {
        return Err(InferError::NoRule);
    }
    if let Some(mask) = call.maybe_tensor("attn_mask")? {
        let usual = mask.dtype == DType::Bool || mask.dtype == q.dtype;
        if mask.requires_grad || !usual || !matches!(mask.ndim(), 2 | 4) || call.bound.bool("is_causal")? {
            return Err(InferError::NoRule);
        }
        let mut shape = q.sizes.clone();
        shape[3] = k.sizes[2].clone();
        crate::view::expanded(&mut call.env, mask, &shape)?;
    }
    let [batch, heads, rows, features] = [&q.sizes[0], &q.sizes[1], &q.sizes[2], &q.sizes[3]];
    let row = heads.mul(features);
    let strides = vec![rows.mul(&row), features.clone(), row, Dim::Const(1)];
    let sizes = vec![batch.clone(), heads.clone(), rows.clone(), features.clone()];
    Ok(Inferred::tensor(call.strided_result(q.dtype, q.device, sizes, strides)))
}
