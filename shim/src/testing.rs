//! `flambeau._native._testing`: lets Python tests install a compiled frame without a daemon. No user code imports it.

use crate::installed::{InstallContext, Installed, RunError};
use flambeau_ir::plan::CompiledFrame;
use flambeau_wire::from_daemon::{Artifact, Delivery};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::path::PathBuf;

/// A compiled frame, installed for one function.
#[pyclass]
struct TestFrame {
    installed: Installed,
    function: Py<PyAny>,
}

fn pointers(args: &Bound<'_, PyTuple>) -> Vec<*mut pyo3::ffi::PyObject> {
    args.iter().map(|a| a.as_ptr()).collect()
}

#[pymethods]
impl TestFrame {
    /// From the JSON form of a `CompiledFrame` and the bytes of its artifacts.
    #[new]
    #[pyo3(signature = (frame, function, args, artifacts = Vec::new(), fx_backend = None, plugin_dirs = Vec::new()))]
    fn new(
        py: Python<'_>,
        frame: &str,
        function: Bound<'_, PyAny>,
        args: &Bound<'_, PyTuple>,
        artifacts: Vec<Vec<u8>>,
        fx_backend: Option<Py<PyAny>>,
        plugin_dirs: Vec<PathBuf>,
    ) -> PyResult<Self> {
        let frame: CompiledFrame = serde_json::from_str(frame).map_err(|e| PyRuntimeError::new_err(e.to_string()))?;
        let artifacts =
            artifacts.into_iter().map(|bytes| Artifact { hash: *blake3::hash(&bytes).as_bytes(), bytes: bytes.into() });
        let delivery = Delivery { frame: frame.into(), artifacts: artifacts.collect() };
        let context = InstallContext { fx_backend, plugin_dirs };
        let installed = Installed::install(py, delivery, &function, &pointers(args), &context);
        Ok(TestFrame { installed: installed.map_err(PyRuntimeError::new_err)?, function: function.unbind() })
    }

    /// `None` if the guards pass, else the failing one in words.
    #[pyo3(signature = (*args))]
    fn check(&self, py: Python<'_>, args: &Bound<'_, PyTuple>) -> Option<String> {
        let failed = self.installed.check(py, self.function.as_ptr(), &pointers(args)).err()?;
        Some(self.installed.explain_failure(failed))
    }

    /// Runs the frame; `LookupError` if a guard fails, `NotImplementedError` for a fallback.
    #[pyo3(signature = (*args))]
    fn __call__(&self, py: Python<'_>, args: &Bound<'_, PyTuple>) -> PyResult<Py<PyAny>> {
        let args = pointers(args);
        let checked = self
            .installed
            .check(py, self.function.as_ptr(), &args)
            .map_err(|index| pyo3::exceptions::PyLookupError::new_err(self.installed.explain_failure(index)))?;
        self.installed.run(py, checked, self.function.as_ptr(), &args).map_err(|error| match error {
            RunError::Python(error) => error,
            RunError::Wrong(_, Some(error)) => error,
            RunError::Wrong(what, None) => pyo3::exceptions::PyNotImplementedError::new_err(what),
            RunError::Fallback(why) => pyo3::exceptions::PyNotImplementedError::new_err(why),
        })
    }

    /// Nanoseconds of one check, the fastest of `repeats`.
    #[pyo3(signature = (repeats, *args))]
    fn time_check(&self, py: Python<'_>, repeats: u32, args: &Bound<'_, PyTuple>) -> u128 {
        let args = pointers(args);
        let once = || {
            let start = std::time::Instant::now();
            let passed = self.installed.check(py, self.function.as_ptr(), &args).is_ok();
            assert!(passed, "the frame does not pass its guards");
            start.elapsed().as_nanos()
        };
        (0..repeats).map(|_| once()).min().unwrap_or_default()
    }
}

/// Adds the module.
pub fn register(parent: &Bound<'_, PyModule>) -> PyResult<()> {
    let module = PyModule::new(parent.py(), "_testing")?;
    module.add_class::<TestFrame>()?;
    crate::run::inject_failure(std::env::var("FLAMBEAU_TEST_FAIL_STEP").ok().and_then(|step| step.parse().ok()));
    module.add("fail_step", pyo3::wrap_pyfunction!(fail_step, &module)?)?;
    module.add("code_hash", pyo3::wrap_pyfunction!(code_hash, &module)?)?;
    module.add("ambient", pyo3::wrap_pyfunction!(ambient, &module)?)?;
    module.add("snapshot", pyo3::wrap_pyfunction!(snapshot, &module)?)?;
    module.add("snapshot_cost", pyo3::wrap_pyfunction!(snapshot_cost, &module)?)?;
    parent.add_submodule(&module)
}

/// Makes this step of every compiled frame fail; `None` ends it.
#[pyfunction]
#[pyo3(signature = (step))]
fn fail_step(step: Option<usize>) {
    crate::run::inject_failure(step);
}

/// The bytes of a code object's hash.
#[pyfunction]
fn code_hash(py: Python<'_>, code: &Bound<'_, PyAny>) -> Option<Vec<u8>> {
    // SAFETY: `hash` refuses what is no code object.
    unsafe { crate::code::hash(py, code.as_ptr()) }.map(|h| h.0.to_vec())
}

/// The thread's state, as JSON.
#[pyfunction]
fn ambient(py: Python<'_>) -> PyResult<String> {
    let ambient = crate::ambient::capture(py)?;
    serde_json::to_string(&ambient).map_err(|e| PyRuntimeError::new_err(e.to_string()))
}

/// The snapshot of a call of `function`, as JSON.
#[pyfunction]
fn snapshot(function: &Bound<'_, PyAny>, args: &Bound<'_, PyTuple>) -> PyResult<String> {
    let mut describer = crate::snapshot::describe::Describer::new(function.py());
    let options = flambeau_ir::frame::TraceOptions::default();
    let snapshot = crate::snapshot::take(&mut describer, function.as_ptr(), &pointers(args), options, &[])?;
    serde_json::to_string(&snapshot).map_err(|e| PyRuntimeError::new_err(e.to_string()))
}

/// Bytes of the snapshot's message, and seconds for describing and for encoding it.
#[pyfunction]
fn snapshot_cost(function: &Bound<'_, PyAny>, args: &Bound<'_, PyTuple>) -> PyResult<(usize, f64, f64)> {
    let began = std::time::Instant::now();
    let mut describer = crate::snapshot::describe::Describer::new(function.py());
    let options = flambeau_ir::frame::TraceOptions::default();
    let snapshot = crate::snapshot::take(&mut describer, function.as_ptr(), &pointers(args), options, &[])?;
    let described = began.elapsed().as_secs_f64();
    let bytes = flambeau_wire::frame::encode(&snapshot).map_err(|e| PyRuntimeError::new_err(e.to_string()))?;
    Ok((bytes.len(), described, began.elapsed().as_secs_f64() - described))
}
