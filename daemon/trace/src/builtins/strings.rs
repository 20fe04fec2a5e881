//! `str`, `repr`, `format`, f-strings, and the methods of `str`.

use super::args::{bind, exactly, name, receiver};
use super::kinds::pure;
use super::{Table, decided, fixed_const, folded, unsupported};
use crate::fold;
use crate::state::tracer::Tracer;
use crate::value::Args;
use crate::value::flow::{Flow, stop};
use crate::value::{Class, Payload, Value};
use flambeau_ir::code::Const;
use flambeau_ir::reason::ReasonCode;
use std::rc::Rc;

pub const TABLE: Table = &[
    ("builtins.str", str_),
    ("builtins.repr", repr),
    ("builtins.ascii", ascii),
    ("builtins.format", format),
    ("builtins.str.join", join_method),
    ("builtins.str.format", str_format),
    ("builtins.str.split", pieces),
    ("builtins.str.rsplit", pieces),
    ("builtins.str.startswith", method),
    ("builtins.str.endswith", method),
    ("builtins.str.replace", method),
    ("builtins.str.strip", method),
    ("builtins.str.lstrip", method),
    ("builtins.str.rstrip", method),
    ("builtins.str.lower", method),
    ("builtins.str.upper", method),
    ("builtins.str.casefold", method),
    ("builtins.str.capitalize", method),
    ("builtins.str.title", method),
    ("builtins.str.find", method),
    ("builtins.str.rfind", method),
    ("builtins.str.index", method),
    ("builtins.str.count", method),
    ("builtins.str.partition", method),
    ("builtins.str.rpartition", method),
    ("builtins.str.removeprefix", method),
    ("builtins.str.removesuffix", method),
    ("builtins.str.isdigit", method),
    ("builtins.str.isdecimal", method),
    ("builtins.str.isnumeric", method),
    ("builtins.str.isalpha", method),
    ("builtins.str.isalnum", method),
    ("builtins.str.isidentifier", method),
    ("builtins.str.zfill", method),
    ("builtins.str.ljust", method),
    ("builtins.str.rjust", method),
    ("builtins.str.center", method),
];

fn constants(tracer: &mut Tracer<'_>, path: &str, args: &Args) -> Flow<Vec<Const>> {
    let consts: Option<Vec<Const>> = args.pos.iter().map(|v| fixed_const(tracer, v)).collect();
    match consts {
        Some(consts) if args.kw.is_empty() => Ok(consts),
        _ => unsupported(path),
    }
}

fn method(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let consts = constants(tracer, path, &args)?;
    match consts.split_first() {
        Some((Const::Str(text), rest)) => folded(tracer, fold::method(text, name(path), rest), path, &consts),
        _ => unsupported(path),
    }
}

/// Methods that give a list; the fold and the client give its items.
fn pieces(tracer: &mut Tracer<'_>, path: &str, mut args: Args) -> Flow<Value> {
    for keyword in ["sep", "maxsplit"] {
        if let Some(value) = args.take_kw(keyword) {
            if keyword == "maxsplit" && args.pos.len() == 1 {
                args.pos.push(Value::NONE);
            }
            args.pos.push(value);
        }
    }
    let pieces = method(tracer, path, args)?;
    let items = tracer.collect(&pieces)?;
    Ok(tracer.new_list(items))
}

fn join_method(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [separator, items] = exactly(path, args)?;
    let Some(separator) = separator.as_str().cloned() else { return unsupported(path) };
    let items = tracer.collect_fast(&items, "can only join an iterable")?;
    if let [text @ Value::Const(Const::Str(_))] = items.as_slice() {
        return Ok(text.clone());
    }
    let parts: Option<Vec<Const>> = items.iter().map(|v| tracer.as_const(&tracer.base(v))).collect();
    match parts {
        Some(parts) => {
            let folded_text = fold::method(&separator, "join", &[Const::Tuple(parts.clone())]);
            folded(tracer, folded_text, path, &[Const::Str(separator), Const::Tuple(parts)])
        }
        None => unsupported(path),
    }
}

/// `"".join(parts)`, as `BUILD_STRING` does.
pub fn join(tracer: &mut Tracer<'_>, parts: &[Value]) -> Flow<Value> {
    if let [part @ Value::Const(Const::Str(_))] = parts {
        return Ok(part.clone());
    }
    let mut text = String::new();
    for part in parts {
        match part.as_str() {
            Some(part) => text.push_str(part),
            None => {
                let kind = tracer.type_name(part);
                return stop(ReasonCode::UnsupportedObject, format!("a {kind} in a string"));
            }
        }
    }
    let text = Const::str(&text);
    let parts: Vec<Const> = parts.iter().filter_map(|part| tracer.as_const(part)).collect();
    tracer.made_text(&text, &parts);
    Ok(Value::Const(text))
}

