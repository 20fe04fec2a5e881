//! `type(value)`, and the built-in types that are known without reading them from outside.

use crate::flow::{Flow, stop};
use crate::tracer::Tracer;
use crate::value::{Class, Iter, Value};
use flambeau_ir::code::Const;
use flambeau_ir::reason::ReasonCode;
use std::rc::Rc;

impl Tracer<'_> {
    /// `type(value)`.
    pub fn class_of(&mut self, value: &Value) -> Flow<Rc<Class>> {
        let path = match value {
            Value::Instance(id) => return Ok(self.arenas.instances[*id].class.clone()),
            Value::Opaque(o) => return Ok(o.class.clone()),
            Value::Unread(origin) => {
                let class = self.describe(origin.object)?.class;
                return self.guard_type(class, origin.source);
            }
            Value::Tensor(id) => match &self.arenas.tensors[*id].class {
                Some(class) => return Ok(class.clone()),
                None => return self.trusted_class("torch", "Tensor"),
            },
            Value::List(id) => match &self.arenas.lists[*id].class {
                Some(class) => return Ok(class.clone()),
                None => "builtins.list",
            },
            Value::Dict(id) => match &self.arenas.dicts[*id].class {
                Some(class) => return Ok(class.clone()),
                None => "builtins.dict",
            },
            Value::Tuple(t) => match &t.class {
                Some(class) => return Ok(class.clone()),
                None => "builtins.tuple",
            },
            Value::Const(c) => const_class(c),
            Value::Int(_) => "builtins.int",
            Value::DictView(_, kind) => match kind {
                crate::value::ViewKind::Keys => "builtins.dict_keys",
                crate::value::ViewKind::Values => "builtins.dict_values",
                crate::value::ViewKind::Items => "builtins.dict_items",
            },
            Value::Set(id) if self.arenas.sets[*id].frozen => "builtins.frozenset",
            Value::Set(_) => "builtins.set",
            Value::Slice(_) => "builtins.slice",
            Value::Range(_) => "builtins.range",
            Value::Function(_) => "types.FunctionType",
            Value::Method(_) => "types.MethodType",
            Value::Builtin(b)
                if b.path.ends_with("__") && b.path.rsplit('.').next().is_some_and(|n| n.starts_with("__")) =>
            {
                return stop(ReasonCode::UnsupportedObject, format!("the type of {}", b.path));
            }
            Value::Builtin(b) if b.unbound => "types.MethodDescriptorType",
            Value::Builtin(_) => "types.BuiltinFunctionType",
            Value::Class(_) => "builtins.type",
            Value::Module(_) => "types.ModuleType",
            Value::Cell(_) => "types.CellType",
            Value::Generator(_) => "types.GeneratorType",
            Value::Iter(id) => match &self.arenas.iters[*id] {
                Iter::Zip { .. } => "builtins.zip",
                Iter::Enumerate { .. } => "builtins.enumerate",
                Iter::Map { .. } => "builtins.map",
                Iter::Filter { .. } => "builtins.filter",
                _ => "builtins.iterator",
            },
            Value::Super(_) => "builtins.super",
            Value::Partial(_) => "functools.partial",
            Value::Descriptor(d) => match &**d {
                crate::value::Descriptor::Property { .. } => "builtins.property",
                crate::value::Descriptor::Static(_) => "builtins.staticmethod",
                crate::value::Descriptor::Class(_) => "builtins.classmethod",
                crate::value::Descriptor::Data { .. } => "types.GetSetDescriptorType",
            },
            Value::Code(_) => "types.CodeType",
        };
        if let Value::Class(class) = value {
            return self.metaclass(class);
        }
        Ok(self.builtin_class(path))
    }

    fn metaclass(&mut self, class: &Rc<Class>) -> Flow<Rc<Class>> {
        let Some(origin) = class.origin else { return Ok(self.builtin_class("builtins.type")) };
        let described = self.describe(origin.object)?;
        let s = self.step(origin.source, flambeau_ir::source::Step::Class);
        match self.wrap(described.class, s)? {
            Value::Class(c) => Ok(c),
            _ => Ok(self.builtin_class("builtins.type")),
        }
    }

    /// A built-in type by path.
    pub fn builtin_class(&mut self, path: &'static str) -> Rc<Class> {
        let bases: &[&str] = match path {
            "builtins.bool" => &["builtins.int"],
            "torch.Size" => &["builtins.tuple"],
            _ => &[],
        };
        self.builtin_classes.entry(path).or_insert_with(|| Class::builtin(path, bases)).clone()
    }

    /// A class of a trusted module, read through `sys.modules`.
    pub(crate) fn trusted_class(&mut self, module: &str, name: &'static str) -> Flow<Rc<Class>> {
        if let Some(class) = self.trusted.get(name) {
            return Ok(class.clone());
        }
        let module = self.sys_module(module)?;
        match self.get_attr(&module, name)? {
            Value::Class(class) => {
                self.trusted.insert(name, class.clone());
                Ok(class)
            }
            _ => crate::flow::internal(format!("{name} is no class")),
        }
    }

    /// The name of the value's type, for messages.
    pub fn type_name(&mut self, value: &Value) -> String {
        match self.class_of(value) {
            Ok(class) => {
                let qualname = &class.name.qualname;
                qualname.rsplit('.').next().unwrap_or(qualname).to_string()
            }
            Err(_) => "object".into(),
        }
    }
}

fn const_class(c: &Const) -> &'static str {
    match c {
        Const::None => "types.NoneType",
        Const::Ellipsis => "types.EllipsisType",
        Const::NotImplemented => "types.NotImplementedType",
        Const::Bool(_) => "builtins.bool",
        Const::Int(_) | Const::BigInt(_) => "builtins.int",
        Const::Float(_) => "builtins.float",
        Const::Complex(..) => "builtins.complex",
        Const::Str(_) => "builtins.str",
        Const::Bytes(_) => "builtins.bytes",
        Const::Tuple(_) => "builtins.tuple",
        Const::FrozenSet(_) => "builtins.frozenset",
        Const::Slice(_) => "builtins.slice",
        Const::Code(_) => "types.CodeType",
        Const::Dtype(_) => "torch.dtype",
        Const::Device(_) => "torch.device",
        Const::Layout(_) => "torch.layout",
        Const::MemoryFormat(_) => "torch.memory_format",
    }
}
