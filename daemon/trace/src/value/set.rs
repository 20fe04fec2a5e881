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
    /// Changed since it was read (set it when changing `items`).
    pub dirty: bool,
    /// Where it is from, if from outside: its order is then the real one.
    pub origin: Option<Origin>,
}
