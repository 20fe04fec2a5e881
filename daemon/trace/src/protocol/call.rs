//! Calls: argument binding, and what each kind of callable does.

use crate::protocol::raise::Parts;
use crate::state::tracer::Tracer;
use crate::torch::checkpoint::CHECKPOINT;
use crate::value::flow::{Flow, stop};
use crate::value::frame::Slot;
use crate::value::{
    Args, Class, DictId, DictValue, Function, Instance, InstanceId, ListValue, Opaque, Payload, Tuple, Value,
};
use flambeau_ir::code::Const;
use flambeau_ir::code::{Code, Origin, is_disabled};
use flambeau_ir::guard::GuardKind;
use flambeau_ir::object::ObjectData;
use flambeau_ir::reason::ReasonCode;
use flambeau_ir::source::Step;
use indexmap::IndexMap;
use std::rc::Rc;
use std::sync::Arc;

/// `CO_VARARGS` and `CO_VARKEYWORDS`.
const VARARGS: u32 = 4;
const VARKEYWORDS: u32 = 8;

/// `CO_COROUTINE`, `CO_ITERABLE_COROUTINE` and `CO_ASYNC_GENERATOR`.
const ASYNCHRONOUS: u32 = 0x80 | 0x100 | 0x200;

/// Whether the code asks how many references an object has. A compiled frame holds others than a plain one.
pub(crate) fn counts_references(code: &Code) -> bool {
    code.names.iter().any(|name| name == "getrefcount")
}

/// Whether it hides a function of a module from `torch.compile`, by `torch._compile._disable_dynamo` or, once a program used
/// `torch.compile`, by `torch._dynamo.disable`.
fn hides(function: &Function, of: impl Fn(&str) -> bool) -> bool {
    let (code, module) = (&function.code, function.module.as_deref());
    let from = |file: &str, name: &str| *code.qualname == *name && code.filename.ends_with(file);
    let hides = from("/torch/_compile.py", "_disable_dynamo.<locals>.inner")
        || from("/torch/_dynamo/eval_frame.py", "DisableContext.__call__.<locals>._fn");
    hides && module.is_some_and(of)
}

/// Whether it is the code of `torch.utils.checkpoint.checkpoint`.
fn is_checkpoint(code: &Code) -> bool {
    code.qualname == "checkpoint" && code.filename.ends_with("/torch/utils/checkpoint.py")
}

/// Built-in types whose objects `object.__new__` does not make.
const OWN_LAYOUT: &[&str] = &[
    "builtins.int",
    "builtins.float",
    "builtins.complex",
    "builtins.str",
    "builtins.bytes",
    "builtins.tuple",
    "builtins.list",
    "builtins.dict",
    "builtins.set",
    "builtins.frozenset",
];

