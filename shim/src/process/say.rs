//! Warnings (once per cause) and the log topics of `FLAMBEAU_LOGS`.

use crate::process::settings;
use crate::python::gil::GilCell;
use pyo3::exceptions::PyRuntimeWarning;
use pyo3::prelude::*;
use std::collections::BTreeSet;
use std::ffi::CString;

static SAID: GilCell<BTreeSet<String>> = GilCell::new(BTreeSet::new());

/// Warns unless `cause` was warned of before in this process. A filter that turns warnings into errors does not change
/// what the program computes: the text goes to standard error then.
pub fn warn_once(py: Python<'_>, cause: &str, text: &str) {
    if !SAID.borrow(py).insert(cause.to_owned()) {
        return;
    }
    let message = CString::new(text.replace('\0', "?")).unwrap_or_default();
    let category = py.get_type::<PyRuntimeWarning>();
    if PyErr::warn(py, &category, &message, 1).is_err() {
        eprintln!("flambeau: {text}");
    }
}

/// Prints under a topic that is switched on.
pub fn log(topic: &str, text: impl FnOnce() -> String) {
    if settings::get().logs(topic) {
        for line in text().lines() {
            eprintln!("[flambeau {topic}] {line}");
        }
    }
}

/// As [`log`], unless `cause` was printed under the topic before.
pub fn log_once(py: Python<'_>, topic: &str, cause: &str, text: impl FnOnce() -> String) {
    if settings::get().logs(topic) && SAID.borrow(py).insert(format!("{topic}:{cause}")) {
        log(topic, text);
    }
}

/// Warnings may be given again.
pub fn reset(py: Python<'_>) {
    SAID.borrow(py).clear();
}
