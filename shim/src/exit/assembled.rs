//! The log topic `code`: what runs in place of a frame. There is no rewritten bytecode of the frame itself: its graph runs,
//! objects are built and effects replayed; what Python runs after a graph break is functions assembled for it, shown as
//! `dis` shows them.

use crate::exit::Codes;
use flambeau_ir::code::{Code, Const};
use flambeau_ir::exit::{Build, BuildId, Exit, Resume, Then};
use flambeau_ir::plan::{Body, CompiledFrame};
use pyo3::prelude::*;
use std::fmt::Write;
use std::sync::Arc;

/// The plan, how the frame ends, and the disassembly of every function that the frame makes. Runs Python (the module
/// `dis`), so nothing that was checked before holds after it.
pub fn listing(py: Python<'_>, frame: &CompiledFrame, codes: &Codes, function: &Bound<'_, PyAny>) -> String {
    let mut text = match &frame.body {
        Body::Native(plan) => plan.to_string(),
        Body::Training(training) => training.to_string(),
        Body::Eager(_) => "the graph, op by op\n".to_owned(),
        Body::Fx(_) => "the graph, by a torch back end\n".to_owned(),
    };
    let exit = &frame.exit;
    text += &ending(exit);
    for (index, build) in exit.builds.iter().enumerate() {
        let Build::Function { code: Const::Code(code), qualname, .. } = build else { continue };
        let role = role(exit, index, code);
        // Writing to a string does not fail.
        let _ = writeln!(text, "{role} {qualname} ({}:{})", code.filename, code.firstlineno);
        match disassemble(py, code, codes, function) {
            Ok(listing) => text += &listing,
            Err(error) => {
                let _ = writeln!(text, "  cannot be shown: {error}");
            }
        }
    }
    text
}

fn disassemble(py: Python<'_>, code: &Arc<Code>, codes: &Codes, function: &Bound<'_, PyAny>) -> PyResult<String> {
    let object = codes.object(py, code, function)?;
    let dis = py.import("dis")?;
    let text: String = dis.getattr("Bytecode")?.call1((object,))?.call_method0("dis")?.extract()?;
    Ok(text.lines().fold(String::new(), |all, line| all + "  " + line + "\n"))
}

/// Effects, and how the frame goes on.
fn ending(exit: &Exit) -> String {
    let mut text = String::new();
    if !exit.effects.is_empty() {
        text += "replay:\n";
        for effect in &exit.effects {
            let _ = writeln!(text, "  {effect:?}");
        }
    }
    let Some(end) = exit.broken() else { return text };
    let reason = &end.reason;
    let _ = writeln!(text, "break: {}: {}; run {}", reason.code.name(), reason.detail, name(exit, end.action.0));
    let mut then = |when: &str, resume: Resume| {
        let _ = writeln!(text, "  {when}: {}(state, value)", name(exit, resume.function));
    };
    match end.then {
        Then::Return => text.push_str("  its value is returned\n"),
        Then::Resume(resume) => then("then", resume),
        Then::Branch { yes, no } => {
            then("where it is true", yes);
            then("where it is false", no);
        }
        Then::Iterate { body, done } => {
            then("with an item", body);
            then("at the end", done);
        }
    }
    if let Some(catch) = end.catch {
        let _ = writeln!(text, "  where it raises: {}(state, exception)", name(exit, catch.resume.function));
    }
    text
}

/// A function of the exit in words.
fn name(exit: &Exit, id: BuildId) -> String {
    match exit.builds.get(id.0 as usize) {
        Some(Build::Function { qualname, .. }) => format!("%{} {qualname}", id.0),
        Some(Build::Path(path)) => path.to_string(),
        _ => format!("%{}", id.0),
    }
}

/// What a function is for, by its place in the exit and the names that `daemon/bytecode` gives.
fn role(exit: &Exit, index: usize, code: &Code) -> String {
    let is_catch = exit.broken().and_then(|end| end.catch).is_some_and(|c| c.resume.function.0 as usize == index);
    let is_stand_in = || code.localsplusnames.first().is_some_and(|name| name == ".0") && exit.broken().is_some();
    let what = match code.is_resume() {
        true if is_catch => "resume function for an exception",
        true => "resume function",
        false if is_stand_in() => "stand-in",
        false => "function",
    };
    format!("%{index} {what}")
}
