//! Pooling and resampling of images. Results have the input's suggested format.

pub(crate) mod decompose;
pub(crate) mod derivative;

use crate::call::{Answer, Call, invalid};
use crate::conv::per_dim;
use crate::layout::{Format, strides_in, suggest_format};
use crate::registry::{Mark::CpuOnly, OpDef, Saved, place::*};
use crate::{InferError, Inferred};
use flambeau_ir::dim::Dim;
use flambeau_ir::kernel::DType;
use flambeau_ir::tensor::TensorMeta;

const MAX_POOL: &str = "input:T, kernel_size:L, stride:L=(), padding:L=0, dilation:L=1, ceil_mode:B=False";
const AVG_POOL: &str = "input:T, kernel_size:L, stride:L=(), padding:L=0, ceil_mode:B=False, count_include_pad:B=True, divisor_override:I=None";

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new("max_pool2d", MAX_POOL, pool, FN).derives(decompose::max_pool).saves(Saved::Arguments),
    OpDef::new("max_pool2d_with_indices", MAX_POOL, pool_with_indices, NN),
    OpDef::new("avg_pool2d", AVG_POOL, pool, NN)
        .derives(decompose::avg_pool)
        .paths(&["torch.nn.functional.avg_pool2d"])
        .saves(Saved::Arguments),
    OpDef::new("adaptive_avg_pool2d", "input:T, output_size:L, *, out:T=None", adaptive_avg_pool2d, NN)
        .derives(decompose::adaptive_avg_pool),
    OpDef::new(
        "upsample_nearest2d",
        "input:T, output_size:L?, scale_factors:A? | input:T, output_size:L, scales_h:N=None, scales_w:N=None",
        upsample,
        NN,
    ),
    OpDef::new("upsample_bilinear2d", UPSAMPLE, upsample, NN),
    OpDef::new("upsample_bicubic2d", UPSAMPLE, upsample, NN),
    OpDef::new("pixel_shuffle", "input:T, upscale_factor:I", pixel_shuffle, FN)
        .paths(&["torch.nn.functional.pixel_shuffle"])
        .is(CpuOnly),
];

const UPSAMPLE: &str = "input:T, output_size:L?, align_corners:B, scale_factors:A? | \
     input:T, output_size:L, align_corners:B, scales_h:N=None, scales_w:N=None";

/// Where a window may start, counted: the last one must start inside the input or its left padding.
fn windows(
    call: &mut Call,
    size: &Dim,
    kernel: &Dim,
    stride: &Dim,
    padding: &Dim,
    dilation: &Dim,
) -> Result<Dim, InferError> {
    let one = Dim::Const(1);
    let ceil = call.bound.bool("ceil_mode")?;
    let reach = kernel.sub(&one).mul(dilation);
    let mut room = size.add(&padding.mul(&Dim::Const(2))).sub(&reach).sub(&one);
    if ceil {
        room = room.add(stride).sub(&one);
    }
    let mut out = room.floor_div(stride).add(&one);
    if ceil && !call.env.lt(&out.sub(&one).mul(stride), &size.add(padding)) {
        out = out.sub(&one);
    }
    if call.env.lt(&out, &one) {
        return invalid("pooling: output size is too small");
    }
    Ok(out)
}

fn pooled(call: &mut Call) -> Result<TensorMeta, InferError> {
    let input = call.tensor("input")?;
    if !input.dtype.is_float() || !(3..=4).contains(&input.ndim()) || call.env.is_empty(&input.sizes) {
        return Err(InferError::NoRule);
    }
    let kernel = per_dim(call, "kernel_size", 2)?;
    let stride = match call.bound.dims("stride")? {
        None => kernel.clone(),
        Some(s) if s.is_empty() => kernel.clone(),
        Some(_) => per_dim(call, "stride", 2)?,
    };
    let padding = per_dim(call, "padding", 2)?;
    let dilation = match call.bound.value("dilation") {
        Some(_) => per_dim(call, "dilation", 2)?,
        None => vec![Dim::Const(1); 2],
    };
    let first = input.ndim() - 2;
    let mut sizes = input.sizes.clone();
    for d in 0..2 {
        if call.env.lt(&kernel[d], &padding[d].mul(&Dim::Const(2))) {
            return invalid("pad should be at most half of effective kernel size");
        }
        sizes[first + d] = windows(call, &input.sizes[first + d], &kernel[d], &stride[d], &padding[d], &dilation[d])?;
    }
    formatted(call, input, sizes)
}

/// A fresh tensor in the format that the input suggests.
fn formatted(call: &mut Call, input: &TensorMeta, sizes: Vec<Dim>) -> Result<TensorMeta, InferError> {
    let format = suggest_format(&mut call.env, &input.sizes, &input.strides);
    call.in_format(input, input.dtype, sizes, format)
}

fn pool(call: &mut Call) -> Answer {
    pooled(call).map(Inferred::tensor)
}

fn pool_with_indices(call: &mut Call) -> Answer {
    let values = pooled(call)?;
    let indices = TensorMeta { dtype: DType::I64, requires_grad: false, ..values.clone() };
    Ok(Inferred::tuple([values, indices]))
}

/// To one pixel it is a mean, whose channels-last strides torch sets by hand.
fn adaptive_avg_pool2d(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    call.absent("out")?;
    if !input.dtype.is_float() || !(3..=4).contains(&input.ndim()) || call.env.is_empty(&input.sizes) {
        return Err(InferError::NoRule);
    }
    let out = per_dim(call, "output_size", 2)?;
    let first = input.ndim() - 2;
    let mut sizes = input.sizes.clone();
    sizes[first..].clone_from_slice(&out);
    if out.iter().all(|d| d.is(1)) {
        let format = suggest_format(&mut call.env, &input.sizes, &input.strides);
        let strides = if format == Format::ChannelsLast {
            let channels = &sizes[1];
            vec![channels.clone(), Dim::Const(1), channels.clone(), channels.clone()]
        } else {
            strides_in(&sizes, Format::Contiguous).ok_or(InferError::NoRule)?
        };
        return Ok(Inferred::tensor(call.strided_result(input.dtype, input.device, sizes, strides)));
    }
    formatted(call, input, sizes).map(Inferred::tensor)
}

/// To a given size. Scale factors go through floating point and have no rule.
fn upsample(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    if input.ndim() != 4 || !input.dtype.is_float() || call.env.is_empty(&input.sizes) {
        return Err(InferError::NoRule);
    }
    let given = call.bound.dims("output_size")?;
    let Some(out) = given.filter(|o| o.len() == 2) else { return Err(InferError::NoRule) };
    let mut sizes = input.sizes.clone();
    sizes[2..].clone_from_slice(&out);
    formatted(call, input, sizes).map(Inferred::tensor)
}

fn pixel_shuffle(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    let factor = call.bound.int("upscale_factor")?.ok_or(InferError::NoRule)?;
    if input.ndim() != 4 || factor < 1 {
        return Err(InferError::NoRule);
    }
    let square = Dim::Const(factor * factor);
    let contiguous = crate::layout::is_contiguous(&mut call.env, &input.sizes, &input.strides);
    if !contiguous || !call.env.is(&input.sizes[1].modulo(&square), 0) {
        return Err(InferError::NoRule);
    }
    let mut sizes = input.sizes.clone();
    sizes[1] = sizes[1].floor_div(&square);
    for size in &mut sizes[2..] {
        *size = size.mul(&Dim::Const(factor));
    }
    Ok(Inferred::tensor(call.contiguous(input, input.dtype, sizes)))
}
