//! `type`, `isinstance`, `issubclass`, and the abstract classes that built-in types are registered with.

use super::args::exactly;
use super::{Table, unsupported};
use crate::call::Args;
use crate::flow::{Flow, stop};
use crate::tracer::Tracer;
use crate::value::{Class, Value};
use flambeau_ir::code::Const;
use flambeau_ir::guard::GuardKind;
use flambeau_ir::object::ObjId;
use flambeau_ir::oracle::{AnswerValue, Question};
use flambeau_ir::reason::ReasonCode;
use std::rc::Rc;

pub const TABLE: Table = &[
    ("builtins.type", type_),
    ("builtins.isinstance", isinstance),
    ("builtins.issubclass", issubclass),
    ("builtins.type.__instancecheck__", instancecheck),
    ("builtins.type.__subclasscheck__", subclasscheck),
];

fn type_(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [value] = exactly(path, args)?;
    tracer.class_of(&value).map(Value::Class)
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
            Ok(Value::bool(actual.is_subclass(&class)))
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
    if actual.same(&class) {
        return Ok(true);
    }
    if let Value::Tensor(_) = value
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
    if is_subclass(tracer, &actual, &class)? {
        return Ok(true);
    }
    if let Value::Instance(_) = value
        && actual.is_python
        && let Some((owner, _)) = tracer.type_lookup(&actual, "__class__")?
        && !owner.is("builtins.object")
    {
        return stop(ReasonCode::UnsupportedObject, "isinstance of an object that overrides __class__");
    }
    Ok(false)
}

/// `torch.FloatTensor` and its like: of a dtype and a device.
fn is_tensor_type(path: &str) -> bool {
    path.strip_prefix("torch.")
        .is_some_and(|rest| rest.ends_with("Tensor") && rest != "Tensor" && !rest.contains("nn."))
}

/// `X | Y`
fn union_members(tracer: &mut Tracer<'_>, value: &Value) -> Flow<Option<Value>> {
    match tracer.type_name(value).as_str() {
        "UnionType" => tracer.find_attr(value, "__args__"),
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

/// A check that the class's metaclass defines in Python.
fn own_check(tracer: &mut Tracer<'_>, class: &Rc<Class>, name: &str) -> Flow<Option<Value>> {
    let Some(origin) = class.origin else { return Ok(None) };
    if class.path.as_deref().is_some_and(|p| p.starts_with("builtins.") || p.starts_with("collections.")) {
        return Ok(None);
    }
    let meta = tracer.describe(origin.object)?.class;
    let meta = tracer.describe(meta)?;
    match meta.path.as_deref() {
        Some("builtins.type" | "abc.ABCMeta" | "torch._C._TensorMeta" | "enum.EnumType" | "enum.EnumMeta") => Ok(None),
        _ => {
            let meta = tracer.class_of(&Value::Class(class.clone()))?;
            Ok(tracer.type_lookup(&meta, name)?.and_then(|(_, check)| match check {
                Value::Function(_) => Some(check),
                _ => None,
            }))
        }
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
        _ => unsupported("issubclass"),
    }
}

/// `issubclass(class, of)` where `of`'s metaclass has no check of its own.
fn is_subclass(tracer: &mut Tracer<'_>, class: &Rc<Class>, of: &Rc<Class>) -> Flow<bool> {
    if class.is_subclass(of) {
        return Ok(true);
    }
    if let Some(path) = &of.path {
        if let Some(name) = path.strip_prefix("collections.abc.").or_else(|| path.strip_prefix("_collections_abc.")) {
            return is_abstract(tracer, class, name);
        }
        if let Some(name) = path.strip_prefix("numbers.") {
            return Ok(NUMBERS.iter().any(|(n, types)| *n == name && derives_any(class, types)));
        }
        // Only the standard library and torch have such classes; they register nothing from outside.
        return Ok(false);
    }
    let Some(origin) = of.origin else { return Ok(false) };
    let meta = tracer.describe(origin.object)?.class;
    if tracer.describe(meta)?.path.as_deref() == Some("abc.ABCMeta") {
        let hidden = tracer.type_lookup(of, "__subclasshook__")?.is_some_and(|(owner, _)| !owner.is("builtins.object"));
        if hidden || has_registered(tracer, origin.object)? {
            return stop(ReasonCode::UnguardableObject, format!("classes registered with {}", of.name.qualname));
        }
        tracer.guard(origin.source, GuardKind::NoRegistered);
    }
    Ok(false)
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

fn is_abstract(tracer: &mut Tracer<'_>, class: &Rc<Class>, name: &str) -> Flow<bool> {
    if let Some((_, methods)) = BY_METHOD.iter().find(|(n, _)| *n == name) {
        for method in *methods {
            if !has_method(tracer, class, method)? {
                return Ok(false);
            }
        }
        return Ok(true);
    }
    if name == "Hashable" {
        let mutable = ["list", "dict", "set", "bytearray"].iter().any(|n| has_path(class, n));
        if !mutable && !class.is_python {
            return Ok(true);
        }
        return stop(ReasonCode::UnsupportedObject, "isinstance(..., Hashable) of this type");
    }
    match REGISTERED.iter().find(|(n, _)| *n == name) {
        Some((_, types)) => Ok(types.iter().any(|t| has_path(class, t))),
        None => stop(ReasonCode::UnsupportedObject, format!("isinstance(..., collections.abc.{name})")),
    }
}

fn has_method(tracer: &mut Tracer<'_>, class: &Rc<Class>, method: &str) -> Flow<bool> {
    let known = METHODS.iter().find(|(m, _)| *m == method);
    if known.is_some_and(|(_, types)| types.iter().any(|t| has_path(class, t))) {
        return Ok(true);
    }
    if class.origin.is_none() {
        return Ok(false);
    }
    Ok(tracer.type_lookup(class, method)?.is_some_and(|(_, found)| !found.is_none()))
}

/// `callable(value)`
pub fn is_callable(tracer: &mut Tracer<'_>, value: &Value) -> Flow<bool> {
    Ok(match value {
        Value::Function(_) | Value::Method(_) | Value::Builtin(_) | Value::Class(_) | Value::Partial(_) => true,
        Value::Instance(_) | Value::Opaque(_) => {
            let class = tracer.class_of(value)?;
            tracer.type_lookup(&class, "__call__")?.is_some()
        }
        Value::Descriptor(_) => return unsupported("callable"),
        _ => false,
    })
}
