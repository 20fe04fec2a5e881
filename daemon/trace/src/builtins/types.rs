//! `type`, `isinstance`, `issubclass`, and the abstract classes that built-in types are registered with.

use super::args::{exactly, receiver};
use super::kinds::union::UNION;
use super::{Table, unsupported};
use crate::state::tracer::Tracer;
use crate::value::Args;
use crate::value::flow::{Flow, stop};
use crate::value::{Class, Method, Origin, Payload, Value};
use flambeau_ir::code::Const;
use flambeau_ir::guard::{GuardKind, KeyObject};
use flambeau_ir::object::ObjId;
use flambeau_ir::oracle::{AnswerValue, Question};
use flambeau_ir::reason::ReasonCode;
use flambeau_ir::source::Step;
use std::rc::Rc;
use std::sync::Arc;

pub const TABLE: Table = &[
    ("builtins.type", type_),
    ("builtins.isinstance", isinstance),
    ("builtins.issubclass", issubclass),
    ("_collections_abc._check_methods", check_methods),
    ("builtins.type.__call__", call),
    ("builtins.method", method),
    ("types.SimpleNamespace", namespace),
    ("types.SimpleNamespace.__init__", fill_namespace),
    ("builtins.property.__init__", fill_property),
    ("builtins.type.__instancecheck__", instancecheck),
    ("builtins.type.__subclasscheck__", subclasscheck),
];

fn type_(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [value] = exactly(path, args)?;
    tracer.class_of(&value).map(Value::Class)
}

/// `property.__init__(getter)` of an object of a subclass, which then has the getter's text.
fn fill_property(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [object, getter] = exactly(path, args)?;
    let Value::Instance(id) = object else { return unsupported(path) };
    if !matches!(tracer.arenas.instances[id].payload, Payload::Native(_)) {
        return unsupported(path);
    }
    let text = tracer.get_attr(&getter, "__doc__")?;
    tracer.arenas.instances[id].payload = Payload::Native(vec![getter]);
    if !text.is_none() {
        tracer.set_attr(&object, "__doc__", text)?;
    }
    Ok(Value::NONE)
}

/// What abstract classes ask in their `__subclasshook__`: whether a class has these methods, none of them `None`.
fn check_methods(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (Value::Class(class), methods) = receiver(path, args)? else { return unsupported(path) };
    for method in &methods.pos {
        let Some(name) = method.as_str() else { return unsupported(path) };
        match tracer.type_lookup(&class, name)? {
            Some((_, found)) if !found.is_none() => {}
            _ => return Ok(Value::Const(Const::NotImplemented)),
        }
    }
    Ok(Value::bool(true))
}

/// `type.__call__(class, ...)`, past what the metaclass says.
fn call(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    match receiver(path, args)? {
        (Value::Class(class), rest) if class.is_python => tracer.make_instance(&class, rest),
        (Value::Class(class), rest) if !class.is("builtins.type") => tracer.instantiate(&class, rest),
        _ => unsupported(path),
    }
}

/// `types.MethodType(function, object)`
fn method(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [func, receiver] = exactly(path, args)?;
    if receiver.is_none() || !is_callable(tracer, &func)? {
        return unsupported(path);
    }
    Ok(Value::Method(Rc::new(Method { func, receiver, origin: None })))
}

fn namespace(tracer: &mut Tracer<'_>, path: &str, mut args: Args) -> Flow<Value> {
    let class = tracer.trusted_class("types", "SimpleNamespace")?;
    let attrs = tracer.fresh_attrs();
    let made = tracer.new_instance(class, Some(attrs));
    args.pos.insert(0, made.clone());
    fill_namespace(tracer, path, args)?;
    Ok(made)
}

/// `namespace_init` in CPython's `Objects/namespaceobject.c`: what has names is stored in the dict, past `__setattr__`.
fn fill_namespace(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [Value::Instance(id)] = &args.pos[..] else { return unsupported(path) };
    let Some(attrs) = tracer.arenas.instances[*id].attrs else { return unsupported(path) };
    for (name, value) in args.kw {
        tracer.dict_set(attrs, Value::str(&name), value)?;
    }
    Ok(Value::NONE)
}

