//! `int`, `float`, `bool`, `abs`, `round`, `sum`, `min`, `max`, ... and the `math` module.

use super::args::{bind, bind_or_none, exactly, name};
use super::{Table, fixed_const, folded, unsupported};
use crate::fold;
use crate::state::tracer::Tracer;
use crate::value::Args;
use crate::value::Value;
use crate::value::flow::{Flow, stop};
use flambeau_bytecode::{Binary, Compare};
use flambeau_ir::code::Const;
use flambeau_ir::dim::Dim;
use flambeau_ir::graph::Target;
use flambeau_ir::guard::Relation;
use flambeau_ir::reason::ReasonCode;

pub const TABLE: Table = &[
    ("builtins.bool", bool_),
    ("builtins.int", int),
    ("builtins.float", float),
    ("builtins.complex", complex),
    ("builtins.abs", abs),
    ("builtins.round", round),
    ("builtins.pow", pow),
    ("builtins.divmod", divmod),
    ("builtins.sum", sum),
    ("builtins.min", extreme),
    ("builtins.max", extreme),
    ("builtins.chr", evaluated),
    ("builtins.ord", evaluated),
    ("builtins.bin", evaluated),
    ("builtins.hex", evaluated),
    ("builtins.oct", evaluated),
    ("builtins.int.bit_length", evaluated),
    ("builtins.int.__index__", index),
    ("builtins.int.__int__", index),
    ("builtins.float.is_integer", evaluated),
    ("builtins.int.__new__", new_number),
    ("math.sqrt", math),
    ("math.floor", math),
    ("math.ceil", math),
    ("math.trunc", math),
    ("math.prod", prod),
    ("math.gcd", math),
    ("math.lcm", math),
    ("math.isqrt", math),
    ("math.copysign", math),
    ("math.fabs", math),
    ("math.isnan", math),
    ("math.isinf", math),
    ("math.isfinite", math),
    ("math.exp", math),
    ("math.exp2", math),
    ("math.expm1", math),
    ("math.log", math),
    ("math.log2", math),
    ("math.log10", math),
    ("math.log1p", math),
    ("math.sin", math),
    ("math.cos", math),
    ("math.tan", math),
    ("math.asin", math),
    ("math.acos", math),
    ("math.atan", math),
    ("math.atan2", math),
    ("math.sinh", math),
    ("math.cosh", math),
    ("math.tanh", math),
    ("math.erf", math),
    ("math.gamma", math),
    ("math.lgamma", math),
    ("math.pow", math),
    ("math.fmod", math),
    ("math.hypot", math),
    ("math.radians", math),
    ("math.degrees", math),
    ("math.factorial", math),
    ("math.comb", math),
    ("math.isclose", math),
];

fn from_data<T>(path: &str) -> Flow<T> {
    stop(ReasonCode::DataDependentValue, format!("{} of a tensor", name(path)))
}

/// Asks the client, with all arguments constant.
fn evaluated(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let consts = constants(tracer, path, args)?;
    tracer.eval(path, consts)
}

