//! Callables of C that Python functions of the same behaviour stand for (`shim/python/flambeau/polyfills`): these are traced
//! in their place. No break resumes within one: the call of the C function is what breaks.

use crate::state::tracer::Tracer;
use crate::value::flow::{Flow, Stop, stop};
use crate::value::{Args, Polyfill, Value};
use flambeau_ir::reason::{Reason, ReasonCode};

/// The detail of a break at a call whose arguments a polyfill leaves to C.
pub(crate) const REFUSED: &str = "these arguments";

/// Items of one iterator; C takes no time for more.
const MOST_ITEMS: usize = 2000;

impl Tracer<'_> {
    /// The function that stands for the callable of C at this path. It reads what the callable goes through: where that is
    /// another at each call, plain Python does.
    pub(crate) fn polyfill(&mut self, path: &str) -> Flow<Option<Value>> {
        if self.frame.options.cautious || path.starts_with("torch.") || path.starts_with("flambeau.") {
            return Ok(None);
        }
        let module = self.sys_module("flambeau.polyfills")?;
        match self.get_attr(&module, "TABLE")? {
            Value::Dict(table) => self.dict_get_str(table, path),
            _ => Ok(None),
        }
    }

    pub(crate) fn call_polyfill(&mut self, path: &str, polyfill: &Value, args: Args) -> Flow<Value> {
        let Value::Function(function) = polyfill else { return self.call(polyfill, args) };
        let refused = || stop(ReasonCode::UnsupportedCall, format!("{path} with these arguments"));
        self.prefetch_code(function, None)?;
        let locals = match self.bind(function, args) {
            // C says it in other words.
            Err(Stop::Raise(_)) => return refused(),
            bound => bound?,
        };
        let frame = self.new_frame(function.clone(), locals)?;
        self.direct = false;
        let mut result = self.run_call(frame);
        if let Err(Stop::Break(reason)) = &mut result {
            self.at_the_call(path, reason);
        }
        result
    }

    /// The reason of a break within a polyfill, in words of the call that it stands for.
    fn at_the_call(&self, path: &str, reason: &mut Reason) {
        if reason.detail == REFUSED {
            reason.detail = format!("{path} with these arguments");
        }
        reason.stack.truncate(self.stack.len());
    }

    /// The next item of an iterator of C that a polyfill stands for.
    pub(crate) fn advance_polyfill(&mut self, polyfill: &mut Polyfill) -> Flow<Option<Value>> {
        polyfill.given += 1;
        if polyfill.given > MOST_ITEMS {
            return stop(ReasonCode::LiveIterator, polyfill.class.name.qualname.to_string());
        }
        let step = self.get_attr(&polyfill.kind, "step")?;
        self.direct = false;
        let mut item = self.call(&step, Args::new(vec![polyfill.state.clone()]));
        if let Err(Stop::Break(reason)) = &mut item {
            self.at_the_call(&polyfill.class.name.qualname, reason);
        }
        self.catch(item, "StopIteration")
    }
}
