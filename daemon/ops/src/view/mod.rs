//! Views: ops whose result shares its input's storage, and those that are views when they can be (reshape, contiguous).

mod convert;
pub(crate) mod decompose;
pub(crate) mod geometry;
mod parts;

use crate::call::{Answer, Call, Rule, broadcast, invalid};
use crate::layout::{Format, Sizes};
use crate::registry::{
    Mark::{PassesEqual, Severs, TakesForm},
    OpDef, Saved,
    place::*,
};
use crate::{InferError, Inferred};
use flambeau_ir::code::Const;
use flambeau_ir::dim::Dim;
use flambeau_ir::graph::ValueMeta;
use flambeau_ir::tensor::{TensorMeta, contiguous_strides};
use geometry::{resolve_shape, view_strides};

pub(crate) use convert::OPS as CONVERT;
pub(crate) use parts::{OPS as PARTS, check_index};

/// An op that gives what it takes in other sizes or another order.
const fn of_same(name: &'static str, signature: &'static str, rule: Rule, places: u16) -> OpDef {
    OpDef::new(name, signature, rule, places).saves(Saved::Nothing)
}

pub(crate) static OPS: &[OpDef] = &[
    of_same("view", "input:T, size:L* | input:T, dtype:D", view, METHOD).derives(|cx| decompose::shaped(cx, true)),
    of_same("view_as", "input:T, other:T", view_as, METHOD).derives(|cx| decompose::shaped(cx, true)),
    of_same("reshape", "input:T, shape:L*", reshape, BOTH).derives(|cx| decompose::shaped(cx, false)),
    of_same("reshape_as", "input:T, other:T", reshape_as, METHOD)
        .derives(|cx| decompose::shaped(cx, false))
        .is(TakesForm),
    of_same("flatten", "input:T, start_dim:I=0, end_dim:I=-1", flatten, BOTH)
        .derives(|cx| decompose::shaped(cx, false)),
    of_same("ravel", "input:T", ravel, BOTH).derives(|cx| decompose::shaped(cx, false)),
    of_same("unflatten", "input:T, dim:I, sizes:L", unflatten, BOTH).derives(|cx| decompose::shaped(cx, true)),
    of_same("permute", "input:T, dims:L*", permute, BOTH).derives(decompose::permute),
    of_same("transpose", "input:T, dim0:I, dim1:I", transpose, BOTH)
        .derives(decompose::transpose)
        .also(&["swapaxes", "swapdims"]),
    of_same("t", "input:T", t, BOTH).derives(decompose::matrix_transpose),
    of_same("adjoint", "input:T", matrix_transpose, BOTH).derives(decompose::matrix_transpose),
    of_same("movedim", "input:T, source:L, destination:L", movedim, BOTH)
        .derives(decompose::movedim)
        .also(&["moveaxis"]),
    of_same("expand", "input:T, size:L*, *, implicit:B=False", expand, METHOD).derives(decompose::expand),
    of_same("broadcast_to", "input:T, size:L", expand, BOTH).derives(decompose::expand),
    of_same("expand_as", "input:T, other:T", expand_as, METHOD).derives(decompose::expand),
    of_same("broadcast_tensors", "tensors:TL*", broadcast_tensors, FN)
        .derives(decompose::broadcast_tensors)
        .is(PassesEqual),
    of_same("meshgrid", "tensors:TL*, *, indexing:S=ij", meshgrid, FN).derives(decompose::meshgrid),
    of_same("squeeze", "input:T | input:T, dim:L", squeeze, BOTH).derives(|cx| decompose::shaped(cx, true)),
    of_same("unsqueeze", "input:T, dim:I", unsqueeze, BOTH).derives(|cx| decompose::shaped(cx, true)),
    of_same("detach", "input:T", detach, BOTH).is(Severs).lowers(decompose::alias),
    of_same("alias", "input:T", alias, 0).lowers(decompose::alias),
];

