//! One allocation for a plan's larger buffers: they become views of an arena, placed so that those alive at once do not
//! overlap. What a call then raises the process's memory by is the arena; an allocator that serves the buffers one by
//! one leaves holes, and touches twice as much. So do small buffers that only kernels touch: of those the arena is all that
//! is allocated, as nobody needs tensors of them.

use flambeau_ir::dim::Dim;
use flambeau_ir::kernel::DType;
use flambeau_ir::plan::{Plan, PlanStep, Reg, TAPED};
use flambeau_ir::tensor::Device;
use std::collections::{BTreeMap, BTreeSet};

/// Buffers begin at multiples of this, in bytes, as torch's own allocations do.
const ALIGN: i64 = 64;
/// A smaller arena is not worth the views where calls of torch take some of them, but one is of buffers of at most
/// [`SMALL`] bytes that only kernels touch.
const LEAST_BYTES: i64 = 1 << 20;
/// A small buffer, in bytes.
pub const SMALL: i64 = 1 << 14;
/// glibc maps blocks of 32 MiB anew each time, and the first touch of every page of theirs is a fault.
const MOST_BYTES: i64 = 31 << 20;

/// A buffer of the plan's own, or a result of a call.
struct Buffer {
    reg: Reg,
    /// Alive from this step to that, both included.
    steps: (usize, usize),
    /// Elements from the first to the last, rounded up to the alignment.
    elements: i64,
    dtype: DType,
    /// Elements from the arena's first.
    offset: i64,
    /// Only kernels touch it.
    internal: bool,
}

impl Buffer {
    fn meets(&self, other: &Buffer) -> bool {
        self.steps.0 <= other.steps.1 && other.steps.0 <= self.steps.1
    }

    fn bytes(&self) -> i64 {
        self.elements * self.dtype.size() as i64
    }
}

/// Puts the buffers of each element type into one arena where that pays.
pub fn share(plan: &mut Plan) {
    let dtypes: BTreeSet<DType> = plan
        .steps
        .iter()
        .filter_map(|s| if let PlanStep::Alloc { dtype, .. } = s { Some(*dtype) } else { None })
        .collect();
    for dtype in dtypes {
        let (mut own, results) = buffers(plan, dtype);
        let elements = place(&mut own);
        let bytes = elements * dtype.size() as i64;
        // While calls hold memory of their own, the arena lies idle beside it: that must be the lesser part.
        let outweighed = most_alive(&results) * 2 > bytes;
        if own.len() > 1 && !outweighed && (LEAST_BYTES..MOST_BYTES).contains(&bytes) {
            rewrite(plan, &own, dtype, elements);
            continue;
        }
        own.retain(|buffer| buffer.internal && buffer.bytes() <= SMALL);
        let elements = place(&mut own);
        if own.len() > 1 && elements * (dtype.size() as i64) < LEAST_BYTES {
            rewrite(plan, &own, dtype, elements);
        }
    }
}

/// Buffers of this type that the plan allocates and keeps to itself, and what calls return.
fn buffers(plan: &Plan, dtype: DType) -> (Vec<Buffer>, Vec<Buffer>) {
    let roots = plan.roots();
    let root = |reg: &Reg| *roots.get(reg).unwrap_or(reg);
    let mut last: BTreeMap<Reg, usize> = BTreeMap::new();
    let mut tensors: BTreeSet<Reg> = BTreeSet::new();
    for (at, step) in plan.steps.iter().enumerate() {
        step.registers(&mut |reg| {
            last.insert(root(&reg), at);
            if !matches!(step, PlanStep::Alloc { .. } | PlanStep::Launch { .. } | PlanStep::Free(_)) {
                tensors.insert(reg);
            }
        });
    }
    let mut leaving: BTreeSet<Reg> = plan.outputs.iter().map(root).collect();
    for step in &plan.steps {
        // Torch keeps what it likes of them for the derivative.
        if matches!(step, PlanStep::Call { op, .. } if &**op == TAPED) {
            step.registers(&mut |reg| {
                leaving.insert(root(&reg));
            });
        }
    }
    let made: BTreeSet<Reg> = plan.steps.iter().flat_map(results).collect();
    let (mut own, mut others) = (Vec::new(), Vec::new());
    for (at, step) in plan.steps.iter().enumerate() {
        let (PlanStep::Alloc { reg, dtype: of, device, sizes, strides }
        | PlanStep::Expect { reg, dtype: of, device, sizes, strides }) = step
        else {
            continue;
        };
        let alloc = matches!(step, PlanStep::Alloc { .. });
        if *device != Device::CPU || leaving.contains(reg) || (!alloc && !made.contains(reg)) {
            continue;
        }
        let Some(elements) = span(sizes, strides, *of) else { continue };
        let steps = (at, last.get(reg).copied().unwrap_or(at));
        let buffer = Buffer { reg: *reg, steps, elements, dtype: *of, offset: 0, internal: !tensors.contains(reg) };
        if !alloc {
            others.push(buffer);
        } else if *of == dtype {
            own.push(buffer);
        }
    }
    (own, others)
}

fn results(step: &PlanStep) -> Vec<Reg> {
    if let PlanStep::Call { results, .. } = step { results.clone() } else { vec![] }
}

