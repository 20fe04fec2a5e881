//! `type(value)`, what a type provides, and the built-in types that are known without reading them from outside.

use crate::state::tracer::Tracer;
use crate::value::flow::{Flow, stop};
use crate::value::{Class, Descriptor, DictId, Exhausted, Iter, Of, Value, ViewKind};
use flambeau_ir::code::Const;
use flambeau_ir::guard::GuardKind;
use flambeau_ir::object::ObjId;
use flambeau_ir::oracle::{AnswerValue, Question};
use flambeau_ir::reason::ReasonCode;
use flambeau_ir::source::Step;
use std::rc::Rc;
use std::sync::Arc;

impl Tracer<'_> {
    /// `type(value)`.
    pub fn class_of(&mut self, value: &Value) -> Flow<Rc<Class>> {
        flambeau_ir::bounds::check();
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
            Value::Int(_) | Value::Address(_) => "builtins.int",
            Value::DictView(id, kind) => return self.view_class(*id, *kind),
            Value::Set(id) if self.arenas.sets[*id].frozen => "builtins.frozenset",
            Value::Set(_) => "builtins.set",
            Value::Parts(parts) => parts.of,
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
            Value::Module(module) => match self.module_subclass(module)? {
                Some(class) => return Ok(class),
                None => "types.ModuleType",
            },
            Value::Cell(_) => "types.CellType",
            Value::Generator(_) => "types.GeneratorType",
            Value::Iter(id) => match &self.arenas.iters[*id] {
                Iter::Ahead(ahead) => return Ok(ahead.class.clone()),
                Iter::Polyfill(polyfill) => return Ok(polyfill.class.clone()),
                iter => match type_of_iterator(iter) {
                    Some(name) => return self.trusted_class("flambeau._begun", name),
                    None => iterator_path(iter),
                },
            },
            Value::Descriptor(d) => descriptor_path(d)?,
            Value::Code(_) => "types.CodeType",
        };
        if let Value::Class(class) = value {
            return self.metaclass(class);
        }
        Ok(self.builtin_class(path))
    }

    fn view_class(&mut self, dict: DictId, kind: ViewKind) -> Flow<Rc<Class>> {
        let of = self.arenas.dicts[dict].class.as_ref();
        if of.is_some_and(|c| c.derives("collections.OrderedDict")) {
            // These have no name that they could be read from.
            return Ok(self.builtin_class(match kind {
                ViewKind::Keys => "builtins.odict_keys",
                ViewKind::Values => "builtins.odict_values",
                ViewKind::Items => "builtins.odict_items",
            }));
        }
        self.trusted_class(
            "_collections_abc",
            match kind {
                ViewKind::Keys => "dict_keys",
                ViewKind::Values => "dict_values",
                ViewKind::Items => "dict_items",
            },
        )
    }

    fn metaclass(&mut self, class: &Rc<Class>) -> Flow<Rc<Class>> {
        let Some(origin) = class.origin else { return Ok(self.builtin_class("builtins.type")) };
        let described = self.describe(origin.object)?;
        let s = self.step(origin.source, Step::Class);
        match self.wrap(described.class, s)? {
            Value::Class(c) => Ok(c),
            _ => Ok(self.builtin_class("builtins.type")),
        }
    }

    /// The type itself behind one that is known by its path only, read from where it has a name.
    pub(crate) fn real_class(&mut self, class: &Rc<Class>) -> Flow<Rc<Class>> {
        if class.origin.is_some() {
            return Ok(class.clone());
        }
        let unknown = || stop(ReasonCode::UnsupportedObject, format!("attributes of a {}", class.name.qualname));
        let Some((module, name)) = class.path.as_deref().and_then(|path| path.rsplit_once('.')) else {
            return unknown();
        };
        if let Some(known) = self.real_classes.get(&class.path) {
            return Ok(known.clone());
        }
        let Value::Module(module) = self.sys_module(module)? else { return unknown() };
        match self.dict_get_str(module.dict, name)? {
            // Types that `types` gives public names have no path of their own.
            Some(Value::Class(real)) if real.path == class.path || real.name == class.name => {
                self.real_classes.insert(class.path.clone(), real.clone());
                Ok(real)
            }
            _ => unknown(),
        }
    }

    /// A built-in type by path.
    pub fn builtin_class(&mut self, path: &'static str) -> Rc<Class> {
        let bases: &[&str] = match path {
            "builtins.bool" => &["builtins.int"],
            "torch.Size" => &["builtins.tuple"],
            "datetime.datetime" => &["datetime.date"],
            "numpy.float64" => &["numpy.floating", "numpy.inexact", "numpy.number", "numpy.generic", "builtins.float"],
            "numpy.float32" => &["numpy.floating", "numpy.inexact", "numpy.number", "numpy.generic"],
            "numpy.bool" | "numpy.bool_" => &["numpy.generic"],
            "numpy.int64" | "numpy.int32" => &["numpy.signedinteger", "numpy.integer", "numpy.number", "numpy.generic"],
            "builtins.odict_keys" => &["builtins.dict_keys"],
            "builtins.odict_values" => &["builtins.dict_values"],
            "builtins.odict_items" => &["builtins.dict_items"],
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
            _ => crate::value::flow::internal(format!("{name} is no class")),
        }
    }

    /// What `_PyType_Lookup(class, name)` finds, guarded: the class it is on (if its description is known) and the raw value.
    pub fn type_lookup(&mut self, class: &Rc<Class>, name: &str) -> Flow<Option<(Rc<Class>, Value)>> {
        let class = &self.searched_class(class, name)?;
        let Some((position, found)) = self.written_attr(class, name) else {
            return self.type_lookup_before(class, name);
        };
        self.need_unchanged(true)?;
        // What the classes in front of it have themselves goes first.
        for before in 0..position {
            let owner = self.mro_class(class, before)?;
            if let Some(value) = self.own_attr(&owner, name)? {
                return Ok(Some((owner, value)));
            }
        }
        Ok(Some(found))
    }

    /// What a class itself has, without its bases.
    fn own_attr(&mut self, class: &Rc<Class>, name: &str) -> Flow<Option<Value>> {
        if class.origin.is_none() {
            return Ok(None);
        }
        match self.namespace_of(class)? {
            Some(dict) => self.dict_get(dict, &Value::str(name)),
            None => stop(ReasonCode::UnsupportedObject, "__dict__ of a class"),
        }
    }

    /// The dict that holds what a class itself has.
    pub(crate) fn namespace_of(&mut self, class: &Class) -> Flow<Option<DictId>> {
        let Some(origin) = class.origin else { return Ok(None) };
        let Some(dict) = self.describe(origin.object)?.dict else { return Ok(None) };
        let source = self.step(origin.source, Step::Dict);
        self.dict_at(dict, source).map(Some)
    }

    /// What the trace set in a class of this one's MRO, with its place there.
    fn written_attr(&self, class: &Class, name: &str) -> Option<(usize, (Rc<Class>, Value))> {
        let written = self.class_writes.iter().filter(|written| &*written.name == name);
        let found = written.filter_map(|written| {
            let object = written.class.origin?.object;
            let position = class.mro.iter().position(|c| *c == object)?;
            Some((position, (written.class.clone(), written.value.clone())))
        });
        found.min_by_key(|(position, _)| *position)
    }

    /// As [`Self::type_lookup`], as it was before the trace.
    fn type_lookup_before(&mut self, class: &Rc<Class>, name: &str) -> Flow<Option<(Rc<Class>, Value)>> {
        let Some(origin) = class.origin else { return Ok(None) };
        let key = (origin.object, Arc::from(name));
        if let Some(known) = self.type_attrs.get(&key) {
            return Ok(known.clone());
        }
        let found = self.raw_type_lookup(origin.object, name)?;
        let result = match found {
            None => {
                self.guard(origin.source, GuardKind::NoTypeAttr(name.into()));
                None
            }
            Some((owner, value)) => {
                let source = self.step(origin.source, Step::TypeAttr(name.into()));
                let value = self.wrap(value, source)?;
                let position = class.mro.iter().position(|c| *c == owner).unwrap_or(0);
                Some((self.mro_class(class, position)?, value))
            }
        };
        self.type_attrs.insert(key, result.clone());
        Ok(result)
    }

    /// The type in which a name is looked up.
    pub(crate) fn searched_class(&mut self, class: &Rc<Class>, name: &str) -> Flow<Rc<Class>> {
        match ordered_view(class) {
            // These have no name to be read from. All but special methods are their base's.
            Some(base) if !name.starts_with("__") => self.trusted_class("_collections_abc", base),
            _ => self.real_class(class),
        }
    }

    /// The owner and raw value of a type attribute, unguarded.
    pub(crate) fn raw_type_lookup(&mut self, class: ObjId, name: &str) -> Flow<Option<(ObjId, ObjId)>> {
        if let Some(known) = self.raw_types.get(&(class, name.into())) {
            return Ok(*known);
        }
        let answer = self.ask_one(Question::TypeLookup { class, name: name.into() })?;
        let found = type_answer(&answer);
        self.raw_types.insert((class, name.into()), found);
        Ok(found)
    }

    /// Asks for several type attributes at once, for later look-ups.
    pub(crate) fn prefetch_type_attrs(&mut self, wanted: Vec<(ObjId, Arc<str>)>) -> Flow<()> {
        let wanted: Vec<_> = wanted.into_iter().filter(|k| !self.raw_types.contains_key(k)).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let questions: Vec<Question> =
            wanted.iter().map(|(class, name)| Question::TypeLookup { class: *class, name: name.to_string() }).collect();
        for (key, answer) in wanted.into_iter().zip(self.ask_ahead(&questions)?) {
            if !matches!(answer, AnswerValue::Refused(_)) {
                self.raw_types.insert(key, type_answer(&answer));
            }
        }
        Ok(())
    }

    /// The name of the value's type, for messages.
    pub fn type_name(&mut self, value: &Value) -> String {
        match self.class_of(value) {
            Ok(class) => {
                let (module, qualname) = (&class.name.module, &class.name.qualname);
                // Types of C bear their module in `tp_name`, which is what messages show.
                let known = |path: &str| self.library.kind(path).is_some() || path.starts_with("itertools.");
                let by_path = class.path.as_deref().is_some_and(|path| C_TYPES.contains(&path) || known(path));
                if !class.is_python && &**module != "builtins" && (class.origin.is_some() || by_path) {
                    return format!("{module}.{qualname}");
                }
                class.own_name.to_string()
            }
            Err(_) => "object".into(),
        }
    }
}

