//! Losses. `reduction` is 0 for none, 1 for mean, 2 for sum.

pub(crate) mod decompose;

use crate::call::{Answer, Call, Pointwise, broadcast, invalid};
use crate::registry::{OpDef, place::*};
use crate::{InferError, Inferred};
use flambeau_ir::kernel::DType;

const ELEMENTWISE: &str = "input:T, target:T, reduction:I=1, *, out:T=None";

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new(
        "cross_entropy_loss",
        "input:T, target:T, weight:T=None, reduction:I=1, ignore_index:I=-100, label_smoothing:N=0.0",
        classes,
        NN,
    )
    .autocast(),
    OpDef::new("nll_loss_nd", "input:T, target:T, weight:T=None, reduction:I=1, ignore_index:I=-100", classes, NN)
        .autocast()
        .checks(),
    OpDef::new("mse_loss", ELEMENTWISE, elementwise, NN).autocast(),
    OpDef::new("l1_loss", ELEMENTWISE, elementwise, NN).autocast(),
    OpDef::new("smooth_l1_loss", "input:T, target:T, reduction:I=1, beta:N=1.0, *, out:T=None", elementwise, NN)
        .autocast(),
    OpDef::new("huber_loss", "input:T, target:T, reduction:I=1, delta:N=1.0, *, out:T=None", elementwise, NN)
        .autocast(),
    OpDef::new(
        "binary_cross_entropy_with_logits",
        "input:T, target:T, weight:T=None, pos_weight:T=None, reduction:I=1",
        elementwise,
        FN,
    )
    .autocast(),
];

/// Scores against class numbers (dimension 1 of the scores, or the only one).
fn classes(call: &mut Call) -> Answer {
    let (input, target) = (call.tensor("input")?, call.tensor("target")?);
    if !input.dtype.is_float() || target.dtype != DType::I64 || input.ndim() == 0 || target.ndim() + 1 != input.ndim() {
        return Err(InferError::NoRule);
    }
    if call.maybe_tensor("weight")?.is_some_and(|w| w.dtype != input.dtype) {
        return Err(InferError::NoRule);
    }
    let class_dim = usize::from(input.ndim() > 1);
    let mut sizes = input.sizes.clone();
    sizes.remove(class_dim);
    if !call.env.same(&sizes, &target.sizes) {
        return invalid("Expected input and target sizes to match");
    }
    let reduced = call.bound.int("reduction")? != Some(0);
    if !reduced && input.ndim() > 2 {
        return Err(InferError::NoRule);
    }
    Ok(Inferred::tensor(call.contiguous(input, input.dtype, if reduced { Vec::new() } else { sizes })))
}

fn elementwise(call: &mut Call) -> Answer {
    let (input, target) = (call.tensor("input")?, call.tensor("target")?);
    if !input.dtype.is_float() || target.dtype != input.dtype {
        return Err(InferError::NoRule);
    }
    for name in ["weight", "pos_weight"] {
        if call.bound.value(name).is_some() {
            call.absent(name)?;
        }
    }
    broadcast(&mut call.env, [&input.sizes[..], &target.sizes])?;
    if call.canon.op.name.starts_with("binary") && !call.env.same(&input.sizes, &target.sizes) {
        return invalid("Target size must be the same as input size");
    }
    if call.bound.int("reduction")? != Some(0) {
        return Ok(Inferred::tensor(call.contiguous(input, input.dtype, Vec::new())));
    }
    let over = call.operands(&["input", "target"])?;
    match call.canon.op.name {
        "huber_loss" => {
            if !call.env.same(&input.sizes, &target.sizes) {
                return Err(InferError::NoRule);
            }
            let strides = crate::layout::preserved(&mut call.env, input);
            let result = call.strided_result(input.dtype, input.device, input.sizes.clone(), strides);
            return Ok(Inferred::tensor(result));
        }
        "binary_cross_entropy_with_logits" => {
            let strides = crate::layout::preserved(&mut call.env, target);
            let result = call.strided_result(input.dtype, input.device, input.sizes.clone(), strides);
            return Ok(Inferred::tensor(result));
        }
        _ => {}
    }
    let mut result = call.pointwise(&over, input.dtype, None)?;
    if call.canon.op.name == "l1_loss" {
        let mut difference = Pointwise::default();
        difference.add(&result);
        result = call.pointwise(&difference, input.dtype, None)?;
    }
    Ok(Inferred::tensor(result))
}
