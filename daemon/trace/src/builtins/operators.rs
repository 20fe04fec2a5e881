//! Operators between values of built-in types, and the `operator` module.

use super::args::{exactly, name};
use super::containers::sets::{self, Elements, combine, elements, in_both, make};
use super::kinds::{pure, slice, union};
use super::{Table, decided, dims, fixed_int, folded, slots, unsupported};
use crate::fold;
use crate::state::tracer::Tracer;
use crate::value::Args;
use crate::value::flow::{Flow, Stop, stop};
use crate::value::{Class, ListId, Tuple, Value, ViewKind};
use flambeau_bytecode::{Binary, Compare, Unary};
use flambeau_ir::code::Const;
use flambeau_ir::reason::ReasonCode;
use std::rc::Rc;

pub const TABLE: Table = &[
    ("operator.add", binary_function),
    ("operator.sub", binary_function),
    ("operator.mul", binary_function),
    ("operator.truediv", binary_function),
    ("operator.floordiv", binary_function),
    ("operator.mod", binary_function),
    ("operator.pow", binary_function),
    ("operator.matmul", binary_function),
    ("operator.and_", binary_function),
    ("operator.or_", binary_function),
    ("operator.xor", binary_function),
    ("operator.lshift", binary_function),
    ("operator.rshift", binary_function),
    ("operator.iadd", inplace_function),
    ("operator.isub", inplace_function),
    ("operator.imul", inplace_function),
    ("operator.itruediv", inplace_function),
    ("operator.eq", compare_function),
    ("operator.ne", compare_function),
    ("operator.lt", compare_function),
    ("operator.le", compare_function),
    ("operator.gt", compare_function),
    ("operator.ge", compare_function),
    ("operator.neg", unary_function),
    ("operator.pos", unary_function),
    ("operator.invert", unary_function),
    ("operator.not_", not_function),
    ("operator.truth", truth_function),
    ("operator.index", index_function),
    ("operator.getitem", getitem_function),
    ("operator.setitem", setitem_function),
    ("operator.contains", contains_function),
    ("operator.is_", is_function),
    ("operator.is_not", is_function),
];

fn binary_kind(name: &str) -> Option<Binary> {
    let name = name.trim_end_matches('_');
    Binary::ALL.into_iter().find(|b| b.method() == name)
}

fn binary_function(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [a, b] = exactly(path, args)?;
    match binary_kind(name(path)) {
        Some(op) => tracer.binary(op, false, &a, &b),
        None => unsupported(path),
    }
}

fn inplace_function(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [a, b] = exactly(path, args)?;
    match binary_kind(name(path).trim_start_matches('i')) {
        Some(op) => tracer.binary(op, true, &a, &b),
        None => unsupported(path),
    }
}

fn compare_function(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [a, b] = exactly(path, args)?;
    match Compare::ALL.into_iter().find(|c| c.method() == name(path)) {
        Some(op) => tracer.compare(op, &a, &b),
        None => unsupported(path),
    }
}

fn unary_function(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [a] = exactly(path, args)?;
    let op = match name(path) {
        "neg" => Unary::Negative,
        "pos" => Unary::Positive,
        _ => Unary::Invert,
    };
    tracer.unary(op, &a)
}

fn not_function(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [a] = exactly(path, args)?;
    Ok(Value::bool(!tracer.truth(&a)?))
}

fn truth_function(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [a] = exactly(path, args)?;
    Ok(Value::bool(tracer.truth(&a)?))
}

fn index_function(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [a] = exactly(path, args)?;
    match tracer.base(&a) {
        Value::Tensor(_) => stop(ReasonCode::DataDependentValue, "the index of a tensor"),
        Value::Const(Const::Bool(b)) => Ok(Value::int(i64::from(b))),
        value if value.is_int() => Ok(value),
        _ => unsupported(path),
    }
}

fn getitem_function(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [container, key] = exactly(path, args)?;
    tracer.subscript(&container, &key)
}

fn setitem_function(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [container, key, value] = exactly(path, args)?;
    tracer.store_subscript(&container, &key, value)?;
    Ok(Value::NONE)
}

fn contains_function(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [container, item] = exactly(path, args)?;
    Ok(Value::bool(tracer.contains(&container, &item)?))
}

fn is_function(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [a, b] = exactly(path, args)?;
    Ok(Value::bool(tracer.identical(&a, &b)? == (name(path) == "is_")))
}

