//! Decompositions of views, copies and conversions.

use crate::build::Build;
use crate::decompose::{Decompose, Outcome, View, refuse};
use flambeau_core::graph::{CoreOp, IndexSum};
use flambeau_ir::code::Const;
use flambeau_ir::dim::Dim;
use flambeau_ir::graph::{Arg, NodeId, ValueMeta};
use flambeau_ir::reason::Reason;
use flambeau_ir::tensor::contiguous_strides;

type Done = Result<Outcome, Reason>;

/// The tensor an op of this family is about.
fn subject(cx: &Decompose) -> Result<NodeId, Reason> {
    cx.node_of("input").or_else(|_| cx.node_of("tensor"))
}

fn sizes_of(cx: &Decompose, id: NodeId) -> Result<Vec<Dim>, Reason> {
    cx.metas.get(&id).map(|m| m.sizes.clone()).map_or_else(|| refuse("a view of no tensor"), Ok)
}

pub(super) fn shaped(cx: &mut Decompose, always: bool) -> Done {
    let of = subject(cx)?;
    let meta = cx.result()?;
    if cx.metas.get(&of).is_some_and(|m| m.dtype != meta.dtype) {
        return refuse("a view as another type");
    }
    let views = vec![View::Reshape(meta.sizes)];
    Ok(if always { Outcome::View(of, views) } else { Outcome::ViewOrCopy(of, views) })
}

fn ordered(of: NodeId, order: &[usize]) -> Outcome {
    Outcome::View(of, vec![View::Permute(order.iter().map(|d| *d as u32).collect())])
}

pub(super) fn permute(cx: &mut Decompose) -> Done {
    let of = subject(cx)?;
    let rank = sizes_of(cx, of)?.len();
    let dims = cx.ints("dims")?.unwrap_or_default();
    let order = dims.iter().map(|d| cx.axis(*d, rank)).collect::<Result<Vec<_>, _>>()?;
    Ok(ordered(of, &order))
}

fn swapped(of: NodeId, rank: usize, a: usize, b: usize) -> Outcome {
    let mut order: Vec<usize> = (0..rank).collect();
    if a < rank && b < rank {
        order.swap(a, b);
    }
    ordered(of, &order)
}

pub(super) fn transpose(cx: &mut Decompose) -> Done {
    let of = subject(cx)?;
    let rank = sizes_of(cx, of)?.len();
    let (Some(a), Some(b)) = (cx.int("dim0")?, cx.int("dim1")?) else { return refuse("transpose without dimensions") };
    Ok(swapped(of, rank, cx.axis(a, rank)?, cx.axis(b, rank)?))
}

pub(super) fn matrix_transpose(cx: &mut Decompose) -> Done {
    let of = subject(cx)?;
    let rank = sizes_of(cx, of)?.len();
    if rank < 2 {
        return Ok(Outcome::View(of, vec![]));
    }
    Ok(swapped(of, rank, rank - 2, rank - 1))
}

pub(super) fn movedim(cx: &mut Decompose) -> Done {
    let of = subject(cx)?;
    let rank = sizes_of(cx, of)?.len();
    let places = |cx: &Decompose, name: &str| -> Result<Vec<usize>, Reason> {
        cx.ints(name)?.unwrap_or_default().iter().map(|d| cx.axis(*d, rank)).collect()
    };
    let (from, to) = (places(cx, "source")?, places(cx, "destination")?);
    let mut order = vec![usize::MAX; rank];
    // A scalar takes dimension 0 and has none.
    from.iter().zip(&to).filter(|_| rank > 0).for_each(|(s, d)| order[*d] = *s);
    let mut rest = (0..rank).filter(|d| !from.contains(d));
    order.iter_mut().filter(|o| **o == usize::MAX).for_each(|o| *o = rest.next().unwrap_or(0));
    Ok(ordered(of, &order))
}

