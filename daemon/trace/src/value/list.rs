//! Lists.

use super::{Class, DictId, Id, Origin, Value};
use crate::flow::Flow;
use crate::tracer::Tracer;
use std::rc::Rc;

/// Names a list object.
pub type ListId = Id<ListValue>;

/// A list. One from outside is read when first touched: use [`Tracer::list_items`], [`Tracer::list_mut`] and, for what needs
/// no items, [`Tracer::list_add`].
#[derive(Clone, Debug, Default)]
pub struct ListValue {
    /// Of a list that was not read yet: those behind the ones that it came with.
    pub(crate) items: Vec<Value>,
    /// False for a list from outside whose items were not read yet.
    pub(crate) loaded: bool,
    pub(crate) dirty: bool,
    /// Its type where that is not `list` itself.
    pub class: Option<Rc<Class>>,
    /// Instance dict of a subclass's instance.
    pub attrs: Option<DictId>,
    /// Where it is from, if from outside.
    pub origin: Option<Origin>,
}

impl Tracer<'_> {
    /// A new list.
    pub fn new_list(&mut self, items: Vec<Value>) -> Value {
        Value::List(self.arenas.lists.push(ListValue { items, loaded: true, ..ListValue::default() }))
    }

    /// The items (reads and guards them if the list is from outside).
    pub fn list_items(&mut self, list: ListId) -> Flow<&Vec<Value>> {
        self.load_list(list)?;
        Ok(&self.arenas.lists[list].items)
    }

    /// The items, to change: the list's new state is replayed at exit if it is from outside.
    pub fn list_mut(&mut self, list: ListId) -> Flow<&mut Vec<Value>> {
        self.load_list(list)?;
        let entry = &mut self.arenas.lists[list];
        entry.dirty = true;
        Ok(&mut entry.items)
    }

    /// Adds items at the end. A list from outside is not read for that: how long it is does not matter.
    pub fn list_add(&mut self, list: ListId, items: impl IntoIterator<Item = Value>) {
        let entry = &mut self.arenas.lists[list];
        entry.dirty = true;
        entry.items.extend(items);
    }
}