/// `a <op> b` or `a <op>= b`; `None`: these types do not support it.
pub fn binary(tracer: &mut Tracer<'_>, op: Binary, inplace: bool, a: &Value, b: &Value) -> Flow<Option<Value>> {
    let (a, b) = (&tracer.base(a), &tracer.base(b));
    if let (Value::Const(x), Value::Const(y)) = (a, b) {
        return constants(tracer, op, x, y).map(Some);
    }
    if let Some(result) = pure::operator(tracer, op.method(), &[a, b])? {
        return Ok(Some(result));
    }
    if let Some(union) = union::operator(tracer, op, a, b)? {
        return Ok(Some(union));
    }
    if let (Some(x), Some(y)) = (a.as_dim(), b.as_dim()) {
        if let Some(result) = dims::binary(tracer, op, &x, &y)? {
            return Ok(Some(result));
        }
        let (x, y) = (Const::Int(tracer.fix(&x)), Const::Int(tracer.fix(&y)));
        return constants(tracer, op, &x, &y).map(Some);
    }
    // Sizes of what is no int, or of one that a size cannot be.
    match (a, b) {
        (Value::Int(dim), Value::Const(y)) => {
            let x = Const::Int(tracer.fix(dim));
            return constants(tracer, op, &x, y).map(Some);
        }
        (Value::Const(x), Value::Int(dim)) => {
            let y = Const::Int(tracer.fix(dim));
            return constants(tracer, op, x, &y).map(Some);
        }
        _ => {}
    }
    match (op, a, b) {
        (Binary::Add | Binary::Multiply, Value::List(_), _) | (Binary::Multiply, _, Value::List(_)) => {
            lists(tracer, op, inplace, a, b)
        }
        (Binary::Add | Binary::Multiply, Value::Tuple(_), _) | (Binary::Multiply | Binary::Add, _, Value::Tuple(_)) => {
            tuples(tracer, op, a, b)
        }
        (Binary::Remainder, Value::Const(Const::Str(_)), _) => super::strings::percent(tracer, a, b).map(Some),
        // `|=` takes what `update` takes.
        (Binary::Or, Value::Dict(id), _) if inplace => {
            let ordered = tracer.arenas.dicts[*id].class.as_ref().is_some_and(|c| c.derives("collections.OrderedDict"));
            if ordered && !matches!(b, Value::Dict(_)) {
                // It takes pairs by code of its own, which refuses in other words.
                return unsupported("an OrderedDict's `|=`");
            }
            super::containers::dicts::merge(tracer, "builtins.dict.update", *id, Args::new(vec![b.clone()]))?;
            Ok(Some(a.clone()))
        }
        (Binary::Or, Value::Dict(x), Value::Dict(y)) => {
            let own = |c: &Rc<Class>| c.derives("collections.OrderedDict") || c.derives("collections.defaultdict");
            let of = |id: crate::value::DictId| tracer.arenas.dicts[id].class.as_ref();
            if of(*y).is_some_and(own) && !of(*x).is_some_and(own) {
                return unsupported("`|` of a subclass");
            }
            let target = match tracer.arenas.dicts[*x].class.clone().filter(|c| c.is_python) {
                Some(class) if own(&class) => return unsupported("a subclass's `|`"),
                // A dict's `|` of a subclass gives a dict.
                Some(_) => {
                    let items = tracer.dict_items(*x)?;
                    tracer.new_dict(items)?
                }
                None => slots::copy_dict(tracer, &Value::Dict(*x))?,
            };
            if let Value::Dict(id) = target {
                super::containers::dicts::merge(tracer, "builtins.dict.update", id, Args::new(vec![b.clone()]))?;
            }
            Ok(Some(target))
        }
        (Binary::Or | Binary::And | Binary::Subtract | Binary::Xor, _, _) => sets(tracer, op, inplace, a, b),
        _ => Ok(None),
    }
}

fn constants(tracer: &mut Tracer<'_>, op: Binary, a: &Const, b: &Const) -> Flow<Value> {
    let suffix = if matches!(op, Binary::And | Binary::Or) { "_" } else { "" };
    let path = format!("_operator.{}{suffix}", op.method());
    folded(tracer, fold::binary(op, a, b), &path, &[a.clone(), b.clone()])
}

