//! Activation functions: float tensors in, the same type and layout out.

use super::decompose_activation as decompose;
use super::decompose_special as special;
use super::same_type;
use crate::call::{Answer, Call};
use crate::layout::strides_in;
use crate::registry::{Mark::NoBools, OpDef, Saved, place::*};
use crate::{InferError, Inferred};
use flambeau_ir::dim::Dim;

const fn activation(name: &'static str, text: &'static str, places: u16) -> OpDef {
    OpDef::new(name, text, float_only, places)
}

const NN_ALL: u16 = NN | INPLACE;

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new("relu", "input:T", same_type, ALL).is(NoBools).derives(decompose::relu),
    OpDef::new("relu6", "input:T", like, NN_ALL).derives(|cx| decompose::clamped(cx, 0.0, 6.0)),
    OpDef::new("hardtanh", "input:T, min_val:N=-1.0, max_val:N=1.0, *, out:T=None", like, NN_ALL)
        .derives(decompose::hardtanh),
    activation("gelu", "input:T, *, approximate:S=none, out:T=None", NN_ALL)
        .derives(decompose::gelu)
        .saves(Saved::Arguments),
    activation("silu", "input:T, *, out:T=None", NN_ALL).derives(decompose::silu).saves(Saved::Arguments),
    activation("mish", "input:T, *, out:T=None", NN_ALL).derives(decompose::mish).saves(Saved::Arguments),
    activation("hardswish", "input:T, *, out:T=None", NN_ALL).derives(decompose::hardswish).saves(Saved::Arguments),
    activation("hardsigmoid", "input:T, *, out:T=None", NN_ALL).derives(decompose::hardsigmoid),
    activation("elu", "input:T, alpha:N=1, scale:N=1, input_scale:N=1, *, out:T=None", NN_ALL).derives(decompose::elu),
    activation("selu", "input:T", FN | INPLACE)
        .derives(|cx| decompose::exponential(cx, 1.673_263_242_354_377_2, 1.050_700_987_355_480_5, 1.0)),
    activation("celu", "input:T, alpha:N=1.0", FN | INPLACE).derives(decompose::celu),
    activation("leaky_relu", "input:T, negative_slope:N=0.01, *, out:T=None", NN_ALL)
        .derives(decompose::leaky_relu)
        .saves(Saved::Arguments),
    activation("softplus", "input:T, beta:N=1, threshold:N=20, *, out:T=None", NN)
        .derives(decompose::softplus)
        .saves(Saved::Arguments),
    OpDef::new("log_sigmoid", "input:T, *, out:T=None", log_sigmoid, NN)
        .derives(decompose::log_sigmoid)
        .paths(&["torch.nn.functional.logsigmoid"]),
    activation("softshrink", "input:T, lambd:N=0.5, *, out:T=None", NN).lowers(|cx| special::shrunk(cx, true)),
    activation("hardshrink", "input:T, lambd:N=0.5, *, out:T=None", BOTH).lowers(|cx| special::shrunk(cx, false)),
    OpDef::new("threshold", "input:T, threshold:N, value:N, *, out:T=None", same_type, FN | INPLACE)
        .derives(decompose::threshold)
        .paths(&["torch._C._nn.threshold"])
        .is(NoBools),
    OpDef::new("prelu", "input:T, weight:T", prelu, BOTH).derives(decompose::prelu),
    OpDef::new("glu", "input:T, dim:I=-1, *, out:T=None", glu, NN).derives(decompose::glu),
];

pub(super) fn float_only(call: &mut Call) -> Answer {
    if !call.tensor("input")?.dtype.is_float() {
        return Err(InferError::NoRule);
    }
    same_type(call)
}

/// Into what `empty_like` makes.
fn like(call: &mut Call) -> Answer {
    let dtype = call.tensor("input")?.dtype;
    if dtype.is_float() { super::like_input(call, dtype) } else { Err(InferError::NoRule) }
}

/// Contiguous, whatever the input is.
fn log_sigmoid(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    if !input.dtype.is_float() {
        return Err(InferError::NoRule);
    }
    call.absent("out")?;
    Ok(Inferred::tensor(call.contiguous(input, input.dtype, input.sizes.clone())))
}

/// The weight has one element, or one per channel (dimension 1).
fn prelu(call: &mut Call) -> Answer {
    let (input, weight) = (call.tensor("input")?, call.tensor("weight")?);
    if !input.dtype.is_float() || weight.dtype != input.dtype || weight.ndim() > 1 || input.ndim() < 1 {
        return Err(InferError::NoRule);
    }
    let mut sizes = vec![Dim::Const(1); input.ndim()];
    let channels = weight.numel();
    if !call.env.is(&channels, 1) {
        if input.ndim() < 2 || !call.env.eq(&channels, &input.sizes[1]) {
            return Err(InferError::NoRule);
        }
        sizes[1] = channels;
    }
    let mut shaped = weight.clone();
    shaped.strides = strides_in(&sizes, crate::layout::Format::Contiguous).ok_or(InferError::NoRule)?;
    shaped.sizes = sizes;
    let mut over = crate::call::Pointwise::default();
    over.add(input);
    over.add(&shaped);
    // The result is made like the input; the operands only have to broadcast.
    call.pointwise(&over, input.dtype, None)?;
    super::like_input(call, input.dtype)
}

fn glu(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    if !input.dtype.is_float() || input.ndim() == 0 {
        return Err(InferError::NoRule);
    }
    call.absent("out")?;
    let dim = call.dim_arg("dim", input.ndim())?;
    let two = Dim::Const(2);
    if !call.env.is(&input.sizes[dim].modulo(&two), 0) {
        return crate::call::invalid("Halving dimension must be even");
    }
    let mut half = input.clone();
    half.sizes[dim] = input.sizes[dim].floor_div(&two);
    let mut over = crate::call::Pointwise::default();
    over.add(&half);
    over.add(&half);
    let result = call.pointwise(&over, input.dtype, None)?;
    Ok(Inferred::tensor(result))
}
