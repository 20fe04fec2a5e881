//! Built-in functions and types: one file a family, each with its lines of one table, import path to handler. Torch's own
//! callables that become graph nodes are [`crate::torch`]'s; those that fold to a constant are in `facts`.
//!
//! Nothing here knows of opcodes. An operation that is not exactly Python's ends in a named break.

mod args;
pub(crate) mod containers;
mod core;
mod dims;
mod facts;
pub(crate) mod generators;
mod kinds;
mod numbers;
mod operators;
mod polyfills;
mod slots;
mod standard;
mod strings;
pub(crate) mod types;

pub use strings::{format_value, join};

use self::core::note_frames;
use containers::tuples::field;
use containers::{collections, dicts, lists, sets, tuples};
use operators::{binary, compare, contains, delete_subscript, store_subscript, subscript, unary};
use standard::{contextvars, functools, itertools, warnings};

use crate::fold::{Fold, NotFolded};
use crate::state::kind::Kind;
use crate::state::library::Library;
use crate::state::tracer::Tracer;
use crate::value::Args;
use crate::value::flow::{Flow, stop};
use crate::value::{Class, Tuple, Value};
use flambeau_bytecode::{Binary, Compare, Unary};
use flambeau_ir::code::Const;
use flambeau_ir::oracle::Plain;
use flambeau_ir::reason::ReasonCode;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, LazyLock};

/// All of this, as protocols see it.
pub struct BuiltIns;

impl Library for BuiltIns {
    fn knows(&self, path: &str) -> bool {
        knows(path)
    }

    fn kind(&self, path: &str) -> Option<&'static dyn Kind> {
        kinds::kind(path)
    }

    fn is_method(&self, path: &str) -> bool {
        is_method(path)
    }

    fn call(&self, tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Option<Value>> {
        call(tracer, path, args)
    }

    fn attribute(&self, tracer: &mut Tracer<'_>, value: &Value, name: &str) -> Flow<Option<Value>> {
        attribute(tracer, value, name)
    }

    fn field(&self, tracer: &mut Tracer<'_>, tuple: &Tuple, name: &str) -> Flow<Option<Value>> {
        field(tracer, tuple, name)
    }

    fn note_frames(&self, tracer: &mut Tracer<'_>, path: &str) {
        note_frames(tracer, path);
    }

    fn binary(&self, tracer: &mut Tracer<'_>, op: Binary, inplace: bool, a: &Value, b: &Value) -> Flow<Option<Value>> {
        binary(tracer, op, inplace, a, b)
    }

    fn unary(&self, tracer: &mut Tracer<'_>, op: Unary, a: &Value) -> Flow<Option<Value>> {
        unary(tracer, op, a)
    }

    fn compare(&self, tracer: &mut Tracer<'_>, op: Compare, a: &Value, b: &Value) -> Flow<Option<Value>> {
        compare(tracer, op, a, b)
    }

    fn contains(&self, tracer: &mut Tracer<'_>, container: &Value, item: &Value) -> Flow<Option<bool>> {
        contains(tracer, container, item)
    }

    fn subscript(&self, tracer: &mut Tracer<'_>, container: &Value, key: &Value) -> Flow<Option<Value>> {
        subscript(tracer, container, key)
    }

    fn store_subscript(&self, tracer: &mut Tracer<'_>, container: &Value, key: &Value, value: Value) -> Flow<bool> {
        store_subscript(tracer, container, key, value)
    }

    fn delete_subscript(&self, tracer: &mut Tracer<'_>, container: &Value, key: &Value) -> Flow<bool> {
        delete_subscript(tracer, container, key)
    }
}

/// Does a call. The path is the one it is in the table under; a method's receiver is the first argument.
type Handler = fn(&mut Tracer<'_>, &str, Args) -> Flow<Value>;

/// Lines of the table.
type Table = &'static [(&'static str, Handler)];

const FAMILIES: &[Table] = &[
    core::TABLE,
    types::TABLE,
    numbers::TABLE,
    strings::TABLE,
    lists::TABLE,
    tuples::TABLE,
    dicts::TABLE,
    sets::TABLE,
    slots::TABLE,
    operators::TABLE,
    itertools::TABLE,
    functools::TABLE,
    generators::TABLE,
    collections::TABLE,
    facts::TABLE,
    polyfills::TABLE,
    contextvars::TABLE,
    warnings::TABLE,
];

static TABLE: LazyLock<HashMap<&'static str, Handler>> =
    LazyLock::new(|| FAMILIES.iter().chain(kinds::TABLES).flat_map(|family| family.iter().copied()).collect());

/// Modules of C that a public module re-exports.
const ALIASES: &[(&str, &str)] =
    &[("_operator.", "operator."), ("_functools.", "functools."), ("_collections.", "collections."), ("_abc.", "abc.")];

/// Those in the table that are bound to the class, also when they are read through an instance.
const CLASS_METHODS: &[&str] = &["fromkeys", "from_iterable"];