fn lists(tracer: &mut Tracer<'_>, op: Binary, inplace: bool, a: &Value, b: &Value) -> Flow<Option<Value>> {
    match (op, a, b) {
        (Binary::Add, Value::List(x), Value::List(y)) => {
            let mut items = tracer.list_items(*x)?.clone();
            items.extend(tracer.list_items(*y)?.iter().cloned());
            Ok(Some(tracer.new_list(items)))
        }
        (Binary::Multiply, Value::List(id), count) | (Binary::Multiply, count, Value::List(id))
            if count.as_dim().is_some() =>
        {
            let count = fixed_int(tracer, count, "list * int")?.max(0) as usize;
            let items = tracer.list_items(*id)?.clone();
            let items = repeated(&items, count)?;
            if inplace && matches!(a, Value::List(_)) {
                *tracer.list_mut(*id)? = items;
                return Ok(Some(a.clone()));
            }
            Ok(Some(tracer.new_list(items)))
        }
        _ => Ok(None),
    }
}

fn repeated(items: &[Value], count: usize) -> Flow<Vec<Value>> {
    if items.len().saturating_mul(count) > 1 << 16 {
        return stop(ReasonCode::TooLarge, "a sequence repeated many times");
    }
    Ok(items.iter().cloned().cycle().take(items.len() * count).collect())
}

fn tuples(tracer: &mut Tracer<'_>, op: Binary, a: &Value, b: &Value) -> Flow<Option<Value>> {
    let size = |t: &Tuple| t.class.clone().filter(|c| c.is("torch.Size"));
    match (op, a, b) {
        (Binary::Add, Value::Tuple(x), Value::Tuple(y)) => {
            let items = x.items.iter().chain(&y.items).cloned().collect();
            Ok(Some(Value::Tuple(Rc::new(Tuple { items, class: size(x).or(size(y)), attrs: None, origin: None }))))
        }
        (Binary::Multiply, Value::Tuple(t), count) | (Binary::Multiply, count, Value::Tuple(t))
            if count.as_dim().is_some() =>
        {
            let count = fixed_int(tracer, count, "tuple * int")?.max(0) as usize;
            let items = repeated(&t.items, count)?;
            Ok(Some(slots::like(t, items)))
        }
        _ => Ok(None),
    }
}

fn set_like(value: &Value) -> bool {
    matches!(value, Value::Set(_) | Value::DictView(_, ViewKind::Keys | ViewKind::Items))
}

fn is_items(value: &Value) -> bool {
    matches!(value, Value::DictView(_, ViewKind::Items))
}

/// The elements of `a & b`: where one is a view of a dict, by `_PyDictView_Intersect` in CPython's `Objects/dictobject.c`.
fn common(a: &Value, b: &Value, left: Elements, right: Elements) -> Elements {
    let is_view = |value: &Value| matches!(value, Value::DictView(..));
    if !is_view(a) && !is_view(b) {
        return combine("intersection", left, right);
    }
    let (view, other) = if is_view(a) { (left, right) } else { (right, left) };
    // The longer one of two views is asked for the items of the other one; a set that is no smaller goes through the view.
    let through_view = if is_view(a) && is_view(b) { other.len() > view.len() } else { other.len() >= view.len() };
    if through_view { in_both(view, &other) } else { in_both(other, &view) }
}

fn sets(tracer: &mut Tracer<'_>, op: Binary, inplace: bool, a: &Value, b: &Value) -> Flow<Option<Value>> {
    if !set_like(a) || !set_like(b) {
        return Ok(None);
    }
    let (how, path, method) = match op {
        Binary::Or => ("union", "_operator.or_", "update"),
        Binary::And => ("intersection", "_operator.and_", "intersection_update"),
        Binary::Subtract => ("difference", "_operator.sub", "difference_update"),
        _ => ("symmetric_difference", "_operator.xor", "symmetric_difference_update"),
    };
    // Views hash only those of their items that are in the result.
    let hashes_some = matches!(op, Binary::And | Binary::Xor) && (is_items(a) || is_items(b));
    let (left, right) = match (elements(tracer, a), elements(tracer, b)) {
        (Err(Stop::Raise(_)), _) | (_, Err(Stop::Raise(_))) if hashes_some => {
            return unsupported("items without a hash");
        }
        (left, right) => (left?, right?),
    };
    let operands = [sets::operand(tracer, a, &left)?, sets::operand(tracer, b, &right)?];
    let [_, other] = operands.clone();
    let operands = operands.into_iter().collect();
    let items = match op {
        Binary::And => common(a, b, left, right),
        _ => combine(how, left, right),
    };
    // Sets leave it to a view (`dictviews_as_number` in CPython's `Objects/dictobject.c`), which makes a plain set.
    let of_view = matches!(b, Value::DictView(..));
    match a {
        _ if of_view => Ok(Some(make(tracer, items, false, path, operands))),
        Value::Set(id) if inplace && !tracer.arenas.sets[*id].frozen => {
            sets::changed_by(tracer, *id, items, method, other);
            Ok(Some(a.clone()))
        }
        Value::Set(id) => {
            let frozen = tracer.arenas.sets[*id].frozen;
            Ok(Some(make(tracer, items, frozen, path, operands)))
        }
        _ => Ok(Some(make(tracer, items, false, path, operands))),
    }
}

