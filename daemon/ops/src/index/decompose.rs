//! Decompositions of indexing, joining, shifting and masks by position.

use crate::build::Build;
use crate::create::decompose::literal;
use crate::decompose::{Decompose, Outcome, View, bits_of, refuse};
use crate::signature::{Argument, Seen};
use crate::view::decompose::from_front;
use flambeau_core::graph::{CoreId, CoreOp, ExternArg};
use flambeau_ir::code::Const;
use flambeau_ir::dim::Dim;
use flambeau_ir::graph::{Arg, NodeId};
use flambeau_ir::kernel::{Binary, DType, ReduceOp};
use flambeau_ir::reason::Reason;
use flambeau_ir::tensor::TensorMeta;

type Done = Result<Outcome, Reason>;

/// What a subscript selects: views first, then tensors that pick along dimensions.
struct Selection {
    views: Vec<View>,
    picks: Vec<Option<Pick>>,
}

/// What picks elements along a dimension.
enum Pick {
    Tensor(NodeId),
    /// Ints, in lists as deep as the tensor that they are has dimensions.
    Ints(Arg, Vec<Dim>),
}

/// The sizes of the tensor of ints that lists are.
fn sizes_of_ints(arg: &Arg) -> Option<Vec<Dim>> {
    let each: Vec<Vec<Dim>> = match arg.seen() {
        Seen::Const(Const::Int(_)) | Seen::Dim(_) => return Some(vec![]),
        Seen::Items(items) => items.iter().map(sizes_of_ints).collect::<Option<_>>()?,
        Seen::Const(Const::Tuple(items)) => {
            items.iter().map(|item| sizes_of_ints(&Arg::Const(item.clone()))).collect::<Option<_>>()?
        }
        _ => return None,
    };
    let inner = each.first()?.clone();
    let mut sizes = vec![Dim::Const(each.len() as i64)];
    each.iter().all(|sizes| *sizes == inner).then(|| sizes.extend(inner))?;
    Some(sizes)
}

/// The parts of a subscript.
fn subscripts(arg: Option<&Arg>) -> Vec<Arg> {
    match arg {
        None => vec![Arg::Const(Const::None)],
        Some(Arg::Tuple(items)) => items.clone(),
        Some(Arg::Const(Const::Tuple(items))) => items.iter().cloned().map(Arg::Const).collect(),
        Some(other) => vec![other.clone()],
    }
}

fn bound_of(arg: &Arg, size: &Dim, default: &Dim) -> Result<Dim, Reason> {
    let at = match arg.seen() {
        Seen::Const(Const::None) => return Ok(default.clone()),
        Seen::Const(Const::Int(i)) => Dim::Const(*i),
        Seen::Dim(d) => return Ok(d.clone()),
        _ => return refuse("a slice bound that is no int"),
    };
    let at = from_front(at, size)?;
    match (at.as_const(), size.as_const()) {
        (Some(at), Some(size)) => Ok(Dim::Const(at.clamp(0, size))),
        (Some(at), None) if at == i64::MAX => Ok(size.clone()),
        _ => Ok(at),
    }
}

fn slice_parts(arg: &Arg) -> Option<[Arg; 3]> {
    match arg {
        Arg::Slice(parts) => Some((**parts).clone()),
        Arg::Const(Const::Slice(parts)) => Some((**parts).clone().map(Arg::Const)),
        _ => None,
    }
}

/// How many dimensions a part of a subscript takes.
fn dims_taken(cx: &Decompose, item: &Arg) -> usize {
    match item {
        Arg::Const(Const::None | Const::Ellipsis) => 0,
        Arg::Node(id) => cx.metas.get(id).filter(|m| m.dtype == DType::Bool).map_or(1, TensorMeta::ndim),
        _ => 1,
    }
}

