//! Matrix products. All results are contiguous.

pub(crate) mod decompose;
pub(crate) mod derivative;
mod einsum;

use crate::call::{Answer, Call, broadcast, invalid};
use crate::registry::{OpDef, Saved, place::*};
use crate::{InferError, Inferred};
use flambeau_ir::dim::Dim;
use flambeau_ir::tensor::TensorMeta;

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new("linear", "input:T, weight:T, bias:T=None", linear, NN).derives(decompose::linear).saves(Saved::Factors),
    OpDef::new("matmul", "input:T, other:T, *, out:T=None", matmul, BOTH)
        .derives(decompose::matmul)
        .binary("matmul")
        .saves(Saved::Factors),
    OpDef::new("mm", "input:T, mat2:T, *, out:T=None", |call| mm(call, 2), BOTH)
        .derives(decompose::mm)
        .saves(Saved::Factors),
    OpDef::new("bmm", "input:T, mat2:T, *, out:T=None", |call| mm(call, 3), BOTH)
        .derives(decompose::bmm)
        .saves(Saved::Factors),
    OpDef::new("mv", "input:T, vec:T, *, out:T=None", mv, BOTH)
        .derives(|cx| decompose::of_vector(cx, "aten::mv", ["input", "vec"]))
        .saves(Saved::Factors),
    OpDef::new("dot", "input:T, tensor:T, *, out:T=None", dot, BOTH)
        .derives(|cx| decompose::of_vector(cx, "aten::dot", ["input", "tensor"]))
        .saves(Saved::Factors),
    OpDef::new(
        "addmm",
        "input:T, mat1:T, mat2:T, *, beta:N=1, alpha:N=1, out:T=None",
        |call| added(call, "mat1", "mat2", 2),
        ALL,
    )
    .derives(|cx| decompose::scaled(cx, "aten::addmm", ["mat1", "mat2"]))
    .saves(Saved::Factors),
    OpDef::new(
        "baddbmm",
        "input:T, batch1:T, batch2:T, *, beta:N=1, alpha:N=1, out:T=None",
        |call| added(call, "batch1", "batch2", 3),
        ALL,
    )
    .lowers(|cx| decompose::scaled(cx, "aten::baddbmm", ["batch1", "batch2"]))
    .saves(Saved::Factors),
    OpDef::new("outer", "input:T, vec2:T, *, out:T=None", outer, BOTH)
        .derives(decompose::outer)
        .also(&["ger"])
        .saves(Saved::Factors),
    OpDef::told("einsum", "equation:S, operands:TL", FN).derives(einsum::einsum).saves(Saved::Arguments),
    OpDef::new("bilinear", "input1:T, input2:T, weight:T, bias:T=None", bilinear, FN),
];

fn same_dtype(tensors: &[&TensorMeta]) -> Result<(), InferError> {
    if tensors.iter().any(|t| t.dtype != tensors[0].dtype) {
        return invalid("expected all matrices to have the same dtype");
    }
    Ok(())
}

fn agree(call: &mut Call, a: &Dim, b: &Dim) -> Result<(), InferError> {
    if call.env.eq(a, b) { Ok(()) } else { invalid(format!("shapes cannot be multiplied ({a} and {b})")) }
}

fn linear(call: &mut Call) -> Answer {
    let (input, weight) = (call.tensor("input")?, call.tensor("weight")?);
    let Some((features, rows)) = input.sizes.split_last() else { return Err(InferError::NoRule) };
    if weight.ndim() != 2 {
        return Err(InferError::NoRule);
    }
    agree(call, features, &weight.sizes[1])?;
    let mut tensors = vec![input, weight];
    if let Some(bias) = call.maybe_tensor("bias")? {
        if bias.ndim() != 1 || !call.env.eq(&bias.sizes[0], &weight.sizes[0]) {
            return Err(InferError::NoRule);
        }
        tensors.push(bias);
    }
    same_dtype(&tensors)?;
    let mut sizes = rows.to_vec();
    sizes.push(weight.sizes[0].clone());
    Ok(Inferred::tensor(call.contiguous(input, input.dtype, sizes)))
}

