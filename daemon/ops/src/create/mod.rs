//! Tensors out of nothing: fills, ranges, `*_like`, `new_*`; and in-place fills.

pub(crate) mod decompose;

use crate::call::{Answer, Call, differentiable, invalid};
use crate::layout::{Format, preserved, strides_in};
use crate::promote::{Category, category};
use crate::registry::{
    Effect::Draws,
    Mark::{Makes, TakesData, Writes},
    OpDef, Saved,
    place::*,
};
use crate::{InferError, Inferred, OpArg};
use flambeau_ir::code::Const;
use flambeau_ir::dim::Dim;
use flambeau_ir::kernel::DType;
use flambeau_ir::tensor::{Device, TensorMeta, contiguous_strides};

/// A signature that ends in torch's options for new tensors.
macro_rules! sized {
    ($head:literal) => {
        concat!(
            $head,
            ", *, out:T=None, dtype:D=None, layout=None, device=None, pin_memory:B=False, requires_grad:B=False"
        )
    };
}

const SIZED: &str = sized!("size:L*");
const LIKE: &str =
    "input:T, *, dtype:D=None, layout=None, device=None, pin_memory:B=False, requires_grad:B=False, memory_format=None";

const FULL: &str = sized!("size:L, fill_value:N");
const FULL_LIKE: &str = "input:T, fill_value:N, *, dtype:D=None, layout=None, device=None, pin_memory:B=False, \
     requires_grad:B=False, memory_format=None";
const NEW: &str =
    "input:T, size:L*, *, dtype:D=None, layout=None, device=None, pin_memory:B=False, requires_grad:B=False";
const NEW_FULL: &str = "input:T, size:L, fill_value:N, *, dtype:D=None, layout=None, device=None, pin_memory:B=False, requires_grad:B=False";

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new("zeros", SIZED, sized, FN).lowers(decompose::zeros).is(Makes),
    OpDef::new("ones", SIZED, sized, FN).lowers(decompose::ones).is(Makes),
    OpDef::new(
        "empty",
        "size:L*, *, out:T=None, dtype:D=None, layout=None, device=None, pin_memory:B=False, requires_grad:B=False, memory_format=None",
        sized,
        FN,
    ).derives(decompose::zeros).is(Makes),
    OpDef::new(
        "rand",
        "size:L*, *, generator=None, out:T=None, dtype:D=None, layout=None, device=None, pin_memory:B=False, requires_grad:B=False",
        random,
        FN,
    ).is(Makes).effect(Draws),
    OpDef::new(
        "randn",
        "size:L*, *, generator=None, out:T=None, dtype:D=None, layout=None, device=None, pin_memory:B=False, requires_grad:B=False",
        random,
        FN,
    ).is(Makes).effect(Draws),
    OpDef::new("full", FULL, full, FN).lowers(|cx| decompose::full(cx, "fill_value")).is(Makes),
    OpDef::new("zeros_like", LIKE, like, FN).lowers(decompose::zeros),
    OpDef::new("ones_like", LIKE, like, FN).lowers(decompose::ones),
    OpDef::new("empty_like", LIKE, like, FN).lowers(decompose::zeros),
    OpDef::new("rand_like", LIKE, random_like, FN).effect(Draws),
    OpDef::new("randn_like", LIKE, random_like, FN).effect(Draws),
    OpDef::new("full_like", FULL_LIKE, like, FN).lowers(|cx| decompose::full(cx, "fill_value")),
    OpDef::new("new_zeros", NEW, new, METHOD).lowers(decompose::zeros),
    OpDef::new("new_ones", NEW, new, METHOD).lowers(decompose::ones),
    OpDef::new("new_empty", NEW, new, METHOD).lowers(decompose::zeros),
    OpDef::new("new_full", NEW_FULL, new, METHOD).lowers(|cx| decompose::full(cx, "fill_value")),
    OpDef::new(
        "arange",
        concat!(sized!("end:N"), " | ", sized!("start:N, end:N"), " | ", sized!("start:N, end:N, step:N")),
        arange,
        FN,
    ).lowers(decompose::arange).is(Makes),
    OpDef::new("linspace", sized!("start:N, end:N, steps:I"), linspace, FN).is(Makes),
    OpDef::new("logspace", sized!("start:N, end:N, steps:I, base:N=10.0"), linspace, FN).is(Makes),
    OpDef::new("eye", concat!(sized!("n:I"), " | ", sized!("n:I, m:I")), eye, FN).lowers(decompose::eye).is(Makes),
    OpDef::new("fill", "input:T, value:TN", fill, ALL).lowers(|cx| decompose::full(cx, "value")).saves(Saved::Nothing),
    OpDef::new("zero_", "input:T", zero_, METHOD).is(Writes).lowers(decompose::zeros).paths(&["torch.zero_"]),
    OpDef::new("scalar_tensor", sized!("s:N"), scalar_tensor, FN).is(Makes).is(TakesData),
    OpDef::new("tensor", sized!("data"), tensor, FN).lowers(decompose::tensor).is(Makes).is(TakesData),
    OpDef::new("as_tensor", "data, dtype:D=None, device=None", tensor, FN)
        .lowers(decompose::tensor)
        .is(Makes)
        .is(TakesData),
];