fn selection(cx: &Decompose) -> Result<Selection, Reason> {
    let mut sizes = cx.meta_of("input")?.sizes;
    let items = subscripts(cx.bound.arg("index"));
    let taken: usize = items.iter().map(|item| dims_taken(cx, item)).sum();
    let skipped = sizes.len().saturating_sub(taken);
    let mut out = Selection { views: vec![], picks: vec![] };
    let mut at = 0;
    for item in &items {
        match item {
            Arg::Const(Const::Ellipsis) => {
                out.picks.extend((0..skipped).map(|_| None));
                at += skipped;
            }
            Arg::Const(Const::None) => {
                sizes.insert(at, Dim::Const(1));
                out.views.push(View::Reshape(sizes.clone()));
                out.picks.push(None);
                at += 1;
            }
            Arg::Node(id) => {
                out.picks.push(Some(Pick::Tensor(*id)));
                at += dims_taken(cx, item);
            }
            other => match (other.seen(), slice_parts(other)) {
                (_, Some(parts)) => {
                    let step = match parts[2].seen() {
                        Seen::Const(Const::None) => 1,
                        Seen::Const(Const::Int(i)) if *i > 0 => *i,
                        _ => return refuse("a slice with a step that is not fixed"),
                    };
                    let size = &sizes[at];
                    let start = bound_of(&parts[0], size, &Dim::Const(0))?;
                    let stop = bound_of(&parts[1], size, size)?;
                    let span = stop.sub(&start);
                    let length = match span.as_const() {
                        Some(n) => Dim::Const((n.max(0) + step - 1) / step),
                        None if step == 1 => span,
                        None => span.add(&Dim::Const(step - 1)).floor_div(&Dim::Const(step)),
                    };
                    sizes[at] = length.clone();
                    out.views.push(View::Slice { dim: at as u32, start, step, length });
                    out.picks.push(None);
                    at += 1;
                }
                (Seen::Const(Const::Int(i)), _) => {
                    let start = from_front(Dim::Const(*i), &sizes[at])?;
                    out.views.push(View::Slice { dim: at as u32, start, step: 1, length: Dim::Const(1) });
                    sizes.remove(at);
                    out.views.push(View::Reshape(sizes.clone()));
                }
                (Seen::Dim(d), _) => {
                    out.views.push(View::Slice { dim: at as u32, start: d.clone(), step: 1, length: Dim::Const(1) });
                    sizes.remove(at);
                    out.views.push(View::Reshape(sizes.clone()));
                }
                _ => match sizes_of_ints(other) {
                    Some(sizes) => {
                        out.picks.push(Some(Pick::Ints(other.clone(), sizes)));
                        at += 1;
                    }
                    None => return refuse("a subscript of this kind"),
                },
            },
        }
    }
    Ok(out)
}

/// What tensors pick from, and these, one a dimension.
fn picked(cx: &mut Decompose, of: NodeId, selection: &Selection) -> Result<(CoreId, Vec<ExternArg>), Reason> {
    let base = cx.value_of(of)?;
    let base = selection.views.iter().fold(base, |id, v| crate::decompose::apply(cx.core, id, v));
    let mut indices = Vec::new();
    for pick in &selection.picks {
        indices.push(match pick {
            Some(Pick::Tensor(id)) => ExternArg::Value(cx.value_of(*id)?),
            Some(Pick::Ints(ints, sizes)) => ExternArg::Value(literal(cx, ints, DType::I64, sizes.clone())?),
            None => ExternArg::Const(Const::None),
        });
    }
    Ok((base, indices))
}

pub(super) fn getitem(cx: &mut Decompose) -> Done {
    let of = cx.node_of("input")?;
    let selection = selection(cx)?;
    if selection.picks.iter().all(Option::is_none) {
        return Ok(Outcome::View(of, selection.views));
    }
    let (base, indices) = picked(cx, of, &selection)?;
    if indices.iter().any(|index| matches!(index, ExternArg::Value(id) if cx.sizes(*id).is_empty())) {
        return Ok(Outcome::Fresh(chosen(cx, base, &indices)?));
    }
    let meta = cx.result()?;
    let args = vec![ExternArg::Value(base), ExternArg::List(indices)];
    Ok(Outcome::Fresh(cx.call(("aten::index", "Tensor"), None, args, &[meta])[0]))
}