/// The type of a built-in iterator.
/// The name that `flambeau._begun` has for the type of an iterator, where it has no path.
fn type_of_iterator(iter: &Iter) -> Option<&'static str> {
    Some(match iter {
        Iter::List { .. } | Iter::Done(Exhausted::List) => "list_iterator",
        Iter::Reversed { of: Value::List(_), .. } | Iter::Done(Exhausted::Reversed) => "list_reverseiterator",
        Iter::Items { of: Of::Value(Value::Tuple(_)), .. } | Iter::Done(Exhausted::Tuple) => "tuple_iterator",
        Iter::Items { of: Of::Value(Value::Const(Const::Str(text))), .. } if text.is_ascii() => "str_ascii_iterator",
        Iter::Items { of: Of::Value(Value::Const(Const::Str(_))), .. } => "str_iterator",
        Iter::Items { of: Of::Value(Value::Const(Const::Bytes(_))), .. } => "bytes_iterator",
        Iter::Items { of: Of::Value(Value::Set(_)), .. } | Iter::Done(Exhausted::Set) => "set_iterator",
        Iter::Range { .. } => "range_iterator",
        Iter::CallUntil { .. } | Iter::Done(Exhausted::CallUntil) => "callable_iterator",
        _ => return None,
    })
}

fn iterator_path(iter: &Iter) -> &'static str {
    match iter {
        Iter::Zip { .. } => "builtins.zip",
        Iter::Enumerate { .. } => "builtins.enumerate",
        Iter::Map { .. } => "builtins.map",
        Iter::Filter { keep: true, .. } => "builtins.filter",
        Iter::Filter { keep: false, .. } => "itertools.filterfalse",
        Iter::Chain { .. } => "itertools.chain",
        Iter::Count { .. } => "itertools.count",
        Iter::Repeat { .. } => "itertools.repeat",
        Iter::Islice { .. } => "itertools.islice",
        Iter::Accumulate { .. } => "itertools.accumulate",
        Iter::Pairwise { .. } => "itertools.pairwise",
        Iter::ZipLongest { .. } => "itertools.zip_longest",
        _ => Class::SOME_ITERATOR,
    }
}

