//! Which parts of a tensor views show, by the subscripts that made them.

use crate::state::tracer::Tracer;
use crate::torch::target_name;
use crate::value::flow::{Flow, stop};
use crate::value::{Args, TensorId, Value};
use flambeau_ir::code::Const;
use flambeau_ir::dim::Dim;
use flambeau_ir::graph::{Arg, NodeOp, Target};
use flambeau_ir::reason::ReasonCode;
use flambeau_ir::tensor::TensorMeta;

/// Which elements of a dimension are shown: `start`, `start + step`, ..., up to `last` or less.
#[derive(Clone)]
struct Range {
    start: Dim,
    step: i64,
    last: Option<Dim>,
}

impl Range {
    const ALL: Range = Range { start: Dim::Const(0), step: 1, last: None };

    fn is_apart_from(&self, other: &Range) -> bool {
        let before = |a: &Range, b: &Range| {
            a.last.as_ref().is_some_and(|last| b.start.sub(last).as_const().is_some_and(|beyond| beyond > 0))
        };
        let between = self.start.sub(&other.start).as_const().is_some_and(|by| by % gcd(self.step, other.step) != 0);
        between || before(self, other) || before(other, self)
    }

    /// The part that a slice shows of a dimension, of which it is the range so far.
    fn slice(&mut self, slice: &Arg, size: &Dim) -> Option<()> {
        let part = |i: usize| match slice {
            Arg::Slice(parts) => match &parts[i] {
                Arg::Const(c) => Some(c.clone()),
                _ => None,
            },
            Arg::Const(Const::Slice(parts)) => Some(parts[i].clone()),
            _ => None,
        };
        let fixed = size.as_const();
        let bound = |c: Const, missing: Dim| match c {
            Const::None => Some(missing),
            Const::Int(at) if at < 0 => {
                Some(fixed.map_or_else(|| size.add(&Dim::Const(at)), |size| Dim::Const((at + size).max(0))))
            }
            Const::Int(at) => Some(Dim::Const(fixed.map_or(at, |size| at.min(size)))),
            _ => None,
        };
        let (start, stop) = (bound(part(0)?, Dim::Const(0))?, bound(part(1)?, size.clone())?);
        let step = match part(2)? {
            Const::None => 1,
            Const::Int(step) if step > 0 => step,
            _ => return None,
        };
        if step > 1 && start.as_const().is_none() {
            // It is 0 where there are fewer elements: which are between is not known.
            return None;
        }
        // Nothing is shown where that is before the start.
        let last = match (start.as_const(), stop.as_const()) {
            (Some(start), Some(stop)) if stop > start => Dim::Const(start + (stop - 1 - start) / step * step),
            _ => stop.sub(&Dim::Const(1)),
        };
        let place = |at: &Dim| self.start.add(&at.mul(&Dim::Const(self.step)));
        *self = Range { start: place(&start), step: step * self.step, last: Some(place(&last)) };
        Some(())
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// What a view shows of the tensor that it is a view of: a range of each dimension, and where the view's own dimensions
/// are among them.
struct Shown {
    ranges: Vec<Range>,
    dims: Vec<usize>,
}

impl Tracer<'_> {
    /// The instruction that made the tensor, or what it is a view of, the part of its base that a tensor chooses.
    pub(crate) fn chosen(&self, id: TensorId) -> Option<usize> {
        let tensor = &self.arenas.tensors[id];
        tensor.chosen.or_else(|| self.chosen(tensor.base?))
    }

    /// Notes that a tensor is the part of its base that another one chooses.
    pub(super) fn note_chosen(&mut self, made: &Value) {
        if let Value::Tensor(id) = made {
            self.arenas.tensors[*id].chosen = Some(self.stack.last().map_or(0, |frame| frame.executed));
        }
    }

    /// Breaks at a call that may give views of its arguments, where nothing says where in memory these lie.
    pub(super) fn need_known_places(&mut self, target: &Target, args: &Args) -> Flow<()> {
        let is_chosen = |value: &Value| matches!(value, Value::Tensor(id) if self.chosen(*id).is_some());
        if args.values().any(is_chosen) {
            let name = target_name(target);
            return stop(ReasonCode::DataDependentValue, format!("{name} of a part that a tensor chooses"));
        }
        Ok(())
    }

    /// Whether a tensor chose a part of what shares this one's memory.
    pub(super) fn shows_chosen(&self, of: TensorId) -> bool {
        self.arenas.tensors.iter().any(|(id, tensor)| tensor.chosen.is_some() && self.share_memory(id, of))
    }

    /// Whether a call with these arguments writes to no element of `into` that `from`, a view of the same tensor, shows.
    pub(super) fn writes_elsewhere(&self, target: &Target, into: TensorId, from: TensorId, args: &[Arg]) -> bool {
        let (Some((root, mut written)), Some((other, read))) = (self.shown(into), self.shown(from)) else {
            return false;
        };
        if let (Target::Function(path), [_, subscript, _]) = (target, args)
            && &**path == "_operator.setitem"
            && written.subscribe(subscript, &self.arenas.tensors[into].meta.sizes).is_none()
        {
            return false;
        }
        root == other && written.ranges.iter().zip(&read.ranges).any(|(a, b)| a.is_apart_from(b))
    }

    /// The tensor that is no view by a subscript, of which this one shows a part, and the part.
    fn shown(&self, view: TensorId) -> Option<(TensorId, Shown)> {
        let tensor = &self.arenas.tensors[view];
        let node = self.graph.nodes.get(tensor.node.0 as usize)?;
        // Some calls give a tensor another shape: subscripts before them meant other dimensions.
        let made = node.meta.as_tensor()?;
        if (&made.sizes, &made.strides) != (&tensor.meta.sizes, &tensor.meta.strides) {
            return None;
        }
        let by_subscript = match (tensor.base, &node.op) {
            (Some(base), NodeOp::Call { target: Target::Function(path), args, .. })
                if &**path == "_operator.getitem"
                    && args.first() == Some(&Arg::Node(self.arenas.tensors[base].node)) =>
            {
                args.get(1).map(|subscript| (base, subscript))
            }
            _ => None,
        };
        let Some((base, subscript)) = by_subscript else {
            let dims = tensor.meta.ndim();
            let whole = || Shown { ranges: vec![Range::ALL; dims], dims: (0..dims).collect() };
            return has_distinct_elements(&tensor.meta).then(|| (view, whole()));
        };
        let (root, mut shown) = self.shown(base)?;
        shown.subscribe(subscript, &self.arenas.tensors[base].meta.sizes)?;
        Some((root, shown))
    }
}

/// Whether no two elements lie at one place, for what can be told of symbolic sizes.
fn has_distinct_elements(meta: &TensorMeta) -> bool {
    let mut left: Vec<(&Dim, &Dim)> = meta.strides.iter().zip(&meta.sizes).filter(|(_, size)| !size.is(1)).collect();
    let fixed: Option<Vec<(i64, i64)>> =
        left.iter().map(|(stride, size)| Some((stride.as_const()?, size.as_const()?))).collect();
    if let Some(mut fixed) = fixed {
        fixed.sort_unstable();
        let mut reach = 0;
        return fixed.iter().all(|(stride, size)| {
            let beyond = *stride > reach;
            reach += (size - 1) * stride;
            beyond
        });
    }
    let mut next = Dim::Const(1);
    while let Some(at) = left.iter().position(|(stride, _)| **stride == next) {
        next = next.mul(left.remove(at).1);
    }
    left.is_empty()
}

impl Shown {
    /// The part of it that a subscript shows; `None` where that is not a range of each dimension.
    fn subscribe(&mut self, subscript: &Arg, sizes: &[Dim]) -> Option<()> {
        let items: Vec<Arg> = match subscript {
            Arg::Tuple(items) => items.clone(),
            Arg::Const(Const::Tuple(items)) => items.iter().cloned().map(Arg::Const).collect(),
            other => vec![other.clone()],
        };
        let is_ellipsis = |item: &Arg| *item == Arg::Const(Const::Ellipsis);
        let taken = items.iter().filter(|item| !is_ellipsis(item)).count();
        let mut dims = Vec::new();
        let mut at = 0;
        for item in &items {
            if is_ellipsis(item) {
                let left = (self.dims.len()).checked_sub(taken)?;
                dims.extend_from_slice(&self.dims[at..at + left]);
                at += left;
                continue;
            }
            let dim = *self.dims.get(at)?;
            let size = sizes.get(at)?;
            let range = &mut self.ranges[dim];
            if let Arg::Const(Const::Int(index)) = item {
                let index = if *index < 0 { size.add(&Dim::Const(*index)) } else { Dim::Const(*index) };
                let chosen = range.start.add(&index.mul(&Dim::Const(range.step)));
                *range = Range { start: chosen.clone(), step: 1, last: Some(chosen) };
            } else {
                range.slice(item, size)?;
                dims.push(dim);
            }
            at += 1;
        }
        dims.extend_from_slice(self.dims.get(at..)?);
        self.dims = dims;
        Some(())
    }
}
