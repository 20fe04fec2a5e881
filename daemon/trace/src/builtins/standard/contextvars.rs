//! Context variables: what one gives is a fact of the call.

use crate::builtins::args::{bind, receiver};
use crate::builtins::{Table, unsupported};
use crate::state::tracer::Tracer;
use crate::value::flow::Flow;
use crate::value::{Args, Value};
use flambeau_ir::guard::GuardKind;
use flambeau_ir::oracle::{AnswerValue, Question};
use flambeau_ir::source::Step;

pub const TABLE: Table = &[("contextvars.ContextVar.get", get)];

/// `variable.get()`, whose own default counts only where the call has none.
fn get(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (variable, rest) = receiver(path, args)?;
    let [default] = bind(path, rest, [""], 0)?;
    let Some(origin) = tracer.origin_of(&variable) else { return unsupported(path) };
    let own_default = default.is_none();
    match tracer.ask_one(Question::ContextValue { variable: origin.object, own_default })? {
        AnswerValue::Object(Some(value)) => {
            let source = tracer.step(origin.source, Step::ContextValue { own_default });
            tracer.wrap(value, source)
        }
        _ => {
            tracer.guard(origin.source, GuardKind::NoContextValue { own_default });
            match default {
                Some(default) => Ok(default),
                None => tracer.raise_with("LookupError", vec![variable]),
            }
        }
    }
}
