//! Functions that work on any object: attributes, iteration, truth over iterables, output.

use super::args::{bind, exactly};
use super::{Table, types, unsupported};
use crate::protocol::module::MODULE_ATTR;
use crate::state::tracer::Tracer;
use crate::value::Args;
use crate::value::flow::{Flow, stop};
use crate::value::{Iter, Key, Of, Payload, Value, ViewKind};
use flambeau_bytecode::Compare;
use flambeau_bytecode::readers::gives_frame;
use flambeau_ir::code::{Const, Origin};
use flambeau_ir::graph::Target;
use flambeau_ir::reason::ReasonCode;
use std::rc::Rc;
use std::sync::Arc;

pub const TABLE: Table = &[
    ("builtins.len", len),
    ("builtins.getattr", getattr),
    ("builtins.hasattr", hasattr),
    ("builtins.setattr", setattr),
    ("builtins.delattr", delattr),
    ("builtins.object", object),
    ("posix.fspath", fspath),
    ("builtins.object.__getattribute__", generic_getattr),
    (MODULE_ATTR, generic_getattr),
    ("builtins.object.__setattr__", generic_setattr),
    ("builtins.object.__delattr__", generic_delattr),
    ("builtins.object.__reduce_ex__", reduce),
    ("builtins.callable", callable),
    ("builtins.vars", vars),
    ("builtins.iter", iter),
    ("builtins.next", next),
    ("builtins.all", all),
    ("builtins.any", any),
    ("builtins.zip", zip),
    ("builtins.enumerate", enumerate),
    ("builtins.map", map),
    ("builtins.filter", filter),
    ("builtins.reversed", reversed),
    ("builtins.sorted", sorted),
    ("builtins.print", visible),
    ("builtins.input", visible),
    ("builtins.id", id),
    ("builtins.hash", hash),
    ("builtins.open", visible),
    ("builtins.exec", visible),
    ("builtins.eval", visible),
    ("builtins.breakpoint", breakpoint),
    ("builtins.locals", visible),
    ("builtins.globals", visible),
    ("builtins.dir", visible),
    ("warnings.warn_explicit", visible),
    ("time.time", visible),
    ("time.perf_counter", visible),
    ("torch.nn.modules.rnn.RNNBase._weights_have_changed", weights_changed),
    ("builtins.BaseException.with_traceback", with_traceback),
    ("traceback.clear_frames", clear_frames),
];

/// What the user can see beyond the values of the trace, or what differs from call to call.
fn visible(_: &mut Tracer<'_>, path: &str, _: Args) -> Flow<Value> {
    stop(ReasonCode::UnsupportedCall, path.trim_start_matches("builtins."))
}

/// `hash(value)` of constants, and of what a class says itself (`slot_tp_hash` in CPython's `Objects/typeobject.c`).
fn hash(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [value] = exactly(path, args)?;
    let value = tracer.read(&value)?;
    if let Value::Instance(_) = value
        && let Some(hash) = tracer.python_special(&value, "__hash__")?
    {
        if hash.is_none() {
            let name = tracer.type_name(&value);
            return tracer.raise_named("TypeError", &format!("unhashable type: '{name}'"));
        }
        let result = tracer.call(&hash, Args::default())?;
        return match result.as_int() {
            // What C takes for an error.
            Some(-1) => Ok(Value::int(-2)),
            Some(hash) if matches!(result, Value::Const(Const::Int(_))) => Ok(Value::int(hash)),
            _ if tracer.own_keys.are_asked() && matches!(result, Value::Address(_)) => Ok(result),
            _ => visible(tracer, path, Args::default()),
        };
    }
    let value = match &value {
        Value::Int(dim) => Value::int(tracer.fix(dim)),
        _ => value,
    };
    let constant = match tracer.as_const(&value) {
        // Symbolic numbers in a tuple become facts.
        None if tracer.own_keys.are_asked() => tracer.key(&value)?.constant(),
        constant => constant,
    };
    match constant {
        Some(constant) if tracer.need_hash_of(&constant)? => {
            let hash = tracer.eval(path, vec![constant.clone()])?;
            tracer.own_keys.note_hash(&constant, &hash);
            Ok(hash)
        }
        // The number is another one in each process: this stands for it.
        _ if tracer.own_keys.are_asked() => tracer.key(&value).map(|_| Value::Address(Rc::new(value))),
        _ => visible(tracer, path, Args::default()),
    }
}