fn isinstance(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [value, class] = exactly(path, args)?;
    is_instance(tracer, &value, &class).map(Value::bool)
}

fn issubclass(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [class, of] = exactly(path, args)?;
    let Value::Class(class) = class else { return unsupported(path) };
    is_subclass_of_any(tracer, &class, &of).map(Value::bool)
}

fn instancecheck(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    match exactly(path, args)? {
        [Value::Class(class), value] => {
            let actual = tracer.class_of(&value)?;
            let is_one =
                actual.is_subclass(&class) || said_class(tracer, &value)?.is_some_and(|c| c.is_subclass(&class));
            Ok(Value::bool(is_one))
        }
        _ => unsupported(path),
    }
}

fn subclasscheck(_: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    match exactly(path, args)? {
        [Value::Class(class), Value::Class(sub)] => Ok(Value::bool(sub.is_subclass(&class))),
        _ => unsupported(path),
    }
}

/// `isinstance(value, class)`; `class` may be a tuple of classes.
pub fn is_instance(tracer: &mut Tracer<'_>, value: &Value, class: &Value) -> Flow<bool> {
    let class = match class {
        Value::Class(class) => class.clone(),
        Value::Tuple(classes) => {
            for class in &classes.items {
                if is_instance(tracer, value, class)? {
                    return Ok(true);
                }
            }
            return Ok(false);
        }
        other => match union_members(tracer, other)? {
            Some(members) => return is_instance(tracer, value, &members),
            None => return unsupported("isinstance"),
        },
    };
    let actual = tracer.class_of(value)?;
    if class.is(Class::SOME_ITERATOR) {
        return unsupported("isinstance");
    }
    if actual.same(&class) {
        return Ok(true);
    }
    if let Value::Tensor(_) = value
        && !class.derives("torch.Tensor")
        && let Some(path) = class.path.as_deref().filter(|path| is_tensor_type(path))
    {
        return stop(ReasonCode::UnsupportedObject, format!("isinstance of a tensor and {path}"));
    }
    if let Value::Tensor(_) = value
        && class.derives("torch.Tensor")
        && !class.is("torch.Tensor")
    {
        return is_parameter_like(tracer, value, &actual, &class);
    }
    if let Some(check) = own_check(tracer, &class, "__instancecheck__")? {
        let result = tracer.call(&check, Args::new(vec![Value::Class(class), value.clone()]))?;
        return tracer.truth(&result);
    }
    // An abstract class asks for what the object says first.
    if tracer.overrides_class(value)? && is_of_abc_meta(tracer, &class)? {
        let Value::Class(said) = tracer.get_attr(value, "__class__")? else {
            return tracer.raise_named("TypeError", "issubclass() arg 1 must be a class");
        };
        return Ok(is_subclass(tracer, &said, &class)? || is_subclass(tracer, &actual, &class)?);
    }
    if is_subclass(tracer, &actual, &class)? {
        return Ok(true);
    }
    match said_class(tracer, value)? {
        Some(said) => is_subclass(tracer, &said, &class),
        None => Ok(false),
    }
}

/// The class that an object says to have beside its type, which counts as well: `object_isinstance` in CPython's
/// `Objects/abstract.c`.
fn said_class(tracer: &mut Tracer<'_>, value: &Value) -> Flow<Option<Rc<Class>>> {
    if !tracer.overrides_class(value)? {
        return Ok(None);
    }
    match tracer.find_attr(value, "__class__")? {
        Some(Value::Class(said)) => Ok(Some(said)),
        _ => Ok(None),
    }
}

/// `torch.FloatTensor` and its like: of a dtype and a device.
fn is_tensor_type(path: &str) -> bool {
    path.strip_prefix("torch.")
        .is_some_and(|rest| rest.ends_with("Tensor") && rest != "Tensor" && !rest.contains("nn."))
}

/// `X | Y`
fn union_members(tracer: &mut Tracer<'_>, value: &Value) -> Flow<Option<Value>> {
    match value {
        Value::Parts(parts) if parts.of == UNION => tracer.find_attr(value, "__args__"),
        _ => Ok(None),
    }
}