/// dtype, device and requires_grad of a new tensor.
struct Options {
    dtype: DType,
    device: Device,
    requires_grad: bool,
}

fn options(call: &Call, dtype: Option<DType>, device: Option<Device>) -> Result<Options, InferError> {
    call.strided()?;
    if call.bound.value("out").is_some() {
        call.absent("out")?;
    }
    let flag = |name: &str| if call.bound.value(name).is_some() { call.bound.bool(name) } else { Ok(false) };
    if flag("pin_memory")? || call.bound.arg("generator").is_some() {
        return Err(InferError::NoRule);
    }
    let dtype = match call.dtype("dtype")? {
        Some(dtype) => dtype,
        None => dtype.map_or_else(|| call.default_dtype(), Ok)?,
    };
    let device = match call.device()?.or(device) {
        Some(device) => device,
        None => match call.ambient.default_device {
            None => Device::CPU,
            Some(d) if d.is_host() => Device::CPU,
            Some(_) => return Err(InferError::NoRule),
        },
    };
    let requires_grad = flag("requires_grad")?;
    if requires_grad && !differentiable(dtype) {
        return invalid("only Tensors of floating point dtype can require gradients");
    }
    Ok(Options { dtype, device, requires_grad })
}

impl Options {
    fn tensor(self, sizes: Vec<Dim>, strides: Vec<Dim>) -> Inferred {
        let Options { dtype, device, requires_grad } = self;
        Inferred::tensor(TensorMeta { dtype, device, sizes, strides, requires_grad })
    }

    fn contiguous(self, sizes: Vec<Dim>) -> Inferred {
        let strides = contiguous_strides(&sizes);
        self.tensor(sizes, strides)
    }
}

fn size(call: &mut Call) -> Result<Vec<Dim>, InferError> {
    let sizes = call.bound.dims("size")?.ok_or(InferError::NoRule)?;
    if sizes.iter().any(|s| call.env.lt(s, &Dim::Const(0))) {
        return invalid("Trying to create tensor with negative dimension");
    }
    Ok(sizes)
}

fn sized(call: &mut Call) -> Answer {
    let options = options(call, None, None)?;
    let sizes = size(call)?;
    match call.bound.value("memory_format").map(|_| call.format()) {
        Some(format) => {
            let strides = strides_in(&sizes, format?.unwrap_or(Format::Contiguous)).ok_or(InferError::NoRule)?;
            Ok(options.tensor(sizes, strides))
        }
        None => Ok(options.contiguous(sizes)),
    }
}

fn random(call: &mut Call) -> Answer {
    drawn(call, sized)
}

/// A new float tensor filled by the generator; an empty one draws nothing.
fn drawn(call: &mut Call, make: crate::call::Rule) -> Answer {
    let made = make(call)?;
    let tensor = made.meta.as_tensor().filter(|t| t.dtype.is_float()).ok_or(InferError::NoRule)?;
    let rng = !call.env.is_empty(&tensor.sizes);
    Ok(Inferred { rng, ..made })
}

/// The type that a Python number has as a tensor.
fn number_type(call: &Call, name: &str) -> Result<DType, InferError> {
    match call.bound.arg(name).and_then(OpArg::seen_number) {
        Some(Category::Bool) => Ok(DType::Bool),
        Some(Category::Integer) => Ok(DType::I64),
        Some(Category::Float) => call.default_dtype(),
        _ => Err(InferError::NoRule),
    }
}

fn full(call: &mut Call) -> Answer {
    let dtype = number_type(call, "fill_value")?;
    let options = options(call, Some(dtype), None)?;
    let sizes = size(call)?;
    Ok(options.contiguous(sizes))
}

fn scalar_tensor(call: &mut Call) -> Answer {
    Ok(options(call, None, None)?.contiguous(Vec::new()))
}

/// `torch.tensor` of numbers, in lists or not.
fn tensor(call: &mut Call) -> Answer {
    let data = call.bound.arg("data").ok_or(InferError::NoRule)?;
    let (mut sizes, mut kind) = (Vec::new(), None);
    literal(data, 0, &mut sizes, &mut kind)?;
    let dtype = match kind {
        Some(Category::Bool) => Some(DType::Bool),
        Some(Category::Integer) => Some(DType::I64),
        Some(Category::Complex) => return Err(InferError::NoRule),
        Some(Category::Float) | None => None,
    };
    Ok(options(call, dtype, None)?.contiguous(sizes.into_iter().map(Dim::Const).collect()))
}

