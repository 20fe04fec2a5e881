//! Losses. `reduction` is 0 for none, 1 for mean, 2 for sum.

pub(crate) mod decompose;
pub(crate) mod derivative;

use crate::call::{Answer, Call, Pointwise, broadcast, invalid};
use crate::registry::{Mark::Checks, OpDef, place::*};
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
    .derives(decompose::cross_entropy),
    OpDef::new("nll_loss_nd", "input:T, target:T, weight:T=None, reduction:I=1, ignore_index:I=-100", classes, NN)
        .is(Checks),
    OpDef::new("mse_loss", ELEMENTWISE, elementwise, NN).derives(decompose::mse),
    OpDef::new("l1_loss", ELEMENTWISE, absolute, NN).derives(decompose::l1),
    OpDef::new("smooth_l1_loss", "input:T, target:T, reduction:I=1, beta:N=1.0, *, out:T=None", elementwise, NN)
        .derives(decompose::smooth_l1),
    OpDef::new("huber_loss", "input:T, target:T, reduction:I=1, delta:N=1.0, *, out:T=None", of_same_sizes, NN)
        .derives(decompose::huber),
    OpDef::new(
        "binary_cross_entropy",
        "input:T, target:T, weight:T=None, reduction:I=1, *, out:T=None",
        of_same_sizes,
        NN,
    )
    .is(Checks),
    OpDef::new(
        "binary_cross_entropy_with_logits",
        "input:T, target:T, weight:T=None, pos_weight:T=None, reduction:I=1",
        logits,
        FN,
    )
    .derives(decompose::logits),
    OpDef::told("kl_div", "input:T, target:T, reduction:I=1, *, log_target:B=False", FN).derives(decompose::divergence),
    OpDef::told("soft_margin_loss", ELEMENTWISE, NN).derives(decompose::soft_margin),
    OpDef::told("hinge_embedding_loss", "input:T, target:T, margin:N=1.0, reduction:I=1", FN)
        .derives(decompose::hinge_embedding),
    OpDef::told("margin_ranking_loss", "input1:T, input2:T, target:T, margin:N=0.0, reduction:I=1", FN)
        .derives(decompose::margin_ranking),
    OpDef::told("poisson_nll_loss", "input:T, target:T, log_input:B, full:B, eps:N, reduction:I", FN)
        .derives(decompose::poisson),
    OpDef::new(
        "ctc_loss",
        "log_probs:T, targets:T, input_lengths, target_lengths, blank:I=0, reduction:I=1, zero_infinity:B=False",
        sequences,
        FN,
    )
    .is(Checks),
];

/// Log-probabilities (time, batch, class), or (time, class), against sequences of classes.
fn sequences(call: &mut Call) -> Answer {
    let input = call.tensor("log_probs")?;
    let [_, batch @ .., _] = &input.sizes[..] else { return Err(InferError::NoRule) };
    if !input.dtype.is_float() || batch.len() > 1 || call.env.is_empty(&input.sizes) {
        return Err(InferError::NoRule);
    }
    let reduced = call.bound.int("reduction")? != Some(0);
    Ok(Inferred::tensor(call.contiguous(input, input.dtype, if reduced { vec![] } else { batch.to_vec() })))
}

/// Scores against class numbers (dimension 1 of the scores, or the only one).
fn classes(call: &mut Call) -> Answer {
    let (input, target) = (call.tensor("input")?, call.tensor("target")?);
    if input.dtype.is_float() && target.dtype == input.dtype {
        return Err(InferError::Told);
    }
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

/// Checks the operands; a number where the losses of the elements are reduced to one.
fn reduced(call: &mut Call) -> Result<Option<Inferred>, InferError> {
    let (input, target) = (call.tensor("input")?, call.tensor("target")?);
    if !input.dtype.is_float() || target.dtype != input.dtype {
        return Err(InferError::NoRule);
    }
    for name in ["weight", "pos_weight"] {
        if let Some(weight) = call.maybe_tensor(name)? {
            return Err(if weight.dtype == input.dtype { InferError::Told } else { InferError::NoRule });
        }
    }
    broadcast(&mut call.env, [&input.sizes[..], &target.sizes])?;
    let one = call.bound.int("reduction")? != Some(0);
    Ok(one.then(|| Inferred::tensor(call.contiguous(input, input.dtype, Vec::new()))))
}

fn elementwise(call: &mut Call) -> Answer {
    if let Some(number) = reduced(call)? {
        return Ok(number);
    }
    let over = call.operands(&["input", "target"])?;
    let dtype = call.tensor("input")?.dtype;
    Ok(Inferred::tensor(call.pointwise(&over, dtype, None)?))
}

/// The absolute value of a difference.
fn absolute(call: &mut Call) -> Answer {
    let difference = elementwise(call)?;
    let difference = difference.meta.as_tensor().ok_or(InferError::NoRule)?;
    let mut over = Pointwise::default();
    over.add(difference);
    Ok(Inferred::tensor(call.pointwise(&over, difference.dtype, None)?))
}

/// Into what `empty_like` makes of one of the operands.
fn like(call: &mut Call, name: &str) -> Answer {
    let (input, like) = (call.tensor("input")?, call.tensor(name)?);
    let strides = crate::layout::preserved(&mut call.env, like);
    Ok(Inferred::tensor(call.strided_result(input.dtype, input.device, input.sizes.clone(), strides)))
}

/// Of input and target of the same sizes.
fn of_same_sizes(call: &mut Call) -> Answer {
    if let Some(number) = reduced(call)? {
        return Ok(number);
    }
    if !call.env.same(&call.tensor("input")?.sizes, &call.tensor("target")?.sizes) {
        return Err(InferError::NoRule);
    }
    like(call, "input")
}

fn logits(call: &mut Call) -> Answer {
    let number = reduced(call)?;
    if !call.env.same(&call.tensor("input")?.sizes, &call.tensor("target")?.sizes) {
        return invalid("Target size must be the same as input size");
    }
    number.map_or_else(|| like(call, "target"), Ok)
}