fn str_(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    match bind(path, args, ["object"], 0)? {
        [Some(text @ Value::Const(Const::Str(_)))] => Ok(text),
        [Some(value)] => display(tracer, &value).map(|s| Value::str(&s)),
        [None] => Ok(Value::str("")),
    }
}

fn repr(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [value] = exactly(path, args)?;
    represent(tracer, &value).map(|s| Value::str(&s))
}

fn ascii(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [value] = exactly(path, args)?;
    let text = represent(tracer, &value)?;
    if text.is_ascii() { Ok(Value::str(&text)) } else { unsupported(path) }
}

fn format(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [value, spec] = bind(path, args, ["", ""], 1)?;
    let Some(value) = value else { return unsupported(path) };
    let spec = match &spec {
        None => "",
        Some(spec) => match spec.as_str() {
            Some(spec) => spec,
            None => return unsupported(path),
        },
    };
    formatted(tracer, &value, spec)
}

/// `FORMAT_VALUE`: conversion 0 none, 1 `str`, 2 `repr`, 3 `ascii`, then `format` with the spec.
pub fn format_value(tracer: &mut Tracer<'_>, value: &Value, conversion: u8, spec: Option<&Value>) -> Flow<Value> {
    let value = match conversion {
        1 => Value::str(&display(tracer, value)?),
        2 => Value::str(&represent(tracer, value)?),
        3 => ascii(tracer, "builtins.ascii", Args::new(vec![value.clone()]))?,
        _ => value.clone(),
    };
    let spec = match spec {
        None => "",
        Some(spec) => match spec.as_str() {
            Some(spec) => spec,
            None => return unsupported("format"),
        },
    };
    formatted(tracer, &value, spec)
}

fn formatted(tracer: &mut Tracer<'_>, value: &Value, spec: &str) -> Flow<Value> {
    if let Some(text) = pure::operation(tracer, "builtins.format", &[value, &Value::str(spec)])? {
        return Ok(text);
    }
    if let Some(text) = own_text(tracer, value, "__format__", &[Value::str(spec)])? {
        if tracer.class_of(&text)?.derives("builtins.str") {
            return Ok(text);
        }
        let message = format!("__format__ must return a str, not {}", tracer.type_name(&text));
        return tracer.raise_named("TypeError", &message);
    }
    if spec.is_empty() {
        if let Value::Const(Const::Str(_)) = value {
            return Ok(value.clone());
        }
        return display(tracer, value).map(|s| Value::str(&s));
    }
    match fixed_const(tracer, value) {
        Some(c) => {
            let text = fold::format(&c, spec).map(|s| Const::str(&s));
            folded(tracer, text, "builtins.format", &[c, Const::str(spec)])
        }
        None => unsupported("format"),
    }
}

/// The result of a method that the value's class defines in Python.
fn own_text(tracer: &mut Tracer<'_>, value: &Value, method: &str, args: &[Value]) -> Flow<Option<Value>> {
    let may_have_own = match value {
        Value::Instance(_) | Value::Class(_) => true,
        Value::Tuple(tuple) => tuple.class.is_some(),
        Value::List(id) => tracer.arenas.lists[*id].class.is_some(),
        Value::Dict(id) => tracer.arenas.dicts[*id].class.is_some(),
        _ => false,
    };
    if !may_have_own {
        return Ok(None);
    }
    let class = tracer.class_of(value)?;
    if class.is("builtins.type") {
        return Ok(None);
    }
    match tracer.type_lookup(&class, method)? {
        Some((_, found @ Value::Function(_))) => {
            let mut pos = vec![value.clone()];
            pos.extend_from_slice(args);
            tracer.call(&found, Args::new(pos)).map(Some)
        }
        None | Some((_, Value::Builtin(_))) => Ok(None),
        Some(_) => stop(ReasonCode::UnsupportedObject, format!("{method} of a {}", class.name.qualname)),
    }
}

fn text_of(value: Value) -> Flow<String> {
    value.as_str().map_or_else(|| unsupported("str"), |s| Ok(s.to_string()))
}

