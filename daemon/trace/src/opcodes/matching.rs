//! `match` statements (`match_class` and `match_keys` in CPython's `Python/ceval.c`).

use crate::builtins::types::is_instance;
use crate::state::tracer::Tracer;
use crate::value::flow::{Flow, stop};
use crate::value::frame::{Control, PyFrame};
use crate::value::{Args, Class, Key, Value};
use flambeau_ir::guard::{Collection, GuardKind};
use flambeau_ir::oracle::{AnswerValue, Question};
use flambeau_ir::reason::ReasonCode;
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;

/// Types whose one positional sub-pattern is the subject itself (`_Py_TPFLAGS_MATCH_SELF`), as their subclasses are.
const MATCH_SELF: &[&str] = &[
    "builtins.bool",
    "builtins.bytearray",
    "builtins.bytes",
    "builtins.dict",
    "builtins.float",
    "builtins.frozenset",
    "builtins.int",
    "builtins.list",
    "builtins.set",
    "builtins.str",
    "builtins.tuple",
];

/// Sequences and mappings among the interpreter's own types, which nobody can register.
const SEQUENCES: &[&str] = &["builtins.list", "builtins.tuple", "builtins.range", "builtins.memoryview"];
const MAPPINGS: &[&str] = &["builtins.dict", "builtins.mappingproxy", "types.MappingProxyType"];

/// `MATCH_SEQUENCE`, `MATCH_MAPPING`
pub(super) fn collection(t: &mut Tracer<'_>, f: &mut PyFrame, asked: Collection) -> Flow<Control> {
    let subject = f.peek(1)?.clone();
    let class = t.class_of(&subject)?;
    let is_one = collection_of(t, &class)? == asked;
    f.push(Value::bool(is_one));
    Ok(Control::Next)
}

/// What patterns take the instances of a class for. Registering a class with an abstract one changes it.
fn collection_of(t: &mut Tracer<'_>, class: &Rc<Class>) -> Flow<Collection> {
    let table = |class: &Class| {
        let first = |paths: &[&str]| class.mro_paths.iter().position(|path| paths.contains(&&**path));
        match (first(SEQUENCES), first(MAPPINGS)) {
            (None, None) => Collection::Neither,
            (Some(sequence), Some(mapping)) if mapping < sequence => Collection::Mapping,
            (Some(_), _) => Collection::Sequence,
            (None, Some(_)) => Collection::Mapping,
        }
    };
    let own = |path: &Arc<str>| path.starts_with("builtins.") || path.starts_with("types.");
    if !class.is_python && class.path.as_ref().is_some_and(own) {
        return Ok(table(class));
    }
    let class = t.real_class(class)?;
    let Some(origin) = class.origin else {
        return stop(ReasonCode::UnsupportedObject, format!("a pattern for a {}", class.name.qualname));
    };
    match t.ask_one(Question::Collection(origin.object))? {
        AnswerValue::Collection(collection) => {
            t.guard(origin.source, GuardKind::Collection(collection));
            Ok(collection)
        }
        other => stop(ReasonCode::Internal, format!("unexpected answer {other:?}")),
    }
}

/// Pushes the values of the keys, or `None` where one is missing.
pub(super) fn keys(t: &mut Tracer<'_>, f: &mut PyFrame) -> Flow<Control> {
    let (Value::Tuple(keys), subject) = (f.peek(1)?.clone(), f.peek(2)?.clone()) else {
        return stop(ReasonCode::Internal, "keys of a pattern that are no tuple");
    };
    let values = values_of(t, &subject, &keys.items)?;
    f.push(values.map_or(Value::NONE, Value::tuple));
    Ok(Control::Next)
}