/// `<op> a`
pub fn unary(tracer: &mut Tracer<'_>, op: Unary, a: &Value) -> Flow<Option<Value>> {
    let path = match op {
        Unary::Positive => "_operator.pos",
        Unary::Negative => "_operator.neg",
        Unary::Invert => "_operator.invert",
        Unary::Not => return tracer.truth(a).map(|t| Some(Value::bool(!t))),
    };
    match tracer.base(a) {
        Value::Const(Const::Bool(_)) if op == Unary::Invert && tracer.builtins().inverted_bool_warns => {
            stop(ReasonCode::UnsupportedCall, "~ of a bool, which warns")
        }
        Value::Const(c) => folded(tracer, fold::unary(op, &c), path, std::slice::from_ref(&c)).map(Some),
        Value::Int(dim) => Ok(Some(dims::unary(op, &dim))),
        other => pure::operation(tracer, path, &[&other]),
    }
}

/// `a <op> b`; `None`: these types have no such order.
pub fn compare(tracer: &mut Tracer<'_>, op: Compare, a: &Value, b: &Value) -> Flow<Option<Value>> {
    let (x, y) = (&tracer.base(a), &tracer.base(b));
    if let (Value::Const(x), Value::Const(y)) = (x, y) {
        let path = format!("_operator.{}", op.method());
        return folded(tracer, fold::compare(op, x, y), &path, &[x.clone(), y.clone()]).map(Some);
    }
    if let Some(result) = pure::operator(tracer, op.method(), &[x, y])? {
        return Ok(Some(result));
    }
    if let (Some(x), Some(y)) = (x.as_dim(), y.as_dim()) {
        return Ok(Some(Value::bool(dims::compare(tracer, op, &x, &y))));
    }
    let number = |v: &Value| matches!(v, Value::Const(Const::Float(_) | Const::BigInt(_) | Const::Complex(..)));
    if matches!(x, Value::Int(_)) && number(y) || matches!(y, Value::Int(_)) && number(x) {
        let fixed = [x, y].map(Value::clone);
        let [x, y] = fixed.map(|v| if let Value::Int(d) = &v { Value::int(tracer.fix(d)) } else { v });
        return compare(tracer, op, &x, &y);
    }
    let ordered = match (x, y) {
        (Value::Tuple(a), Value::Tuple(b)) => Some(sequences(tracer, op, &a.items, &b.items)?),
        (Value::List(a), Value::List(b)) => Some(compare_lists(tracer, op, *a, *b)?),
        (Value::Parts(a), Value::Parts(b)) if a.of == b.of && tracer.kind_of(a).compares_parts() => {
            Some(sequences(tracer, op, &a.items, &b.items)?)
        }
        _ if set_like(x) && set_like(y) => Some(Value::bool(if is_items(x) || is_items(y) {
            compare_items(tracer, op, x, y)?
        } else {
            subsets(op, &elements(tracer, x)?, &elements(tracer, y)?)
        })),
        _ => None,
    };
    if ordered.is_some() {
        return Ok(ordered);
    }
    let equal = match (op, x, y) {
        (Compare::Eq | Compare::Ne, Value::Dict(p), Value::Dict(q)) => dicts_equal(tracer, *p, *q)?,
        (Compare::Eq | Compare::Ne, Value::Parts(p), Value::Parts(q)) if p.of == q.of => {
            match tracer.kind_of(p).equal(tracer, p, q)? {
                Some(equal) => equal,
                None => tracer.identical(a, b)?,
            }
        }
        (Compare::Eq | Compare::Ne, Value::Method(p), Value::Method(q)) => {
            tracer.identical(&p.func, &q.func)? && tracer.identical(&p.receiver, &q.receiver)?
        }
        (Compare::Eq | Compare::Ne, Value::Builtin(p), Value::Builtin(q)) => match (&p.receiver, &q.receiver) {
            (Some(r), Some(s)) => p.path == q.path && tracer.identical(r, s)?,
            _ => tracer.identical(a, b)?,
        },
        (Compare::Eq | Compare::Ne, _, _) => {
            let same = tracer.identical(a, b)?;
            // What C code compares need not even be equal to itself: arrays compare item by item.
            let by_c = [a, b].iter().any(|value| matches!(value, Value::Opaque(_)));
            if (by_c || !same) && (hides_equality(tracer, a)? || hides_equality(tracer, b)?) {
                return stop(ReasonCode::UnsupportedObject, "equality of objects that C code compares");
            }
            same
        }
        _ => return Ok(None),
    };
    Ok(Some(Value::bool(equal == (op == Compare::Eq))))
}

