//! Geometry of views: which strides a reshaped tensor has, and what a shape with `-1` in it means.

use crate::InferError;
use crate::call::invalid;
use crate::layout::Sizes;
use flambeau_ir::dim::Dim;
use flambeau_ir::tensor::contiguous_strides;

/// The shape with its `-1` replaced by what is left of `numel`.
pub(crate) fn resolve_shape(env: &mut Sizes, shape: &[Dim], numel: &Dim) -> Result<Vec<Dim>, InferError> {
    let mut free = None;
    let mut known = Dim::Const(1);
    for (d, size) in shape.iter().enumerate() {
        if size.is(-1) {
            if free.replace(d).is_some() {
                return invalid("only one dimension can be inferred");
            }
        } else if size.as_const().is_some_and(|c| c < 0) {
            return invalid(format!("invalid shape dimension {size}"));
        } else {
            known = known.mul(size);
        }
    }
    let mut sizes = shape.to_vec();
    let fits = match free {
        None => env.eq(&known, numel),
        Some(_) if env.is(&known, 0) => return invalid("cannot reshape tensor of 0 elements into a shape with -1"),
        Some(d) => {
            let rest = numel.floor_div(&known);
            sizes[d] = rest.clone();
            rest.mul(&known) == *numel || env.is(&numel.modulo(&known), 0)
        }
    };
    if !fits {
        return invalid(format!("shape is invalid for input of size {numel}"));
    }
    Ok(sizes)
}

/// Strides that show the same elements in the same order under another shape of as many elements; `None` if only a copy
/// can.
pub(crate) fn view_strides(env: &mut Sizes, old: &[Dim], strides: &[Dim], new: &[Dim]) -> Option<Vec<Dim>> {
    if old.is_empty() {
        return Some(vec![Dim::Const(1); new.len()]);
    }
    if env.is_empty(old) {
        return Some(if env.same(old, new) { strides.to_vec() } else { contiguous_strides(new) });
    }
    let mut result = vec![Dim::Const(0); new.len()];
    let mut view = new.len();
    let (mut old_run, mut new_run) = (Dim::Const(1), Dim::Const(1));
    let mut base = strides[old.len() - 1].clone();
    for d in (0..old.len()).rev() {
        old_run = old_run.mul(&old[d]);
        let ends = d == 0 || !env.is(&old[d - 1], 1) && !env.eq(&strides[d - 1], &old_run.mul(&base));
        if !ends {
            continue;
        }
        while view > 0 && (env.lt(&new_run, &old_run) || env.is(&new[view - 1], 1)) {
            view -= 1;
            result[view] = new_run.mul(&base);
            new_run = new_run.mul(&new[view]);
        }
        if !env.eq(&new_run, &old_run) {
            return None;
        }
        if d > 0 {
            base = strides[d - 1].clone();
            old_run = Dim::Const(1);
            new_run = Dim::Const(1);
        }
    }
    (view == 0).then_some(result)
}

/// The part of a dimension that a Python slice takes: first element and number of elements. `None` bounds are open.
pub(crate) fn slice_bounds(
    env: &mut Sizes,
    size: &Dim,
    start: Option<Dim>,
    stop: Option<Dim>,
    step: i64,
) -> (Dim, Dim) {
    if start.is_none() && stop.is_none() && step == 1 {
        return (Dim::Const(0), size.clone());
    }
    let mut clamp = |bound: Dim| {
        let bound = if env.lt(&bound, &Dim::Const(0)) { bound.add(size) } else { bound };
        if env.lt(&bound, &Dim::Const(0)) {
            Dim::Const(0)
        } else if env.lt(size, &bound) {
            size.clone()
        } else {
            bound
        }
    };
    let first = start.map_or(Dim::Const(0), &mut clamp);
    let last = stop.map_or_else(|| size.clone(), &mut clamp);
    if env.lt(&last, &first) {
        return (first, Dim::Const(0));
    }
    let length = last.sub(&first).add(&Dim::Const(step - 1)).floor_div(&Dim::Const(step));
    (first, length)
}
