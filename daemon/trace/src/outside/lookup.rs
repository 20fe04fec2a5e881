//! Roots other than arguments (`builtins`, `sys.modules`), and asking ahead for what a function will read.

use crate::state::tracer::Tracer;
use crate::value::flow::{Flow, Stop, stop};
use crate::value::{Descriptor, DictId, Function, Iter, Origin, Value};
use flambeau_bytecode::Op;
use flambeau_ir::code::Const;
use flambeau_ir::object::{ObjId, ObjectData};
use flambeau_ir::oracle::{AnswerValue, Question};
use flambeau_ir::reason::ReasonCode;
use flambeau_ir::source::Step;
use std::rc::Rc;
use std::sync::Arc;

impl Tracer<'_> {
    /// The builtins namespace.
    pub(crate) fn builtins_dict(&mut self) -> Flow<DictId> {
        let source = self.sources.intern(None, Step::Builtins);
        self.dict_at(self.frame.builtins, source)
    }

    /// `sys.modules[name]`; a module that is not loaded would have to be imported, which is a break.
    pub(crate) fn sys_module(&mut self, name: &str) -> Flow<Value> {
        let source = self.sources.intern(None, Step::SysModule(name.into()));
        if let Some(known) = self.modules.get(name) {
            return Ok(known.clone());
        }
        match self.ask_one(Question::SysModule(name.into()))? {
            AnswerValue::Object(Some(object)) => {
                let module = self.wrap(object, source)?;
                self.modules.insert(name.into(), module.clone());
                Ok(module)
            }
            _ => stop(ReasonCode::SideEffect, format!("importing {name}, which is not loaded yet")),
        }
    }

    /// Where a value is from, if it is an outside object.
    pub(crate) fn origin_of(&self, value: &Value) -> Option<Origin> {
        match value {
            Value::Tensor(id) => self.arenas.tensors[*id].origin,
            Value::Tuple(t) => t.origin,
            Value::List(id) => self.arenas.lists[*id].origin,
            Value::Dict(id) => self.arenas.dicts[*id].origin,
            Value::Set(id) => self.arenas.sets[*id].origin,
            Value::Function(f) => f.origin,
            Value::Method(m) => m.origin,
            Value::Builtin(b) => b.origin,
            Value::Class(c) => c.origin,
            Value::Instance(id) => self.arenas.instances[*id].origin,
            Value::Module(m) => Some(m.origin),
            Value::Cell(id) => self.arenas.cells[*id].origin,
            Value::Parts(parts) => parts.origin,
            Value::Iter(id) => match &self.arenas.iters[*id] {
                Iter::Ahead(ahead) => Some(ahead.origin),
                _ => None,
            },
            Value::Opaque(o) => Some(o.origin),
            Value::Descriptor(d) => match &**d {
                Descriptor::NativeClass(b) => b.origin,
                _ => None,
            },
            Value::Unread(origin) => Some(*origin),
            _ => None,
        }
    }

    /// Whether a result raised a built-in exception with this name.
    pub(crate) fn is_raise_of<T>(&self, result: &Flow<T>, name: &str) -> bool {
        match result {
            Err(Stop::Raise(Value::Instance(id))) => {
                self.arenas.instances[*id].class.derives(&format!("builtins.{name}"))
            }
            Err(Stop::Raise(Value::Opaque(o))) => o.class.derives(&format!("builtins.{name}")),
            _ => false,
        }
    }

    /// Asks in few batches for what a function's code will read: its globals, attributes of the modules among them, and
    /// attributes of its first argument's class.
    pub(crate) fn prefetch_code(&mut self, function: &Rc<Function>, receiver: Option<&Value>) -> Flow<()> {
        let class = match receiver {
            Some(Value::Instance(id)) => self.arenas.instances[*id].class.origin.map(|o| o.object),
            _ => None,
        };
        if !self.prefetched.insert((function.code.hash, class)) {
            return Ok(());
        }
        let code = function.code.clone();
        let decoded = self.decode(&code)?;
        let name = |i: u32| code.names.get(i as usize).map(|n| Arc::<str>::from(n.as_str()));
        if let Some(class) = class {
            let on_self: Vec<(ObjId, Arc<str>)> = decoded
                .instrs
                .windows(2)
                .filter_map(|pair| match (pair[0].op, pair[1].op) {
                    (Op::LoadFast(0), Op::LoadAttr { name: n, .. } | Op::StoreAttr(n)) => Some((class, name(n)?)),
                    _ => None,
                })
                .collect();
            self.prefetch_type_attrs(on_self)?;
        }
        let Some(globals) = self.arenas.dicts[function.globals].origin.map(|o| o.object) else { return Ok(()) };
        let mut wanted = Vec::new();
        for instr in &decoded.instrs {
            if let Op::LoadGlobal { name: n, .. } = instr.op
                && let Some(n) = name(n)
            {
                wanted.push((globals, Const::Str(n)));
            }
        }
        self.prefetch_items(wanted.clone())?;
        let missing = wanted
            .iter()
            .filter(|k| matches!(self.dict_items.get(*k), Some(None)))
            .map(|(_, key)| (self.frame.builtins, key.clone()))
            .collect();
        self.prefetch_items(missing)?;
        let mut of_modules = Vec::new();
        for pair in decoded.instrs.windows(2) {
            let (Op::LoadGlobal { name: g, .. }, Op::LoadAttr { name: a, .. }) = (pair[0].op, pair[1].op) else {
                continue;
            };
            let (Some(g), Some(a)) = (name(g), name(a)) else { continue };
            if let Some(Some(object)) = self.dict_items.get(&(globals, Const::Str(g)))
                && let Some(module) = self.heap.get(*object)
                && let (ObjectData::Module(_), Some(dict)) = (&module.data, module.dict)
                && self.heap.get(dict).is_none_or(|d| matches!(d.data, ObjectData::Namespace))
            {
                of_modules.push((dict, Const::Str(a)));
            }
        }
        self.prefetch_items(of_modules)
    }
}