impl Tracer<'_> {
    /// Calls `callee`.
    pub fn call(&mut self, callee: &Value, mut args: Args) -> Flow<Value> {
        flambeau_ir::bounds::check();
        self.need_pure_call(callee)?;
        match callee {
            Value::Function(f) => self.call_function(f, args),
            Value::Method(m) => {
                args.pos.insert(0, m.receiver.clone());
                self.call(&m.func, args)
            }
            Value::Builtin(b) => {
                if let Some(receiver) = &b.receiver {
                    args.pos.insert(0, receiver.clone());
                }
                self.call_path(&b.path, args)
            }
            Value::Class(c) => self.instantiate(c, args),
            Value::Parts(parts) => match self.kind_of(parts).call(self, parts, args)? {
                Some(result) => Ok(result),
                None => self.not_callable(callee),
            },
            Value::Descriptor(d) => match &**d {
                crate::value::Descriptor::Static(inner) => self.call(inner, args),
                _ => self.not_callable(callee),
            },
            _ => {
                if let Some(function) = self.compiled_function(callee)? {
                    return self.call(&function, args);
                }
                if let Some(path) = self.dispatched_op(callee)? {
                    return self.call_torch_path(&path, args);
                }
                if let Value::Opaque(o) = callee {
                    if let Some(path) = o.path.clone().filter(|path| path.starts_with("numpy.")) {
                        self.guard(o.origin.source, GuardKind::IsPath(path.clone()));
                        return self.call_path(&path, args);
                    }
                    if let Some(result) = self.call_cached(o, &args)? {
                        return Ok(result);
                    }
                    let name = self.name_of_opaque(o)?;
                    self.library.note_frames(self, &name);
                    return stop(ReasonCode::UnsupportedCall, name);
                }
                let direct = std::mem::take(&mut self.direct);
                let call = self.special(callee, "__call__")?;
                self.direct = direct;
                match call {
                    Some(call) => self.call(&call, args),
                    None => self.not_callable(callee),
                }
            }
        }
    }

    /// What to call an object that is only passed on.
    pub(crate) fn name_of_opaque(&mut self, opaque: &Opaque) -> Flow<String> {
        Ok(match &self.describe(opaque.origin.object)?.data {
            ObjectData::Builtin { name, module: Some(module), .. } => format!("{module}.{name}"),
            ObjectData::Builtin { name, .. } => name.to_string(),
            _ => opaque.path.as_deref().unwrap_or(&opaque.class.name.qualname).to_string(),
        })
    }

    /// The Python function behind a compiled callable. Inside a trace its own options do not count.
    pub(crate) fn compiled_function(&mut self, value: &Value) -> Flow<Option<Value>> {
        let Value::Instance(id) = value else { return Ok(None) };
        let Some(origin) = self.arenas.instances[*id].origin else { return Ok(None) };
        let ObjectData::Compiled(function) = self.describe(origin.object)?.data else { return Ok(None) };
        let source = self.step(origin.source, Step::Original);
        self.wrap(function, source).map(Some)
    }

    /// The path of an op called as torch's dispatcher knows it (`torch.ops.LIBRARY.NAME`, `torch.ops.aten.NAME.OVERLOAD`). What
    /// such an op may do is in its schema.
    fn dispatched_op(&mut self, callee: &Value) -> Flow<Option<Arc<str>>> {
        const OTHERS: [&str; 4] = ["prim", "prims", "higher_order", "_c10d_functional"];
        let Some(origin) = self.origin_of(callee) else { return Ok(None) };
        let path = self.describe(origin.object)?.path.clone();
        let is_taken = |path: &Arc<str>| {
            let rest = path.strip_prefix("torch.ops.");
            rest.and_then(|rest| rest.split('.').next()).is_some_and(|library| !OTHERS.contains(&library))
        };
        let Some(path) = path.filter(is_taken) else { return Ok(None) };
        self.guard(origin.source, GuardKind::IsPath(path.clone()));
        Ok(Some(path))
    }

    fn not_callable(&mut self, callee: &Value) -> Flow<Value> {
        self.need_plain(callee, "a call")?;
        let name = self.type_name(callee);
        self.raise_named("TypeError", &format!("'{name}' object is not callable"))
    }

    /// Calls what an import path names: a folded function, a built-in, a torch function.
    pub(crate) fn call_path(&mut self, path: &str, args: Args) -> Flow<Value> {
        self.direct = false;
        if let Some(value) = self.construct(path, &args)? {
            return Ok(value);
        }
        if let Some(value) = self.fold_torch(path, &args)? {
            return Ok(value);
        }
        if let Some(value) = self.library.call(self, path, args.clone())? {
            return Ok(value);
        }
        match self.polyfill(path)? {
            Some(polyfill) => self.call_polyfill(path, &polyfill, args),
            None => {
                self.library.note_frames(self, path);
                self.call_torch_path(path, args)
            }
        }
    }

    fn call_function(&mut self, function: &Rc<Function>, mut args: Args) -> Flow<Value> {
        let direct = std::mem::take(&mut self.direct);
        if is_disabled(&function.code.qualname, &function.code.filename) {
            return stop(ReasonCode::Disabled, function.qualname.to_string());
        }
        // Methods of optimizers do nothing that a trace must not see.
        if hides(function, |module| module.starts_with("torch.optim.")) {
            let wrapped = self.get_attr(&Value::Function(function.clone()), "__wrapped__")?;
            return self.call(&wrapped, args);
        }
        if hides(function, |module| module == "torch.utils.checkpoint")
            && let Value::Function(hidden) = self.get_attr(&Value::Function(function.clone()), "__wrapped__")?
            && is_checkpoint(&hidden.code)
            && let Some(polyfill) = self.polyfill(CHECKPOINT)?
        {
            return self.call_polyfill(CHECKPOINT, &polyfill, args);
        }
        if let Some(path) = self.special_path(function) {
            self.read_all(&mut args.pos)?;
            if let Some(value) = self.fold_torch(&path, &args)? {
                return Ok(value);
            }
            if let Some(value) = self.library.call(self, &path, args.clone())? {
                return Ok(value);
            }
            if let Some(polyfill) = self.polyfill(&path)? {
                return self.call_polyfill(&path, &polyfill, args);
            }
        }
        if counts_references(&function.code) {
            return stop(ReasonCode::UnsupportedCall, format!("{}, which counts references", function.qualname));
        }
        if function.code.flags & ASYNCHRONOUS != 0 {
            return stop(ReasonCode::UnsupportedCall, format!("{}, which makes a coroutine", function.qualname));
        }
        if Origin::is_front_end(&function.code.filename) {
            return stop(ReasonCode::UnsupportedCall, function.qualname.to_string());
        }
        self.prefetch_code(function, args.pos.first())?;
        let locals = self.bind(function, args)?;
        let frame = self.new_frame(function.clone(), locals)?;
        self.direct = direct;
        self.run_call(frame)
    }

    /// The path of a Python function that may be known natively: one of torch's or the standard library's.
    pub(crate) fn special_path(&self, function: &Function) -> Option<Arc<str>> {
        if function.code.is_resume() {
            return None;
        }
        if let Some(path) = &function.path {
            return Some(path.clone());
        }
        let module = function.module.as_ref().filter(|_| function.origin.is_some())?;
        let root = module.split('.').next().unwrap_or(module);
        let trusted = ["torch", "functools", "contextlib", "collections", "typing", "warnings", "enum", "flambeau"];
        // `functools.wraps` lends a user's wrapper the names of what it wraps, not its file.
        let file = module.replace('.', "/");
        let code = &function.code;
        let own =
            code.filename.ends_with(&format!("/{file}.py")) || code.filename.ends_with(&format!("/{file}/__init__.py"));
        let renamed = *code.qualname != *function.qualname;
        // What stands in for a class of C where there is none is another class.
        let stand_in = module.as_ref() == "collections" && function.qualname.starts_with("OrderedDict.");
        if code.filename.ends_with("/_collections_abc.py") && *function.qualname == *"_check_methods" {
            return Some("_collections_abc._check_methods".into());
        }
        if code.filename.ends_with("/traceback.py") && module.as_ref() == "traceback" && *code.name == *"clear_frames" {
            return Some("traceback.clear_frames".into());
        }
        (trusted.contains(&root) && own && !renamed && !stand_in)
            .then(|| format!("{module}.{}", function.qualname).into())
    }

    /// Binds arguments to the slots of a new frame, as CPython does.
    pub(crate) fn bind(&mut self, function: &Function, args: Args) -> Flow<Vec<Slot>> {
        let code = function.code.clone();
        let argcount = code.argcount as usize;
        let named = argcount + code.kwonlyargcount as usize;
        let mut slots: Vec<Option<Value>> = vec![None; named];
        let mut pos = args.pos.into_iter();
        for slot in slots.iter_mut().take(argcount) {
            *slot = pos.next();
        }
        let mut extra: Vec<Value> = pos.collect();
        self.read_all(&mut extra)?;
        if !extra.is_empty() && code.flags & VARARGS == 0 {
            let given = argcount + extra.len();
            let message = format!("{}() takes {argcount} positional arguments but {given} were given", code.qualname);
            return self.raise_inexact("TypeError", &message);
        }
        let mut rest = Vec::new();
        for (name, value) in args.kw {
            let posonly = code.posonlyargcount as usize;
            let found = (posonly..named).find(|i| *code.localsplusnames[*i] == *name);
            match found {
                Some(i) if slots[i].is_some() => {
                    let message = format!("{}() got multiple values for argument '{name}'", code.qualname);
                    return self.raise_inexact("TypeError", &message);
                }
                Some(i) => slots[i] = Some(value),
                None if code.flags & VARKEYWORDS != 0 => {
                    let value = self.read(&value)?;
                    rest.push((Value::Const(flambeau_ir::code::Const::Str(name)), value));
                }
                None => {
                    let message = format!("{}() got an unexpected keyword argument '{name}'", code.qualname);
                    return self.raise_inexact("TypeError", &message);
                }
            }
        }
        if slots.iter().any(Option::is_none) {
            self.fill_defaults(function, &mut slots)?;
        }
        let mut locals: Vec<Slot> = slots.into_iter().map(|s| s.map_or(Slot::Empty, Slot::Value)).collect();
        if code.flags & VARARGS != 0 {
            locals.push(Slot::Value(Value::tuple(extra)));
        }
        if code.flags & VARKEYWORDS != 0 {
            locals.push(Slot::Value(self.new_dict(rest)?));
        }
        locals.resize(code.localsplusnames.len(), Slot::Empty);
        Ok(locals)
    }

    fn fill_defaults(&mut self, function: &Function, slots: &mut [Option<Value>]) -> Flow<()> {
        let argcount = function.code.argcount as usize;
        if slots[..argcount].iter().any(Option::is_none)
            && let Some(Value::Tuple(defaults)) = self.defaults_of(function)?
        {
            let first = argcount.saturating_sub(defaults.items.len());
            for (slot, default) in slots[first..argcount].iter_mut().zip(&defaults.items) {
                slot.get_or_insert_with(|| default.clone());
            }
        }
        if slots[argcount..].iter().any(Option::is_none)
            && let Some(Value::Dict(kwdefaults)) = self.kwdefaults_of(function)?
        {
            for (i, slot) in slots.iter_mut().enumerate().skip(argcount).filter(|(_, s)| s.is_none()) {
                *slot = self.dict_get_str(kwdefaults, &function.code.localsplusnames[i])?;
            }
        }
        match slots.iter().position(Option::is_none) {
            None => Ok(()),
            Some(i) => {
                let name = &function.code.localsplusnames[i];
                let message = format!("{}() missing a required argument: '{name}'", function.code.qualname);
                self.raise_inexact("TypeError", &message)
            }
        }
    }

    /// `__defaults__`, as a tuple.
    pub(crate) fn defaults_of(&mut self, function: &Function) -> Flow<Option<Value>> {
        let Some(origin) = function.origin else { return Ok(function.defaults.clone()) };
        let described = self.describe(origin.object)?;
        let ObjectData::Function(desc) = &described.data else { return Ok(None) };
        let source = self.step(origin.source, Step::Defaults);
        let Some(defaults) = desc.defaults else {
            self.guard(source, GuardKind::Equals(Const::None));
            return Ok(None);
        };
        self.wrap(defaults, source).map(Some)
    }

    /// `__kwdefaults__`, as a dict.
    pub(crate) fn kwdefaults_of(&mut self, function: &Function) -> Flow<Option<Value>> {
        let Some(origin) = function.origin else { return Ok(function.kwdefaults.clone()) };
        let described = self.describe(origin.object)?;
        let ObjectData::Function(desc) = &described.data else { return Ok(None) };
        let source = self.step(origin.source, Step::KwDefaults);
        let Some(kwdefaults) = desc.kwdefaults else {
            self.guard(source, GuardKind::Equals(Const::None));
            return Ok(None);
        };
        Ok(Some(Value::Dict(self.dict_at(kwdefaults, source)?)))
    }

    /// `class(*args)`.
    pub(crate) fn instantiate(&mut self, class: &Rc<Class>, args: Args) -> Flow<Value> {
        self.direct = false;
        if !class.is_python {
            if class.derives("builtins.BaseException") {
                self.need_plain_exception(class, &args)?;
                return Ok(self.new_exception(class.clone(), args.pos));
            }
            let nameless = || class.is_interpreters().then(|| format!("builtins.{}", class.name.qualname).into());
            return match class.path.clone().or_else(nameless) {
                Some(path) if class.path.is_some() || self.library.knows(&path) => self.call_path(&path, args),
                _ => stop(ReasonCode::UnsupportedCall, format!("the type {}", class.name.qualname)),
            };
        }
        if let Some(path) = class.path.clone() {
            if let Some(value) = self.fold_torch(&path, &args)? {
                return Ok(value);
            }
            if let Some(value) = self.library.call(self, &path, args.clone())? {
                return Ok(value);
            }
        }
        if let Some(value) = self.metaclass_call(class, &args)? {
            return Ok(value);
        }
        self.make_instance(class, args)
    }

    /// `type.__call__(class, *args)` of a Python class: `__new__`, then `__init__`.
    pub(crate) fn make_instance(&mut self, asked: &Rc<Class>, args: Args) -> Flow<Value> {
        let class = asked;
        if self.type_lookup(class, "__del__")?.is_some() {
            // When the object goes, user code runs: a trace would have to tell the moment.
            return stop(ReasonCode::UnsupportedObject, format!("a {} has a finalizer", class.name.qualname));
        }
        let Some((maker, new)) = self.type_lookup(class, "__new__")? else {
            return stop(ReasonCode::UnsupportedObject, "a class without __new__");
        };
        let plain = maker.is("builtins.object");
        let new = match &new {
            Value::Descriptor(d) => match &**d {
                crate::value::Descriptor::Static(f) => f.clone(),
                _ => new,
            },
            _ => new,
        };
        let mut new_args = args.clone();
        new_args.pos.insert(0, Value::Class(class.clone()));
        let object = self.call(&new, new_args)?;
        // The type of what was made says how it goes on (`type_call` in CPython's `Objects/typeobject.c`).
        let class = &self.class_of(&object)?;
        if !class.is_subclass(asked) {
            return Ok(object);
        }
        match self.type_lookup(class, "__init__")? {
            None => {}
            // `object_init` in CPython's `Objects/typeobject.c`.
            Some((owner, _))
                if owner.is("builtins.object") && plain && !(args.pos.is_empty() && args.kw.is_empty()) =>
            {
                let name = class.name.qualname.rsplit('.').next().unwrap_or_default().to_owned();
                return self.raise_named("TypeError", &format!("{name}() takes no arguments"));
            }
            Some((owner, _)) if owner.is("builtins.object") => {}
            Some((_, init @ (Value::Function(_) | Value::Builtin(_)))) => {
                let mut init_args = args;
                init_args.pos.insert(0, object.clone());
                let result = self.call(&init, init_args)?;
                self.need_nothing(&result)?;
            }
            Some((_, other)) => {
                let init = self.bind_attr(&other, &object, class, "__init__")?;
                let result = self.call(&init, args)?;
                self.need_nothing(&result)?;
            }
        }
        Ok(object)
    }

    /// Breaks where a built-in exception makes more of its arguments than `args`.
    fn need_plain_exception(&mut self, class: &Rc<Class>, args: &Args) -> Flow<()> {
        let more = match Parts::of(class) {
            Some(Parts::OfSeveral) => args.pos.len() > 1,
            Some(Parts::Own) => true,
            Some(Parts::Value | Parts::Memory) | None => false,
        };
        if !args.kw.is_empty() || more {
            return stop(ReasonCode::UnsupportedCall, format!("{} with such arguments", class.name.qualname));
        }
        Ok(())
    }

    /// `slot_tp_init` in CPython's `Objects/typeobject.c`: what an `__init__` gives has to be `None`.
    fn need_nothing(&mut self, result: &Value) -> Flow<()> {
        if self.read(result)?.is_none() {
            return Ok(());
        }
        let name = self.type_name(result);
        self.raise_named("TypeError", &format!("__init__() should return None, not '{name}'"))
    }

    /// What the metaclass makes of a call of `class`, if it is not `type.__call__`.
    fn metaclass_call(&mut self, class: &Rc<Class>, args: &Args) -> Flow<Option<Value>> {
        let Some(origin) = class.origin else { return Ok(None) };
        let described = self.describe(origin.object)?;
        let meta = self.describe(described.class)?;
        let plain = ["builtins.type", "abc.ABCMeta", "torch._C._TensorMeta"];
        let s = self.step(origin.source, Step::Class);
        if let Some(path) = meta.path.as_ref().filter(|p| plain.contains(&&***p)) {
            self.guard(s, GuardKind::IsPath(path.clone()));
            return Ok(None);
        }
        let Value::Class(metaclass) = self.wrap(described.class, s)? else { return Ok(None) };
        match self.type_lookup(&metaclass, "__call__")? {
            Some((owner, _)) if owner.is("builtins.type") => Ok(None),
            Some((_, Value::Function(call))) => {
                let mut args = args.clone();
                args.pos.insert(0, Value::Class(class.clone()));
                self.call(&Value::Function(call), args).map(Some)
            }
            _ => stop(
                ReasonCode::UnsupportedCall,
                format!("a call of {}, whose metaclass defines __call__", class.name.qualname),
            ),
        }
    }

    /// `object.__new__` and its kin, and the `__init__`s of built-in bases.
    fn construct(&mut self, path: &str, args: &Args) -> Flow<Option<Value>> {
        if let Some(base) = path.strip_suffix(".__new__") {
            let Some(Value::Class(class)) = args.pos.first() else { return Ok(None) };
            let class = class.clone();
            return self.new_object(base, class, args).map(Some);
        }
        match path {
            "builtins.object.__init__" if !args.pos.is_empty() => {
                let class = self.class_of(&args.pos[0])?;
                let message = "object.__init__() takes exactly one argument (the instance to initialize)";
                self.refuse_excess(&class, args, ["__init__", "__new__"], message)?;
                Ok(Some(Value::NONE))
            }
            _ => match (path.strip_suffix(".__init__"), args.pos.first()) {
                (Some(base), Some(Value::Instance(id))) if self.arenas.instances[*id].class.derives(base) => {
                    self.init_exception(*id, args)
                }
                _ => Ok(None),
            },
        }
    }

    /// `__init__` of a built-in exception, called with `args`, the exception with them.
    fn init_exception(&mut self, id: InstanceId, args: &Args) -> Flow<Option<Value>> {
        let class = self.arenas.instances[id].class.clone();
        if !class.derives("builtins.BaseException") {
            return Ok(None);
        }
        let given = Args { pos: args.pos[1..].to_vec(), kw: args.kw.clone() };
        self.need_plain_exception(&class, &given)?;
        let instance = &mut self.arenas.instances[id];
        match (&mut instance.payload, &instance.origin) {
            (Payload::Exception(raised), None) => raised.args = given.pos,
            _ => return stop(ReasonCode::SideEffect, "__init__ of an exception that was there before"),
        }
        Ok(Some(Value::NONE))
    }

    /// `__new__` of a built-in exception, which keeps the arguments by position and ignores the others.
    fn make_exception(&mut self, class: Rc<Class>, args: &Args) -> Flow<Value> {
        if matches!(Parts::of(&class), Some(Parts::OfSeveral | Parts::Value))
            && self.type_lookup(&class, "__init__")?.is_some_and(|(owner, _)| owner.is_python)
        {
            // Their attributes are what the `__init__` of C is given, if it is called.
            return stop(ReasonCode::UnsupportedCall, format!("{}, which has its own __init__", class.name.qualname));
        }
        Ok(self.new_exception(class, args.pos[1..].to_vec()))
    }

    /// `object_init` and `object_new` in CPython's `Objects/typeobject.c`: `object` takes arguments only where a class has
    /// defined the `other` of the two, and not the one that is called.
    fn refuse_excess(&mut self, class: &Rc<Class>, args: &Args, [called, other]: [&str; 2], own: &str) -> Flow<()> {
        if args.pos.len() <= 1 && args.kw.is_empty() {
            return Ok(());
        }
        if !class.is_python {
            // Types of C make their objects in ways that their attributes do not show.
            return stop(ReasonCode::UnsupportedCall, format!("{} with arguments", class.name.qualname));
        }
        let mut of_object = |name: &str| -> Flow<bool> {
            Ok(self.type_lookup(class, name)?.is_some_and(|(owner, _)| owner.is("builtins.object")))
        };
        match (of_object(called)?, of_object(other)?) {
            (false, _) => self.raise_named("TypeError", own),
            (true, true) => {
                let name = class.name.qualname.rsplit('.').next().unwrap_or_default().to_owned();
                let message = match called {
                    "__init__" => format!("{name}.__init__() takes exactly one argument (the instance to initialize)"),
                    _ => format!("{name}() takes no arguments"),
                };
                self.raise_named("TypeError", &message)
            }
            (true, false) => Ok(()),
        }
    }

    /// A class with abstract methods has no instances (`object_new` in CPython's `Objects/typeobject.c`). Each class has a
    /// set of its own, made by its metaclass.
    fn refuse_abstract(&mut self, class: &Rc<Class>) -> Flow<()> {
        if self.own_metaclass(class)?.is_none() {
            return Ok(());
        }
        match self.type_lookup(class, "__abstractmethods__")? {
            Some((owner, Value::Set(set))) if owner.same(class) && !self.arenas.sets[set].items.is_empty() => {
                let name = class.name.qualname.rsplit('.').next().unwrap_or_default().to_owned();
                self.raise_inexact("TypeError", &format!("Can't instantiate abstract class {name}"))
            }
            _ => Ok(()),
        }
    }

    /// An object without state but for its dict.
    pub(crate) fn new_instance(&mut self, class: Rc<Class>, attrs: Option<DictId>) -> Value {
        let instance = Instance {
            class,
            attrs,
            slots: IndexMap::new(),
            slot_writes: IndexMap::new(),
            payload: Payload::None,
            origin: None,
        };
        Value::Instance(self.arenas.instances.push(instance))
    }

    fn new_object(&mut self, base: &str, class: Rc<Class>, args: &Args) -> Flow<Value> {
        let attrs = class.has_dict.then(|| self.fresh_attrs());
        match base {
            // `namespace_new` in CPython's `Objects/namespaceobject.c` makes an object with an empty dict, whatever it is given.
            "types.SimpleNamespace" => Ok(self.new_instance(class, attrs)),
            // Of a subclass; its `__init__` says what it gives.
            "builtins.property" => {
                let made = self.new_instance(class, attrs);
                if let Value::Instance(id) = made {
                    self.arenas.instances[id].payload = Payload::Native(vec![]);
                }
                Ok(made)
            }
            "builtins.object" => {
                let message = "object.__new__() takes exactly one argument (the type to instantiate)";
                self.refuse_excess(&class, args, ["__new__", "__init__"], message)?;
                self.refuse_abstract(&class)?;
                // Python refuses it where a base of C makes its objects in another way.
                let inherits = self.type_lookup(&class, "__new__")?;
                if inherits.is_some_and(|(owner, _)| !owner.is_python && !owner.is("builtins.object"))
                    || OWN_LAYOUT.iter().any(|base| class.derives(base))
                {
                    return stop(ReasonCode::UnsupportedCall, format!("object.__new__ of {}", class.name.qualname));
                }
                Ok(self.new_instance(class, attrs))
            }
            "builtins.tuple" if !args.kw.is_empty() => stop(ReasonCode::UnsupportedCall, "tuple.__new__ with keywords"),
            "builtins.tuple" => {
                let items = match args.pos.get(1) {
                    Some(iterable) => self.collect_sized(&iterable.clone())?,
                    None => vec![],
                };
                let class = (!class.is("builtins.tuple")).then_some(class);
                Ok(Value::Tuple(Rc::new(Tuple { items, class, attrs, origin: None })))
            }
            "builtins.list" => {
                let list = ListValue { class: Some(class), attrs, loaded: true, ..ListValue::default() };
                Ok(Value::List(self.arenas.lists.push(list)))
            }
            "builtins.dict" | "collections.OrderedDict" => {
                let dict = DictValue { class: Some(class), attrs, loaded: true, ..DictValue::default() };
                Ok(Value::Dict(self.arenas.dicts.push(dict)))
            }
            _ if class.derives("builtins.BaseException") => self.make_exception(class, args),
            _ => stop(ReasonCode::UnsupportedCall, format!("{base}.__new__ of {}", class.name.qualname)),
        }
    }
}
