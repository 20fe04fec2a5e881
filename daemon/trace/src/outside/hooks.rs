//! Dicts of hooks. Torch counts hooks up as they are registered and keeps each under its number: another instance of a
//! class, a model made again or a hook registered anew differ in nothing but these numbers. So hooks are gone through by
//! position, and a number is a symbolic int.

use crate::state::tracer::Tracer;
use crate::value::flow::{Flow, stop};
use crate::value::{DictId, Key, Value, ViewKind};
use flambeau_ir::code::Const;
use flambeau_ir::dim::Dim;
use flambeau_ir::guard::{GuardKind, Relation};
use flambeau_ir::object::ObjId;
use flambeau_ir::reason::ReasonCode;
use flambeau_ir::source::Step;
use std::rc::Rc;

impl Tracer<'_> {
    /// What a view of a dict of hooks yields, if the dict is as it was before the trace; `None` for other dicts.
    pub(crate) fn hooks(&mut self, dict: DictId, kind: ViewKind) -> Flow<Option<Rc<[Value]>>> {
        let Some(numbered) = self.numbered(dict)? else { return Ok(None) };
        let Some(origin) = self.arenas.dicts[dict].origin.filter(|_| kind != ViewKind::Keys) else { return Ok(None) };
        self.guard(origin.source, GuardKind::Len(numbered.len()));
        let mut items = Vec::with_capacity(numbered.len());
        for (i, (number, object)) in numbered.into_iter().enumerate() {
            let source = self.step(origin.source, Step::Value(i as u32));
            let hook = self.wrap(object, source)?;
            items.push(match kind {
                ViewKind::Values | ViewKind::Keys => hook,
                ViewKind::Items => {
                    let source = self.step(origin.source, Step::Key(i as u32));
                    Value::tuple(vec![self.number(number, source), hook])
                }
            });
        }
        Ok(Some(Rc::from(items)))
    }

    /// The next of the items that [`Self::hooks`] gave. A change of the dict meanwhile is left to Python.
    pub(crate) fn next_hook(&mut self, dict: DictId, items: &[Value], at: &mut usize) -> Flow<Option<Value>> {
        let entry = &self.arenas.dicts[dict];
        if entry.is_changed() {
            return stop(ReasonCode::SideEffect, "hooks that change while they are gone through");
        }
        *at += 1;
        Ok(items.get(*at - 1).cloned())
    }

    /// Whether a symbolic number is a key of a dict that goes with one of hooks (`_forward_hooks_with_kwargs`, ...).
    pub(crate) fn has_number(&mut self, dict: DictId, number: &Dim) -> Flow<Option<bool>> {
        let Some(numbered) = self.numbered(dict)? else { return Ok(None) };
        let Some(origin) = self.arenas.dicts[dict].origin else { return Ok(None) };
        self.guard(origin.source, GuardKind::Len(numbered.len()));
        for (i, (other, _)) in numbered.into_iter().enumerate() {
            let source = self.step(origin.source, Step::Key(i as u32));
            let Some(other) = self.number(other, source).as_dim() else { return Ok(None) };
            if self.decide(Relation::Eq, number, &other) {
                return Ok(Some(true));
            }
        }
        Ok(Some(false))
    }

    /// Numbers and hooks of a dict of hooks that is as it was before the trace.
    fn numbered(&mut self, dict: DictId) -> Flow<Option<Vec<(i64, ObjId)>>> {
        let entry = &self.arenas.dicts[dict];
        let Some(origin) = entry.origin else { return Ok(None) };
        let named = matches!(&self.sources.get(origin.source).step, Step::Item(Const::Str(s)) if s.contains("_hooks"));
        if !named || entry.loaded || entry.is_changed() {
            return Ok(None);
        }
        let Some(index) = self.dict_index(dict)? else { return Ok(None) };
        let all = index.order.iter().map(|key| match (key, index.items.get(key)) {
            (Key::Const(Const::Int(_)), Some((Const::Int(number @ 0..), hook))) => Some((*number, *hook)),
            _ => None,
        });
        Ok(all.collect::<Option<_>>().filter(|_| !index.other_keys))
    }
}