fn view(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    if let Some(dtype) = call.dtype("dtype")? {
        if dtype.size() != input.dtype.size() {
            return Err(InferError::NoRule);
        }
        let mut viewed = call.view("input", input.sizes.clone(), input.strides.clone())?;
        if let ValueMeta::Tensor(t) = &mut viewed.meta {
            t.dtype = dtype;
            t.requires_grad = false;
        }
        return Ok(viewed);
    }
    let shape = call.bound.dims("size")?.ok_or(InferError::NoRule)?;
    view_to(call, &shape)
}

fn view_as(call: &mut Call) -> Answer {
    let shape = &call.tensor("other")?.sizes;
    view_to(call, shape)
}

fn view_to(call: &mut Call, shape: &[Dim]) -> Answer {
    let input = call.tensor("input")?;
    let sizes = resolve_shape(&mut call.env, shape, &input.numel())?;
    match view_strides(&mut call.env, &input.sizes, &input.strides, &sizes) {
        Some(strides) => call.view("input", sizes, strides),
        None => invalid("view size is not compatible with input tensor's size and stride"),
    }
}

fn reshape(call: &mut Call) -> Answer {
    let shape = call.bound.dims("shape")?.ok_or(InferError::NoRule)?;
    reshape_to(call, &shape)
}

fn reshape_as(call: &mut Call) -> Answer {
    let shape = &call.tensor("other")?.sizes;
    reshape_to(call, shape)
}

fn reshape_to(call: &mut Call, shape: &[Dim]) -> Answer {
    let input = call.tensor("input")?;
    let sizes = resolve_shape(&mut call.env, shape, &input.numel())?;
    match view_strides(&mut call.env, &input.sizes, &input.strides, &sizes) {
        Some(strides) => call.view("input", sizes, strides),
        None => {
            let strides = contiguous_strides(&sizes);
            Ok(Inferred::tensor(call.copy_meta(input, sizes, strides)))
        }
    }
}

fn flatten(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    let (start, end) = (call.dim_arg("start_dim", input.ndim())?, call.dim_arg("end_dim", input.ndim())?);
    if start > end {
        return invalid("flatten() has invalid args: start_dim cannot come after end_dim");
    }
    if input.ndim() == 0 {
        return reshape_to(call, &[Dim::Const(1)]);
    }
    if start == end {
        return call.same_object("input");
    }
    let mut shape = input.sizes[..start].to_vec();
    shape.push(Dim::product(&input.sizes[start..=end]));
    shape.extend_from_slice(&input.sizes[end + 1..]);
    reshape_to(call, &shape)
}

/// A flat view, or the tensor itself where it is flat already; a copy where it is not contiguous.
fn ravel(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    let numel = input.numel();
    if crate::layout::is_contiguous(&mut call.env, &input.sizes, &input.strides) {
        return view_to(call, &[numel]);
    }
    Ok(Inferred::tensor(call.copy_meta(input, vec![numel], vec![Dim::Const(1)])))
}

fn unflatten(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    let dim = call.dim_arg("dim", input.ndim())?;
    let sizes = call.bound.dims("sizes")?.ok_or(InferError::NoRule)?;
    if input.ndim() == 0 || sizes.is_empty() {
        return Err(InferError::NoRule);
    }
    let parts = resolve_shape(&mut call.env, &sizes, &input.sizes[dim])?;
    let mut shape = input.sizes[..dim].to_vec();
    shape.extend(parts);
    shape.extend_from_slice(&input.sizes[dim + 1..]);
    view_to(call, &shape)
}

fn permuted(call: &Call, order: &[usize]) -> Answer {
    let input = call.tensor("input")?;
    let sizes = order.iter().map(|&d| input.sizes[d].clone()).collect();
    let strides = order.iter().map(|&d| input.strides[d].clone()).collect();
    call.view("input", sizes, strides)
}

fn permute(call: &mut Call) -> Answer {
    let ndim = call.tensor("input")?.ndim();
    let dims = call.bound.ints("dims")?.ok_or(InferError::NoRule)?;
    let order = dims.iter().map(|&d| Call::wrap(d, ndim)).collect::<Result<Vec<_>, _>>()?;
    let mut seen = order.clone();
    seen.sort_unstable();
    if order.len() != ndim || !seen.iter().copied().eq(0..ndim) {
        return invalid("permute(sparse_coo): number of dimensions or repeated dim in permute");
    }
    permuted(call, &order)
}