/// `torch.nn.Parameter` and its like count tensors that carry `_is_param`.
fn is_parameter_like(tracer: &mut Tracer<'_>, value: &Value, actual: &Class, class: &Class) -> Flow<bool> {
    if actual.is_subclass(class) {
        return Ok(true);
    }
    let mark = match class.path.as_deref() {
        Some("torch.nn.parameter.Parameter" | "torch.nn.Parameter") => "_is_param",
        Some("torch.nn.parameter.Buffer" | "torch.nn.Buffer") => "_is_buffer",
        _ => return Ok(false),
    };
    match tracer.find_attr(value, mark)? {
        Some(mark) => tracer.truth(&mark),
        None => Ok(false),
    }
}

/// Metaclasses that check instances and subclasses in a way that is known.
const PLAIN: [&str; 5] = ["builtins.type", "abc.ABCMeta", "torch._C._TensorMeta", "enum.EnumType", "enum.EnumMeta"];

/// A check that the class's metaclass defines in Python.
fn own_check(tracer: &mut Tracer<'_>, class: &Rc<Class>, name: &str) -> Flow<Option<Value>> {
    let Some(origin) = class.origin else { return Ok(None) };
    if class.path.as_deref().is_some_and(|p| p.starts_with("builtins.")) {
        return Ok(None);
    }
    let meta = tracer.describe(origin.object)?.class;
    let meta = tracer.describe(meta)?.path.clone();
    if let Some(path) = meta.filter(|path| PLAIN.contains(&&**path)) {
        // Classes of users are known by their names, which say nothing of their metaclass.
        if class.path.is_none() {
            let source = tracer.step(origin.source, Step::Class);
            tracer.guard(source, GuardKind::IsPath(path));
        }
        return Ok(None);
    }
    let meta = tracer.class_of(&Value::Class(class.clone()))?;
    let Some((_, check @ Value::Function(_))) = tracer.type_lookup(&meta, name)? else { return Ok(None) };
    let Value::Function(function) = &check else { return Ok(None) };
    // Its module is frozen: the functions have no path. Protocols say something else to who asks from elsewhere.
    let of_typing = meta.mro_paths.iter().any(|path| path.starts_with("typing."));
    let of_abc = function.module.as_deref() == Some("abc") && meta.path.is_none() && !of_typing;
    match &*function.code.qualname {
        // It asks for the other check, which may be the user's.
        "ABCMeta.__instancecheck__" if of_abc => Ok(own_check(tracer, class, "__subclasscheck__")?.map(|_| check)),
        "ABCMeta.__subclasscheck__" if of_abc => Ok(None),
        _ => Ok(Some(check)),
    }
}

