//! `x[...]` on tensors (and on what ops return as tuples), and stores through it.

use crate::call::{Answer, Call, broadcast, invalid};
use crate::create::literal;
use crate::layout::{Operand, pointwise_strides};
use crate::promote::Category;
use crate::view::geometry::{slice_bounds, view_strides};
use crate::view::{check_index, expanded};
use crate::{InferError, Inferred, OpArg};
use flambeau_ir::code::Const;
use flambeau_ir::dim::Dim;
use flambeau_ir::graph::ValueMeta;
use flambeau_ir::kernel::DType;
use flambeau_ir::tensor::TensorMeta;

/// What an index does to a tensor.
enum Indexed {
    /// Shows part of it.
    View(TensorMeta),
    /// Shows the part that index tensors without dimensions choose: torch reads them as numbers.
    Chosen(TensorMeta),
    /// Picks elements by index tensors into a new tensor.
    Picked(TensorMeta),
    /// Picks as many elements as masks say.
    Masked,
}

pub(super) fn getitem(call: &mut Call) -> Answer {
    match index(call)? {
        Indexed::View(meta) => call.view("input", meta.sizes, meta.strides),
        Indexed::Chosen(meta) => {
            let shown = call.view("input", meta.sizes, meta.strides)?;
            Ok(Inferred { chosen: true, checks: true, ..shown })
        }
        Indexed::Picked(mut meta) => {
            let base = call.tensor("input")?;
            meta.requires_grad = call.grad_of(meta.dtype, [base]);
            Ok(Inferred { checks: true, ..Inferred::tensor(meta) })
        }
        Indexed::Masked => Err(InferError::NoRule),
    }
}

/// Whether `x[mask] = value` writes one number where a mask of the first dimensions says so: such a store raises nothing.
fn fills_by_mask(call: &mut Call) -> Result<bool, InferError> {
    let base = call.tensor("input")?;
    let (Some(OpArg::Tensor(mask)), Some(value)) = (call.bound.arg("index"), call.bound.arg("value")) else {
        return Ok(false);
    };
    let fits = mask.dtype == DType::Bool
        && mask.ndim() <= base.ndim()
        && mask.sizes.iter().zip(&base.sizes).all(|(a, b)| call.env.eq(a, b));
    Ok(fits
        && match value {
            OpArg::Tensor(value) => value.ndim() == 0 && value.dtype == base.dtype && !value.requires_grad,
            number => matches!(number.seen_number(), Some(Category::Bool | Category::Integer | Category::Float)),
        })
}

/// A store writes into its first argument and yields `None`.
pub(super) fn setitem(call: &mut Call) -> Answer {
    let base = call.tensor("input")?;
    if fills_by_mask(call)? && !has_repeats(call, base) {
        let mutates = vec![call.place("input")?];
        return Ok(Inferred { mutates, ..Inferred::fresh(ValueMeta::Const(Const::None)) });
    }
    let (place, checks) = match index(call)? {
        Indexed::View(place) => (Some(place), false),
        Indexed::Chosen(place) | Indexed::Picked(place) => (Some(place), true),
        // Torch checks that there are as many values.
        Indexed::Masked => (None, true),
    };
    match call.bound.arg("value").ok_or(InferError::NoRule)? {
        OpArg::Tensor(value) => {
            if let Some(place) = &place {
                // A store may drop leading dimensions of size one from the value.
                let mut value = value.clone();
                while value.ndim() > place.ndim() && call.env.is(&value.sizes[0], 1) {
                    value.sizes.remove(0);
                    value.strides.remove(0);
                }
                expanded(&mut call.env, &value, &place.sizes)?;
            }
            if checks && value.dtype != base.dtype || call.grad_of(base.dtype, [value]) && !base.requires_grad {
                return Err(InferError::NoRule);
            }
        }
        number if number.seen_number().is_some() => {}
        _ => return Err(InferError::NoRule),
    }
    if has_repeats(call, place.as_ref().unwrap_or(base)) {
        return Err(InferError::NoRule);
    }
    let mutates = vec![call.place("input")?];
    Ok(Inferred { mutates, checks, ..Inferred::fresh(ValueMeta::Const(Const::None)) })
}

/// Whether elements lie at one place, which torch does not write to.
fn has_repeats(call: &mut Call, place: &TensorMeta) -> bool {
    let mut repeats = |(size, stride): (&Dim, &Dim)| call.env.is(stride, 0) && !call.env.lt(size, &Dim::Const(2));
    place.sizes.iter().zip(&place.strides).any(&mut repeats)
}