/// The table's name for what is at `path`, if it is there.
fn canonical(path: &str) -> Option<(&'static str, Handler)> {
    let found = |path: &str| TABLE.get_key_value(path).map(|(p, h)| (*p, *h));
    found(path).or_else(|| {
        ALIASES.iter().find_map(|(from, to)| path.strip_prefix(from).and_then(|rest| found(&format!("{to}{rest}"))))
    })
}

/// Whether [`call`] knows the callable at `path`.
pub fn knows(path: &str) -> bool {
    canonical(path).is_some()
}

/// Whether a method of a built-in type is known: one of the table's, or of a type whose methods the client computes.
pub fn is_method(path: &str) -> bool {
    knows(path) || of_immutable(path)
}

/// Whether it is a method of a type whose methods only depend on what the object is.
fn of_immutable(path: &str) -> bool {
    const TYPES: &[&str] = &["str", "bytes", "int", "float", "complex", "bool", "tuple", "frozenset"];
    let of_type = path.strip_prefix("builtins.").and_then(|rest| rest.split_once('.'));
    of_type.is_some_and(|(class, method)| TYPES.contains(&class) && !method.starts_with("__"))
}

/// Calls the built-in function, type or method at `path`; `None`: not known here.
pub fn call(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Option<Value>> {
    let Some((path, handler)) = canonical(path) else {
        return match args.pos.first() {
            Some(value) if path == "copy.deepcopy" && core::is_atomic(value) => Ok(Some(value.clone())),
            _ => constant_call(tracer, path, &args),
        };
    };
    let asks_pure = OF_PURE.contains(&path) && args.kw.is_empty();
    if asks_pure && let Some(value) = kinds::pure::operation(tracer, path, &args.pos.iter().collect::<Vec<_>>())? {
        return Ok(Some(value));
    }
    let is_odd = |value: &Value| match value {
        Value::Instance(_) => !matches!(tracer.base(value), Value::Instance(_)),
        // What is no number to the handler may be one to Python.
        Value::Parts(parts) => tracer.kind_of(parts).is_pure(),
        _ => false,
    };
    let odd = args.pos.iter().any(is_odd);
    let result = handler(tracer, path, args);
    if odd && tracer.is_raise_of(&result, "TypeError") {
        // Its message may name the type of what an instance of a subclass is to the handler.
        return stop(ReasonCode::UnsupportedCall, format!("{path}, which refuses an instance of a subclass"));
    }
    result.map(Some)
}

/// Modules of C whose functions depend on their arguments alone, and such functions of others. The client knows which of them
/// do so in all cases (`shim/src/describe/evaluate.rs`).
const PURE: &[&str] = &[
    "math.",
    "cmath.",
    "binascii.",
    "unicodedata.",
    "_struct.",
    "sys.intern",
    "zlib.adler32",
    "zlib.crc32",
    "_pickle.dumps",
    "datetime.",
    "re.Pattern.",
    "re.Match.",
    "numpy.",
];

/// Functions of which immutable objects of C are asked.
const OF_PURE: &[&str] = &[
    "builtins.abs",
    "builtins.bool",
    "builtins.divmod",
    "builtins.float",
    "builtins.int",
    "builtins.len",
    "builtins.repr",
    "builtins.round",
    "builtins.str",
];

/// A method of an immutable type, or another pure function of C, on plain values: the client computes it.
fn constant_call(tracer: &mut Tracer<'_>, path: &str, args: &Args) -> Flow<Option<Value>> {
    if !of_immutable(path) && !PURE.iter().any(|prefix| path.starts_with(prefix)) {
        return Ok(None);
    }
    if matches!(path.rsplit('.').next(), Some("__copy__" | "__deepcopy__")) && path.starts_with("re.") {
        return Ok(args.pos.first().cloned());
    }
    let values = args.pos.iter().chain(args.kw.iter().map(|(_, value)| value));
    let mut plain = Vec::new();
    for (at, value) in values.enumerate() {
        // How often and from where a pattern is looked for: C takes an int of any class for its value.
        let is_number = path.starts_with("re.Pattern.")
            && matches!(value, Value::Instance(_))
            && tracer.class_of(value)?.derives("builtins.int");
        match value {
            // A class method, through its class.
            Value::Class(class) if at == 0 && class.path.as_deref().is_some_and(|class| path.starts_with(class)) => {}
            // Methods of a type take an instance of a subclass for one of the type.
            _ => match plain_value(tracer, value, !of_immutable(path) && !is_number, MOST_PLAIN)? {
                Some(value) => plain.push(value),
                None => return Ok(None),
            },
        }
    }
    kinds::pure::note_version(tracer, path, &args.pos)?;
    let names = args.kw.iter().map(|(name, _)| name.clone()).collect();
    tracer.eval_plain(path, plain, names).map(|made| Some(kinds::pure::made_of(made, path, &args.pos)))
}

/// Items of a container that the client is asked about.
const MOST_PLAIN: usize = 1000;

/// A constant, or a container of such; symbolic ints in it are fixed to the values seen, unless the function was compiled
/// for half of its limit. `exact`: instances of subclasses are no values of their base.
fn plain_value(tracer: &mut Tracer<'_>, value: &Value, exact: bool, most: usize) -> Flow<Option<Plain>> {
    flambeau_ir::bounds::check();
    if matches!(value, Value::Int(_)) && tracer.frame.options.cautious || exact && matches!(value, Value::Instance(_)) {
        return Ok(None);
    }
    if let Some(constant) = fixed_const(tracer, value) {
        return Ok(Some(Plain::Const(constant)));
    }
    match value {
        Value::Parts(parts) => kinds::pure::as_plain(tracer, &parts.clone()),
        Value::Tuple(tuple) if tuple.class.is_none() && tuple.items.len() <= most => {
            let items = tuple.items.iter().map(|item| plain_value(tracer, item, exact, most / 2));
            Ok(items.collect::<Flow<Option<Vec<_>>>>()?.map(Plain::Tuple))
        }
        Value::List(id) if tracer.arenas.lists[*id].class.is_none() => {
            let items = tracer.list_items(*id)?.clone();
            if items.len() > most {
                return Ok(None);
            }
            let items = items.iter().map(|item| plain_value(tracer, item, exact, most / 2));
            Ok(items.collect::<Flow<Option<Vec<_>>>>()?.map(Plain::List))
        }
        Value::Dict(id) if tracer.arenas.dicts[*id].class.is_none() => {
            let mut items = Vec::new();
            for (key, value) in tracer.dict_items(*id)? {
                match (fixed_const(tracer, &key), plain_value(tracer, &value, exact, most / 2)?) {
                    (Some(key), Some(value)) if items.len() < most => items.push((key, value)),
                    _ => return Ok(None),
                }
            }
            Ok(Some(Plain::Dict(items)))
        }
        _ => Ok(None),
    }
}

/// `value.name` for a value of a built-in type (or of a subclass that does not define it): a data attribute, or a method
/// bound to the value. `None`: there is no such attribute, or it is not known here.
pub fn attribute(tracer: &mut Tracer<'_>, value: &Value, name: &str) -> Flow<Option<Value>> {
    if let Some(found) = slots::attribute(tracer, value, name)? {
        return Ok(Some(found));
    }
    if CLASS_METHODS.contains(&name) {
        return Ok(None);
    }
    let class = tracer.class_of(value)?;
    for (at, base) in class.mro_paths.iter().enumerate() {
        if let Some((path, _)) = canonical(&format!("{base}.{name}")) {
            let before = &class.mro_paths[..at];
            return Ok(
                (!is_defined_in(tracer, &class, before, name)?).then(|| Value::bound_builtin(path, value.clone()))
            );
        }
    }
    Ok(None)
}

/// Whether a class's attribute is that of one of these of its bases: with a method that is not known here, as
/// `defaultdict.copy`.
fn is_defined_in(tracer: &mut Tracer<'_>, class: &Rc<Class>, bases: &[Arc<str>], name: &str) -> Flow<bool> {
    if bases.is_empty() {
        return Ok(false);
    }
    let class = tracer.searched_class(class, name)?;
    let found = tracer.type_lookup(&class, name)?;
    Ok(found.is_some_and(|(owner, _)| bases.iter().any(|base| owner.is(base))))
}

/// A folded result as a value: what Python raises is raised, what is not folded is asked of the client.
fn folded(tracer: &mut Tracer<'_>, fold: Fold, path: &str, args: &[Const]) -> Flow<Value> {
    match fold {
        Ok(constant) => {
            tracer.made_text(&constant, args);
            Ok(tracer.constant(constant))
        }
        Err(NotFolded::Raises(exc)) => tracer.raise_folded(exc.class.trim_start_matches("builtins."), &exc.message),
        Err(NotFolded::Unhandled) => tracer.eval(path, args.to_vec()),
    }
}

/// As [`folded`] for a result that is no constant itself.
fn decided<T>(tracer: &mut Tracer<'_>, fold: Fold<T>, what: &str) -> Flow<T> {
    match fold {
        Ok(value) => Ok(value),
        Err(NotFolded::Raises(exc)) => tracer.raise_folded(exc.class.trim_start_matches("builtins."), &exc.message),
        Err(NotFolded::Unhandled) => stop(ReasonCode::UnsupportedObject, what),
    }
}

/// A break at a call that is known but not with these arguments.
fn unsupported<T>(path: &str) -> Flow<T> {
    stop(ReasonCode::UnsupportedCall, format!("{path} with these arguments"))
}

/// `int` arguments: symbolic ones are fixed to the value seen.
fn fixed_int(tracer: &mut Tracer<'_>, value: &Value, path: &str) -> Flow<i64> {
    match value {
        Value::Int(dim) => Ok(tracer.fix(dim)),
        _ => match tracer.base(value).as_int() {
            Some(i) => Ok(i),
            None => unsupported(path),
        },
    }
}

/// The value as a constant; symbolic ints in it are fixed to the values seen.
fn fixed_const(tracer: &mut Tracer<'_>, value: &Value) -> Option<Const> {
    match value {
        Value::Int(dim) => Some(Const::Int(tracer.fix(dim))),
        Value::Instance(_) => tracer.as_const(&tracer.base(value)),
        _ => tracer.as_const(value),
    }
}
