//! Ops along one dimension that keep the shape: softmax, cumsum and the like.

use super::decompose;
use crate::call::{Answer, Call};
use crate::promote::{Category, category};
use crate::registry::{OpDef, Saved, place::*};
use crate::{InferError, Inferred};
use flambeau_ir::kernel::DType;
use flambeau_ir::tensor::TensorMeta;

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new("softmax", "input:T, dim:I, dtype:D=None", softmax, BOTH)
        .derives(|cx| decompose::softmax(cx, false))
        .paths(&["torch._C._special.special_softmax"]),
    OpDef::new("log_softmax", "input:T, dim:I, dtype:D=None", softmax, BOTH)
        .derives(|cx| decompose::softmax(cx, true))
        .paths(&["torch._C._special.special_log_softmax"]),
    OpDef::new("cumsum", "input:T, dim:I, *, dtype:D=None, out:T=None", cumulative, ALL)
        .derives(decompose::cumsum)
        .saves(Saved::Nothing),
    OpDef::new("cumprod", "input:T, dim:I, *, dtype:D=None, out:T=None", cumulative, ALL),
    OpDef::new("logcumsumexp", "input:T, dim:I, *, out:T=None", log_cumulative, BOTH),
    OpDef::new("cummax", "input:T, dim:I", cumulative_pair, BOTH),
    OpDef::new("cummin", "input:T, dim:I", cumulative_pair, BOTH),
];

fn softmax(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    call.dim_arg("dim", input.ndim())?;
    let dtype = call.dtype("dtype")?.unwrap_or(input.dtype);
    if !dtype.is_float() {
        return Err(InferError::NoRule);
    }
    Ok(Inferred::tensor(call.contiguous(input, dtype, input.sizes.clone())))
}

fn cumulative(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    call.dim_arg("dim", input.ndim())?;
    if call.inplace && call.bound.arg("dtype").is_some() {
        return Err(InferError::NoRule);
    }
    let dtype = match call.dtype("dtype")? {
        Some(dtype) => dtype,
        None if call.inplace => input.dtype,
        None if category(input.dtype) <= Category::Integer => DType::I64,
        None => input.dtype,
    };
    if dtype == DType::Bool {
        return Err(InferError::NoRule);
    }
    let result = call.contiguous(input, dtype, input.sizes.clone());
    call.finish(result, "input")
}

fn log_cumulative(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    call.dim_arg("dim", input.ndim())?;
    if !input.dtype.is_float() {
        return Err(InferError::NoRule);
    }
    let result = call.contiguous(input, input.dtype, input.sizes.clone());
    call.finish(result, "input")
}

fn cumulative_pair(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    call.dim_arg("dim", input.ndim())?;
    let values = call.contiguous(input, input.dtype, input.sizes.clone());
    let indices = TensorMeta { dtype: DType::I64, requires_grad: false, ..values.clone() };
    Ok(Inferred::tuple([values, indices]))
}
