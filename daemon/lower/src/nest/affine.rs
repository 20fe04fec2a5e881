//! Index arithmetic: how an element of a value is found from loop counters, through view ops, in memory.
//! What gets memory and which loops exist is decided elsewhere.

use flambeau_core::graph::{CoreNode, CoreOp};
use flambeau_ir::dim::{Atom, Dim};
use flambeau_ir::tensor::contiguous_strides;

/// `offset + sum(coefficient * loop)`; terms sorted by loop, none zero.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Affine {
    /// Constant part.
    pub offset: Dim,
    /// Loop number and coefficient.
    pub terms: Vec<(usize, Dim)>,
}

/// Why indices could not be carried through a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// It works once this loop is split in two, the inner one with this extent.
    Split(usize, Dim),
    /// The operand needs memory of its own.
    Opaque,
}

impl Affine {
    /// The constant zero.
    pub fn zero() -> Affine {
        Affine { offset: Dim::Const(0), terms: vec![] }
    }

    /// One loop counter.
    pub fn of_loop(id: usize) -> Affine {
        Affine { offset: Dim::Const(0), terms: vec![(id, Dim::Const(1))] }
    }

    /// The loop's coefficient.
    pub fn coefficient(&self, id: usize) -> Dim {
        self.terms.iter().find(|(l, _)| *l == id).map_or(Dim::Const(0), |(_, c)| c.clone())
    }

    /// Least and greatest value while every loop runs from zero to its extent. `None` where the sign of a coefficient is
    /// not known.
    pub fn range(&self, extents: &[Dim]) -> Option<(Dim, Dim)> {
        let (mut least, mut most) = (self.offset.clone(), self.offset.clone());
        for (id, coefficient) in &self.terms {
            let last = coefficient.mul(&extents[*id].sub(&Dim::Const(1)));
            let end = if is_size(coefficient)? { &mut most } else { &mut least };
            *end = end.add(&last);
        }
        Some((least, most))
    }

    /// Adds `coefficient * loop`.
    pub fn add_term(&mut self, id: usize, coefficient: &Dim) {
        match self.terms.binary_search_by_key(&id, |(l, _)| *l) {
            Ok(at) => {
                self.terms[at].1 = self.terms[at].1.add(coefficient);
                if self.terms[at].1.is(0) {
                    self.terms.remove(at);
                }
            }
            Err(at) if !coefficient.is(0) => self.terms.insert(at, (id, coefficient.clone())),
            Err(_) => {}
        }
    }

    /// `self + factor * other`.
    #[must_use]
    pub fn add_scaled(&self, other: &Affine, factor: &Dim) -> Affine {
        let mut sum = self.clone();
        sum.offset = sum.offset.add(&other.offset.mul(factor));
        for (id, c) in &other.terms {
            sum.add_term(*id, &c.mul(factor));
        }
        sum
    }

    /// Adds a constant.
    #[must_use]
    pub fn shifted(&self, by: &Dim) -> Affine {
        Affine { offset: self.offset.add(by), terms: self.terms.clone() }
    }

    /// Loop `id` becomes `inner * loop id + loop id+1`; later loops move up by one.
    #[must_use]
    pub fn split(&self, id: usize, inner: &Dim) -> Affine {
        let mut out = Affine { offset: self.offset.clone(), terms: vec![] };
        for (l, c) in &self.terms {
            if *l == id {
                out.add_term(id, &c.mul(inner));
                out.add_term(id + 1, c);
            } else {
                out.add_term(if *l > id { l + 1 } else { *l }, c);
            }
        }
        out
    }

    /// `sum(index[d] * strides[d])`.
    pub fn dot(index: &[Affine], strides: &[Dim]) -> Affine {
        index.iter().zip(strides).fold(Affine::zero(), |sum, (i, s)| sum.add_scaled(i, s))
    }
}

/// `a / b` if it leaves no remainder.
pub fn exact_div(a: &Dim, b: &Dim) -> Option<Dim> {
    if b.is(0) {
        return None;
    }
    let q = a.floor_div(b);
    (q.mul(b) == *a).then_some(q)
}

