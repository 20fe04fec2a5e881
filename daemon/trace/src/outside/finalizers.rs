//! The moment at which an object with a finalizer goes, or one that weak references watch, whose callbacks run then. Both are
//! user code: what the trace did before must be there when it runs, and what comes after must not. So a frame breaks where it
//! lets go of such an object: the state that the next resume function is handed lacks it, and the client gives up the old
//! state first.
//!
//! Objects that the trace makes have no finalizer (making one is a break) and no weak references. That there are none to an
//! object that a resume function was handed is a guard. Arguments that a frame binds anew run as plain Python, as the call
//! holds them to its end otherwise.

use super::unread::MODULE;
use crate::state::broken::{Moment, Mortals};
use crate::state::tracer::Tracer;
use crate::value::flow::{Flow, Stop};
use crate::value::frame::{PyFrame, Slot};
use crate::value::{CellId, Class, DictId, InstanceId, ListId, Origin, SetId, Value};
use flambeau_bytecode::Op;
use flambeau_ir::code::Const;
use flambeau_ir::guard::GuardKind;
use flambeau_ir::object::ObjectData;
use flambeau_ir::oracle::{AnswerValue, Question};
use flambeau_ir::reason::{Reason, ReasonCode};
use flambeau_ir::source::{SourceId, Step};
use std::collections::HashSet;
use std::rc::Rc;

/// Values that are looked at for such objects in one trace: those in large containers, once an instruction, take too long.
const MOST_LOOKED_AT: usize = 1 << 23;

impl Tracer<'_> {
    /// Notes an outside object, if the frame may hold the last reference to it and its end is seen: it runs user code, or weak
    /// references tell.
    pub(crate) fn note_finalizer(&mut self, id: InstanceId, class: &Rc<Class>, origin: Origin) -> Flow<()> {
        if !class.is_python || !self.may_let_go(origin.source) {
            return Ok(());
        }
        if self.type_lookup(class, "__del__")?.is_some() {
            self.mortals.insert(id);
        } else if !class.derives(MODULE) && self.is_carried(origin.source) {
            // To modules the client has weak references itself.
            match self.ask_one(Question::WeakReferences(origin.object))? {
                AnswerValue::Const(Const::Bool(false)) => self.guard(origin.source, GuardKind::NoWeakReferences),
                _ => {
                    self.mortals.insert(id);
                }
            }
        }
        Ok(())
    }

    /// As [`Tracer::note_finalizer`], of an object that is at another place too: a variable may hold what a broken call gave.
    pub(crate) fn note_finalizer_again(&mut self, value: &Value, origin: Origin) -> Flow<()> {
        match value {
            Value::Instance(id) if !self.mortals.contains(id) => {
                let class = self.arenas.instances[*id].class.clone();
                self.note_finalizer(*id, &class, origin)
            }
            _ => Ok(()),
        }
    }

    /// Whether it is a variable of a frame that goes on: of the root, or of one further in, whose state is in its caller's.
    fn is_carried(&self, source: SourceId) -> bool {
        let (mut at, mut in_state) = (source, false);
        while let (Step::Index(_), Some(base)) = (&self.sources.get(at).step, self.sources.get(at).base) {
            (at, in_state) = (base, true);
        }
        self.resuming && in_state && matches!(self.sources.get(at).step, Step::Arg(_))
    }

    /// Whether what is there is in the state of a resume function, in a container that the frame was handed, or an argument
    /// that it binds anew.
    fn may_let_go(&self, source: SourceId) -> bool {
        let (mut at, mut contained) = (Some(source), self.resuming);
        while let Some(id) = at {
            let node = self.sources.get(id);
            match node.step {
                Step::Arg(slot) => contained |= self.binds_anew(slot),
                Step::Closure(_) | Step::Function => {}
                Step::Index(_) | Step::Item(_) | Step::Value(_) | Step::CellContents => contained = true,
                _ => return false,
            }
            at = node.base;
        }
        contained
    }

    /// Whether the traced frame binds the slot of an argument anew, or unbinds it.
    fn binds_anew(&self, slot: u32) -> bool {
        let Some(ObjectData::Function(function)) = self.heap.get(self.frame.function).map(|object| &object.data) else {
            return false;
        };
        self.decoded
            .get(&function.code)
            .is_some_and(|decoded| decoded.instrs.iter().any(|instr| instr.op.rebinds(slot)))
    }

    /// Whether it is an argument of the traced frame itself, which the call holds.
    fn is_argument(&self, instance: InstanceId) -> bool {
        let origin = self.arenas.instances[instance].origin;
        !self.resuming && origin.is_some_and(|origin| matches!(self.sources.get(origin.source).step, Step::Arg(_)))
    }

    /// What the frame may let go of with an instruction: among its operands, and in the slot that it binds anew.
    pub(crate) fn at_stake(&self, frame: &PyFrame, op: Op, operands: &[Option<Value>]) -> Mortals {
        let mut walk = Walk::new(self);
        operands.iter().flatten().for_each(|value| walk.value(value));
        if let Op::StoreFast(slot) | Op::DeleteFast(slot) | Op::StoreDeref(slot) | Op::DeleteDeref(slot) = op {
            walk.slot(&frame.locals[slot as usize]);
        }
        walk.found
    }

    /// After an instruction: breaks if it let go of an object with a finalizer, so that the finalizer runs now.
    pub(crate) fn let_go(&mut self, frame: &PyFrame, at: usize, before: &Moment) -> Flow<()> {
        if self.looked_at.get() > MOST_LOOKED_AT {
            let mut reason = Reason::new(ReasonCode::TooLarge, "objects with finalizers among too many others");
            self.freeze_after(frame, at, before, &mut reason);
            return Err(Stop::Break(Box::new(reason)));
        }
        let mut gone = std::mem::take(&mut self.ended);
        gone.extend(&before.at_stake);
        // Those that the instruction found first, as where it empties a list that was not read before.
        gone.extend(self.mortals.iter().skip(before.mortals));
        if gone.is_empty() {
            return Ok(());
        }
        let mut walk = Walk::new(self);
        frame.locals.iter().for_each(|slot| walk.slot(slot));
        frame.stack.iter().flatten().for_each(|value| walk.value(value));
        let Some(first) = gone.difference(&walk.found).next().copied() else { return Ok(()) };
        let name = self.arenas.instances[first].class.name.qualname.clone();
        let mut reason = Reason::new(
            ReasonCode::UnsupportedObject,
            format!("the end of a {name}, which has a finalizer or weak references"),
        );
        if self.is_argument(first) {
            reason.stack = self.locations();
        } else {
            self.freeze_after(frame, at, before, &mut reason);
        }
        Err(Stop::Break(Box::new(reason)))
    }

    /// What goes with an inlined frame that returns `result`: its caller sees to it.
    pub(crate) fn end_frame(&mut self, frame: &PyFrame, result: &Value) {
        let mut kept = Walk::new(self);
        kept.value(result);
        let kept = kept.found;
        let mut walk = Walk::new(self);
        frame.locals.iter().for_each(|slot| walk.slot(slot));
        let gone: Mortals = walk.found.difference(&kept).copied().collect();
        self.ended.extend(gone);
    }
}

