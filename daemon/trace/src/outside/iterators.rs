//! Built-in iterators from outside. Their next items are facts of the call, whatever they are over: the frame of a loop's round
//! does for the next round too.

use crate::state::tracer::Tracer;
use crate::value::flow::{Flow, stop};
use crate::value::{Ahead, Iter, Origin, Value};
use flambeau_ir::guard::GuardKind;
use flambeau_ir::object::{MOST_AHEAD, ObjId, Object, ObjectData};
use flambeau_ir::reason::ReasonCode;
use flambeau_ir::source::Step;

impl Tracer<'_> {
    pub(crate) fn wrap_iterator(
        &mut self,
        object: &Object,
        ahead: ObjId,
        drawn_from: &[ObjId],
        origin: Origin,
    ) -> Flow<Value> {
        let class = self.guard_type(object.class, origin.source)?;
        let items = match &self.describe(ahead)?.data {
            ObjectData::Tuple(items) => items.as_slice().into(),
            _ => return stop(ReasonCode::Internal, "the items ahead of an iterator are no tuple"),
        };
        let drawn_from = drawn_from.into();
        let ahead = Ahead { origin, class, items, drawn_from, drawn: 0, ended: false };
        Ok(Value::Iter(self.arenas.iters.push(Iter::Ahead(ahead))))
    }

    /// `next(iterator)` for a loop's variable: an item of an iterator from outside may stay unread.
    pub(crate) fn next_unread(&mut self, iterator: &Value) -> Flow<Option<Value>> {
        if let Value::Iter(id) = iterator
            && let Iter::Ahead(mut ahead) = self.arenas.iters[*id].clone()
        {
            let item = self.draw(&mut ahead);
            self.arenas.iters[*id] = Iter::Ahead(ahead);
            return item;
        }
        self.next(iterator)
    }

    /// The next item of an iterator from outside; `None` at its end.
    pub(crate) fn draw(&mut self, ahead: &mut Ahead) -> Flow<Option<Value>> {
        if ahead.ended {
            return Ok(None);
        }
        let changed = self.is_any_changed(&ahead.drawn_from) && !flambeau_ir::mutated!("drawn_from_what_changed");
        if ahead.drawn == MOST_AHEAD || changed {
            return stop(ReasonCode::LiveIterator, ahead.class.name.qualname.to_string());
        }
        let source = self.step(ahead.origin.source, Step::Ahead);
        let Some(item) = ahead.items.get(ahead.drawn) else {
            self.guard(source, GuardKind::Len(ahead.drawn));
            ahead.ended = true;
            return Ok(None);
        };
        let at = self.step(source, Step::Index(ahead.drawn as u32));
        ahead.drawn += 1;
        self.guard(source, GuardKind::AtLeast(ahead.drawn));
        self.take(*item, at).map(Some)
    }

    /// Whether the trace changed one of these containers: the items ahead are those of before.
    fn is_any_changed(&self, objects: &[ObjId]) -> bool {
        self.changed_containers().any(|origin| objects.contains(&origin.object))
    }

    fn changed_containers(&self) -> impl Iterator<Item = Origin> {
        let arenas = &self.arenas;
        let lists = arenas.lists.iter().filter(|(_, list)| list.dirty).filter_map(|(_, list)| list.origin);
        let dicts = arenas.dicts.iter().filter(|(_, dict)| dict.is_changed()).filter_map(|(_, dict)| dict.origin);
        let sets = arenas.sets.iter().filter(|(_, set)| set.is_changed()).filter_map(|(_, set)| set.origin);
        lists.chain(dicts).chain(sets)
    }

    /// The iterators from outside that the trace advanced.
    pub(crate) fn drawn(&self) -> impl Iterator<Item = &Ahead> {
        self.iterators().filter(|ahead| ahead.drawn > 0 || ahead.ended)
    }

    fn iterators(&self) -> impl Iterator<Item = &Ahead> {
        self.arenas.iters.iter().filter_map(|(_, iter)| match iter {
            Iter::Ahead(ahead) => Some(ahead),
            _ => None,
        })
    }

    /// What an iterator that was advanced must not be, or draw from: what the trace changed.
    pub(crate) fn guard_drawn(&mut self) {
        let changed: Vec<Origin> = self.changed_containers().collect();
        let all: Vec<Origin> = self.iterators().map(|ahead| ahead.origin).collect();
        let drawn: Vec<_> = self.drawn().map(|ahead| (ahead.origin, ahead.drawn_from.clone())).collect();
        for (origin, containers) in drawn {
            for other in all.iter().filter(|other| other.object != origin.object) {
                self.guard(origin.source, GuardKind::NotSame(other.source));
            }
            for (i, container) in (0..).zip(containers.iter()) {
                let source = self.step(origin.source, Step::DrawnFrom(i));
                // One that the trace changed was changed behind the last item that was drawn.
                for changed in changed.iter().filter(|changed| changed.object != *container) {
                    self.guard(source, GuardKind::NotSame(changed.source));
                }
            }
        }
    }
}
