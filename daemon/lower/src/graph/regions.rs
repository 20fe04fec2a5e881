//! Where views lie in the memory of what they are views of.

use crate::nest::affine::{reshaped_strides, strides_through_view};
use flambeau_core::graph::{CoreId, CoreNode, CoreOp, IndexSum};
use flambeau_ir::dim::Dim;
use flambeau_ir::kernel::DType;
use flambeau_ir::tensor::contiguous_strides;
use flambeau_ops::decompose::View;

/// Where the elements lie that `views` show of memory of these sizes and strides; `None` if torch would not share it, or
/// some may be the same.
pub fn places(views: &[View], sizes: &[Dim], strides: &[Dim]) -> Option<IndexSum> {
    if has_overlap(sizes, strides) {
        return None;
    }
    let (mut sizes, mut factors, mut start) = (sizes.to_vec(), strides.to_vec(), Dim::Const(0));
    for view in views {
        let repeats = matches!(view, View::Expand(to) if *to != sizes);
        (sizes, factors, start) = geometry(view, &sizes, &factors, &start)?;
        if repeats || matches!(view, View::Sums { .. }) && has_overlap(&sizes, &factors) {
            return None;
        }
    }
    Some(IndexSum { start, factors })
}

/// Sizes, strides and offset after a view.
pub fn geometry(view: &View, sizes: &[Dim], strides: &[Dim], offset: &Dim) -> Option<(Vec<Dim>, Vec<Dim>, Dim)> {
    let node = |op: CoreOp, sizes: Vec<Dim>| CoreNode { op, dtype: DType::F32, sizes, strides: vec![] };
    let operand = node(CoreOp::Input(0), sizes.to_vec());
    let id = CoreId(0);
    let (op, sizes) = match view {
        View::Expand(to) => (CoreOp::Expand(id), to.clone()),
        View::Permute(order) => {
            (CoreOp::Permute(id, order.clone()), order.iter().map(|d| sizes[*d as usize].clone()).collect())
        }
        View::Reshape(to) => return Some((to.clone(), reshaped_strides(sizes, strides, to)?, offset.clone())),
        View::Slice { dim, start, step, length } => {
            let mut out = sizes.to_vec();
            out[*dim as usize] = length.clone();
            (CoreOp::Slice(id, *dim, start.clone(), *step), out)
        }
        View::Sums { sizes, sums } => (CoreOp::Sums(id, sums.clone()), sizes.clone()),
    };
    let view = node(op, sizes);
    let (strides, offset) = strides_through_view(&view, &operand, strides, offset)?;
    Some((view.sizes, strides, offset))
}

/// Whether two elements may lie at the same place. With symbolic sizes only row-major tensors are known to be free of it.
pub fn has_overlap(sizes: &[Dim], strides: &[Dim]) -> bool {
    let known = |dims: &[Dim]| dims.iter().map(Dim::as_const).collect::<Option<Vec<i64>>>();
    let (Some(sizes_known), Some(strides_known)) = (known(sizes), known(strides)) else {
        return strides != contiguous_strides(sizes);
    };
    let mut steps: Vec<(i64, i64)> = strides_known.into_iter().zip(sizes_known).filter(|(_, size)| *size > 1).collect();
    steps.sort_unstable();
    let mut reach = 0;
    steps.into_iter().any(|(stride, size)| {
        let overlaps = stride <= reach;
        reach += stride * (size - 1);
        overlaps
    })
}

/// Whether a new value of an input of these sizes copies much where these elements of it are written.
pub fn copies_much(input: &[Dim], written: &[Dim]) -> bool {
    const MOST: i64 = 1 << 16;
    let count = |sizes: &[Dim]| sizes.iter().map(Dim::as_const).try_fold(1_i64, |all, size| all.checked_mul(size?));
    matches!((count(input), count(written)), (Some(all), Some(some)) if all - some > MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_is_found() {
        let overlaps = |sizes: &[i64], strides: &[i64]| {
            let dims = |values: &[i64]| values.iter().map(|v| Dim::Const(*v)).collect::<Vec<_>>();
            has_overlap(&dims(sizes), &dims(strides))
        };
        assert!(!overlaps(&[2, 3], &[3, 1]));
        assert!(!overlaps(&[3, 2], &[1, 3]));
        assert!(!overlaps(&[2, 1, 3], &[100, 0, 2]));
        assert!(!overlaps(&[], &[]));
        assert!(overlaps(&[8], &[0]));
        assert!(overlaps(&[4, 4], &[2, 1]));
        assert!(!overlaps(&[0, 4], &[0, 1]));
    }
}