/// A number that tells an object from all others. Of a constant Python may have one object or several, so its number is no
/// key (but surely none of those that other objects have).
fn id(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [value] = exactly(path, args)?;
    let value = tracer.read(&value)?;
    let made = Value::Address(Rc::new(value));
    if tracer.is_address_of_constant(&made) || Key::by_structure(&made).is_some() {
        // No other object may get the place of this one.
        tracer.addressed.push(made.clone());
        return Ok(made);
    }
    visible(tracer, path, Args::default())
}

/// Whether `copy.deepcopy` gives the object itself by its type alone, without looking into it.
pub(super) fn is_atomic(value: &Value) -> bool {
    matches!(value, Value::Const(_) | Value::Int(_) | Value::Function(_))
}

/// `object.__reduce_ex__(protocol)` of an object whose class leaves all of it to `object`: how to make it anew
/// (`reduce_newobj` in CPython's `Objects/typeobject.c`).
fn reduce(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [value, protocol] = exactly(path, args)?;
    let Value::Instance(id) = value else { return unsupported(path) };
    let instance = &tracer.arenas.instances[id];
    let (class, attrs) = (instance.class.clone(), instance.attrs);
    let plain =
        class.is_python && matches!(instance.payload, Payload::None) && protocol.as_int().is_some_and(|p| p >= 2);
    let (Some(attrs), true) = (attrs, plain) else { return unsupported(path) };
    for name in ["__reduce__", "__getstate__"] {
        if tracer.type_lookup(&class, name)?.is_some_and(|(owner, _)| !owner.is("builtins.object")) {
            return unsupported(path);
        }
    }
    // What `copyreg` has found of the slots before.
    match tracer.type_lookup(&class, "__slotnames__")? {
        // It sets them then, which is seen where the metaclass has a say in that.
        None => {
            if let Some(metaclass) = tracer.own_metaclass(&class)?
                && tracer.type_lookup(&metaclass, "__setattr__")?.is_some_and(|(owner, _)| owner.is_python)
            {
                return unsupported(path);
            }
        }
        Some((_, Value::List(names))) if tracer.list_items(names)?.is_empty() => {}
        Some(_) => return unsupported(path),
    }
    for name in ["__slots__", "__getnewargs__", "__getnewargs_ex__"] {
        if tracer.type_lookup(&class, name)?.is_some() {
            return unsupported(path);
        }
    }
    let module = tracer.sys_module("copyreg")?;
    let make = tracer.get_attr(&module, "__newobj__")?;
    let class = Value::tuple(vec![Value::Class(class)]);
    Ok(Value::tuple(vec![make, class, Value::Dict(attrs), Value::NONE, Value::NONE]))
}

/// `object()`; with arguments it raises.
fn object(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [] = exactly(path, args)?;
    let class = tracer.builtin_class("builtins.object");
    tracer.call_path("builtins.object.__new__", Args::new(vec![Value::Class(class)]))
}

fn breakpoint(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    note_frames(tracer, path);
    visible(tracer, path, args)
}

