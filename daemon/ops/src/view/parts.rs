//! Views of parts of a tensor: select, narrow, split, unbind, diagonal, unfold, as_strided. Indexing with `[]` is in
//! `index`.

use super::{decompose, of_same};
use crate::call::{Answer, Call, invalid};
use crate::registry::{OpDef, place::*};
use crate::{InferError, Inferred};
use flambeau_ir::dim::Dim;
use flambeau_ir::graph::ValueMeta;

pub(crate) static OPS: &[OpDef] = &[
    of_same("select", "input:T, dim:I, index:I", select, BOTH).derives(decompose::select),
    of_same("narrow", "input:T, dim:I, start:I, length:I", narrow, BOTH).derives(decompose::narrow),
    of_same("split", "tensor:T, split_size:L, dim:I=0 | tensor:T, split_size_or_sections:L, dim:I=0", split, BOTH)
        .derives(decompose::split)
        .method("tensor:T, split_size:L, dim:I=0"),
    of_same("split_with_sizes", "tensor:T, split_size:L, dim:I=0 | tensor:T, split_sizes:L, dim:I=0", split, BOTH)
        .derives(decompose::split),
    of_same("chunk", "tensor:T, chunks:I, dim:I=0", chunk, BOTH)
        .derives(decompose::split)
        .method("tensor:T, chunks:I, dim:I=0"),
    of_same("tensor_split", TENSOR_SPLIT, |call| tensor_split(call, None), BOTH).derives(decompose::split),
    of_same("hsplit", SPLIT_OF_DIM, |call| split_along(call, 1), BOTH).derives(|cx| decompose::split_along(cx, 1)),
    of_same("vsplit", SPLIT_OF_DIM, |call| split_along(call, 0), BOTH).derives(|cx| decompose::split_along(cx, 0)),
    of_same("dsplit", SPLIT_OF_DIM, |call| split_along(call, 2), BOTH).derives(|cx| decompose::split_along(cx, 2)),
    of_same("unbind", "tensor:T, dim:I=0", unbind, BOTH).derives(decompose::unbind),
    of_same("diagonal", "input:T, offset:I=0, dim1:I=0, dim2:I=1", diagonal, BOTH).lowers(decompose::diagonal),
    of_same("linalg_diagonal", "input:T, *, offset:I=0, dim1:I=-2, dim2:I=-1", diagonal, 0)
        .derives(decompose::diagonal)
        .paths(&["torch.linalg.diagonal", "torch._C._linalg.linalg_diagonal"]),
    of_same("unfold", "input:T, dimension:I, size:I, step:I", unfold, METHOD).lowers(decompose::unfold),
    of_same("as_strided", "input:T, size:L, stride:L, storage_offset:I=None", as_strided, BOTH)
        .lowers(decompose::as_strided),
];

const TENSOR_SPLIT: &str = "input:T, indices_or_sections:I, dim:I=0 | input:T, indices_or_sections:L, dim:I=0 | \
     input:T, sections:I, dim:I=0 | input:T, indices:L, dim:I=0";
const SPLIT_OF_DIM: &str = "input:T, indices_or_sections:I | input:T, indices_or_sections:L | \
     input:T, sections:I | input:T, indices:L";

fn select(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    if input.ndim() == 0 {
        return invalid("select() cannot be applied to a 0-dim tensor.");
    }
    let dim = call.dim_arg("dim", input.ndim())?;
    let index = call.bound.dim("index")?.ok_or(InferError::NoRule)?;
    check_index(call, &index, &input.sizes[dim])?;
    let (mut sizes, mut strides) = (input.sizes.clone(), input.strides.clone());
    sizes.remove(dim);
    strides.remove(dim);
    call.view("input", sizes, strides)
}

/// `-size <= index < size`.
pub(crate) fn check_index(call: &mut Call, index: &Dim, size: &Dim) -> Result<(), InferError> {
    let low = size.mul(&Dim::Const(-1));
    if call.env.lt(index, &low) || !call.env.lt(index, size) {
        return invalid(format!("index {index} is out of bounds for a dimension with size {size}"));
    }
    Ok(())
}

fn narrow(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    if input.ndim() == 0 {
        return invalid("narrow() cannot be applied to a 0-dim tensor.");
    }
    let dim = call.dim_arg("dim", input.ndim())?;
    let start = call.bound.dim("start")?.ok_or(InferError::NoRule)?;
    let length = call.bound.dim("length")?.ok_or(InferError::NoRule)?;
    let size = &input.sizes[dim];
    let first = if call.env.lt(&start, &Dim::Const(0)) { start.add(size) } else { start };
    let bad = call.env.lt(&first, &Dim::Const(0))
        || call.env.lt(&length, &Dim::Const(0))
        || call.env.lt(size, &first.add(&length));
    if bad {
        return invalid("narrow(): start and length exceed the dimension size");
    }
    let mut sizes = input.sizes.clone();
    sizes[dim] = length;
    call.view("input", sizes, input.strides.clone())
}

