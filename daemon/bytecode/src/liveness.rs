//! Which slots of a frame may still be read from some instruction on.

use crate::op::Op;
use crate::point::Entry;
use crate::{Decoded, Target};
use flambeau_ir::code::Code;

/// Most words of bits that are kept of a code object, and most steps for each of its instructions. No code of a program needs
/// as many; of what does, all slots count as read.
const MOST_WORDS: usize = 8 << 20;
const MOST_STEPS: usize = 256;

/// Per slot: whether a resume function that enters so, between `at` and `target`, has to restore it. A call or a raise
/// in its prologue may go to the handler that covers `at`.
pub fn live_for(code: &Code, decoded: &Decoded, at: Target, target: Target, entry: Entry) -> Vec<bool> {
    let handler = decoded.handler(at as usize).map(|h| h.target);
    let live = |from: Target| live_slots(code, decoded, from);
    match (entry, handler) {
        (Entry::Raise, handler) => handler.map_or_else(|| vec![false; code.localsplusnames.len()], live),
        (Entry::Child | Entry::ChildDropped, Some(handler)) if !flambeau_ir::mutated!("handler_reads_nothing") => {
            live(target).into_iter().zip(live(handler)).map(|(a, b)| a | b).collect()
        }
        _ => live(target),
    }
}

/// Per slot: whether what it holds may be read when execution goes on at `target`. Cells, which other functions may hold
/// as well, count as read where an instruction that can still be reached touches them. See [`live_for`] for resume functions.
pub fn live_slots(code: &Code, decoded: &Decoded, target: Target) -> Vec<bool> {
    let slots = code.localsplusnames.len();
    if crate::readers::mentioned(&code.names) {
        return vec![true; slots];
    }
    let words = slots.div_ceil(64);
    if decoded.instrs.len().saturating_mul(words) > MOST_WORDS {
        return vec![true; slots];
    }
    let edges = Edges::new(decoded);
    let mut steps = decoded.instrs.len().saturating_mul(MOST_STEPS);
    let mut live = vec![0_u64; decoded.instrs.len() * words];
    let reached = edges.reachable(target as usize);
    // From the end: what is read there is known before it is asked for.
    let mut waiting = reached.clone();
    waiting.sort_unstable();
    let mut now = vec![0_u64; words];
    // Neither waiting nor out of reach.
    let mut idle = vec![false; decoded.instrs.len()];
    while let Some(at) = waiting.pop() {
        steps -= 1;
        if steps == 0 {
            return vec![true; slots];
        }
        idle[at] = true;
        now.fill(0);
        let union = |now: &mut [u64], from: usize| {
            now.iter_mut().zip(&live[from * words..]).for_each(|(a, b)| *a |= b);
        };
        edges.next(at).for_each(|next| union(&mut now, next));
        match decoded.instrs[at].op {
            Op::StoreFast(slot) => set(&mut now, slot, false),
            Op::LoadFast(slot) | Op::DeleteFast(slot) | Op::LoadFastAndClear(slot) => set(&mut now, slot, true),
            _ => {}
        }
        // The handler may run before the instruction has done anything.
        edges.handler(at).into_iter().for_each(|handler| union(&mut now, handler));
        let place = &mut live[at * words..(at + 1) * words];
        if place != now.as_slice() {
            place.copy_from_slice(&now);
            waiting.extend(edges.before[at].iter().filter(|b| std::mem::take(&mut idle[**b])));
        }
    }
    let first = target as usize * words;
    let mut found: Vec<bool> =
        (0..slots).map(|s| live.get(first + s / 64).is_some_and(|w| w >> (s % 64) & 1 != 0)).collect();
    for slot in reached.iter().filter_map(|at| cell(decoded.instrs[*at].op)) {
        let kind = code.localspluskinds.get(slot as usize).copied().unwrap_or_default();
        if let Some(place) = found.get_mut(slot as usize) {
            *place |= kind & (Code::CELL | Code::FREE) != 0;
        }
    }
    if let Some(receiver) = found.first_mut().filter(|_| calls_super(code)) {
        *receiver = true;
    }
    found
}

/// Per slot: whether a loop that goes round `target` binds it, so that it may hold something else each time.
pub fn loop_slots(code: &Code, decoded: &Decoded, target: Target) -> Vec<bool> {
    let mut found = vec![false; code.localsplusnames.len()];
    let edges = Edges::new(decoded);
    let target = target as usize;
    let (after, before) = (edges.reachable(target), edges.reaching(target));
    // Nothing else in both sets: no way leads back to it.
    if target >= before.len() || !after.iter().any(|at| edges.goes(*at, target)) {
        return found;
    }
    for at in after.into_iter().filter(|at| before[*at]) {
        if let Op::StoreFast(slot) = decoded.instrs[at].op
            && let Some(place) = found.get_mut(slot as usize)
        {
            *place = true;
        }
    }
    found
}