/// The part of `base` that tensors without dimensions choose, in memory of its own: the trace writes neither to it nor to what
/// it shows.
fn chosen(cx: &mut Decompose, base: CoreId, indices: &[ExternArg]) -> Result<CoreId, Reason> {
    let mut part = base;
    for (dim, index) in indices.iter().enumerate() {
        let ExternArg::Value(index) = *index else { continue };
        let size = cx.sizes(part)[dim].clone();
        let index = cx.cast(index, DType::I64);
        let (zero, size) = (cx.constant(&Const::Int(0), DType::I64, vec![])?, cx.scalar(&size, DType::I64));
        let (from_end, is_negative) = (cx.add(index, size), cx.binary(Binary::Lt, index, zero));
        let index = cx.select(is_negative, from_end, index);
        let index = cx.reshape(index, vec![Dim::Const(1)]);
        let mut sizes = cx.sizes(part);
        sizes[dim] = Dim::Const(1);
        let meta = TensorMeta::contiguous(cx.dtype(part), cx.meta_of("input")?.device, sizes);
        let args = vec![ExternArg::Value(part), ExternArg::Const(Const::Int(dim as i64)), ExternArg::Value(index)];
        part = cx.call(("aten::index_select", "default"), Some("out"), args, &[meta])[0];
    }
    let is_kept = |dim: &usize| !matches!(indices.get(*dim), Some(ExternArg::Value(_)));
    let sizes = cx.sizes(part);
    let sizes = (0..sizes.len()).filter(is_kept).map(|dim| sizes[dim].clone()).collect();
    Ok(cx.reshape(part, sizes))
}

/// The subscript of a store, where it is a mask.
fn mask_of(cx: &Decompose) -> Option<NodeId> {
    let Some(Arg::Node(id)) = cx.bound.arg("index") else { return None };
    cx.metas.get(id).is_some_and(|m| m.dtype == DType::Bool).then_some(*id)
}

/// `x[mask] = value`, of one number of the tensor's type. The mask has the first dimensions: the rule takes no others.
fn masked_store(cx: &mut Decompose, of: NodeId, mask: NodeId, value: CoreId) -> Done {
    let meta = cx.meta_of("input")?;
    let mask = cx.value_of(mask)?;
    let mut sizes = cx.sizes(mask);
    sizes.resize(meta.sizes.len(), Dim::Const(1));
    let mask = cx.reshape(mask, sizes);
    let (mask, value) = (cx.expand(mask, &meta.sizes), cx.expand(value, &meta.sizes));
    let before = cx.value_of(of)?;
    let stored = cx.select(mask, value, before);
    Ok(Outcome::WriteView(of, vec![], stored))
}

pub(super) fn setitem(cx: &mut Decompose) -> Done {
    let of = cx.node_of("input")?;
    let dtype = cx.meta_of("input")?.dtype;
    let mask = mask_of(cx);
    let selection = selection(cx)?;
    let value = cx.operand("value", dtype)?;
    if let Some(mask) = mask
        && cx.sizes(value).is_empty()
    {
        return masked_store(cx, of, mask, value);
    }
    if selection.picks.iter().all(Option::is_none) {
        return Ok(Outcome::WriteView(of, selection.views, value));
    }
    let (base, indices) = picked(cx, of, &selection)?;
    let value = cut_to(cx, value, rank(cx, base, &selection))?;
    let stored = crate::decompose::index_put(cx.core, base, indices, value);
    Ok(Outcome::WriteView(of, selection.views, stored))
}

