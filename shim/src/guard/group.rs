//! The facts under one root (an argument, the function, a module), checked together and pinned together.
//!
//! A resume function and the tuple of its state are new in every call, as are the states and functions inside: nothing can
//! be pinned to them. They are looked through, and what they hold is a root.

use super::Slot;
use super::fact::{Fact, Other};
use super::pin::{Pin, Pinner, Shape};
use super::source::{Read, Values};
use super::tensor::TensorFact;
use crate::python::raw::Raw;
use crate::torch::Torch;
use pyo3::prelude::*;
use std::cell::{Cell, RefCell};
use std::ptr::null_mut;
use std::rc::Rc;

/// Roots of one group that are pinned at a time: instances that share a compiled frame.
const PINS: usize = 32;

/// A group whose pins missed this often with no hit between is checked by value from then on.
const HOPELESS: u32 = 64;

/// Facts and wanted values under one root.
pub struct Group {
    root: u32,
    /// Indices of its facts.
    facts: Vec<usize>,
    /// All sources on the paths to facts and wanted values, parents first; the root apart.
    sources: Vec<u32>,
    /// Wanted values: source and slot.
    wanted: Vec<(u32, usize)>,
    pins: RefCell<Vec<Pin>>,
    misses: Cell<u32>,
    /// The fact that failed last.
    suspect: Cell<Option<usize>>,
}

/// One fact about a tensor that is an argument: the most frequent group.
pub struct Direct {
    arg: usize,
    fact: Rc<TensorFact>,
    index: usize,
    slot: Option<usize>,
}

impl Direct {
    /// As [`Group::check`].
    #[inline]
    pub fn check(&self, py: Python<'_>, torch: &Torch, args: &[Raw], slots: &mut [Slot]) -> Result<(), usize> {
        let tensor = args.get(self.arg).copied().unwrap_or(null_mut());
        if tensor.is_null() {
            return Err(self.index);
        }
        // SAFETY: a live argument.
        let Some(data) = (unsafe { self.fact.read(py, torch, tensor) }) else { return Err(self.index) };
        if let Some(slot) = self.slot {
            slots[slot] = Slot { object: tensor, data };
        }
        Ok(())
    }
}

/// Takes those groups out.
pub fn take_direct(groups: &mut Vec<Group>, steps: &[(Option<u32>, Read)], facts: &[(u32, Fact)]) -> Vec<Direct> {
    let direct = |group: &mut Group| {
        let (None, Read::Arg(arg)) = steps[group.root as usize] else { return None };
        match (&group.sources[..], &group.facts[..], &group.wanted[..]) {
            ([], [index], [] | [_]) => match &facts[*index].1 {
                Fact::Tensor(fact) => {
                    let slot = group.wanted.first().map(|(_, slot)| *slot);
                    Some(Direct { arg, fact: fact.clone(), index: *index, slot })
                }
                _ => None,
            },
            _ => None,
        }
    };
    let mut taken = Vec::new();
    groups.retain_mut(|group| match direct(group) {
        Some(found) => {
            taken.push(found);
            false
        }
        None => true,
    });
    taken
}

/// The root of each source. `resumed`: the frame is a resume function's.
pub fn roots(steps: &[(Option<u32>, Read)], facts: &[(u32, Fact)], resumed: bool) -> Vec<u32> {
    let fresh = if resumed { fresh(steps, facts) } else { vec![false; steps.len()] };
    let mut roots: Vec<u32> = Vec::with_capacity(steps.len());
    for (source, (base, _)) in (0..).zip(steps) {
        roots.push(base.filter(|base| !fresh[*base as usize]).map_or(source, |base| roots[base as usize]));
    }
    roots
}

/// Groups facts and slots by the roots of their sources, in order of the first fact of each.
pub fn by_root(steps: &[(Option<u32>, Read)], facts: &[(u32, Fact)], slots: &[u32], roots: &[u32]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut group_of = |source: u32, add: &mut dyn FnMut(&mut Group)| {
        let root = roots[source as usize];
        let at = groups.iter().position(|g| g.root == root).unwrap_or_else(|| {
            groups.push(Group {
                root,
                facts: Vec::new(),
                sources: Vec::new(),
                wanted: Vec::new(),
                pins: RefCell::default(),
                misses: Cell::new(0),
                suspect: Cell::new(None),
            });
            groups.len() - 1
        });
        let group = &mut groups[at];
        let mut on_path = source;
        while on_path != root {
            group.sources.push(on_path);
            on_path = steps[on_path as usize].0.unwrap_or(root);
        }
        add(group);
    };
    for (index, (source, fact)) in facts.iter().enumerate() {
        if !fact.is_across() {
            group_of(*source, &mut |group| group.facts.push(index));
        }
        if let Fact::Same(Other::Source(other)) | Fact::NotSame(Other::Source(other)) = fact {
            group_of(*other, &mut |_| {});
        }
    }
    for (slot, source) in slots.iter().enumerate() {
        group_of(*source, &mut |group| group.wanted.push((*source, slot)));
    }
    for group in &mut groups {
        group.sources.sort_unstable();
        group.sources.dedup();
    }
    groups
}

