//! Writes: what a tensor's memory holds after a part of it got a new value.

use crate::graph::functional::Lowering;
use crate::graph::opaque::{in_place, made_by};
use crate::graph::regions::{copies_much, has_overlap, places};
use crate::graph::value::{Base, Value};
use crate::nest::group::memory_view;
use flambeau_core::graph::{Core, CoreId, CoreNode, CoreOp, ExternArg, ExternCall, IndexSum};
use flambeau_ir::code::Const;
use flambeau_ir::dim::Dim;
use flambeau_ir::graph::{Arg, NodeId, Target};
use flambeau_ir::kernel::{Binary, DType};
use flambeau_ir::reason::Reason;
use flambeau_ir::tensor::contiguous_strides;
use flambeau_ops::decompose::{View, apply, index_put, refuse};
use std::collections::{BTreeMap, BTreeSet};

/// What is written to a part of an input.
enum Written {
    Value(CoreId),
    /// What this call, which is given the part first, writes to it.
    By(ExternCall),
}

/// The tensor that a call writes its result to.
pub fn written(
    target: &Target,
    args: &[Arg],
    kwargs: &[(std::sync::Arc<str>, Arg)],
    values: &BTreeMap<NodeId, CoreId>,
) -> Result<Option<NodeId>, Reason> {
    let (Target::Function(name) | Target::Method(name)) = target;
    match kwargs.iter().find(|(n, _)| &**n == "out").map(|(_, value)| value) {
        Some(Arg::Node(id)) => return Ok(Some(*id)),
        None | Some(Arg::Const(Const::None)) => {}
        Some(_) => return refuse(format!("{name} with several out tensors")),
    }
    Ok(match args.first() {
        Some(Arg::Node(id)) if flambeau_ops::writes_first(target) && values.contains_key(id) => Some(*id),
        _ => None,
    })
}