/// Whether equality of the value may be more than identity, by code that is not Python.
fn hides_equality(tracer: &mut Tracer<'_>, value: &Value) -> Flow<bool> {
    match value {
        Value::Opaque(opaque) => {
            let class = opaque.class.clone();
            Ok(tracer.type_lookup(&class, "__eq__")?.is_some_and(|(owner, _)| !owner.is("builtins.object")))
        }
        // What Python code of its class had to say is known by now.
        Value::Instance(id) => {
            let class = tracer.arenas.instances[*id].class.clone();
            let eq = tracer.type_lookup(&class, "__eq__")?;
            Ok(eq.is_some_and(|(owner, eq)| !owner.is("builtins.object") && !matches!(eq, Value::Function(_))))
        }
        _ => Ok(false),
    }
}

fn sequences(tracer: &mut Tracer<'_>, op: Compare, a: &[Value], b: &[Value]) -> Flow<Value> {
    if matches!(op, Compare::Eq | Compare::Ne) && a.len() != b.len() {
        return Ok(Value::bool(op == Compare::Ne));
    }
    for (x, y) in a.iter().zip(b) {
        if !tracer.equal(x, y)? {
            return match op {
                Compare::Eq | Compare::Ne => Ok(Value::bool(op == Compare::Ne)),
                _ => tracer.compare(op, x, y),
            };
        }
    }
    Ok(by_length(op, a.len(), b.len()))
}

fn by_length(op: Compare, a: usize, b: usize) -> Value {
    Value::bool(match op {
        Compare::Eq => a == b,
        Compare::Ne => a != b,
        Compare::Lt => a < b,
        Compare::Le => a <= b,
        Compare::Gt => a > b,
        Compare::Ge => a >= b,
    })
}

/// Item by item, as the lists are then: comparing items may change them. By `list_richcompare` in CPython's
/// `Objects/listobject.c`.
fn compare_lists(tracer: &mut Tracer<'_>, op: Compare, a: ListId, b: ListId) -> Flow<Value> {
    let lengths =
        |tracer: &mut Tracer<'_>| -> Flow<_> { Ok((tracer.list_items(a)?.len(), tracer.list_items(b)?.len())) };
    let both = |tracer: &mut Tracer<'_>, at: usize| -> Flow<_> {
        let x = tracer.list_items(a)?.get(at).cloned();
        Ok(x.zip(tracer.list_items(b)?.get(at).cloned()))
    };
    let (long, wide) = lengths(tracer)?;
    if matches!(op, Compare::Eq | Compare::Ne) && long != wide {
        return Ok(Value::bool(op == Compare::Ne));
    }
    let mut at = 0;
    while let Some((x, y)) = both(tracer, at)? {
        if !tracer.equal(&x, &y)? {
            break;
        }
        at += 1;
    }
    match (op, both(tracer, at)?) {
        (_, None) => lengths(tracer).map(|(a, b)| by_length(op, a, b)),
        (Compare::Eq | Compare::Ne, Some(_)) => Ok(Value::bool(op == Compare::Ne)),
        (_, Some((x, y))) => tracer.compare(op, &x, &y),
    }
}

fn subsets(op: Compare, a: &Elements, b: &Elements) -> bool {
    let within = |a: &Elements, b: &Elements| a.keys().all(|k| b.contains_key(k));
    match op {
        Compare::Eq => a.len() == b.len() && within(a, b),
        Compare::Ne => a.len() != b.len() || !within(a, b),
        Compare::Le => within(a, b),
        Compare::Lt => a.len() < b.len() && within(a, b),
        Compare::Ge => within(b, a),
        Compare::Gt => b.len() < a.len() && within(b, a),
    }
}