/// What a method of a built-in type gives that a class has for its `__str__`, as `IntEnum` has `int.__repr__`. `None`: it is
/// the one that asks for `repr(value)`, or an exception's.
fn text_by_slot(tracer: &mut Tracer<'_>, value: &Value) -> Flow<Option<String>> {
    if !matches!(value, Value::Instance(_) | Value::Class(_)) {
        return Ok(None);
    }
    let class = tracer.class_of(value)?;
    if class.is("builtins.type") {
        return Ok(None);
    }
    let Some((owner, slot)) = tracer.type_lookup(&class, "__str__")? else { return Ok(None) };
    let Value::Builtin(slot) = slot else { return unsupported("str") };
    let method = slot.path.rsplit('.').next().unwrap_or_default();
    let payload = match value {
        Value::Instance(id) => tracer.arenas.instances[*id].payload.clone(),
        _ => Payload::None,
    };
    match (payload, &*slot.path) {
        (_, "builtins.object.__str__") => Ok(None),
        (Payload::Exception(..), _) if method == "__str__" && !owner.is_python => Ok(None),
        (Payload::Const(Const::Str(text)), "builtins.str.__str__") => Ok(Some(text.to_string())),
        (Payload::Const(base), path) => {
            let base = Value::Const(base);
            match tracer.class_of(&base)?.path.as_deref() {
                Some(of) if path.strip_prefix(of) == Some(".__repr__") => represent(tracer, &base).map(Some),
                _ => unsupported("str"),
            }
        }
        _ => unsupported("str"),
    }
}

/// `str(value)`
pub fn display(tracer: &mut Tracer<'_>, value: &Value) -> Flow<String> {
    if let Some(Value::Const(Const::Str(text))) = pure::operation(tracer, "builtins.str", &[value])? {
        return Ok(text.to_string());
    }
    if let Some(text) = own_text(tracer, value, "__str__", &[])? {
        return text_of(text);
    }
    if let Some(text) = text_by_slot(tracer, value)? {
        return Ok(text);
    }
    match value {
        Value::Const(Const::Str(s)) => Ok(s.to_string()),
        Value::Const(Const::Device(_)) => device(value),
        Value::Instance(id) => match tracer.arenas.instances[*id].payload.clone() {
            Payload::Exception(..) if tracer.inexact.contains_key(&id.0) => tracer.inexact_text(*id),
            Payload::Exception(raised) => match raised.args.as_slice() {
                [] => Ok(String::new()),
                [one] if tracer.class_of(value)?.derives("builtins.KeyError") => represent(tracer, one),
                [one] => display(tracer, one),
                _ => represent(tracer, &Value::tuple(raised.args)),
            },
            _ => represent(tracer, value),
        },
        _ => represent(tracer, value),
    }
}

fn device(value: &Value) -> Flow<String> {
    let Value::Const(Const::Device(device)) = value else { return unsupported("str") };
    device.known().map_or_else(|| unsupported("str of a device"), |_| Ok(device.to_string()))
}

/// `repr(value)`
pub fn represent(tracer: &mut Tracer<'_>, value: &Value) -> Flow<String> {
    if let Some(Value::Const(Const::Str(text))) = pure::operation(tracer, "builtins.repr", &[value])? {
        return Ok(text.to_string());
    }
    flambeau_ir::bounds::check();
    if let Some(text) = own_text(tracer, value, "__repr__", &[])? {
        return text_of(text);
    }
    match value {
        Value::Const(Const::Dtype(dtype)) => Ok(format!("torch.{}", dtype.torch_name())),
        Value::Const(Const::Layout(name) | Const::MemoryFormat(name)) => Ok(format!("torch.{name}")),
        Value::Const(c) => match fold::repr(c) {
            Err(fold::NotFolded::Unhandled) => {
                let text = tracer.eval("builtins.repr", vec![c.clone()])?;
                text_of(text)
            }
            other => decided(tracer, other, "repr"),
        },
        Value::Int(dim) => Ok(tracer.fix(dim).to_string()),
        Value::Tensor(_) => stop(ReasonCode::DataDependentValue, "the text of a tensor"),
        Value::Tuple(t) => {
            let items = listed(tracer, &t.items)?;
            match t.class.as_ref().map(|c| c.is("torch.Size")) {
                Some(true) => Ok(format!("torch.Size([{items}])")),
                _ if !is_shown_as(tracer, t.class.as_ref(), "builtins.tuple")? => unsupported("repr"),
                _ if t.items.len() == 1 => Ok(format!("({items},)")),
                _ => Ok(format!("({items})")),
            }
        }
        Value::List(id) if is_shown_as(tracer, tracer.arenas.lists[*id].class.clone().as_ref(), "builtins.list")? => {
            once(tracer, value, "[...]", |tracer| {
                let items = tracer.list_items(*id)?.clone();
                Ok(format!("[{}]", listed(tracer, &items)?))
            })
        }
        Value::Dict(id) if is_shown_as(tracer, tracer.arenas.dicts[*id].class.clone().as_ref(), "builtins.dict")? => {
            once(tracer, value, "{...}", |tracer| {
                let mut parts = Vec::new();
                for (k, v) in tracer.dict_items(*id)? {
                    parts.push(format!("{}: {}", represent(tracer, &k)?, represent(tracer, &v)?));
                }
                Ok(format!("{{{}}}", parts.join(", ")))
            })
        }
        Value::Set(id) => {
            let name = if tracer.arenas.sets[*id].frozen { "frozenset" } else { "set" };
            once(tracer, value, &format!("{name}(...)"), |tracer| {
                let items = tracer.ordered_items(*id)?;
                let items = listed(tracer, &items)?;
                Ok(match (items.is_empty(), name) {
                    (true, name) => format!("{name}()"),
                    (false, "set") => format!("{{{items}}}"),
                    (false, name) => format!("{name}({{{items}}})"),
                })
            })
        }
        Value::Instance(_) if tracer.polyfill_state(value).is_some() => {
            once(tracer, value, "[...]", |tracer| match tracer.python_special(value, "__repr__")? {
                Some(own) => tracer.call(&own, Args::default()).and_then(text_of),
                None => unsupported("repr"),
            })
        }
        Value::Class(class) => match class.name.module.as_ref() {
            "builtins" => Ok(format!("<class '{}'>", class.name.qualname)),
            module => Ok(format!("<class '{module}.{}'>", class.name.qualname)),
        },
        _ => represent_exception(tracer, value),
    }
}

