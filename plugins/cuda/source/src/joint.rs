//! Two reductions in one pass over a row, where the kernel has two: a sum with the squares of what the elements are off a mean
//! that follows from it (Welford's), a greatest element with the exponentials of what they are above it (online softmax).
//!
//! The number that elements are compared with is not known in the earlier pass. What is found there gives the result for
//! any number (`result` in `joint.cuh`), so nothing is assumed of how the kernel divides a sum. But infinities and nan come out as
//! from two passes only where the number shows them, and so only these forms of it are taken.

use crate::reduction::{Kind, Reduction};
use flambeau_plugin::kernel::{
    Access, Binary, DType, Extent, Inst, Kernel, Op, Reduce, ReduceOp, Scope, Stage, Unary, ValueId,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A kernel as it is written.
pub struct Joined {
    /// Without the stages that are not needed any more: those are empty ones of outer scope.
    pub kernel: Kernel,
    joints: Vec<Joint>,
}

/// A reduction that is found in an earlier stage.
struct Joint {
    reduction: Reduction,
    /// What elements are compared with.
    from: ValueId,
    /// The stage that finds it.
    found: usize,
    /// The stage that it was in: its value is known there.
    known: usize,
}

impl Joined {
    /// What is `kept` in registers is compared there. No more than `room` numbers are kept for all reductions together.
    pub fn of(kernel: &Kernel, kept: &[Access], room: u64) -> Joined {
        let values = Values::of(kernel);
        let mut joined = Joined { kernel: kernel.clone(), joints: Vec::new() };
        for (known, stage) in kernel.stages.iter().enumerate() {
            if stage.reduces.is_empty() || !stage.stores.is_empty() {
                continue;
            }
            let earlier = |reduce| joined.earlier(&values, known, reduce, kept);
            let Some(joints) = stage.reduces.iter().map(earlier).collect::<Option<Vec<_>>>() else { continue };
            let more: u64 = joints.iter().map(|joint| joint.reduction.numbers() - 1).sum();
            if joined.numbers() + more <= room {
                joined.joints.extend(joints);
                joined.kernel.stages[known] =
                    Stage { scope: Scope::Outer, insts: vec![], stores: vec![], reduces: vec![] };
            }
        }
        joined
    }

    /// What a stage finds.
    pub fn reductions(&self, stage: usize) -> Vec<Reduction> {
        let joint = self.joints.iter().filter(|joint| joint.found == stage).map(|joint| joint.reduction.clone());
        self.kernel.stages[stage].reduces.iter().map(Reduction::plain).chain(joint).collect()
    }

    /// What all stages find.
    pub fn all_reductions(&self) -> Vec<Reduction> {
        (0..self.kernel.stages.len()).flat_map(|stage| self.reductions(stage)).collect()
    }

    /// How many numbers of up to eight bytes it takes to keep all of it.
    pub fn numbers(&self) -> u64 {
        self.all_reductions().iter().map(Reduction::numbers).sum()
    }

    /// What was found before and is known where a stage was, and what elements are compared with.
    pub fn known(&self, stage: usize) -> impl Iterator<Item = (&Reduction, ValueId)> {
        self.joints.iter().filter(move |joint| joint.known == stage).map(|joint| (&joint.reduction, joint.from))
    }

    /// Whether there is any.
    pub fn joins(&self) -> bool {
        !self.joints.is_empty()
    }

    /// A reduction as part of an earlier stage, which reads the same elements.
    fn earlier(&self, values: &Values<'_>, known: usize, reduce: &Reduce, kept: &[Access]) -> Option<Joint> {
        let (kind, op, element, from) = values.distance(reduce)?;
        let fits = |other: &&Reduce| {
            other.op == op && values.same(other.value, element) && values.follows(kind, from, other.id)
        };
        let stages = self.kernel.stages[..known].iter().enumerate();
        let (found, with) =
            stages.flat_map(|(at, stage)| stage.reduces.iter().map(move |r| (at, r))).find(|(_, r)| fits(r))?;
        let reduction = Reduction { id: reduce.id, dtype: reduce.dtype, value: with.value, kind };
        values.reads(&self.kernel, element, kept).then_some(Joint { reduction, from, found, known })
    }
}

/// The values of a kernel.
struct Values<'a> {
    made: BTreeMap<ValueId, &'a Inst>,
    /// Those of elements: they are visible in one stage only.
    of_elements: BTreeSet<ValueId>,
    /// The first of those that are always equal.
    equal: BTreeMap<ValueId, ValueId>,
}