/// Looks for such instances in values and all that they hold.
struct Walk<'t, 'a> {
    tracer: &'t Tracer<'a>,
    found: Mortals,
    lists: HashSet<ListId>,
    dicts: HashSet<DictId>,
    sets: HashSet<SetId>,
    cells: HashSet<CellId>,
    instances: HashSet<InstanceId>,
}

impl<'t, 'a> Walk<'t, 'a> {
    fn new(tracer: &'t Tracer<'a>) -> Self {
        Walk {
            tracer,
            found: Mortals::new(),
            lists: HashSet::new(),
            dicts: HashSet::new(),
            sets: HashSet::new(),
            cells: HashSet::new(),
            instances: HashSet::new(),
        }
    }

    fn slot(&mut self, slot: &Slot) {
        if let Slot::Value(value) = slot {
            self.value(value);
        }
    }

    fn value(&mut self, value: &Value) {
        self.tracer.looked_at.set(self.tracer.looked_at.get() + 1);
        flambeau_ir::bounds::check();
        let arenas = &self.tracer.arenas;
        match value {
            Value::Instance(id) if self.instances.insert(*id) => {
                let instance = &arenas.instances[*id];
                if self.tracer.mortals.contains(id) {
                    self.found.insert(*id);
                }
                instance.attrs.iter().for_each(|attrs| self.dict(*attrs));
                instance.slots.values().flatten().for_each(|value| self.value(value));
            }
            Value::Tuple(tuple) => tuple.items.iter().for_each(|item| self.value(item)),
            Value::List(id) if self.lists.insert(*id) => {
                arenas.lists[*id].items.iter().for_each(|item| self.value(item));
            }
            Value::Dict(id) | Value::DictView(id, _) => self.dict(*id),
            Value::Set(id) if self.sets.insert(*id) => {
                arenas.sets[*id].items.values().for_each(|item| self.value(item));
            }
            Value::Cell(id) if self.cells.insert(*id) => {
                arenas.cells[*id].value.iter().for_each(|value| self.value(value));
            }
            Value::Method(method) => {
                self.value(&method.func);
                self.value(&method.receiver);
            }
            Value::Builtin(builtin) => builtin.receiver.iter().for_each(|receiver| self.value(receiver)),
            Value::Function(function) => {
                function.closure.iter().for_each(|cell| self.value(&Value::Cell(*cell)));
                let dicts = [function.attrs.get(), function.slots.get()];
                dicts.into_iter().flatten().for_each(|dict| self.dict(dict));
            }
            Value::Parts(parts) => parts.items.iter().for_each(|part| self.value(part)),
            _ => {}
        }
    }

    fn dict(&mut self, id: DictId) {
        if self.dicts.insert(id) {
            self.tracer.arenas.dicts[id].items.values().for_each(|(key, value)| {
                self.value(key);
                self.value(value);
            });
        }
    }
}