fn index(call: &mut Call) -> Result<Indexed, InferError> {
    let base = call.tensor("input")?;
    let whole = call.bound.arg("index");
    let none = [OpArg::Const(Const::None)];
    let owned;
    let items: &[OpArg] = match whole {
        None => &none,
        Some(OpArg::Tuple(items)) => items,
        Some(OpArg::Const(Const::Tuple(items))) => {
            owned = items.iter().map(|c| OpArg::Const(c.clone())).collect::<Vec<_>>();
            &owned
        }
        Some(single) => std::slice::from_ref(single),
    };
    let mut walk = Walk { sizes: Vec::new(), strides: Vec::new(), picks: Vec::new() };
    let taken = items.iter().map(dims_taken).sum::<usize>();
    let ellipsis = items.iter().filter(|i| matches!(i, OpArg::Const(Const::Ellipsis))).count();
    if ellipsis > 1 || taken > base.ndim() {
        return invalid(format!("too many indices for tensor of dimension {}", base.ndim()));
    }
    let skipped = base.ndim() - taken;
    let (mut dim, mut masks) = (0, false);
    for item in items {
        if matches!(item, OpArg::Const(Const::Ellipsis)) {
            walk.keep(base, dim..dim + skipped);
            dim += skipped;
        } else if is_new_axis(item) {
            let at = walk.sizes.len();
            let stride = base.sizes.get(dim).map_or(Dim::Const(1), |s| s.mul(&base.strides[dim]));
            walk.sizes.insert(at, Dim::Const(1));
            walk.strides.insert(at, stride);
        } else if let Some(mask) = as_mask(item) {
            let of = &base.sizes[dim..dim + mask.ndim()];
            if mask.ndim() == 0 || !mask.sizes.iter().zip(of).all(|(a, b)| call.env.eq(a, b)) {
                return Err(InferError::NoRule);
            }
            dim += mask.ndim();
            masks = true;
        } else {
            walk.item(call, base, dim, item)?;
            dim += 1;
        }
    }
    if masks {
        return Ok(Indexed::Masked);
    }
    walk.keep(base, dim..base.ndim());
    let viewed = TensorMeta { sizes: walk.sizes, strides: walk.strides, ..base.clone() };
    if walk.picks.is_empty() {
        Ok(Indexed::View(viewed))
    } else if walk.picks.iter().any(|(_, index)| index.ndim() == 0) {
        chosen(call, viewed, &walk.picks).map(Indexed::Chosen)
    } else {
        picked(call, &viewed, &walk.picks).map(Indexed::Picked)
    }
}

fn as_mask(item: &OpArg) -> Option<&TensorMeta> {
    match item {
        OpArg::Tensor(mask) if mask.dtype == DType::Bool => Some(mask),
        _ => None,
    }
}

/// How many dimensions a part of a subscript takes.
fn dims_taken(item: &OpArg) -> usize {
    match as_mask(item) {
        Some(mask) => mask.ndim(),
        None => usize::from(!matches!(item, OpArg::Const(Const::None | Const::Ellipsis))),
    }
}

fn is_new_axis(item: &OpArg) -> bool {
    matches!(item, OpArg::Const(Const::None))
}

/// The view so far, and the index tensors by dimension of that view.
struct Walk {
    sizes: Vec<Dim>,
    strides: Vec<Dim>,
    picks: Vec<(usize, TensorMeta)>,
}

impl Walk {
    fn keep(&mut self, base: &TensorMeta, dims: std::ops::Range<usize>) {
        self.sizes.extend_from_slice(&base.sizes[dims.clone()]);
        self.strides.extend_from_slice(&base.strides[dims]);
    }

    fn item(&mut self, call: &mut Call, base: &TensorMeta, dim: usize, item: &OpArg) -> Result<(), InferError> {
        let (size, stride) = (&base.sizes[dim], &base.strides[dim]);
        match item {
            OpArg::Const(Const::Int(i)) => check_index(call, &Dim::Const(*i), size),
            OpArg::Dim(i) => check_index(call, i, size),
            OpArg::Slice(parts) => {
                let bound = |part: &OpArg| match part {
                    OpArg::Const(Const::None) => Ok(None),
                    OpArg::Const(Const::Int(i)) => Ok(Some(Dim::Const(*i))),
                    OpArg::Dim(d) => Ok(Some(d.clone())),
                    _ => Err(InferError::NoRule),
                };
                self.slice(call, size, stride, [bound(&parts[0])?, bound(&parts[1])?, bound(&parts[2])?])
            }
            OpArg::Const(Const::Slice(parts)) => {
                let bound = |part: &Const| match part {
                    Const::None => Ok(None),
                    Const::Int(i) => Ok(Some(Dim::Const(*i))),
                    _ => Err(InferError::NoRule),
                };
                self.slice(call, size, stride, [bound(&parts[0])?, bound(&parts[1])?, bound(&parts[2])?])
            }
            OpArg::Tensor(t) if matches!(t.dtype, DType::I64 | DType::I32) => {
                self.pick(base, dim, t.clone());
                Ok(())
            }
            OpArg::List(_) | OpArg::Tuple(_) | OpArg::Const(Const::Tuple(_)) => {
                let (mut sizes, mut kind) = (Vec::new(), None);
                literal(item, 0, &mut sizes, &mut kind)?;
                let is_alone = matches!(call.bound.arg("index"), Some(OpArg::List(_)));
                // Lists in a list stand for a tuple of them.
                if kind != Some(Category::Integer) || (is_alone && sizes.len() > 1) {
                    return Err(InferError::NoRule);
                }
                let sizes = sizes.into_iter().map(Dim::Const).collect();
                self.pick(base, dim, TensorMeta::contiguous(DType::I64, base.device, sizes));
                Ok(())
            }
            _ => Err(InferError::NoRule),
        }
    }

