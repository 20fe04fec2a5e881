//! Core values from core values: what decompositions and derivatives are written with.

use crate::decompose::{View, apply, bits_of, compute_type};
use flambeau_core::graph::{Core, CoreId, CoreOp};
use flambeau_ir::code::Const;
use flambeau_ir::dim::Dim;
use flambeau_ir::kernel::{Binary, DType, ReduceOp, Unary};

/// Adds values to a core graph.
pub trait Build {
    /// The graph.
    fn core(&self) -> &Core;

    /// The graph, which grows.
    fn core_mut(&mut self) -> &mut Core;

    /// Sizes of a value.
    fn sizes(&self, id: CoreId) -> Vec<Dim> {
        self.core().node(id).sizes.clone()
    }

    /// Type of a value.
    fn dtype(&self, id: CoreId) -> DType {
        self.core().node(id).dtype
    }

    /// A float constant with no dimensions.
    fn real(&mut self, x: f64, dtype: DType) -> CoreId {
        let bits = bits_of(&Const::Float(x), dtype).unwrap_or_default();
        self.core_mut().push(CoreOp::Const(bits), dtype, vec![])
    }

    /// A symbolic int with no dimensions.
    fn scalar(&mut self, dim: &Dim, dtype: DType) -> CoreId {
        if let Dim::Const(c) = dim
            && let Some(bits) = bits_of(&Const::Int(*c), dtype)
        {
            return self.core_mut().push(CoreOp::Const(bits), dtype, vec![]);
        }
        let id = self.core_mut().push(CoreOp::Scalar(dim.clone()), DType::I64, vec![]);
        self.cast(id, dtype)
    }

    /// Conversion; none if the type is the same.
    fn cast(&mut self, id: CoreId, dtype: DType) -> CoreId {
        let node = self.core().node(id);
        if node.dtype == dtype {
            return id;
        }
        let sizes = node.sizes.clone();
        self.core_mut().push(CoreOp::Cast(id), dtype, sizes)
    }

    /// The value repeated to these sizes, dimensions aligned at the end.
    fn expand(&mut self, id: CoreId, sizes: &[Dim]) -> CoreId {
        let node = self.core().node(id);
        if node.sizes == sizes {
            return id;
        }
        let dtype = node.dtype;
        if let op @ (CoreOp::Const(_) | CoreOp::Scalar(_)) = &node.op {
            let op = op.clone();
            return self.core_mut().push(op, dtype, sizes.to_vec());
        }
        let mut padded = vec![Dim::Const(1); sizes.len().saturating_sub(node.sizes.len())];
        padded.extend(node.sizes.iter().cloned());
        let id = self.reshape(id, padded);
        if self.core().node(id).sizes == sizes {
            return id;
        }
        self.core_mut().push(CoreOp::Expand(id), dtype, sizes.to_vec())
    }

    /// The common sizes of two shapes. Sizes that differ and are not 1 are taken to agree, as the shape rules checked.
    fn common(&self, a: &[Dim], b: &[Dim]) -> Vec<Dim> {
        let rank = a.len().max(b.len());
        let at = |s: &[Dim], d: usize| (d + s.len()).checked_sub(rank).map_or(Dim::Const(1), |i| s[i].clone());
        (0..rank).map(|d| if at(a, d).is(1) { at(b, d) } else { at(a, d) }).collect()
    }

    /// The value in the type in which it is computed with.
    fn widened(&mut self, id: CoreId) -> CoreId {
        self.cast(id, compute_type(self.dtype(id)))
    }

    /// One operand. Halves are computed with as float32, and rounded.
    fn unary(&mut self, op: Unary, a: CoreId) -> CoreId {
        let (of, a) = (self.dtype(a), self.widened(a));
        let node = self.core().node(a);
        let dtype = if matches!(op, Unary::IsNan | Unary::IsInf | Unary::Not) { DType::Bool } else { node.dtype };
        let sizes = node.sizes.clone();
        let made = self.core_mut().push(CoreOp::Unary(op, a), dtype, sizes);
        if dtype == DType::Bool { made } else { self.cast(made, of) }
    }