/// Adds a nested list's sizes, and the highest kind of number in it.
pub(crate) fn literal(
    data: &OpArg,
    depth: usize,
    sizes: &mut Vec<i64>,
    kind: &mut Option<Category>,
) -> Result<(), InferError> {
    let items: Vec<OpArg> = match data {
        OpArg::List(items) | OpArg::Tuple(items) => items.clone(),
        OpArg::Const(Const::Tuple(items)) => items.iter().cloned().map(OpArg::Const).collect(),
        number => {
            let category = number.seen_number().ok_or(InferError::NoRule)?;
            *kind = Some(kind.map_or(category, |k| k.max(category)));
            return if sizes.len() == depth { Ok(()) } else { Err(InferError::NoRule) };
        }
    };
    match sizes.get(depth) {
        Some(size) if *size != items.len() as i64 => return Err(InferError::NoRule),
        Some(_) => {}
        // A number was where this list is.
        None if kind.is_some() => return Err(InferError::NoRule),
        // The first of its depth says how long all are.
        None => sizes.push(items.len() as i64),
    }
    items.iter().try_for_each(|item| literal(item, depth + 1, sizes, kind))
}

fn like(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    let options = options(call, Some(input.dtype), Some(input.device))?;
    let strides = match call.format()?.unwrap_or(Format::Preserve) {
        Format::Preserve => preserved(&mut call.env, input),
        format => strides_in(&input.sizes, format).ok_or(InferError::NoRule)?,
    };
    Ok(options.tensor(input.sizes.clone(), strides))
}

fn random_like(call: &mut Call) -> Answer {
    drawn(call, like)
}

fn new(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    let options = options(call, Some(input.dtype), Some(input.device))?;
    let sizes = size(call)?;
    Ok(options.contiguous(sizes))
}

fn arange(call: &mut Call) -> Answer {
    let mut category = Category::Integer;
    for name in ["start", "end", "step"] {
        if call.bound.value(name).is_some() {
            let c = call.bound.arg(name).and_then(OpArg::seen_number).ok_or(InferError::NoRule)?;
            category = category.max(c);
        }
    }
    let length = if category <= Category::Integer { int_range(call)? } else { float_range(call)? };
    let dtype = if category <= Category::Integer { DType::I64 } else { call.default_dtype()? };
    Ok(options(call, Some(dtype), None)?.contiguous(vec![length]))
}

fn int_range(call: &mut Call) -> Result<Dim, InferError> {
    let part = |name: &str, default| match call.bound.value(name) {
        None => Ok(Dim::Const(default)),
        Some(_) => call.bound.dim(name)?.ok_or(InferError::NoRule),
    };
    let (start, end, step) = (part("start", 0)?, part("end", 0)?, part("step", 1)?);
    let Some(step) = step.as_const().filter(|s| *s != 0) else { return Err(InferError::NoRule) };
    let span = end.sub(&start);
    let span = if step > 0 { span } else { span.mul(&Dim::Const(-1)) };
    if call.env.lt(&span, &Dim::Const(0)) {
        return invalid("upper bound and lower bound inconsistent with step sign");
    }
    let step = step.abs();
    Ok(span.add(&Dim::Const(step - 1)).floor_div(&Dim::Const(step)))
}

/// `ceil((end - start) / step)` in double precision, as torch counts.
fn float_range(call: &Call) -> Result<Dim, InferError> {
    let part = |name: &str, default| match call.bound.value(name) {
        None => Ok(default),
        Some(_) => call.bound.float(name)?.ok_or(InferError::NoRule),
    };
    if call.dtype("dtype")?.is_some_and(|d| category(d) <= Category::Integer) {
        return Err(InferError::NoRule);
    }
    let (start, end, step): (f64, f64, f64) = (part("start", 0.0)?, part("end", 0.0)?, part("step", 1.0)?);
    let length = ((end - start) / step).ceil();
    if !length.is_finite() || length < 0.0 {
        return Err(InferError::NoRule);
    }
    Ok(Dim::Const(length as i64))
}

fn linspace(call: &mut Call) -> Answer {
    let steps = call.bound.dim("steps")?.ok_or(InferError::NoRule)?;
    for name in ["start", "end"] {
        if call.bound.arg(name).and_then(OpArg::seen_number).is_none_or(|c| c == Category::Complex) {
            return Err(InferError::NoRule);
        }
    }
    Ok(options(call, None, None)?.contiguous(vec![steps]))
}

fn eye(call: &mut Call) -> Answer {
    let n = call.bound.dim("n")?.ok_or(InferError::NoRule)?;
    let m = match call.bound.value("m") {
        Some(_) => call.bound.dim("m")?.ok_or(InferError::NoRule)?,
        None => n.clone(),
    };
    Ok(options(call, None, None)?.contiguous(vec![n, m]))
}

fn fill(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    let fits = match call.bound.arg("value").ok_or(InferError::NoRule)? {
        OpArg::Tensor(value) => value.ndim() == 0,
        OpArg::Const(Const::Complex(..)) => input.dtype.is_complex(),
        _ => true,
    };
    if !fits {
        return Err(InferError::NoRule);
    }
    if call.inplace {
        return call.written("input");
    }
    if !differentiable(input.dtype) && call.any_grad(DType::F32) {
        return Err(InferError::NoRule);
    }
    let strides = preserved(&mut call.env, input);
    Ok(Inferred::tensor(call.strided_result(input.dtype, input.device, input.sizes.clone(), strides)))
}

fn zero_(call: &mut Call) -> Answer {
    call.written("input")
}