/// `matmul`: vectors gain a dimension that the result loses again; leading dimensions broadcast.
fn matmul(call: &mut Call) -> Answer {
    if call.canon.reflected || call.inplace {
        return Err(InferError::NoRule);
    }
    let (a, b) = (call.tensor("input")?, call.tensor("other")?);
    call.absent("out")?;
    if a.ndim() == 0 || b.ndim() == 0 {
        return invalid("both arguments to matmul need to be at least 1D");
    }
    same_dtype(&[a, b])?;
    let (rows, inner) = match &a.sizes[..] {
        [.., m, k] => (Some(m), k),
        [k] => (None, k),
        [] => return Err(InferError::NoRule),
    };
    let (inner_b, columns) = match &b.sizes[..] {
        [.., k, n] => (k, Some(n)),
        [k] => (k, None),
        [] => return Err(InferError::NoRule),
    };
    agree(call, inner, inner_b)?;
    let batch = |t: &TensorMeta| t.sizes[..t.ndim().saturating_sub(2)].to_vec();
    let (batch_a, batch_b) = (batch(a), batch(b));
    let mut sizes = broadcast(&mut call.env, [&batch_a[..], &batch_b])?;
    sizes.extend(rows.cloned());
    sizes.extend(columns.cloned());
    Ok(Inferred::tensor(call.contiguous(a, a.dtype, sizes)))
}

/// `mm`, `bmm`: no broadcasting.
fn mm(call: &mut Call, ndim: usize) -> Answer {
    let (a, b) = (call.tensor("input")?, call.tensor("mat2")?);
    call.absent("out")?;
    if a.ndim() != ndim || b.ndim() != ndim {
        return invalid(format!("expected {ndim}D matrices"));
    }
    let result = product(call, a, b)?;
    Ok(Inferred::tensor(result))
}

fn product(call: &mut Call, a: &TensorMeta, b: &TensorMeta) -> Result<TensorMeta, InferError> {
    same_dtype(&[a, b])?;
    let last = a.ndim() - 1;
    if a.ndim() == 3 {
        agree(call, &a.sizes[0], &b.sizes[0])?;
    }
    agree(call, &a.sizes[last], &b.sizes[last - 1])?;
    let mut sizes = a.sizes.clone();
    sizes[last] = b.sizes[last].clone();
    Ok(call.contiguous(a, a.dtype, sizes))
}

fn mv(call: &mut Call) -> Answer {
    let (a, v) = (call.tensor("input")?, call.tensor("vec")?);
    call.absent("out")?;
    if a.ndim() != 2 || v.ndim() != 1 {
        return invalid("vector + matrix @ vector expected");
    }
    same_dtype(&[a, v])?;
    agree(call, &a.sizes[1], &v.sizes[0])?;
    Ok(Inferred::tensor(call.contiguous(a, a.dtype, vec![a.sizes[0].clone()])))
}

fn dot(call: &mut Call) -> Answer {
    let (a, b) = (call.tensor("input")?, call.tensor("tensor")?);
    call.absent("out")?;
    if a.ndim() != 1 || b.ndim() != 1 {
        return invalid("1D tensors expected");
    }
    same_dtype(&[a, b])?;
    agree(call, &a.sizes[0], &b.sizes[0])?;
    Ok(Inferred::tensor(call.contiguous(a, a.dtype, Vec::new())))
}

/// A product plus a tensor that broadcasts to it.
fn added(call: &mut Call, a: &str, b: &str, ndim: usize) -> Answer {
    let (input, a, b) = (call.tensor("input")?, call.tensor(a)?, call.tensor(b)?);
    if a.ndim() != ndim || b.ndim() != ndim {
        return invalid(format!("expected {ndim}D matrices"));
    }
    same_dtype(&[input, a, b])?;
    let result = product(call, a, b)?;
    crate::view::expanded(&mut call.env, input, &result.sizes)?;
    call.finish(result, "input")
}

fn outer(call: &mut Call) -> Answer {
    let (a, b) = (call.tensor("input")?, call.tensor("vec2")?);
    call.absent("out")?;
    if a.ndim() != 1 || b.ndim() != 1 {
        return invalid("outer: expected 1D tensors");
    }
    let mut column = a.clone();
    (column.sizes, column.strides) = crate::view::unsqueezed(&a.sizes, &a.strides, 1);
    let mut over = crate::call::Pointwise::default();
    over.add(&column);
    over.add(b);
    let dtype = over.dtype()?;
    let result = call.pointwise(&over, dtype, Some(dtype))?;
    Ok(Inferred::tensor(result))
}

fn bilinear(call: &mut Call) -> Answer {
    let (a, b, weight) = (call.tensor("input1")?, call.tensor("input2")?, call.tensor("weight")?);
    same_dtype(&[a, b, weight])?;
    let (Some((fa, rows)), Some((fb, rows_b))) = (a.sizes.split_last(), b.sizes.split_last()) else {
        return Err(InferError::NoRule);
    };
    if weight.ndim() != 3 || !call.env.same(rows, rows_b) {
        return Err(InferError::NoRule);
    }
    agree(call, fa, &weight.sizes[1])?;
    agree(call, fb, &weight.sizes[2])?;
    let mut sizes = rows.to_vec();
    sizes.push(weight.sizes[0].clone());
    Ok(Inferred::tensor(call.contiguous(a, a.dtype, sizes)))
}
