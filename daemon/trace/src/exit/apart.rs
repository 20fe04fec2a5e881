//! Frames that have nothing to do with tensors: they hold none, called no operation, and their code names nothing of torch.
//! Parsing of options, an array library's own loops and the like may break at each of their instructions, and nothing would
//! be compiled in between. A break below such frames alone is one of the call that entered them, which plain Python runs.
//!
//! This decides where a frame breaks, not what it does: nothing is guarded, nothing is asked. What is not known counts as a
//! tensor.

use crate::state::broken::Frozen;
use crate::state::tracer::Tracer;
use crate::value::frame::Slot;
use crate::value::{Iter, Key, Of, Payload, Value};
use flambeau_ir::code::Const;
use flambeau_ir::object::{ObjId, Object, ObjectData};
use std::collections::HashSet;

/// Objects that are looked at for one frame before it counts as one that deals in tensors.
const MOST: usize = 400;
/// How deep containers and objects are looked into.
const DEEPEST: usize = 6;

/// A look at what values hold.
struct Look<'t, 'a> {
    tracer: &'t Tracer<'a>,
    seen: HashSet<ObjId>,
    left: usize,
    /// Whether what was not described counts as a tensor.
    wary: bool,
}

impl Tracer<'_> {
    /// How many frames of a break, from the innermost on, have nothing to do with tensors.
    pub(super) fn apart(&self, frames: &[Frozen], also: impl Fn(&Frozen) -> bool) -> usize {
        frames.iter().take_while(|frame| also(frame) || self.is_apart(frame)).count()
    }

    fn is_apart(&self, frame: &Frozen) -> bool {
        if frame.worked {
            return false;
        }
        let mut look = Look { tracer: self, seen: HashSet::new(), left: MOST, wary: true };
        let slots = frame.locals.iter().any(|slot| match slot {
            Slot::Empty => false,
            Slot::Value(value) => look.value(value, 0),
            Slot::Lazy(object, _) => look.object(*object, 0),
        });
        if slots || frame.stack.iter().flatten().any(|value| look.value(value, 0)) {
            return false;
        }
        // Of what its code names, few things are known, and most have nothing to do with it.
        look.wary = false;
        let globals = frame.function.globals;
        !frame.code.names.iter().any(|name| look.global(globals, name))
    }
}

impl Look<'_, '_> {
    fn global(&mut self, globals: crate::value::DictId, name: &str) -> bool {
        let dict = &self.tracer.arenas.dicts[globals];
        if let Some((_, value)) = dict.items.get(&Key::str(name)) {
            let value = value.clone();
            return self.value(&value, 0);
        }
        let Some(origin) = dict.origin else { return false };
        match self.tracer.dict_items.get(&(origin.object, Const::str(name))) {
            Some(Some(object)) => self.object(*object, 0),
            _ => false,
        }
    }

    /// Whether a value of the trace is or holds a tensor, a module or something else of torch.
    fn value(&mut self, value: &Value, depth: usize) -> bool {
        if self.left == 0 || depth > DEEPEST {
            return self.wary;
        }
        self.left -= 1;
        let arenas = &self.tracer.arenas;
        let next = depth + 1;
        match value {
            Value::Tensor(_) => true,
            Value::Address(of) => self.value(of, next),
            Value::Const(_) | Value::Int(_) | Value::Code(_) | Value::Descriptor(_) => false,
            Value::Tuple(tuple) => tuple.items.iter().any(|item| self.value(item, next)),
            Value::List(id) => {
                let list = &arenas.lists[*id];
                let unread = list.origin.filter(|_| !list.loaded);
                unread.is_some_and(|origin| self.object(origin.object, depth))
                    || list.items.iter().any(|item| self.value(item, next))
            }
            Value::Set(id) => {
                let set = &arenas.sets[*id];
                set.items.values().any(|item| self.value(item, next))
            }
            Value::Dict(id) | Value::DictView(id, _) => self.dict(*id, depth),
            Value::Function(function) => {
                let own = function.closure.iter().any(|cell| self.cell(*cell, next))
                    || [&function.attrs, &function.slots]
                        .iter()
                        .any(|dict| dict.get().is_some_and(|d| self.dict(d, next)));
                own || of_torch(function.path.as_deref())
                    || function.origin.is_some_and(|origin| self.object(origin.object, depth))
            }
            Value::Method(method) => self.value(&method.func, next) || self.value(&method.receiver, next),
            Value::Builtin(function) => {
                of_torch(Some(&function.path)) || function.receiver.as_ref().is_some_and(|of| self.value(of, next))
            }
            Value::Parts(parts) => parts.items.iter().any(|part| self.value(part, next)),
            Value::Class(class) => class.mro_paths.iter().any(|path| of_torch(Some(path))),
            Value::Instance(id) => self.instance(*id, depth),
            Value::Module(module) => of_torch(module.path.as_deref()),
            Value::Opaque(opaque) => {
                of_torch(opaque.path.as_deref()) || opaque.class.mro_paths.iter().any(|path| of_torch(Some(path)))
            }
            Value::Cell(cell) => self.cell(*cell, depth),
            Value::Unread(origin) => self.object(origin.object, depth),
            Value::Iter(id) => match &arenas.iters[*id] {
                Iter::Range { .. } => false,
                Iter::Items { items, of: Of::Items | Of::Value(_), .. } => {
                    items.iter().any(|item| self.value(item, next))
                }
                Iter::List { list, .. } => self.value(&Value::List(*list), next),
                Iter::Dict { dict, .. } => self.dict(*dict, next),
                Iter::Enumerate { iter, .. } => self.value(iter, next),
                Iter::Zip { iters, .. } => iters.iter().any(|iter| self.value(iter, next)),
                Iter::Ahead(ahead) => self.object(ahead.origin.object, depth),
                _ => self.wary,
            },
            Value::Generator(_) => self.wary,
        }
    }

