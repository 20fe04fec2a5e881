//! Decompositions of reductions, and of softmax.

use crate::build::Build;
use crate::decompose::{Decompose, Outcome, compute_type, refuse};
use flambeau_core::graph::{CoreId, CoreOp, ExternArg};
use flambeau_ir::code::Const;
use flambeau_ir::dim::Dim;
use flambeau_ir::kernel::{Binary, DType, ReduceOp, Unary};
use flambeau_ir::reason::Reason;
use flambeau_ir::tensor::TensorMeta;

type Done = Result<Outcome, Reason>;

/// The dimensions that a parameter names; all if it names none.
fn dims(cx: &Decompose, name: &str, rank: usize) -> Result<Vec<usize>, Reason> {
    let given = if cx.bound.value(name).is_some() { cx.ints(name)? } else { None };
    match given.filter(|d| !d.is_empty()) {
        None => Ok((0..rank).collect()),
        Some(list) => list
            .iter()
            .map(|d| cx.axis(*d, rank))
            .collect::<Result<Vec<_>, _>>()
            .map(|d| if rank == 0 { vec![] } else { d }),
    }
}

/// The root of the sum of squares, if that is what is asked for.
fn euclidean(cx: &mut Decompose, x: CoreId, meta: &TensorMeta) -> Result<Option<CoreId>, Reason> {
    let is_two = |name: &str| match cx.bound.constant(name) {
        Some(Const::Int(2)) => true,
        Some(Const::Float(p)) => *p == 2.0,
        Some(Const::Str(p)) => &**p == "fro",
        _ => false,
    };
    let dtype = cx.dtype(x);
    if !(is_two("p") || is_two("ord")) || !matches!(dtype, DType::F32 | DType::F64) || meta.dtype != dtype {
        return Ok(None);
    }
    let rank = cx.sizes(x).len();
    let over = dims(cx, "dim", rank)?;
    let square = cx.mul(x, x);
    let total = cx.reduce(ReduceOp::Sum, square, &over);
    Ok(Some(rooted(cx, total)))
}

/// The root, whose derivative at zero is zero.
fn rooted(cx: &mut Decompose, total: CoreId) -> CoreId {
    let (root, dtype) = (cx.unary(Unary::Sqrt, total), cx.dtype(total));
    cx.sloped(root, total, |cx| {
        let (zero, half) = (cx.real(0.0, dtype), cx.real(0.5, dtype));
        let (none, slope) = (cx.binary(Binary::Eq, root, zero), cx.div(half, root));
        cx.select(none, zero, slope)
    })
}

pub(super) fn vector_norm(cx: &mut Decompose) -> Done {
    let (x, meta) = (cx.tensor("input")?, cx.result()?);
    match euclidean(cx, x, &meta)? {
        Some(length) => shaped(cx, length),
        None => refuse("a norm of another order than 2"),
    }
}

/// Most coordinates of points whose distances are computed one by one.
const COORDINATES: i64 = 32;

/// How far each point of one set is from each of another.
pub(super) fn distances(cx: &mut Decompose) -> Done {
    let (a, b) = (cx.tensor("x1")?, cx.tensor("x2")?);
    let (left, right, rank) = (cx.sizes(a), cx.sizes(b), cx.sizes(a).len());
    let few = left.last().and_then(Dim::as_const).is_some_and(|n| (1..=COORDINATES).contains(&n));
    if cx.float("p")?.unwrap_or(2.0) != 2.0 || rank < 2 || right.len() != rank || !few {
        return refuse("distances of another kind");
    }
    let apart = |sizes: &[Dim], at: usize| {
        let mut sizes = sizes.to_vec();
        sizes.insert(at, Dim::Const(1));
        sizes
    };
    let (a, b) = (cx.reshape(a, apart(&left, rank - 1)), cx.reshape(b, apart(&right, rank - 2)));
    between(cx, a, b)
}

/// How far points are from those of the same places.
pub(super) fn pairwise_distance(cx: &mut Decompose) -> Done {
    let (a, b) = (cx.tensor("x1")?, cx.tensor("x2")?);
    if cx.float("p")?.unwrap_or(2.0) != 2.0 || cx.sizes(a).is_empty() || cx.sizes(b).is_empty() {
        return refuse("distances of another kind");
    }
    let b = cx.offset(b, -cx.float("eps")?.unwrap_or(1e-6));
    between(cx, a, b)
}

