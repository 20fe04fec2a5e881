//! `types.MappingProxyType`: a view of a dict, its one part.

use super::super::args::{bind, receiver};
use super::super::{Table, unsupported};
use crate::state::kind::Kind;
use crate::state::tracer::Tracer;
use crate::value::flow::Flow;
use crate::value::parts::{PROXY, Parts};
use crate::value::{Args, Value};

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

    /// No attribute gives the mapping.
    fn names(&self) -> &'static [&'static str] {
        &[]
    }

    /// What a class written in Python defines would be asked at each access.
    fn is_usual(&self, tracer: &Tracer<'_>, items: &[Value]) -> bool {
        let plain = |id| tracer.arenas.dicts[id].class.as_ref().is_none_or(|class| !class.is_python);
        matches!(items, [Value::Dict(id)] if plain(*id))
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
        Some(mapping) if Proxy.is_usual(tracer, std::slice::from_ref(&mapping)) => Ok(Value::parts(PROXY, [mapping])),
        _ => unsupported(path),
    }
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
