//! Indexing: `x[...]`, and lookups by index tensors (embedding, gather, scatter, index_select, ...).

pub(crate) mod decompose;
pub(crate) mod derivative;
mod getitem;

use crate::call::{Answer, Call, invalid};
use crate::layout::{Format, preserved, suggest_format};
use crate::promote::category;
use crate::registry::{
    Mark::{Checks, Stores},
    OpDef, Saved,
    place::*,
};
use crate::{InferError, Inferred};
use flambeau_ir::dim::Dim;
use flambeau_ir::kernel::{Binary, DType};
use flambeau_ir::tensor::TensorMeta;

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new("getitem", "input, index", getitem::getitem, 0)
        .derives(decompose::getitem)
        .operator("getitem")
        .saves(Saved::Indices),
    OpDef::new("setitem", "input, index, value", getitem::setitem, 0)
        .derives(decompose::setitem)
        .operator("setitem")
        .is(Stores)
        .saves(Saved::Indices),
    OpDef::new(
        "embedding",
        "weight:T, indices:T, padding_idx:I=-1, scale_grad_by_freq:B=False, sparse:B=False",
        embedding,
        FN,
    )
    .derives(decompose::embedding)
    .is(Checks)
    .saves(Saved::Arguments),
    OpDef::new("index_select", "input:T, dim:I, index:T, *, out:T=None", index_select, BOTH)
        .derives(decompose::index_select)
        .is(Checks)
        .saves(Saved::Arguments),
    OpDef::new("gather", "input:T, dim:I, index:T, *, sparse_grad:B=False, out:T=None", gather, BOTH)
        .derives(decompose::gather)
        .is(Checks)
        .saves(Saved::Arguments),
    OpDef::new("scatter", "input:T, dim:I, index:T, src:TN | input:T, dim:I, index:T, value:N", scatter, ALL)
        .is(Checks),
    OpDef::new("scatter_add", "input:T, dim:I, index:T, src:T", scatter, ALL).is(Checks),
    OpDef::new("index_add", "input:T, dim:I, index:T, source:T, *, alpha:N=1", index_into, ALL).is(Checks),
    OpDef::new("index_copy", "input:T, dim:I, index:T, source:T", index_copy, ALL).is(Checks),
    OpDef::new("index_fill", "input:T, dim:I, index:T, value:N", index_fill, ALL).is(Checks),
    OpDef::new("tril", "input:T, diagonal:I=0, *, out:T=None", triangle, ALL)
        .derives(|cx| decompose::triangle(cx, Binary::Le))
        .saves(Saved::Nothing),
    OpDef::new("triu", "input:T, diagonal:I=0, *, out:T=None", triangle, ALL)
        .derives(|cx| decompose::triangle(cx, Binary::Ge))
        .saves(Saved::Nothing),
    OpDef::new("one_hot", "input:T, num_classes:I=-1", one_hot, NN).lowers(decompose::one_hot).is(Checks),
    OpDef::new("roll", "input:T, shifts:L, dims:L=()", roll, BOTH).derives(decompose::roll).saves(Saved::Nothing),
    OpDef::new("flip", "input:T, dims:L*", flip, BOTH).derives(decompose::flip).saves(Saved::Nothing),
    OpDef::new("repeat", "input:T, repeats:L*", repeat, METHOD).derives(decompose::repeat).saves(Saved::Nothing),
    OpDef::new("tile", "input:T, dims:L*", tile, BOTH).derives(decompose::repeat),
    OpDef::new("repeat_interleave", "input:T, repeats:I, dim:I=None", repeat_interleave, BOTH)
        .derives(decompose::repeat_interleave)
        .saves(Saved::Arguments),
    OpDef::new("cat", "tensors:TL, dim:I=0, *, out:T=None", cat, FN)
        .derives(decompose::cat)
        .also(&["concat", "concatenate"])
        .saves(Saved::Nothing),
    OpDef::new("stack", "tensors:TL, dim:I=0, *, out:T=None", stack, FN)
        .derives(decompose::stack)
        .saves(Saved::Nothing),
    OpDef::new("pad", "input:T, pad:L, mode:S=constant, value:N=None", pad, NN)
        .derives(decompose::pad)
        .saves(Saved::Arguments),
    OpDef::new("constant_pad_nd", "input:T, pad:L, value:N=0", pad, FN).derives(decompose::pad),
];

fn is_index(dtype: DType) -> bool {
    matches!(dtype, DType::I64 | DType::I32)
}

