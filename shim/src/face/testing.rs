//! `flambeau._native._testing`: lets Python tests install a compiled frame without a daemon. No user code imports it.

use crate::call::callable;
use crate::call::entry::Entry;
use crate::call::table::{Frame, Table};
use crate::exit::{Codes, Left, Onward};
use crate::frame::installed::{InstallContext, Installed, RunError};
use crate::frame::record::Record;
use crate::guard::Passed;
use crate::link::backends::Wanted;
use crate::python::gil::GilCell;
use crate::torch::Torch;
use crate::torch::outside::{tick, ticks};
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
        let context = InstallContext { codes: &Codes::default(), fx_backend, plugin_dirs, records: false };
        let installed = Installed::install(py, delivery, &function, &pointers(args), &context);
        Ok(TestFrame { installed: installed.map_err(PyRuntimeError::new_err)?, function: function.unbind() })
    }

    /// `None` if the guards pass, else the failing one in words.
    #[pyo3(signature = (*args))]
    fn check(&self, py: Python<'_>, args: &Bound<'_, PyTuple>) -> Option<String> {
        let failed = self.installed.check(py, self.function.as_ptr(), &pointers(args), &mut Passed::default()).err()?;
        Some(self.installed.explain_failure(failed))
    }

    /// Runs the frame; `LookupError` if a guard fails, `NotImplementedError` for a fallback. After a graph break the resume
    /// function runs as plain Python.
    #[pyo3(signature = (*args))]
    fn __call__(&self, py: Python<'_>, args: &Bound<'_, PyTuple>) -> PyResult<Py<PyAny>> {
        let args = pointers(args);
        let mut passed = Passed::default();
        self.installed
            .check(py, self.function.as_ptr(), &args, &mut passed)
            .map_err(|index| pyo3::exceptions::PyLookupError::new_err(self.installed.explain_failure(index)))?;
        let left =
            self.installed.run(py, &mut passed, self.function.as_ptr(), &args).map_err(|error| match *error {
                RunError::Python(error) => error,
                RunError::Wrong(_, Some(error)) => error,
                RunError::Wrong(what, None) => pyo3::exceptions::PyNotImplementedError::new_err(what),
                RunError::MayRaise(why) => pyo3::exceptions::PyNotImplementedError::new_err(why),
                RunError::LargeInt => pyo3::exceptions::PyNotImplementedError::new_err("a large int"),
                RunError::Fallback(why) | RunError::Raised(why) => {
                    pyo3::exceptions::PyNotImplementedError::new_err(why)
                }
            })?;
        match left {
            Left::Value(value) => Ok(value),
            Left::Broken(broken) => match broken.act(py)? {
                Onward::Value(value) => Ok(value),
                Onward::Next(next) => next.call(py),
            },
        }
    }

    /// Nanoseconds of one check, the fastest of `repeats`.
    #[pyo3(signature = (repeats, *args))]
    fn time_check(&self, py: Python<'_>, repeats: u32, args: &Bound<'_, PyTuple>) -> u128 {
        let args = pointers(args);
        let once = || {
            let start = std::time::Instant::now();
            let passed = self.installed.check(py, self.function.as_ptr(), &args, &mut Passed::default()).is_ok();
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
    module.add("code_json", pyo3::wrap_pyfunction!(code_json, &module)?)?;
    module.add("same_code", pyo3::wrap_pyfunction!(same_code, &module)?)?;
    module.add("put", pyo3::wrap_pyfunction!(put, &module)?)?;
    module.add("put_below", pyo3::wrap_pyfunction!(put_below, &module)?)?;
    module.add("ambient", pyo3::wrap_pyfunction!(ambient, &module)?)?;
    module.add("guards", pyo3::wrap_pyfunction!(crate::face::testing_facts::guards, &module)?)?;
    module.add("snapshot", pyo3::wrap_pyfunction!(snapshot, &module)?)?;
    module.add("snapshot_cost", pyo3::wrap_pyfunction!(snapshot_cost, &module)?)?;
    module.add("measure_outside", pyo3::wrap_pyfunction!(measure_outside, &module)?)?;
    module.add("empty_section", pyo3::wrap_pyfunction!(empty_section, &module)?)?;
    module.add("leave_out", pyo3::wrap_pyfunction!(leave_out, &module)?)?;
    module.add("leave_nothing_out", pyo3::wrap_pyfunction!(leave_nothing_out, &module)?)?;
    module.add("time_guards", pyo3::wrap_pyfunction!(time_guards, &module)?)?;
    module.add("time_calls", pyo3::wrap_pyfunction!(time_calls, &module)?)?;
    module.add("time_steps", pyo3::wrap_pyfunction!(time_steps, &module)?)?;
    module.add("step_times", pyo3::wrap_pyfunction!(step_times, &module)?)?;
    crate::face::testing_hostile::register(&module)?;
    parent.add_submodule(&module)
}

/// Starts or stops counting the time that native plans spend in kernels and torch: nanoseconds and sections since then.
#[pyfunction]
fn measure_outside(on: bool) -> (f64, u64) {
    crate::torch::outside::measure(on)
}

/// Whether each step of the native plans that are made ready from now on is timed.
#[pyfunction]
fn time_steps(on: bool) {
    crate::run::times::time_steps(on);
}

/// Of each such plan its steps in order: what it is, nanoseconds, how often it ran, since this was last asked.
#[pyfunction]
fn step_times() -> Vec<Vec<(String, f64, u64)>> {
    let tick = tick();
    let in_time = |(step, ticks, runs): (String, u64, u64)| (step, ticks as f64 * tick, runs);
    crate::run::times::taken().into_iter().map(|plan| plan.into_iter().map(in_time).collect()).collect()
}

/// Nanoseconds that an empty one of these sections counts, and nanoseconds that it takes, timed and left out.
#[pyfunction]
fn empty_section() -> (f64, f64, f64) {
    let empty = crate::torch::outside::of_nothing();
    (empty.counted, empty.timed, empty.left_out)
}

/// Makes one call with what its native plans do outside of flambeau on record. Until `leave_nothing_out`, this thread's calls
/// of the same kind leave kernels and torch out and get what they made then: nothing but such calls may be made meanwhile.
#[pyfunction]
#[pyo3(signature = (callable, *args))]
fn leave_out(callable: &Bound<'_, PyAny>, args: &Bound<'_, PyTuple>) -> PyResult<()> {
    crate::torch::outside::leave_out(Torch::get(callable.py()).ok(), || callable.call1(args).map(drop))
}

/// Ends it.
#[pyfunction]
fn leave_nothing_out() {
    crate::torch::outside::leave_nothing_out();
}

/// Nanoseconds of a call of any callable, over `repeats` of them; what freeing its results takes is left out.
#[pyfunction]
#[pyo3(signature = (repeats, callable, *args))]
fn time_calls(repeats: u32, callable: &Bound<'_, PyAny>, args: &Bound<'_, PyTuple>) -> PyResult<f64> {
    let args = pointers(args);
    let mut spent = 0;
    for _ in 0..repeats {
        let begun = ticks();
        // SAFETY: live objects, kept by the caller.
        let made = unsafe {
            pyo3::ffi::PyObject_Vectorcall(callable.as_ptr(), args.as_ptr(), args.len(), std::ptr::null_mut())
        };
        spent += ticks() - begun;
        // SAFETY: a new reference, or null and an error.
        drop(unsafe { Bound::from_owned_ptr_or_err(callable.py(), made)? });
    }
    Ok(spent as f64 * tick() / f64::from(repeats))
}

/// Nanoseconds of one check of the guards of the frame of a compiled function that was compiled last, over `repeats` of
/// them; `args` are those of the function, by position.
#[pyfunction]
#[pyo3(signature = (repeats, compiled, *args))]
fn time_guards(repeats: u32, compiled: &Bound<'_, PyAny>, args: &Bound<'_, PyTuple>) -> PyResult<f64> {
    let (py, args) = (compiled.py(), pointers(args));
    let entry = callable::entry_of(py, compiled);
    let frame = entry.and_then(|entry| entry.root().borrow(py).frames.first().map(|frame| frame.installed.clone()));
    let frame = frame.ok_or_else(|| PyRuntimeError::new_err("expected a function that was compiled"))?;
    let function = compiled.getattr("__wrapped__")?;
    let mut passed = Passed::default();
    let begun = ticks();
    for _ in 0..repeats {
        frame
            .check(py, function.as_ptr(), &args, &mut passed)
            .map_err(|index| pyo3::exceptions::PyLookupError::new_err(frame.explain_failure(index)))?;
    }
    Ok((ticks() - begun) as f64 * tick() / f64::from(repeats))
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
    unsafe { crate::python::code::hash(py, code.as_ptr()) }.map(|h| h.0.to_vec())
}

/// A code object as exits hold it, as JSON.
#[pyfunction]
fn code_json(py: Python<'_>, code: &Bound<'_, PyAny>) -> PyResult<String> {
    // SAFETY: `encode` refuses what is no code object.
    let code = unsafe { crate::python::code::encode(py, code.as_ptr()) }
        .ok_or_else(|| PyRuntimeError::new_err("no encoding"))?;
    serde_json::to_string(&*code).map_err(|e| PyRuntimeError::new_err(e.to_string()))
}

/// A new code object with the content of `code`, as an exit makes it.
#[pyfunction]
fn same_code(py: Python<'_>, code: &Bound<'_, PyAny>) -> PyResult<Option<Py<PyAny>>> {
    // SAFETY: `encode` refuses what is no code object.
    let Some(encoded) = (unsafe { crate::python::code::encode(py, code.as_ptr()) }) else { return Ok(None) };
    let holds_none = py.eval(c"lambda: 0", None, None)?;
    Codes::default().object(py, &encoded, &holds_none).map(Some)
}

/// Gives a compiled function a frame for `function`: itself, or a resume function. `frame` is the JSON form.
#[pyfunction]
#[pyo3(signature = (compiled, frame, function, *args))]
fn put(
    compiled: &Bound<'_, PyAny>,
    frame: &str,
    function: &Bound<'_, PyAny>,
    args: &Bound<'_, PyTuple>,
) -> PyResult<()> {
    let py = compiled.py();
    let (entry, frame) = installed(compiled, frame, function, args)?;
    let code = function.getattr("__code__")?;
    if compiled.getattr("__wrapped__")?.is(function) {
        add(py, entry.root(), &code, &entry.backend, frame);
        return Ok(());
    }
    // SAFETY: a live code object.
    let encoded = unsafe { crate::python::code::encode(py, code.as_ptr()) };
    let encoded = encoded.ok_or_else(|| PyRuntimeError::new_err("the code has no encoding"))?;
    let shared = entry.codes.object(py, &encoded, function)?;
    add(py, &entry.resumed(py, encoded.hash, &[], &entry.account(py)), shared.bind(py), &entry.backend, frame);
    Ok(())
}

/// As [`put`], for a function that plain Python calls below a break.
#[pyfunction]
#[pyo3(signature = (compiled, frame, function, *args))]
fn put_below(
    compiled: &Bound<'_, PyAny>,
    frame: &str,
    function: &Bound<'_, PyAny>,
    args: &Bound<'_, PyTuple>,
) -> PyResult<()> {
    let py = compiled.py();
    let (entry, frame) = installed(compiled, frame, function, args)?;
    let code = function.getattr("__code__")?;
    add(py, &entry.for_discovered(py, code.as_ptr()), &code, &entry.backend, frame);
    Ok(())
}

fn installed<'a>(
    compiled: &'a Bound<'_, PyAny>,
    frame: &str,
    function: &Bound<'_, PyAny>,
    args: &Bound<'_, PyTuple>,
) -> PyResult<(&'a Entry, Frame)> {
    let py = compiled.py();
    let entry =
        callable::entry_of(py, compiled).ok_or_else(|| PyRuntimeError::new_err("expected a Compiled object"))?;
    let frame: CompiledFrame = serde_json::from_str(frame).map_err(|e| PyRuntimeError::new_err(e.to_string()))?;
    let delivery = Delivery { frame: frame.into(), artifacts: Vec::new() };
    let context = InstallContext { codes: &entry.codes, fx_backend: None, plugin_dirs: Vec::new(), records: false };
    let installed = Installed::install(py, delivery, function, &pointers(args), &context);
    let installed = crate::python::gil::Shared::new(installed.map_err(PyRuntimeError::new_err)?);
    // Frames without ops are of no use below a break.
    Ok((entry, Frame::new(installed, Record { ops: 1, ..Record::default() })))
}