fn transpose(call: &mut Call) -> Answer {
    let ndim = call.tensor("input")?.ndim();
    let (a, b) = (call.dim_arg("dim0", ndim)?, call.dim_arg("dim1", ndim)?);
    let mut order: Vec<usize> = (0..ndim).collect();
    if ndim > 0 {
        order.swap(a, b);
    }
    permuted(call, &order)
}

fn t(call: &mut Call) -> Answer {
    let ndim = call.tensor("input")?.ndim();
    if ndim > 2 {
        return invalid(format!("t() expects a tensor with <= 2 dimensions, but self is {ndim}D"));
    }
    let order: Vec<usize> = (0..ndim).rev().collect();
    permuted(call, &order)
}

fn matrix_transpose(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    let ndim = input.ndim();
    if ndim < 2 || input.dtype.is_complex() {
        return Err(InferError::NoRule);
    }
    let mut order: Vec<usize> = (0..ndim).collect();
    order.swap(ndim - 2, ndim - 1);
    permuted(call, &order)
}

fn movedim(call: &mut Call) -> Answer {
    let ndim = call.tensor("input")?.ndim();
    let wrapped = |name| -> Result<Vec<usize>, InferError> {
        let dims = call.bound.ints(name)?.ok_or(InferError::NoRule)?;
        dims.iter().map(|&d| Call::wrap(d, ndim)).collect()
    };
    let (from, to) = (wrapped("source")?, wrapped("destination")?);
    let repeats = |v: &[usize]| v.iter().enumerate().any(|(i, d)| v[..i].contains(d));
    if ndim == 0 || from.len() != to.len() || repeats(&from) || repeats(&to) {
        return Err(InferError::NoRule);
    }
    let mut order = vec![usize::MAX; ndim];
    for (f, t) in from.iter().zip(&to) {
        order[*t] = *f;
    }
    let mut rest = (0..ndim).filter(|d| !from.contains(d));
    for slot in order.iter_mut().filter(|d| **d == usize::MAX) {
        *slot = rest.next().ok_or(InferError::NoRule)?;
    }
    permuted(call, &order)
}

fn expand(call: &mut Call) -> Answer {
    let shape = call.bound.dims("size")?.ok_or(InferError::NoRule)?;
    expand_to(call, &shape)
}

fn expand_as(call: &mut Call) -> Answer {
    let shape = &call.tensor("other")?.sizes;
    expand_to(call, shape)
}

/// Each tensor under the common sizes. No argument is named as the views' base: there is one for each.
fn broadcast_tensors(call: &mut Call) -> Answer {
    let tensors = call.tensors("tensors")?;
    let common = broadcast(&mut call.env, tensors.iter().map(|t| t.sizes.as_slice()))?;
    let mut metas = Vec::new();
    for tensor in tensors {
        let (sizes, strides) = expanded(&mut call.env, tensor, &common)?;
        metas.push(call.view_meta(tensor, sizes, strides));
    }
    Ok(Inferred::tuple(metas))
}

/// Each vector along a dimension of its own: the first two are swapped where they index columns and rows (`xy`).
fn meshgrid(call: &mut Call) -> Answer {
    let tensors = call.tensors("tensors")?;
    let swaps = match call.bound.constant("indexing") {
        Some(Const::Str(indexing)) if matches!(&**indexing, "ij" | "xy") => &**indexing == "xy" && tensors.len() > 1,
        _ => return Err(InferError::NoRule),
    };
    // Torch takes scalars for vectors of one element, and wants one type.
    if tensors.iter().any(|t| t.ndim() != 1 || t.dtype != tensors[0].dtype || t.device != tensors[0].device) {
        return Err(InferError::NoRule);
    }
    let mut common: Vec<Dim> = tensors.iter().map(|t| t.sizes[0].clone()).collect();
    if swaps {
        common.swap(0, 1);
    }
    let mut metas = Vec::new();
    for (i, tensor) in tensors.iter().enumerate() {
        let at = if swaps && i < 2 { 1 - i } else { i };
        let mut along = vec![Dim::Const(1); common.len()];
        along[at] = common[at].clone();
        let Some(strides) = view_strides(&mut call.env, &tensor.sizes, &tensor.strides, &along) else {
            return Err(InferError::NoRule);
        };
        let along = call.view_meta(tensor, along, strides);
        let (sizes, strides) = expanded(&mut call.env, &along, &common)?;
        metas.push(call.view_meta(tensor, sizes, strides));
    }
    Ok(Inferred::tuple(metas))
}