/// Notes a call that gives frames of Python's stack, or of what reads them: `inspect`, `traceback`, `pdb` and their like all
/// come here. Thin functions and resume functions have the user's names, files and lines, but not all of the user's locals:
/// whoever may look at those gets frames of the user's, as nothing of the trace's frames is compiled.
pub(crate) fn note_frames(tracer: &mut Tracer<'_>, path: &str) {
    /// Those who look for the name of a module, or for a file and a line.
    const NO_LOCALS: [&str; 8] = [
        "/logging/__init__.py",
        "/warnings.py",
        "/collections/__init__.py",
        "/typing.py",
        "/typing_extensions.py",
        "/enum.py",
        "/dataclasses.py",
        "/functools.py",
    ];
    if !gives_frame(path) {
        return;
    }
    let reader = tracer.stack.last().map(|info| info.file.clone()).unwrap_or_default();
    let harmless = match Origin::of(&reader) {
        Origin::User => reader.ends_with("/typing_extensions.py"),
        Origin::Standard => NO_LOCALS.iter().any(|file| reader.ends_with(file)),
        Origin::Torch | Origin::Whole => !reader.ends_with("/_jit_internal.py"),
    };
    tracer.frames_read |= !harmless;
}

/// Whether parameters of an RNN were replaced since its flat list was made. It asks weak references; the list itself tells
/// the same, as whoever replaces a parameter puts the new one there.
fn weights_changed(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [rnn] = exactly(path, args)?;
    let (weights, names) = (tracer.get_attr(&rnn, "_flat_weights")?, tracer.get_attr(&rnn, "_flat_weights_names")?);
    let (weights, names) = (tracer.collect(&weights)?, tracer.collect(&names)?);
    if weights.len() != names.len() {
        return unsupported(path);
    }
    for (weight, name) in weights.iter().zip(&names) {
        let name = attribute_name(path, name)?;
        let now = tracer.get_attr(&rnn, &name)?;
        if !tracer.identical(weight, &now)? {
            return unsupported(path);
        }
    }
    Ok(Value::bool(false))
}

/// Tracebacks are not modelled: the exception itself.
fn with_traceback(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [exception, traceback] = exactly(path, args)?;
    if tracer.raised_mut(&exception).is_none() {
        return unsupported(path);
    }
    tracer.set_traceback(&exception, &traceback)?;
    Ok(exception)
}

/// Lets go of the variables of frames that an exception left. Those of the trace are gone, or still run and are left alone.
fn clear_frames(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    match exactly(path, args)? {
        [Value::Instance(id)] if tracer.arenas.instances[id].origin.is_none() => Ok(Value::NONE),
        [traceback] if traceback.is_none() => Ok(Value::NONE),
        _ => unsupported(path),
    }
}

fn len(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [value] = exactly(path, args)?;
    tracer.length(&value)
}

fn attribute_name(path: &str, name: &Value) -> Flow<Arc<str>> {
    name.as_str().cloned().map_or_else(|| unsupported(path), Ok)
}

fn getattr(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [object, name, default] = bind(path, args, ["", "", ""], 2)?;
    let (Some(object), Some(name)) = (object, name) else { return unsupported(path) };
    let name = attribute_name(path, &name)?;
    match default {
        None => tracer.get_attr(&object, &name),
        Some(default) => Ok(tracer.find_attr(&object, &name)?.unwrap_or(default)),
    }
}

fn hasattr(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [object, name] = exactly(path, args)?;
    let name = attribute_name(path, &name)?;
    Ok(Value::bool(tracer.find_attr(&object, &name)?.is_some()))
}

fn setattr(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [object, name, value] = exactly(path, args)?;
    let name = attribute_name(path, &name)?;
    tracer.set_attr(&object, &name, value)?;
    Ok(Value::NONE)
}

fn delattr(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [object, name] = exactly(path, args)?;
    let name = attribute_name(path, &name)?;
    tracer.del_attr(&object, &name)?;
    Ok(Value::NONE)
}

fn generic_getattr(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [object, name] = exactly(path, args)?;
    let name = attribute_name(path, &name)?;
    // Functions look their attributes up as any object does, and modules as they do.
    if matches!(object, Value::Function(_)) || path == MODULE_ATTR {
        return tracer.get_attr(&object, &name);
    }
    let Value::Instance(id) = object else { return unsupported(path) };
    if &*name == "__class__" {
        return tracer.class_of(&object).map(Value::Class);
    }
    match tracer.generic_instance_attr(id, &name)? {
        Some(value) => Ok(value),
        None => {
            let class = tracer.type_name(&object);
            tracer.raise_named("AttributeError", &format!("'{class}' object has no attribute '{name}'"))
        }
    }
}

