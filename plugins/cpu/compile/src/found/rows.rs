//! Values of a row that are computed once: what one pass over the row computed and a later one would compute again is kept in the
//! buffer that the row is written to at the end.

use crate::cost::{access_ps, inst_ps};
use crate::emit::operands;
use crate::nest::points;
use flambeau_plugin::kernel::{Access, DType, Extent, Inst, Kernel, Op, Role, Scope, Stage, Store, ValueId};
use std::collections::{HashMap, HashSet};

/// Longer rows leave the caches between two passes.
const MOST_BYTES: i64 = 512 << 10;

/// Keeps values of rows where that is less work than computing them again.
pub fn keep(kernel: &mut Kernel) {
    let rows: Vec<usize> = (0..kernel.stages.len()).filter(|stage| kernel.stages[*stage].scope == Scope::Row).collect();
    let Some(at) = rows.last().and_then(|last| written(kernel, *last)) else { return };
    let mut read: HashSet<ValueId> = HashSet::new();
    for pair in rows.windows(2).rev() {
        let mut kept = kernel.clone();
        let Some(id) = pass_on(&mut kept, (pair[0], pair[1]), &at) else { continue };
        read.insert(id);
        if is_sound(&kept, &at, &read) {
            kept.params[at.param as usize].role = Role::InOut;
            *kernel = kept;
        } else {
            read.remove(&id);
        }
    }
}

/// Where the last pass writes each element of its row, in memory that holds them until then.
fn written(kernel: &Kernel, last: usize) -> Option<Access> {
    let row = points(kernel.dims[kernel.outer..].iter());
    let fits = |store: &&Store| {
        let Access { param, strides, .. } = &store.access;
        let others = kernel.stages.iter().flat_map(|stage| &stage.stores).filter(|other| other.access.param == *param);
        let bytes = row.map(|row| row.saturating_mul(kernel.params[*param as usize].dtype.size() as i64));
        others.count() == 1
            && bytes.is_none_or(|bytes| bytes <= MOST_BYTES)
            && strides.last() == Some(&Extent::Const(1))
            && strides.iter().all(|stride| *stride != Extent::Const(0))
    };
    kernel.stages[last].stores.iter().find(fits).map(|store| store.access.clone())
}

/// Has the pass `to` read at `at` what the pass `from` computes; which value that is, if one is worth it.
fn pass_on(kernel: &mut Kernel, (from, to): (usize, usize), at: &Access) -> Option<ValueId> {
    let dtype = kernel.params[at.param as usize].dtype;
    let mut numbers = Numbers::default();
    let known: HashMap<usize, ValueId> =
        kernel.stages[from].insts.iter().map(|inst| (numbers.of(inst), inst.id)).collect();
    let stage = &kernel.stages[to];
    let cost = |stage: &Stage| stage.insts.iter().map(|inst| inst_ps(kernel, inst)).sum::<u32>();
    let mut best: Option<(u32, ValueId, ValueId, Stage)> = None;
    for inst in &stage.insts {
        let Some(&made) = known.get(&numbers.of(inst)) else { continue };
        if inst.dtype != dtype || matches!(inst.op, Op::Load(_)) {
            continue;
        }
        let reading = reading(stage, inst.id, at);
        let left = cost(&reading);
        if best.as_ref().is_none_or(|(least, ..)| left < *least) {
            best = Some((left, made, inst.id, reading));
        }
    }
    let (left, made, id, reading) = best?;
    if left + 2 * access_ps(kernel, at) >= cost(stage) {
        return None;
    }
    kernel.stages[to] = reading;
    kernel.stages[from].stores.push(Store { access: at.clone(), value: made });
    Some(id)
}

/// The stage with one value read from memory, without what only that value needed.
fn reading(stage: &Stage, id: ValueId, at: &Access) -> Stage {
    let mut stage = stage.clone();
    let uses = stage.stores.iter().map(|store| store.value).chain(stage.reduces.iter().map(|reduce| reduce.value));
    let mut needed: HashSet<ValueId> = uses.collect();
    for inst in stage.insts.iter_mut().rev() {
        if inst.id == id {
            inst.op = Op::Load(at.clone());
        }
        if needed.contains(&inst.id) {
            needed.extend(operands(&inst.op));
        }
    }
    stage.insts.retain(|inst| needed.contains(&inst.id));
    stage
}

/// Whether nothing but these values is read of the buffer once something is kept there. In the same pass each element is read
/// before it is written.
fn is_sound(kernel: &Kernel, at: &Access, read: &HashSet<ValueId>) -> bool {
    let mut kept = false;
    kernel.stages.iter().all(|stage| {
        let is_meant = |inst: &Inst| match &inst.op {
            Op::Load(access) if access.param == at.param => access == at && (!kept || read.contains(&inst.id)),
            Op::LoadIf { access, .. } => access.param != at.param,
            _ => true,
        };
        let sound = stage.insts.iter().all(is_meant);
        kept |= stage.stores.iter().any(|store| store.access.param == at.param);
        sound
    })
}

/// Equal numbers for equal computations.
#[derive(Default)]
struct Numbers {
    of_values: HashMap<ValueId, usize>,
    of_insts: HashMap<(DType, Op), usize>,
    count: usize,
}

impl Numbers {
    fn value(&mut self, id: ValueId) -> ValueId {
        let count = &mut self.count;
        let number = *self.of_values.entry(id).or_insert_with(|| {
            *count += 1;
            *count
        });
        ValueId(number as u32)
    }

    /// That of an instruction, whose operands have theirs.
    fn of(&mut self, inst: &Inst) -> usize {
        let op = match inst.op.clone() {
            Op::Unary(op, a) => Op::Unary(op, self.value(a)),
            Op::Cast(a) => Op::Cast(self.value(a)),
            Op::Binary(op, a, b) => Op::Binary(op, self.value(a), self.value(b)),
            Op::LoadIf { cond, access, other } => {
                Op::LoadIf { cond: self.value(cond), access, other: self.value(other) }
            }
            Op::Select(c, a, b) => Op::Select(self.value(c), self.value(a), self.value(b)),
            op => op,
        };
        let count = &mut self.count;
        let number = *self.of_insts.entry((inst.dtype, op)).or_insert_with(|| {
            *count += 1;
            *count
        });
        self.of_values.insert(inst.id, number);
        number
    }
}
