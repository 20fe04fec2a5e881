//! The client's objects as values. Every fact used of one is guarded here, through its first source.

use crate::state::tracer::Tracer;
use crate::value::dict::DictIndex;
use crate::value::dict::Outside;
use crate::value::flow::{Flow, Stop, stop};
use crate::value::{
    Builtin, CellValue, Class, Descriptor, DictId, DictValue, Function, Instance, Key, ListId, ListValue, Method,
    Module, Opaque, Origin, Parts, Payload, SetValue, Tuple, Value,
};
use flambeau_ir::code::Const;
use flambeau_ir::guard::{ClassRef, GuardKind};
use flambeau_ir::object::{ClassDesc, FunctionDesc, ObjId, Object, ObjectData, PARTS, PartsOf};
use flambeau_ir::oracle::{AnswerValue, Question};
use flambeau_ir::reason::ReasonCode;
use flambeau_ir::source::{SourceId, Step};
use indexmap::IndexMap;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

impl Tracer<'_> {
    /// The value of `object`, read at `source`: its kind (and for constants its value) becomes a guard.
    pub(crate) fn wrap(&mut self, object: ObjId, source: SourceId) -> Flow<Value> {
        if let Some((value, first)) = self.known.get(&object).cloned() {
            if first != source {
                self.guard_again(&value, first, source);
                self.note_finalizer_again(&value, Origin { object, source })?;
            }
            return Ok(value);
        }
        let described = self.describe(object)?;
        let value = self.wrap_new(&described, source)?;
        if !matches!(described.data, ObjectData::Const(_)) {
            self.known.insert(object, (value.clone(), source));
        }
        Ok(value)
    }

    /// The fact that an object met before is also at `source`.
    fn guard_again(&mut self, value: &Value, first: SourceId, source: SourceId) {
        let path = match value {
            Value::Builtin(b) if b.receiver.is_none() => Some(b.path.clone()),
            Value::Class(c) => c.path.clone(),
            Value::Module(m) => m.path.clone(),
            _ => None,
        };
        let kind = match path {
            Some(path) if self.guarded_by_path(first, &path) => GuardKind::IsPath(path),
            _ => GuardKind::Same(first),
        };
        self.guard(source, kind);
    }

    /// Whether what is at `first` was itself recognised by its path.
    fn guarded_by_path(&self, first: SourceId, path: &Arc<str>) -> bool {
        self.has_guard(first, &GuardKind::IsPath(path.clone()))
    }

    fn wrap_new(&mut self, object: &Object, source: SourceId) -> Flow<Value> {
        let origin = Origin { object: object.id, source };
        match &object.data {
            ObjectData::Const(c) => {
                let known = self.const_objects.entry(c.clone()).or_insert(Some((object.id, source)));
                known.take_if(|(id, _)| *id != object.id);
                self.met_text(c, source);
                self.wrap_const(c, source)
            }
            ObjectData::ConstSubclass(c) => {
                let class = self.guard_type(object.class, source)?;
                self.guard(source, GuardKind::BaseEquals(c.clone()));
                self.wrap_instance(object, class, Payload::Const(c.clone()), origin)
            }
            ObjectData::Tuple(items) => {
                let class = self.guard_container_type(object.class, "tuple", source)?;
                self.guard(source, GuardKind::Len(items.len()));
                let items = self.wrap_items(items, source)?;
                Ok(Value::Tuple(Rc::new(Tuple { items, class, attrs: None, origin: Some(origin) })))
            }
            ObjectData::List(_) => {
                let class = self.guard_container_type(object.class, "list", source)?;
                let attrs = self.attrs_of(object, source);
                let list = ListValue { class, attrs, origin: Some(origin), ..ListValue::default() };
                Ok(Value::List(self.arenas.lists.push(list)))
            }
            ObjectData::Deque { longest, .. } => self.wrap_deque(object, *longest, origin),
            ObjectData::Set(items) | ObjectData::FrozenSet(items) => {
                let frozen = matches!(object.data, ObjectData::FrozenSet(_));
                self.wrap_set(object, items, frozen, origin)
            }
            ObjectData::Dict(_) | ObjectData::Namespace => {
                let class = self.guard_container_type(object.class, "dict", source)?;
                let id = self.dict_at(object.id, source)?;
                let attrs = self.attrs_of(object, source);
                let dict = self.arenas.dicts.note(id);
                (dict.class, dict.attrs) = (class, attrs);
                Ok(Value::Dict(id))
            }
            ObjectData::Parts(of, parts) => self.wrap_parts(object, *of, parts, origin),
            ObjectData::Made(maker, args) => self.wrap_pure(object, maker, args, origin),
            ObjectData::Tensor(desc) => self.wrap_tensor(object, desc, origin),
            ObjectData::Function(desc) => self.wrap_function(object, desc, origin),
            ObjectData::Cell(_) => Ok(Value::Cell(self.cell_at(object.id, source)?)),
            ObjectData::Method { func, receiver } => {
                self.guard_container_type(object.class, "method", source)?;
                let (f, r) = (self.step(source, Step::MethodFunc), self.step(source, Step::Receiver));
                let (func, receiver) = (self.wrap(*func, f)?, self.wrap(*receiver, r)?);
                Ok(Value::Method(Rc::new(Method { func, receiver, origin: Some(origin) })))
            }
            ObjectData::Builtin { receiver, .. } => self.wrap_builtin(object, *receiver, origin),
            ObjectData::MethodDescriptor { .. }
            | ObjectData::DataDescriptor { .. }
            | ObjectData::Property { .. }
            | ObjectData::StaticMethod(_)
            | ObjectData::ClassMethod(_) => self.wrap_descriptor(object, origin),
            ObjectData::Class(desc) => Ok(Value::Class(self.wrap_class(object, desc, source)?)),
            ObjectData::Module(name) => self.wrap_module(object, name, origin),
            ObjectData::Instance | ObjectData::ThreadLocal | ObjectData::Compiled(_) => {
                let class = self.guard_type(object.class, source)?;
                self.wrap_instance(object, class, Payload::None, origin)
            }
            ObjectData::TupleField(item) => {
                self.guard(source, GuardKind::TupleField(*item));
                let class = self.class_at(object.class, source)?;
                Ok(Value::Opaque(Rc::new(Opaque { class, path: None, item: Some(*item), origin })))
            }
            ObjectData::Opaque => self.wrap_opaque(object, origin),
            ObjectData::Iterator { ahead, drawn_from } => self.wrap_iterator(object, *ahead, drawn_from, origin),
        }
    }

    fn wrap_descriptor(&mut self, object: &Object, origin: Origin) -> Flow<Value> {
        let source = origin.source;
        match &object.data {
            ObjectData::MethodDescriptor { owner, name } => {
                let path = match &object.path {
                    Some(path) => path.clone(),
                    None => match self.describe(*owner)?.path.clone() {
                        Some(owner) => format!("{owner}.{name}").into(),
                        None => match self.unknown_path(*owner, name, origin)? {
                            Some(path) => path,
                            None => return self.wrap_opaque(object, origin),
                        },
                    },
                };
                self.guard_descriptor(object, name, source)?;
                let builtin = Builtin { path, receiver: None, unbound: true, origin: Some(origin) };
                Ok(if self.is_class_method(origin)? {
                    Value::Descriptor(Rc::new(Descriptor::NativeClass(Rc::new(builtin))))
                } else {
                    Value::Builtin(Rc::new(builtin))
                })
            }
            ObjectData::DataDescriptor { owner, name, member } => {
                let owner = self.describe(*owner)?.path.clone();
                self.guard_descriptor(object, name, source)?;
                Ok(Value::Descriptor(Rc::new(Descriptor::Data { owner, name: name.clone(), member: *member })))
            }
            &ObjectData::Property { get, set, delete } => {
                self.guard_container_type(object.class, "property", source)?;
                Ok(Value::Descriptor(Rc::new(Descriptor::Property { get, set, delete, source })))
            }
            ObjectData::StaticMethod(inner) => {
                self.guard_container_type(object.class, "staticmethod", source)?;
                let s = self.step(source, Step::Wrapped);
                Ok(Value::Descriptor(Rc::new(Descriptor::Static(self.wrap(*inner, s)?))))
            }
            ObjectData::ClassMethod(inner) => {
                self.guard_container_type(object.class, "classmethod", source)?;
                let s = self.step(source, Step::Wrapped);
                Ok(Value::Descriptor(Rc::new(Descriptor::Class(self.wrap(*inner, s)?))))
            }
            _ => self.wrap_opaque(object, origin),
        }
    }

    /// Whether this is a class method of a C type.
    fn is_class_method(&mut self, origin: Origin) -> Flow<bool> {
        let class = self.describe(origin.object)?.class;
        Ok(matches!(&self.describe(class)?.data, ObjectData::Class(c) if &*c.qualname == "classmethod_descriptor"))
    }

    /// A name for a method of a type of C that no trusted path names: a type of the interpreter that is no built-in name
    /// (a function's, say), or, for class methods, any type. It is none that means something.
    fn unknown_path(&mut self, owner: ObjId, name: &str, origin: Origin) -> Flow<Option<Arc<str>>> {
        let described = self.describe(owner)?;
        let ObjectData::Class(class) = &described.data else { return Ok(None) };
        if &*class.module != "builtins" && !self.is_class_method(origin)? {
            return Ok(None);
        }
        let path = format!("{}.{}.{name}", class.module, class.qualname);
        Ok((!path.starts_with("torch.") && !self.library.knows(&path)).then(|| path.into()))
    }

    fn wrap_const(&mut self, c: &Const, source: SourceId) -> Flow<Value> {
        if let Some(value) = self.symbolic_int(c, source) {
            return Ok(value);
        }
        self.guard(source, GuardKind::Equals(c.clone()));
        Ok(self.constant(c.clone()))
    }

    fn wrap_items(&mut self, items: &[ObjId], source: SourceId) -> Flow<Vec<Value>> {
        let mut values = Vec::with_capacity(items.len());
        for (i, item) in items.iter().enumerate() {
            let s = self.step(source, Step::Index(i as u32));
            values.push(self.wrap_item(*item, s)?);
        }
        Ok(values)
    }

    /// An item of a container. In the state of a resume function, what cannot be traced is passed on as it is.
    pub(crate) fn wrap_item(&mut self, item: ObjId, source: SourceId) -> Flow<Value> {
        let whole = [ReasonCode::UnguardableObject, ReasonCode::UnsupportedObject, ReasonCode::UnusualTensor];
        match self.wrap(item, source) {
            Err(Stop::Break(reason)) if self.resuming && whole.contains(&reason.code) => {
                let described = self.describe(item)?;
                self.wrap_opaque(&described, Origin { object: item, source })
            }
            other => other,
        }
    }

    fn wrap_set(&mut self, object: &Object, items: &[ObjId], frozen: bool, origin: Origin) -> Flow<Value> {
        let kind = if frozen { "frozenset" } else { "set" };
        if self.guard_container_type(object.class, kind, origin.source)?.is_some() {
            return stop(ReasonCode::UnsupportedObject, "a subclass of set");
        }
        let mut set = SetValue { frozen, origin: Some(origin), ..SetValue::default() };
        let mut consts = Vec::with_capacity(items.len());
        for item in items {
            let described = self.describe(*item)?;
            let (ObjectData::Const(c), true) = (&described.data, true) else {
                return stop(ReasonCode::UnguardableObject, "a set of objects that are no constants");
            };
            let Some(key) = Key::of_const(c) else {
                return stop(ReasonCode::UnguardableObject, "a set with a NaN");
            };
            self.note_key(&key)?;
            let value = self.constant(c.clone());
            set.items.insert(key, value);
            consts.push(c.clone());
        }
        self.guard(origin.source, GuardKind::Elements(consts));
        Ok(Value::Set(self.arenas.sets.push(set)))
    }

    fn wrap_function(&mut self, object: &Object, desc: &FunctionDesc, origin: Origin) -> Flow<Value> {
        let Some(code) = self.heap.codes.get(&desc.code).cloned() else {
            return stop(ReasonCode::Internal, format!("no code for {}", desc.qualname));
        };
        self.guard(origin.source, GuardKind::Function { code: desc.code });
        let g = self.step(origin.source, Step::Globals);
        let globals = self.dict_at(desc.globals, g)?;
        let attrs = self.attrs_of(object, origin.source);
        Ok(Value::Function(Rc::new(Function {
            code,
            name: desc.name.clone(),
            qualname: desc.qualname.clone(),
            module: desc.module.clone(),
            path: object.path.clone(),
            globals,
            origin: Some(origin),
            defaults: None,
            kwdefaults: None,
            closure: vec![],
            attrs: std::cell::Cell::new(attrs),
            slots: std::cell::Cell::new(None),
            maker: None,
        })))
    }

    fn wrap_builtin(&mut self, object: &Object, receiver: Option<ObjId>, origin: Origin) -> Flow<Value> {
        if let Some(path) = &object.path {
            self.guard(origin.source, GuardKind::IsPath(path.clone()));
            return Ok(Value::Builtin(Rc::new(Builtin {
                path: path.clone(),
                receiver: None,
                unbound: false,
                origin: Some(origin),
            })));
        }
        let Some(receiver) = receiver else { return self.wrap_opaque(object, origin) };
        let r = self.step(origin.source, Step::Receiver);
        let receiver = self.wrap(receiver, r)?;
        let ObjectData::Builtin { name, .. } = &object.data else { return self.wrap_opaque(object, origin) };
        let class = self.class_of(&receiver)?;
        let own = class.path.as_deref().filter(|path| path.starts_with("builtins.") && !class.is_python);
        match own.map(|class| format!("{class}.{name}")).filter(|path| self.library.is_method(path)) {
            Some(path) => {
                self.guard(origin.source, GuardKind::MethodOf(path.as_str().into()));
                let receiver = Some(receiver);
                Ok(Value::Builtin(Rc::new(Builtin {
                    path: path.into(),
                    receiver,
                    unbound: false,
                    origin: Some(origin),
                })))
            }
            None => self.wrap_opaque(object, origin),
        }
    }

    fn wrap_parts(&mut self, object: &Object, of: PartsOf, parts: &[ObjId], origin: Origin) -> Flow<Value> {
        self.guard_type(object.class, origin.source)?;
        let kind = PARTS.get(usize::from(of)).and_then(|of| self.library.kind(of.path));
        let Some(kind) = kind else { return self.wrap_opaque(object, origin) };
        let mut items = Vec::with_capacity(parts.len());
        for (at, part) in (0..).zip(parts) {
            let source = self.step(origin.source, Step::Part(of, at));
            items.push(self.wrap(*part, source)?);
        }
        if !kind.is_usual(self, &items) {
            return self.wrap_opaque(object, origin);
        }
        Ok(Value::Parts(Rc::new(Parts { of: kind.path(), items, origin: Some(origin) })))
    }

    /// An immutable object of C. Dates and numbers are likely to be others each time where plain Python gave them, or where
    /// the function was compiled again and again: what is done with them is plain Python's then.
    fn wrap_pure(&mut self, object: &Object, maker: &Arc<str>, args: &[Const], origin: Origin) -> Flow<Value> {
        let class = self.guard_type(object.class, origin.source)?;
        let kind = class.path.as_ref().and_then(|path| self.library.kind(path)).filter(|kind| kind.is_pure());
        let varies = self.frame.options.cautious || self.is_handed(origin.source);
        let Some(kind) = kind.filter(|kind| !varies || kind.path() == "re.Pattern") else {
            return self.wrap_opaque(object, origin);
        };
        self.guard(origin.source, GuardKind::Made(maker.clone(), args.to_vec()));
        let items = Value::made_by(maker.clone(), args.iter().map(|arg| self.constant(arg.clone())));
        Ok(Value::Parts(Rc::new(Parts { of: kind.path(), items, origin: Some(origin) })))
    }

    fn wrap_module(&mut self, object: &Object, name: &Arc<str>, origin: Origin) -> Flow<Value> {
        match &object.path {
            Some(path) => self.guard(origin.source, GuardKind::IsPath(path.clone())),
            None => {
                self.guard_type(object.class, origin.source)?;
            }
        }
        let Some(dict) = object.dict else { return self.wrap_opaque(object, origin) };
        let s = self.step(origin.source, Step::Dict);
        let dict = self.dict_at(dict, s)?;
        Ok(Value::Module(Rc::new(Module { name: name.clone(), path: object.path.clone(), dict, origin })))
    }

    pub(crate) fn wrap_instance(
        &mut self,
        object: &Object,
        class: Rc<Class>,
        payload: Payload,
        origin: Origin,
    ) -> Flow<Value> {
        let attrs = self.attrs_of(object, origin.source);
        if attrs.is_none() && class.is_python && class.has_dict {
            self.guard(origin.source, GuardKind::NoAttributes);
        }
        let instance = Instance {
            class: class.clone(),
            attrs,
            slots: IndexMap::new(),
            slot_writes: IndexMap::new(),
            payload,
            origin: Some(origin),
        };
        let id = self.arenas.instances.push(instance);
        self.note_finalizer(id, &class, origin)?;
        Ok(Value::Instance(id))
    }

    fn wrap_opaque(&mut self, object: &Object, origin: Origin) -> Flow<Value> {
        self.guard_path_or_type(object, origin.source)?;
        let class = self.class_at(object.class, origin.source)?;
        Ok(Value::Opaque(Rc::new(Opaque { class, path: object.path.clone(), item: None, origin })))
    }

    fn guard_path_or_type(&mut self, object: &Object, source: SourceId) -> Flow<()> {
        if let Some(path) = &object.path {
            self.guard(source, GuardKind::IsPath(path.clone()));
        } else {
            self.guard_type(object.class, source)?;
        }
        Ok(())
    }

    /// Guards a descriptor of a C type or a slot. Its own name is no fact that can be checked: it must be the one that it
    /// is found under.
    fn guard_descriptor(&mut self, object: &Object, name: &Arc<str>, source: SourceId) -> Flow<()> {
        let found = &self.sources.get(source).step;
        let named =
            matches!(found, Step::TypeAttr(n) if n == name) || matches!(found, Step::Item(Const::Str(n)) if n == name);
        if object.path.is_none() && !named {
            return stop(ReasonCode::UnguardableObject, format!("{name} under another name"));
        }
        self.guard_path_or_type(object, source)
    }

    /// The instance dict of an object, if it has one.
    pub(crate) fn attrs_of(&mut self, object: &Object, source: SourceId) -> Option<DictId> {
        let dict = object.dict?;
        let step = if matches!(object.data, ObjectData::ThreadLocal) { Step::ThreadDict } else { Step::Dict };
        let s = self.step(source, step);
        let id = self.dict_at(dict, s).ok()?;
        self.arenas.dicts.note(id).owner = Some(Origin { object: object.id, source });
        Some(id)
    }

    /// Guards the exact type of the value at `source`, and gives it.
    pub(crate) fn guard_type(&mut self, class: ObjId, source: SourceId) -> Flow<Rc<Class>> {
        let known = self.classes.get(&class).cloned();
        let class = self.class_at(class, source)?;
        match (&class.path, known.and_then(|k| k.origin)) {
            (Some(path), _) => {
                let s = self.step(source, Step::Class);
                self.guard(s, GuardKind::IsPath(path.clone()));
            }
            (None, Some(first)) => {
                let s = self.step(source, Step::Class);
                if s != first.source {
                    self.guard(s, GuardKind::Same(first.source));
                }
            }
            (None, None) => self.guard(source, GuardKind::Type(class.name.clone())),
        }
        Ok(class)
    }

    /// As [`Tracer::guard_type`] for a value that is a built-in type's or a subclass's: `None` if it is the type itself.
    pub(crate) fn guard_container_type(
        &mut self,
        class: ObjId,
        name: &str,
        source: SourceId,
    ) -> Flow<Option<Rc<Class>>> {
        let described = self.describe(class)?;
        if let ObjectData::Class(c) = &described.data
            && &*c.qualname == name
            && &*c.module == "builtins"
        {
            let kind = GuardKind::Type(ClassRef { module: c.module.clone(), qualname: c.qualname.clone() });
            self.guard(source, kind);
            return Ok(None);
        }
        self.guard_type(class, source).map(Some)
    }

    /// The class object of the value at `source`; the caller guards the type.
    fn class_at(&mut self, class: ObjId, source: SourceId) -> Flow<Rc<Class>> {
        if let Some(known) = self.classes.get(&class) {
            return Ok(known.clone());
        }
        let described = self.describe(class)?;
        let ObjectData::Class(desc) = &described.data else {
            return stop(ReasonCode::UnsupportedObject, "a type with an unusual MRO");
        };
        let s = self.step(source, Step::Class);
        self.make_class(&described, desc, s)
    }

    fn wrap_class(&mut self, object: &Object, desc: &ClassDesc, source: SourceId) -> Flow<Rc<Class>> {
        let known = self.classes.get(&object.id).and_then(|c| c.origin);
        match (&object.path, known) {
            (Some(path), _) => self.guard(source, GuardKind::IsPath(path.clone())),
            (None, Some(first)) => {
                if first.source != source {
                    self.guard(source, GuardKind::Same(first.source));
                }
            }
            (None, None) => {
                let name = ClassRef { module: desc.module.clone(), qualname: desc.qualname.clone() };
                self.guard(source, GuardKind::IsClass(name));
            }
        }
        self.make_class(object, desc, source)
    }

    /// The class, with guards on its bases if no trusted path names it.
    fn make_class(&mut self, object: &Object, desc: &ClassDesc, source: SourceId) -> Flow<Rc<Class>> {
        if let Some(known) = self.classes.get(&object.id) {
            return Ok(known.clone());
        }
        let missing: Vec<ObjId> = desc.mro.iter().copied().filter(|c| self.heap.get(*c).is_none()).collect();
        if !missing.is_empty() {
            self.ask_one(Question::Describe(missing))?;
        }
        let mut mro_paths = Vec::with_capacity(desc.mro.len());
        for (i, base) in desc.mro.iter().enumerate() {
            let base = self.describe(*base)?;
            let ObjectData::Class(base_desc) = &base.data else { continue };
            mro_paths.extend(base.path.clone());
            if i > 0 && object.path.is_none() {
                let s = self.step(source, Step::Mro(i as u32));
                let kind = match (&base.path, self.classes.get(&base.id).and_then(|c| c.origin)) {
                    (Some(path), _) => GuardKind::IsPath(path.clone()),
                    (None, Some(first)) => GuardKind::Same(first.source),
                    (None, None) => GuardKind::IsClass(ClassRef {
                        module: base_desc.module.clone(),
                        qualname: base_desc.qualname.clone(),
                    }),
                };
                self.guard(s, kind);
            }
        }
        let class = Rc::new(Class {
            path: object.path.clone(),
            name: ClassRef { module: desc.module.clone(), qualname: desc.qualname.clone() },
            own_name: desc.name.clone(),
            origin: Some(Origin { object: object.id, source }),
            mro: desc.mro.clone(),
            mro_paths,
            is_python: desc.is_python,
            generic_getattr: desc.generic_getattr,
            generic_setattr: desc.generic_setattr,
            has_dict: desc.has_dict,
        });
        self.classes.insert(object.id, class.clone());
        Ok(class)
    }

    /// The class with this object id, which is `class.__mro__[position]`.
    pub(crate) fn mro_class(&mut self, class: &Class, position: usize) -> Flow<Rc<Class>> {
        let Some(origin) = class.origin else {
            return stop(ReasonCode::UnsupportedObject, "the bases of a built-in type");
        };
        let object = class.mro[position];
        if let Some(known) = self.classes.get(&object) {
            return Ok(known.clone());
        }
        let described = self.describe(object)?;
        let ObjectData::Class(desc) = &described.data else {
            return stop(ReasonCode::UnsupportedObject, "a base with an unusual MRO");
        };
        let s = self.step(origin.source, Step::Mro(position as u32));
        self.wrap_class(&described, desc, s)
    }

    /// The dict object of the client at `source`, unread.
    pub(crate) fn dict_at(&mut self, object: ObjId, source: SourceId) -> Flow<DictId> {
        if let Some(id) = self.dicts.get(&object) {
            let id = *id;
            if let Some(first) = self.arenas.dicts[id].origin
                && first.source != source
            {
                self.guard(source, GuardKind::Same(first.source));
            }
            return Ok(id);
        }
        let id = self.arenas.dicts.push(DictValue {
            outside: Some(Outside::default()),
            origin: Some(Origin { object, source }),
            ..DictValue::default()
        });
        self.dicts.insert(object, id);
        Ok(id)
    }

    /// The index of an outside dict's items; `None` for a namespace.
    pub(crate) fn dict_index(&mut self, dict: DictId) -> Flow<Option<Rc<DictIndex>>> {
        let entry = &self.arenas.dicts[dict];
        let (Some(outside), Some(origin)) = (&entry.outside, entry.origin) else { return Ok(None) };
        if let Some(index) = &outside.index {
            return Ok(Some(index.clone()));
        }
        let described = self.describe(origin.object)?;
        let ObjectData::Dict(items) = &described.data else { return Ok(None) };
        let mut index = DictIndex { items: HashMap::with_capacity(items.len()), ..DictIndex::default() };
        for (k, v) in items {
            let key = self.describe(*k)?;
            match &key.data {
                ObjectData::Const(c) if Key::of_const(c).is_some() => {
                    if let Some(key) = Key::of_const(c) {
                        self.note_key(&key)?;
                        index.order.push(key.clone());
                        index.items.insert(key, (c.clone(), *v));
                    }
                }
                _ => {
                    index.other_keys = true;
                    index.equal_consts |= self.may_equal_consts(&key)?;
                }
            }
        }
        let index = Rc::new(index);
        if let Some(outside) = &mut self.arenas.dicts.note(dict).outside {
            outside.index = Some(index.clone());
        }
        Ok(Some(index))
    }

    /// `dict.get(key)`: the item is read and guarded if the dict is from outside.
    pub(crate) fn dict_get_key(&mut self, dict: DictId, key: &Key) -> Flow<Option<Value>> {
        let entry = &self.arenas.dicts[dict];
        self.need_unchanged(entry.is_outside() && (entry.rewritten || entry.writes.contains_key(key)))?;
        if let Some((_, value)) = entry.items.get(key) {
            let value = value.clone();
            return self.read(&value).map(Some);
        }
        if entry.loaded || entry.absent.contains(key) {
            return Ok(None);
        }
        let Some(origin) = entry.origin else { return Ok(None) };
        if self.load_objects(dict, key)? {
            return self.dict_get_key(dict, key);
        }
        match self.outside_item(dict, origin, key)? {
            Some((stored, object)) => {
                let source = self.step(origin.source, Step::Item(stored.clone()));
                let value = self.wrap(object, source)?;
                let stored = self.constant(stored);
                self.arenas.dicts.note(dict).items.insert(key.clone(), (stored, value.clone()));
                Ok(Some(value))
            }
            None => {
                let Some(c) = key.constant() else {
                    return stop(ReasonCode::UnguardableObject, "a dict read by a key that is no constant");
                };
                self.guard(origin.source, GuardKind::NoItem(c));
                self.arenas.dicts.note(dict).absent.insert(key.clone());
                Ok(None)
            }
        }
    }

    /// Whether an object that is no constant may be equal to one: a number or str of a subclass, or what its class says.
    fn may_equal_consts(&mut self, key: &Object) -> Flow<bool> {
        if matches!(key.data, ObjectData::ConstSubclass(_)) {
            return Ok(true);
        }
        if !matches!(&self.describe(key.class)?.data, ObjectData::Class(class) if class.is_python) {
            return Ok(false);
        }
        let Some((owner, _)) = self.raw_type_lookup(key.class, "__eq__")? else { return Ok(false) };
        Ok(matches!(&self.describe(owner)?.data, ObjectData::Class(class) if class.is_python))
    }

    /// The item of the real dict, unguarded.
    fn outside_item(&mut self, dict: DictId, origin: Origin, key: &Key) -> Flow<Option<(Const, ObjId)>> {
        Ok(match self.dict_index(dict)? {
            Some(index) => {
                if index.other_keys && !matches!(key, Key::Const(_)) || index.equal_consts {
                    return stop(ReasonCode::UnguardableObject, "a dict with keys that are no constants");
                }
                match (index.items.get(key), key) {
                    // A key of another kind may be equal to it: the dict itself is asked.
                    (None, Key::Const(c)) if index.other_keys => {
                        self.namespace_item(origin.object, c)?.map(|v| (c.clone(), v))
                    }
                    (found, _) => found.cloned(),
                }
            }
            None => match key {
                Key::Const(c) => self.namespace_item(origin.object, c)?.map(|v| (c.clone(), v)),
                _ => return stop(ReasonCode::UnguardableObject, "a namespace read by a key that is no constant"),
            },
        })
    }

    /// Whether an outside dict had an item before the trace changed it, guarded.
    pub(crate) fn was_there(&mut self, dict: DictId, key: &Key) -> Flow<bool> {
        let Some(origin) = self.arenas.dicts[dict].origin else { return Ok(false) };
        match (self.outside_item(dict, origin, key)?, key.constant()) {
            (Some((stored, object)), _) => {
                let source = self.step(origin.source, Step::Item(stored));
                self.wrap(object, source).map(|_| true)
            }
            (None, Some(key)) => {
                self.guard(origin.source, GuardKind::NoItem(key));
                Ok(false)
            }
            (None, None) => stop(ReasonCode::UnguardableObject, "a dict changed by a key that is no constant"),
        }
    }

    fn namespace_item(&mut self, dict: ObjId, key: &Const) -> Flow<Option<ObjId>> {
        if let Some(known) = self.dict_items.get(&(dict, key.clone())) {
            return Ok(*known);
        }
        let answer = self.ask_one(Question::DictItem { dict, key: key.clone() })?;
        let found = item_answer(&answer);
        self.dict_items.insert((dict, key.clone()), found);
        Ok(found)
    }

    /// Asks for several namespace items at once, for later reads.
    pub(crate) fn prefetch_items(&mut self, wanted: Vec<(ObjId, Const)>) -> Flow<()> {
        let wanted: Vec<_> = wanted.into_iter().filter(|k| !self.dict_items.contains_key(k)).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let questions: Vec<Question> =
            wanted.iter().map(|(dict, key)| Question::DictItem { dict: *dict, key: key.clone() }).collect();
        for (key, answer) in wanted.into_iter().zip(self.ask_ahead(&questions)?) {
            if !matches!(answer, AnswerValue::Refused(_)) {
                self.dict_items.insert(key, item_answer(&answer));
            }
        }
        Ok(())
    }

    /// The length of a dict; only that is guarded if the dict is unchanged.
    pub fn dict_len(&mut self, dict: DictId) -> Flow<usize> {
        let entry = &self.arenas.dicts[dict];
        if !entry.loaded
            && entry.writes.is_empty()
            && let Some(origin) = entry.origin
            && let Some(index) = self.dict_index(dict)?
            && !index.other_keys
        {
            self.guard(origin.source, GuardKind::Len(index.order.len()));
            return Ok(index.order.len());
        }
        self.load_dict(dict)?;
        Ok(self.arenas.dicts[dict].items.len())
    }

    /// Reads the items of an outside list, and those that were stored unread.
    pub(crate) fn load_list(&mut self, list: ListId) -> Flow<()> {
        if self.arenas.lists[list].unread {
            let mut items = self.arenas.lists[list].items.clone();
            self.read_all(&mut items)?;
            let entry = self.arenas.lists.note(list);
            (entry.items, entry.unread) = (items, false);
        }
        self.load_stored(list)
    }

    /// As [`Tracer::load_list`]; items that were stored unread stay so.
    pub(crate) fn load_stored(&mut self, list: ListId) -> Flow<()> {
        let entry = &self.arenas.lists[list];
        self.need_unchanged(entry.origin.is_some() && entry.dirty)?;
        if entry.loaded {
            return Ok(());
        }
        let Some(origin) = entry.origin else { return Ok(()) };
        let described = self.describe(origin.object)?;
        let (ObjectData::List(items) | ObjectData::Deque { items, .. }) = &described.data else {
            return stop(ReasonCode::Internal, "a list that was not described as one");
        };
        self.guard(origin.source, GuardKind::Len(items.len()));
        let items = self.wrap_items(items, origin.source)?;
        let entry = self.arenas.lists.note(list);
        entry.items.splice(0..0, items);
        entry.loaded = true;
        Ok(())
    }

    /// The cell object of the client at `source`, unread.
    pub(crate) fn cell_at(&mut self, object: ObjId, source: SourceId) -> Flow<crate::value::CellId> {
        if let Some(id) = self.cells.get(&object) {
            let id = *id;
            if let Some(first) = self.arenas.cells[id].origin
                && first.source != source
            {
                self.guard(source, GuardKind::Same(first.source));
            }
            return Ok(id);
        }
        let origin = Some(Origin { object, source });
        let id = self.arenas.cells.push(CellValue { origin, ..CellValue::default() });
        self.cells.insert(object, id);
        Ok(id)
    }

    /// What a cell holds.
    pub(crate) fn cell_get(&mut self, cell: crate::value::CellId) -> Flow<Option<Value>> {
        let entry = &self.arenas.cells[cell];
        self.need_unchanged(entry.origin.map_or(self.own_keys.are_asked(), |_| entry.dirty))?;
        let Some(origin) = entry.origin.filter(|_| !entry.loaded) else { return Ok(entry.value.clone()) };
        let described = self.describe(origin.object)?;
        let ObjectData::Cell(contents) = &described.data else {
            return stop(ReasonCode::Internal, "a cell that was not described as one");
        };
        let value = match contents {
            None => {
                self.guard(origin.source, GuardKind::EmptyCell);
                None
            }
            Some(object) => {
                let s = self.step(origin.source, Step::CellContents);
                Some(self.take(*object, s)?)
            }
        };
        let entry = self.arenas.cells.note(cell);
        entry.value.clone_from(&value);
        entry.loaded = true;
        Ok(value)
    }

    /// Stores into a cell (`None` empties it).
    pub(crate) fn cell_set(&mut self, cell: crate::value::CellId, value: Option<Value>) {
        let entry = &mut self.arenas.cells[cell];
        entry.value = value;
        entry.loaded = true;
        entry.dirty = true;
    }
}

fn item_answer(answer: &AnswerValue) -> Option<ObjId> {
    if let AnswerValue::Object(found) = answer { *found } else { None }
}