/// `os.fspath(path)`: of a str or bytes itself, of another object what its class says.
fn fspath(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [value] = bind(path, args, ["path"], 1)?;
    match value {
        Some(text @ Value::Const(Const::Str(_) | Const::Bytes(_))) => Ok(text),
        Some(value @ Value::Instance(_)) => match tracer.python_special(&value, "__fspath__")? {
            Some(method) => match tracer.call(&method, Args::default())? {
                text @ Value::Const(Const::Str(_) | Const::Bytes(_)) => Ok(text),
                _ => unsupported(path),
            },
            None => unsupported(path),
        },
        _ => unsupported(path),
    }
}

fn generic_setattr(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [object, name, value] = exactly(path, args)?;
    let name = attribute_name(path, &name)?;
    need_generic(tracer, &object, "__setattr__", path)?;
    tracer.generic_set_attr(&object, &name, Some(value))?;
    Ok(Value::NONE)
}

fn generic_delattr(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [object, name] = exactly(path, args)?;
    let name = attribute_name(path, &name)?;
    need_generic(tracer, &object, "__delattr__", path)?;
    tracer.generic_set_attr(&object, &name, None)?;
    Ok(Value::NONE)
}

/// Breaks at a method of `object` that a type of C does in its own way for its instances (`threading.local`).
fn need_generic(tracer: &mut Tracer<'_>, object: &Value, method: &str, path: &str) -> Flow<()> {
    if !matches!(object, Value::Instance(_)) {
        return Ok(());
    }
    let class = tracer.class_of(object)?;
    let owner = tracer.type_lookup(&class, method)?.map(|(owner, _)| owner);
    let generic = owner.is_none_or(|owner| owner.is_python || owner.is("builtins.object"));
    if generic && !class.derives("_thread._local") { Ok(()) } else { unsupported(path) }
}

fn callable(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [value] = exactly(path, args)?;
    types::is_callable(tracer, &value).map(Value::bool)
}

fn vars(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [value] = exactly(path, args)?;
    match tracer.find_attr(&value, "__dict__")? {
        Some(found) => Ok(found),
        None => tracer.raise_named("TypeError", "vars() argument must have __dict__ attribute"),
    }
}

fn iter(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    match bind(path, args, ["", ""], 1)? {
        [Some(value), None] => tracer.iter(&value),
        [Some(func), Some(sentinel)] => {
            if types::is_callable(tracer, &func)? {
                Ok(tracer.new_iter(Iter::CallUntil { func, sentinel }))
            } else {
                unsupported(path)
            }
        }
        _ => unsupported(path),
    }
}

fn next(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [iterator, default] = bind(path, args, ["", ""], 1)?;
    let Some(iterator) = iterator else { return unsupported(path) };
    match default {
        Some(default) => Ok(tracer.next(&iterator)?.unwrap_or(default)),
        None => match tracer.next_or_raise(&iterator)? {
            Some(value) => Ok(value),
            None => tracer.raise_with("StopIteration", vec![]),
        },
    }
}

fn all(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    until(tracer, path, args, false)
}

fn any(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    until(tracer, path, args, true)
}

/// Consumes the iterable up to the first item with this truth.
fn until(tracer: &mut Tracer<'_>, path: &str, args: Args, wanted: bool) -> Flow<Value> {
    let [iterable] = exactly(path, args)?;
    let iterator = tracer.iter(&iterable)?;
    while let Some(item) = tracer.next(&iterator)? {
        if tracer.truth(&item)? == wanted {
            return Ok(Value::bool(wanted));
        }
    }
    Ok(Value::bool(!wanted))
}

fn iterators(tracer: &mut Tracer<'_>, values: &[Value]) -> Flow<Vec<Value>> {
    values.iter().map(|v| tracer.iter(v)).collect()
}

