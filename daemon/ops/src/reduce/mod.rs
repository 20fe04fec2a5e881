//! Reductions, scans and sorts. Results are contiguous unless said otherwise.

pub(crate) mod decompose;
pub(crate) mod derivative;
mod extreme;
mod scan;

use crate::call::{Answer, Call, broadcast, invalid};
use crate::promote::{Category, category, real_of};
use crate::registry::{OpDef, Saved, place::*};
use crate::{InferError, Inferred};
use flambeau_ir::code::Const;
use flambeau_ir::dim::Dim;
use flambeau_ir::kernel::{DType, ReduceOp};
use flambeau_ir::tensor::TensorMeta;

pub(crate) use extreme::OPS as EXTREME;
pub(crate) use scan::OPS as SCAN;

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new(
        "sum",
        "input:T, *, dtype:D=None | input:T, dim:L?, keepdim:B=False, *, dtype:D=None, out:T=None",
        summed,
        BOTH,
    )
    .derives(|cx| decompose::plain(cx, ReduceOp::Sum))
    .saves(Saved::Nothing),
    OpDef::new("nansum", "input:T, dim:L=None, keepdim:B=False, *, dtype:D=None", summed, BOTH),
    OpDef::new("prod", "input:T, *, dtype:D=None | input:T, dim:I, keepdim:B=False, *, dtype:D=None", summed, BOTH)
        .lowers(|cx| decompose::plain(cx, ReduceOp::Prod)),
    OpDef::new(
        "mean",
        "input:T, *, dtype:D=None | input:T, dim:L?, keepdim:B=False, *, dtype:D=None, out:T=None",
        mean,
        BOTH,
    )
    .derives(decompose::mean)
    .saves(Saved::Nothing),
    OpDef::new("nanmean", "input:T, dim:L=None, keepdim:B=False, *, dtype:D=None", mean, BOTH),
    OpDef::new("std", VARIANCE, variance, BOTH).derives(|cx| decompose::variance(cx, true)),
    OpDef::new("var", VARIANCE, variance, BOTH).derives(|cx| decompose::variance(cx, false)),
    OpDef::new("std_mean", VARIANCE, variance_and_mean, FN).lowers(|cx| decompose::variance_and_mean(cx, true)),
    OpDef::new("var_mean", VARIANCE, variance_and_mean, FN).lowers(|cx| decompose::variance_and_mean(cx, false)),
    OpDef::new("logsumexp", "input:T, dim:L, keepdim:B=False, *, out:T=None", logsumexp, BOTH)
        .derives(decompose::logsumexp),
    OpDef::new(
        "vector_norm",
        "input:T, ord:N=2, dim:L=None, keepdim:B=False, *, dtype:D=None, out:T=None",
        vector_norm,
        LINALG,
    )
    .derives(decompose::vector_norm),
    OpDef::new(
        "norm",
        "input:T, p:S=fro, dim:L=None, keepdim:B=False, *, out:T=None, dtype:D=None | \
         input:T, p:N, dim:L=None, keepdim:B=False, *, out:T=None, dtype:D=None",
        norm,
        BOTH,
    )
    .derives(decompose::norm),
    OpDef::new("cosine_similarity", "x1:T, x2:T, dim:I=1, eps:N=1e-08", cosine_similarity, FN)
        .lowers(decompose::cosine_similarity)
        .paths(&["torch.nn.functional.cosine_similarity"]),
    OpDef::new("any", TRUTH, truth, BOTH).lowers(|cx| decompose::truth(cx, ReduceOp::Any)),
    OpDef::new("all", TRUTH, truth, BOTH).lowers(|cx| decompose::truth(cx, ReduceOp::All)),
    OpDef::told("cdist", "x1:T, x2:T, p:N=2, compute_mode=None", FN).derives(decompose::distances),
    OpDef::told("pairwise_distance", "x1:T, x2:T, p:N=2, eps:N=1e-06, keepdim:B=False", FN)
        .derives(decompose::pairwise_distance),
    OpDef::new("count_nonzero", "input:T, dim:L=None", count_nonzero, BOTH).lowers(decompose::count_nonzero),
];

const VARIANCE: &str = "input:T, dim:L=None, *, correction:N=1, keepdim:B=False | \
     input:T, unbiased:B | input:T, dim:L?, unbiased:B=True, keepdim:B=False";
const TRUTH: &str = "input:T, *, out:T=None | input:T, dim:L?, keepdim:B=False, *, out:T=None";