/// A tuple of views of parameter `of` with these lengths along `dim`.
fn pieces(call: &Call, of: &str, dim: usize, lengths: &[Dim]) -> Answer {
    let tensor = call.tensor(of)?;
    let piece = |length: &Dim| {
        let mut sizes = tensor.sizes.clone();
        sizes[dim] = length.clone();
        ValueMeta::Tensor(call.view_meta(tensor, sizes, tensor.strides.clone()))
    };
    let view_of = Some(call.place(of)?);
    Ok(Inferred { view_of, ..Inferred::fresh(ValueMeta::Tuple(lengths.iter().map(piece).collect())) })
}

/// Lengths of pieces of `size` each, the last one shorter. The number of pieces must be fixed.
fn equal_lengths(call: &mut Call, total: &Dim, size: &Dim) -> Result<Vec<Dim>, InferError> {
    if call.env.is(total, 0) {
        return Ok(vec![total.clone()]);
    }
    if call.env.lt(size, &Dim::Const(1)) {
        return Err(InferError::NoRule);
    }
    let full = total.floor_div(size);
    let Some(full) = full.as_const() else {
        return Err(InferError::Dynamic(format!("split of {total} elements into pieces of {size}")));
    };
    let rest = total.sub(&size.mul(&Dim::Const(full)));
    let mut lengths = vec![size.clone(); full as usize];
    if !call.env.is(&rest, 0) {
        lengths.push(rest);
    }
    Ok(lengths)
}

fn split(call: &mut Call) -> Answer {
    let tensor = call.tensor("tensor")?;
    if tensor.ndim() == 0 {
        return Err(InferError::NoRule);
    }
    let dim = call.dim_arg("dim", tensor.ndim())?;
    let name = ["split_size", "split_size_or_sections", "split_sizes"]
        .into_iter()
        .find(|n| call.bound.value(n).is_some())
        .ok_or(InferError::NoRule)?;
    let total = tensor.sizes[dim].clone();
    if let Ok(Some(size)) = call.bound.dim(name) {
        let lengths = equal_lengths(call, &total, &size)?;
        return pieces(call, "tensor", dim, &lengths);
    }
    let lengths = call.bound.dims(name)?.ok_or(InferError::NoRule)?;
    let sum = lengths.iter().fold(Dim::Const(0), |sum, l| sum.add(l));
    if !call.env.eq(&sum, &total) {
        return invalid("split_with_sizes expects split_sizes to sum exactly to the dimension size");
    }
    pieces(call, "tensor", dim, &lengths)
}

fn chunk(call: &mut Call) -> Answer {
    let tensor = call.tensor("tensor")?;
    let chunks = call.bound.int("chunks")?.ok_or(InferError::NoRule)?;
    if tensor.ndim() == 0 || chunks < 1 {
        return Err(InferError::NoRule);
    }
    let dim = call.dim_arg("dim", tensor.ndim())?;
    let total = tensor.sizes[dim].clone();
    if call.env.is(&total, 0) {
        return pieces(call, "tensor", dim, &vec![total; chunks as usize]);
    }
    let size = total.add(&Dim::Const(chunks - 1)).floor_div(&Dim::Const(chunks));
    let lengths = equal_lengths(call, &total, &size)?;
    pieces(call, "tensor", dim, &lengths)
}

fn unbind(call: &mut Call) -> Answer {
    let tensor = call.tensor("tensor")?;
    if tensor.ndim() == 0 {
        return invalid("Dimension specified as 0 but tensor has no dimensions");
    }
    let dim = call.dim_arg("dim", tensor.ndim())?;
    let Some(count) = tensor.sizes[dim].as_const() else {
        return Err(InferError::Dynamic(format!("unbind of {} elements", tensor.sizes[dim])));
    };
    let (mut sizes, mut strides) = (tensor.sizes.clone(), tensor.strides.clone());
    sizes.remove(dim);
    strides.remove(dim);
    let part = ValueMeta::Tensor(call.view_meta(tensor, sizes, strides));
    let view_of = if count > 0 { Some(call.place("tensor")?) } else { None };
    Ok(Inferred { view_of, ..Inferred::fresh(ValueMeta::Tuple(vec![part; count as usize])) })
}

