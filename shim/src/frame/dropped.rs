//! Gradients that a frame sets to `None` before it calls torch: they are given up before its graph runs, as in eager code, where
//! their memory serves what is called.

use crate::guard::Kept;
use flambeau_ir::exit::{Build, Effect, Exit};
use flambeau_ir::source::{SourceId, SourceTable, Step};
use pyo3::prelude::*;
use std::collections::HashSet;

/// The slots of the leaves whose gradients go.
pub struct Dropped(Vec<usize>);

impl Dropped {
    /// Those of an exit. `slot` gives the place of a source's value, where a run reads it.
    pub fn new(exit: &Exit, sources: &SourceTable, slot: &dyn Fn(SourceId) -> Option<usize>) -> Dropped {
        let gradients = (0..).map(SourceId).zip(sources.nodes()).filter(|(_, node)| node.step == Step::Grad);
        let read: HashSet<SourceId> =
            gradients.filter(|(gradient, _)| slot(*gradient).is_some()).filter_map(|(_, node)| node.base).collect();
        let leaf = |effect: &Effect| {
            let Effect::DropGrad(tensor) = effect else { return None };
            let Build::Source(leaf) = exit.builds.get(tensor.0 as usize)? else { return None };
            slot(*leaf).filter(|_| !read.contains(leaf))
        };
        Dropped(exit.effects.iter().filter_map(leaf).collect())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Gives them up.
    pub fn give_up(&self, py: Python<'_>, values: &Kept) -> PyResult<()> {
        self.leaves(py, values).try_for_each(|leaf| leaf.setattr("grad", py.None()))
    }

    /// After a failure, where the original code runs from its beginning: what it finds is what the frame was compiled for. It
    /// reads nothing of it before it gives it up in turn.
    pub fn stand_in(&self, py: Python<'_>, values: &Kept) -> PyResult<()> {
        let zeros = crate::python::paths::resolve(py, "torch.zeros_like")?;
        self.leaves(py, values).try_for_each(|leaf| leaf.setattr("grad", zeros.call1((&leaf,))?))
    }

    fn leaves<'py>(&self, py: Python<'py>, values: &Kept) -> impl Iterator<Item = Bound<'py, PyAny>> {
        self.0.iter().filter_map(move |slot| values.get(*slot)?.as_ref().map(|leaf| leaf.bind(py).clone()))
    }
}
