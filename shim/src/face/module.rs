//! The extension module `flambeau._native`: its functions are what the Python face is made of.

use crate::call::account;
use crate::call::callable;
use crate::call::table::reset_all;
use crate::describe::leaves::MARK;
use crate::face::report;
use crate::link;
use crate::link::backends;
use crate::process::counters;
use crate::process::region;
use crate::process::say;
use crate::process::settings;
use crate::process::settings::Settings;
use crate::torch::Torch;
use flambeau_wire::from_client::{Admin, FromClient, Settings as WireSettings};
use flambeau_wire::from_daemon::FromDaemon;
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// The native half of the `flambeau` package.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    crate::python::layout::check(module.py())?;
    crate::python::observers::listen(module.py());
    crate::guard::watch_setters(module.py());
    crate::process::fork::watch(link::abandon);
    #[cfg(feature = "testing")]
    crate::face::testing::register(module)?;
    module.add("Compiled", callable::class(module.py())?)?;
    module.add_class::<crate::face::plugin::Plugin>()?;
    module.add_function(wrap_pyfunction!(admin, module)?)?;
    module.add_function(wrap_pyfunction!(asked_of_torch, module)?)?;
    module.add_function(wrap_pyfunction!(configure, module)?)?;
    module.add_function(wrap_pyfunction!(count_report, module)?)?;
    module.add_function(wrap_pyfunction!(explain_data, module)?)?;
    module.add_function(wrap_pyfunction!(mark_dynamic, module)?)?;
    module.add_function(wrap_pyfunction!(plugins, module)?)?;
    module.add_function(wrap_pyfunction!(reset, module)?)?;
    module.add_function(wrap_pyfunction!(region::set_error_on_break, module)?)?;
    module.add_function(wrap_pyfunction!(region::set_nested_breaks, module)?)?;
    module.add_function(wrap_pyfunction!(crate::python::view::call_natively, module)?)?;
    module.add_function(wrap_pyfunction!(warm_up, module)?)
}

/// Sets what `flambeau.config` resolved.
#[pyfunction]
#[pyo3(signature = (
    *, accumulated_recompile_limit, cache_dir, cache_size, data_dir, idle_timeout, library_path, logs, native_training, nested_graph_breaks, plugin_path, recompile_limit,
    record_dir, timeout
))]
#[expect(clippy::too_many_arguments, reason = "keyword arguments, one per setting")]
fn configure(
    accumulated_recompile_limit: usize,
    cache_dir: PathBuf,
    cache_size: f64,
    data_dir: PathBuf,
    idle_timeout: f64,
    library_path: Vec<PathBuf>,
    logs: &str,
    native_training: bool,
    nested_graph_breaks: bool,
    plugin_path: Vec<PathBuf>,
    recompile_limit: usize,
    record_dir: Option<PathBuf>,
    timeout: f64,
) {
    region::set_default(nested_graph_breaks);
    // The daemon runs in `/`: only absolute paths mean the same to both.
    let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
    let all_absolute = |paths: Vec<PathBuf>| paths.into_iter().map(absolute).collect();
    let changed = settings::set(Settings {
        wire: WireSettings {
            cache_dir: absolute(cache_dir),
            cache_size: cache_size as u64,
            plugin_path: all_absolute(plugin_path),
            library_path: all_absolute(library_path),
            data_dir: absolute(data_dir),
            record_dir: record_dir.map(absolute),
        },
        idle_timeout: idle_timeout as u64,
        recompile_limit,
        accumulated_recompile_limit,
        native_training,
        timeout: Duration::from_secs_f64(timeout.clamp(0.0, 1e9)),
        logs: logs.split(',').map(|t| t.trim().to_owned()).filter(|t| !t.is_empty()).collect(),
    });
    if changed {
        link::disconnect();
        backends::changed();
    }
}

/// Connects to the daemon in the background.
#[pyfunction]
fn warm_up() {
    link::warm_up();
}

/// What this process did.
#[pyfunction(name = "counters")]
fn count_report(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    counters::report(py)
}

/// What of tensors is not read in place in this process but asked of torch.
#[pyfunction]
fn asked_of_torch(py: Python<'_>) -> PyResult<Vec<&'static str>> {
    Torch::get(py).map(Torch::asked).map_err(PyRuntimeError::new_err)
}

/// The folders of the plug-ins that are known here, by name.
#[pyfunction]
fn plugins(py: Python<'_>) -> BTreeMap<String, PathBuf> {
    backends::plugins(py)
}

/// Forgets compiled frames, counts and warnings given.
#[pyfunction]
fn reset(py: Python<'_>) {
    reset_all();
    account::forget();
    counters::reset(py);
    say::reset(py);
}

/// A report of the daemon as JSON; `None` for `status` and `stop` if none runs.
#[pyfunction]
fn admin(py: Python<'_>, command: &str) -> PyResult<Option<String>> {
    let admin = Admin::try_from(command.to_owned()).map_err(PyValueError::new_err)?;
    let starts_none = matches!(admin, Admin::Status | Admin::Stop);
    if starts_none && !link::daemon_runs() {
        return Ok(None);
    }
    link::forget_failures();
    let request = link::next_request();
    let answer = link::send(py, request, &FromClient::Admin { request, command: admin }).and_then(|mut p| p.wait(py));
    match answer {
        Ok(FromDaemon::Report { json, .. }) => Ok(Some(json)),
        Ok(other) => Err(PyRuntimeError::new_err(format!("the daemon answered {other:?}"))),
        Err(link::LinkError::Interrupted(error)) => Err(error),
        Err(_) if starts_none && !link::daemon_listens() => Ok(None),
        Err(link::LinkError::Unavailable(cause, detail)) => Err(PyRuntimeError::new_err(format!("{cause}: {detail}"))),
    }
}

/// What was compiled for a callable, as JSON.
#[pyfunction]
fn explain_data(compiled: &Bound<'_, PyAny>) -> PyResult<String> {
    let py = compiled.py();
    let entry = callable::entry_of(py, compiled).ok_or_else(|| PyTypeError::new_err("expected a Compiled object"))?;
    Ok(report::explanation(py, entry).to_string())
}

/// Notes on a tensor that one of its sizes is to be symbolic.
#[pyfunction]
#[pyo3(signature = (tensor, dim, minimum, maximum))]
fn mark_dynamic(tensor: &Bound<'_, PyAny>, dim: u32, minimum: Option<i64>, maximum: Option<i64>) -> PyResult<()> {
    let mut marks: BTreeMap<u32, (i64, i64)> = match tensor.getattr_opt(MARK)? {
        Some(marks) => marks.extract()?,
        None => BTreeMap::new(),
    };
    marks.insert(dim, (minimum.unwrap_or(2).max(2), maximum.unwrap_or(i64::MAX)));
    tensor.setattr(MARK, marks)
}
