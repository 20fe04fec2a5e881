//! `operator.itemgetter`, `attrgetter` and `methodcaller`: callables whose parts are what they were made of.

use super::super::{Table, unsupported};
use crate::state::kind::Kind;
use crate::state::tracer::Tracer;
use crate::value::flow::Flow;
use crate::value::parts::Parts;
use crate::value::{Args, Value};

pub struct ItemGetter;
pub struct AttrGetter;
pub struct MethodCaller;

const ITEM: &str = "operator.itemgetter";
const ATTRIBUTE: &str = "operator.attrgetter";
const METHOD: &str = "operator.methodcaller";

pub const TABLE: Table = &[(ITEM, item_getter), (ATTRIBUTE, attr_getter), (METHOD, method_caller)];

impl Kind for ItemGetter {
    fn path(&self) -> &'static str {
        ITEM
    }

    fn is_callable(&self) -> bool {
        true
    }

    fn call(&self, tracer: &mut Tracer<'_>, this: &Parts, args: Args) -> Flow<Option<Value>> {
        each(tracer, this, &args, item)
    }
}

impl Kind for AttrGetter {
    fn path(&self) -> &'static str {
        ATTRIBUTE
    }

    fn is_callable(&self) -> bool {
        true
    }

    fn call(&self, tracer: &mut Tracer<'_>, this: &Parts, args: Args) -> Flow<Option<Value>> {
        each(tracer, this, &args, attribute)
    }
}

impl Kind for MethodCaller {
    fn path(&self) -> &'static str {
        METHOD
    }

    fn is_callable(&self) -> bool {
        true
    }

    fn call(&self, tracer: &mut Tracer<'_>, this: &Parts, args: Args) -> Flow<Option<Value>> {
        let ([Value::Tuple(words), rest @ ..], [object], true) = (&this.items[..], &args.pos[..], args.kw.is_empty())
        else {
            return unsupported(METHOD);
        };
        let (named, positional) = rest.split_at(words.items.len());
        let (Some((name, given)), Some(words)) = (
            positional.split_first(),
            words.items.iter().map(|word| word.as_str().cloned()).collect::<Option<Vec<_>>>(),
        ) else {
            return unsupported(METHOD);
        };
        let Some(name) = name.as_str() else { return unsupported(METHOD) };
        let method = tracer.get_attr(object, name)?;
        let kw = words.into_iter().zip(named.iter().cloned()).collect();
        tracer.call(&method, Args { pos: given.to_vec(), kw }).map(Some)
    }

    /// One with keywords cannot be made by positional arguments.
    fn rebuild(&self, _: &mut Tracer<'_>, this: &Parts) -> Flow<Option<Vec<Value>>> {
        Ok(match &this.items[..] {
            [Value::Tuple(words), positional @ ..] if words.items.is_empty() => Some(positional.to_vec()),
            _ => None,
        })
    }
}

fn item(tracer: &mut Tracer<'_>, object: &Value, key: &Value) -> Flow<Value> {
    tracer.subscript(object, key)
}

fn attribute(tracer: &mut Tracer<'_>, object: &Value, names: &Value) -> Flow<Value> {
    let Some(names) = names.as_str() else { return unsupported(ATTRIBUTE) };
    names.split('.').try_fold(object.clone(), |found, name| tracer.get_attr(&found, name))
}

/// What `get` gives for the one argument and each part: by itself if there is one part, else in a tuple.
fn each(
    tracer: &mut Tracer<'_>,
    this: &Parts,
    args: &Args,
    get: fn(&mut Tracer<'_>, &Value, &Value) -> Flow<Value>,
) -> Flow<Option<Value>> {
    let ([object], true) = (&args.pos[..], args.kw.is_empty()) else { return unsupported(this.of) };
    if let [only] = &this.items[..] {
        return get(tracer, object, only).map(Some);
    }
    let found = this.items.iter().map(|part| get(tracer, object, part)).collect::<Flow<_>>()?;
    Ok(Some(Value::tuple(found)))
}

fn item_getter(_: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    made(ITEM, path, args, |_| true)
}

fn attr_getter(_: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    made(ATTRIBUTE, path, args, |args| args.iter().all(|name| name.as_str().is_some()))
}

/// `operator.methodcaller(name, *args, **kwargs)`
fn method_caller(_: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    if args.pos.first().is_none_or(|name| name.as_str().is_none()) {
        return unsupported(path);
    }
    // The keywords' names, their values, then the method's name and its positional arguments.
    let (words, values): (Vec<_>, Vec<_>) = args.kw.into_iter().map(|(word, value)| (Value::str(&word), value)).unzip();
    let items: Vec<_> = std::iter::once(Value::tuple(words)).chain(values).chain(args.pos).collect();
    Ok(Value::parts(METHOD, items))
}

fn made(of: &'static str, path: &str, args: Args, fits: impl Fn(&[Value]) -> bool) -> Flow<Value> {
    if args.pos.is_empty() || !args.kw.is_empty() || !fits(&args.pos) {
        return unsupported(path);
    }
    Ok(Value::parts(of, args.pos))
}
