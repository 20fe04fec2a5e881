//! What `explain` says of a compiled callable: its code objects and those of its resume functions, the frames compiled for
//! each, and where their traces ended.

use crate::breaks::{self, Noted};
use crate::entry::Entry;
use crate::lines::Lines;
use crate::table::{Frame, Table};
use flambeau_ir::code::CodeHash;
use flambeau_ir::exit::{Break, Then};
use flambeau_ir::graph::{Graph, Location};
use flambeau_ir::plan::{Body, CompiledFrame};
use flambeau_ir::text;
use pyo3::prelude::*;
use serde_json::{Value, json};
use std::collections::HashMap;
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
        Body::Native(_) => match text::parse_graph(&frame.graph_text) {
            Ok(graph) => text::python(&graph, &mut line),
            Err(_) => frame.graph_text.clone(),
        },
    }
}

/// Guards in words, in checking order.
pub fn guards(frame: &CompiledFrame) -> Vec<String> {
    frame.guards.guards.iter().map(|g| text::guard(&frame.guards, g)).collect()
}

/// What was compiled for a callable, as JSON.
pub fn explanation(py: Python<'_>, entry: &Entry) -> Value {
    let mut report = Report::default();
    entry.each_table(py, &mut |table| report.add(py, table));
    let Report { codes, frames, breaks, mut lines, .. } = report;
    let breaks: Vec<_> = breaks.iter().map(|b| b.json(py, &mut lines)).collect();
    json!({ "backend": entry.backend, "codes": codes, "frames": frames, "breaks": breaks })
}

#[derive(Default)]
struct Report {
    codes: Vec<Value>,
    frames: Vec<Value>,
    breaks: Vec<Noted>,
    /// Ids of code by what names resume functions; some are only announced yet.
    ids: HashMap<CodeHash, Taken>,
    lines: Lines,
}

/// The first break that a resume function takes up.
#[derive(Clone)]
struct Taken {
    parent: usize,
    when: &'static str,
    at: Option<Location>,
}

impl Report {
    fn add(&mut self, py: Python<'_>, table: &Table) {
        let Some(code) = table.described(py) else { return };
        let id = self.codes.len();
        let taken = table.resumes.and_then(|hash| self.ids.get(&hash).cloned());
        for frame in &table.frames {
            let value = self.frame(py, id, frame);
            self.frames.push(value);
        }
        let failures: Vec<usize> =
            table.failures.iter().map(|noted| breaks::note(&mut self.breaks, noted.clone())).collect();
        let kind = match (table.resumes, id) {
            (Some(_), _) => "resume function",
            (None, 0) => "function",
            (None, _) => "function called by plain Python",
        };
        self.codes.push(json!({
            "id": id,
            "kind": kind,
            "name": code.qualname,
            "file": code.filename,
            "line": code.firstlineno,
            "parent": taken.as_ref().map(|t| t.parent),
            "when": taken.as_ref().map(|t| t.when),
            "after": taken.and_then(|t| t.at).map(|at| breaks::location(py, &at, &mut self.lines)),
            "not_compiled": failures,
        }));
    }

    fn frame(&mut self, py: Python<'_>, code: usize, frame: &Frame) -> Value {
        let compiled = frame.installed.frame();
        let end = compiled.exit.broken();
        if let Some(end) = end {
            self.announce(code, end);
        }
        let broken = frame.installed.broken().map(|noted| breaks::note(&mut self.breaks, noted));
        let (body, kernels) = match &compiled.body {
            Body::Eager(_) => ("op by op", 0),
            Body::Fx(_) => ("torch back end", 0),
            Body::Native(plan) => ("native", plan.kernels.len()),
        };
        let plan = if let Body::Native(plan) = &compiled.body { plan.to_string() } else { String::new() };
        let record = &frame.record;
        let (failures, last) = frame.last_failure();
        json!({
            "code": code,
            "graph": compiled.graph_text,
            "python": python(py, compiled, &mut self.lines),
            "ops": record.ops,
            "calls": calls(compiled),
            "guards": guards(compiled),
            "symbols": compiled.symbols.iter().map(|s| text::symbol(&compiled.guards, s)).collect::<Vec<_>>(),
            "body": body,
            "kernels": kernels,
            "plan": plan,
            "timings": record.timings,
            "begun": record.begun,
            "origin": record.origin,
            "recompiled": record.recompiled,
            "guard_failures": failures,
            "last_failed_guard": (failures > 0).then_some(last),
            "fallback": compiled.fallback.as_ref().map(|r| breaks::describe(py, r, &mut self.lines)),
            "break": broken,
        })
    }

    /// Says which resume functions go on from a break; their tables come later.
    fn announce(&mut self, parent: usize, end: &Break) {
        let sides = match end.then {
            Then::Return => vec![],
            Then::Resume(resume) => vec![("behind it", resume)],
            Then::Branch { yes, no } => vec![("where it is true", yes), ("where it is false", no)],
            Then::Iterate { body, done } => vec![("in the loop", body), ("behind the loop", done)],
        };
        let catch = end.catch.map(|c| ("where it raises", c.resume));
        for (when, resume) in sides.into_iter().chain(catch) {
            let at = end.reason.stack.last().cloned();
            self.ids.entry(resume.frames).or_insert(Taken { parent, when, at });
        }
    }
}

/// Calls in the torch-level graph.
fn calls(frame: &CompiledFrame) -> usize {
    match &frame.body {
        Body::Eager(graph) | Body::Fx(graph) => graph.calls(),
        Body::Native(_) => text::parse_graph(&frame.graph_text).as_ref().map_or(0, Graph::calls),
    }
}
