//! What this process did, for `flambeau.counters()`.

use crate::python::gil::GilCell;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts by name, in groups.
#[derive(Default)]
struct Counters {
    plain: BTreeMap<&'static str, u64>,
    graph_breaks: BTreeMap<String, u64>,
    eager_fallbacks: BTreeMap<String, u64>,
    eager_graph_reasons: BTreeMap<String, u64>,
    unrecorded: BTreeMap<String, u64>,
    cache_hits: BTreeMap<&'static str, u64>,
    cache_misses: BTreeMap<&'static str, u64>,
}

static COUNTERS: GilCell<Option<Counters>> = GilCell::new(None);
/// Calls served by a compiled frame of this process; apart because every call counts.
static PROCESS_HITS: AtomicU64 = AtomicU64::new(0);

/// Always present in the report.
const PLAIN: &[&str] = &[
    "graphs",
    "ops",
    "frames_traced",
    "recompiles",
    "eager_graph",
    "fake_tensor_calls",
    "recompile_limit_hits",
    "left_alone",
    "backend_moves",
    "recordings",
    "replays",
];

fn with(py: Python<'_>, change: impl FnOnce(&mut Counters)) {
    change(COUNTERS.borrow(py).get_or_insert_default());
}

/// Adds one.
pub fn bump(py: Python<'_>, name: &'static str) {
    add(py, name, 1);
}

/// Adds `n`.
pub fn add(py: Python<'_>, name: &'static str, n: u64) {
    with(py, |c| *c.plain.entry(name).or_default() += n);
}

/// A call that was not compiled because of what the program does.
pub fn graph_break(py: Python<'_>, reason: &str) {
    with(py, |c| *c.graph_breaks.entry(reason.to_owned()).or_default() += 1);
}

/// A call that ran eagerly because flambeau could not serve it.
pub fn eager_fallback(py: Python<'_>, reason: &str) {
    with(py, |c| *c.eager_fallbacks.entry(reason.to_owned()).or_default() += 1);
}

/// A graph that runs op by op although a native back end was asked for.
pub fn eager_graph(py: Python<'_>, reason: &str) {
    with(py, |c| *c.eager_graph_reasons.entry(reason.to_owned()).or_default() += 1);
    bump(py, "eager_graph");
}

/// A plan that is run although it was to be recorded.
pub fn unrecorded(py: Python<'_>, reason: &str) {
    with(py, |c| *c.unrecorded.entry(reason.to_owned()).or_default() += 1);
}

/// A look-up that found something usable in this tier.
pub fn cache_hit(py: Python<'_>, tier: &'static str) {
    with(py, |c| *c.cache_hits.entry(tier).or_default() += 1);
}

/// A look-up that found nothing usable in this tier.
pub fn cache_miss(py: Python<'_>, tier: &'static str) {
    with(py, |c| *c.cache_misses.entry(tier).or_default() += 1);
}

/// A call served by a frame that was installed already.
pub fn process_hit(_py: Python<'_>) {
    // With the GIL held, so no other thread comes between.
    PROCESS_HITS.store(PROCESS_HITS.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// All zero again.
pub fn reset(py: Python<'_>) {
    *COUNTERS.borrow(py) = None;
    PROCESS_HITS.store(0, Ordering::Relaxed);
}

/// The report.
pub fn report(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let report = PyDict::new(py);
    let mut counters = COUNTERS.borrow(py);
    let counters = counters.get_or_insert_default();
    for name in PLAIN {
        report.set_item(name, counters.plain.get(name).copied().unwrap_or(0))?;
    }
    report.set_item("graph_breaks", &counters.graph_breaks)?;
    report.set_item("eager_fallbacks", &counters.eager_fallbacks)?;
    report.set_item("eager_graph_reasons", &counters.eager_graph_reasons)?;
    report.set_item("unrecorded", &counters.unrecorded)?;
    let cache = PyDict::new(py);
    let mut hits = counters.cache_hits.clone();
    hits.insert("process", PROCESS_HITS.load(Ordering::Relaxed));
    cache.set_item("hits", hits)?;
    cache.set_item("misses", &counters.cache_misses)?;
    report.set_item("cache", cache)?;
    Ok(report)
}
