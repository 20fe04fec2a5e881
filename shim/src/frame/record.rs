//! How a compiled frame came to be, and what it is in words.

use crate::python::lines::Lines;
use flambeau_ir::graph::Location;
use flambeau_ir::plan::{Body, CompiledFrame};
use flambeau_ir::text;
use pyo3::prelude::*;
use std::sync::OnceLock;
use std::time::Instant;

/// How a compiled frame came to be.
#[derive(Debug, Default)]
pub struct Record {
    /// Calls in the graph.
    pub ops: usize,
    /// Seconds per stage, as client and daemon took them.
    pub timings: Vec<(String, f64)>,
    /// Where it came from: `compiled` or `cache`.
    pub origin: &'static str,
    /// When the call that asked for it came: seconds since the first one of the process.
    pub begun: f64,
    /// Why the frames compiled before did not fit, each with its failing guard.
    pub recompiled: Vec<String>,
}

/// Seconds since the process first asked this.
pub fn clock(now: Instant) -> f64 {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    now.saturating_duration_since(*FIRST.get_or_init(|| now)).as_secs_f64()
}

/// The graph as readable Python, with lines of the user's program.
pub fn python(py: Python<'_>, frame: &CompiledFrame, lines: &mut Lines) -> String {
    let mut line = |place: &Location| lines.get(py, place);
    match &frame.body {
        Body::Eager(graph) | Body::Fx(graph) => text::python(graph, &mut line),
        // What runs is kernels; the graph they were made from is kept as text.
        Body::Native(_) | Body::Training(_) => match text::parse_graph(&frame.graph_text) {
            Ok(graph) => text::python(&graph, &mut line),
            Err(_) => frame.graph_text.clone(),
        },
    }
}

/// Guards in words, in checking order.
pub fn guards(frame: &CompiledFrame) -> Vec<String> {
    frame.guards.guards.iter().map(|g| text::guard(&frame.guards, g)).collect()
}
