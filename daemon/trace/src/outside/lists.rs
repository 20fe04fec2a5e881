//! Reading and writing lists.

use crate::state::tracer::Tracer;
use crate::value::flow::Flow;
use crate::value::{ListId, ListValue, Origin, Payload, Value};
use flambeau_ir::guard::GuardKind;
use flambeau_ir::object::{ObjId, Object, ObjectData};

impl Tracer<'_> {
    /// A new list.
    pub fn new_list(&mut self, items: Vec<Value>) -> Value {
        let unread = holds_unread(&items);
        Value::List(self.arenas.lists.push(ListValue { items, loaded: true, unread, ..ListValue::default() }))
    }

    /// A deque from outside: its items are a list's, with the deque as their origin.
    pub(crate) fn wrap_deque(&mut self, object: &Object, longest: Option<usize>, origin: Origin) -> Flow<Value> {
        let class = self.guard_type(object.class, origin.source)?;
        self.guard(origin.source, GuardKind::Longest(longest));
        let items = self.arenas.lists.push(ListValue { origin: Some(origin), ..ListValue::default() });
        let longest = longest.map_or(Value::NONE, |n| Value::int(n as i64));
        let state = self.new_list(vec![Value::List(items), longest, Value::int(0)]);
        self.wrap_instance(object, class, Payload::Polyfill { kind: None, state }, origin)
    }

    /// Of a deque from outside, whether its iterators would have noticed what was done to it.
    pub(crate) fn is_deque_moved(&self, object: ObjId) -> Option<bool> {
        let (deque, _) = self.known.get(&object)?;
        let Some(Value::List(state)) = self.polyfill_state(deque) else { return None };
        Some(self.arenas.lists[state].items.get(2).and_then(Value::as_int) != Some(0))
    }

    /// The items (reads and guards them if the list is from outside).
    pub fn list_items(&mut self, list: ListId) -> Flow<&Vec<Value>> {
        self.load_list(list)?;
        Ok(&self.arenas.lists[list].items)
    }

    /// The items, those unread that were stored so: for what only passes them on or counts them.
    pub(crate) fn stored_list_items(&mut self, list: ListId) -> Flow<&Vec<Value>> {
        self.load_stored(list)?;
        Ok(&self.arenas.lists[list].items)
    }

    /// How many items it has. Of a list from outside nothing else is read for that.
    pub(crate) fn list_len(&mut self, list: ListId) -> Flow<usize> {
        let entry = &self.arenas.lists[list];
        let (unread, added) = (entry.origin.filter(|_| !entry.loaded), entry.items.len());
        if let Some(origin) = unread
            && let ObjectData::List(items) | ObjectData::Deque { items, .. } = &self.describe(origin.object)?.data
        {
            self.guard(origin.source, GuardKind::Len(items.len()));
            return Ok(items.len() + added);
        }
        Ok(self.stored_list_items(list)?.len())
    }

    /// Whether it has no items. Of a list from outside nothing else is read for that.
    pub(crate) fn list_is_empty(&mut self, list: ListId) -> Flow<bool> {
        let entry = &self.arenas.lists[list];
        let unread = entry.origin.filter(|_| !entry.loaded && entry.items.is_empty());
        if let Some(origin) = unread
            && let ObjectData::List(items) | ObjectData::Deque { items, .. } = &self.describe(origin.object)?.data
        {
            self.guard(origin.source, if items.is_empty() { GuardKind::Len(0) } else { GuardKind::AtLeast(1) });
            return Ok(items.is_empty());
        }
        Ok(self.list_items(list)?.is_empty())
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
        let before = entry.items.len();
        entry.items.extend(items);
        entry.unread |= holds_unread(&entry.items[before..]);
    }
}

fn holds_unread(items: &[Value]) -> bool {
    items.iter().any(|item| matches!(item, Value::Unread(_)))
}