/// Which sources are of objects that every call of a resume function makes anew: its function, its state, and the tuples,
/// resume functions and cells in there.
fn fresh(steps: &[(Option<u32>, Read)], facts: &[(u32, Fact)]) -> Vec<bool> {
    let mut opens = vec![false; steps.len()];
    for (source, fact) in facts {
        opens[*source as usize] |= match fact {
            Fact::Type(class) => class.is_builtin("tuple") || class.is_builtin("cell"),
            Fact::Function(_) => true,
            _ => false,
        };
    }
    let mut fresh = Vec::with_capacity(steps.len());
    for (source, (base, read)) in steps.iter().enumerate() {
        fresh.push(match (base, read) {
            (None, Read::Function | Read::Arg(0)) | (Some(_), Read::Closure(_)) => {
                base.is_none_or(|b| fresh[b as usize])
            }
            (Some(base), Read::Index(_)) => fresh[*base as usize] && opens[source],
            _ => false,
        });
    }
    fresh
}

impl Group {
    /// Checks the group's facts and fills its slots; else the index of a failing fact.
    pub fn check(
        &self,
        py: Python<'_>,
        torch: &Torch,
        shape: &Shape<'_>,
        values: &mut Values<'_>,
        slots: &mut [Slot],
    ) -> Result<(), usize> {
        let root = values.get(py, self.root);
        if self.sources.is_empty() {
            for index in &self.facts {
                if !shape.facts[*index].1.holds(py, torch, root, values) {
                    return Err(*index);
                }
            }
            self.wanted.iter().for_each(|(_, slot)| slots[*slot] = Slot::new(root));
            return Ok(());
        }
        let pinning = self.misses.get() < HOPELESS && !root.is_null();
        if pinning {
            let mut pins = self.pins.borrow_mut();
            if let Some(pin) = pins.iter_mut().find(|pin| pin.root() == root)
                && pin.holds(py, torch, shape, values, slots)
            {
                self.misses.set(0);
                return Ok(());
            }
        }
        if let Some(index) = self.suspect.get() {
            let (source, fact) = &shape.facts[index];
            if fact.fails_alone(py, torch, *source, values) {
                return Err(index);
            }
        }
        for index in &self.facts {
            let (source, fact) = &shape.facts[*index];
            let value = values.get(py, *source);
            if !fact.holds(py, torch, value, values) {
                // A pin stays: what changed may change back.
                self.suspect.set(Some(*index));
                return Err(*index);
            }
        }
        for (source, slot) in &self.wanted {
            slots[*slot] = Slot::new(values.get(py, *source));
        }
        if pinning {
            self.misses.set(self.misses.get() + 1);
            self.pin(py, shape, values, root);
        }
        Ok(())
    }

    fn pin(&self, py: Python<'_>, shape: &Shape<'_>, values: &mut Values<'_>, root: Raw) {
        let mut pinner = Pinner::new(Shape { steps: shape.steps, facts: shape.facts }, root);
        let mut by_source: Vec<(u32, usize)> = self.facts.iter().map(|i| (shape.facts[*i].0, *i)).collect();
        by_source.sort_unstable();
        let mut next = 0;
        let mut add_facts = |pinner: &mut Pinner<'_>, values: &mut Values<'_>, up_to: u32| {
            while let Some((source, fact)) = by_source.get(next).filter(|(source, _)| *source <= up_to) {
                pinner.fact(py, *fact, values.get(py, *source));
                next += 1;
            }
        };
        add_facts(&mut pinner, values, self.root);
        for source in &self.sources {
            let base = shape.steps[*source as usize].0.map_or(root, |base| values.get(py, base));
            pinner.source(*source, base, values.get(py, *source));
            add_facts(&mut pinner, values, *source);
        }
        for (source, slot) in &self.wanted {
            pinner.value(*slot, values.get(py, *source));
        }
        let mut pins = self.pins.borrow_mut();
        pins.retain(|pin| pin.root() != root);
        if let Some(pin) = pinner.finish() {
            if pins.len() >= PINS {
                pins.remove(0);
            }
            pins.push(pin);
        } else {
            self.misses.set(HOPELESS);
        }
    }
}