/// The root of the sum of squares of a difference, along the last dimension.
fn between(cx: &mut Decompose, a: CoreId, b: CoreId) -> Done {
    let dtype = cx.result()?.dtype;
    if !matches!(dtype, DType::F32 | DType::F64) || cx.dtype(a) != dtype || cx.dtype(b) != dtype {
        return refuse("distances of halves");
    }
    let difference = cx.sub(a, b);
    let square = cx.mul(difference, difference);
    let last = cx.sizes(square).len() - 1;
    let total = cx.reduce(ReduceOp::Sum, square, &[last]);
    let root = rooted(cx, total);
    shaped(cx, root)
}

/// By the op that torch calls for each form.
pub(super) fn norm(cx: &mut Decompose) -> Done {
    let (x, meta) = (cx.tensor("input")?, cx.result()?);
    if let Some(length) = euclidean(cx, x, &meta)? {
        return shaped(cx, length);
    }
    if cx.training.is_some() {
        return refuse("a norm of another order than 2");
    }
    let order = match cx.bound.constant("p") {
        Some(number @ (Const::Int(_) | Const::Float(_))) => number.clone(),
        _ => Const::Int(2),
    };
    let dims = match cx.ints("dim")? {
        None => ExternArg::Const(Const::None),
        Some(dims) => ExternArg::List(dims.into_iter().map(|d| ExternArg::Const(Const::Int(d))).collect()),
    };
    let keepdim = ExternArg::Const(Const::Bool(cx.flag("keepdim")?));
    let args = vec![ExternArg::Value(x), ExternArg::Const(order), dims, keepdim, ExternArg::Const(Const::None)];
    let op = ("aten::linalg_vector_norm", "default");
    Ok(Outcome::Fresh(cx.call(op, Some("out"), args, &[meta])[0]))
}

/// The reduced value under the result's sizes (with or without the reduced dimensions).
fn shaped(cx: &mut Decompose, id: CoreId) -> Done {
    let sizes = cx.result()?.sizes;
    let id = cx.reshape(id, sizes);
    Ok(Outcome::Fresh(id))
}

/// The number of elements reduced over, as a value.
fn count(cx: &mut Decompose, sizes: &[Dim], over: &[usize], less: i64, dtype: DType) -> CoreId {
    let n = over.iter().fold(Dim::Const(1), |n, d| n.mul(&sizes[*d]));
    // Torch divides by none where there are fewer elements than are taken off.
    let n = n.sub(&Dim::Const(less));
    let n = if less > 0 { Dim::max(&n, &Dim::Const(0)) } else { n };
    cx.scalar(&n, dtype)
}

pub(super) fn plain(cx: &mut Decompose, op: ReduceOp) -> Done {
    let dtype = compute_type(cx.result()?.dtype);
    let x = cx.operand("input", dtype)?;
    let over = dims(cx, "dim", cx.sizes(x).len())?;
    if dtype == DType::Bool {
        return refuse("an extreme of bools");
    }
    let total = cx.reduce(op, x, &over);
    let total = if total == x { cx.core_copy_of(x) } else { total };
    shaped(cx, total)
}

pub(super) fn truth(cx: &mut Decompose, op: ReduceOp) -> Done {
    let x = cx.operand("input", DType::Bool)?;
    let over = dims(cx, "dim", cx.sizes(x).len())?;
    let total = cx.reduce(op, x, &over);
    let total = if total == x { cx.core_copy_of(x) } else { total };
    shaped(cx, total)
}

/// Over everything, or elementwise with a second tensor; values with positions stay torch's.
pub(super) fn extreme(cx: &mut Decompose, op: ReduceOp) -> Done {
    if cx.bound.arg("other").is_some() {
        let dtype = compute_type(cx.result()?.dtype);
        let (a, b) = (cx.operand("input", dtype)?, cx.operand("other", dtype)?);
        let op = if op == ReduceOp::Max { Binary::Max } else { Binary::Min };
        return Ok(Outcome::Fresh(cx.binary(op, a, b)));
    }
    if cx.meta.as_tensor().is_some() {
        return extreme_of_all(cx, op);
    }
    let x = cx.tensor("input")?;
    // Of equal extremes the gradient is the first one's.
    if cx.training.is_none()
        && let Some(dim) = cx.int("dim")?
        && let Some((top, at)) = first_extreme(cx, op, x, dim)?
    {
        let sizes = cx.results()?[0].sizes.clone();
        let (top, at) = (cx.reshape(top, sizes.clone()), cx.reshape(at, sizes));
        return Ok(Outcome::Tuple(vec![Outcome::Fresh(top), Outcome::Fresh(at)]));
    }
    let name = if op == ReduceOp::Max { "aten::max" } else { "aten::min" };
    let args = vec![
        ExternArg::Value(x),
        ExternArg::Const(Const::Int(cx.int("dim")?.unwrap_or(0))),
        ExternArg::Const(Const::Bool(cx.flag("keepdim")?)),
    ];
    let metas = cx.results()?;
    let ids = cx.call((name, "dim"), None, args, &metas);
    Ok(Outcome::Tuple(ids.into_iter().map(Outcome::Fresh).collect()))
}

