//! Executors: what runs between guards and exit. `eager` runs a torch-level graph op by op, `fx` through a compiled
//! `GraphModule`, `native` a launch plan, `recorded` one that is recorded and replayed.

pub mod args;
pub mod eager;
pub mod fx;
mod generator;
pub mod native;
mod prepare;
pub mod recorded;
pub mod step;
pub mod times;
mod traceback;
pub mod training;

use pyo3::prelude::*;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a graph gives.
pub type Outputs = SmallVec<[Py<PyAny>; 4]>;

/// A failure in a body.
pub enum Failure {
    /// Before the commit point: nothing that the user can see happened.
    Before(String),
    /// As `Before`: an op raised this.
    Raised(String),
    /// After it, or an interrupt: raise this.
    After(PyErr),
    /// The frame must not be used again, for this reason; the error is to be raised where the call cannot be taken back.
    Wrong(String, Option<PyErr>),
}

/// Decides what a failing step means. Interrupts and exits are raised wherever they come.
pub fn failure(py: Python<'_>, error: PyErr, committed: bool) -> Failure {
    if committed || !error.is_instance_of::<pyo3::exceptions::PyException>(py) {
        Failure::After(error)
    } else {
        Failure::Raised(error.to_string())
    }
}

/// The step that tests make fail.
static FAIL_STEP: AtomicUsize = AtomicUsize::new(usize::MAX);

/// The step of every body that fails, for tests.
pub fn injected_failure() -> Option<usize> {
    let step = if cfg!(feature = "testing") { FAIL_STEP.load(Ordering::Relaxed) } else { usize::MAX };
    Some(step).filter(|step| *step != usize::MAX)
}

/// Makes this step of every body fail from now on.
#[cfg(feature = "testing")]
pub fn inject_failure(step: Option<usize>) {
    FAIL_STEP.store(step.unwrap_or(usize::MAX), Ordering::Relaxed);
}