/// Whether a coefficient counts upwards: a constant that is not negative, or sums of products of symbolic sizes.
fn is_size(coefficient: &Dim) -> Option<bool> {
    match coefficient {
        Dim::Const(c) => Some(*c >= 0),
        Dim::Expr(poly) => {
            let sizes = poly.terms().all(|(atoms, c)| c > 0 && atoms.iter().all(|a| matches!(a, Atom::Sym(_))));
            sizes.then_some(true)
        }
    }
}

/// `a >= b` where it can be told.
pub fn at_least(a: &Dim, b: &Dim) -> bool {
    a.sub(b).as_const().is_some_and(|d| d >= 0)
}

/// Index into a view's operand from the index into the view.
pub fn through_view(
    view: &CoreNode,
    operand: &CoreNode,
    index: &[Affine],
    extents: &[Dim],
) -> Result<Vec<Affine>, Obstacle> {
    match &view.op {
        CoreOp::Expand(_) => {
            let pick = |(d, i): (usize, &Affine)| if operand.sizes[d].is(1) { Affine::zero() } else { i.clone() };
            Ok(index.iter().enumerate().map(pick).collect())
        }
        CoreOp::Permute(_, order) => {
            let mut inner = vec![Affine::zero(); index.len()];
            order.iter().zip(index).for_each(|(d, i)| inner[*d as usize] = i.clone());
            Ok(inner)
        }
        CoreOp::Slice(_, dim, start, step) => {
            let mut inner = index.to_vec();
            let at = &mut inner[*dim as usize];
            let from_start = Affine { offset: start.clone(), terms: vec![] };
            *at = from_start.add_scaled(at, &Dim::Const(*step));
            Ok(inner)
        }
        CoreOp::Sums(_, sums) => {
            Ok(sums.iter().map(|sum| Affine::dot(index, &sum.factors).shifted(&sum.start)).collect())
        }
        CoreOp::Reshape(_) => through_reshape(&view.sizes, &operand.sizes, index, extents),
        _ => Err(Obstacle::Opaque),
    }
}

fn through_reshape(outer: &[Dim], inner: &[Dim], index: &[Affine], extents: &[Dim]) -> Result<Vec<Affine>, Obstacle> {
    let linear = Affine::dot(index, &contiguous_strides(outer));
    let strides = contiguous_strides(inner);
    let digits: Vec<usize> = (0..inner.len()).filter(|d| !inner[*d].is(1)).collect();
    let mut out = vec![Affine::zero(); inner.len()];
    if digits.is_empty() {
        return Ok(out);
    }
    let mut rest = linear.offset.clone();
    for &d in &digits {
        let (q, r) = match (rest.as_const(), strides[d].as_const()) {
            (Some(o), Some(s)) if s > 0 => (Dim::Const(o.div_euclid(s)), Dim::Const(o.rem_euclid(s))),
            _ => exact_div(&rest, &strides[d]).map_or((Dim::Const(0), rest.clone()), |q| (q, Dim::Const(0))),
        };
        out[d].offset = q;
        rest = r;
    }
    if !rest.is(0) {
        return Err(Obstacle::Opaque);
    }
    for (id, c) in &linear.terms {
        let home = digits.iter().find_map(|&d| exact_div(c, &strides[d]).map(|q| (d, q)));
        let Some((d, q)) = home else { return Err(Obstacle::Opaque) };
        out[d].add_term(*id, &q);
    }
    for pair in digits.windows(2).rev() {
        let d = pair[1];
        let inside = out[d].range(extents).is_some_and(|(least, most)| {
            at_least(&least, &Dim::Const(0)) && at_least(&inner[d].sub(&Dim::Const(1)), &most)
        });
        if !inside {
            return Err(split_at(&out[d], &inner[d], extents));
        }
    }
    Ok(out)
}