    fn pick(&mut self, base: &TensorMeta, dim: usize, index: TensorMeta) {
        self.picks.push((self.sizes.len(), index));
        self.keep(base, dim..dim + 1);
    }

    fn slice(&mut self, call: &mut Call, size: &Dim, stride: &Dim, parts: [Option<Dim>; 3]) -> Result<(), InferError> {
        let [start, stop, step] = parts;
        let step = match step {
            None => 1,
            Some(step) => step.as_const().ok_or_else(|| InferError::Dynamic("slice step".into()))?,
        };
        if step < 1 {
            return invalid("slice step must be positive");
        }
        let (_, length) = slice_bounds(&mut call.env, size, start, stop, step);
        self.sizes.push(length);
        self.strides.push(stride.mul(&Dim::Const(step)));
        Ok(())
    }
}

/// The part of `base` that tensors without dimensions choose.
fn chosen(call: &mut Call, base: TensorMeta, picks: &[(usize, TensorMeta)]) -> Result<TensorMeta, InferError> {
    let fits = |(_, index): &(usize, TensorMeta)| index.ndim() == 0 && index.device == base.device;
    if !picks.iter().all(fits) || call.env.is_empty(&base.sizes) {
        return Err(InferError::NoRule);
    }
    let kept = (0..base.ndim()).filter(|d| !picks.iter().any(|(at, _)| at == d));
    let (sizes, strides) = kept.map(|d| (base.sizes[d].clone(), base.strides[d].clone())).unzip();
    Ok(TensorMeta { sizes, strides, ..base })
}

/// The result of indexing `base` with tensors: their broadcast shape stands where they stand if they are side by side, else
/// in front. The layout follows that of the base, then of the indices.
fn picked(call: &mut Call, base: &TensorMeta, picks: &[(usize, TensorMeta)]) -> Result<TensorMeta, InferError> {
    let shape = broadcast(&mut call.env, picks.iter().map(|(_, t)| &t.sizes[..]))?;
    let adjacent = picks.windows(2).all(|w| w[1].0 == w[0].0 + 1);
    let is_picked = |d: usize| picks.iter().any(|(at, _)| *at == d);
    let first = if adjacent { picks[0].0 } else { 0 };
    let rest: Vec<usize> = (0..base.ndim()).filter(|d| !is_picked(*d)).collect();
    let (before, after) = rest.split_at(if adjacent { first } else { 0 });
    let picks_empty = picks.iter().any(|(d, _)| base.sizes[*d].is(0));
    if picks_empty {
        return Err(InferError::NoRule);
    }
    let (mut sizes, mut strides) = (Vec::new(), Vec::new());
    for &d in before {
        sizes.push(base.sizes[d].clone());
        strides.push(base.strides[d].clone());
    }
    for size in &shape {
        sizes.push(size.clone());
        strides.push(Dim::Const(0));
    }
    for &d in after {
        sizes.push(base.sizes[d].clone());
        strides.push(base.strides[d].clone());
    }
    let mut operands = vec![Operand { sizes: sizes.clone(), strides }];
    for (_, index) in picks {
        let (spread, spread_strides) = expanded(&mut call.env, index, &shape)?;
        let mut padded = vec![Dim::Const(1); before.len()];
        padded.extend_from_slice(&spread);
        padded.extend(std::iter::repeat_n(Dim::Const(1), after.len()));
        let strides = view_strides(&mut call.env, &spread, &spread_strides, &padded).ok_or(InferError::NoRule)?;
        operands.push(Operand { sizes: padded, strides });
    }
    let strides = pointwise_strides(&mut call.env, &sizes, &operands);
    Ok(TensorMeta { dtype: base.dtype, device: base.device, sizes, strides, requires_grad: false })
}