/// Into sections whose sizes differ by at most one, or before each of these indices.
fn tensor_split(call: &mut Call, along: Option<usize>) -> Answer {
    let input = call.tensor("input")?;
    let dim = match along {
        Some(dim) => dim,
        None if input.ndim() == 0 => return Err(InferError::NoRule),
        None => call.dim_arg("dim", input.ndim())?,
    };
    let Some(size) = input.sizes[dim].as_const() else {
        return Err(InferError::Dynamic("sections of a symbolic size".into()));
    };
    let given = |name: &str| call.bound.value(name).is_some();
    let name = ["indices_or_sections", "sections", "indices"].into_iter().find(|name| given(name));
    let name = name.ok_or(InferError::NoRule)?;
    let lengths: Vec<i64> = match call.bound.int(name) {
        Ok(Some(count)) if count > 0 && (along.is_none() || size % count == 0) => {
            (0..count).map(|at| size / count + i64::from(at < size % count)).collect()
        }
        Ok(_) => return Err(InferError::NoRule),
        Err(_) => {
            let indices = call.bound.ints(name)?.ok_or(InferError::NoRule)?;
            let at = |index: &i64| (if *index < 0 { *index + size } else { *index }).clamp(0, size);
            let bounds: Vec<i64> = [0].into_iter().chain(indices.iter().map(at)).chain([size]).collect();
            if !bounds.is_sorted() {
                return Err(InferError::NoRule);
            }
            bounds.windows(2).map(|pair| pair[1] - pair[0]).collect()
        }
    };
    let lengths: Vec<Dim> = lengths.into_iter().map(Dim::Const).collect();
    pieces(call, "input", dim, &lengths)
}

/// `hsplit` and its like: along the first dimension of a vector, else along this one.
fn split_along(call: &mut Call, dim: usize) -> Answer {
    let rank = call.tensor("input")?.ndim();
    if rank == 0 || rank <= dim && !(rank == 1 && dim == 1) || rank == 1 && dim == 0 {
        return Err(InferError::NoRule);
    }
    tensor_split(call, Some(dim.min(rank - 1)))
}

fn diagonal(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    let offset = call.bound.int("offset")?.ok_or(InferError::NoRule)?;
    let (a, b) = (call.dim_arg("dim1", input.ndim())?, call.dim_arg("dim2", input.ndim())?);
    if a == b || input.ndim() < 2 {
        return invalid("diagonal dimensions cannot be identical");
    }
    let by = Dim::Const(offset.abs());
    let (rows, columns) = (&input.sizes[a], &input.sizes[b]);
    let (rows, columns) = if offset >= 0 { (rows.clone(), columns.sub(&by)) } else { (rows.sub(&by), columns.clone()) };
    let shorter = if call.env.lt(&columns, &rows) { columns } else { rows };
    // One without elements lies elsewhere: that it has none is a fact of the call.
    let length = if call.env.lt(&shorter, &Dim::Const(1)) { Dim::Const(0) } else { shorter };
    let stride = input.strides[a].add(&input.strides[b]);
    let (mut sizes, mut strides) = (input.sizes.clone(), input.strides.clone());
    for d in [a.max(b), a.min(b)] {
        sizes.remove(d);
        strides.remove(d);
    }
    sizes.push(length);
    strides.push(stride);
    call.view("input", sizes, strides)
}

fn unfold(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    let dim = call.dim_arg("dimension", input.ndim())?;
    let (size, step) =
        (call.bound.dim("size")?.ok_or(InferError::NoRule)?, call.bound.int("step")?.ok_or(InferError::NoRule)?);
    if input.ndim() == 0 || step < 1 || call.env.lt(&input.sizes[dim], &size) {
        return Err(InferError::NoRule);
    }
    let (mut sizes, mut strides) = (input.sizes.clone(), input.strides.clone());
    sizes[dim] = input.sizes[dim].sub(&size).floor_div(&Dim::Const(step)).add(&Dim::Const(1));
    strides[dim] = input.strides[dim].mul(&Dim::Const(step));
    sizes.push(size);
    strides.push(input.strides[dim].clone());
    call.view("input", sizes, strides)
}

fn as_strided(call: &mut Call) -> Answer {
    let sizes = call.bound.dims("size")?.ok_or(InferError::NoRule)?;
    let strides = call.bound.dims("stride")?.ok_or(InferError::NoRule)?;
    if sizes.len() != strides.len() {
        return invalid("mismatch in length of strides and shape");
    }
    call.view("input", sizes, strides)
}
