//! The order in which a set gives its elements: a fact of one from outside; of one that the trace made, what Python says after
//! it did the same. Where hashes of strings have a part in it, the process's seed is a fact as well.

use crate::state::tracer::Tracer;
use crate::value::flow::{Flow, stop};
use crate::value::{Key, Made, Origin, SetId, SetValue, Value};
use flambeau_ir::code::Const;
use flambeau_ir::guard::GuardKind;
use flambeau_ir::object::ObjId;
use flambeau_ir::oracle::{AnswerValue, Question};
use flambeau_ir::reason::ReasonCode;
use flambeau_ir::source::Step;

const UNKNOWN: &str = "the order of a set's elements";

impl Tracer<'_> {
    /// The elements, in their order.
    pub(crate) fn ordered_items(&mut self, id: SetId) -> Flow<Vec<Value>> {
        let set = self.arenas.sets[id].clone();
        let items: Vec<Value> = set.items.values().cloned().collect();
        if items.len() < 2 {
            return Ok(items);
        }
        if let Some(origin) = set.origin
            && !set.is_changed()
        {
            self.guard_order(&set, origin)?;
            return Ok(items);
        }
        let mut parts = Parts::default();
        let Some(made) = self.how_made(&set, &mut parts)? else {
            return stop(ReasonCode::UnguardableObject, UNKNOWN);
        };
        if parts.seeded {
            self.guard_seed()?;
        }
        let question = Question::SetOrder { made, sets: parts.sets };
        let AnswerValue::Const(Const::Tuple(order)) = self.ask_one(question)? else {
            return stop(ReasonCode::UnguardableObject, UNKNOWN);
        };
        let found = order.iter().map(|item| set.items.get(&Key::of_const(item)?).cloned());
        match found.collect::<Option<Vec<Value>>>() {
            Some(found) if found.len() == items.len() => Ok(found),
            _ => stop(ReasonCode::Internal, "the order of a set has other elements"),
        }
    }

    /// The seed of hashes becomes a fact.
    fn guard_seed(&mut self) -> Flow<()> {
        let seed = "flambeau._begun.hash_seed";
        if let Value::Const(now) = self.eval(seed, vec![])? {
            let source = self.function_source();
            self.guard(source, GuardKind::Gives(seed.into(), now));
        }
        Ok(())
    }

    /// Whether the hash of this constant is a fact, which the seed may have a part in.
    pub(crate) fn need_hash_of(&mut self, value: &Const) -> Flow<bool> {
        let mut seeded = false;
        let is_fact = matches!(value, Const::Device(_)) || is_hashed_alike(value, &mut seeded);
        if is_fact && seeded {
            self.guard_seed()?;
        }
        Ok(is_fact)
    }

    /// Whether the set has other elements than these.
    pub(crate) fn is_other_set(&self, id: SetId, items: &[Value]) -> bool {
        let set = &self.arenas.sets[id];
        let is_there = |item: &Value| match item {
            Value::Const(c) => Key::of_const(c).is_some_and(|key| set.items.contains_key(&key)),
            _ => set.items.values().any(|known| self.is_same(known, item) == Some(true)),
        };
        set.is_changed() && (set.items.len() != items.len() || !items.iter().all(is_there))
    }

    /// The next item of an iterator over a set that had `len` elements, other ones than now.
    pub(crate) fn next_of_other_set<T>(&mut self, id: SetId, len: usize) -> Flow<T> {
        if self.arenas.sets[id].items.len() == len {
            // It goes on through the table as that is now.
            return stop(ReasonCode::UnsupportedObject, "a set that is changed while it is iterated over");
        }
        self.raise_named("RuntimeError", "Set changed size during iteration")
    }

    /// The constant with this index of the code of a function from outside, as the object that it is.
    pub(crate) fn code_const(&mut self, function: Origin, index: u32) -> Flow<Value> {
        match self.ask_one(Question::CodeConst { function: function.object, index })? {
            AnswerValue::Object(Some(object)) => {
                let source = self.step(function.source, Step::CodeConst(index));
                self.wrap(object, source)
            }
            _ => stop(ReasonCode::Internal, "a constant that the code has is not there"),
        }
    }

    /// How a set came to be, for `set_order`; `None` if that cannot be told.
    fn how_made(&mut self, set: &SetValue, parts: &mut Parts) -> Flow<Option<Const>> {
        let keys: Option<Vec<Const>> = set.items.values().map(|item| self.as_const(item)).collect();
        if !keys.is_some_and(|keys| keys.iter().all(|key| is_hashed_alike(key, &mut parts.seeded))) {
            return Ok(None);
        }
        if let Some(origin) = set.origin {
            let unchanged = !set.is_changed();
            if unchanged {
                self.guard_order(set, origin)?;
                parts.sets.push(origin.object);
            }
            return Ok(unchanged.then(|| Const::Int(parts.sets.len() as i64 - 1)));
        }
        let (path, operands) = match &set.history.made {
            Made::Plain => (Const::None, vec![]),
            Made::Call(path, operands) => (Const::str(path), operands.clone()),
            Made::Unknown => return Ok(None),
        };
        let Some(operands) = self.all_made(&operands, parts)? else { return Ok(None) };
        let mut changes = Vec::with_capacity(set.history.changes.len());
        for (method, args) in &set.history.changes {
            let Some(args) = self.all_made(args, parts)? else { return Ok(None) };
            changes.push(Const::Tuple(vec![Const::str(method), args]));
        }
        Ok(Some(Const::Tuple(vec![Const::Bool(set.frozen), path, operands, Const::Tuple(changes)])))
    }

    fn all_made(&mut self, values: &[Value], parts: &mut Parts) -> Flow<Option<Const>> {
        let mut all = Vec::with_capacity(values.len());
        for value in values {
            let made = match value {
                Value::Set(id) => {
                    let set = self.arenas.sets[*id].clone();
                    self.how_made(&set, parts)?
                }
                _ => self.as_const(value).filter(|value| is_hashed_alike(value, &mut parts.seeded)),
            };
            let Some(made) = made else { return Ok(None) };
            all.push(Const::Tuple(vec![Const::Bool(matches!(value, Value::Set(_))), made]));
        }
        Ok(Some(Const::Tuple(all)))
    }

    /// The order of a set from outside that nothing changed becomes a fact.
    fn guard_order(&mut self, set: &SetValue, origin: Origin) -> Flow<()> {
        match set.items.values().map(|item| self.as_const(item)).collect() {
            Some(consts) => {
                self.guard(origin.source, GuardKind::InOrder(consts));
                Ok(())
            }
            None => stop(ReasonCode::UnguardableObject, UNKNOWN),
        }
    }
}

/// What has a part in the order of a set.
#[derive(Default)]
struct Parts {
    /// Hashes that differ between processes.
    seeded: bool,
    /// Sets from outside.
    sets: Vec<ObjId>,
}

/// Whether all processes with the same seed have the same hashes of what is in it.
fn is_hashed_alike(value: &Const, seeded: &mut bool) -> bool {
    match value {
        Const::Int(_) | Const::BigInt(_) | Const::Bool(_) => true,
        Const::Float(x) => !x.is_nan(),
        Const::Str(_) | Const::Bytes(_) => {
            *seeded = true;
            true
        }
        Const::Tuple(items) => items.iter().all(|item| is_hashed_alike(item, seeded)),
        _ => false,
    }
}