fn is_subclass_of_any(tracer: &mut Tracer<'_>, class: &Rc<Class>, of: &Value) -> Flow<bool> {
    match of {
        Value::Class(of) => match own_check(tracer, of, "__subclasscheck__")? {
            Some(check) => {
                let result =
                    tracer.call(&check, Args::new(vec![Value::Class(of.clone()), Value::Class(class.clone())]))?;
                tracer.truth(&result)
            }
            None => is_subclass(tracer, class, of),
        },
        Value::Tuple(classes) => {
            for of in &classes.items {
                if is_subclass_of_any(tracer, class, of)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        other => match union_members(tracer, other)? {
            Some(members) => is_subclass_of_any(tracer, class, &members),
            None => unsupported("issubclass"),
        },
    }
}

/// `issubclass(class, of)` where `of`'s metaclass has no check of its own.
fn is_subclass(tracer: &mut Tracer<'_>, class: &Rc<Class>, of: &Rc<Class>) -> Flow<bool> {
    // An abstract class keeps what it said of a class in a set.
    if is_of_abc_meta(tracer, of)? {
        tracer.need_hash(class)?;
    }
    if class.is_subclass(of) {
        // `_abc__abc_subclasscheck_impl` in CPython asks the hook first. Those of the standard library say the same.
        let says_no =
            has_own_hook(tracer, of)? && matches!(subclass_hook(tracer, class, of)?, Value::Const(Const::Bool(false)));
        return Ok(!says_no);
    }
    if let Some(path) = &of.path {
        let name = path.strip_prefix("collections.abc.").or_else(|| path.strip_prefix("_collections_abc."));
        if let Some(name) = name {
            // Those that no table has ask for methods in a hook of their own.
            if class.is_python
                && BY_METHOD.iter().all(|(n, _)| *n != name)
                && let Value::Const(Const::Bool(said)) = subclass_hook(tracer, class, of)?
            {
                return Ok(said);
            }
            return Ok(is_abstract(tracer, class, name)? || is_registered(tracer, class, path)?);
        }
        if let Some(name) = path.strip_prefix("numbers.") {
            let built_in = NUMBERS.iter().any(|(n, types)| *n == name && derives_any(class, types));
            return Ok(built_in || is_registered(tracer, class, path)?);
        }
        let said = match subclass_hook(tracer, class, of)? {
            Value::Const(Const::Bool(said)) => said,
            _ => is_registered(tracer, class, path)?,
        };
        return Ok(said);
    }
    let Some(origin) = of.origin else { return Ok(false) };
    if is_of_abc_meta(tracer, of)? {
        if let Value::Const(Const::Bool(said)) = subclass_hook(tracer, class, of)? {
            return Ok(said);
        }
        if has_registered(tracer, origin.object)? {
            return is_registered_with_own(tracer, class, of, origin);
        }
        tracer.guard(origin.source, GuardKind::NoRegistered);
    }
    Ok(false)
}

/// Whether a class has `ABCMeta` as its metaclass, or one that checks subclasses as that does.
fn is_of_abc_meta(tracer: &mut Tracer<'_>, class: &Rc<Class>) -> Flow<bool> {
    let Some(origin) = class.origin else { return Ok(false) };
    let meta = tracer.describe(origin.object)?.class;
    match tracer.describe(meta)?.path.as_deref() {
        Some("abc.ABCMeta") => Ok(true),
        Some(_) => Ok(false),
        None => {
            let meta = tracer.class_of(&Value::Class(class.clone()))?;
            Ok(meta.derives("abc.ABCMeta") && own_check(tracer, class, "__subclasscheck__")?.is_none())
        }
    }
}

/// Whether a program's class has a `__subclasshook__` that a program wrote.
fn has_own_hook(tracer: &mut Tracer<'_>, class: &Rc<Class>) -> Flow<bool> {
    // Checked first, as each look-up is a fact to guard.
    if class.path.is_some() || !is_of_abc_meta(tracer, class)? {
        return Ok(false);
    }
    Ok(tracer.type_lookup(class, "__subclasshook__")?.is_some_and(|(owner, _)| owner.path.is_none()))
}

/// What an abstract class says in a `__subclasshook__` of its own; `NotImplemented` where it has none.
fn subclass_hook(tracer: &mut Tracer<'_>, class: &Rc<Class>, of: &Rc<Class>) -> Flow<Value> {
    let nothing = Value::Const(Const::NotImplemented);
    if !is_of_abc_meta(tracer, of)? {
        return Ok(nothing);
    }
    let own = tracer.type_lookup(of, "__subclasshook__")?.is_some_and(|(owner, _)| !owner.is("builtins.object"));
    if !own {
        return Ok(nothing);
    }
    let hook = tracer.get_attr(&Value::Class(of.clone()), "__subclasshook__")?;
    let said = tracer.call(&hook, Args::new(vec![Value::Class(class.clone())]))?;
    match said {
        Value::Const(Const::Bool(_) | Const::NotImplemented) => Ok(said),
        _ => stop(ReasonCode::UnsupportedObject, "a __subclasshook__ that gives no truth value"),
    }
}

/// Whether a class is registered with an abstract class of the standard library: one of the user's, or one of C that the
/// tables below do not know (`array.array`, `decimal.Decimal`, NumPy's scalars).
fn is_registered(tracer: &mut Tracer<'_>, class: &Rc<Class>, path: &Arc<str>) -> Flow<bool> {
    let class = &tracer.real_class(class)?;
    let Some(origin) = class.origin else { return Ok(false) };
    let in_tables = |path: &Arc<str>| class.is_python || path.starts_with("builtins.") || path.starts_with("torch.");
    if class.path.as_ref().is_some_and(in_tables) {
        return Ok(false);
    }
    if !path.starts_with("collections.abc.") && !path.starts_with("numbers.") && !path.starts_with("os.") {
        return Ok(false);
    }
    match tracer.ask_one(Question::RegisteredWith { class: origin.object, path: path.clone() })? {
        AnswerValue::Const(Const::Bool(false)) => {
            tracer.guard(origin.source, GuardKind::NotRegistered(KeyObject::Path(path.clone())));
            Ok(false)
        }
        _ => stop(ReasonCode::UnguardableObject, format!("{} may be registered with {path}", class.name.qualname)),
    }
}

/// Whether a class is registered with an abstract class of the user's. Only that it is not can be checked.
fn is_registered_with_own(tracer: &mut Tracer<'_>, class: &Rc<Class>, of: &Class, with: Origin) -> Flow<bool> {
    let registered =
        |of: &Class| stop(ReasonCode::UnguardableObject, format!("classes registered with {}", of.name.qualname));
    let Some(origin) = tracer.real_class(class)?.origin else { return registered(of) };
    match tracer.ask_one(Question::RegisteredWithOwn { class: origin.object, with: with.object })? {
        AnswerValue::Const(Const::Bool(false)) => {
            tracer.guard(origin.source, GuardKind::NotRegistered(KeyObject::Source(with.source)));
            Ok(false)
        }
        _ => registered(of),
    }
}

fn has_registered(tracer: &mut Tracer<'_>, class: ObjId) -> Flow<bool> {
    match tracer.ask_one(Question::Registered(class))? {
        AnswerValue::Const(Const::Bool(any)) => Ok(any),
        other => stop(ReasonCode::Internal, format!("unexpected answer {other:?}")),
    }
}

fn derives_any(class: &Class, paths: &[&str]) -> bool {
    paths.iter().any(|p| class.derives(&format!("builtins.{p}")))
}

const NUMBERS: &[(&str, &[&str])] = &[
    ("Number", &["int", "float", "complex"]),
    ("Complex", &["int", "float", "complex"]),
    ("Real", &["int", "float"]),
    ("Rational", &["int"]),
    ("Integral", &["int"]),
];

/// Abstract classes with one method, which decides.
const BY_METHOD: &[(&str, &[&str])] = &[
    ("Callable", &["__call__"]),
    ("Iterable", &["__iter__"]),
    ("Sized", &["__len__"]),
    ("Container", &["__contains__"]),
    ("Iterator", &["__next__", "__iter__"]),
    ("Reversible", &["__reversed__", "__iter__"]),
    ("Collection", &["__len__", "__iter__", "__contains__"]),
];

/// Which classes of [`REGISTERED`] are below those of [`BY_METHOD`]: what is registered with one counts as the other, whatever
/// methods it has.
const BELOW: &[(&str, &[&str])] = &[
    ("Sized", &["Sequence", "Mapping", "Set", "MappingView", "ByteString"]),
    ("Container", &["Sequence", "Mapping", "Set", "ValuesView", "ByteString"]),
    ("Iterable", &["Sequence", "Mapping", "Set", "ValuesView", "ByteString", "Generator"]),
    ("Collection", &["Sequence", "Mapping", "Set", "ValuesView", "ByteString"]),
    ("Reversible", &["Sequence", "ByteString"]),
    ("Iterator", &["Generator"]),
];

/// Abstract classes that built-in types are registered with.
const REGISTERED: &[(&str, &[&str])] = &[
    ("Sequence", &["tuple", "list", "str", "bytes", "range", "bytearray", "memoryview", "collections.deque"]),
    ("MutableSequence", &["list", "bytearray", "collections.deque"]),
    ("Mapping", &["dict", "mappingproxy"]),
    ("MutableMapping", &["dict"]),
    ("Set", &["set", "frozenset", "dict_keys", "dict_items"]),
    ("MutableSet", &["set"]),
    ("KeysView", &["dict_keys"]),
    ("ValuesView", &["dict_values"]),
    ("ItemsView", &["dict_items"]),
    ("MappingView", &["dict_keys", "dict_values", "dict_items"]),
    ("Generator", &["generator"]),
    ("ByteString", &["bytes", "bytearray"]),
];

/// Methods of built-in types that [`BY_METHOD`] asks for, where the type was not read from outside.
const METHODS: &[(&str, &[&str])] = &[
    (
        "__iter__",
        &[
            "list",
            "tuple",
            "dict",
            "set",
            "frozenset",
            "str",
            "bytes",
            "range",
            "generator",
            "torch.Tensor",
            "iterator",
            "zip",
            "enumerate",
            "map",
            "filter",
        ],
    ),
    ("__len__", &["list", "tuple", "dict", "set", "frozenset", "str", "bytes", "range", "torch.Tensor"]),
    ("__contains__", &["list", "tuple", "dict", "set", "frozenset", "str", "bytes", "range", "torch.Tensor"]),
    ("__reversed__", &["list", "tuple", "dict", "range", "torch.Tensor"]),
    ("__next__", &["generator", "iterator", "zip", "enumerate", "map", "filter"]),
    ("__call__", &["function", "method", "builtin_function_or_method", "type", "functools.partial"]),
];

fn has_path(class: &Class, name: &str) -> bool {
    if name.contains('.') {
        return class.derives(name);
    }
    class.derives(&format!("builtins.{name}")) || &*class.name.module == "builtins" && &*class.name.qualname == name
}

fn any_path(class: &Class, names: &[&str]) -> bool {
    names.iter().any(|name| has_path(class, name))
}

fn is_abstract(tracer: &mut Tracer<'_>, class: &Rc<Class>, name: &str) -> Flow<bool> {
    if let Some((_, methods)) = BY_METHOD.iter().find(|(n, _)| *n == name) {
        let below = BELOW.iter().filter(|(above, _)| *above == name).flat_map(|(_, below)| *below);
        let registered = |below: &&str| REGISTERED.iter().any(|(n, types)| n == below && any_path(class, types));
        if below.into_iter().any(registered) {
            return Ok(true);
        }
        for method in *methods {
            if !has_method(tracer, class, method)? {
                return Ok(false);
            }
        }
        return Ok(true);
    }
    if name == "Hashable" {
        if class.is(Class::SOME_ITERATOR) {
            return Ok(true);
        }
        let class = tracer.real_class(class)?;
        return Ok(tracer.type_lookup(&class, "__hash__")?.is_some_and(|(_, found)| !found.is_none()));
    }
    match REGISTERED.iter().find(|(n, _)| *n == name) {
        Some((_, types)) => Ok(any_path(class, types)),
        None => stop(ReasonCode::UnsupportedObject, format!("isinstance(..., collections.abc.{name})")),
    }
}

fn has_method(tracer: &mut Tracer<'_>, class: &Rc<Class>, method: &str) -> Flow<bool> {
    let known = METHODS.iter().find(|(m, _)| *m == method);
    if known.is_some_and(|(_, types)| types.iter().any(|t| has_path(class, t))) {
        return Ok(true);
    }
    if class.is(Class::SOME_ITERATOR) {
        return Ok(false);
    }
    Ok(tracer.type_lookup(class, method)?.is_some_and(|(_, found)| !found.is_none()))
}

/// `callable(value)`
pub fn is_callable(tracer: &mut Tracer<'_>, value: &Value) -> Flow<bool> {
    Ok(match value {
        Value::Function(_) | Value::Method(_) | Value::Builtin(_) | Value::Class(_) => true,
        Value::Parts(parts) => tracer.kind_of(parts).is_callable(),
        Value::Instance(_) | Value::Opaque(_) => {
            let class = tracer.class_of(value)?;
            tracer.type_lookup(&class, "__call__")?.is_some()
        }
        Value::Descriptor(_) => return unsupported("callable"),
        _ => {
            let class = tracer.class_of(value)?;
            class.is_python && tracer.type_lookup(&class, "__call__")?.is_some()
        }
    })
}
