//! The CPU's default generator: what a body drew before it failed is taken back, so that plain Python draws the same.

use super::Failure;
use crate::python::paths;
use pyo3::prelude::*;

/// Runs a body. If it fails before its commit point, the generator is as it was.
pub fn restoring(py: Python<'_>, run: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    let saved = (|| {
        let generator = paths::resolve(py, "torch.default_generator")?;
        let state = generator.call_method0("get_state")?;
        PyResult::Ok((generator, state))
    })();
    let (generator, state) = saved.map_err(|error| Failure::Before(error.to_string()))?;
    let done = run();
    if let Err(Failure::Before(_) | Failure::Raised(_) | Failure::Wrong(_, None)) = &done {
        generator.call_method1("set_state", (state,)).map_err(Failure::After)?;
    }
    done
}
