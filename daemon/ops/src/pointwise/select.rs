//! Pointwise choice and mixtures of several tensors: where, clamp, lerp, addcmul, masked_fill.

use super::decompose;
use super::floated;
use crate::call::{Answer, Call, Pointwise, broadcast, invalid};
use crate::promote::{Category, category};
use crate::registry::{OpDef, Saved, place::*};
use crate::{InferError, Inferred, OpArg};
use flambeau_ir::code::Const;
use flambeau_ir::kernel::{Binary, DType};

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new("where", "condition:T, input:TN, other:TN, *, out:T=None", choose, BOTH)
        .derives(decompose::choose)
        .method("input:TN, condition:T, other:TN")
        .saves(Saved::Arguments),
    OpDef::new(
        "clamp",
        "input:T, min:N=None, max:N=None, *, out:T=None | input:T, min:T=None, max:T=None, *, out:T=None",
        clamp,
        ALL,
    )
    .derives(decompose::clamp)
    .also(&["clip"]),
    OpDef::new("clamp_min", "input:T, min:TN, *, out:T=None", clamp_one, ALL)
        .derives(|cx| decompose::bound(cx, "min", Binary::Max)),
    OpDef::new("clamp_max", "input:T, max:TN, *, out:T=None", clamp_one, ALL)
        .derives(|cx| decompose::bound(cx, "max", Binary::Min)),
    OpDef::new("lerp", "input:T, end:T, weight:TN, *, out:T=None", lerp, ALL)
        .derives(decompose::lerp)
        .saves(Saved::Arguments),
    OpDef::new("addcmul", "input:T, tensor1:T, tensor2:T, *, value:TN=1, out:T=None", addcmul, ALL)
        .derives(decompose::addcmul)
        .saves(Saved::Arguments),
    OpDef::new("addcdiv", "input:T, tensor1:T, tensor2:T, *, value:TN=1, out:T=None", addcdiv, ALL)
        .derives(decompose::addcdiv),
    OpDef::new("masked_fill", "input:T, mask:T, value:TN", masked_fill, ALL)
        .derives(decompose::masked_fill)
        .saves(Saved::Arguments),
];

fn choose(call: &mut Call) -> Answer {
    let condition = call.tensor("condition")?;
    if condition.dtype != DType::Bool {
        return Err(InferError::NoRule);
    }
    call.absent("out")?;
    let values = call.operands(&["input", "other"])?;
    let dtype = values.dtype()?;
    let mut over = Pointwise::default();
    over.add(condition);
    // The chosen values are cast first; the condition stays as it is.
    for name in ["input", "other"] {
        match call.bound.arg(name) {
            Some(OpArg::Tensor(t)) => over.add(&call.cast(t, dtype)),
            Some(number) => call.pointwise_arg(number, &mut over)?,
            None => return Err(InferError::NoRule),
        }
    }
    let result = call.pointwise(&over, dtype, None)?;
    Ok(Inferred::tensor(result))
}

fn clamp(call: &mut Call) -> Answer {
    let mut over = call.operands(&["input", "min", "max"])?;
    let dtype = over.dtype()?;
    if over.is_unary() || dtype == DType::Bool || dtype.is_complex() {
        return Err(InferError::NoRule);
    }
    let negative = |name| matches!(call.bound.constant(name), Some(Const::Int(i)) if *i < 0);
    if dtype == DType::U8 && (negative("min") || negative("max")) {
        return Err(InferError::NoRule);
    }
    over.forget_numbers();
    let result = call.pointwise(&over, dtype, Some(dtype))?;
    call.finish(result, "input")
}

fn clamp_one(call: &mut Call) -> Answer {
    clamp(call)
}

fn lerp(call: &mut Call) -> Answer {
    let (start, end) = (call.tensor("input")?, call.tensor("end")?);
    if start.dtype != end.dtype || !start.dtype.is_float() {
        return Err(InferError::NoRule);
    }
    let mut over = call.operands(&["input", "end", "weight"])?;
    if over.tensors.iter().any(|t| t.dtype != start.dtype) {
        return Err(InferError::NoRule);
    }
    over.forget_numbers();
    let result = call.pointwise(&over, start.dtype, None)?;
    call.finish(result, "input")
}

fn addcmul(call: &mut Call) -> Answer {
    let over = call.operands(&["input", "tensor1", "tensor2"])?;
    let dtype = over.dtype()?;
    call.factor("value")?;
    let result = call.pointwise(&over, dtype, Some(dtype))?;
    call.finish(result, "input")
}

fn addcdiv(call: &mut Call) -> Answer {
    let over = call.operands(&["input", "tensor1", "tensor2"])?;
    let divides_ints = over.tensors[1..].iter().all(|t| category(t.dtype) <= Category::Integer);
    if divides_ints {
        return Err(InferError::NoRule);
    }
    let dtype = floated(call, over.dtype()?)?;
    call.factor("value")?;
    let result = call.pointwise(&over, dtype, Some(dtype))?;
    call.finish(result, "input")
}

/// The functional form copies into a contiguous tensor of the broadcast shape.
fn masked_fill(call: &mut Call) -> Answer {
    let (input, mask) = (call.tensor("input")?, call.tensor("mask")?);
    if mask.dtype != DType::Bool {
        return Err(InferError::NoRule);
    }
    let value = call.bound.arg("value").ok_or(InferError::NoRule)?;
    let fits = match value {
        OpArg::Tensor(v) => v.ndim() == 0 && category(v.dtype) <= category(input.dtype),
        number => number.seen_number().is_some_and(|c| c <= category(input.dtype)),
    };
    if !fits {
        return Err(InferError::NoRule);
    }
    let sizes = broadcast(&mut call.env, [&input.sizes[..], &mask.sizes])?;
    if call.inplace {
        if !call.env.same(&sizes, &input.sizes) {
            return invalid("The expanded size of the tensor must match the existing size");
        }
        return call.written("input");
    }
    Ok(Inferred::tensor(call.contiguous(input, input.dtype, sizes)))
}
