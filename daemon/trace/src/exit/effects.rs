//! Changes to outside objects, and to the thread's state, that a frame leaves behind.

use super::build::Builder;
use crate::state::tracer::{Recalled, Tracer, Written};
use crate::value::flow::{Flow, Stop, stop};
use crate::value::{DictId, Gradient, SetValue, TensorValue, Value};
use flambeau_ir::exit::Effect;
use flambeau_ir::guard::Ambient;
use flambeau_ir::reason::{Reason, ReasonCode};

impl Tracer<'_> {
    pub(super) fn ambient_effects(&mut self, builder: &mut Builder) -> Flow<()> {
        let initial = &self.frame.ambient;
        if self.has_other_state() {
            return stop(ReasonCode::SideEffect, "torch's state is left changed for the caller");
        }
        if self.ambient.grad_enabled != initial.grad_enabled && !flambeau_ir::mutated!("grad_mode_not_left") {
            builder.exit.effects.push(Effect::SetGradMode(self.ambient.grad_enabled));
        }
        let options = &self.frame.options;
        let (nested, error) = (self.nested_breaks, self.error_on_break);
        if (nested, error) != (options.nested_breaks, options.error_on_break) {
            builder.exit.effects.push(Effect::SetBreaks { nested, error });
        }
        Ok(())
    }

    /// Whether torch's state is another than when the frame began. Grad mode and autocast may be.
    pub(crate) fn has_other_state(&self) -> bool {
        let initial = &self.frame.ambient;
        let restored = Ambient {
            grad_enabled: initial.grad_enabled,
            autocast: initial.autocast,
            autocast_cache: initial.autocast_cache,
            ..self.ambient.clone()
        };
        restored != *initial
    }

    /// Changes to outside objects.
    pub(super) fn effects(&mut self, builder: &mut Builder) -> Flow<()> {
        for Recalled { function, args, found } in std::mem::take(&mut self.recalled) {
            let positional = self.build_all(builder, &args.pos)?;
            let mut keywords = Vec::with_capacity(args.kw.len());
            for (word, value) in &args.kw {
                keywords.push((word.clone(), self.build(builder, value)?));
            }
            let target = builder.source(function.source);
            let found = match found.map(|(_, result)| self.build(builder, &result)) {
                Some(Err(stopped)) => {
                    self.leave_to_python(function);
                    return Err(stopped);
                }
                built => built.transpose()?,
            };
            builder.exit.effects.push(Effect::Recall { function: target, args: positional, keywords, found });
        }
        for Written { class, name, value } in self.class_writes.clone() {
            let Some(origin) = class.origin else {
                return stop(ReasonCode::Internal, "a class of the trace was written to");
            };
            let value = self.build(builder, &value)?;
            let target = builder.source(origin.source);
            builder.exit.effects.push(Effect::SetAttr(target, name, value));
        }
        // Nothing is drawn from what was changed before.
        for ahead in self.drawn() {
            let target = builder.source(ahead.origin.source);
            let count = ahead.drawn + usize::from(ahead.ended);
            builder.exit.effects.push(Effect::Advance(target, count as u32));
        }
        let dicts: Vec<DictId> =
            self.arenas.dicts.iter().filter(|(_, d)| d.is_outside() && d.is_changed()).map(|(id, _)| id).collect();
        for dict in dicts {
            self.dict_effects(builder, dict)?;
        }
        self.list_effects(builder)?;
        let changed = |(id, set): (_, &SetValue)| Some((id, set.origin.filter(|_| set.is_changed())?));
        let sets: Vec<_> = self.arenas.sets.iter().filter_map(changed).collect();
        for (set, origin) in sets {
            let target = builder.source(origin.source);
            self.set_changes(builder, set, target)?;
        }
        let cells: Vec<_> = self
            .arenas
            .cells
            .iter()
            .filter(|(_, c)| c.dirty && !flambeau_ir::mutated!("cell_not_written"))
            .filter_map(|(_, c)| Some((c.origin?, c.value.clone())))
            .collect();
        for (origin, value) in cells {
            let value = value.map(|v| self.build(builder, &v)).transpose()?;
            let target = builder.source(origin.source);
            builder.exit.effects.push(Effect::SetCell(target, value));
        }
        let slots: Vec<_> = self
            .arenas
            .instances
            .iter()
            .filter(|(_, i)| !i.slot_writes.is_empty())
            .filter_map(|(_, i)| Some((i.origin?, i.slot_writes.clone())))
            .collect();
        for (origin, writes) in slots {
            for (name, value) in writes {
                let value = value.map(|value| self.build(builder, &value)).transpose()?;
                let target = builder.source(origin.source);
                builder.exit.effects.push(match value {
                    Some(value) => Effect::SetSlot(target, name, value),
                    None => Effect::DelSlot(target, name),
                });
            }
        }
        self.grad_effects(builder)
    }

    fn grad_effects(&mut self, builder: &mut Builder) -> Flow<()> {
        let written = |grad: &Gradient| grad.written.then(|| (grad.value.clone(), grad.dropped));
        let is_lost = |tensor: &TensorValue| {
            let leaves = builder.outputs.contains(&tensor.node);
            tensor.origin.is_none() && leaves && tensor.grad.as_ref().is_some_and(|grad| !grad.value.is_none())
        };
        if self.arenas.tensors.iter().any(|(_, tensor)| is_lost(tensor)) {
            let why = Reason::new(ReasonCode::SideEffect, "a leaf that the frame made leaves it with a gradient");
            (self.leaves_backward, self.has_learnt) = (Some(why.clone()), true);
            return Err(Stop::from(why));
        }
        let begun: Vec<_> = self.arenas.tensors.iter().filter(|(id, _)| self.is_leaf_from_outside(*id)).collect();
        for origin in begun.iter().filter_map(|(_, tensor)| tensor.origin).collect::<Vec<_>>() {
            // A graph that is a plan computes only.
            let (target, on) = (builder.source(origin.source), self.build(builder, &Value::bool(true))?);
            builder.exit.effects.push(Effect::SetDescriptor(target, "requires_grad".into(), on));
        }
        let grads = self.arenas.tensors.iter().filter_map(|(_, t)| Some((t.origin?, written(t.grad.as_ref()?)?)));
        for (origin, (value, dropped)) in grads.collect::<Vec<_>>() {
            let target = builder.source(origin.source);
            if dropped {
                builder.exit.effects.push(Effect::DropGrad(target));
            }
            if !dropped || !value.is_none() {
                let value = self.build(builder, &value)?;
                builder.exit.effects.push(Effect::SetDescriptor(target, "grad".into(), value));
            }
        }
        Ok(())
    }

    /// Whether an outside object was changed so far: that is done where the frame ends.
    pub(crate) fn has_effects(&self) -> bool {
        self.changed_outside() > 0
    }

    /// How many outside objects were changed so far.
    pub(crate) fn changed_outside(&self) -> usize {
        let arenas = &self.arenas;
        arenas.dicts.iter().filter(|(_, d)| d.is_outside() && d.is_changed()).count()
            + arenas.lists.iter().filter(|(_, l)| l.origin.is_some() && l.dirty).count()
            + arenas.sets.iter().filter(|(_, s)| s.origin.is_some() && s.is_changed()).count()
            + arenas.cells.iter().filter(|(_, c)| c.origin.is_some() && c.dirty).count()
            + arenas.instances.iter().filter(|(_, i)| i.origin.is_some() && !i.slot_writes.is_empty()).count()
            + arenas
                .tensors
                .iter()
                .filter(|(_, t)| t.origin.is_some() && t.grad.as_ref().is_some_and(|grad| grad.written))
                .count()
            + self.class_writes.len()
            + self.drawn().count()
    }

    fn list_effects(&mut self, builder: &mut Builder) -> Flow<()> {
        let lists: Vec<_> = self
            .arenas
            .lists
            .iter()
            .filter(|(_, l)| l.dirty)
            .filter_map(|(_, l)| Some((l.origin?, l.loaded, l.items.clone())))
            .collect();
        for (origin, loaded, items) in lists {
            let items = self.build_all(builder, &items)?;
            let target = builder.source(origin.source);
            let effect = match self.is_deque_moved(origin.object) {
                _ if !loaded => Effect::ExtendList(target, items),
                Some(moved) => Effect::SetDeque(target, items, moved),
                None => Effect::SetList(target, items),
            };
            builder.exit.effects.push(effect);
        }
        Ok(())
    }

    fn dict_effects(&mut self, builder: &mut Builder, dict: DictId) -> Flow<()> {
        let entry = self.arenas.dicts[dict].clone();
        if !entry.is_outside() {
            return Ok(());
        }
        if let Some(factory) = &entry.written_factory {
            let factory = self.build(builder, factory)?;
            let target = self.build(builder, &Value::Dict(dict))?;
            builder.exit.effects.push(Effect::SetSlot(target, "default_factory".into(), factory));
        }
        if entry.rewritten {
            let mut items = Vec::with_capacity(entry.items.len());
            for (k, v) in entry.items.values() {
                items.push((self.build(builder, k)?, self.build(builder, v)?));
            }
            let target = self.build(builder, &Value::Dict(dict))?;
            builder.exit.effects.push(Effect::SetDict(target, items));
            return Ok(());
        }
        for (k, (key, value)) in &entry.writes {
            if value.is_some() && entry.moved.contains(k) && !flambeau_ir::mutated!("stored_again_in_place") {
                // Deleted and stored again: it loses its place.
                let effect = match (entry.owner, key.as_str()) {
                    (Some(owner), Some(name)) => Effect::DelAttr(builder.source(owner.source), name.clone()),
                    _ => {
                        let key = self.build(builder, key)?;
                        Effect::DelItem(self.build(builder, &Value::Dict(dict))?, key)
                    }
                };
                builder.exit.effects.push(effect);
            }
            let effect = match (entry.owner, key.as_str(), value) {
                (Some(owner), Some(name), Some(value)) => {
                    let value = self.build(builder, value)?;
                    Effect::SetAttr(builder.source(owner.source), name.clone(), value)
                }
                (Some(owner), Some(name), None) => Effect::DelAttr(builder.source(owner.source), name.clone()),
                (_, _, value) => {
                    let key = self.build(builder, key)?;
                    let value = value.as_ref().map(|v| self.build(builder, v)).transpose()?;
                    let target = self.build(builder, &Value::Dict(dict))?;
                    match value {
                        Some(value) => Effect::SetItem(target, key, value),
                        None => Effect::DelItem(target, key),
                    }
                }
            };
            builder.exit.effects.push(effect);
        }
        Ok(())
    }
}