/// Whether objects of this class have the text of this built-in type.
fn is_shown_as(tracer: &mut Tracer<'_>, class: Option<&Rc<Class>>, built_in: &str) -> Flow<bool> {
    let Some(class) = class else { return Ok(true) };
    let found = tracer.type_lookup(class, "__repr__")?;
    Ok(matches!(found, Some((_, Value::Builtin(slot))) if slot.path.strip_suffix(".__repr__") == Some(built_in)))
}

/// `BaseException_repr` in CPython's `Objects/exceptions.c`.
fn represent_exception(tracer: &mut Tracer<'_>, value: &Value) -> Flow<String> {
    let kind = tracer.type_name(value);
    if let Value::Instance(id) = value
        && let Payload::Exception(raised) = tracer.arenas.instances[*id].payload.clone()
    {
        if tracer.inexact.contains_key(&id.0) {
            return tracer.inexact_text(*id);
        }
        let class = tracer.class_of(value)?;
        if tracer.type_lookup(&class, "__repr__")?.is_some_and(|(owner, _)| owner.is("builtins.BaseException")) {
            return match raised.args.as_slice() {
                [one] => Ok(format!("{kind}({})", represent(tracer, one)?)),
                _ => Ok(kind + &represent(tracer, &Value::tuple(raised.args))?),
            };
        }
    }
    stop(ReasonCode::UnsupportedObject, format!("the text of a {kind}"))
}

/// Containers in each other whose text is made here: Python raises `RecursionError` at some depth.
const DEEPEST: usize = 100;

