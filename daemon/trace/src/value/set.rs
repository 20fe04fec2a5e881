//! Sets and frozensets. Iteration order of one made in the trace is insertion order only where Python's would be
//! observable otherwise: iterating such a set of more than one element is a named break unless all are ints.

use super::{Id, Key, Origin, Value};
use indexmap::IndexMap;

/// Names a set object.
pub type SetId = Id<SetValue>;

/// A set.
#[derive(Clone, Debug, Default)]
pub struct SetValue {
    /// Elements as written.
    pub items: IndexMap<Key, Value>,
    /// A frozenset.
    pub frozen: bool,
    /// Where it is from, if from outside: its order is then the real one.
    pub origin: Option<Origin>,
    /// How its table came to be.
    pub history: History,
}

impl SetValue {
    /// Whether the program changed it.
    pub(crate) fn is_changed(&self) -> bool {
        !self.history.changes.is_empty()
    }
}

/// How a set came to be and what changed it since. The order of its elements follows from that: CPython keeps them in a
/// hash table, whose size and gaps are left by what was done (`Objects/setobject.c`). Outside of the trace the same is done.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// What it was at first.
    pub made: Made,
    /// What was done since: method and arguments.
    pub changes: Vec<(&'static str, Vec<Value>)>,
}

/// How a set came to be.
#[derive(Clone, Debug, Default)]
pub enum Made {
    /// Empty, or from outside.
    #[default]
    Plain,
    /// By a call of the function or type at this path, with operands that nobody changes.
    Call(String, Vec<Value>),
    /// In a way that cannot be gone again.
    Unknown,
}

impl History {
    /// Whether it is elements put into an empty set, one after the other.
    pub fn is_additions(&self) -> bool {
        matches!(self.made, Made::Plain) && self.changes.iter().all(|(method, _)| *method == "add")
    }
}
