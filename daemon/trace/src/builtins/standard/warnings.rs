//! `warnings.warn`: a call of the graph, which warns at the same line of the same module. Python's filters are asked there; if
//! one makes an exception of it the frame is run again as plain Python, which raises it.

use crate::builtins::Table;
use crate::builtins::args::bind;
use crate::state::tracer::Tracer;
use crate::value::flow::{Flow, stop};
use crate::value::{Args, Value};
use flambeau_ir::code::Const;
use flambeau_ir::frame::BackendKind;
use flambeau_ir::graph::{Arg, Effect, Target, ValueMeta, WARNS};
use flambeau_ir::reason::ReasonCode;

pub const TABLE: Table = &[("_warnings.warn", warn), ("warnings.warn", warn)];

/// `warnings.warn(message, category=None, stacklevel=1)`
fn warn(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let visible = || stop(ReasonCode::UnsupportedCall, path);
    let [Some(message), category, level] = bind(path, args, ["message", "category", "stacklevel"], 1)? else {
        return visible();
    };
    let message = tracer.read(&message)?;
    let level = level.map_or(Some(1), |level| level.as_int());
    let (Value::Const(Const::Str(_)), Some(level)) = (&message, level) else { return visible() };
    let is_graphs = tracer.frame.options.backend != BackendKind::Fx && !tracer.in_one_call;
    let is_free = !tracer.graph.before.commits && !tracer.graph.in_checkpoint;
    let (true, true, Some((file, line, globals))) = (is_graphs, is_free, tracer.warns_at(level)) else {
        return visible();
    };
    let category = match &category {
        Some(category) if !category.is_none() => tracer.passed_on(category)?,
        _ => Arg::Const(Const::None),
    };
    let globals = tracer.passed_on(&globals)?;
    let message = tracer.passed_on(&message)?;
    let args = vec![message, category, Arg::Const(Const::str(&file)), Arg::Const(Const::Int(line.into())), globals];
    tracer.note_call(Effect::None, true);
    tracer.graph_call(&Target::Function(WARNS.into()), args, vec![], ValueMeta::Const(Const::None))?;
    Ok(Value::NONE)
}

impl Tracer<'_> {
    /// The file, the line and the globals of the frame that a warning of this level is of. `None`: it is not of this trace, or
    /// Python would count frames otherwise (`setup_context` in CPython's `Python/_warnings.c`).
    fn warns_at(&self, level: i64) -> Option<(String, u32, Value)> {
        let above = usize::try_from(level.max(1)).unwrap_or(usize::MAX);
        let at = self.stack.len().checked_sub(above)?;
        let is_internal = |file: &str| file.contains("importlib") && file.contains("_bootstrap");
        // Functions of flambeau that stand for C's, which have no frames.
        let is_counted = |file: &str| !is_internal(file) && !file.contains("/flambeau/");
        if !self.stack[at..].iter().all(|info| is_counted(&info.file)) {
            return None;
        }
        let info = &self.stack[at];
        Some((info.file.to_string(), info.line, Value::Dict(info.globals)))
    }
}