fn values_of(t: &mut Tracer<'_>, subject: &Value, keys: &[Value]) -> Flow<Option<Vec<Value>>> {
    if keys.is_empty() {
        return Ok(Some(vec![]));
    }
    let get = t.get_attr(subject, "get")?;
    let of_dict = match (&get, subject) {
        (Value::Builtin(get), Value::Dict(id)) if &*get.path == "builtins.dict.get" => Some(*id),
        _ => None,
    };
    let missing = match of_dict {
        Some(_) => Value::NONE,
        None => {
            let object = Value::Class(t.builtin_class("builtins.object"));
            t.call_path("builtins.object.__new__", Args::new(vec![object]))?
        }
    };
    let mut seen: HashSet<Key> = HashSet::new();
    let mut values = Vec::with_capacity(keys.len());
    for key in keys {
        if !seen.insert(t.key(key)?) {
            return t.raise_inexact("ValueError", "mapping pattern checks duplicate key");
        }
        let value = match of_dict {
            Some(dict) => t.dict_get(dict, key)?,
            None => {
                let value = t.call(&get, Args::new(vec![key.clone(), missing.clone()]))?;
                (!t.identical(&value, &missing)?).then_some(value)
            }
        };
        let Some(value) = value else { return Ok(None) };
        values.push(value);
    }
    Ok(Some(values))
}

/// Replaces subject, class and names of keyword sub-patterns by the attributes, or by `None` where it does not match.
pub(super) fn class(t: &mut Tracer<'_>, f: &mut PyFrame, positional: u32) -> Flow<Control> {
    let (names, class, subject) = (f.pop()?, f.pop()?, f.pop()?);
    let Value::Tuple(names) = names else {
        return stop(ReasonCode::Internal, "names of a pattern that are no tuple");
    };
    let Value::Class(class) = class else {
        if matches!(class, Value::Opaque(_)) {
            return stop(ReasonCode::UnsupportedObject, format!("a pattern of a {}", t.type_name(&class)));
        }
        return t.raise_named("TypeError", "called match pattern must be a class");
    };
    let matched = if is_instance(t, &subject, &Value::Class(class.clone()))? {
        let found = attributes(t, &subject, &class, positional as usize, &names.items)?;
        found.map_or(Value::NONE, Value::tuple)
    } else {
        Value::NONE
    };
    f.push(matched);
    Ok(Control::Next)
}

/// The subject's attributes by `__match_args__` and by name; `None` where one is missing.
fn attributes(
    t: &mut Tracer<'_>,
    subject: &Value,
    class: &Rc<Class>,
    positional: usize,
    names: &[Value],
) -> Flow<Option<Vec<Value>>> {
    let mut seen = HashSet::new();
    let mut found = Vec::with_capacity(positional + names.len());
    let mut own_names = Vec::new();
    if positional > 0 {
        let (match_args, is_self) = match t.find_attr(&Value::Class(class.clone()), "__match_args__")? {
            Some(Value::Tuple(tuple)) if tuple.class.is_none() => (tuple.items.clone(), false),
            Some(other) => {
                let message =
                    format!("{}.__match_args__ must be a tuple (got {})", class.tp_name(), t.type_name(&other));
                return t.raise_named("TypeError", &message);
            }
            None => (Vec::new(), MATCH_SELF.iter().any(|path| class.derives(path))),
        };
        let allowed = if is_self { 1 } else { match_args.len() };
        if allowed < positional {
            let (name, plural) = (class.tp_name(), if allowed == 1 { "" } else { "s" });
            let message = format!("{name}() accepts {allowed} positional sub-pattern{plural} ({positional} given)");
            return t.raise_named("TypeError", &message);
        }
        if is_self {
            found.push(subject.clone());
        } else {
            own_names.extend_from_slice(&match_args[..positional]);
        }
    }
    let mut all = own_names;
    all.extend_from_slice(names);
    for name in &all {
        let name = t.read(name)?;
        let Some(text) = name.as_str().cloned() else {
            if t.class_of(&name)?.derives("builtins.str") {
                return stop(ReasonCode::UnsupportedObject, "__match_args__ with a subclass of str");
            }
            let message = format!("__match_args__ elements must be strings (got {})", t.type_name(&name));
            return t.raise_named("TypeError", &message);
        };
        if !seen.insert(text.clone()) {
            return t.raise_inexact("TypeError", "several sub-patterns for one attribute");
        }
        match t.find_attr(subject, &text)? {
            Some(value) => found.push(value),
            None => return Ok(None),
        }
    }
    Ok(Some(found))
}