/// The sizes left after reducing the dimensions that parameter `dim` names; all, if it names none.
pub(crate) fn reduced(call: &Call, t: &TensorMeta) -> Result<Vec<Dim>, InferError> {
    let dims = match call.bound.value("dim") {
        None => None,
        Some(_) => call.bound.ints("dim")?,
    };
    let keepdim = call.bound.value("keepdim").is_some() && call.bound.bool("keepdim")?;
    let mut gone = vec![false; t.ndim().max(1)];
    match dims.as_deref() {
        None | Some([]) => gone.fill(true),
        Some(dims) => {
            for &dim in dims {
                let dim = Call::wrap(dim, t.ndim())?;
                if std::mem::replace(&mut gone[dim], true) {
                    return invalid(format!("dim {dim} appears multiple times in the list of dims"));
                }
            }
        }
    }
    let keep = |(d, size): (usize, &Dim)| match (gone[d], keepdim) {
        (false, _) => Some(size.clone()),
        (true, true) => Some(Dim::Const(1)),
        (true, false) => None,
    };
    Ok(t.sizes.iter().enumerate().filter_map(keep).collect())
}

fn reduction(call: &mut Call, dtype: DType) -> Answer {
    let input = call.tensor("input")?;
    let sizes = reduced(call, input)?;
    let cast = call.bound.value("dtype").is_some() && call.bound.arg("dtype").is_some();
    if cast && !crate::call::differentiable(dtype) && call.any_grad(input.dtype) {
        return invalid("Autograd not support dtype");
    }
    if call.bound.value("out").is_some() {
        call.absent("out")?;
    }
    Ok(Inferred::tensor(call.contiguous(input, dtype, sizes)))
}

/// Ints and bools add up as `int64`.
fn summed(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    let dtype = match call.dtype("dtype")? {
        Some(dtype) => dtype,
        None if category(input.dtype) <= Category::Integer => DType::I64,
        None => input.dtype,
    };
    reduction(call, dtype)
}

fn mean(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    let dtype = call.dtype("dtype")?.unwrap_or(input.dtype);
    if category(dtype) <= Category::Integer {
        return invalid(
            "mean(): could not infer output dtype. Input dtype must be either a floating point or complex dtype.",
        );
    }
    reduction(call, dtype)
}

fn variance(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    if !input.dtype.is_float() {
        return Err(InferError::NoRule);
    }
    reduction(call, input.dtype)
}

fn variance_and_mean(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    if !input.dtype.is_float() {
        return Err(InferError::NoRule);
    }
    let sizes = reduced(call, input)?;
    let part = call.contiguous(input, input.dtype, sizes);
    Ok(Inferred::tuple([part.clone(), part]))
}

fn logsumexp(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    if !input.dtype.is_float() {
        return Err(InferError::NoRule);
    }
    reduction(call, input.dtype)
}

fn vector_norm(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    let dtype = call.dtype("dtype")?.unwrap_or(input.dtype);
    if category(dtype) <= Category::Integer || dtype != input.dtype {
        return Err(InferError::NoRule);
    }
    reduction(call, real_of(dtype))
}

/// The norm of vectors; of matrices only where that is the root of the sum of squares.
fn norm(call: &mut Call) -> Answer {
    let dims = call.bound.ints("dim")?.map_or(0, |dims| dims.len());
    match call.bound.constant("p") {
        Some(Const::Str(p)) if &**p == "fro" && dims <= 2 => {}
        Some(Const::Int(_) | Const::Float(_)) => {}
        _ => return Err(InferError::NoRule),
    }
    vector_norm(call)
}

/// A sum along one dimension of what both operands broadcast to.
fn cosine_similarity(call: &mut Call) -> Answer {
    let (a, b) = (call.tensor("x1")?, call.tensor("x2")?);
    let mut sizes = broadcast(&mut call.env, [&a.sizes[..], &b.sizes])?;
    if !a.dtype.is_float() || a.dtype != b.dtype || sizes.is_empty() {
        return Err(InferError::NoRule);
    }
    let dim = call.dim_arg("dim", sizes.len())?;
    sizes.remove(dim);
    Ok(Inferred::tensor(call.contiguous(a, a.dtype, sizes)))
}

/// Bytes stay bytes; everything else gives bools.
fn truth(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    reduction(call, if input.dtype == DType::U8 { DType::U8 } else { DType::Bool })
}

fn count_nonzero(call: &mut Call) -> Answer {
    reduction(call, DType::I64)
}