/// As [`subsets`], where one is a view of a dict's items: their values need no hash, as the view looks a pair up by its key.
/// By `dictview_richcompare` in CPython's `Objects/dictobject.c`.
fn compare_items(tracer: &mut Tracer<'_>, op: Compare, a: &Value, b: &Value) -> Flow<bool> {
    // Sets leave it to the view, which goes through its own items.
    let (inner, outer) = match op {
        Compare::Eq | Compare::Ne if matches!(a, Value::Set(_)) => (b, a),
        Compare::Ge | Compare::Gt => (b, a),
        _ => (a, b),
    };
    let [few, many] = [inner, outer].map(|value| tracer.length(value));
    let sizes = fixed_int(tracer, &few?, "len")?.cmp(&fixed_int(tracer, &many?, "len")?);
    let mut within = match op {
        Compare::Eq | Compare::Ne => sizes.is_eq(),
        Compare::Lt | Compare::Gt => sizes.is_lt(),
        Compare::Le | Compare::Ge => sizes.is_le(),
    };
    let items = tracer.iter(inner)?;
    while within && let Some(item) = tracer.next(&items)? {
        within = contains(tracer, outer, &item)?.unwrap_or_default();
    }
    Ok(within == (op != Compare::Ne))
}

fn dicts_equal(tracer: &mut Tracer<'_>, a: crate::value::DictId, b: crate::value::DictId) -> Flow<bool> {
    if a == b {
        return Ok(true);
    }
    let (items, others) = (tracer.dict_items(a)?, tracer.dict_items(b)?);
    if items.len() != others.len() {
        return Ok(false);
    }
    let ordered = |id| tracer.arenas.dicts[id].class.as_ref().is_some_and(|c| c.derives("collections.OrderedDict"));
    if ordered(a) && ordered(b) {
        for ((x, _), (y, _)) in items.iter().zip(&others) {
            if !tracer.equal(x, y)? {
                return Ok(false);
            }
        }
    }
    for (key, _) in &items {
        // Comparing values may change the dicts.
        let value = tracer.dict_get(a, key)?;
        let Some(value) = value.filter(|_| tracer.arenas.dicts[a].items.len() == items.len()) else {
            return stop(ReasonCode::UnsupportedObject, "a dict that changes while it is compared");
        };
        match tracer.dict_get(b, key)? {
            Some(other) if tracer.equal(&value, &other)? => {}
            _ => return Ok(false),
        }
    }
    if tracer.arenas.dicts[a].items.len() != items.len() {
        return stop(ReasonCode::UnsupportedObject, "a dict that changes while it is compared");
    }
    Ok(true)
}

/// `item in container`; `None`: no container.
pub fn contains(tracer: &mut Tracer<'_>, container: &Value, item: &Value) -> Flow<Option<bool>> {
    match container {
        Value::Const(c @ (Const::Str(_) | Const::Bytes(_))) => match tracer.as_const(&tracer.base(item)) {
            Some(item) => decided(tracer, fold::contains(c, &item), "in").map(Some),
            None => unsupported("in"),
        },
        Value::List(id) => {
            let mut at = 0;
            while let Some(candidate) = tracer.list_items(*id)?.get(at).cloned() {
                if tracer.equal(&candidate, item)? {
                    return Ok(Some(true));
                }
                at += 1;
            }
            Ok(Some(false))
        }
        Value::Tuple(tuple) => {
            for candidate in &tuple.items {
                if tracer.equal(candidate, item)? {
                    return Ok(Some(true));
                }
            }
            Ok(Some(false))
        }
        Value::DictView(_, ViewKind::Values) => {
            let iterator = tracer.iter(container)?;
            while let Some(candidate) = tracer.next(&iterator)? {
                if tracer.equal(&candidate, item)? {
                    return Ok(Some(true));
                }
            }
            Ok(Some(false))
        }
        Value::Dict(id) | Value::DictView(id, ViewKind::Keys) => {
            if let Value::Int(number) = item
                && let Some(found) = tracer.has_number(*id, number)?
            {
                return Ok(Some(found));
            }
            Ok(Some(tracer.dict_get(*id, item)?.is_some()))
        }
        Value::DictView(id, ViewKind::Items) => match item {
            Value::Tuple(pair) if pair.items.len() == 2 => match tracer.dict_get(*id, &pair.items[0])? {
                Some(value) => tracer.equal(&value, &pair.items[1]).map(Some),
                None => Ok(Some(false)),
            },
            _ => Ok(Some(false)),
        },
        Value::Set(id) => {
            let key = tracer.key(item)?;
            Ok(Some(tracer.arenas.sets[*id].items.contains_key(&key)))
        }
        Value::Parts(parts) => tracer.kind_of(parts).contains(tracer, parts, item),
        _ => Ok(None),
    }
}