/// How many dimensions what the tensors pick from `base` has: those that they have together stand for those that they take.
fn rank(cx: &Decompose, base: CoreId, selection: &Selection) -> usize {
    let (mut taken, mut together) = (0, 0);
    for pick in selection.picks.iter().flatten() {
        let (takes, has) = match pick {
            Pick::Tensor(id) => {
                let takes = dims_taken(cx, &Arg::Node(*id));
                let is_mask = cx.metas.get(id).is_some_and(|m| m.dtype == DType::Bool);
                (takes, if is_mask { 1 } else { cx.metas.get(id).map_or(0, TensorMeta::ndim) })
            }
            Pick::Ints(_, sizes) => (1, sizes.len()),
        };
        taken += takes;
        together = together.max(has);
    }
    cx.sizes(base).len() - taken + together
}

/// The value without the first of its dimensions where it has more than `rank`. They have size 1, or torch refuses it.
fn cut_to(cx: &mut Decompose, value: CoreId, rank: usize) -> Result<CoreId, Reason> {
    let sizes = cx.sizes(value);
    let (first, rest) = sizes.split_at(sizes.len().saturating_sub(rank));
    if !first.iter().all(|size| size.is(1)) {
        return refuse("a store of a value with more dimensions than it has room for");
    }
    Ok(cx.reshape(value, rest.to_vec()))
}

pub(super) fn embedding(cx: &mut Decompose) -> Done {
    let (weight, indices) = (cx.tensor("weight")?, cx.tensor("indices")?);
    let padding = cx.int("padding_idx")?.unwrap_or(-1);
    let args = vec![
        ExternArg::Value(weight),
        ExternArg::Value(indices),
        ExternArg::Const(Const::Int(padding)),
        ExternArg::Const(Const::Bool(false)),
        ExternArg::Const(Const::Bool(false)),
    ];
    let meta = cx.result()?;
    Ok(Outcome::Fresh(cx.call(("aten::embedding", "default"), None, args, &[meta])[0]))
}

pub(super) fn index_select(cx: &mut Decompose) -> Done {
    let (input, index) = (cx.tensor("input")?, cx.tensor("index")?);
    let dim = cx.int("dim")?.unwrap_or(0);
    let args = vec![ExternArg::Value(input), ExternArg::Const(Const::Int(dim)), ExternArg::Value(index)];
    let meta = cx.result()?;
    Ok(Outcome::Fresh(cx.call(("aten::index_select", "default"), Some("out"), args, &[meta])[0]))
}

pub(super) fn gather(cx: &mut Decompose) -> Done {
    let (input, index) = (cx.tensor("input")?, cx.tensor("index")?);
    let dim = cx.int("dim")?.unwrap_or(0);
    let args = vec![
        ExternArg::Value(input),
        ExternArg::Const(Const::Int(dim)),
        ExternArg::Value(index),
        ExternArg::Const(Const::Bool(false)),
    ];
    let meta = cx.result()?;
    Ok(Outcome::Fresh(cx.call(("aten::gather", "default"), Some("out"), args, &[meta])[0]))
}

fn iota(cx: &mut Decompose, sizes: &[Dim], dim: usize) -> CoreId {
    cx.core.push(CoreOp::Iota(dim as u32), DType::I64, sizes.to_vec())
}

/// `column - row <= diagonal ? x : 0` (or `>=`)
pub(super) fn triangle(cx: &mut Decompose, keep: Binary) -> Done {
    let x = cx.tensor("input")?;
    let (sizes, dtype) = (cx.sizes(x), cx.dtype(x));
    let diagonal = cx.int("diagonal")?.unwrap_or(0);
    let (row, column) = (iota(cx, &sizes, sizes.len() - 2), iota(cx, &sizes, sizes.len() - 1));
    let distance = cx.sub(column, row);
    let limit = cx.constant(&Const::Int(diagonal), DType::I64, vec![])?;
    let inside = cx.binary(keep, distance, limit);
    let zero = cx.constant(&Const::Int(0), dtype, vec![])?;
    Ok(Outcome::Fresh(cx.select(inside, x, zero)))
}