/// Unlike along dimensions, elements that are not the extreme have no part in its gradient even if that is not finite.
fn extreme_of_all(cx: &mut Decompose, op: ReduceOp) -> Done {
    let dtype = compute_type(cx.result()?.dtype);
    let x = cx.operand("input", dtype)?;
    let over: Vec<usize> = (0..cx.sizes(x).len()).collect();
    if cx.training.is_none() || over.is_empty() || !dtype.is_float() {
        return plain(cx, op);
    }
    let total = cx.reduce(op, x, &over);
    let (equal, nan) = (cx.binary(Binary::Eq, x, total), cx.unary(Unary::IsNan, x));
    let all_nan = cx.unary(Unary::IsNan, total);
    let is_extreme = cx.select(all_nan, nan, equal);
    let (counted, zero) = (cx.cast(is_extreme, dtype), cx.real(0.0, dtype));
    let picked = cx.select(is_extreme, x, zero);
    let (sum, count) = (cx.reduce(ReduceOp::Sum, picked, &over), cx.reduce(ReduceOp::Sum, counted, &over));
    let (of, total) = (cx.div(sum, count), cx.stopped(total));
    let total = cx.sloped(total, of, |cx| cx.real(1.0, DType::Bool));
    shaped(cx, total)
}

pub(super) fn mean(cx: &mut Decompose) -> Done {
    let dtype = compute_type(cx.result()?.dtype);
    let x = cx.operand("input", dtype)?;
    let sizes = cx.sizes(x);
    let over = dims(cx, "dim", sizes.len())?;
    let mean = averaged(cx, x, &over);
    let mean = if mean == x { cx.core_copy_of(x) } else { mean };
    shaped(cx, mean)
}

/// The mean over dimensions, which stay with size 1.
pub(crate) fn averaged(cx: &mut Decompose, x: CoreId, over: &[usize]) -> CoreId {
    let (sizes, dtype) = (cx.sizes(x), cx.dtype(x));
    let total = cx.reduce(ReduceOp::Sum, x, over);
    if total == x {
        return x;
    }
    let n = count(cx, &sizes, over, 0, dtype);
    cx.div(total, n)
}

/// Mean, and mean square distance from it, over dimensions that stay with size 1.
pub(crate) fn moments(cx: &mut Decompose, x: CoreId, over: &[usize], correction: i64) -> (CoreId, CoreId) {
    let (sizes, dtype) = (cx.sizes(x), cx.dtype(x));
    let mean = averaged(cx, x, over);
    // The distances from the mean add up to 0: the mean's share of the derivative is none.
    let fixed = cx.stopped(mean);
    let centred = cx.sub(x, fixed);
    let square = cx.mul(centred, centred);
    let total = cx.reduce(ReduceOp::Sum, square, over);
    let n = count(cx, &sizes, over, correction, dtype);
    (mean, cx.div(total, n))
}

pub(super) fn variance(cx: &mut Decompose, root: bool) -> Done {
    let dtype = compute_type(cx.result()?.dtype);
    let x = cx.operand("input", dtype)?;
    let over = dims(cx, "dim", cx.sizes(x).len())?;
    let correction = correction(cx)?;
    let (_, var) = moments(cx, x, &over, correction);
    let value = if root { rooted(cx, var) } else { var };
    shaped(cx, value)
}