pub(super) fn expand(cx: &mut Decompose) -> Done {
    let of = subject(cx)?;
    expanded(cx, of, cx.result()?.sizes)
}

fn expanded(cx: &Decompose, of: NodeId, sizes: Vec<Dim>) -> Done {
    let old = sizes_of(cx, of)?;
    let mut padded = vec![Dim::Const(1); sizes.len().saturating_sub(old.len())];
    padded.extend(old);
    Ok(Outcome::View(of, vec![View::Reshape(padded), View::Expand(sizes)]))
}

pub(super) fn broadcast_tensors(cx: &mut Decompose) -> Done {
    let Some(items) = cx.bound.items("tensors") else { return refuse("broadcast_tensors of no list") };
    let mut views = Vec::new();
    for (item, meta) in items.iter().zip(cx.results()?) {
        let Arg::Node(of) = item else { return refuse("broadcast_tensors of something else than tensors") };
        // Torch returns a tensor that has these sizes itself.
        let same = sizes_of(cx, *of)? == meta.sizes;
        views.push(if same { Outcome::Same(*of) } else { expanded(cx, *of, meta.sizes)? });
    }
    Ok(Outcome::Tuple(views))
}

pub(super) fn meshgrid(cx: &mut Decompose) -> Done {
    let Some(items) = cx.bound.items("tensors") else { return refuse("meshgrid of no list") };
    let mut views = Vec::new();
    for (item, meta) in items.iter().zip(cx.results()?) {
        let Arg::Node(of) = item else { return refuse("meshgrid of something else than tensors") };
        let swapped = matches!(cx.bound.constant("indexing"), Some(Const::Str(i)) if &**i == "xy");
        let at = if swapped && views.len() < 2 && meta.sizes.len() > 1 { 1 - views.len() } else { views.len() };
        let mut along = vec![Dim::Const(1); meta.sizes.len()];
        along[at] = meta.sizes[at].clone();
        views.push(Outcome::View(*of, vec![View::Reshape(along), View::Expand(meta.sizes)]));
    }
    Ok(Outcome::Tuple(views))
}

/// An index counted from the front.
pub(crate) fn from_front(index: Dim, size: &Dim) -> Result<Dim, Reason> {
    match index.as_const() {
        Some(i) if i < 0 => Ok(size.add(&index)),
        Some(_) => Ok(index),
        None => refuse("a symbolic index"),
    }
}

fn dim_of(cx: &Decompose, name: &str) -> Result<Dim, Reason> {
    cx.bound.dim(name).ok().flatten().map_or_else(|| refuse(format!("{}: {name} is no int", cx.op.name)), Ok)
}

pub(super) fn select(cx: &mut Decompose) -> Done {
    let of = subject(cx)?;
    let sizes = sizes_of(cx, of)?;
    let dim = cx.axis(cx.int("dim")?.unwrap_or(0), sizes.len())?;
    let start = from_front(dim_of(cx, "index")?, &sizes[dim])?;
    let part = View::Slice { dim: dim as u32, start, step: 1, length: Dim::Const(1) };
    Ok(Outcome::View(of, vec![part, View::Reshape(cx.result()?.sizes)]))
}

pub(super) fn narrow(cx: &mut Decompose) -> Done {
    let of = subject(cx)?;
    let sizes = sizes_of(cx, of)?;
    let dim = cx.axis(cx.int("dim")?.unwrap_or(0), sizes.len())?;
    let start = from_front(dim_of(cx, "start")?, &sizes[dim])?;
    let length = cx.result()?.sizes[dim].clone();
    Ok(Outcome::View(of, vec![View::Slice { dim: dim as u32, start, step: 1, length }]))
}

/// Parts one after the other; how long they are the metadata says.
pub(super) fn split(cx: &mut Decompose) -> Done {
    let of = subject(cx)?;
    let sizes = sizes_of(cx, of)?;
    let dim = cx.axis(cx.int("dim")?.unwrap_or(0), sizes.len())?;
    pieces(cx, of, dim)
}

