//! Graph breaks and calls that were not compiled, as people are told of them: once per line of the user's code.

use flambeau_ir::reason::{Reason, ReasonCode};
use std::fmt::Write;

/// One place in the user's code that ended traces.
#[derive(Clone, Debug)]
pub struct Noted {
    /// Why, and the user's stack.
    pub reason: Reason,
    /// Whether a resume function goes on there; else the whole call runs as plain Python.
    pub resumed: bool,
    /// How often calls came there.
    pub count: u64,
}

/// Adds a note; one for the same reason and line counts with it.
pub fn note(notes: &mut Vec<Noted>, new: Noted) {
    let same = |known: &&mut Noted| known.resumed == new.resumed && key(&known.reason) == key(&new.reason);
    match notes.iter_mut().find(same) {
        Some(known) => known.count += new.count,
        None => notes.push(new),
    }
}

/// What tells places apart: the reason's name, and the innermost line.
pub fn key(reason: &Reason) -> (ReasonCode, Option<(&str, u32)>) {
    (reason.code, reason.stack.last().map(|place| (&*place.file, place.line)))
}

/// The innermost line, for keys of messages.
pub fn place(reason: &Reason) -> String {
    reason.stack.last().map_or_else(String::new, |l| format!("{}:{}", l.file, l.line))
}

/// Reason, explanation, hint and user stack, for people.
pub fn describe(reason: &Reason) -> String {
    let mut text = format!("{}: {}. {}", reason.code.name(), reason.detail, reason.code.explanation());
    for place in &reason.stack {
        let _ = write!(text, "\n  File \"{}\", line {}, in {}", place.file, place.line, place.function);
    }
    text + "\n  Hint: " + reason.code.hint()
}

impl Noted {
    /// For `explain`.
    pub fn json(&self) -> serde_json::Value {
        let stack: Vec<_> = self
            .reason
            .stack
            .iter()
            .map(|l| serde_json::json!({ "file": &*l.file, "line": l.line, "function": &*l.function }))
            .collect();
        serde_json::json!({
            "reason": self.reason.code.name(),
            "detail": self.reason.detail,
            "hint": self.reason.code.hint(),
            "stack": stack,
            "resumed": self.resumed,
            "count": self.count,
            "text": describe(&self.reason),
        })
    }
}