fn embedding(call: &mut Call) -> Answer {
    let (weight, indices) = (call.tensor("weight")?, call.tensor("indices")?);
    if weight.ndim() != 2 || !is_index(indices.dtype) {
        return Err(InferError::NoRule);
    }
    let mut sizes = indices.sizes.clone();
    sizes.push(weight.sizes[1].clone());
    Ok(Inferred::tensor(call.contiguous(weight, weight.dtype, sizes)))
}

fn index_select(call: &mut Call) -> Answer {
    let (input, index) = (call.tensor("input")?, call.tensor("index")?);
    if input.ndim() == 0 || index.ndim() > 1 || !is_index(index.dtype) {
        return Err(InferError::NoRule);
    }
    call.absent("out")?;
    let dim = call.dim_arg("dim", input.ndim())?;
    let mut sizes = input.sizes.clone();
    sizes[dim] = index.numel();
    if call.env.is_empty(&input.sizes) {
        return Err(InferError::NoRule);
    }
    Ok(Inferred::tensor(call.contiguous(input, input.dtype, sizes)))
}

fn gather(call: &mut Call) -> Answer {
    let (input, index) = (call.tensor("input")?, call.tensor("index")?);
    if index.dtype != DType::I64 || input.ndim() != index.ndim() {
        return Err(InferError::NoRule);
    }
    call.absent("out")?;
    let dim = call.dim_arg("dim", input.ndim())?;
    for d in (0..input.ndim()).filter(|d| *d != dim) {
        if call.env.lt(&input.sizes[d], &index.sizes[d]) {
            return invalid("Size does not match at some dimension of index and input");
        }
    }
    Ok(Inferred::tensor(call.contiguous(input, input.dtype, index.sizes.clone())))
}

/// Copies of the input that are then written to keep its layout.
fn written_copy(call: &mut Call) -> Answer {
    if call.inplace {
        return call.written("input");
    }
    let input = call.tensor("input")?;
    let strides = preserved(&mut call.env, input);
    Ok(Inferred::tensor(call.strided_result(input.dtype, input.device, input.sizes.clone(), strides)))
}

fn scatter(call: &mut Call) -> Answer {
    let (input, index) = (call.tensor("input")?, call.tensor("index")?);
    if index.dtype != DType::I64 || input.ndim() != index.ndim() || input.ndim() == 0 {
        return Err(InferError::NoRule);
    }
    if let Some(src) = call.maybe_tensor_or_number("src")
        && (src.dtype != input.dtype || src.ndim() != index.ndim())
    {
        return Err(InferError::NoRule);
    }
    let dim = call.dim_arg("dim", input.ndim())?;
    for d in 0..input.ndim() {
        let beyond_input = d != dim && call.env.lt(&input.sizes[d], &index.sizes[d]);
        let src = call.maybe_tensor_or_number("src");
        if beyond_input || src.is_some_and(|s| call.env.lt(&s.sizes[d], &index.sizes[d])) {
            return invalid("Expected index to be no larger than self and src");
        }
    }
    written_contiguous(call)
}

/// Into a contiguous copy of the input, or the input itself.
fn written_contiguous(call: &mut Call) -> Answer {
    if call.inplace {
        return call.written("input");
    }
    let input = call.tensor("input")?;
    Ok(Inferred::tensor(call.contiguous(input, input.dtype, input.sizes.clone())))
}

fn index_into(call: &mut Call) -> Answer {
    let (input, index, source) = (call.tensor("input")?, call.tensor("index")?, call.tensor("source")?);
    let plain =
        index.ndim() == 1 && is_index(index.dtype) && source.dtype == input.dtype && input.ndim() == source.ndim();
    if !plain || input.ndim() == 0 {
        return Err(InferError::NoRule);
    }
    let dim = call.dim_arg("dim", input.ndim())?;
    for d in 0..input.ndim() {
        let expected = if d == dim { &index.sizes[0] } else { &input.sizes[d] };
        if !call.env.eq(&source.sizes[d], expected) {
            return invalid("source and index do not fit");
        }
    }
    written_contiguous(call)
}

fn index_copy(call: &mut Call) -> Answer {
    if call.tensor("index")?.dtype != DType::I64 {
        return Err(InferError::NoRule);
    }
    index_into(call)
}

fn index_fill(call: &mut Call) -> Answer {
    let (input, index) = (call.tensor("input")?, call.tensor("index")?);
    let value = call.bound.arg("value").and_then(crate::OpArg::seen_number).ok_or(InferError::NoRule)?;
    if index.ndim() != 1 || index.dtype != DType::I64 || input.ndim() == 0 || value > category(input.dtype) {
        return Err(InferError::NoRule);
    }
    call.dim_arg("dim", input.ndim())?;
    written_copy(call)
}