impl<'a> Values<'a> {
    fn of(kernel: &'a Kernel) -> Self {
        let mut values = Values { made: BTreeMap::new(), of_elements: BTreeSet::new(), equal: BTreeMap::new() };
        // What a buffer holds is the same until a stage has written it.
        let mut writes = vec![0; kernel.params.len()];
        let mut first: HashMap<(DType, Op, usize), ValueId> = HashMap::new();
        for stage in &kernel.stages {
            for inst in &stage.insts {
                let mut op = inst.op.clone();
                operands_mut(&mut op).into_iter().for_each(|id| *id = values.first(*id));
                let written = match &op {
                    Op::Load(access) | Op::LoadIf { access, .. } => writes[access.param as usize],
                    _ => 0,
                };
                let equal = *first.entry((inst.dtype, op, written)).or_insert(inst.id);
                values.equal.insert(inst.id, equal);
                values.made.insert(inst.id, inst);
                if stage.scope == Scope::Row {
                    values.of_elements.insert(inst.id);
                }
            }
            stage.stores.iter().for_each(|store| writes[store.access.param as usize] += 1);
        }
        values
    }

    fn first(&self, id: ValueId) -> ValueId {
        self.equal.get(&id).copied().unwrap_or(id)
    }

    fn same(&self, a: ValueId, b: ValueId) -> bool {
        self.first(a) == self.first(b)
    }

    fn op(&self, id: ValueId) -> Option<&'a Op> {
        self.made.get(&id).map(|inst| &inst.op)
    }

    /// A sum of squares of `element - from`, or of exponentials of it, and the reduction that such a number follows from.
    fn distance(&self, reduce: &Reduce) -> Option<(Kind, ReduceOp, ValueId, ValueId)> {
        if reduce.op != ReduceOp::Sum || !matches!(reduce.dtype, DType::F32 | DType::F64) {
            return None;
        }
        let (kind, op, distance) = match self.op(reduce.value)? {
            Op::Binary(Binary::Mul, a, b) if self.same(*a, *b) => (Kind::Spread, ReduceOp::Sum, *a),
            Op::Unary(Unary::Exp, a) => (Kind::Exponentials, ReduceOp::Max, *a),
            _ => return None,
        };
        let Op::Binary(Binary::Sub, element, from) = self.op(distance)? else { return None };
        (!self.of_elements.contains(from)).then_some((kind, op, *element, *from))
    }

    /// Whether a number follows from the result of a reduction so that it is not finite where that is not: it is a
    /// multiple of a sum; or the greatest element, or what stands for that.
    fn follows(&self, kind: Kind, from: ValueId, result: ValueId) -> bool {
        match (kind, self.op(from)) {
            (Kind::Spread, Some(Op::Binary(Binary::Div, a, b))) => *a == result && self.is_number(*b),
            (Kind::Spread, Some(Op::Binary(Binary::Mul, a, b))) => {
                (*a == result && self.is_number(*b)) || (*b == result && self.is_number(*a))
            }
            (Kind::Exponentials, Some(Op::Select(_, a, b))) => *a == result || *b == result,
            (Kind::Exponentials, _) => from == result,
            _ => false,
        }
    }

    /// Whether a value is a constant or an argument, as counts are.
    fn is_number(&self, id: ValueId) -> bool {
        let Some(inst) = self.made.get(&id) else { return false };
        match inst.op {
            Op::Const(bits) => bits >> (inst.dtype.size() * 8 - 1) == 0,
            Op::Scalar(_) => true,
            Op::Cast(a) => matches!(self.op(a), Some(Op::Scalar(_))),
            _ => false,
        }
    }

    /// Whether a value is computed from elements of the row that are read from memory.
    fn reads(&self, kernel: &Kernel, id: ValueId, kept: &[Access]) -> bool {
        let along = |access: &Access| access.strides[kernel.outer..].iter().any(|stride| *stride != Extent::Const(0));
        let (mut rest, mut seen) = (vec![id], BTreeSet::new());
        while let Some(id) = rest.pop() {
            let Some(inst) = self.made.get(&id).filter(|_| seen.insert(id)) else { continue };
            match &inst.op {
                Op::Load(access) if along(access) && !kept.contains(access) => return true,
                Op::LoadIf { access, .. } if along(access) => return true,
                op => rest.extend(operands(op)),
            }
        }
        false
    }
}

/// The values that an operation uses.
pub fn operands_mut(op: &mut Op) -> Vec<&mut ValueId> {
    match op {
        Op::Load(_) | Op::Const(_) | Op::Scalar(_) | Op::Index(_) => vec![],
        Op::LoadIf { cond, other, .. } => vec![cond, other],
        Op::Unary(_, a) | Op::Cast(a) => vec![a],
        Op::Binary(_, a, b) => vec![a, b],
        Op::Select(cond, a, b) => vec![cond, a, b],
    }
}

/// The same, of one that stays as it is.
pub fn operands(op: &Op) -> Vec<ValueId> {
    operands_mut(&mut op.clone()).into_iter().map(|id| *id).collect()
}
