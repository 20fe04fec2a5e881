//! Copies and conversions that keep the shape: clone, contiguous, to, float and the like; and in-place copies.

use super::decompose;
use super::has_format;
use crate::call::{Answer, Call, differentiable, invalid};
use crate::layout::{Format, preserved, strides_in, suggest_format};
use crate::registry::{
    Mark::{OfMetadata, TakesForm, Writes},
    OpDef, Saved,
    place::*,
};
use crate::{InferError, Inferred, OpArg};
use flambeau_ir::code::Const;
use flambeau_ir::kernel::DType;
use flambeau_ir::tensor::TensorMeta;

const CAST: &str = "input:T, memory_format=None";

const fn cast(name: &'static str, rule: crate::call::Rule) -> OpDef {
    OpDef::new(name, CAST, rule, METHOD)
}

macro_rules! casts {
    ($($rule:ident => $dtype:ident,)*) => { $(fn $rule(call: &mut Call) -> Answer { to_type(call, DType::$dtype) })* };
}

casts! {
    to_f32 => F32,
    to_f64 => F64,
    to_f16 => F16,
    to_bf16 => Bf16,
    to_i64 => I64,
    to_i32 => I32,
    to_i16 => I16,
    to_i8 => I8,
    to_u8 => U8,
    to_bool => Bool,
}

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new("clone", "input:T, *, memory_format=None", clone, BOTH).derives(decompose::clone).saves(Saved::Nothing),
    OpDef::new("contiguous", "input:T, memory_format=None", contiguous, METHOD)
        .derives(decompose::convert)
        .saves(Saved::Nothing),
    OpDef::new(
        "to",
        "input:T, dtype:D, non_blocking:B=False, copy:B=False, *, memory_format=None | \
         input:T, other:T, non_blocking:B=False, copy:B=False, *, memory_format=None | \
         input:T, device=None, dtype:D=None, non_blocking:B=False, copy:B=False, *, memory_format=None",
        to,
        METHOD,
    )
    .derives(decompose::convert)
    .saves(Saved::Nothing),
    cast("float", to_f32).derives(decompose::convert).saves(Saved::Nothing),
    cast("double", to_f64).derives(decompose::convert).saves(Saved::Nothing),
    cast("half", to_f16).derives(decompose::convert).saves(Saved::Nothing),
    cast("bfloat16", to_bf16).derives(decompose::convert).saves(Saved::Nothing),
    cast("long", to_i64).lowers(decompose::convert),
    cast("int", to_i32).lowers(decompose::convert),
    cast("short", to_i16).lowers(decompose::convert),
    cast("char", to_i8).lowers(decompose::convert),
    cast("byte", to_u8).lowers(decompose::convert),
    cast("bool", to_bool).lowers(decompose::convert),
    OpDef::new("cpu", CAST, cpu, METHOD).derives(decompose::convert),
    OpDef::new("type", "input:T, dtype:D, non_blocking:B=False", type_, METHOD)
        .derives(decompose::convert)
        .is(OfMetadata)
        .saves(Saved::Nothing),
    OpDef::new("type_as", "input:T, other:T", type_as, METHOD)
        .derives(decompose::convert)
        .saves(Saved::Nothing)
        .is(TakesForm),
    OpDef::new("copy_", "input:T, src:T, non_blocking:B=False", copy_, METHOD)
        .is(Writes)
        .derives(decompose::copy)
        .saves(Saved::Nothing),
];

fn clone(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    let format = call.format()?.unwrap_or(Format::Preserve);
    let strides = match format {
        Format::Preserve => preserved(&mut call.env, input),
        format => strides_in(&input.sizes, format).ok_or(InferError::NoRule)?,
    };
    Ok(Inferred::tensor(call.copy_meta(input, input.sizes.clone(), strides)))
}

fn contiguous(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    let format = call.format()?.unwrap_or(Format::Contiguous);
    if has_format(&mut call.env, input, format) {
        return call.same_object("input");
    }
    if format == Format::Preserve {
        return invalid("preserve memory format is unsupported by the contiguous operator");
    }
    let strides = strides_in(&input.sizes, format).ok_or(InferError::NoRule)?;
    Ok(Inferred::tensor(call.copy_meta(input, input.sizes.clone(), strides)))
}

fn to(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    let dtype = match call.maybe_tensor("other")? {
        Some(other) => Some(other.dtype),
        None => call.dtype("dtype")?,
    };
    let moved = call.device()?.is_some_and(|device| device != input.device);
    if moved {
        return Err(InferError::NoRule);
    }
    converted_to(call, dtype.unwrap_or(input.dtype), call.bound.bool("copy")?)
}

fn to_type(call: &mut Call, dtype: DType) -> Answer {
    converted_to(call, dtype, false)
}

/// On the same device.
fn converted_to(call: &mut Call, dtype: DType, copy: bool) -> Answer {
    let input = call.tensor("input")?;
    let format = call.format()?.unwrap_or(Format::Preserve);
    let keeps = dtype == input.dtype
        && !copy
        && (format == Format::Preserve || suggest_format(&mut call.env, &input.sizes, &input.strides) == format);
    if keeps {
        return call.same_object("input");
    }
    let strides = match format {
        Format::Preserve => preserved(&mut call.env, input),
        format => strides_in(&input.sizes, format).ok_or(InferError::NoRule)?,
    };
    let mut meta = TensorMeta { dtype, strides, ..input.clone() };
    meta.requires_grad = call.grad_of(dtype, [input]) && differentiable(input.dtype);
    Ok(Inferred::tensor(meta))
}

fn cpu(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    if !input.device.is_cpu() {
        return Err(InferError::NoRule);
    }
    to_type(call, input.dtype)
}

fn type_(call: &mut Call) -> Answer {
    let dtype = call.dtype("dtype")?.ok_or(InferError::NoRule)?;
    to_type(call, dtype)
}

fn type_as(call: &mut Call) -> Answer {
    let dtype = call.tensor("other")?.dtype;
    to_type(call, dtype)
}

fn copy_(call: &mut Call) -> Answer {
    let (input, src) = (call.tensor("input")?, call.tensor("src")?);
    super::expanded(&mut call.env, src, &input.sizes)?;
    if matches!(call.bound.arg("non_blocking"), Some(OpArg::Const(Const::Bool(true)))) {
        return Err(InferError::NoRule);
    }
    call.written("input")
}