fn zip(tracer: &mut Tracer<'_>, path: &str, mut args: Args) -> Flow<Value> {
    let strict = match args.take_kw("strict") {
        Some(strict) => tracer.truth(&strict)?,
        None => false,
    };
    if !args.kw.is_empty() {
        return unsupported(path);
    }
    let iters = iterators(tracer, &args.pos)?;
    Ok(tracer.new_iter(Iter::Zip { iters, strict }))
}

fn enumerate(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [iterable, start] = bind(path, args, ["iterable", "start"], 1)?;
    let Some(iterable) = iterable else { return unsupported(path) };
    let count = start.unwrap_or(Value::int(0));
    if count.as_dim().is_none() {
        return unsupported(path);
    }
    let iter = tracer.iter(&iterable)?;
    Ok(tracer.new_iter(Iter::Enumerate { iter, count }))
}

fn map(tracer: &mut Tracer<'_>, path: &str, mut args: Args) -> Flow<Value> {
    if args.pos.len() < 2 || !args.kw.is_empty() {
        return unsupported(path);
    }
    let func = args.pos.remove(0);
    let iters = iterators(tracer, &args.pos)?;
    Ok(tracer.new_iter(Iter::Map { func, iters }))
}

fn filter(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [func, iterable] = exactly(path, args)?;
    let iter = tracer.iter(&iterable)?;
    Ok(tracer.new_iter(Iter::Filter { func, iter, keep: true }))
}

fn reversed(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [value] = exactly(path, args)?;
    if let Value::Instance(id) = &value {
        let class = tracer.arenas.instances[*id].class.clone();
        if let Some((_, method)) = tracer.type_lookup(&class, "__reversed__")?
            && !method.is_none()
        {
            return tracer.call(&method, Args::new(vec![value]));
        }
        // A sequence has `__getitem__`; a `__reversed__` that is `None` says that it cannot be reversed.
        if tracer.type_lookup(&class, "__reversed__")?.is_some() || tracer.special(&value, "__getitem__")?.is_none() {
            let name = tracer.type_name(&value);
            return tracer.raise_named("TypeError", &format!("'{name}' object is not reversible"));
        }
        let length = tracer.length(&value)?;
        let length = super::fixed_int(tracer, &length, path)?;
        return Ok(tracer.new_iter(Iter::Reversed { of: value, left: length.max(0) as usize }));
    }
    if let Value::Tensor(_) = value {
        return reversed_tensor(tracer, value);
    }
    let known =
        matches!(value, Value::Tuple(_) | Value::List(_) | Value::Dict(_) | Value::DictView(..) | Value::Const(_));
    if !known && !tracer.is_sequence_of_parts(&value) {
        return unsupported(path);
    }
    if matches!(&value, Value::Const(c) if !matches!(c, Const::Str(_) | Const::Bytes(_) | Const::Tuple(_))) {
        let name = tracer.type_name(&value);
        return tracer.raise_named("TypeError", &format!("'{name}' object is not reversible"));
    }
    match tracer.python_special(&value, "__reversed__")? {
        Some(method) if method.is_none() => {
            let name = tracer.type_name(&value);
            return tracer.raise_named("TypeError", &format!("'{name}' object is not reversible"));
        }
        Some(method) => return tracer.call(&method, Args::default()),
        None => {}
    }
    // What lists and dicts say of their order is said by no other method of a subclass; tuples are asked item by item.
    let mut items = match &value {
        Value::List(list) => {
            let left = tracer.list_items(*list)?.len();
            return Ok(tracer.new_iter(Iter::Reversed { of: value, left }));
        }
        Value::Tuple(_)
            if tracer.python_special(&value, "__len__")?.is_some()
                || tracer.python_special(&value, "__getitem__")?.is_some() =>
        {
            let length = tracer.length(&value)?;
            let length = super::fixed_int(tracer, &length, path)?;
            return Ok(tracer.new_iter(Iter::Reversed { of: value, left: length.max(0) as usize }));
        }
        Value::Tuple(t) => t.items.clone(),
        Value::Dict(dict) => tracer.collect(&Value::DictView(*dict, ViewKind::Keys))?,
        _ => tracer.collect(&value)?,
    };
    items.reverse();
    Ok(tracer.new_iter(Iter::Items { items, at: 0, of: Of::Call("builtins.reversed", vec![value]) }))
}

