//! The end of a compiled frame: objects are made, changes that the user can see are replayed in program order, the result
//! is returned. None of it runs user code, except finalisers of what is replaced, as in eager; what a frame that ends in a
//! graph break runs then is in [`broken`].

pub mod assembled;
mod broken;
mod build;
mod codes;
mod effect;
mod function;

pub use broken::{Broken, Next, Onward};
pub use codes::Codes;

use crate::guard::Expr;
use flambeau_ir::exit::{Build, End, Exit};
use flambeau_ir::source::SourceId;
use pyo3::prelude::*;
use smallvec::SmallVec;

/// An exit with its constants, paths and code made into objects.
pub struct Ending {
    builds: Vec<build::Make>,
    effects: Vec<effect::Change>,
    end: End,
    /// Ints that are computed from symbols.
    ints: Vec<Expr>,
}

/// A frame's value that is there before the exit.
pub enum Plain {
    /// A graph output.
    Output(usize),
    /// In [`Given::values`].
    Value(usize),
    /// The same in every call.
    Object(Py<PyAny>),
}

/// What a frame left once its effects were replayed.
pub enum Left {
    /// Its value.
    Value(Py<PyAny>),
    /// A graph break to go on from.
    Broken(Box<Broken>),
}

/// The objects that an exit makes, by id.
pub type Made = SmallVec<[Py<PyAny>; 8]>;

/// What an exit may refer to.
pub struct Given<'a> {
    /// Values of sources, by slot.
    pub values: &'a [Option<Py<PyAny>>],
    /// By symbol id.
    pub symbols: &'a [i64],
    /// The graph's outputs.
    pub outputs: &'a [Py<PyAny>],
}

impl Ending {
    /// Makes an exit ready. `slot` gives the place of a source's value in [`Given::values`].
    pub fn new(
        py: Python<'_>,
        exit: &Exit,
        function: &Bound<'_, PyAny>,
        codes: &Codes,
        slot: &dyn Fn(SourceId) -> usize,
    ) -> Result<Ending, String> {
        let builds =
            exit.builds.iter().map(|b| build::Make::new(py, b, function, codes, slot)).collect::<PyResult<_>>();
        let effects = exit.effects.iter().map(|e| effect::Change::new(py, e)).collect();
        Ok(Ending {
            builds: builds.map_err(|e| format!("the exit cannot be prepared: {e}"))?,
            effects,
            end: exit.end.clone(),
            ints: exit.builds.iter().filter_map(computed).collect(),
        })
    }

    /// The frame's value, if the exit makes nothing and does nothing.
    pub fn plain(&self, py: Python<'_>) -> Option<Plain> {
        match (&self.builds[..], &self.effects[..], &self.end) {
            ([build::Make::Output(i)], [], End::Return(_)) => Some(Plain::Output(*i)),
            ([build::Make::Value(slot)], [], End::Return(_)) => Some(Plain::Value(*slot)),
            ([build::Make::Object(object)], [], End::Return(_)) => Some(Plain::Object(object.clone_ref(py))),
            _ => None,
        }
    }

    /// Whether every int that the frame leaves can be computed for these symbols; Python's ints have no largest.
    pub fn fits(&self, symbols: &[i64]) -> bool {
        self.ints.iter().all(|int| int.eval(symbols).is_some())
    }

    /// Makes all objects; nothing the user can see happens.
    pub fn build(&self, py: Python<'_>, given: &Given<'_>, made: &mut Made) -> PyResult<()> {
        for make in &self.builds {
            let object = make.run(py, given, made)?;
            made.push(object);
        }
        Ok(())
    }

    /// Replays the effects and gives what is left.
    pub fn finish(&self, py: Python<'_>, made: &[Py<PyAny>]) -> PyResult<Left> {
        for change in &self.effects {
            change.run(py, made)?;
        }
        Ok(match &self.end {
            End::Nothing => Left::Value(py.None()),
            End::Return(id) => Left::Value(made[id.0 as usize].clone_ref(py)),
            End::Break(end) => Left::Broken(Box::new(Broken::new(py, end, made))),
            End::Refused(reason) => {
                return Err(pyo3::exceptions::PyRuntimeError::new_err(format!(
                    "a refused frame was run: {}",
                    reason.detail
                )));
            }
        })
    }
}

/// The sources that an exit reads.
pub fn sources(exit: &Exit) -> impl Iterator<Item = SourceId> {
    exit.builds.iter().filter_map(|build| match build {
        Build::Source(source) => Some(*source),
        Build::Function { globals, .. } => Some(*globals),
        _ => None,
    })
}

fn computed(build: &Build) -> Option<Expr> {
    let Build::Dim(dim) = build else { return None };
    Some(dim.into()).filter(|expr| matches!(expr, Expr::Dim(_)))
}

/// A symbolic int as an object.
fn int(py: Python<'_>, dim: &Expr, symbols: &[i64]) -> PyResult<Py<PyAny>> {
    let value = dim.eval(symbols).ok_or_else(|| pyo3::exceptions::PyZeroDivisionError::new_err("size expression"))?;
    Ok(value.into_pyobject(py)?.into_any().unbind())
}
