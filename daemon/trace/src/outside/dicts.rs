//! Reading and writing dicts: item by item, or whole when order or length matters.

use crate::state::tracer::Tracer;
use crate::value::flow::{Flow, stop};
use crate::value::{DictId, DictValue, Key, Origin, Value};
use flambeau_ir::guard::{GuardKind, KeyObject};
use flambeau_ir::object::ObjectData;
use flambeau_ir::oracle::{AnswerValue, Question};
use flambeau_ir::reason::ReasonCode;
use flambeau_ir::source::Step;
use indexmap::IndexMap;

/// Items of a dict that are read by their positions: each is a guard of its own.
const MOST_POSITIONS: usize = 256;

impl Tracer<'_> {
    /// A new dict; every key must be hashable by [`Tracer::key`].
    pub fn new_dict(&mut self, items: Vec<(Value, Value)>) -> Flow<Value> {
        let id = self.arenas.dicts.push(DictValue { loaded: true, ..DictValue::default() });
        for (k, v) in items {
            self.dict_set(id, k, v)?;
        }
        Ok(Value::Dict(id))
    }

    /// `default_factory` of a `defaultdict`; `None` if the dict is none.
    pub(crate) fn dict_factory(&mut self, dict: DictId) -> Flow<Option<Value>> {
        const NAME: &str = "default_factory";
        let entry = &self.arenas.dicts[dict];
        let is_one = entry.class.as_ref().is_some_and(|class| class.derives("collections.defaultdict"));
        let (Some(origin), None, true) = (entry.origin, &entry.factory, is_one) else {
            return Ok(entry.factory.clone());
        };
        let AnswerValue::Object(Some(object)) =
            self.ask_one(Question::Slot { object: origin.object, name: NAME.to_owned() })?
        else {
            return stop(ReasonCode::UnsupportedObject, "the default factory of a defaultdict");
        };
        let source = self.step(origin.source, Step::Slot(NAME.into()));
        let factory = self.wrap(object, source)?;
        self.arenas.dicts.note(dict).factory = Some(factory.clone());
        Ok(Some(factory))
    }

    /// The items in order (reads and guards all of them if the dict is from outside).
    pub fn dict_items(&mut self, dict: DictId) -> Flow<Vec<(Value, Value)>> {
        self.load_dict(dict)?;
        Ok(self.arenas.dicts[dict].items.values().cloned().collect())
    }

    /// The items in order, those unread that were stored so: for what only passes them on.
    pub(crate) fn stored_items(&mut self, dict: DictId) -> Flow<Vec<(Value, Value)>> {
        self.load_all(dict)?;
        Ok(self.arenas.dicts[dict].items.values().cloned().collect())
    }

    /// `dict.get(key)`, without `__missing__`.
    pub fn dict_get(&mut self, dict: DictId, key: &Value) -> Flow<Option<Value>> {
        if self.is_address_of_constant(key) && self.arenas.dicts[dict].outside.is_none() {
            return Ok(None);
        }
        let k = self.key(key)?;
        self.load_object(dict, key, &k)?;
        self.dict_get_key(dict, &k)
    }

    /// Whether it is the `id` of a constant, which is no key (see [`Tracer::key`]).
    pub(crate) fn is_address_of_constant(&self, key: &Value) -> bool {
        let Value::Address(of) = key else { return false };
        let inside = self.origin_of(of).is_none();
        matches!(**of, Value::Int(_) | Value::Code(_)) || inside && self.as_const(of).is_some()
    }

    /// As [`Tracer::dict_get`] with a str key.
    pub fn dict_get_str(&mut self, dict: DictId, key: &str) -> Flow<Option<Value>> {
        self.dict_get_key(dict, &Key::str(key))
    }

    /// `dict[key] = value`.
    pub fn dict_set(&mut self, dict: DictId, key: Value, value: Value) -> Flow<()> {
        let k = self.key(&key)?;
        let entry = &mut self.arenas.dicts[dict];
        entry.absent.remove(&k);
        if entry.outside.is_some() {
            if matches!(entry.writes.get(&k), Some((_, None))) {
                // Deleted before: it now stands behind all that was stored since.
                entry.writes.shift_remove(&k);
            }
            entry.writes.insert(k.clone(), (key.clone(), Some(value.clone())));
        }
        match entry.items.get_mut(&k) {
            Some(slot) => slot.1 = value,
            None => {
                entry.items.insert(k, (key, value));
            }
        }
        Ok(())
    }

    /// `dict.pop(key)`: the value, or `None` if there is no such key.
    pub fn dict_remove(&mut self, dict: DictId, key: &Value) -> Flow<Option<Value>> {
        let k = self.key(key)?;
        self.load_object(dict, key, &k)?;
        let Some(old) = self.dict_get_key(dict, &k)? else { return Ok(None) };
        let entry = &self.arenas.dicts[dict];
        let outside = entry.outside.is_some();
        // What the trace stored itself may be new, or stand in the place of an item that was there.
        let there =
            outside && (entry.moved.contains(&k) || !entry.writes.contains_key(&k) || self.was_there(dict, &k)?);
        let entry = &mut self.arenas.dicts[dict];
        let stored = entry.items.shift_remove(&k).map_or_else(|| key.clone(), |(key, _)| key);
        entry.deleted += 1;
        entry.absent.insert(k.clone());
        entry.writes.shift_remove(&k);
        if there {
            entry.moved.insert(k.clone());
            entry.writes.insert(k, (stored, None));
        }
        Ok(Some(old))
    }

    /// Replaces all items (`clear`, `move_to_end`, ...).
    pub fn dict_replace(&mut self, dict: DictId, items: Vec<(Value, Value)>) -> Flow<()> {
        let mut map = IndexMap::new();
        for (k, v) in items {
            map.insert(self.key(&k)?, (k, v));
        }
        let entry = &mut self.arenas.dicts[dict];
        entry.items = map;
        entry.absent.clear();
        entry.writes.clear();
        entry.deleted += 1;
        entry.rewritten = entry.outside.is_some();
        entry.loaded = true;
        Ok(())
    }

    /// Reads all items of an outside dict: its keys, their order and every value become facts.
    pub(crate) fn load_dict(&mut self, dict: DictId) -> Flow<()> {
        self.load_all(dict)?;
        self.read_values(dict)
    }

    /// As [`Tracer::load_dict`]; values that were stored unread stay so.
    pub(crate) fn load_all(&mut self, dict: DictId) -> Flow<()> {
        let entry = &self.arenas.dicts[dict];
        self.need_unchanged(entry.is_outside() && entry.is_changed())?;
        if entry.loaded {
            return Ok(());
        }
        let Some(origin) = entry.origin else { return Ok(()) };
        let Some(index) = self.dict_index(dict)? else {
            return stop(ReasonCode::UnguardableObject, "all items of a large namespace");
        };
        if index.other_keys {
            return self.load_by_position(dict, origin);
        }
        let keys = index.order.iter().filter_map(|k| index.items.get(k)).map(|(c, _)| c.clone()).collect();
        self.guard(origin.source, GuardKind::Keys(keys));
        for key in &index.order {
            self.dict_get_key(dict, key)?;
        }
        let entry = self.arenas.dicts.note(dict);
        let mut items = IndexMap::with_capacity(index.order.len());
        // What was deleted and stored again stands behind the rest.
        for key in index.order.iter().filter(|k| !entry.writes.contains_key(*k) || !entry.moved.contains(*k)) {
            if let Some(item) = entry.items.shift_remove(key) {
                items.insert(key.clone(), item);
            }
        }
        items.extend(std::mem::take(&mut entry.items));
        entry.items = items;
        entry.loaded = true;
        Ok(())
    }

    /// Loads a dict of which a key is read that constants say nothing of, or one whose keys may be equal to any. False: what
    /// is read is guarded by itself.
    pub(crate) fn load_objects(&mut self, dict: DictId, key: &Key) -> Flow<bool> {
        let Some(index) = self.dict_index(dict)? else { return Ok(false) };
        let says_nothing = match key {
            Key::Const(_) => false,
            Key::Tuple(_) => index.other_keys || key.constant().is_none(),
            _ => index.other_keys,
        };
        let loads = index.equal_consts || says_nothing;
        if loads {
            self.load_all(dict)?;
        }
        Ok(loads)
    }

    /// Reads what an outside dict holds under an object that is compared by identity. Its other keys are no facts: tables
    /// of what is done with which class grow with what a process imports.
    fn load_object(&mut self, dict: DictId, object: &Value, key: &Key) -> Flow<()> {
        let entry = &self.arenas.dicts[dict];
        let known = entry.loaded || entry.items.contains_key(key) || entry.absent.contains(key);
        let (Some(origin), false, Key::Identity(..)) = (entry.origin, known, key) else { return Ok(()) };
        match self.dict_index(dict)? {
            Some(index) if !index.equal_consts => {}
            _ => return Ok(()),
        }
        let described = self.describe(origin.object)?;
        let ObjectData::Dict(pairs) = &described.data else { return Ok(()) };
        let own = self.origin_of(object);
        for (i, (stored, value)) in pairs.iter().enumerate() {
            let same = match (object, own) {
                (_, Some(own)) => own.object == *stored,
                (Value::Class(class), None) => class.is_described_by(&*self.describe(*stored)?),
                _ => false,
            };
            if same {
                let source = self.step(origin.source, Step::Key(i as u32));
                let stored = self.wrap(*stored, source)?;
                let source = self.step(origin.source, Step::Value(i as u32));
                let value = Value::Unread(Origin { object: *value, source });
                self.arenas.dicts.note(dict).items.insert(key.clone(), (stored, value));
                return Ok(());
            }
        }
        let absent = match (object, own) {
            (Value::Class(class), _) if class.is_at_its_path() => class.path.clone().map(KeyObject::Path),
            (_, Some(own)) => Some(KeyObject::Source(own.source)),
            // All keys are read then, which says what a class without a name is.
            (Value::Class(_), None) => return Ok(()),
            // The trace made it, and the dict is older.
            _ => None,
        };
        if let Some(absent) = absent {
            self.guard(origin.source, GuardKind::NoKey(absent));
        }
        self.arenas.dicts.note(dict).absent.insert(key.clone());
        Ok(())
    }

    /// Reads the items of an outside dict whose keys are not all constants: each key is what stands at its place.
    fn load_by_position(&mut self, dict: DictId, origin: Origin) -> Flow<()> {
        let described = self.describe(origin.object)?;
        let ObjectData::Dict(pairs) = &described.data else {
            return stop(ReasonCode::Internal, "a dict that was not described as one");
        };
        if pairs.len() > MOST_POSITIONS {
            return stop(ReasonCode::UnguardableObject, "a dict with keys that are no constants");
        }
        self.guard(origin.source, GuardKind::Len(pairs.len()));
        let mut items = IndexMap::with_capacity(pairs.len());
        for (i, (key, value)) in pairs.iter().enumerate() {
            let source = self.step(origin.source, Step::Key(i as u32));
            let stored = self.wrap(*key, source)?;
            let key = self.key(&stored)?;
            let source = self.step(origin.source, Step::Value(i as u32));
            let entry = self.arenas.dicts.note(dict);
            // What was deleted and stored again stands behind the rest.
            if entry.absent.contains(&key) || entry.moved.contains(&key) {
                continue;
            }
            let found = || (stored, Value::Unread(Origin { object: *value, source }));
            let item = entry.items.shift_remove(&key).unwrap_or_else(found);
            items.insert(key, item);
        }
        let entry = self.arenas.dicts.note(dict);
        items.extend(std::mem::take(&mut entry.items));
        entry.items = items;
        entry.loaded = true;
        Ok(())
    }
}