pub(super) fn variance_and_mean(cx: &mut Decompose, root: bool) -> Done {
    let (metas, x) = (cx.results()?, cx.tensor("input")?);
    let dtype = cx.dtype(x);
    if compute_type(dtype) != dtype || metas.len() != 2 {
        return refuse("moments of halves");
    }
    let over = dims(cx, "dim", cx.sizes(x).len())?;
    let correction = correction(cx)?;
    let (mean, var) = moments(cx, x, &over, correction);
    let mean = if mean == x { cx.core_copy_of(x) } else { mean };
    let value = if root { rooted(cx, var) } else { var };
    let both = [value, mean].map(|part| Outcome::Fresh(cx.reshape(part, metas[0].sizes.clone())));
    Ok(Outcome::Tuple(both.into()))
}

/// What is taken off the number of elements.
fn correction(cx: &Decompose) -> Result<i64, Reason> {
    if matches!(cx.bound.constant("unbiased"), Some(Const::Bool(false))) {
        return Ok(0);
    }
    match cx.bound.constant("correction") {
        None | Some(Const::None) => Ok(1),
        Some(Const::Int(i)) => Ok(*i),
        _ => refuse("a correction that is no int"),
    }
}

/// `exp(x - max) / sum(exp(x - max))`, or its logarithm
pub(super) fn softmax(cx: &mut Decompose, log: bool) -> Done {
    let meta = cx.result()?;
    let dtype = compute_type(meta.dtype);
    let x = cx.operand("input", dtype)?;
    let rank = cx.sizes(x).len();
    let Some(dim) = cx.int("dim")? else { return refuse("softmax without a dimension") };
    if rank == 0 {
        return refuse("softmax of a scalar");
    }
    let dim = cx.axis(dim, rank)?;
    Ok(Outcome::Fresh(softmaxed(cx, x, dim, log)))
}

/// What elements are above a number, the exponential of that, and the sum of those over dimensions that stay with size 1.
pub(crate) fn exponentials(cx: &mut Decompose, x: CoreId, from: CoreId, over: &[usize]) -> (CoreId, CoreId, CoreId) {
    let above = cx.sub(x, from);
    let grown = cx.unary(Unary::Exp, above);
    (above, grown, cx.reduce(ReduceOp::Sum, grown, over))
}

/// Softmax of a value.
pub(crate) fn softmaxed(cx: &mut Decompose, x: CoreId, dim: usize, log: bool) -> CoreId {
    let top = cx.reduce(ReduceOp::Max, x, &[dim]);
    let top = cx.stopped(top);
    let (below, grown, total) = exponentials(cx, x, top, &[dim]);
    if log {
        let total = cx.unary(Unary::Log, total);
        cx.sub(below, total)
    } else {
        cx.div(grown, total)
    }
}

/// `max + log(sum(exp(x - max)))`, where an infinite maximum counts as 0
pub(super) fn logsumexp(cx: &mut Decompose) -> Done {
    let dtype = compute_type(cx.result()?.dtype);
    let x = cx.operand("input", dtype)?;
    let over = dims(cx, "dim", cx.sizes(x).len())?;
    let top = cx.reduce(ReduceOp::Max, x, &over);
    let top = cx.stopped(top);
    let (zero, inf) = (cx.real(0.0, dtype), cx.real(f64::INFINITY, dtype));
    let size = cx.unary(Unary::Abs, top);
    let infinite = cx.binary(Binary::Eq, size, inf);
    let top = cx.select(infinite, zero, top);
    let (_, _, total) = exponentials(cx, x, top, &over);
    let log = cx.unary(Unary::Log, total);
    let sum = cx.add(log, top);
    shaped(cx, sum)
}

/// Elements in which one thread looks for an extreme.
const FEW: i64 = 1 << 14;

/// The extreme along a dimension, which stays with size 1, and the first position that has it: the first NaN, if there are any.
/// `None` for types and sizes that are left to torch.
fn first_extreme(cx: &mut Decompose, op: ReduceOp, x: CoreId, dim: i64) -> Result<Option<(CoreId, CoreId)>, Reason> {
    let (of, sizes) = (cx.dtype(x), cx.sizes(x));
    let dtype = compute_type(of);
    if !matches!(dtype, DType::F32 | DType::F64 | DType::I32 | DType::I64) || sizes.is_empty() {
        return Ok(None);
    }
    let (dim, x) = (cx.axis(dim, sizes.len())?, cx.cast(x, dtype));
    let Some(size) = sizes[dim].as_const().filter(|size| (2..i64::from(i32::MAX)).contains(size)) else {
        return Ok(None);
    };
    let top = cx.reduce(op, x, &[dim]);
    let mut is_it = cx.binary(Binary::Eq, x, top);
    if dtype.is_float() {
        let nan = cx.unary(Unary::IsNan, x);
        is_it = cx.binary(Binary::Or, is_it, nan);
    }
    let index = cx.core.push(CoreOp::Iota(dim as u32), DType::I64, sizes);
    let index = cx.cast(index, DType::I32);
    let past = cx.constant(&Const::Int(size), DType::I32, vec![])?;
    let index = cx.select(is_it, index, past);
    let first = cx.reduce(ReduceOp::Min, index, &[dim]);
    Ok(Some((cx.cast(top, of), cx.cast(first, DType::I64))))
}