/// `container[key]`; `None`: not supported by this type.
pub fn subscript(tracer: &mut Tracer<'_>, container: &Value, key: &Value) -> Flow<Option<Value>> {
    if !matches!(container, Value::Parts(_))
        && let Some(key) = pure::as_key(tracer, key)?
    {
        return subscript(tracer, container, &key);
    }
    let given = key;
    let key = &tracer.base(key);
    match container {
        Value::Parts(parts) => match pure::operation(tracer, "_operator.getitem", &[container, given])? {
            None => tracer.kind_of(parts).subscript(tracer, parts, given),
            found => Ok(found),
        },
        Value::Tuple(tuple) => match key.as_slice() {
            Some(parts) => {
                let positions = slice::positions(tracer, parts, tuple.items.len(), "tuple slice")?;
                let items = positions.into_iter().map(|i| tuple.items[i].clone()).collect();
                Ok(Some(slots::like(tuple, items)))
            }
            None => {
                let at = position(tracer, given, tuple.items.len(), "tuple")?;
                Ok(Some(tuple.items[at].clone()))
            }
        },
        Value::List(id) => {
            let items = tracer.list_items(*id)?.clone();
            match key.as_slice() {
                Some(parts) => {
                    let positions = slice::positions(tracer, parts, items.len(), "list slice")?;
                    let items = positions.into_iter().map(|i| items[i].clone()).collect();
                    Ok(Some(tracer.new_list(items)))
                }
                None => {
                    let at = position(tracer, given, items.len(), "list")?;
                    Ok(Some(items[at].clone()))
                }
            }
        }
        Value::Dict(id) => match tracer.dict_get(*id, key)? {
            Some(value) => Ok(Some(value)),
            None => missing(tracer, container, *id, key).map(Some),
        },
        Value::Const(Const::Str(_) | Const::Bytes(_)) if let Some(own) = tracer.own_index(given)? => {
            subscript(tracer, container, &own)
        }
        Value::Const(c @ (Const::Str(_) | Const::Bytes(_))) => match super::fixed_const(tracer, key) {
            // The message would name the base.
            Some(Const::Float(_) | Const::Str(_) | Const::Bytes(_)) if matches!(given, Value::Instance(_)) => {
                unsupported("subscript")
            }
            Some(key) => {
                folded(tracer, fold::subscript(c, &key), "_operator.getitem", &[c.clone(), key.clone()]).map(Some)
            }
            None => unsupported("subscript"),
        },
        _ => Ok(None),
    }
}

/// A missing key: `__missing__`, a `defaultdict`'s factory, or `KeyError`.
fn missing(tracer: &mut Tracer<'_>, dict: &Value, id: crate::value::DictId, key: &Value) -> Flow<Value> {
    if let Some(class) = tracer.arenas.dicts[id].class.clone() {
        if class.derives("collections.defaultdict") {
            let Some(factory) = tracer.dict_factory(id)? else {
                return stop(ReasonCode::UnsupportedObject, "the default factory of a defaultdict");
            };
            if !factory.is_none() {
                let value = tracer.call(&factory, Args::default())?;
                tracer.dict_set(id, key.clone(), value.clone())?;
                return Ok(value);
            }
        } else if let Some((_, method @ Value::Function(_))) = tracer.type_lookup(&class, "__missing__")? {
            return tracer.call(&method, Args::new(vec![dict.clone(), key.clone()]));
        }
    }
    tracer.raise_with("KeyError", vec![key.clone()])
}

/// The position that an int key names; a symbolic one is fixed.
pub(super) fn position(tracer: &mut Tracer<'_>, key: &Value, length: usize, kind: &str) -> Flow<usize> {
    match find(tracer, key, length, kind)? {
        Some(at) => Ok(at),
        None => tracer.raise_named("IndexError", &format!("{kind} index out of range")),
    }
}

/// As [`position`], for an item of a list that is to be replaced or deleted.
fn assigned_position(tracer: &mut Tracer<'_>, key: &Value, length: usize) -> Flow<usize> {
    match find(tracer, key, length, "list")? {
        Some(at) => Ok(at),
        None => tracer.raise_named("IndexError", "list assignment index out of range"),
    }
}

