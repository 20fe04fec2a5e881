//! Assembling code objects that take up a frame in its middle, and thin ones that stand in for it on Python's stack.
//!
//! A resume function is called as `f(state, value)`. Its code is a prologue that restores locals and stack from the tuple
//! `state` and jumps, followed by the user's instructions as they are, so that lines, columns and handlers stay the user's.

use crate::Target;

/// A position of a frame's value stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Item {
    /// The null of calls.
    Null,
    /// A value.
    Value,
}

/// What a resume function does between restoring its frame and going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Entry {
    /// Pushes nothing.
    Nothing,
    /// Pushes `value`.
    Value,
    /// Pushes a null and `value`.
    NullValue,
    /// Pushes the items of the tuple `value`, the last on top.
    Items(u32),
    /// Calls the resume function of the frame below, `child(child_state, value)`, where instruction `at` stands, and pushes
    /// its result. `child` and `child_state` are the last two items of `state`.
    Child,
    /// Raises `value` where instruction `at` stands.
    Raise,
}

/// Where and how a frame is taken up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ResumePoint {
    /// The instruction that broke (index into the decoded instructions).
    pub at: Target,
    /// The instruction to go on with.
    pub target: Target,
    /// Slots to restore from the first items of `state`, in this order; for the slot of a cell variable, the cell.
    pub locals: Vec<u32>,
    /// The stack, deepest first; its values are the items of `state` after the locals.
    pub stack: Vec<Item>,
    /// How it goes on.
    pub entry: Entry,
}
