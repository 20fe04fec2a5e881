//! The guard evaluator: a guard program made ready for this process, checked by value, and pinned so that what did not
//! change is not read again. Checking runs no user code.

pub mod ambient;
mod class;
mod constant;
mod fact;
mod getters;
mod group;
pub mod order;
mod pin;
mod registry;
mod setters;
mod source;
mod symbols;
mod tensor;
mod thread_state;

pub use registry::{any_registered, registered_with};
pub use setters::wrap as watch_setters;
pub use source::{Grad, Hooks, Roots};
pub use symbols::Expr;

use crate::python::raw::Raw;
use crate::torch::Torch;
use fact::{Fact, Other};
use flambeau_ir::code::Const;
use flambeau_ir::guard::GuardProgram;
use flambeau_ir::plan::Symbol;
use flambeau_ir::source::SourceId;
use group::{Direct, Group};
use pin::Shape;
use pyo3::prelude::*;
use smallvec::SmallVec;
use source::{Read, Values};
use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr::null_mut;
use symbols::{Bound, Symbols};

/// A guard program ready to run.
pub struct Program {
    steps: Vec<(Option<u32>, Read)>,
    facts: Vec<(u32, Fact)>,
    /// Facts about tensors that are arguments.
    direct: Vec<Direct>,
    /// Other facts about one value, by the root of its path.
    groups: Vec<Group>,
    /// Facts about several values, the thread or sizes, with the slot of their source.
    across: Vec<(usize, usize)>,
    symbols: Symbols,
    /// Values that a run needs: the first slots.
    wanted: usize,
    /// The source of each slot.
    slots: Vec<u32>,
    torch: &'static Torch,
}

/// The value of a source in one call.
#[derive(Clone, Copy)]
pub struct Slot {
    /// Borrowed; null where the path leads nowhere.
    pub object: Raw,
    /// Of a tensor: the address of its first element, or null where torch has to be asked.
    pub data: *mut c_void,
}

impl Slot {
    /// An object, or null.
    pub const fn new(object: Raw) -> Slot {
        Slot { object, data: null_mut() }
    }
}

/// Values that are kept alive.
pub type Kept = SmallVec<[Option<Py<PyAny>>; 12]>;

/// What passed the guards: the values and symbols of one call, valid until Python runs or the GIL is released.
#[derive(Default)]
pub struct Passed {
    /// The wanted sources first.
    slots: SmallVec<[Slot; 16]>,
    wanted: usize,
    /// By symbol id.
    pub symbols: Bound,
    /// References that reading made.
    made: Vec<Py<PyAny>>,
}

impl Passed {
    /// The values of the wanted sources, borrowed.
    pub fn values(&self) -> &[Slot] {
        &self.slots[..self.wanted]
    }

    /// The value of a wanted source, kept alive.
    pub fn value(&self, py: Python<'_>, slot: usize) -> Option<Py<PyAny>> {
        own(py, self.values()[slot].object)
    }

    /// Lets go of what reading made, but for the values of the wanted sources.
    pub fn release(&mut self) {
        let Passed { slots, wanted, made, .. } = self;
        let is_wanted = |object: &Py<PyAny>| slots[..*wanted].iter().any(|slot| slot.object == object.as_ptr());
        let (kept, released) = std::mem::take(made).into_iter().partition(is_wanted);
        *made = kept;
        // May run code of the user's.
        drop::<Vec<_>>(released);
    }

    /// Adds the values of the wanted sources, kept alive; a slot whose path leads nowhere is empty.
    pub fn keep(&self, py: Python<'_>, kept: &mut Kept) {
        for slot in self.values() {
            kept.push(own(py, slot.object));
        }
    }
}

/// Numbers sources whose values are kept for after the groups were checked.
#[derive(Default)]
struct Slots {
    by_source: HashMap<u32, usize>,
    sources: Vec<u32>,
}

impl Slots {
    fn of(&mut self, source: SourceId) -> usize {
        *self.by_source.entry(source.0).or_insert_with(|| {
            self.sources.push(source.0);
            self.sources.len() - 1
        })
    }
}

