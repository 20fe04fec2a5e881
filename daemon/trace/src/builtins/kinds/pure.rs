//! Immutable objects of C: patterns and matches of `re`, dates and times, numbers of NumPy. A trace knows how such an object
//! is made; what can be done with it, the client does with one that is made so.

use super::super::args::exactly;
use super::super::{Table, fixed_const, plain_value, unsupported};
use crate::state::kind::Kind;
use crate::state::tracer::Tracer;
use crate::value::flow::{Flow, Stop, stop};
use crate::value::parts::Parts;
use crate::value::{Args, Builtin, Value};
use flambeau_ir::code::Const;
use flambeau_ir::oracle::Plain;
use flambeau_ir::reason::ReasonCode;
use std::rc::Rc;
use std::sync::Arc;

/// The type at this path. Parts: the path of a function, and the arguments that it makes the object of.
pub struct Pure(pub &'static str);

impl Kind for Pure {
    fn path(&self) -> &'static str {
        self.0
    }

    fn names(&self) -> &'static [&'static str] {
        &[]
    }

    fn is_pure(&self) -> bool {
        true
    }

    fn maker(&self, this: &Parts) -> Arc<str> {
        this.items.first().and_then(Value::as_str).cloned().unwrap_or_else(|| self.0.into())
    }

    /// Torch takes NumPy's numbers for numbers; where it makes a tensor of one, it has the dtype of NumPy's.
    fn number(&self, this: &Parts) -> Option<Value> {
        // NumPy's booleans are no numbers to torch.
        let is_number = self.0.starts_with("numpy.float") || self.0.starts_with("numpy.int");
        this.items.get(1).filter(|value| is_number && matches!(value, Value::Const(_))).cloned()
    }

    fn rebuild(&self, _: &mut Tracer<'_>, this: &Parts) -> Flow<Option<Vec<Value>>> {
        Ok(Some(this.items[1..].to_vec()))
    }

    fn attribute(&self, tracer: &mut Tracer<'_>, this: &Rc<Parts>, name: &str) -> Flow<Option<Value>> {
        // The pattern that made a match is the object itself.
        if self.0 == "re.Match"
            && name == "re"
            && let Some(pattern @ Value::Parts(of)) = this.items.get(1)
            && of.of == "re.Pattern"
        {
            return Ok(Some(pattern.clone()));
        }
        let value = Value::Parts(this.clone());
        let found = operation(tracer, "flambeau._pure.attribute", &[&value, &Value::str(name)]);
        match found {
            // It gives `...` for a method.
            Ok(Some(Value::Const(Const::Ellipsis))) => {
                Ok(Some(Value::bound_builtin(&format!("{}.{name}", self.0), value)))
            }
            Ok(Some(Value::Const(Const::NotImplemented))) => {
                let path = format!("{}.{name}", self.0).into();
                Ok(Some(Value::Builtin(Rc::new(Builtin { path, receiver: None, unbound: false, origin: None }))))
            }
            Err(Stop::Raise(_)) => Ok(None),
            found => found,
        }
    }
}

pub const TABLE: Table = &[("re._compile", pattern)];

/// What `re`'s functions begin with: the pattern of a text. It keeps them, which nobody can tell.
fn pattern(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [pattern, flags] = exactly(path, args)?;
    let flags = fixed_const(tracer, &flags);
    match (&pattern, fixed_const(tracer, &pattern), flags) {
        (Value::Parts(parts), _, Some(Const::Int(0))) if parts.of == "re.Pattern" => Ok(pattern),
        (_, Some(text @ (Const::Str(_) | Const::Bytes(_))), Some(flags @ Const::Int(_))) => {
            tracer.eval("flambeau._pure.pattern", vec![text, flags])
        }
        _ => unsupported(path),
    }
}

/// What an operator of module `operator` gives, as [`operation`].
pub fn operator(tracer: &mut Tracer<'_>, name: &str, operands: &[&Value]) -> Flow<Option<Value>> {
    if !operands.iter().any(|value| matches!(value, Value::Parts(_))) {
        return Ok(None);
    }
    // Names that are keywords of Python.
    let name = if matches!(name, "and" | "or") { format!("{name}_") } else { name.to_owned() };
    operation(tracer, &format!("_operator.{name}"), operands)
}

/// What a pure function gives for operands of which one is such an object; `None` where none is. What its type does with other
/// objects, only that knows.
pub fn operation(tracer: &mut Tracer<'_>, path: &str, operands: &[&Value]) -> Flow<Option<Value>> {
    let is_pure = |value: &Value| matches!(value, Value::Parts(parts) if tracer.kind_of(parts).is_pure());
    if !operands.iter().any(|value| is_pure(value)) {
        return Ok(None);
    }
    let mut plain = Vec::with_capacity(operands.len());
    for value in operands {
        match plain_value(tracer, value, true, super::super::MOST_PLAIN)? {
            Some(value) => plain.push(value),
            None => {
                let names: Vec<String> = operands.iter().map(|value| tracer.type_name(value)).collect();
                return stop(ReasonCode::UnsupportedObject, format!("{path} of {}", names.join(" and ")));
            }
        }
    }
    let given: Vec<Value> = operands.iter().map(|value| (*value).clone()).collect();
    note_version(tracer, path, &given)?;
    tracer.eval_plain(path, plain, vec![]).map(|made| Some(made_of(made, path, &given)))
}

/// What NumPy makes of numbers is what this version makes of them.
pub fn note_version(tracer: &mut Tracer<'_>, path: &str, operands: &[Value]) -> Flow<()> {
    let is_of_numpy = |value: &Value| matches!(value, Value::Parts(parts) if parts.of.starts_with("numpy."));
    if path.starts_with("numpy.") || operands.iter().any(is_of_numpy) {
        let module = tracer.sys_module("numpy")?;
        tracer.get_attr(&module, "__version__")?;
    }
    Ok(())
}

/// A result that only the call itself makes, made of the very operands.
pub fn made_of(made: Value, path: &str, operands: &[Value]) -> Value {
    match &made {
        Value::Parts(parts)
            if parts.items.first().and_then(Value::as_str).is_some_and(|maker| **maker == *path)
                && parts.items.len() == operands.len() + 1 =>
        {
            let items = parts.items[..1].iter().chain(operands).cloned();
            Value::parts(parts.of, items.collect::<Vec<_>>())
        }
        _ => made,
    }
}

/// Such an object as a call of what makes it.
pub fn as_plain(tracer: &mut Tracer<'_>, this: &Parts) -> Flow<Option<Plain>> {
    let kind = tracer.kind_of(this);
    if !kind.is_pure() {
        return Ok(None);
    }
    let mut args = Vec::with_capacity(this.items.len());
    for item in &this.items[1..] {
        match plain_value(tracer, item, true, super::super::MOST_PLAIN)? {
            Some(item) => args.push(item),
            None => return Ok(None),
        }
    }
    Ok(Some(Plain::Object(kind.path().into(), kind.maker(this), args)))
}

/// A key that is such an object, as what it is looked up as: a number that has the same hash. Others are not known.
pub fn as_key(tracer: &mut Tracer<'_>, key: &Value) -> Flow<Option<Value>> {
    let Value::Parts(parts) = key else { return Ok(None) };
    let kind = tracer.kind_of(parts);
    match kind.number(parts) {
        None if kind.is_pure() => stop(ReasonCode::UnsupportedObject, format!("a {} as a key", kind.path())),
        number => Ok(number),
    }
}
