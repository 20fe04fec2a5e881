//! The end of a compiled frame: objects are made, changes that the user can see are replayed in program order, the result
//! is returned. None of it runs user code, except finalisers of what is replaced, as in eager.

mod build;
mod effect;
mod function;

use crate::guard::Expr;
use flambeau_ir::exit::{Build, Effect, End, Exit};
use flambeau_ir::source::SourceId;
use pyo3::prelude::*;

/// An exit with its constants, paths and code made into objects.
pub struct Ending {
    builds: Vec<build::Make>,
    effects: Vec<effect::Change>,
    result: Option<usize>,
}

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
        slot: &dyn Fn(SourceId) -> usize,
    ) -> Result<Ending, String> {
        let builds = exit.builds.iter().map(|b| build::Make::new(py, b, function, slot)).collect::<PyResult<_>>();
        let effects = exit.effects.iter().map(|e| effect::Change::new(py, e)).collect();
        Ok(Ending {
            builds: builds.map_err(|e| format!("the exit cannot be prepared: {e}"))?,
            effects,
            result: match exit.end {
                End::Return(id) => Some(id.0 as usize),
                End::Nothing | End::Break(_) => None,
            },
        })
    }

    /// Makes all objects; nothing the user can see happens.
    pub fn build(&self, py: Python<'_>, given: &Given<'_>) -> PyResult<Vec<Py<PyAny>>> {
        let mut made: Vec<Py<PyAny>> = Vec::with_capacity(self.builds.len());
        for make in &self.builds {
            let object = make.run(py, given, &made)?;
            made.push(object);
        }
        Ok(made)
    }

    /// Replays the effects and gives the result.
    pub fn finish(&self, py: Python<'_>, made: &[Py<PyAny>]) -> PyResult<Py<PyAny>> {
        for change in &self.effects {
            change.run(py, made)?;
        }
        Ok(self.result.and_then(|i| made.get(i)).map_or_else(|| py.None(), |object| object.clone_ref(py)))
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

/// The graph output that is the frame's whole result, if the exit does nothing else.
pub fn plain_output(exit: &Exit) -> Option<u32> {
    match (&exit.builds[..], &exit.effects[..] as &[Effect], &exit.end) {
        ([Build::Output(i)], [], End::Return(id)) if id.0 == 0 => Some(*i),
        _ => None,
    }
}

/// A symbolic int as an object.
fn int(py: Python<'_>, dim: &Expr, symbols: &[i64]) -> PyResult<Py<PyAny>> {
    let value = dim.eval(symbols).ok_or_else(|| pyo3::exceptions::PyZeroDivisionError::new_err("size expression"))?;
    Ok(value.into_pyobject(py)?.into_any().unbind())
}