pub(super) fn position(cx: &mut Decompose, op: &str) -> Done {
    let x = cx.tensor("input")?;
    let extreme = if op == "aten::argmax" { ReduceOp::Max } else { ReduceOp::Min };
    let numel = Dim::product(&cx.sizes(x));
    let along = match cx.int("dim")? {
        None if numel.as_const().is_some_and(|numel| numel <= FEW) => Some((cx.reshape(x, vec![numel]), 0)),
        dim => dim.map(|dim| (x, dim)),
    };
    if let Some((over, dim)) = along
        && let Some((_, at)) = first_extreme(cx, extreme, over, dim)?
    {
        return shaped(cx, at);
    }
    let dim = cx.int("dim")?.map_or(Const::None, Const::Int);
    let args = vec![ExternArg::Value(x), ExternArg::Const(dim), ExternArg::Const(Const::Bool(cx.flag("keepdim")?))];
    let meta = cx.result()?;
    Ok(Outcome::Fresh(cx.call((op, "default"), Some("out"), args, &[meta])[0]))
}

pub(super) fn cumsum(cx: &mut Decompose) -> Done {
    let meta = cx.result()?;
    let x = cx.operand("input", meta.dtype)?;
    let args = vec![
        ExternArg::Value(x),
        ExternArg::Const(Const::Int(cx.int("dim")?.unwrap_or(0))),
        ExternArg::Const(Const::None),
    ];
    Ok(Outcome::Fresh(cx.call(("aten::cumsum", "default"), Some("out"), args, &[meta])[0]))
}

/// How many elements are not zero.
pub(super) fn count_nonzero(cx: &mut Decompose) -> Done {
    let (x, meta) = (cx.tensor("input")?, cx.result()?);
    let zero = cx.constant(&Const::Int(0), cx.dtype(x), vec![])?;
    let there = cx.binary(Binary::Ne, x, zero);
    let (counted, rank) = (cx.cast(there, DType::I64), cx.sizes(x).len());
    let over = dims(cx, "dim", rank)?;
    let total = cx.reduce(ReduceOp::Sum, counted, &over);
    Ok(Outcome::Fresh(cx.reshape(total, meta.sizes)))
}

/// `sum(a / max(|a|, eps) * b / max(|b|, eps))`
pub(super) fn cosine_similarity(cx: &mut Decompose) -> Done {
    let dtype = cx.result()?.dtype;
    if compute_type(dtype) != dtype {
        return refuse("cosine_similarity of halves, which torch rounds at each step");
    }
    let (a, b) = (cx.tensor("x1")?, cx.tensor("x2")?);
    let sizes = cx.common(&cx.sizes(a), &cx.sizes(b));
    let dim = cx.axis(cx.int("dim")?.unwrap_or(1), sizes.len())?;
    let least = cx.float("eps")?.unwrap_or(1e-8);
    let directed = |cx: &mut Decompose, x: CoreId| {
        let x = cx.expand(x, &sizes);
        let square = cx.mul(x, x);
        let total = cx.reduce(ReduceOp::Sum, square, &[dim]);
        let (length, least) = (cx.unary(Unary::Sqrt, total), cx.real(least, dtype));
        let length = cx.binary(Binary::Max, length, least);
        cx.div(x, length)
    };
    let (a, b) = (directed(cx, a), directed(cx, b));
    let product = cx.mul(a, b);
    let total = cx.reduce(ReduceOp::Sum, product, &[dim]);
    shaped(cx, total)
}

impl Decompose<'_> {
    /// A copy with row-major strides.
    pub(crate) fn core_copy_of(&mut self, id: CoreId) -> CoreId {
        let node = self.core.node(id).clone();
        self.core.push(CoreOp::Copy(id), node.dtype, node.sizes)
    }
}