/// Elements that a tensor spans, rounded up; `None` if they are not known or none.
fn span(sizes: &[Dim], strides: &[Dim], dtype: DType) -> Option<i64> {
    let mut last = 0;
    for (size, stride) in sizes.iter().zip(strides) {
        let (size, stride) = (size.as_const().filter(|s| *s > 0)?, stride.as_const()?);
        last += (size - 1) * stride;
    }
    let unit = ALIGN / dtype.size() as i64;
    Some((last + unit) / unit * unit)
}

/// Largest number of bytes alive at once.
fn most_alive(buffers: &[Buffer]) -> i64 {
    let alive = |at: usize| buffers.iter().filter(|b| b.steps.0 <= at && at <= b.steps.1).map(Buffer::bytes).sum();
    buffers.iter().map(|b| alive(b.steps.0)).max().unwrap_or(0)
}

/// Gives every buffer its offset, the largest first, each in the smallest gap that those placed before leave it. The
/// elements needed in all.
fn place(buffers: &mut [Buffer]) -> i64 {
    buffers.sort_by_key(|b| (std::cmp::Reverse(b.elements), b.reg));
    let mut end = 0;
    for at in 0..buffers.len() {
        let (placed, rest) = buffers.split_at_mut(at);
        let buffer = &mut rest[0];
        let mut taken: Vec<(i64, i64)> =
            placed.iter().filter(|b| b.meets(buffer)).map(|b| (b.offset, b.offset + b.elements)).collect();
        taken.sort_unstable();
        let (mut free, mut best) = (0, None);
        for (from, to) in taken {
            let gap = from - free;
            if gap >= buffer.elements && best.is_none_or(|(smallest, _)| gap < smallest) {
                best = Some((gap, free));
            }
            free = free.max(to);
        }
        buffer.offset = best.map_or(free, |(_, offset)| offset);
        end = end.max(buffer.offset + buffer.elements);
    }
    end
}

/// Makes the buffers views of an arena that lives as long as any of them.
fn rewrite(plan: &mut Plan, own: &[Buffer], dtype: DType, elements: i64) {
    let arena = Reg(plan.regs);
    plan.regs += 1;
    let first = own.iter().map(|b| b.steps.0).min().unwrap_or(0);
    let last = own.iter().map(|b| b.steps.1).max().unwrap_or(0);
    let offsets: BTreeMap<Reg, i64> = own.iter().map(|b| (b.reg, b.offset)).collect();
    let mut steps = Vec::with_capacity(plan.steps.len() + 2);
    let mut commit = None;
    for (at, step) in std::mem::take(&mut plan.steps).into_iter().enumerate() {
        if at == first {
            let (sizes, strides) = (vec![Dim::Const(elements)], vec![Dim::Const(1)]);
            steps.push(PlanStep::Alloc { reg: arena, dtype, device: Device::CPU, sizes, strides });
        }
        if at == plan.commit as usize {
            commit = Some(steps.len());
        }
        steps.push(match step {
            PlanStep::Alloc { reg, sizes, strides, .. } if offsets.contains_key(&reg) => {
                PlanStep::View { reg, base: arena, sizes, strides, offset: Dim::Const(offsets[&reg]), dtype }
            }
            step => step,
        });
        if at == last {
            steps.push(PlanStep::Free(arena));
        }
    }
    plan.commit = commit.unwrap_or(steps.len()) as u32;
    plan.steps = steps;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(reg: u32, steps: (usize, usize), elements: i64) -> Buffer {
        Buffer { reg: Reg(reg), steps, elements, dtype: DType::F32, offset: -1, internal: false }
    }

    #[test]
    fn buffers_alive_at_once_never_overlap() {
        // Lengths and lifetimes from a small generator: many shapes of the problem.
        let mut state = 7_u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for count in 1..40 {
            let mut buffers: Vec<Buffer> = (0..count)
                .map(|reg| {
                    let from = next(30) as usize;
                    buffer(reg, (from, from + next(8) as usize), 16 * (1 + next(20) as i64))
                })
                .collect();
            let end = place(&mut buffers);
            for (i, a) in buffers.iter().enumerate() {
                assert!(a.offset >= 0 && a.offset + a.elements <= end && a.offset % 16 == 0);
                for b in &buffers[..i] {
                    let apart = a.offset + a.elements <= b.offset || b.offset + b.elements <= a.offset;
                    assert!(apart || !a.meets(b), "{count} buffers");
                }
            }
        }
    }

    #[test]
    fn a_chain_needs_two_places() {
        let mut chain: Vec<Buffer> = (0..8).map(|i| buffer(i, (i as usize, i as usize + 1), 32)).collect();
        assert_eq!(place(&mut chain), 64);
    }

    #[test]
    fn spans_follow_strides_and_are_rounded_up() {
        let dims = |values: &[i64]| values.iter().map(|v| Dim::Const(*v)).collect::<Vec<_>>();
        assert_eq!(span(&dims(&[4, 8]), &dims(&[8, 1]), DType::F32), Some(32));
        assert_eq!(span(&dims(&[4, 8]), &dims(&[16, 2]), DType::F32), Some(64));
        assert_eq!(span(&dims(&[3]), &dims(&[1]), DType::U8), Some(64));
        assert_eq!(span(&dims(&[0, 3]), &dims(&[3, 1]), DType::F32), None);
    }
}
