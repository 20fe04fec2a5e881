//! Convolutions. A batch of images comes out channels-last if the input or the weight looks channels-last.

pub(crate) mod decompose;
pub(crate) mod derivative;

use crate::call::{Answer, Call, invalid};
use crate::layout::{Format, strides_in, suggest_format};
use crate::registry::{OpDef, Saved, place::*};
use crate::{InferError, Inferred};
use flambeau_ir::code::Const;
use flambeau_ir::dim::Dim;
use flambeau_ir::tensor::TensorMeta;

const CONV: &str = "input:T, weight:T, bias:T=None, stride:L=1, padding:L=0, dilation:L=1, groups:I=1 | \
     input:T, weight:T, bias:T=None, stride:L=1, padding:S=valid, dilation:L=1, groups:I=1";
const TRANSPOSED: &str =
    "input:T, weight:T, bias:T=None, stride:L=1, padding:L=0, output_padding:L=0, groups:I=1, dilation:L=1";

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new("conv1d", CONV, |call| conv(call, 1), FN)
        .derives(|cx| decompose::convolution(cx, 1, false))
        .paths(&["torch.nn.functional.conv1d"])
        .saves(Saved::Factors),
    OpDef::new("conv2d", CONV, |call| conv(call, 2), FN)
        .derives(|cx| decompose::convolution(cx, 2, false))
        .paths(&["torch.nn.functional.conv2d"])
        .saves(Saved::Factors),
    OpDef::new("conv3d", CONV, |call| conv(call, 3), FN)
        .derives(|cx| decompose::convolution(cx, 3, false))
        .paths(&["torch.nn.functional.conv3d"])
        .saves(Saved::Factors),
    OpDef::new("conv_transpose1d", TRANSPOSED, |call| conv(call, 1), FN)
        .derives(|cx| decompose::convolution(cx, 1, true))
        .paths(&["torch.nn.functional.conv_transpose1d"]),
    OpDef::new("conv_transpose2d", TRANSPOSED, |call| conv(call, 2), FN)
        .derives(|cx| decompose::convolution(cx, 2, true))
        .paths(&["torch.nn.functional.conv_transpose2d"]),
    OpDef::new("conv_transpose3d", TRANSPOSED, |call| conv(call, 3), FN)
        .derives(|cx| decompose::convolution(cx, 3, true))
        .paths(&["torch.nn.functional.conv_transpose3d"]),
];

/// A parameter with one value, or one per spatial dimension.
pub(crate) fn per_dim(call: &Call, name: &str, n: usize) -> Result<Vec<Dim>, InferError> {
    let values = call.bound.dims(name)?.ok_or(InferError::NoRule)?;
    match values.len() {
        1 => Ok(vec![values[0].clone(); n]),
        len if len == n => Ok(values),
        _ => Err(InferError::NoRule),
    }
}

struct Window {
    stride: Vec<Dim>,
    padding: Vec<Dim>,
    dilation: Vec<Dim>,
    /// `Some` for transposed convolutions.
    output_padding: Option<Vec<Dim>>,
    /// `padding="same"`.
    same: bool,
}

fn window(call: &Call, n: usize) -> Result<Window, InferError> {
    let same = match call.bound.constant("padding") {
        Some(Const::Str(mode)) if &**mode == "same" => true,
        Some(Const::Str(mode)) if &**mode != "valid" => return Err(InferError::NoRule),
        _ => false,
    };
    let padding = match call.bound.constant("padding") {
        Some(Const::Str(_)) => vec![Dim::Const(0); n],
        _ => per_dim(call, "padding", n)?,
    };
    let output_padding = match call.bound.value("output_padding") {
        None => None,
        Some(_) => Some(per_dim(call, "output_padding", n)?),
    };
    let (stride, dilation) = (per_dim(call, "stride", n)?, per_dim(call, "dilation", n)?);
    if same && stride.iter().any(|s| !s.is(1)) {
        return invalid("padding='same' is not supported for strided convolutions");
    }
    Ok(Window { stride, padding, dilation, output_padding, same })
}

