//! `int | str` and the like: a tuple of types.

use crate::state::kind::Kind;
use crate::state::tracer::Tracer;
use crate::value::Value;
use crate::value::flow::Flow;
use crate::value::parts::Parts;
use flambeau_bytecode::Binary;
use flambeau_ir::code::Const;
use std::sync::Arc;

pub struct Union;

pub const UNION: &str = "types.UnionType";

impl Kind for Union {
    fn path(&self) -> &'static str {
        UNION
    }

    fn has_weak_references(&self) -> bool {
        true
    }

    /// Their order says nothing.
    fn equal(&self, tracer: &mut Tracer<'_>, a: &Parts, b: &Parts) -> Flow<Option<bool>> {
        let (a, b) = (tracer.collect(&a.items[0])?, tracer.collect(&b.items[0])?);
        let mut all = a.len() == b.len();
        for member in &a {
            let mut found = false;
            for other in &b {
                found = found || tracer.equal(member, other)?;
            }
            all = all && found;
        }
        Ok(Some(all))
    }

    /// No function takes the types at once.
    fn maker(&self, _: &Parts) -> Arc<str> {
        "functools.reduce".into()
    }

    fn rebuild(&self, _: &mut Tracer<'_>, this: &Parts) -> Flow<Option<Vec<Value>>> {
        Ok(Some(vec![Value::builtin("_operator.or_"), this.items[0].clone()]))
    }
}

/// `a | b` of types, of unions, or of one with `None`, without repeats; `None` for everything else.
pub fn operator(tracer: &mut Tracer<'_>, op: Binary, a: &Value, b: &Value) -> Flow<Option<Value>> {
    let is_of_types = |value: &Value| match value {
        Value::Class(_) => true,
        Value::Parts(parts) => parts.of == UNION,
        _ => false,
    };
    let is_none = |value: &Value| matches!(value, Value::Const(Const::None));
    let are_members = [a, b].into_iter().all(|value| is_of_types(value) || is_none(value));
    if op != Binary::Or || !are_members || is_none(a) && is_none(b) {
        return Ok(None);
    }
    let mut members: Vec<Value> = Vec::new();
    for value in [a, b] {
        let own = match value {
            Value::Parts(parts) => tracer.collect(&parts.items[0])?,
            Value::Class(_) => vec![value.clone()],
            none => vec![Value::Class(tracer.class_of(none)?)],
        };
        for member in own {
            let same: Option<Vec<bool>> = members.iter().map(|known| tracer.is_same(known, &member)).collect();
            match same {
                Some(same) if same.contains(&true) => {}
                Some(_) => members.push(member),
                None => return Ok(None),
            }
        }
    }
    Ok(Some(match <[Value; 1]>::try_from(members) {
        Ok([one]) => one,
        Err(several) => Value::parts(UNION, [Value::tuple(several)]),
    }))
}