    /// Two operands of one type, broadcast. Halves are computed with as float32, and rounded.
    fn binary(&mut self, op: Binary, a: CoreId, b: CoreId) -> CoreId {
        let (of, a, b) = (self.dtype(a), self.widened(a), self.widened(b));
        let sizes = self.common(&self.sizes(a), &self.sizes(b));
        let (a, b) = (self.expand(a, &sizes), self.expand(b, &sizes));
        let compares = matches!(op, Binary::Eq | Binary::Ne | Binary::Lt | Binary::Le | Binary::Gt | Binary::Ge);
        let dtype = if compares { DType::Bool } else { self.dtype(a) };
        let made = self.core_mut().push(CoreOp::Binary(op, a, b), dtype, sizes);
        if compares { made } else { self.cast(made, of) }
    }

    /// `a + b`
    fn add(&mut self, a: CoreId, b: CoreId) -> CoreId {
        self.binary(Binary::Add, a, b)
    }

    /// `a - b`
    fn sub(&mut self, a: CoreId, b: CoreId) -> CoreId {
        self.binary(Binary::Sub, a, b)
    }

    /// `a * b`
    fn mul(&mut self, a: CoreId, b: CoreId) -> CoreId {
        self.binary(Binary::Mul, a, b)
    }

    /// `a / b`
    fn div(&mut self, a: CoreId, b: CoreId) -> CoreId {
        self.binary(Binary::Div, a, b)
    }

    /// `a * x`
    fn scale(&mut self, a: CoreId, x: f64) -> CoreId {
        let (of, a) = (self.dtype(a), self.widened(a));
        let x = self.real(x, self.dtype(a));
        let made = self.mul(a, x);
        self.cast(made, of)
    }

    /// `a + x`
    fn offset(&mut self, a: CoreId, x: f64) -> CoreId {
        let (of, a) = (self.dtype(a), self.widened(a));
        let x = self.real(x, self.dtype(a));
        let made = self.add(a, x);
        self.cast(made, of)
    }

    /// `cond ? a : b`, broadcast.
    fn select(&mut self, cond: CoreId, a: CoreId, b: CoreId) -> CoreId {
        let sizes = self.common(&self.common(&self.sizes(a), &self.sizes(b)), &self.sizes(cond));
        let (cond, a, b) = (self.expand(cond, &sizes), self.expand(a, &sizes), self.expand(b, &sizes));
        let dtype = self.dtype(a);
        self.core_mut().push(CoreOp::Select(cond, a, b), dtype, sizes)
    }

    /// Reduction over dimensions, which stay with size 1. Halves are computed with as float32, and rounded.
    fn reduce(&mut self, op: ReduceOp, a: CoreId, dims: &[usize]) -> CoreId {
        let mut sizes = self.sizes(a);
        let mut over: Vec<u32> = dims.iter().map(|d| *d as u32).filter(|d| !sizes[*d as usize].is(1)).collect();
        over.sort_unstable();
        over.dedup();
        if over.is_empty() {
            return a;
        }
        over.iter().for_each(|d| sizes[*d as usize] = Dim::Const(1));
        let (of, a) = (self.dtype(a), self.widened(a));
        let dtype = self.dtype(a);
        let made = self.core_mut().push(CoreOp::Reduce(op, a, over), dtype, sizes);
        self.cast(made, of)
    }

    /// The same elements under other sizes.
    fn reshape(&mut self, a: CoreId, sizes: Vec<Dim>) -> CoreId {
        apply(self.core_mut(), a, &View::Reshape(sizes))
    }

    /// Dimensions in another order.
    fn permute(&mut self, a: CoreId, order: &[usize]) -> CoreId {
        apply(self.core_mut(), a, &View::Permute(order.iter().map(|d| *d as u32).collect()))
    }

    /// Part of a dimension.
    fn slice(&mut self, a: CoreId, dim: usize, start: Dim, step: i64, length: Dim) -> CoreId {
        apply(self.core_mut(), a, &View::Slice { dim: dim as u32, start, step, length })
    }
}