/// Whether `super()` may be called without arguments, which reads the first slot.
fn calls_super(code: &Code) -> bool {
    let class = |(name, kind): (&String, &u8)| name == "__class__" && kind & Code::FREE != 0;
    code.localsplusnames.iter().zip(&code.localspluskinds).any(class) && code.names.iter().any(|name| name == "super")
}

/// Sets the bit of a slot, if it is one.
fn set(words: &mut [u64], slot: u32, to: bool) {
    let Some(word) = words.get_mut(slot as usize / 64) else { return };
    let bit = 1 << (slot % 64);
    *word = if to { *word | bit } else { *word & !bit };
}

/// The cell that an instruction touches, if the slot holds one.
fn cell(op: Op) -> Option<u32> {
    match op {
        // From 3.13 on it pushes cells, too.
        Op::LoadFast(slot)
        | Op::LoadClosure(slot)
        | Op::LoadDeref(slot)
        | Op::StoreDeref(slot)
        | Op::DeleteDeref(slot)
        | Op::LoadClassDeref(slot)
        | Op::LoadFromDictOrDeref(slot) => Some(slot),
        _ => None,
    }
}

/// Follows the hints, and shortens the way for who follows.
fn first_open(open: &mut [usize], mut at: usize) -> usize {
    while let Some(next) = open.get(at).copied().filter(|next| *next != at) {
        open[at] = open[next];
        at = next;
    }
    at
}

/// Where execution can go.
struct Edges<'a> {
    decoded: &'a Decoded,
    /// Per instruction the first handler that covers it.
    handlers: Vec<Option<usize>>,
    /// Per instruction those that can be just before it.
    before: Vec<Vec<usize>>,
}

impl<'a> Edges<'a> {
    fn new(decoded: &'a Decoded) -> Edges<'a> {
        let count = decoded.instrs.len();
        let mut handlers = vec![None; count];
        // Per instruction: the first at or behind it that no handler covers yet, or one on the way there.
        let mut open: Vec<usize> = (0..=count).collect();
        for handler in &decoded.handlers {
            let end = (handler.end as usize).min(count);
            let mut at = first_open(&mut open, handler.start as usize);
            while at < end {
                handlers[at] = Some(handler.target as usize);
                open[at] = at + 1;
                at = first_open(&mut open, at + 1);
            }
        }
        let mut edges = Edges { decoded, handlers, before: vec![vec![]; count] };
        for at in 0..count {
            let after: Vec<usize> = edges.next(at).chain(edges.handler(at)).collect();
            after.into_iter().for_each(|to| edges.before[to].push(at));
        }
        edges
    }

    /// Without an exception.
    fn next(&self, at: usize) -> impl Iterator<Item = usize> + use<> {
        let (falls, jumps) = match self.decoded.instrs[at].op {
            Op::ReturnValue | Op::RaiseVarargs(_) | Op::Reraise(_) => (false, None),
            Op::Jump(target) => (false, Some(target)),
            Op::PopJumpIf { target, .. } | Op::JumpIfOrPop { target, .. } | Op::ForIter(target) | Op::Send(target) => {
                (true, Some(target))
            }
            _ => (true, None),
        };
        let next = (falls && at + 1 < self.decoded.instrs.len()).then_some(at + 1);
        next.into_iter().chain(jumps.map(|t| t as usize))
    }

    /// Whether `to` can be right behind `at`.
    fn goes(&self, at: usize, to: usize) -> bool {
        self.next(at).chain(self.handler(at)).any(|next| next == to)
    }

    fn handler(&self, at: usize) -> Option<usize> {
        self.handlers[at].filter(|h| *h < self.handlers.len())
    }

    /// Per instruction: whether `to` can be reached from it.
    fn reaching(&self, to: usize) -> Vec<bool> {
        let mut found = vec![false; self.before.len()];
        let mut waiting = vec![to];
        while let Some(at) = waiting.pop() {
            if at < found.len() && !std::mem::replace(&mut found[at], true) {
                waiting.extend(&self.before[at]);
            }
        }
        found
    }

    fn reachable(&self, from: usize) -> Vec<usize> {
        let mut seen = vec![false; self.handlers.len()];
        let mut found = Vec::new();
        let mut waiting = vec![from];
        while let Some(at) = waiting.pop() {
            if at < seen.len() && !std::mem::replace(&mut seen[at], true) {
                found.push(at);
                waiting.extend(self.next(at).chain(self.handler(at)));
            }
        }
        found
    }
}