/// Checks that each index is at least zero and less than `size`.
fn within(cx: &mut Decompose, index: CoreId, size: i64) -> Result<(), Reason> {
    let dims: Vec<usize> = (0..cx.sizes(index).len()).collect();
    let (zero, size) = (Const::Int(0), Const::Int(size));
    let (zero, size) = (cx.constant(&zero, DType::I64, vec![])?, cx.constant(&size, DType::I64, vec![])?);
    let (low, high) = (cx.binary(Binary::Ge, index, zero), cx.binary(Binary::Lt, index, size));
    let both = cx.binary(Binary::And, low, high);
    let all = cx.reduce(ReduceOp::All, both, &dims);
    let all = cx.reshape(all, vec![]);
    cx.check(all);
    Ok(())
}

pub(super) fn one_hot(cx: &mut Decompose) -> Done {
    let classes = cx.int("num_classes")?.unwrap_or(-1);
    if classes < 0 {
        return refuse("one_hot without a number of classes");
    }
    let (x, meta) = (cx.tensor("input")?, cx.result()?);
    if !meta.device.is_host() {
        // Torch's own checks the classes.
        let args = vec![ExternArg::Value(x), ExternArg::Const(Const::Int(classes))];
        return Ok(Outcome::Fresh(cx.call(("aten::one_hot", "default"), None, args, &[meta])[0]));
    }
    within(cx, x, classes)?;
    let (mut sizes, last) = (cx.sizes(x), cx.sizes(x).len());
    sizes.push(Dim::Const(1));
    let x = cx.reshape(x, sizes);
    let class = iota(cx, &meta.sizes, last);
    let same = cx.binary(Binary::Eq, x, class);
    Ok(Outcome::Fresh(cx.cast(same, DType::I64)))
}

/// A value whose parts follow each other along `dim`.
pub(crate) fn joined(cx: &mut Decompose, parts: Vec<CoreId>, dim: usize) -> CoreId {
    if let [only] = parts[..] {
        return only;
    }
    let mut sizes = cx.sizes(parts[0]);
    sizes[dim] = parts.iter().fold(Dim::Const(0), |sum, p| sum.add(&cx.core.node(*p).sizes[dim]));
    let dtype = cx.dtype(parts[0]);
    cx.core.push(CoreOp::Join(parts, dim as u32), dtype, sizes)
}

pub(super) fn roll(cx: &mut Decompose) -> Done {
    let mut x = cx.tensor("input")?;
    let mut sizes = cx.sizes(x);
    let shifts = cx.ints("shifts")?.unwrap_or_default();
    let mut dims = cx.ints("dims")?.unwrap_or_default();
    let whole = sizes.clone();
    if dims.is_empty() {
        sizes = vec![Dim::product(&sizes)];
        x = cx.reshape(x, sizes.clone());
        dims.push(0);
    }
    if dims.len() != shifts.len() {
        return refuse("roll by other than one number in each dimension");
    }
    for (shift, dim) in shifts.iter().zip(dims).filter(|_| !sizes.is_empty()) {
        let dim = cx.axis(dim, sizes.len())?;
        let Some(size) = sizes[dim].as_const().filter(|s| *s > 0) else { return refuse("roll along a symbolic size") };
        let shift = shift.rem_euclid(size);
        if shift == 0 {
            continue;
        }
        let back = cx.slice(x, dim, Dim::Const(size - shift), 1, Dim::Const(shift));
        let front = cx.slice(x, dim, Dim::Const(0), 1, Dim::Const(size - shift));
        x = joined(cx, vec![back, front], dim);
    }
    let x = cx.reshape(x, whole);
    Ok(Outcome::Fresh(cx.core_copy(x)))
}