/// As [`position`]; `None` of what is out of range.
fn find(tracer: &mut Tracer<'_>, key: &Value, length: usize, kind: &str) -> Flow<Option<usize>> {
    let own = tracer.own_index(key)?;
    let base = own.unwrap_or_else(|| tracer.base(key));
    let at = match &base {
        Value::Int(dim) => tracer.fix(dim),
        Value::Const(Const::Int(_) | Const::Bool(_)) => base.as_int().unwrap_or(0),
        Value::Tensor(_) => return stop(ReasonCode::DataDependentValue, format!("a {kind} indexed by a tensor")),
        Value::Const(Const::BigInt(_)) if kind == "range object" => return Ok(None),
        Value::Const(Const::BigInt(_)) => {
            return tracer.raise_named("IndexError", "cannot fit 'int' into an index-sized integer");
        }
        Value::Instance(_) | Value::Opaque(_) => {
            return stop(ReasonCode::UnsupportedObject, format!("a {kind} indexed by a {}", tracer.type_name(key)));
        }
        _ => {
            let kind = kind.trim_end_matches(" object");
            let name = tracer.type_name(key);
            return tracer.raise_named("TypeError", &format!("{kind} indices must be integers or slices, not {name}"));
        }
    };
    let wrapped = if at < 0 { at + length as i64 } else { at };
    Ok((0..length as i64).contains(&wrapped).then_some(wrapped as usize))
}

/// `container[key] = value`; false: not supported by this type.
pub fn store_subscript(tracer: &mut Tracer<'_>, container: &Value, key: &Value, value: Value) -> Flow<bool> {
    if matches!(container, Value::List(_))
        && let Some(key) = pure::as_key(tracer, key)?
    {
        return store_subscript(tracer, container, &key, value);
    }
    match container {
        Value::Dict(id) => {
            tracer.dict_set(*id, key.clone(), value)?;
            Ok(true)
        }
        Value::List(id) => {
            let length = tracer.list_items(*id)?.len();
            if let Some(parts) = key.as_slice() {
                return store_slice(tracer, *id, parts, &value);
            }
            let at = assigned_position(tracer, key, length)?;
            tracer.list_mut(*id)?[at] = value;
            Ok(true)
        }
        _ => Ok(false),
    }
}

fn store_slice(tracer: &mut Tracer<'_>, id: crate::value::ListId, parts: &[Value; 3], value: &Value) -> Flow<bool> {
    let before = tracer.list_items(id)?.len();
    let plain = match &parts[2] {
        Value::Const(Const::None) => true,
        step => step.as_int() == Some(1),
    };
    let message = if plain { tracer.builtins().no_items } else { "must assign iterable to extended slice" };
    let items = tracer.collect_fast(value, message)?;
    let length = tracer.list_items(id)?.len();
    if before != length {
        return stop(ReasonCode::UnsupportedCall, "a list slice of what changes the list");
    }
    let (start, stop, step) = slice::indices(tracer, parts, length, "list slice")?;
    if step == 1 {
        let start = start as usize;
        tracer.list_mut(id)?.splice(start..(stop as usize).max(start), items);
        return Ok(true);
    }
    let positions = slice::positions(tracer, parts, length, "list slice")?;
    if positions.len() != items.len() {
        let (given, wanted) = (items.len(), positions.len());
        let message = format!("attempt to assign sequence of size {given} to extended slice of size {wanted}");
        return tracer.raise_named("ValueError", &message);
    }
    let list = tracer.list_mut(id)?;
    for (at, item) in positions.into_iter().zip(items) {
        list[at] = item;
    }
    Ok(true)
}

/// `del container[key]`; false: not supported by this type.
pub fn delete_subscript(tracer: &mut Tracer<'_>, container: &Value, key: &Value) -> Flow<bool> {
    match container {
        Value::Dict(id) => match tracer.dict_remove(*id, key)? {
            Some(_) => Ok(true),
            None => tracer.raise_with("KeyError", vec![key.clone()]),
        },
        Value::List(id) => {
            let length = tracer.list_items(*id)?.len();
            let mut positions = match key.as_slice() {
                Some(parts) => slice::positions(tracer, parts, length, "list slice")?,
                None => vec![assigned_position(tracer, key, length)?],
            };
            positions.sort_unstable();
            let list = tracer.list_mut(*id)?;
            for at in positions.into_iter().rev() {
                list.remove(at);
            }
            Ok(true)
        }
        _ => Ok(false),
    }
}