/// `Tensor.__reversed__`, which gives a tensor and no iterator.
fn reversed_tensor(tracer: &mut Tracer<'_>, value: Value) -> Flow<Value> {
    let class = tracer.class_of(&value)?;
    let torchs = tracer.type_lookup(&class, "__reversed__")?.is_some_and(|(owner, _)| owner.is("torch.Tensor"));
    match &value {
        Value::Tensor(id) if torchs => match tracer.arenas.tensors[*id].meta.ndim() {
            0 => Ok(value),
            _ => tracer.torch_call(Target::Method("flip".into()), Args::new(vec![value, Value::int(0)])),
        },
        _ => unsupported("builtins.reversed"),
    }
}

/// The argument `reverse`: not all versions take what is no int.
pub(super) fn reverse(args: &mut Args, path: &str) -> Flow<Value> {
    match args.take_kw("reverse") {
        None => Ok(Value::bool(false)),
        Some(reverse @ (Value::Int(_) | Value::Const(Const::Bool(_) | Const::Int(_)))) => Ok(reverse),
        Some(_) => unsupported(path),
    }
}

fn sorted(tracer: &mut Tracer<'_>, path: &str, mut args: Args) -> Flow<Value> {
    let key = args.take_kw("key").unwrap_or(Value::NONE);
    let reverse = reverse(&mut args, path)?;
    let [iterable] = exactly(path, args)?;
    let items = match &iterable {
        // No order of a set's elements shows in a sorted list of them.
        Value::Set(id) if key.is_none() => tracer.arenas.sets[*id].items.values().cloned().collect(),
        _ => tracer.collect_sized(&iterable)?,
    };
    let items = sort(tracer, items, &key, &reverse)?;
    Ok(tracer.new_list(items))
}

/// A stable sort by `<`, as `list.sort`: keys first, then comparisons. Which items are compared, and in what order, is not
/// CPython's: comparisons that change something are a break.
pub fn sort(tracer: &mut Tracer<'_>, items: Vec<Value>, key: &Value, reverse: &Value) -> Flow<Vec<Value>> {
    let reverse = tracer.truth(reverse)?;
    let mut keyed = Vec::with_capacity(items.len());
    for item in items {
        let by = if key.is_none() { item.clone() } else { tracer.call(key, Args::new(vec![item.clone()]))? };
        keyed.push((by, item));
    }
    if reverse {
        keyed.reverse();
    }
    if keyed.iter().any(|(by, _)| holds_nan(by)) {
        // Where they come to lie depends on which items are compared.
        return stop(ReasonCode::UnsupportedCall, "sorting with NaN among what is compared");
    }
    let writes = tracer.arenas.writes();
    let mut sorted: Vec<(Value, Value)> = Vec::with_capacity(keyed.len());
    for entry in keyed {
        // Behind all that are not greater.
        let (mut low, mut high) = (0, sorted.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            let less = tracer.compare(Compare::Lt, &entry.0, &sorted[middle].0)?;
            if tracer.truth(&less)? {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        sorted.insert(low, entry);
    }
    if tracer.arenas.writes() != writes {
        return stop(ReasonCode::UnsupportedCall, "sorting with comparisons that have effects");
    }
    if reverse {
        sorted.reverse();
    }
    Ok(sorted.into_iter().map(|(_, item)| item).collect())
}

fn holds_nan(value: &Value) -> bool {
    match value {
        Value::Const(Const::Float(x)) => x.is_nan(),
        Value::Tuple(tuple) => tuple.items.iter().any(holds_nan),
        _ => false,
    }
}