impl Window {
    fn out(&self, d: usize, size: &Dim, kernel: &Dim) -> Dim {
        let one = Dim::Const(1);
        let reach = kernel.sub(&one).mul(&self.dilation[d]);
        let pad = self.padding[d].mul(&Dim::Const(2));
        match &self.output_padding {
            _ if self.same => size.clone(),
            Some(extra) => size.sub(&one).mul(&self.stride[d]).sub(&pad).add(&reach).add(&extra[d]).add(&one),
            None => size.add(&pad).sub(&reach).sub(&one).floor_div(&self.stride[d]).add(&one),
        }
    }
}

/// In `n` spatial dimensions.
fn conv(call: &mut Call, n: usize) -> Answer {
    let (input, weight) = (call.tensor("input")?, call.tensor("weight")?);
    if weight.ndim() != n + 2 || !input.dtype.is_float() {
        return Err(InferError::NoRule);
    }
    let bias = call.maybe_tensor("bias")?;
    if weight.dtype != input.dtype || bias.is_some_and(|b| b.dtype != input.dtype) {
        return invalid("Input type and weight type should be the same");
    }
    let batched = match input.ndim() {
        d if d == n + 2 => true,
        d if d == n + 1 => false,
        _ => return invalid("Expected a batch of images or one image as input to convolution"),
    };
    let lead = usize::from(batched);
    let groups = call.bound.dim("groups")?.ok_or(InferError::NoRule)?;
    let window = window(call, n)?;
    let (out_channels, in_channels) = if window.output_padding.is_some() {
        (weight.sizes[1].mul(&groups), weight.sizes[0].clone())
    } else {
        (weight.sizes[0].clone(), weight.sizes[1].mul(&groups))
    };
    if !call.env.eq(&in_channels, &input.sizes[lead]) {
        return invalid(format!("expected input to have {in_channels} channels, but got {}", input.sizes[lead]));
    }
    let mut sizes = input.sizes[..lead].to_vec();
    sizes.push(out_channels);
    for d in 0..n {
        let size = window.out(d, &input.sizes[lead + 1 + d], &weight.sizes[2 + d]);
        if !call.env.lt(&Dim::Const(0), &size) {
            return Err(InferError::NoRule);
        }
        sizes.push(size);
    }
    if call.env.is_empty(&input.sizes) {
        return Err(InferError::NoRule);
    }
    let strides = output_strides(call, input, weight, &sizes, batched)?;
    Ok(Inferred::tensor(call.strided_result(input.dtype, input.device, sizes, strides)))
}

/// Images are handled as batches: one image gets a batch dimension, a 1-d signal a height, for the length of the op.
fn output_strides(
    call: &mut Call,
    input: &TensorMeta,
    weight: &TensorMeta,
    sizes: &[Dim],
    batched: bool,
) -> Result<Vec<Dim>, InferError> {
    let signal = weight.ndim() == 3;
    let widen = |sizes: &[Dim], strides: &[Dim], batched: bool| {
        let (mut sizes, mut strides) = (sizes.to_vec(), strides.to_vec());
        if !batched {
            (sizes, strides) = crate::view::unsqueezed(&sizes, &strides, 0);
        }
        if signal {
            (sizes, strides) = crate::view::unsqueezed(&sizes, &strides, 2);
        }
        (sizes, strides)
    };
    let (in_sizes, in_strides) = widen(&input.sizes, &input.strides, batched);
    let (weight_sizes, weight_strides) = widen(&weight.sizes, &weight.strides, true);
    let (out_sizes, _) = widen(sizes, sizes, batched);
    let mut format = suggest_format(&mut call.env, &in_sizes, &in_strides);
    if format == Format::Contiguous {
        format = suggest_format(&mut call.env, &weight_sizes, &weight_strides);
    }
    // Signals and volumes take other kernels by type and size; only the usual layout is certain.
    if format != Format::Contiguous && weight.ndim() != 4 {
        let mut all = input.sizes.iter().chain(&weight.sizes).chain(sizes);
        // Which of two layouts a size of one stands for, each kernel decides in its own way, and fake tensors in another.
        if weight.ndim() == 5 && all.any(|size| call.env.is(size, 1)) {
            return Err(InferError::Unknown(
                "the layout of its result depends on the kernel that torch chooses".into(),
            ));
        }
        return Err(InferError::NoRule);
    }
    let mut strides = strides_in(&out_sizes, format).ok_or(InferError::NoRule)?;
    if signal {
        strides.remove(2);
    }
    if !batched {
        strides.remove(0);
    }
    Ok(strides)
}