pub(super) fn flip(cx: &mut Decompose) -> Done {
    let mut x = cx.tensor("input")?;
    let sizes = cx.sizes(x);
    for dim in cx.ints("dims")?.unwrap_or_default().into_iter().filter(|_| !sizes.is_empty()) {
        let dim = cx.axis(dim, sizes.len())?;
        let last = sizes[dim].sub(&Dim::Const(1));
        x = cx.slice(x, dim, last, -1, sizes[dim].clone());
    }
    Ok(Outcome::Fresh(cx.core_copy(x)))
}

pub(super) fn repeat(cx: &mut Decompose) -> Done {
    let x = cx.tensor("input")?;
    let out = cx.result()?.sizes;
    let mut old = vec![Dim::Const(1); out.len() - cx.sizes(x).len()];
    old.extend(cx.sizes(x));
    let (mut narrow, mut wide) = (Vec::new(), Vec::new());
    for (old, new) in old.iter().zip(&out) {
        let times = new.floor_div(old);
        narrow.extend([Dim::Const(1), old.clone()]);
        wide.extend([times, old.clone()]);
    }
    let x = cx.reshape(x, narrow);
    let x = cx.expand(x, &wide);
    let x = cx.reshape(x, out);
    Ok(Outcome::Fresh(cx.core_copy(x)))
}

/// Each element one after the other as often as an int says.
pub(super) fn repeat_interleave(cx: &mut Decompose) -> Done {
    let Some(repeats) = cx.bound.dim("repeats").ok().flatten() else { return refuse("repeats that are no int") };
    let x = cx.tensor("input")?;
    let numel = cx.sizes(x).iter().fold(Dim::Const(1), |numel, size| numel.mul(size));
    let (x, dim) = match cx.int("dim")? {
        None => (cx.reshape(x, vec![numel]), 0),
        Some(dim) => (x, cx.axis(dim, cx.sizes(x).len())?),
    };
    let (mut narrow, mut wide) = (cx.sizes(x), cx.sizes(x));
    narrow.insert(dim + 1, Dim::Const(1));
    wide.insert(dim + 1, repeats);
    let x = cx.reshape(x, narrow);
    let x = cx.expand(x, &wide);
    let x = cx.reshape(x, cx.result()?.sizes);
    Ok(Outcome::Fresh(cx.core_copy(x)))
}

/// The tensors given for a parameter.
pub(crate) fn tensors(cx: &Decompose, name: &str) -> Result<Vec<CoreId>, Reason> {
    let Some(items) = cx.bound.items(name) else { return refuse(format!("{name} is no list")) };
    let each = |a: &Arg| match a {
        Arg::Node(id) => cx.value_of(*id),
        _ => refuse(format!("{name} holds something else than tensors")),
    };
    items.iter().map(each).collect()
}

pub(super) fn cat(cx: &mut Decompose) -> Done {
    let meta = cx.result()?;
    let parts: Vec<CoreId> = tensors(cx, "tensors")?;
    // Tensors of shape (0,) are skipped, whatever the others' rank.
    let parts: Vec<CoreId> = parts.into_iter().filter(|p| cx.core.node(*p).sizes.len() == meta.sizes.len()).collect();
    let dim = cx.axis(cx.int("dim")?.unwrap_or(0), meta.sizes.len())?;
    let parts: Vec<CoreId> = parts.into_iter().map(|p| cx.cast(p, meta.dtype)).collect();
    if parts.is_empty() {
        return refuse("a join of empty tensors");
    }
    let value = joined(cx, parts, dim);
    Ok(Outcome::Fresh(cx.owned(value)))
}

pub(super) fn stack(cx: &mut Decompose) -> Done {
    let meta = cx.result()?;
    let dim = cx.axis(cx.int("dim")?.unwrap_or(0), meta.sizes.len())?;
    let mut part_sizes = meta.sizes.clone();
    part_sizes[dim] = Dim::Const(1);
    let mut parts = Vec::new();
    for part in tensors(cx, "tensors")? {
        let part = cx.cast(part, meta.dtype);
        parts.push(cx.reshape(part, part_sizes.clone()));
    }
    let value = joined(cx, parts, dim);
    Ok(Outcome::Fresh(cx.owned(value)))
}