/// As [`split`], along the first dimension of a vector, else along this one.
pub(super) fn split_along(cx: &mut Decompose, dim: usize) -> Done {
    let of = subject(cx)?;
    let last = sizes_of(cx, of)?.len().saturating_sub(1);
    pieces(cx, of, dim.min(last))
}

fn pieces(cx: &mut Decompose, of: NodeId, dim: usize) -> Done {
    let mut start = Dim::Const(0);
    let mut parts = Vec::new();
    for meta in cx.results()? {
        let length = meta.sizes[dim].clone();
        let next = start.add(&length);
        parts.push(Outcome::View(of, vec![View::Slice { dim: dim as u32, start, step: 1, length }]));
        start = next;
    }
    Ok(Outcome::Tuple(parts))
}

pub(super) fn unbind(cx: &mut Decompose) -> Done {
    let of = subject(cx)?;
    let sizes = sizes_of(cx, of)?;
    let dim = cx.axis(cx.int("dim")?.unwrap_or(0), sizes.len())?;
    let ValueMeta::Tuple(items) = cx.meta else { return refuse("unbind yields no tuple") };
    let mut parts = Vec::new();
    for (i, meta) in items.iter().enumerate() {
        let Some(meta) = meta.as_tensor() else { return refuse("unbind yields no tensors") };
        let part = View::Slice { dim: dim as u32, start: Dim::Const(i as i64), step: 1, length: Dim::Const(1) };
        parts.push(Outcome::View(of, vec![part, View::Reshape(meta.sizes.clone())]));
    }
    Ok(Outcome::Tuple(parts))
}

/// Of an operand's dimension, where `factors` are given by dimension of the view.
fn index_sum(start: Dim, rank: usize, factors: &[(usize, Dim)]) -> IndexSum {
    let mut all = vec![Dim::Const(0); rank];
    factors.iter().for_each(|(d, factor)| all[*d] = factor.clone());
    IndexSum { start, factors: all }
}

pub(super) fn diagonal(cx: &mut Decompose) -> Done {
    let of = subject(cx)?;
    let rank = sizes_of(cx, of)?.len();
    let (a, b) = (cx.axis(cx.int("dim1")?.unwrap_or(0), rank)?, cx.axis(cx.int("dim2")?.unwrap_or(1), rank)?);
    let sizes = cx.result()?.sizes;
    let offset = cx.int("offset")?.unwrap_or(0);
    // One without elements starts where its tensor does.
    let offset = if sizes.last().is_some_and(|size| size.is(0)) { 0 } else { offset };
    let (one, last) = (Dim::Const(1), sizes.len() - 1);
    let mut others = 0..;
    let sum = |d: usize| match d {
        _ if d == a => index_sum(Dim::Const((-offset).max(0)), sizes.len(), &[(last, one.clone())]),
        _ if d == b => index_sum(Dim::Const(offset.max(0)), sizes.len(), &[(last, one.clone())]),
        _ => index_sum(Dim::Const(0), sizes.len(), &[(others.next().unwrap_or(last), one.clone())]),
    };
    let sums = (0..rank).map(sum).collect();
    Ok(Outcome::View(of, vec![View::Sums { sizes, sums }]))
}

/// Windows along one dimension, each along a last one of its own.
pub(super) fn unfold(cx: &mut Decompose) -> Done {
    let of = subject(cx)?;
    let rank = sizes_of(cx, of)?.len();
    let dim = cx.axis(cx.int("dimension")?.unwrap_or(0), rank)?;
    let Some(step) = cx.int("step")? else { return refuse("unfold: step is no fixed int") };
    let (one, sizes) = (Dim::Const(1), cx.result()?.sizes);
    let sum = |d: usize| {
        let factors = if d == dim { vec![(d, Dim::Const(step)), (rank, one.clone())] } else { vec![(d, one.clone())] };
        index_sum(Dim::Const(0), sizes.len(), &factors)
    };
    let sums = (0..rank).map(sum).collect();
    Ok(Outcome::View(of, vec![View::Sums { sizes, sums }]))
}

