//! Largest and smallest: max, min, amax, argmax, sort, topk and the like.

use super::decompose;
use super::reduced;
use crate::call::{Answer, Call, invalid};
use crate::layout::preserved;
use crate::registry::{OpDef, place::*};
use crate::{InferError, Inferred};
use flambeau_ir::dim::Dim;
use flambeau_ir::kernel::{DType, ReduceOp};
use flambeau_ir::tensor::TensorMeta;

const EXTREME: &str = "input:T | input:T, dim:I, keepdim:B=False | input:T, other:T";

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new("max", EXTREME, extreme, BOTH).derives(|cx| decompose::extreme(cx, ReduceOp::Max)),
    OpDef::new("min", EXTREME, extreme, BOTH).derives(|cx| decompose::extreme(cx, ReduceOp::Min)),
    OpDef::new("amax", "input:T, dim:L=(), keepdim:B=False, *, out:T=None", bound_of, BOTH)
        .derives(|cx| decompose::plain(cx, ReduceOp::Max)),
    OpDef::new("amin", "input:T, dim:L=(), keepdim:B=False, *, out:T=None", bound_of, BOTH)
        .derives(|cx| decompose::plain(cx, ReduceOp::Min)),
    OpDef::new("aminmax", "input:T, *, dim:I=None, keepdim:B=False", bounds_of, BOTH),
    OpDef::new("argmax", "input:T, dim:I=None, keepdim:B=False", position, BOTH)
        .lowers(|cx| decompose::position(cx, "aten::argmax")),
    OpDef::new("argmin", "input:T, dim:I=None, keepdim:B=False", position, BOTH)
        .lowers(|cx| decompose::position(cx, "aten::argmin")),
    OpDef::new("median", "input:T | input:T, dim:I, keepdim:B=False", median, BOTH),
    OpDef::new("nanmedian", "input:T | input:T, dim:I, keepdim:B=False", median, BOTH),
    OpDef::new("mode", "input:T, dim:I=-1, keepdim:B=False", numbers_along_dim, BOTH),
    OpDef::new("kthvalue", "input:T, k:I, dim:I=-1, keepdim:B=False", kthvalue, BOTH),
    OpDef::new(
        "sort",
        "input:T, dim:I=-1, descending:B=False | input:T, *, stable:B, dim:I=-1, descending:B=False",
        sort,
        BOTH,
    ),
    OpDef::new(
        "argsort",
        "input:T, dim:I=-1, descending:B=False | input:T, *, stable:B, dim:I=-1, descending:B=False",
        argsort,
        BOTH,
    ),
    OpDef::new("topk", "input:T, k:I, dim:I=-1, largest:B=True, sorted:B=True", topk, BOTH),
];

fn index_like(meta: &TensorMeta) -> TensorMeta {
    TensorMeta { dtype: DType::I64, requires_grad: false, ..meta.clone() }
}

/// Refuses to reduce nothing, which eager cannot do either.
fn not_empty(call: &mut Call, t: &TensorMeta) -> Result<(), InferError> {
    if call.env.is_empty(&t.sizes) { Err(InferError::NoRule) } else { Ok(()) }
}

/// Over everything: one number. Along a dimension: values and their positions. With another tensor: pointwise.
fn extreme(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    match call.bound.overload {
        0 => {
            if call.env.is_empty(&input.sizes) {
                return invalid("Expected reduction dim to be specified for an input of no elements");
            }
            Ok(Inferred::tensor(call.contiguous(input, input.dtype, Vec::new())))
        }
        1 => along_dim(call),
        _ => {
            let over = call.operands(&["input", "other"])?;
            let dtype = over.dtype()?;
            let result = call.pointwise(&over, dtype, Some(dtype))?;
            Ok(Inferred::tensor(result))
        }
    }
}

fn along_dim(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    not_empty(call, input)?;
    let sizes = reduced(call, input)?;
    let values = call.contiguous(input, input.dtype, sizes);
    let indices = index_like(&values);
    Ok(Inferred::tuple([values, indices]))
}

/// Refuses bools, of which only the extremes have kernels.
fn no_bools(call: &Call) -> Result<(), InferError> {
    if call.tensor("input")?.dtype == DType::Bool { Err(InferError::NoRule) } else { Ok(()) }
}

/// As [`extreme`] of numbers; eager may give a median of nothing.
fn median(call: &mut Call) -> Answer {
    no_bools(call)?;
    not_empty(call, call.tensor("input")?)?;
    extreme(call)
}

fn numbers_along_dim(call: &mut Call) -> Answer {
    no_bools(call)?;
    along_dim(call)
}

fn kthvalue(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    no_bools(call)?;
    not_empty(call, input)?;
    let (k, dim) = (call.bound.dim("k")?.ok_or(InferError::NoRule)?, call.dim_arg("dim", input.ndim())?);
    let one = Dim::Const(1);
    let size = input.sizes.get(dim).unwrap_or(&one);
    if call.env.lt(&k, &one) || call.env.lt(size, &k) {
        return invalid("kthvalue(): selected number k out of range for dimension");
    }
    along_dim(call)
}

fn bound_of(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    not_empty(call, input)?;
    call.absent("out")?;
    let sizes = reduced(call, input)?;
    Ok(Inferred::tensor(call.contiguous(input, input.dtype, sizes)))
}

fn bounds_of(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    not_empty(call, input)?;
    let sizes = reduced(call, input)?;
    let part = call.contiguous(input, input.dtype, sizes);
    Ok(Inferred::tuple([part.clone(), part]))
}

fn position(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    if input.dtype == DType::Bool {
        return invalid("argmax(): does not support bool input");
    }
    not_empty(call, input)?;
    let sizes = reduced(call, input)?;
    Ok(Inferred::tensor(call.contiguous(input, DType::I64, sizes)))
}

fn sorted_pair(call: &mut Call) -> Result<[TensorMeta; 2], InferError> {
    let input = call.tensor("input")?;
    call.dim_arg("dim", input.ndim())?;
    let strides = preserved(&mut call.env, input);
    let values = call.strided_result(input.dtype, input.device, input.sizes.clone(), strides);
    let indices = index_like(&values);
    Ok([values, indices])
}

fn sort(call: &mut Call) -> Answer {
    sorted_pair(call).map(Inferred::tuple)
}

fn argsort(call: &mut Call) -> Answer {
    let [_, indices] = sorted_pair(call)?;
    Ok(Inferred::tensor(indices))
}

fn topk(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    if input.dtype == DType::Bool {
        return invalid("topk does not support bool dtypes on CPU");
    }
    let dim = call.dim_arg("dim", input.ndim())?;
    let k = call.bound.dim("k")?.ok_or(InferError::NoRule)?;
    let mut sizes = input.sizes.clone();
    if let Some(size) = sizes.get_mut(dim) {
        if call.env.lt(&k, &Dim::Const(0)) || call.env.lt(size, &k) {
            return invalid("selected index k out of range");
        }
        *size = k;
    }
    let values = call.contiguous(input, input.dtype, sizes);
    let indices = index_like(&values);
    Ok(Inferred::tuple([values, indices]))
}
