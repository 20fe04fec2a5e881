//! Sets that leave the frame: made and changed by the calls that CPython made, as the order of their elements follows from
//! these (`History`).

use super::build::Builder;
use crate::state::tracer::Tracer;
use crate::value::flow::{Flow, stop};
use crate::value::{Made, SetId, Value};
use flambeau_ir::exit::{Build, BuildId, Effect};
use flambeau_ir::reason::ReasonCode;

impl Tracer<'_> {
    /// A new set, as it was before the first change that is replayed as one (see [`Tracer::set_changes`]).
    pub(super) fn build_set(&mut self, builder: &mut Builder, id: SetId) -> Flow<Build> {
        let set = self.arenas.sets[id].clone();
        if self.is_built_whole(id) {
            let items: Vec<Value> = set.items.into_values().collect();
            let items = self.build_all(builder, &items)?;
            return Ok(if set.frozen { Build::FrozenSet(items) } else { Build::Set(items) });
        }
        match set.history.made {
            Made::Plain => Ok(Build::Set(vec![])),
            Made::Call(path, operands) => Ok(Build::Call(path.into(), self.build_all(builder, &operands)?)),
            Made::Unknown => {
                stop(ReasonCode::SideEffect, "a set whose elements are in an order of its own leaves the frame")
            }
        }
    }

    /// Changes of the set that was there before, or was made by [`Tracer::build_set`].
    pub(super) fn set_changes(&mut self, builder: &mut Builder, id: SetId, target: BuildId) -> Flow<()> {
        if self.arenas.sets[id].origin.is_none() && self.is_built_whole(id) {
            return Ok(());
        }
        let history = self.arenas.sets[id].history.clone();
        if let Made::Unknown = history.made {
            return stop(ReasonCode::SideEffect, "a set is changed whose elements are in an order of its own");
        }
        for (method, args) in history.changes {
            let args = self.build_all(builder, &args)?;
            builder.exit.effects.push(Effect::ChangeSet(target, method.into(), args));
        }
        Ok(())
    }

    /// Whether changes of the set are replayed once it is there.
    pub(super) fn is_changed_set(&self, id: SetId) -> bool {
        let set = &self.arenas.sets[id];
        set.is_changed() && (set.origin.is_some() || !self.is_built_whole(id))
    }

    /// Whether a new set is what putting its elements into an empty one gives. A single element has no order.
    fn is_built_whole(&self, id: SetId) -> bool {
        let set = &self.arenas.sets[id];
        set.items.len() < 2 || set.history.is_additions()
    }
}
