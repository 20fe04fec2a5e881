//! `types.MappingProxyType`: a view of a dict, its one part.

use super::super::args::{bind, receiver};
use super::super::{Table, unsupported};
use crate::state::kind::Kind;
use crate::state::tracer::Tracer;
use crate::value::flow::Flow;
use crate::value::parts::{PROXY, Parts};
use crate::value::{Args, Origin, Value};
use std::rc::Rc;

pub struct Proxy;

pub const TABLE: Table = &[
    ("builtins.mappingproxy", proxy),
    ("builtins.mappingproxy.get", proxied),
    ("builtins.mappingproxy.items", proxied),
    ("builtins.mappingproxy.keys", proxied),
    ("builtins.mappingproxy.values", proxied),
    ("builtins.mappingproxy.copy", proxied),
];

impl Kind for Proxy {
    fn path(&self) -> &'static str {
        PROXY
    }

    fn import(&self) -> &'static str {
        "types.MappingProxyType"
    }

    /// What a class written in Python defines would be asked at each access.
    fn wrap(&self, tracer: &mut Tracer<'_>, items: Vec<Value>, origin: Origin) -> Flow<Option<Value>> {
        let usual = matches!(items.as_slice(), [mapping] if is_usual(tracer, mapping));
        Ok(usual.then(|| Value::Parts(Rc::new(Parts { of: PROXY, items, origin: Some(origin) }))))
    }

    fn iterator(&self, tracer: &mut Tracer<'_>, this: &Parts) -> Flow<Option<Value>> {
        tracer.iter(&this.items[0]).map(Some)
    }

    fn length(&self, tracer: &mut Tracer<'_>, this: &Parts) -> Flow<Option<Value>> {
        tracer.length(&this.items[0]).map(Some)
    }

    fn contains(&self, tracer: &mut Tracer<'_>, this: &Parts, item: &Value) -> Flow<Option<bool>> {
        tracer.contains(&this.items[0], item).map(Some)
    }

    fn subscript(&self, tracer: &mut Tracer<'_>, this: &Parts, key: &Value) -> Flow<Option<Value>> {
        tracer.subscript(&this.items[0], key).map(Some)
    }

    /// `mappingproxy_richcompare` in CPython's `Objects/descrobject.c` compares the mapping.
    fn compared_as(&self, this: &Parts) -> Option<Value> {
        Some(this.items[0].clone())
    }
}

/// `types.MappingProxyType(mapping)`
fn proxy(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [mapping] = bind(path, args, ["mapping"], 0)?;
    match mapping {
        Some(mapping) if is_usual(tracer, &mapping) => Ok(Value::parts(PROXY, [mapping])),
        _ => unsupported(path),
    }
}

fn is_usual(tracer: &Tracer<'_>, mapping: &Value) -> bool {
    matches!(mapping, Value::Dict(id) if tracer.arenas.dicts[*id].class.as_ref().is_none_or(|c| !c.is_python))
}

/// A method of a proxy: its mapping's.
fn proxied(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (receiver, rest) = receiver(path, args)?;
    let mapping = match (&receiver, receiver.parts_of(PROXY)) {
        (_, Some([mapping])) => mapping.clone(),
        (Value::Dict(_), None) => receiver,
        _ => return unsupported(path),
    };
    let name = path.rsplit('.').next().unwrap_or(path);
    let method = tracer.get_attr(&mapping, name)?;
    tracer.call(&method, rest)
}