impl Lowering<'_> {
    /// The tensor `of` gets a new value; so do all that share its memory.
    pub fn write(&mut self, of: NodeId, value: CoreId) -> Result<(), Reason> {
        let Value::Tensor { base, views, meta, .. } = self.values[of.0 as usize].clone() else {
            return refuse("a write to no tensor");
        };
        self.store(of, (base, &views), value, (meta.dtype, &meta.sizes))
    }

    /// The part of a base that `views` show gets a new value, by the tensor `of`.
    pub fn store(
        &mut self,
        of: NodeId,
        (base, views): (usize, &[View]),
        value: CoreId,
        (dtype, sizes): (DType, &[Dim]),
    ) -> Result<(), Reason> {
        if !self.bases[base].shares.is_empty() || self.bases.iter().any(|other| other.shares.contains(&base)) {
            return refuse("a write to what may share memory with another tensor");
        }
        let counts = !self.uncounted.contains(&of);
        if !counts && self.options.own_memory && self.bases[base].input.is_some() {
            return refuse("a write that counts as no change of its tensor");
        }
        self.bases[base].counted |= counts;
        let value = self.converted(value, dtype);
        let value = self.grown(value, sizes)?;
        let unseen = matches!(self.values[of.0 as usize], Value::Tensor { severed: true, .. });
        let keeps = self.check_written(base, value, unseen)?;
        if self.bases[base].input.is_some() && self.written_in_place(base, views, value, sizes)? {
            return Ok(());
        }
        let mut stages = vec![self.bases[base].value];
        for view in views {
            let next = apply(&mut self.core, stages[stages.len() - 1], view);
            stages.push(next);
        }
        let mut value = value;
        for (view, before) in views.iter().zip(&stages).rev() {
            value = self.unview(view, *before, value)?;
        }
        let strides = self.bases[base].strides.clone();
        value = self.laid_out(value, &strides);
        if let Some(before) = keeps {
            let op = self.sloped(value, before);
            value = self.core.add(CoreNode { op, ..self.core.node(value).clone() });
        }
        self.bases[base].value = value;
        Ok(())
    }

    /// Writes to the part of an input that `views` show, where it lies: true if that is done. Else the input gets a new value
    /// as a whole.
    fn written_in_place(&mut self, base: usize, views: &[View], value: CoreId, sizes: &[Dim]) -> Result<bool, Reason> {
        let whole = self.core.node(self.bases[base].value).clone();
        let shown = self.read(base, views);
        let call = made_by(&self.core, shown, value);
        let copies_much = copies_much(&whole.sizes, if call.is_some() { &[] } else { sizes });
        let written = match call.map(in_place) {
            Some(Some(call)) => Some(Written::By(call)),
            None if Dim::product(&whole.sizes) != Dim::product(sizes) => Some(Written::Value(value)),
            _ => None,
        };
        let places = places(views, &whole.sizes, &self.bases[base].strides);
        if let (true, Some(written), Some(places)) = (self.in_place, written, places) {
            if self.bases[base].value != self.bases[base].memory {
                let all = IndexSum { start: Dim::Const(0), factors: self.bases[base].strides.clone() };
                self.change(base, &[], all, Written::Value(self.bases[base].value));
            }
            self.change(base, views, places, written);
            return Ok(true);
        }
        if copies_much {
            return refuse("a write to a part of a large input");
        }
        Ok(false)
    }

    /// Adds what an input's memory is after a write to it.
    fn change(&mut self, base: usize, views: &[View], places: IndexSum, written: Written) {
        let before = self.bases[base].memory;
        let node = self.core.node(before).clone();
        // Values that lie there and are used later are copied before.
        let lies_there = |core: &Core, id: CoreId| memory_view(core, &BTreeSet::new(), id).base == before;
        for other in 0..self.bases.len() {
            let Base { value, strides, .. } = self.bases[other].clone();
            if other != base && lies_there(&self.core, value) {
                let node = self.core.node(value).clone();
                self.bases[other].value = self.core.add(CoreNode { op: CoreOp::Copy(value), strides, ..node });
            }
        }
        let apart = |core: &mut Core, id: &mut CoreId| {
            if lies_there(core, *id) {
                let CoreNode { dtype, sizes, .. } = core.node(*id).clone();
                *id = core.push(CoreOp::Copy(*id), dtype, sizes);
            }
        };
        let op = match written {
            Written::By(mut call) => {
                call.args[1..].iter_mut().for_each(|arg| arg.values_mut(&mut |id| apart(&mut self.core, id)));
                let shown = views.iter().fold(before, |id, view| apply(&mut self.core, id, view));
                call.args[0] = ExternArg::Value(shown);
                CoreOp::Changed(before, self.core.push(CoreOp::Extern(call.into()), DType::F32, vec![]))
            }
            Written::Value(mut value) => {
                apart(&mut self.core, &mut value);
                CoreOp::Stored(before, value, places)
            }
        };
        let after = self.core.add(CoreNode { op, ..node });
        (self.bases[base].memory, self.bases[base].value) = (after, after);
    }

    fn grown(&mut self, id: CoreId, sizes: &[Dim]) -> Result<CoreId, Reason> {
        let node = self.core.node(id);
        if node.sizes == sizes {
            return Ok(id);
        }
        if node.sizes.len() > sizes.len() {
            return refuse("a write of a larger value");
        }
        let mut padded = vec![Dim::Const(1); sizes.len() - node.sizes.len()];
        padded.extend(node.sizes.iter().cloned());
        if padded.iter().zip(sizes).any(|(a, b)| a != b && !a.is(1)) {
            return refuse("a write of a value of other sizes");
        }
        let id = apply(&mut self.core, id, &View::Reshape(padded));
        Ok(apply(&mut self.core, id, &View::Expand(sizes.to_vec())))
    }

    /// The value of `whole` after its view was given `value`.
    fn unview(&mut self, view: &View, whole: CoreId, value: CoreId) -> Result<CoreId, Reason> {
        let sizes = self.core.node(whole).sizes.clone();
        match view {
            View::Reshape(_) => Ok(apply(&mut self.core, value, &View::Reshape(sizes))),
            View::Permute(order) => {
                let mut back = vec![0; order.len()];
                order.iter().enumerate().for_each(|(d, o)| back[*o as usize] = d as u32);
                Ok(apply(&mut self.core, value, &View::Permute(back)))
            }
            View::Slice { dim, start, step: 1, length } => {
                let end = start.add(length);
                let rest = sizes[*dim as usize].sub(&end);
                let part = |start: Dim, length: Dim| View::Slice { dim: *dim, start, step: 1, length };
                let mut parts = Vec::new();
                if !start.is(0) {
                    parts.push(apply(&mut self.core, whole, &part(Dim::Const(0), start.clone())));
                }
                parts.push(value);
                if !rest.is(0) {
                    parts.push(apply(&mut self.core, whole, &part(end, rest)));
                }
                if parts.len() == 1 {
                    return Ok(parts[0]);
                }
                let node = self.core.node(whole).clone();
                let op = CoreOp::Join(parts, *dim);
                Ok(self.core.push(op, node.dtype, node.sizes))
            }
            View::Expand(to) if *to == sizes => Ok(value),
            View::Slice { dim, start, step, .. } if *step > 0 => {
                let shown = self.core.node(value).sizes.clone();
                let along = |d: usize| {
                    let mut factors = vec![Dim::Const(0); sizes.len()];
                    let taken = d == *dim as usize;
                    factors[d] = Dim::Const(if taken { *step } else { 1 });
                    IndexSum { start: if taken { start.clone() } else { Dim::Const(0) }, factors }
                };
                let sums: Vec<_> = (0..sizes.len()).map(along).collect();
                self.scattered(whole, (&shown, &sums, true), value)
            }
            View::Sums { sizes: shown, sums } => self.scattered(whole, (shown, sums, false), value),
            View::Slice { .. } | View::Expand(_) => refuse("a write through a view that repeats elements"),
        }
    }

    /// The value of `whole` after what a view by sums shows, of sizes `shown`, was given `value`. `distinct`:
    /// it shows no element twice.
    fn scattered(
        &mut self,
        whole: CoreId,
        (shown, sums, distinct): (&[Dim], &[IndexSum], bool),
        value: CoreId,
    ) -> Result<CoreId, Reason> {
        let sizes = self.core.node(whole).sizes.clone();
        let steps = contiguous_strides(&sizes);
        // Where elements lie in row-major memory.
        let mut start = Dim::Const(0);
        let mut factors = vec![Dim::Const(0); shown.len()];
        for (sum, step) in sums.iter().zip(&steps) {
            start = start.add(&sum.start.mul(step));
            for (total, factor) in factors.iter_mut().zip(&sum.factors) {
                *total = total.add(&factor.mul(step));
            }
        }
        if !distinct && has_overlap(shown, &factors) {
            return refuse("a write through a view whose elements share memory");
        }
        let number = |dim: Dim| dim.as_const().map_or(CoreOp::Scalar(dim), |n| CoreOp::Const(n as u64));
        let mut at = self.index(number(start), shown);
        for (d, factor) in factors.into_iter().enumerate() {
            let along = self.index(CoreOp::Iota(d as u32), shown);
            let factor = self.index(number(factor), shown);
            let offset = self.index(CoreOp::Binary(Binary::Mul, along, factor), shown);
            at = self.index(CoreOp::Binary(Binary::Add, at, offset), shown);
        }
        let flat = |core: &mut Core, id: CoreId| {
            let count = core.node(id).sizes.iter().fold(Dim::Const(1), |count, size| count.mul(size));
            apply(core, id, &View::Reshape(vec![count]))
        };
        let (row, at, value) = (flat(&mut self.core, whole), flat(&mut self.core, at), flat(&mut self.core, value));
        let stored = index_put(&mut self.core, row, vec![ExternArg::Value(at)], value);
        Ok(apply(&mut self.core, stored, &View::Reshape(sizes)))
    }

    fn index(&mut self, op: CoreOp, sizes: &[Dim]) -> CoreId {
        self.core.push(op, DType::I64, sizes.to_vec())
    }
}