    fn cell(&mut self, cell: crate::value::CellId, depth: usize) -> bool {
        let cell = &self.tracer.arenas.cells[cell];
        match (&cell.value, cell.origin) {
            (Some(value), _) => self.value(value, depth),
            (None, Some(origin)) if !cell.loaded => self.object(origin.object, depth),
            _ => false,
        }
    }

    fn dict(&mut self, dict: crate::value::DictId, depth: usize) -> bool {
        let dict = &self.tracer.arenas.dicts[dict];
        if dict.items.values().any(|(_, value)| self.value(value, depth + 1)) {
            return true;
        }
        match dict.origin {
            Some(origin) if !dict.loaded => self.object(origin.object, depth),
            _ => false,
        }
    }

    fn instance(&mut self, id: crate::value::InstanceId, depth: usize) -> bool {
        let instance = &self.tracer.arenas.instances[id];
        if instance.class.mro_paths.iter().any(|path| of_torch(Some(path))) {
            return true;
        }
        if let Payload::Polyfill { state, .. } = &instance.payload
            && self.value(state, depth + 1)
        {
            return true;
        }
        let slots = instance.slots.values().flatten().any(|value| self.value(value, depth + 1));
        slots || instance.attrs.is_some_and(|attrs| self.dict(attrs, depth))
    }

    /// The same of an object from outside, as far as it was described.
    fn object(&mut self, id: ObjId, depth: usize) -> bool {
        if !self.seen.insert(id) {
            return false;
        }
        if self.left == 0 || depth > DEEPEST {
            return self.wary;
        }
        self.left -= 1;
        let Some(object) = self.tracer.heap.get(id).cloned() else { return self.wary };
        if of_torch(object.path.as_deref()) || self.is_kind_of_torch(&object) {
            return true;
        }
        let parts = match &object.data {
            ObjectData::Tensor(_) => return true,
            ObjectData::Tuple(items)
            | ObjectData::List(items)
            | ObjectData::Deque { items, .. }
            | ObjectData::Set(items)
            | ObjectData::FrozenSet(items)
            | ObjectData::Parts(_, items) => items.clone(),
            ObjectData::Dict(items) => items.iter().map(|(_, value)| *value).collect(),
            ObjectData::Cell(held) => held.iter().copied().collect(),
            ObjectData::Iterator { ahead, .. } => vec![*ahead],
            ObjectData::Function(function) => function.closure.clone(),
            ObjectData::Method { func, receiver } => vec![*func, *receiver],
            ObjectData::Builtin { receiver, .. } => receiver.iter().copied().collect(),
            ObjectData::Instance | ObjectData::ThreadLocal => object.dict.iter().copied().collect(),
            ObjectData::Namespace => return self.wary,
            _ => Vec::new(),
        };
        parts.into_iter().any(|part| self.object(part, depth + 1))
    }

    /// Whether its type, or the type that it is, derives from one of torch.
    fn is_kind_of_torch(&self, object: &Object) -> bool {
        let of = |id: ObjId| match self.tracer.heap.get(id).map(|class| &class.data) {
            Some(ObjectData::Class(class)) => class
                .mro
                .iter()
                .any(|base| self.tracer.heap.get(*base).is_some_and(|base| of_torch(base.path.as_deref()))),
            _ => false,
        };
        of(object.class) || matches!(object.data, ObjectData::Class(_)) && of(object.id)
    }
}

fn of_torch(path: Option<&str>) -> bool {
    path.is_some_and(|path| path == "torch" || path.starts_with("torch."))
}
