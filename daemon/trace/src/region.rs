//! Regions that change how graph breaks are taken, where the traced code enters and leaves them.

use crate::call::Args;
use crate::flow::Flow;
use crate::tracer::Tracer;
use crate::value::Value;
use flambeau_ir::frame::TraceOptions;

/// How breaks are taken where the trace is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    /// As [`TraceOptions::nested_breaks`].
    pub(crate) nested: bool,
    /// As [`TraceOptions::error_on_break`].
    pub(crate) error: bool,
}

impl Region {
    /// Where the frame is called.
    pub(crate) fn of(options: &TraceOptions) -> Region {
        Region { nested: options.nested_breaks, error: options.error_on_break }
    }
}

impl Tracer<'_> {
    /// The client's switches: each sets one and gives what held before. `None`: another function.
    pub(crate) fn fold_region(&mut self, path: &str, args: &Args) -> Flow<Option<Value>> {
        let Some(name) = path.strip_prefix("flambeau._native.") else { return Ok(None) };
        let ("set_nested_breaks" | "set_error_on_break", [value]) = (name, args.pos.as_slice()) else {
            return Ok(None);
        };
        let on = self.truth(&value.clone())?;
        let switch = if name == "set_nested_breaks" { &mut self.region.nested } else { &mut self.region.error };
        Ok(Some(Value::bool(std::mem::replace(switch, on))))
    }
}