/// The loop that crosses a digit of `size`, and where to cut it.
fn split_at(digit: &Affine, size: &Dim, extents: &[Dim]) -> Obstacle {
    for (id, c) in &digit.terms {
        if is_size(c) != Some(true) {
            continue;
        }
        let Some(inner) = exact_div(size, c) else { continue };
        if !inner.is(1) && inner != extents[*id] && exact_div(&extents[*id], &inner).is_some() {
            return Obstacle::Split(*id, inner);
        }
    }
    Obstacle::Opaque
}

/// Strides and offset of a view over memory with `strides` and `offset`; `None` where torch would copy.
pub fn strides_through_view(
    view: &CoreNode,
    operand: &CoreNode,
    strides: &[Dim],
    offset: &Dim,
) -> Option<(Vec<Dim>, Dim)> {
    match &view.op {
        CoreOp::Expand(_) => {
            let pick = |(d, s): (usize, &Dim)| {
                if operand.sizes[d].is(1) && !view.sizes[d].is(1) { Dim::Const(0) } else { s.clone() }
            };
            Some((strides.iter().enumerate().map(pick).collect(), offset.clone()))
        }
        CoreOp::Permute(_, order) => {
            Some((order.iter().map(|d| strides[*d as usize].clone()).collect(), offset.clone()))
        }
        CoreOp::Slice(_, dim, start, step) => {
            let mut out = strides.to_vec();
            let stride = &mut out[*dim as usize];
            let offset = offset.add(&start.mul(stride));
            *stride = stride.mul(&Dim::Const(*step));
            (*step > 0).then_some((out, offset))
        }
        CoreOp::Sums(_, sums) => {
            let along = |d: usize| {
                sums.iter().zip(strides).fold(Dim::Const(0), |sum, (of, stride)| sum.add(&of.factors[d].mul(stride)))
            };
            let start =
                sums.iter().zip(strides).fold(offset.clone(), |sum, (of, stride)| sum.add(&of.start.mul(stride)));
            Some(((0..view.sizes.len()).map(along).collect(), start))
        }
        CoreOp::Reshape(_) => Some((reshaped_strides(&operand.sizes, strides, &view.sizes)?, offset.clone())),
        _ => None,
    }
}

/// Strides of the same memory under other sizes, of which there are as many elements, by the rule of
/// `at::detail::computeStride`.
pub fn reshaped_strides(old: &[Dim], strides: &[Dim], new: &[Dim]) -> Option<Vec<Dim>> {
    if old == new {
        return Some(strides.to_vec());
    }
    if old.iter().any(|d| d.is(0)) {
        return Some(contiguous_strides(new));
    }
    if old.is_empty() {
        return new.iter().all(|d| d.is(1)).then(|| vec![Dim::Const(1); new.len()]);
    }
    let mut out = vec![Dim::Const(1); new.len()];
    let mut at = new.len();
    let mut base = strides[old.len() - 1].clone();
    let (mut have, mut want) = (Dim::Const(1), Dim::Const(1));
    for d in (0..old.len()).rev() {
        have = have.mul(&old[d]);
        let ends = d == 0 || (!old[d - 1].is(1) && strides[d - 1] != have.mul(&base));
        if !ends {
            continue;
        }
        // What is left are as many elements on both sides, which symbols alone may not tell.
        while at > 0 && (d == 0 || want != have || new[at - 1].is(1)) {
            at -= 1;
            out[at] = want.mul(&base);
            want = want.mul(&new[at]);
        }
        if d > 0 {
            if want != have {
                return None;
            }
            base = strides[d - 1].clone();
            (have, want) = (Dim::Const(1), Dim::Const(1));
        }
    }
    (at == 0).then_some(out)
}

/// True if the strides address the same elements; strides of dimensions of size 1 do not matter.
pub fn same_layout(sizes: &[Dim], a: &[Dim], b: &[Dim]) -> bool {
    sizes.iter().any(|s| s.is(0)) || sizes.iter().zip(a.iter().zip(b)).all(|(n, (x, y))| n.is(1) || x == y)
}
