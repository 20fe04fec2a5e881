//! Graph breaks and calls that were not compiled, as people are told of them: once per line of the user's code.

use crate::python::lines::Lines;
use flambeau_ir::code::Origin;
use flambeau_ir::exit::{Break, Then};
use flambeau_ir::graph::Location;
use flambeau_ir::reason::{Reason, ReasonCode};
use pyo3::prelude::*;
use serde_json::{Value, json};
use std::fmt::Write;

/// One place in the user's code that ended traces.
#[derive(Clone, Debug)]
pub struct Noted {
    /// Why, and the user's stack.
    pub reason: Reason,
    /// How the frame goes on there.
    pub kind: Kind,
    /// How often calls came there.
    pub count: u64,
    /// Seconds spent on compiles that came to nothing.
    pub seconds: f64,
}

/// How a frame goes on where its trace ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The whole call runs as plain Python.
    Eager,
    /// Behind the instruction.
    Resume,
    /// The instruction gives the frame's value.
    Tail,
    /// On one of two sides.
    Branch,
    /// In the body of a loop, or behind it.
    Loop,
}

impl Kind {
    /// Of a frame that breaks off.
    pub fn of(end: &Break) -> Kind {
        match end.then {
            Then::Return => Kind::Tail,
            Then::Resume(_) => Kind::Resume,
            Then::Branch { .. } => Kind::Branch,
            Then::Iterate { .. } => Kind::Loop,
        }
    }

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Eager => "eager",
            Kind::Resume => "resume",
            Kind::Tail => "tail",
            Kind::Branch => "branch",
            Kind::Loop => "loop",
        }
    }
}

/// Adds a note and gives its index; one for the same reason and line of the user's counts with it.
pub fn note(notes: &mut Vec<Noted>, new: Noted) -> usize {
    let same = |known: &Noted| {
        (known.kind == Kind::Eager) == (new.kind == Kind::Eager) && key(&known.reason) == key(&new.reason)
    };
    if let Some(index) = notes.iter().position(same) {
        notes[index].count += new.count;
        notes[index].seconds += new.seconds;
        return index;
    }
    notes.push(new);
    notes.len() - 1
}

/// The innermost line of the user's code: not of the standard library or torch, unless there is no other.
pub fn user_line(reason: &Reason) -> Option<&Location> {
    let is_users = |place: &&Location| Origin::of(&place.file) == Origin::User;
    reason.stack.iter().rev().find(is_users).or(reason.stack.last())
}

/// What tells places apart: the reason's name, and the user's line.
fn key(reason: &Reason) -> (ReasonCode, Option<(&str, u32)>) {
    (reason.code, user_line(reason).map(|place| (&*place.file, place.line)))
}

/// The user's line, for keys of messages.
pub fn place(reason: &Reason) -> String {
    user_line(reason).map_or_else(String::new, |l| format!("{}:{}", l.file, l.line))
}

/// Reason, explanation, user stack with its lines, and hint, for people.
pub fn describe(py: Python<'_>, reason: &Reason, lines: &mut Lines) -> String {
    let mut text = format!("{}: {}. {}", reason.code.name(), reason.detail, reason.code.explanation());
    for place in &reason.stack {
        // Writing to a string does not fail.
        let _ = write!(text, "\n  File \"{}\", line {}, in {}", place.file, place.line, place.function);
        if let Some(line) = lines.get(py, place) {
            let _ = write!(text, "\n    {line}");
        }
    }
    text + "\n  Hint: " + reason.code.hint()
}

/// A place for reports.
pub fn location(py: Python<'_>, place: &Location, lines: &mut Lines) -> Value {
    json!({
        "file": &*place.file,
        "line": place.line,
        "function": &*place.function,
        "text": lines.get(py, place),
    })
}

impl Noted {
    /// For `explain`.
    pub fn json(&self, py: Python<'_>, lines: &mut Lines) -> Value {
        let stack: Vec<_> = self.reason.stack.iter().map(|place| location(py, place, lines)).collect();
        json!({
            "reason": self.reason.code.name(),
            "detail": self.reason.detail,
            "explanation": self.reason.code.explanation(),
            "hint": self.reason.code.hint(),
            "at": user_line(&self.reason).map(|place| location(py, place, lines)),
            "stack": stack,
            "kind": self.kind.name(),
            "resumed": self.kind != Kind::Eager,
            "count": self.count,
            "seconds": self.seconds,
            "text": describe(py, &self.reason, lines),
        })
    }
}