fn constants(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Vec<Const>> {
    if !args.kw.is_empty() {
        return unsupported(path);
    }
    if args.pos.iter().any(|v| matches!(v, Value::Tensor(_))) {
        return from_data(path);
    }
    let consts: Option<Vec<Const>> = args.pos.iter().map(|v| fixed_const(tracer, v)).collect();
    consts.map_or_else(|| unsupported(path), Ok)
}

/// What defines its own conversion is left to Python.
fn complex(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    if args.pos.iter().any(|v| matches!(v, Value::Instance(_))) {
        return unsupported(path);
    }
    evaluated(tracer, path, args)
}

fn bool_(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [value] = bind(path, args, [""], 0)?;
    match value {
        Some(value) => tracer.truth(&value).map(Value::bool),
        None => Ok(Value::bool(false)),
    }
}

/// The result of the value's own conversion method, if its class has one in Python.
fn own_conversion(tracer: &mut Tracer<'_>, value: &Value, method: &str) -> Flow<Option<Value>> {
    if !matches!(value, Value::Instance(_)) {
        return Ok(None);
    }
    let own = tracer.python_special(value, method)?;
    own.map(|own| tracer.call(&own, Args::default())).transpose()
}

/// The number that C functions of floats take for an argument (`PyFloat_AsDouble`).
fn real(tracer: &mut Tracer<'_>, path: &str, value: &Value) -> Flow<Value> {
    let base = tracer.base(value);
    if matches!(base, Value::Const(Const::Float(_))) {
        return Ok(base);
    }
    match own_conversion(tracer, value, "__float__")? {
        Some(result @ Value::Const(Const::Float(_))) => Ok(result),
        Some(_) => unsupported(path),
        None => whole(tracer, path, value),
    }
}

/// The int that C functions take for an argument (`PyNumber_Index`).
fn whole(tracer: &mut Tracer<'_>, path: &str, value: &Value) -> Flow<Value> {
    let base = tracer.base(value);
    if base.is_int() {
        return Ok(base);
    }
    match own_conversion(tracer, value, "__index__")? {
        Some(result) if result.is_int() => Ok(result),
        _ => unsupported(path),
    }
}

fn int(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [value, base] = bind(path, args, ["", "base"], 0)?;
    let value = match (value, base) {
        (None, None) => return Ok(Value::int(0)),
        (Some(value), None) => value,
        (Some(value), Some(base)) => return evaluated(tracer, path, Args::new(vec![value, base])),
        (None, Some(_)) => return unsupported(path),
    };
    if let Value::Tensor(_) = value {
        return from_data(path);
    }
    if let Value::Int(_) = value {
        return Ok(value);
    }
    // A number's own value comes before its `__index__`.
    let is_number = matches!(tracer.base(&value), Value::Const(c) if !matches!(c, Const::Str(_) | Const::Bytes(_)));
    for method in ["__int__", "__index__"].iter().take(if is_number { 1 } else { 2 }) {
        match own_conversion(tracer, &value, method)? {
            None => {}
            Some(result) if result.is_int() => return Ok(result),
            // Python warns of a subclass's instance, and raises for anything else.
            Some(_) => return unsupported(path),
        }
    }
    match tracer.base(&value) {
        Value::Const(c) => folded(tracer, fold::to_int(&c), path, std::slice::from_ref(&c)),
        _ => unsupported(path),
    }
}

fn float(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [value] = bind(path, args, [""], 0)?;
    let Some(value) = value else { return Ok(Value::Const(Const::Float(0.0))) };
    if let Value::Tensor(_) = value {
        return from_data(path);
    }
    match own_conversion(tracer, &value, "__float__")? {
        None => {}
        Some(result @ Value::Const(Const::Float(_))) => return Ok(result),
        Some(_) => return unsupported(path),
    }
    match fixed_const(tracer, &value) {
        Some(c) => folded(tracer, fold::to_float(&c), path, std::slice::from_ref(&c)),
        None => unsupported(path),
    }
}

/// `int.__new__(cls, ...)` is left to enum machinery, which is not traced.
fn new_number(_: &mut Tracer<'_>, path: &str, _: Args) -> Flow<Value> {
    unsupported(path)
}

fn index(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [value] = exactly(path, args)?;
    match tracer.base(&value) {
        Value::Const(Const::Bool(b)) => Ok(Value::int(i64::from(b))),
        value if value.is_int() => Ok(value),
        _ => unsupported(path),
    }
}

fn abs(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [value] = exactly(path, args)?;
    if let Some(own) = tracer.python_special(&value, "__abs__")? {
        return tracer.call(&own, Args::default());
    }
    match tracer.base(&value) {
        Value::Tensor(_) => tracer.torch_call(Target::Function("torch.abs".into()), Args::new(vec![value])),
        Value::Int(dim) => {
            let positive = tracer.decide(Relation::Ge, &dim, &Dim::Const(0));
            Ok(if positive { value } else { Value::dim(dim.mul(&Dim::Const(-1))) })
        }
        Value::Const(c) => folded(tracer, fold::absolute(&c), path, std::slice::from_ref(&c)),
        _ => unsupported(path),
    }
}

fn round(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [value, digits] = bind_or_none(path, args, ["number", "ndigits"], 1)?;
    if let Value::Tensor(_) = value {
        return unsupported(path);
    }
    if let Some(own) = tracer.python_special(&value, "__round__")? {
        let digits = if digits.is_none() { vec![] } else { vec![digits] };
        return tracer.call(&own, Args::new(digits));
    }
    let digits = match &digits {
        Value::Int(dim) => Some(tracer.fix(dim)),
        digits if digits.is_none() => None,
        digits => match digits.as_int() {
            Some(digits) => Some(digits),
            None => return unsupported(path),
        },
    };
    match (tracer.base(&value), digits) {
        (Value::Int(dim), None) => Ok(Value::dim(dim)),
        (Value::Const(c), digits) => {
            let mut asked = vec![c.clone()];
            asked.extend(digits.map(Const::Int));
            folded(tracer, fold::round(&c, digits), path, &asked)
        }
        _ => unsupported(path),
    }
}

fn pow(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    match bind(path, args, ["base", "exp", "mod"], 2)? {
        [Some(base), Some(exp), None] => tracer.binary(Binary::Power, false, &base, &exp),
        [Some(base), Some(exp), Some(modulus)]
            if [&base, &exp, &modulus].iter().any(|v| matches!(v, Value::Instance(_))) =>
        {
            // Of its own methods Python asks the base's alone; what is under the others is for `int`'s.
            match tracer.python_special(&base, "__pow__")? {
                Some(own) => match tracer.call(&own, Args::new(vec![exp, modulus]))? {
                    Value::Const(Const::NotImplemented) => unsupported(path),
                    result => Ok(result),
                },
                None => unsupported(path),
            }
        }
        [Some(base), Some(exp), Some(modulus)] => evaluated(tracer, path, Args::new(vec![base, exp, modulus])),
        _ => unsupported(path),
    }
}

fn divmod(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [a, b] = exactly(path, args)?;
    if let (Some(x), Some(y)) = (tracer.as_const(&a), tracer.as_const(&b)) {
        return folded(tracer, fold::divmod(&x, &y), path, &[x.clone(), y.clone()]);
    }
    if a.as_dim().is_none() || b.as_dim().is_none() {
        return unsupported(path);
    }
    let quotient = tracer.binary(Binary::FloorDivide, false, &a, &b)?;
    let remainder = tracer.binary(Binary::Remainder, false, &a, &b)?;
    Ok(Value::tuple(vec![quotient, remainder]))
}

fn sum(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [iterable, start] = bind(path, args, ["", "start"], 1)?;
    let Some(iterable) = iterable else { return unsupported(path) };
    let iterator = tracer.iter(&iterable)?;
    let mut total = start.unwrap_or(Value::int(0));
    let class = tracer.class_of(&total)?;
    for (path, what, empty) in [("str", "strings", "''"), ("bytes", "bytes", "b''"), ("bytearray", "bytearray", "b''")]
    {
        if class.derives(&format!("builtins.{path}")) {
            let message = format!("sum() can't sum {what} [use {empty}.join(seq) instead]");
            return tracer.raise_named("TypeError", &message);
        }
    }
    // What rounding lost so far, while everything was an int or a float and the version keeps account of it.
    let is_number = |value: &Value| matches!(value, Value::Int(_) | Value::Const(Const::Int(_) | Const::Float(_)));
    let compensates = tracer.builtins().sum_compensates && !flambeau_ir::mutated!("sum_of_3_11");
    let mut lost = (compensates && is_number(&total)).then_some(0.0);
    while let Some(item) = tracer.next(&iterator)? {
        if let (Some(lost), Value::Const(Const::Float(sum))) = (&mut lost, &total) {
            let added = match &item {
                Value::Const(Const::Float(x)) => {
                    let next = sum + x;
                    *lost += if sum.abs() >= x.abs() { (sum - next) + x } else { (x - next) + sum };
                    Some(next)
                }
                Value::Const(Const::Int(i)) => Some(sum + *i as f64),
                Value::Const(Const::Bool(b)) => Some(sum + f64::from(u8::from(*b))),
                Value::Int(dim) => Some(sum + tracer.fix(dim) as f64),
                _ => None,
            };
            if let Some(next) = added {
                total = Value::Const(Const::Float(next));
                continue;
            }
        }
        let so_far = with_lost(total, lost);
        total = tracer.binary(Binary::Add, false, &so_far, &item)?;
        lost = lost
            .filter(|_| is_number(&so_far) && is_number(&total) && !matches!(so_far, Value::Const(Const::Float(_))));
    }
    Ok(with_lost(total, lost))
}

/// A sum of floats with what rounding lost.
fn with_lost(total: Value, lost: Option<f64>) -> Value {
    match (&total, lost) {
        (Value::Const(Const::Float(sum)), Some(lost)) if lost != 0.0 && lost.is_finite() => {
            Value::Const(Const::Float(sum + lost))
        }
        _ => total,
    }
}

/// `min` and `max`.
fn extreme(tracer: &mut Tracer<'_>, path: &str, mut args: Args) -> Flow<Value> {
    let key = args.take_kw("key").filter(|k| !k.is_none());
    let default = args.take_kw("default");
    if !args.kw.is_empty() || (args.pos.len() > 1 && default.is_some()) {
        return unsupported(path);
    }
    let largest = name(path) == "max";
    let iterable = match args.pos.as_slice() {
        [iterable] => iterable.clone(),
        [] => {
            let message = format!("{} expected at least 1 argument, got 0", name(path));
            return tracer.raise_named("TypeError", &message);
        }
        _ => Value::tuple(args.pos),
    };
    // Of a container without code of its own, all items may be looked at together.
    let items = match &iterable {
        Value::Tuple(_) | Value::List(_) if key.is_none() => tracer.collect(&iterable)?,
        _ => vec![],
    };
    let is_bool = |v: &Value| matches!(v, Value::Const(Const::Bool(_)));
    if key.is_none() && items.iter().any(|v| matches!(v, Value::Int(_))) && !items.iter().any(is_bool) {
        let dims: Option<Vec<Dim>> = items.iter().map(Value::as_dim).collect();
        let best = |a: Dim, b: Dim| if largest { Dim::max(&a, &b) } else { Dim::min(&a, &b) };
        if let Some(dims) = dims {
            if let Some(best) = dims.iter().cloned().reduce(best).filter(Dim::is_handy) {
                return Ok(Value::dim(best));
            }
            let fixed = dims.iter().map(|d| tracer.fix(d));
            let best = if largest { fixed.max() } else { fixed.min() };
            return Ok(Value::int(best.unwrap_or_default()));
        }
    }
    let op = if largest { Compare::Gt } else { Compare::Lt };
    let mut best: Option<(Value, Value)> = None;
    tracer.for_each(&iterable, |t, item| {
        let by = match &key {
            Some(key) => t.call(key, Args::new(vec![item.clone()]))?,
            None => item.clone(),
        };
        let better = match &best {
            Some((bound, _)) => {
                let better = t.compare(op, &by, bound)?;
                t.truth(&better)?
            }
            None => true,
        };
        if better {
            best = Some((by, item));
        }
        Ok(())
    })?;
    match (best, default) {
        (Some((_, item)), _) => Ok(item),
        (None, Some(default)) => Ok(default),
        (None, None) => {
            let message = format!("{}() {}", name(path), tracer.builtins().extreme_of_nothing);
            tracer.raise_named("ValueError", &message)
        }
    }
}

fn math(tracer: &mut Tracer<'_>, path: &str, mut args: Args) -> Flow<Value> {
    let function = name(path);
    if let [Value::Int(dim)] = args.pos.as_slice()
        && matches!(function, "floor" | "ceil" | "trunc")
    {
        return Ok(Value::dim(dim.clone()));
    }
    if function == "isclose" && !args.kw.is_empty() {
        return unsupported(path);
    }
    let of_ints = matches!(function, "gcd" | "lcm" | "isqrt" | "factorial" | "comb");
    for at in 0..args.pos.len() {
        let value = args.pos[at].clone();
        if !matches!(value, Value::Instance(_)) {
            // It raises before the next ones are converted.
            let is_float = matches!(value, Value::Const(Const::Float(_)));
            let raises = !value.is_int() && !matches!(value, Value::Const(Const::Bool(_))) && (of_ints || !is_float);
            if raises && args.pos[at..].iter().any(|later| matches!(later, Value::Instance(_))) {
                return unsupported(path);
            }
            continue;
        }
        args.pos[at] = match function {
            "floor" | "ceil" | "trunc" => match own_conversion(tracer, &value, &format!("__{function}__"))? {
                Some(result) => return Ok(result),
                None => match tracer.base(&value) {
                    base @ (Value::Const(_) | Value::Int(_)) => base,
                    base if function == "trunc" => base,
                    _ => real(tracer, path, &value)?,
                },
            },
            _ if of_ints => whole(tracer, path, &value)?,
            "log" | "log2" | "log10" if tracer.base(&value).is_int() => tracer.base(&value),
            _ => real(tracer, path, &value)?,
        };
    }
    let consts = constants(tracer, path, args)?;
    folded(tracer, fold::math(function, &consts), path, &consts)
}

fn prod(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    if args.pos.len() > 1 {
        return unsupported(path);
    }
    let [iterable, start] = bind(path, args, ["", "start"], 1)?;
    let Some(iterable) = iterable else { return unsupported(path) };
    let mut product = start.unwrap_or(Value::int(1));
    tracer.for_each(&iterable, |t, item| {
        product = t.binary(Binary::Multiply, false, &product, &item)?;
        Ok(())
    })?;
    Ok(product)
}