fn triangle(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    if input.ndim() < 2 {
        return invalid("tril: input tensor must have at least 2 dimensions");
    }
    let result = call.contiguous(input, input.dtype, input.sizes.clone());
    call.finish(result, "input")
}

fn one_hot(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    let classes = call.bound.int("num_classes")?.ok_or(InferError::NoRule)?;
    if input.dtype != DType::I64 || classes < 1 || call.env.is_empty(&input.sizes) {
        return Err(InferError::NoRule);
    }
    let mut sizes = input.sizes.clone();
    sizes.push(Dim::Const(classes));
    Ok(Inferred::tensor(call.contiguous(input, DType::I64, sizes)))
}

/// Along each dimension in turn it joins the two parts; without a dimension it rolls the flat tensor.
fn roll(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    let shifts = call.bound.ints("shifts")?.ok_or(InferError::NoRule)?;
    let dims = call.bound.ints("dims")?.ok_or(InferError::NoRule)?;
    match (&shifts[..], &dims[..]) {
        ([_], []) => Ok(Inferred::tensor(call.contiguous(input, input.dtype, input.sizes.clone()))),
        _ if shifts.len() == dims.len() && input.ndim() > 0 && !call.env.is_empty(&input.sizes) => {
            let mut rolled = Inferred::tensor(input.clone());
            for (shift, dim) in shifts.iter().zip(dims) {
                let Some(input) = rolled.meta.as_tensor() else { break };
                let dim = Call::wrap(dim, input.ndim())?;
                let Some(size) = input.sizes[dim].as_const() else { return Err(InferError::NoRule) };
                let start = (size - shift).rem_euclid(size);
                let (mut tail, mut head) = (input.clone(), input.clone());
                tail.sizes[dim] = Dim::Const(size - start);
                head.sizes[dim] = Dim::Const(start);
                rolled = match input.ndim() {
                    1 => Inferred::tensor(call.contiguous(input, input.dtype, input.sizes.clone())),
                    _ => joined(call, &[tail, head], dim)?,
                };
            }
            Ok(rolled)
        }
        _ => Err(InferError::NoRule),
    }
}

fn flip(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    let dims = call.bound.ints("dims")?.ok_or(InferError::NoRule)?;
    let dims = dims.iter().map(|&d| Call::wrap(d, input.ndim())).collect::<Result<Vec<_>, _>>()?;
    if dims.iter().enumerate().any(|(i, d)| dims[..i].contains(d)) {
        return invalid("dim appears multiple times in the list of dims");
    }
    let strides = preserved(&mut call.env, input);
    Ok(Inferred::tensor(call.strided_result(input.dtype, input.device, input.sizes.clone(), strides)))
}

fn repeated(call: &mut Call, mut repeats: Vec<Dim>, pad: bool) -> Answer {
    let input = call.tensor("input")?;
    let missing = input.ndim().saturating_sub(repeats.len());
    if missing > 0 && !pad {
        return invalid("Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor");
    }
    repeats.splice(0..0, std::iter::repeat_n(Dim::Const(1), missing));
    let lead = repeats.len() - input.ndim();
    for (d, size) in input.sizes.iter().enumerate() {
        repeats[lead + d] = repeats[lead + d].mul(size);
    }
    Ok(Inferred::tensor(call.contiguous(input, input.dtype, repeats)))
}

fn repeat(call: &mut Call) -> Answer {
    let repeats = call.bound.dims("repeats")?.ok_or(InferError::NoRule)?;
    repeated(call, repeats, false)
}

fn tile(call: &mut Call) -> Answer {
    let repeats = call.bound.dims("dims")?.ok_or(InferError::NoRule)?;
    repeated(call, repeats, true)
}

fn repeat_interleave(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    let repeats = call.bound.dim("repeats")?.ok_or(InferError::NoRule)?;
    let mut sizes = input.sizes.clone();
    match call.bound.int("dim")? {
        None => sizes = vec![input.numel().mul(&repeats)],
        Some(_) if input.ndim() == 0 => return Err(InferError::NoRule),
        Some(dim) => {
            let dim = Call::wrap(dim, input.ndim())?;
            sizes[dim] = sizes[dim].mul(&repeats);
        }
    }
    Ok(Inferred::tensor(call.contiguous(input, input.dtype, sizes)))
}