impl Decompose<'_> {
    /// A value that is not an argument itself.
    fn owned(&mut self, id: CoreId) -> CoreId {
        if matches!(self.core.node(id).op, CoreOp::Join(..)) { id } else { self.core_copy(id) }
    }
}

pub(super) fn pad(cx: &mut Decompose) -> Done {
    if !matches!(cx.bound.constant("mode"), None | Some(Const::Str(_))) {
        return refuse("pad with a mode that is not fixed");
    }
    let x = cx.tensor("input")?;
    if let Some(Const::Str(mode)) = cx.bound.constant("mode")
        && &**mode != "constant"
    {
        let mode = mode.clone();
        return pad_by(cx, x, &mode);
    }
    let (sizes, dtype) = (cx.sizes(x), cx.dtype(x));
    let value = match cx.bound.constant("value") {
        Some(Const::None) | None => Const::Int(0),
        Some(c) => c.clone(),
    };
    let Some(bits) = bits_of(&value, dtype) else { return refuse("pad with a value of another type") };
    let widths = cx.ints("pad")?.unwrap_or_default();
    if widths.iter().any(|w| *w < 0) {
        return refuse("pad that crops");
    }
    let mut low = vec![Dim::Const(0); sizes.len()];
    for (i, pair) in widths.chunks(2).enumerate() {
        low[sizes.len() - 1 - i] = Dim::Const(pair[0]);
    }
    let out = cx.result()?.sizes;
    Ok(Outcome::Fresh(cx.core.push(CoreOp::Pad(x, bits, low), dtype, out)))
}

/// Elements beyond the ends are others of the same dimension: mirrored, the last one, or those of the other end.
fn pad_by(cx: &mut Decompose, x: CoreId, mode: &str) -> Done {
    let (mut padded, widths) = (x, cx.ints("pad")?.unwrap_or_default());
    let rank = cx.sizes(x).len();
    if !matches!(cx.dtype(x), DType::F32 | DType::F64) {
        return refuse(format!("pad by {mode} of another type than single and double precision"));
    }
    if widths.iter().any(|w| *w < 0) || widths.len() % 2 != 0 || widths.len() / 2 > rank {
        return refuse("pad that crops");
    }
    for (dim, pair) in (0..rank).rev().zip(widths.chunks(2)) {
        let size = cx.sizes(padded)[dim].clone();
        let of = |cx: &mut Decompose, start: Dim, step: i64, count: i64| {
            cx.slice(padded, dim, start, step, Dim::Const(count))
        };
        let (low, high, last) = (pair[0], pair[1], size.sub(&Dim::Const(1)));
        let (before, after) = match mode {
            "reflect" => (of(cx, Dim::Const(low), -1, low), of(cx, last.sub(&Dim::Const(1)), -1, high)),
            "circular" => (of(cx, size.sub(&Dim::Const(low)), 1, low), of(cx, Dim::Const(0), 1, high)),
            "replicate" => {
                let (first, last) = (of(cx, Dim::Const(0), 1, 1), of(cx, last, 1, 1));
                let mut sizes = cx.sizes(padded);
                sizes[dim] = Dim::Const(low);
                let first = cx.expand(first, &sizes);
                sizes[dim] = Dim::Const(high);
                (first, cx.expand(last, &sizes))
            }
            other => return refuse(format!("pad by {other}")),
        };
        let parts = [(low, before), (1, padded), (high, after)];
        let parts = parts.into_iter().filter(|(count, _)| *count > 0).map(|(_, part)| part).collect();
        padded = joined(cx, parts, dim);
    }
    Ok(Outcome::Fresh(cx.owned(padded)))
}
