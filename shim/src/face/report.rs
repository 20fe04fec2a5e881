//! What `explain` says of a compiled callable: its code objects and those of its resume functions, the frames compiled for
//! each, and where their traces ended.

use crate::call::entry::Entry;
use crate::call::table::{Frame, Table};
use crate::frame::breaks::{self, Noted};
use crate::frame::record;
use crate::link::backends;
use crate::python::lines::Lines;
use flambeau_ir::code::CodeHash;
use flambeau_ir::exit::{Break, Then};
use flambeau_ir::graph::{Graph, Location};
use flambeau_ir::plan::{Body, CompiledFrame};
use flambeau_ir::text;
use pyo3::prelude::*;
use serde_json::{Value, json};
use std::collections::{HashMap, VecDeque};

/// What was compiled for a callable, as JSON.
pub fn explanation(py: Python<'_>, entry: &Entry) -> Value {
    let mut ways = Ways::default();
    entry.each_table(py, &mut |table| ways.add(table));
    let mut report = Report { taken: ways.taken(), ..Report::default() };
    entry.each_table(py, &mut |table| report.add(py, table));
    let Report { codes, frames, breaks, mut lines, .. } = report;
    let breaks: Vec<_> = breaks.iter().map(|b| b.json(py, &mut lines)).collect();
    let backend = backends::now(py, &entry.backend);
    let folder = backend.plugin.as_ref().map(|plugin| &plugin.folder);
    json!({ "backend": backend.name, "plugin": folder, "codes": codes, "frames": frames, "breaks": breaks })
}

/// Which code object goes on in which, by index of its table.
#[derive(Default)]
struct Ways {
    tables: Vec<Option<CodeHash>>,
    /// From, to, when, and where the break is.
    found: Vec<(usize, CodeHash, &'static str, Option<Location>)>,
}

/// The break that a resume function takes up first, on the shortest way from a function of the user's.
#[derive(Clone)]
struct Taken {
    parent: usize,
    when: &'static str,
    at: Option<Location>,
}

impl Ways {
    fn add(&mut self, table: &Table) {
        let from = self.tables.len();
        self.tables.push(table.resumes);
        for end in table.frames.iter().filter_map(|frame| frame.installed.frame().exit.broken()) {
            let at = breaks::user_line(&end.reason);
            self.found.extend(sides(end).into_iter().map(|(when, to)| (from, to, when, at.cloned())));
        }
    }

    fn taken(&self) -> HashMap<usize, Taken> {
        let by_hash: HashMap<CodeHash, usize> =
            self.tables.iter().enumerate().filter_map(|(i, hash)| hash.map(|hash| (hash, i))).collect();
        let mut taken: HashMap<usize, Taken> = HashMap::new();
        let mut waiting: VecDeque<usize> = (0..self.tables.len()).filter(|i| self.tables[*i].is_none()).collect();
        while let Some(parent) = waiting.pop_front() {
            for (_, to, when, at) in self.found.iter().filter(|(from, ..)| *from == parent) {
                let Some(to) = by_hash.get(to) else { continue };
                if !taken.contains_key(to) {
                    taken.insert(*to, Taken { parent, when, at: at.clone() });
                    waiting.push_back(*to);
                }
            }
        }
        taken
    }
}

/// The resume functions that may take up a break, and when.
fn sides(end: &Break) -> Vec<(&'static str, CodeHash)> {
    let mut sides = match end.then {
        Then::Return => vec![],
        Then::Resume(resume) => vec![("behind it", resume)],
        Then::Branch { yes, no } => vec![("where it is true", yes), ("where it is false", no)],
        Then::Iterate { body, done } => vec![("in the loop", body), ("behind the loop", done)],
    };
    sides.extend(end.catch.map(|c| ("where it raises", c.resume)));
    sides.into_iter().map(|(when, resume)| (when, resume.frames)).collect()
}

#[derive(Default)]
struct Report {
    codes: Vec<Value>,
    frames: Vec<Value>,
    breaks: Vec<Noted>,
    taken: HashMap<usize, Taken>,
    lines: Lines,
}

impl Report {
    fn add(&mut self, py: Python<'_>, table: &Table) {
        let id = self.codes.len();
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
        let code = table.described(py);
        let taken = self.taken.get(&id).cloned();
        self.codes.push(json!({
            "id": id,
            "kind": kind,
            "name": code.as_ref().map(|c| &c.qualname),
            "file": code.as_ref().map(|c| &c.filename),
            "line": code.as_ref().map(|c| c.firstlineno),
            "parent": taken.as_ref().map(|t| t.parent),
            "when": taken.as_ref().map(|t| t.when),
            "after": taken.and_then(|t| t.at).map(|at| breaks::location(py, &at, &mut self.lines)),
            "not_compiled": failures,
        }));
    }

    fn frame(&mut self, py: Python<'_>, code: usize, frame: &Frame) -> Value {
        let compiled = frame.installed.frame();
        let broken = frame.installed.broken().map(|noted| breaks::note(&mut self.breaks, noted));
        let (body, kernels) = match &compiled.body {
            Body::Eager(_) => ("op by op", 0),
            Body::Fx(_) => ("torch back end", 0),
            Body::Native(plan) => ("native", plan.kernels.len()),
            Body::Training(of) => ("native", of.plans().map(|plan| plan.kernels.len()).sum()),
        };
        let plan = match &compiled.body {
            Body::Native(plan) => plan.to_string(),
            Body::Training(training) => training.to_string(),
            Body::Eager(_) | Body::Fx(_) => String::new(),
        };
        let how = &frame.record;
        let (failures, last) = frame.last_failure();
        json!({
            "code": code,
            "graph": compiled.graph_text,
            "python": record::python(py, compiled, &mut self.lines),
            "ops": how.ops,
            "calls": calls(compiled),
            "guards": record::guards(compiled),
            "symbols": compiled.symbols.iter().map(|s| text::symbol(&compiled.guards, s)).collect::<Vec<_>>(),
            "body": body,
            "kernels": kernels,
            "plan": plan,
            "timings": how.timings,
            "begun": how.begun,
            "origin": how.origin,
            "recompiled": how.recompiled,
            "guard_failures": failures,
            "last_failed_guard": (failures > 0).then_some(last),
            "fallback": compiled.fallback.as_ref().map(|r| breaks::describe(py, r, &mut self.lines)),
            "break": broken,
        })
    }
}

/// Calls in the torch-level graph.
fn calls(frame: &CompiledFrame) -> usize {
    match &frame.body {
        Body::Eager(graph) | Body::Fx(graph) => graph.calls(),
        Body::Training(training) => training.calls as usize,
        Body::Native(_) => text::parse_graph(&frame.graph_text).as_ref().map_or(0, Graph::calls),
    }
}
