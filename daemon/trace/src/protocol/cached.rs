//! Calls of functions with an `lru_cache`: a result that is kept is a fact of the call, like an item of a dict; of others the
//! function is traced. The call itself is made where the frame ends, for the cache's own count and order.

use crate::state::tracer::{Recalled, Tracer};
use crate::value::flow::{Flow, stop};
use crate::value::{Args, Opaque, Origin, Value};
use flambeau_ir::code::Const;
use flambeau_ir::guard::GuardKind;
use flambeau_ir::oracle::{AnswerValue, Question};
use flambeau_ir::reason::ReasonCode;
use flambeau_ir::source::{CallKey, KeyPart, Likeness, SourceId, Step};

/// The type of functions with an `lru_cache`.
pub(super) const LRU_CACHE: &str = "functools._lru_cache_wrapper";

/// Functions that are left to Python one by one; with the last of them all are.
const MOST_ATTEMPTS: usize = 4;

impl Tracer<'_> {
    /// The result that is kept for these arguments; `None` if the callee has no cache, or what it is called with is neither
    /// a number nor an object from outside that is compared by identity. Where
    /// none is kept yet the function is traced, and where that cannot be the call is a graph break, until one is.
    pub(crate) fn call_cached(&mut self, callee: &Opaque, args: &Args) -> Flow<Option<Value>> {
        if !callee.class.is(LRU_CACHE) {
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
        if let Some(found) = self.found_before(origin, &key)? {
            self.recalled.push(Recalled { function: origin, args: args.clone(), found: None });
            return Ok(Some(found));
        }
        let question = Question::Cached { function: origin.object, key: key.map(&mut |object: &Origin| object.object) };
        match self.ask_one(question)? {
            AnswerValue::Object(Some(result)) => {
                let source = self.step(origin.source, Step::Cached(sources));
                let result = self.wrap(result, source)?;
                self.recalled.push(Recalled { function: origin, args: args.clone(), found: None });
                return Ok(Some(result));
            }
            AnswerValue::NotCached(function, room)
                if !self.frame.options.cautious && !self.is_left_to_python(origin) =>
            {
                let source = self.step(origin.source, Step::Uncached);
                let function = self.wrap(function, source)?;
                if let Some(result) = self.find_out(origin, &function, args, room, key)? {
                    return Ok(Some(result));
                }
            }
            _ => {}
        }
        if !self.frame.options.cautious {
            self.guard(origin.source, GuardKind::NotCached { key: sources, room: None });
        }
        let name = self.name_of_opaque(callee)?;
        stop(ReasonCode::UnsupportedCall, format!("{name}, which keeps no result for these arguments yet"))
    }

    /// What the function gives for a call of which its cache keeps no result, traced; it is kept from where the frame ends
    /// on. `None` where it does not fit in. What breaks or raises is left to Python, from another attempt on.
    fn find_out(
        &mut self,
        cached: Origin,
        function: &Value,
        args: &Args,
        room: u32,
        key: CallKey<Origin>,
    ) -> Flow<Option<Value>> {
        self.direct = false;
        let called = self.call(function, args.clone());
        if called.is_err() {
            self.leave_to_python(cached);
        }
        let result = called?;
        let of_cache = |recalled: &&Recalled| recalled.function.object == cached.object && recalled.found.is_some();
        let more = 1 + self.recalled.iter().filter(of_cache).count();
        if more > room as usize {
            return Ok(None);
        }
        let sources = key.map(&mut |object: &Origin| object.source);
        self.guard(cached.source, GuardKind::NotCached { key: sources, room: Some(more as u32) });
        let found = Some((key, result.clone()));
        self.recalled.push(Recalled { function: cached, args: args.clone(), found });
        Ok(Some(result))
    }

    /// Another attempt calls this function, which has a cache, in plain Python.
    pub(crate) fn leave_to_python(&mut self, cached: Origin) {
        self.left_to_python.insert(cached.object);
        self.has_learnt = true;
    }

    fn is_left_to_python(&self, cached: Origin) -> bool {
        self.left_to_python.contains(&cached.object) || self.left_to_python.len() == MOST_ATTEMPTS
    }

    /// What the trace found out before that the call gives.
    fn found_before(&mut self, cached: Origin, key: &CallKey<Origin>) -> Flow<Option<Value>> {
        let mut different = Vec::new();
        let mut result = None;
        for recalled in &self.recalled {
            let Some((known, found)) = &recalled.found else { continue };
            let mut apart = Vec::new();
            match alike(known, key, &mut apart) {
                Likeness::Unclear => {
                    return stop(ReasonCode::UnsupportedCall, "an lru_cache with equal arguments of other types");
                }
                Likeness::Same if recalled.function.object == cached.object => result = Some(found.clone()),
                Likeness::Same => different.push((recalled.function.source, cached.source)),
                Likeness::Other if recalled.function.object == cached.object => different.extend(apart),
                Likeness::Other => {}
            }
        }
        for (a, b) in different {
            self.guard(a, GuardKind::NotSame(b));
        }
        Ok(result)
    }

    fn key_part(&mut self, value: &Value) -> Flow<Option<KeyPart<Origin>>> {
        Ok(match value {
            Value::Const(Const::Float(x)) if x.is_nan() => None,
            // What is kept for a size says nothing of others.
            Value::Int(dim) if !self.frame.options.cautious => Some(KeyPart::Const(Const::Int(self.fix(dim)))),
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

/// Whether a cache takes both for one call. `apart` gets objects that have to be two for that.
fn alike(a: &CallKey<Origin>, b: &CallKey<Origin>, apart: &mut Vec<(SourceId, SourceId)>) -> Likeness {
    let words = a.keywords.iter().map(|(word, _)| word);
    if a.args.len() != b.args.len() || !words.eq(b.keywords.iter().map(|(word, _)| word)) {
        return Likeness::Other;
    }
    let keywords = a.keywords.iter().map(|(_, part)| part).zip(b.keywords.iter().map(|(_, part)| part));
    all_alike(a.args.iter().zip(&b.args).chain(keywords), apart)
}

fn all_alike<'a>(
    pairs: impl Iterator<Item = (&'a KeyPart<Origin>, &'a KeyPart<Origin>)>,
    apart: &mut Vec<(SourceId, SourceId)>,
) -> Likeness {
    let mut like = Likeness::Same;
    for (a, b) in pairs {
        like = like.and(part_alike(a, b, apart));
        if like == Likeness::Other {
            break;
        }
    }
    like
}

fn part_alike(a: &KeyPart<Origin>, b: &KeyPart<Origin>, apart: &mut Vec<(SourceId, SourceId)>) -> Likeness {
    let number = |value: &Const| match value {
        Const::Bool(value) => Some(f64::from(u8::from(*value))),
        Const::Int(value) => Some(*value as f64),
        Const::Float(value) => Some(*value),
        _ => None,
    };
    match (a, b) {
        (KeyPart::Const(a), KeyPart::Const(b)) if a == b => Likeness::Same,
        (KeyPart::Const(a), KeyPart::Const(b)) => match (number(a), number(b)) {
            (Some(a), Some(b)) if a == b => Likeness::Unclear,
            _ => Likeness::Other,
        },
        (KeyPart::Tuple(a), KeyPart::Tuple(b)) if a.len() == b.len() => all_alike(a.iter().zip(b), apart),
        (KeyPart::Object(a), KeyPart::Object(b)) if a.object == b.object => Likeness::Same,
        (KeyPart::Object(a), KeyPart::Object(b)) => {
            apart.push((a.source, b.source));
            Likeness::Other
        }
        _ => Likeness::Other,
    }
}
