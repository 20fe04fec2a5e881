//! Attention, and the transformer encoder's fused layers.

pub(crate) mod decompose;
pub(crate) mod derivative;

use crate::call::{Answer, Call};
use crate::layout::preserved;
use crate::registry::{Effect::DrawsIf, Mark::CpuOnly, OpDef, place::*};
use crate::{InferError, Inferred};
use flambeau_ir::code::Const;
use flambeau_ir::dim::Dim;
use flambeau_ir::graph::ValueMeta;
use flambeau_ir::guard::Ambient;
use flambeau_ir::kernel::DType;
use flambeau_ir::tensor::contiguous_strides;

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new(
        "scaled_dot_product_attention",
        "query:T, key:T, value:T, attn_mask:T=None, dropout_p:N=0.0, is_causal:B=False, *, scale:N=None, enable_gqa:B=False",
        attention,
        NN,
    ).derives(decompose::attention)
    .is(CpuOnly).effect(DrawsIf("dropout_p", 4)),
    OpDef::new(
        "_transformer_encoder_layer_fwd",
        "src:T, embed_dim:I, num_heads:I, qkv_weight:T, qkv_bias:T, proj_weight:T, proj_bias:T, use_gelu:B, norm_first:B, \
         eps:N, norm_weight_1:T, norm_bias_1:T, norm_weight_2:T, norm_bias_2:T, ffn_weight_1:T, ffn_bias_1:T, \
         ffn_weight_2:T, ffn_bias_2:T, mask:T=None, mask_type:I=None",
        encoder_layer,
        FN,
    ).lowers(decompose::encoder_layer)
    .is(CpuOnly),
    OpDef::new(
        "_native_multi_head_attention",
        "query:T, key:T, value:T, embed_dim:I, num_head:I, qkv_weight:T, qkv_bias:T, proj_weight:T, proj_bias:T, \
         mask:T=None, need_weights:B=True, average_attn_weights:B=True, mask_type:I=None",
        multi_head,
        FN,
    )
    .lowers(decompose::multi_head)
    .is(CpuOnly),
];

/// A whole encoder layer: contiguous, shaped as its input.
fn encoder_layer(call: &mut Call) -> Answer {
    let src = call.tensor("src")?;
    let features = call.bound.dim("embed_dim")?.ok_or(InferError::NoRule)?;
    if src.ndim() != 3 || !src.dtype.is_float() || call.tensor("qkv_weight")?.dtype != src.dtype {
        return Err(InferError::NoRule);
    }
    if !call.env.eq(&src.sizes[2], &features) || call.env.is_empty(&src.sizes) {
        return Err(InferError::NoRule);
    }
    Ok(Inferred::tensor(call.contiguous(src, src.dtype, src.sizes.clone())))
}

/// Self-attention: the output, and the weights where they are wanted.
fn multi_head(call: &mut Call) -> Answer {
    let query = call.tensor("query")?;
    let heads = call.bound.dim("num_head")?.ok_or(InferError::NoRule)?;
    if query.ndim() != 3 || !query.dtype.is_float() || call.tensor("key")? != query || call.tensor("value")? != query {
        return Err(InferError::NoRule);
    }
    if call.tensor("qkv_weight")?.dtype != query.dtype || call.env.is_empty(&query.sizes) {
        return Err(InferError::NoRule);
    }
    let out = ValueMeta::Tensor(call.contiguous(query, query.dtype, query.sizes.clone()));
    let [batch, rows] = [&query.sizes[0], &query.sizes[1]];
    let weights = match (call.bound.bool("need_weights")?, call.bound.bool("average_attn_weights")?) {
        (false, _) => ValueMeta::Const(Const::None),
        (true, true) => {
            ValueMeta::Tensor(call.contiguous(query, query.dtype, vec![batch.clone(), rows.clone(), rows.clone()]))
        }
        (true, false) => {
            let sizes = vec![batch.clone(), heads, rows.clone(), rows.clone()];
            ValueMeta::Tensor(call.contiguous(query, query.dtype, sizes))
        }
    };
    Ok(Inferred::fresh(ValueMeta::Tuple(vec![out, weights])))
}

/// The CPU's flash kernel writes into what `empty_like(query)` makes; where it does not take the arguments, torch composes
/// matrix products, whose result is contiguous.
fn attention(call: &mut Call) -> Answer {
    let (q, k, v) = (call.tensor("query")?, call.tensor("key")?, call.tensor("value")?);
    let dropout = call.bound.float("dropout_p")?.ok_or(InferError::NoRule)?;
    let four_dims = [q, k, v].iter().all(|t| t.ndim() == 4 && t.dtype == q.dtype);
    if !four_dims || !q.dtype.is_float() {
        return Err(InferError::NoRule);
    }
    // Heads of keys and values serve equally many heads of queries each.
    let shares = |heads: &Dim| match (q.sizes[1].as_const(), heads.as_const()) {
        (Some(queries), Some(heads)) => heads > 0 && queries % heads == 0,
        _ => false,
    };
    let grouped = call.bound.bool("enable_gqa")? && shares(&k.sizes[1]);
    let same_heads = call.env.eq(&k.sizes[1], &v.sizes[1]) && (grouped || call.env.eq(&q.sizes[1], &k.sizes[1]));
    let fits = same_heads
        && call.env.eq(&q.sizes[0], &k.sizes[0])
        && call.env.eq(&q.sizes[0], &v.sizes[0])
        && call.env.eq(&q.sizes[3], &k.sizes[3])
        && call.env.eq(&k.sizes[2], &v.sizes[2])
        && [q, k, v].iter().all(|t| !call.env.is_empty(&t.sizes));
    if !fits {
        return Err(InferError::NoRule);
    }
    let mut flash = dropout == 0.0
        && call.ambient.sdpa & Ambient::SDPA_FLASH != 0
        && call.env.eq(&q.sizes[3], &v.sizes[3])
        && [q, k, v].iter().all(|t| call.env.is(&t.strides[3], 1));
    if let Some(mask) = call.maybe_tensor("attn_mask")? {
        let usual = mask.dtype == DType::Bool || mask.dtype == q.dtype;
        if !usual || call.bound.bool("is_causal")? {
            return Err(InferError::NoRule);
        }
        let mut shape = q.sizes.clone();
        shape[3] = k.sizes[2].clone();
        crate::view::expanded(&mut call.env, mask, &shape)?;
        flash &= !mask.requires_grad && matches!(mask.ndim(), 2 | 4);
    }
    let mut sizes = q.sizes.clone();
    sizes[3] = v.sizes[3].clone();
    let strides = if flash { preserved(&mut call.env, q) } else { contiguous_strides(&sizes) };
    let result = call.strided_result(q.dtype, q.device, sizes, strides);
    Ok(Inferred { rng: dropout > 0.0, ..Inferred::tensor(result) })
}