fn descriptor_path(descriptor: &Descriptor) -> Flow<&'static str> {
    Ok(match descriptor {
        Descriptor::Property { .. } => "builtins.property",
        Descriptor::Static(_) => "builtins.staticmethod",
        Descriptor::Class(_) => "builtins.classmethod",
        Descriptor::NativeClass(_) => return stop(ReasonCode::UnsupportedObject, "the type of a class method of C"),
        Descriptor::Data { member: true, .. } => "types.MemberDescriptorType",
        Descriptor::Data { member: false, .. } => "types.GetSetDescriptorType",
    })
}

/// Types of C outside of `builtins` that traces know by path only.
const C_TYPES: &[&str] = &[
    "torch.Size",
    "torch.dtype",
    "torch.device",
    "torch.layout",
    "torch.memory_format",
    "collections.defaultdict",
    "collections.OrderedDict",
];

/// The base of a type of views of ordered dicts.
fn ordered_view(class: &Class) -> Option<&'static str> {
    match class.path.as_deref()? {
        "builtins.odict_keys" => Some("dict_keys"),
        "builtins.odict_values" => Some("dict_values"),
        "builtins.odict_items" => Some("dict_items"),
        _ => None,
    }
}

fn type_answer(answer: &AnswerValue) -> Option<(ObjId, ObjId)> {
    match answer {
        AnswerValue::Found(owner, value) => Some((*owner, *value)),
        _ => None,
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