fn cat(call: &mut Call) -> Answer {
    let tensors: Vec<TensorMeta> = call.tensors("tensors")?.into_iter().cloned().collect();
    call.absent("out")?;
    let ndim = tensors.first().ok_or(InferError::NoRule)?.ndim();
    // Torch ignores empty 1-dim tensors whatever `dim` is; they are rare enough for the oracle.
    if tensors.iter().any(|t| t.ndim() == 1 && call.env.is(&t.sizes[0], 0)) {
        return Err(InferError::NoRule);
    }
    let dim = call.dim_arg("dim", ndim)?;
    joined(call, &tensors, dim)
}

/// Tensors one after the other along `dim`, in the format that all of them suggest, else contiguous.
fn joined(call: &mut Call, tensors: &[TensorMeta], dim: usize) -> Answer {
    let mut promotion = crate::promote::Promotion::default();
    tensors.iter().for_each(|t| promotion.tensor(t.dtype, t.ndim()));
    let dtype = promotion.result().ok_or(InferError::NoRule)?;
    for t in tensors {
        // Torch ignores empty 1-dim tensors here; they are rare enough for the oracle.
        if t.ndim() == 0 || t.ndim() == 1 && call.env.is(&t.sizes[0], 0) {
            return Err(InferError::NoRule);
        }
    }
    let (first, rest) = tensors.split_first().ok_or(InferError::NoRule)?;
    let mut sizes = first.sizes.clone();
    let format = suggest_format(&mut call.env, &first.sizes, &first.strides);
    let mut one_format = true;
    for t in rest {
        if t.ndim() != first.ndim() {
            return invalid("Tensors must have same number of dimensions");
        }
        for d in 0..sizes.len() {
            if d != dim && !call.env.eq(&t.sizes[d], &first.sizes[d]) {
                return invalid("Sizes of tensors must match except in the concatenated dimension");
            }
        }
        sizes[dim] = sizes[dim].add(&t.sizes[dim]);
        one_format &= suggest_format(&mut call.env, &t.sizes, &t.strides) == format;
    }
    let format = if one_format { format } else { Format::Contiguous };
    Ok(Inferred::tensor(call.in_format(first, dtype, sizes, format)?))
}

/// Joins tensors that each gained a dimension of size one.
fn stack(call: &mut Call) -> Answer {
    let mut tensors: Vec<TensorMeta> = call.tensors("tensors")?.into_iter().cloned().collect();
    call.absent("out")?;
    let first = tensors.first().ok_or(InferError::NoRule)?.clone();
    let dim = call.dim_arg("dim", first.ndim() + 1)?;
    for t in &mut tensors {
        if !call.env.same(&t.sizes, &first.sizes) {
            return invalid("stack expects each tensor to be equal size");
        }
        (t.sizes, t.strides) = crate::view::unsqueezed(&t.sizes, &t.strides, dim);
        if suggest_format(&mut call.env, &t.sizes, &t.strides) == Format::ChannelsLast3d {
            return Err(InferError::NoRule);
        }
    }
    joined(call, &tensors, dim)
}

/// Constant padding keeps the suggested format; other modes have no rule.
fn pad(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    let constant = match call.bound.constant("mode") {
        Some(flambeau_ir::code::Const::Str(mode)) => &**mode == "constant",
        None => true,
        Some(_) => false,
    };
    let pads = call.bound.dims("pad")?.ok_or(InferError::NoRule)?;
    if pads.len() % 2 == 1 || pads.len() / 2 > input.ndim() {
        return Err(InferError::NoRule);
    }
    if !constant {
        return Err(InferError::Told);
    }
    if pads.iter().all(|p| p.is(0)) {
        // A clone, whatever the format.
        let strides = preserved(&mut call.env, input);
        return Ok(Inferred::tensor(call.copy_meta(input, input.sizes.clone(), strides)));
    }
    let mut sizes = input.sizes.clone();
    for (i, pair) in pads.chunks(2).enumerate() {
        let d = input.ndim() - 1 - i;
        sizes[d] = sizes[d].add(&pair[0]).add(&pair[1]);
        if call.env.lt(&sizes[d], &Dim::Const(0)) {
            return invalid("padding resulted in a negative output size");
        }
    }
    let negative = pads.iter().any(|p| call.env.lt(p, &Dim::Const(0)));
    if negative {
        return Err(InferError::NoRule);
    }
    let format = suggest_format(&mut call.env, &input.sizes, &input.strides);
    Ok(Inferred::tensor(call.in_format(input, input.dtype, sizes, format)?))
}