fn add(py: Python<'_>, table: &GilCell<Table>, code: &Bound<'_, PyAny>, wanted: &Wanted, frame: Frame) {
    // SAFETY: a live code object.
    unsafe { Table::signature(table, py, code.as_ptr(), wanted) };
    table.borrow(py).frames.insert(0, frame);
}

/// The thread's state, as JSON.
#[pyfunction]
fn ambient(py: Python<'_>) -> PyResult<String> {
    let ambient = crate::torch::ambient::capture(py)?;
    serde_json::to_string(&ambient).map_err(|e| PyRuntimeError::new_err(e.to_string()))
}

/// The snapshot of a call of `function`, as JSON.
#[pyfunction]
fn snapshot(function: &Bound<'_, PyAny>, args: &Bound<'_, PyTuple>) -> PyResult<String> {
    let mut describer = crate::describe::snapshot::describe::Describer::new(function.py());
    let options = flambeau_ir::frame::TraceOptions::default();
    let snapshot = crate::describe::snapshot::take(&mut describer, function.as_ptr(), &pointers(args), options, &[])?;
    serde_json::to_string(&snapshot).map_err(|e| PyRuntimeError::new_err(e.to_string()))
}

/// Bytes of the snapshot's message, and seconds for describing and for encoding it.
#[pyfunction]
fn snapshot_cost(function: &Bound<'_, PyAny>, args: &Bound<'_, PyTuple>) -> PyResult<(usize, f64, f64)> {
    let began = std::time::Instant::now();
    let mut describer = crate::describe::snapshot::describe::Describer::new(function.py());
    let options = flambeau_ir::frame::TraceOptions::default();
    let snapshot = crate::describe::snapshot::take(&mut describer, function.as_ptr(), &pointers(args), options, &[])?;
    let described = began.elapsed().as_secs_f64();
    let bytes = flambeau_wire::frame::encode(&snapshot).map_err(|e| PyRuntimeError::new_err(e.to_string()))?;
    Ok((bytes.len(), described, began.elapsed().as_secs_f64() - described))
}