/// Of a row-major tensor, and elements of it only.
pub(super) fn as_strided(cx: &mut Decompose) -> Done {
    let of = subject(cx)?;
    let Some(meta) = cx.metas.get(&of).cloned() else { return refuse("as_strided of no tensor") };
    let result = cx.result()?;
    let known = |dims: &[Dim]| dims.iter().map(Dim::as_const).collect::<Option<Vec<i64>>>();
    let (Some(sizes), Some(strides), Some(from)) = (known(&result.sizes), known(&result.strides), known(&meta.sizes))
    else {
        return refuse("as_strided of symbolic sizes");
    };
    // Counted from the start of the storage, of which the tensor may be a part.
    let start = cx.int("storage_offset")?;
    let is_whole = |op: &CoreOp| !op.is_view() && !op.is_input();
    if start.is_some() && !is_whole(&cx.core.node(cx.value_of(of)?).op) {
        return refuse("as_strided from the start of a storage");
    }
    let (start, count) = (start.unwrap_or(0), from.iter().product::<i64>());
    let last =
        sizes.iter().zip(&strides).try_fold(start, |last, (n, stride)| last.checked_add((n - 1).checked_mul(*stride)?));
    let inside = sizes.iter().all(|n| *n > 0) && last.is_some_and(|last| last < count);
    if !inside || start < 0 || meta.strides != contiguous_strides(&meta.sizes) {
        return refuse("as_strided of more than a row-major tensor");
    }
    let flat = View::Reshape(vec![Dim::Const(count)]);
    let sums = [IndexSum { start: Dim::Const(start), factors: result.strides }].into();
    Ok(Outcome::View(of, vec![flat, View::Sums { sizes: result.sizes, sums }]))
}

pub(super) fn clone(cx: &mut Decompose) -> Done {
    let a = cx.tensor("input")?;
    Ok(Outcome::Fresh(cx.core_copy(a)))
}

/// The tensor itself where neither type nor layout change, unless a copy is asked for.
pub(super) fn convert(cx: &mut Decompose) -> Done {
    let of = subject(cx)?;
    let (have, want) = (cx.meta_of("input")?, cx.result()?);
    let copy = matches!(cx.bound.constant("copy"), Some(Const::Bool(true)));
    if have.dtype == want.dtype && have.strides == want.strides && !copy {
        return Ok(Outcome::Same(of));
    }
    let a = cx.value_of(of)?;
    if have.dtype == want.dtype {
        return Ok(Outcome::Fresh(cx.core_copy(a)));
    }
    Ok(Outcome::Fresh(cx.cast(a, want.dtype)))
}

pub(super) fn copy(cx: &mut Decompose) -> Done {
    let of = subject(cx)?;
    let dtype = cx.meta_of("input")?.dtype;
    let sizes = sizes_of(cx, of)?;
    let source = cx.operand("src", dtype)?;
    Ok(Outcome::Fresh(cx.expand(source, &sizes)))
}

impl Decompose<'_> {
    /// The value in memory of its own with the result's strides.
    pub(crate) fn core_copy(&mut self, id: flambeau_core::graph::CoreId) -> flambeau_core::graph::CoreId {
        let node = self.core.node(id).clone();
        let strides = self.meta.as_tensor().map_or_else(|| node.strides.clone(), |m| m.strides.clone());
        let copy =
            self.core.add(flambeau_core::graph::CoreNode { op: CoreOp::Copy(id), strides: strides.clone(), ..node });
        self.core.pin(copy, &strides);
        copy
    }
}

pub(super) fn alias(cx: &mut Decompose) -> Done {
    Ok(Outcome::View(cx.node_of("input")?, vec![]))
}
