//! Normalisations.

pub(crate) mod decompose;
pub(crate) mod derivative;

use crate::call::{Answer, Call, invalid};
use crate::layout::{Format, is_contiguous_in, suggest_format};
use crate::registry::{Effect::UpdatesIf, OpDef, Saved, place::*};
use crate::{InferError, Inferred};
use flambeau_ir::kernel::DType;
use flambeau_ir::tensor::{TensorMeta, contiguous_strides};

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new(
        "batch_norm",
        "input:T, weight:T?, bias:T?, running_mean:T?, running_var:T?, training:B, momentum:N, eps:N, cudnn_enabled:B",
        batch_norm,
        FN,
    )
    .derives(decompose::batch_norm).effect(UpdatesIf("training", 5)).saves(Saved::Arguments),
    OpDef::new(
        "layer_norm",
        "input:T, normalized_shape:L, weight:T=None, bias:T=None, eps:N=1e-05, cudnn_enable:B=True",
        layer_norm,
        FN,
    )
    .derives(decompose::layer_norm).saves(Saved::Arguments),
    OpDef::new("rms_norm", "input:T, normalized_shape:L, weight:T=None, eps:N=None", rms_norm, FN)
        .derives(decompose::rms_norm).saves(Saved::Arguments),
    OpDef::new(
        "group_norm",
        "input:T, num_groups:I, weight:T=None, bias:T=None, eps:N=1e-05, cudnn_enabled:B=True",
        group_norm,
        FN,
    )
    .derives(decompose::group_norm).saves(Saved::Arguments),
    OpDef::new(
        "instance_norm",
        "input:T, weight:T?, bias:T?, running_mean:T?, running_var:T?, use_input_stats:B, momentum:N, eps:N, cudnn_enabled:B",
        instance_norm,
        FN,
    )
    .derives(decompose::instance_norm).effect(UpdatesIf("use_input_stats", 5)).saves(Saved::Arguments),
];

fn all_like(call: &Call, input: &TensorMeta, names: &[&str]) -> Result<(), InferError> {
    for name in names {
        if call.maybe_tensor(name)?.is_some_and(|t| t.dtype != input.dtype) {
            return Err(InferError::NoRule);
        }
    }
    Ok(())
}

/// As [`all_like`]; on the CPU parameters of halves may all be float32.
fn all_like_or_wide(call: &Call, input: &TensorMeta, names: &[&str]) -> Result<(), InferError> {
    let is_half = matches!(input.dtype, DType::F16 | DType::Bf16) && input.device.is_host();
    let mut given = Vec::new();
    for name in names {
        given.extend(call.maybe_tensor(name)?);
    }
    if is_half && given.iter().all(|t| t.dtype == DType::F32) { Ok(()) } else { all_like(call, input, names) }
}

fn batch_norm(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    let training = call.bound.bool("training")?;
    if input.ndim() < 2 || !input.dtype.is_float() || call.env.is_empty(&input.sizes) {
        return Err(InferError::NoRule);
    }
    let per_channel = ["weight", "bias", "running_mean", "running_var"];
    all_like_or_wide(call, input, &per_channel)?;
    let mut mutates = Vec::new();
    for name in per_channel {
        let Some(t) = call.maybe_tensor(name)? else { continue };
        if !call.env.eq(&t.numel(), &input.sizes[1]) {
            return invalid(format!("{name} should contain as many elements as the input has channels"));
        }
        if training && name.starts_with("running") {
            mutates.push(call.place(name)?);
        }
    }
    if call.maybe_tensor("running_mean")?.is_some() != call.maybe_tensor("running_var")?.is_some() {
        return invalid("running_mean and running_var must either both be None or neither be None");
    }
    if !training && (call.maybe_tensor("running_mean")?.is_none() || call.maybe_tensor("running_var")?.is_none()) {
        return invalid("Expected running statistics to be defined in evaluation mode");
    }
    let formats = [Format::Contiguous, Format::ChannelsLast, Format::ChannelsLast3d];
    let fits = |format: &Format| is_contiguous_in(&mut call.env, &input.sizes, &input.strides, *format);
    let format = match formats.into_iter().find(fits) {
        Some(format) => format,
        None => suggest_format(&mut call.env, &input.sizes, &input.strides),
    };
    let result = call.in_format(input, input.dtype, input.sizes.clone(), format)?;
    Ok(Inferred { mutates, ..Inferred::tensor(result) })
}

/// Contiguous, whatever the input is.
fn layer_norm(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    let shape = call.bound.dims("normalized_shape")?.ok_or(InferError::NoRule)?;
    all_like_or_wide(call, input, if call.bound.value("bias").is_some() { &["weight", "bias"] } else { &["weight"] })?;
    if !input.dtype.is_float() || shape.is_empty() {
        return Err(InferError::NoRule);
    }
    let fits = input.ndim().checked_sub(shape.len()).is_some_and(|lead| call.env.same(&input.sizes[lead..], &shape));
    if !fits {
        return invalid("Given normalized_shape, expected input with a matching last part of its shape");
    }
    Ok(Inferred::tensor(call.contiguous(input, input.dtype, input.sizes.clone())))
}

/// Of a contiguous input; other layouts depend on the kernel that torch chooses.
fn rms_norm(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    // Dimensions of one element may keep odd strides: only the plain ones are certain.
    if input.strides != contiguous_strides(&input.sizes) || call.env.is_empty(&input.sizes) {
        return Err(InferError::NoRule);
    }
    all_like(call, input, &["weight"])?;
    layer_norm(call)
}

fn group_norm(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    all_like_or_wide(call, input, &["weight", "bias"])?;
    if input.ndim() < 2 || !input.dtype.is_float() || call.env.is_empty(&input.sizes) {
        return Err(InferError::NoRule);
    }
    let groups = call.bound.dim("num_groups")?.ok_or(InferError::NoRule)?;
    if !call.env.is(&input.sizes[1].modulo(&groups), 0) {
        return invalid("Expected number of channels in input to be divisible by num_groups");
    }
    let format = suggest_format(&mut call.env, &input.sizes, &input.strides);
    // On a GPU it depends on torch's version whether the result is laid out so, too.
    if format != Format::Contiguous && !input.device.is_host() {
        return Err(InferError::NoRule);
    }
    Ok(Inferred::tensor(call.in_format(input, input.dtype, input.sizes.clone(), format)?))
}

fn instance_norm(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    all_like(call, input, &["weight", "bias", "running_mean", "running_var"])?;
    let from_input = call.bound.bool("use_input_stats")?;
    let plain = suggest_format(&mut call.env, &input.sizes, &input.strides) == Format::Contiguous;
    if !plain || input.ndim() < 3 || !input.dtype.is_float() || call.env.is_empty(&input.sizes) {
        return Err(InferError::NoRule);
    }
    let (mut tracked, mut mutates) = (0, Vec::new());
    for name in ["running_mean", "running_var"] {
        let Some(t) = call.maybe_tensor(name)? else { continue };
        if !call.env.eq(&t.numel(), &input.sizes[1]) {
            return Err(InferError::NoRule);
        }
        tracked += 1;
        if from_input {
            mutates.push(call.place(name)?);
        }
    }
    if tracked == 1 || !from_input && tracked == 0 {
        return Err(InferError::NoRule);
    }
    let result = call.contiguous(input, input.dtype, input.sizes.clone());
    Ok(Inferred { mutates, ..Inferred::tensor(result) })
}