/// The text of a container, or what stands for it within itself (`Py_ReprEnter` in CPython's `Objects/object.c`).
fn once(
    tracer: &mut Tracer<'_>,
    container: &Value,
    inner: &str,
    text: impl FnOnce(&mut Tracer<'_>) -> Flow<String>,
) -> Flow<String> {
    if tracer.represented.iter().any(|outer| tracer.is_same(outer, container) == Some(true)) {
        return Ok(inner.into());
    }
    if tracer.represented.len() >= DEEPEST {
        return unsupported("the text of what is nested deep");
    }
    tracer.represented.push(container.clone());
    let text = text(tracer);
    tracer.represented.pop();
    text
}

fn listed(tracer: &mut Tracer<'_>, items: &[Value]) -> Flow<String> {
    let parts: Vec<String> = items.iter().map(|v| represent(tracer, v)).collect::<Flow<_>>()?;
    Ok(parts.join(", "))
}

/// `text % values`: `%s`, `%r` and `%a` of any values, other directives of numbers and characters.
pub fn percent(tracer: &mut Tracer<'_>, text: &Value, values: &Value) -> Flow<Value> {
    const PATH: &str = "_operator.mod";
    /// What stands between `%` and the kind of a directive that names no value and takes no other for its width.
    const FLAGS: &str = "#0- +.123456789hlL";
    let constant = if matches!(values, Value::Instance(_)) { None } else { fixed_const(tracer, values) };
    if let (Some(text), Some(values)) = (tracer.as_const(text), constant) {
        return tracer.eval(PATH, vec![text, values]);
    }
    let Some(Const::Str(text)) = tracer.as_const(text) else { return unsupported("str % values") };
    let values = match values {
        Value::Tuple(tuple) => tuple.items.clone(),
        one => vec![one.clone()],
    };
    let (mut out, mut rest, mut values) = (String::new(), &*text, values.into_iter());
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let flags = rest[at + 1..].find(|c| !FLAGS.contains(c));
        let Some((flags, kind)) = flags.and_then(|n| Some((n, rest[at + 1 + n..].chars().next()?))) else {
            return unsupported("str % values");
        };
        let (flags, after) = (&rest[at..=at + flags], at + 1 + flags + kind.len_utf8());
        rest = &rest[after..];
        if (flags, kind) == ("%", '%') {
            out.push('%');
            continue;
        }
        let Some(value) = values.next() else { return unsupported("str % values") };
        let (kind, value) = match kind {
            's' => ('s', Some(Const::str(&display(tracer, &value)?))),
            'r' => ('s', Some(Const::str(&represent(tracer, &value)?))),
            'a' => {
                let text = ascii(tracer, "builtins.ascii", Args::new(vec![value]))?;
                ('s', tracer.as_const(&text))
            }
            _ => (kind, number_of(tracer, kind, &value)),
        };
        match value {
            Some(Const::Str(text)) if (flags, kind) == ("%", 's') => out.push_str(&text),
            Some(value) => {
                let directive = Const::str(&format!("{flags}{kind}"));
                let part = tracer.eval(PATH, vec![directive, Const::Tuple(vec![value])])?;
                out.push_str(&text_of(part)?);
            }
            None => return unsupported("str % values"),
        }
    }
    out.push_str(rest);
    if values.next().is_some() { unsupported("str % values") } else { Ok(Value::str(&out)) }
}

/// What a directive of numbers or characters takes of a value, where that calls no method of the value's class.
fn number_of(tracer: &mut Tracer<'_>, kind: char, value: &Value) -> Option<Const> {
    let found = fixed_const(tracer, value)?;
    let fits = match (&found, value) {
        (_, Value::Const(_) | Value::Int(_)) => "diouxXeEfFgGc".contains(kind),
        (Const::Int(_) | Const::BigInt(_), _) => "diouxXc".contains(kind),
        (Const::Float(_), _) => "eEfFgG".contains(kind),
        _ => false,
    };
    fits.then_some(found)
}

/// `str.format` with plain fields: position or name, conversion, and a spec without fields of its own.
fn str_format(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (template, args) = receiver(path, args)?;
    let Some(template) = template.as_str().cloned() else { return unsupported(path) };
    let (mut out, mut rest, mut automatic, mut manual) = (String::new(), &*template, 0, false);
    while let Some(at) = rest.find(['{', '}']) {
        out.push_str(&rest[..at]);
        let doubled = rest[at..].starts_with("{{") || rest[at..].starts_with("}}");
        if doubled {
            out.push_str(&rest[at..=at]);
            rest = &rest[at + 2..];
            continue;
        }
        let Some(end) = rest[at..].find('}').filter(|_| rest[at..].starts_with('{')) else { return unsupported(path) };
        let field = &rest[at + 1..at + end];
        rest = &rest[at + end + 1..];
        let (field, spec) = field.split_once(':').unwrap_or((field, ""));
        let (field, conversion) = field.split_once('!').unwrap_or((field, ""));
        let conversion = match conversion {
            "" => 0,
            "s" => 1,
            "r" => 2,
            "a" => 3,
            _ => return unsupported(path),
        };
        let value = if field.is_empty() {
            automatic += 1;
            args.pos.get(automatic - 1)
        } else if let (true, Ok(index)) = (field.bytes().all(|b| b.is_ascii_digit()), field.parse::<usize>()) {
            manual = true;
            args.pos.get(index)
        } else {
            args.kw.iter().find(|(name, _)| **name == *field).map(|(_, v)| v)
        };
        let numbered_twice = manual && automatic > 0;
        let value = value.cloned().filter(|_| !spec.contains('{') && !numbered_twice);
        let Some(value) = value else { return unsupported(path) };
        let text = format_value(tracer, &value, conversion, Some(&Value::str(spec)))?;
        out.push_str(&text_of(text)?);
    }
    out.push_str(rest);
    Ok(Value::str(&out))
}
