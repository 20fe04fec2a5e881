//! Calls of functions with an `lru_cache`: a result that is kept is a fact of the call, like an item of a dict. The call itself
//! is made where the frame ends, for the cache's own count and order.

use crate::state::tracer::Tracer;
use crate::value::flow::{Flow, stop};
use crate::value::{Args, Opaque, Value};
use flambeau_ir::code::Const;
use flambeau_ir::guard::GuardKind;
use flambeau_ir::oracle::{AnswerValue, Question};
use flambeau_ir::reason::ReasonCode;
use flambeau_ir::source::Step;

impl Tracer<'_> {
    /// The result that is kept for these arguments; `None` if the callee has no cache, or what it is called with is no
    /// constant. Where none is kept yet the call is a graph break, until one is.
    pub(crate) fn call_cached(&mut self, callee: &Opaque, args: &Args) -> Flow<Option<Value>> {
        if !callee.class.is("functools._lru_cache_wrapper") || !args.kw.is_empty() {
            return Ok(None);
        }
        let Some(consts) = args.pos.iter().map(|arg| self.key_part(arg)).collect::<Option<Vec<Const>>>() else {
            return Ok(None);
        };
        // As `lru_cache_make_key` in CPython's `Modules/_functoolsmodule.c`.
        let key = match consts.as_slice() {
            [only @ (Const::Str(_) | Const::Int(_))] => only.clone(),
            _ => Const::Tuple(consts),
        };
        let origin = callee.origin;
        match self.ask_one(Question::Cached { function: origin.object, key: key.clone() })? {
            AnswerValue::Object(Some(result)) => {
                let source = self.step(origin.source, Step::Cached(key));
                let result = self.wrap(result, source)?;
                self.recalled.push((origin, args.pos.clone()));
                Ok(Some(result))
            }
            _ => {
                self.guard(origin.source, GuardKind::NotCached(key));
                let name = self.name_of_opaque(callee)?;
                stop(ReasonCode::UnsupportedCall, format!("{name}, which keeps no result for these arguments yet"))
            }
        }
    }

    fn key_part(&mut self, value: &Value) -> Option<Const> {
        match value {
            Value::Int(dim) => Some(Const::Int(self.fix(dim))),
            Value::Const(Const::Float(x)) if x.is_nan() => None,
            Value::Const(
                c @ (Const::Str(_) | Const::Int(_) | Const::Float(_) | Const::Bytes(_) | Const::Bool(_) | Const::None),
            ) => Some(c.clone()),
            Value::Tuple(tuple) if tuple.class.is_none() => {
                tuple.items.iter().map(|item| self.key_part(item)).collect::<Option<_>>().map(Const::Tuple)
            }
            _ => None,
        }
    }
}
