//! Calls of functions with an `lru_cache`: a result that is kept is a fact of the call, like an item of a dict. The call itself
//! is made where the frame ends, for the cache's own count and order.

use crate::state::tracer::{Recalled, Tracer};
use crate::value::flow::{Flow, stop};
use crate::value::{Args, Opaque, Origin, Value};
use flambeau_ir::code::Const;
use flambeau_ir::guard::GuardKind;
use flambeau_ir::oracle::{AnswerValue, Question};
use flambeau_ir::reason::ReasonCode;
use flambeau_ir::source::{CallKey, KeyPart, Step};

impl Tracer<'_> {
    /// The result that is kept for these arguments; `None` if the callee has no cache, or what it is called with is neither
    /// a constant nor an object from outside that is compared by identity: an int that varies would be fixed by it. Where
    /// none is kept yet the call is a graph break, until one is.
    pub(crate) fn call_cached(&mut self, callee: &Opaque, args: &Args) -> Flow<Option<Value>> {
        if !callee.class.is("functools._lru_cache_wrapper") {
            return Ok(None);
        }
        let mut key = CallKey { args: Vec::new(), keywords: Vec::new() };
        for arg in &args.pos {
            let Some(part) = self.key_part(arg)? else { return Ok(None) };
            key.args.push(part);
        }
        for (word, arg) in &args.kw {
            let Some(part) = self.key_part(arg)? else { return Ok(None) };
            key.keywords.push((word.clone(), part));
        }
        let origin = callee.origin;
        let sources = key.map(&mut |object: &Origin| object.source);
        let question = Question::Cached { function: origin.object, key: key.map(&mut |object: &Origin| object.object) };
        match self.ask_one(question)? {
            AnswerValue::Object(Some(result)) => {
                let source = self.step(origin.source, Step::Cached(sources));
                let result = self.wrap(result, source)?;
                self.recalled.push(Recalled { function: origin, args: args.clone() });
                Ok(Some(result))
            }
            _ => {
                if !self.frame.options.cautious {
                    self.guard(origin.source, GuardKind::NotCached(sources));
                }
                let name = self.name_of_opaque(callee)?;
                stop(ReasonCode::UnsupportedCall, format!("{name}, which keeps no result for these arguments yet"))
            }
        }
    }

    fn key_part(&mut self, value: &Value) -> Flow<Option<KeyPart<Origin>>> {
        Ok(match value {
            Value::Const(Const::Float(x)) if x.is_nan() => None,
            Value::Const(
                c @ (Const::Str(_)
                | Const::Int(_)
                | Const::Float(_)
                | Const::Bytes(_)
                | Const::Bool(_)
                | Const::None
                | Const::Dtype(_)),
            ) => Some(KeyPart::Const(c.clone())),
            Value::Const(Const::Tuple(items)) => {
                let items: Vec<Value> = items.iter().map(|item| Value::Const(item.clone())).collect();
                self.key_parts(&items)?
            }
            Value::Tuple(tuple) if tuple.class.as_ref().is_none_or(|class| class.is("torch.Size")) => {
                self.key_parts(&tuple.items)?
            }
            _ if self.is_compared_by_identity(value)? => self.origin_of(value).map(KeyPart::Object),
            _ => None,
        })
    }

    fn key_parts(&mut self, items: &[Value]) -> Flow<Option<KeyPart<Origin>>> {
        let mut parts = Vec::with_capacity(items.len());
        for item in items {
            let Some(part) = self.key_part(item)? else { return Ok(None) };
            parts.push(part);
        }
        Ok(Some(KeyPart::Tuple(parts)))
    }

    fn is_compared_by_identity(&mut self, value: &Value) -> Flow<bool> {
        let class = match value {
            Value::Function(_) => return Ok(true),
            Value::Class(class) => match self.own_metaclass(class)? {
                None => return Ok(true),
                Some(metaclass) => metaclass,
            },
            Value::Instance(id) if matches!(self.arenas.instances[*id].payload, crate::value::Payload::None) => {
                self.arenas.instances[*id].class.clone()
            }
            Value::Opaque(opaque) => opaque.class.clone(),
            _ => return Ok(false),
        };
        for name in ["__hash__", "__eq__"] {
            match self.type_lookup(&class, name)? {
                Some((owner, _)) if owner.is("builtins.object") || owner.is("builtins.type") => {}
                _ => return Ok(false),
            }
        }
        Ok(true)
    }
}