impl Program {
    /// Makes a program ready. `wanted` are the distinct sources whose values a run needs; `resumed` says that the frame is
    /// a resume function's.
    pub fn new(
        py: Python<'_>,
        program: &GuardProgram,
        symbols: &[Symbol],
        wanted: &[u32],
        resumed: bool,
    ) -> Result<Program, String> {
        let torch = Torch::get(py)?;
        let describe = |e: PyErr| format!("a guard cannot be prepared: {e}");
        let steps = source::compile(py, &program.sources).map_err(describe)?;
        let mut slots = Slots::default();
        wanted.iter().for_each(|source| _ = slots.of(SourceId(*source)));
        let mut facts = Vec::with_capacity(program.guards.len());
        let mut tensors = Vec::new();
        for guard in &program.guards {
            let fact = Fact::new(py, torch, &guard.kind, &mut tensors, &mut |s| slots.of(s)).map_err(describe)?;
            facts.push((guard.source.0, fact));
        }
        let roots = group::roots(&steps, &facts, resumed);
        let mut across = Vec::new();
        for (index, (source, fact)) in facts.iter_mut().enumerate() {
            if let Fact::Same(other) | Fact::NotSame(other) = fact
                && let Other::Source(elsewhere) = *other
                && roots[elsewhere as usize] != roots[*source as usize]
            {
                *other = Other::Slot(slots.of(SourceId(elsewhere)));
            }
            if fact.is_across() {
                across.push((index, slots.of(SourceId(*source))));
            }
        }
        let symbols = Symbols::new(symbols, &mut |s| slots.of(s));
        let mut groups = group::by_root(&steps, &facts, &slots.sources, &roots);
        let direct = group::take_direct(&mut groups, &steps, &facts);
        Ok(Program { steps, facts, direct, groups, across, symbols, wanted: wanted.len(), slots: slots.sources, torch })
    }

    /// Fills in the values and symbols of a call that passes; else gives the index of a failing guard, or past the guards
    /// that of a symbol out of its range.
    pub fn check(&self, py: Python<'_>, roots: &Roots<'_>, passed: &mut Passed) -> Result<(), usize> {
        let Passed { slots, wanted, symbols, made } = passed;
        slots.clear();
        slots.resize(self.slots.len(), Slot::new(null_mut()));
        let slots = &mut slots[..];
        for direct in &self.direct {
            direct.check(py, self.torch, roots.args, slots)?;
        }
        let mut values = Values::new(&self.steps, roots, made);
        let shape = Shape { steps: &self.steps, facts: &self.facts };
        for group in &self.groups {
            group.check(py, self.torch, &shape, &mut values, slots)?;
        }
        self.symbols.bind(self.torch, slots, symbols).map_err(|i| self.facts.len() + i)?;
        for (index, slot) in &self.across {
            if !self.facts[*index].1.holds_across(py, self.torch, slots[*slot].object, slots, symbols) {
                return Err(*index);
            }
        }
        *wanted = self.wanted;
        Ok(())
    }
}

impl Program {
    /// Whether one guard holds, for which the others do not matter; true as well where that cannot be said.
    pub fn may_hold(&self, py: Python<'_>, roots: &Roots<'_>, index: usize) -> bool {
        let Some((source, fact)) = self.facts.get(index) else { return true };
        match fact {
            Fact::Ambient(state) => state.holds(py, self.torch),
            fact => !fact.fails_alone(py, self.torch, *source, &mut Values::new(&self.steps, roots, &mut Vec::new())),
        }
    }

    /// What those of its guards are about that compare a tensor or an int, as a call has it, with the guards' indices.
    pub fn sized(&self, py: Python<'_>, roots: &Roots<'_>) -> Vec<(usize, Py<PyAny>)> {
        let mut made = Vec::new();
        let mut values = Values::new(&self.steps, roots, &mut made);
        let sized = |fact: &Fact| match fact {
            Fact::Tensor(_) => true,
            Fact::Equals(constant) => matches!(constant.value, Const::Int(_)),
            _ => false,
        };
        let mut found = Vec::new();
        for (index, (source, _)) in self.facts.iter().enumerate().filter(|(_, (_, fact))| sized(fact)) {
            // The facts on the way there may not hold.
            let value = if values.stands_alone(*source) { own(py, values.get(py, *source)) } else { None };
            found.extend(value.map(|value| (index, value)));
        }
        found
    }
}

#[cfg(feature = "testing")]
impl Program {
    /// Whether each guard holds, all read by value: what [`Program::check`] finds out in another order, and with less.
    pub fn each(&self, py: Python<'_>, roots: &Roots<'_>) -> Vec<bool> {
        let mut made = Vec::new();
        let mut values = Values::new(&self.steps, roots, &mut made);
        let slots: Vec<Slot> = self.slots.iter().map(|source| Slot::new(values.get(py, *source))).collect();
        let mut symbols = Bound::new();
        if self.symbols.bind(self.torch, &slots, &mut symbols).is_err() {
            symbols.clear();
        }
        let holds = |(source, fact): &(u32, Fact)| {
            let value = values.get(py, *source);
            if fact.is_across() {
                fact.holds_across(py, self.torch, value, &slots, &symbols)
            } else {
                fact.holds(py, self.torch, value, &mut values)
            }
        };
        self.facts.iter().map(holds).collect()
    }
}

fn own(py: Python<'_>, value: Raw) -> Option<Py<PyAny>> {
    // SAFETY: a live object or null; the GIL is held.
    unsafe { Py::from_borrowed_ptr_or_opt(py, value) }
}