fn expand_to(call: &mut Call, shape: &[Dim]) -> Answer {
    let input = call.tensor("input")?;
    let (sizes, strides) = expanded(&mut call.env, input, shape)?;
    call.view("input", sizes, strides)
}

/// Sizes and strides of `t.expand(shape)`.
pub(crate) fn expanded(env: &mut Sizes, t: &TensorMeta, shape: &[Dim]) -> Result<(Vec<Dim>, Vec<Dim>), InferError> {
    let Some(missing) = shape.len().checked_sub(t.ndim()) else {
        return invalid("expand: the number of sizes provided must be at least the number of dimensions in the tensor");
    };
    let (mut sizes, mut strides) = (vec![Dim::Const(0); shape.len()], vec![Dim::Const(0); shape.len()]);
    for d in (0..shape.len()).rev() {
        if t.ndim() == 0 && !shape[d].is(-1) {
            sizes[d] = shape[d].clone();
            continue;
        }
        let own = d.checked_sub(missing);
        let size = own.map_or(Dim::Const(1), |o| t.sizes[o].clone());
        let stride = match own {
            Some(o) => t.strides[o].clone(),
            None if d + 1 < shape.len() => sizes[d + 1].mul(&strides[d + 1]),
            None => Dim::Const(1),
        };
        let wanted = if shape[d].is(-1) {
            if own.is_none() {
                return invalid("expand: -1 isn't allowed in a leading, non-existing dimension");
            }
            size.clone()
        } else {
            shape[d].clone()
        };
        if env.eq(&size, &wanted) {
            (sizes[d], strides[d]) = (size, stride);
        } else if env.is(&size, 1) {
            (sizes[d], strides[d]) = (wanted, Dim::Const(0));
        } else {
            return invalid(format!(
                "The expanded size of the tensor ({wanted}) must match the existing size ({size})"
            ));
        }
    }
    Ok((sizes, strides))
}

fn squeeze(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    let dims = match call.bound.overload {
        0 => (0..input.ndim()).collect::<Vec<_>>(),
        _ => {
            let dims = call.bound.ints("dim")?.ok_or(InferError::NoRule)?;
            dims.iter().map(|&d| Call::wrap(d, input.ndim())).collect::<Result<_, _>>()?
        }
    };
    let keep: Vec<usize> =
        (0..input.ndim()).filter(|d| !dims.contains(d) || !call.env.is(&input.sizes[*d], 1)).collect();
    permuted(call, &keep)
}

fn unsqueeze(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    let dim = call.dim_arg("dim", input.ndim() + 1)?;
    let (sizes, strides) = unsqueezed(&input.sizes, &input.strides, dim);
    call.view("input", sizes, strides)
}

/// Geometry with a dimension of size one put in.
pub(crate) fn unsqueezed(sizes: &[Dim], strides: &[Dim], dim: usize) -> (Vec<Dim>, Vec<Dim>) {
    let stride = sizes.get(dim).map_or(Dim::Const(1), |s| s.mul(&strides[dim]));
    let (mut sizes, mut strides) = (sizes.to_vec(), strides.to_vec());
    sizes.insert(dim, Dim::Const(1));
    strides.insert(dim, stride);
    (sizes, strides)
}

fn detach(call: &mut Call) -> Answer {
    let mut viewed = alias(call)?;
    if let ValueMeta::Tensor(t) = &mut viewed.meta {
        t.requires_grad = false;
    }
    Ok(viewed)
}

fn alias(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    call.view("input", input.sizes.clone(), input.strides.clone())
}

/// Whether `t` already has this format, as `contiguous()` asks.
pub(crate) fn has_format(env: &mut Sizes, t: &TensorMeta, format: Format) -> bool {
    crate::layout::is_contiguous_in(env, &t.sizes, &t.strides, format)
}
