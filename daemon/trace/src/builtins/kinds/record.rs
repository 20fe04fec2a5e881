//! Ranges for torch's profiler (`torch.profiler.record_function`), where none runs: nothing sees them begin and end.

use super::super::args::exactly;
use super::super::{Table, unsupported};
use crate::state::kind::Kind;
use crate::state::tracer::Tracer;
use crate::value::flow::Flow;
use crate::value::{Args, Value};
use flambeau_ir::code::Const;
use flambeau_ir::guard::GuardKind;

/// What torch keeps of a range that was begun; plain Python that has to end it begins it first.
pub struct Record;

const RECORD: &str = "torch._C.ScriptObject";
const ENABLED: &str = "torch._C._autograd._profiler_enabled";

pub const TABLE: Table = &[
    ("torch.autograd.profiler.record_function.__enter__", begin),
    ("torch.autograd.profiler.record_function.__exit__", end),
];

impl Kind for Record {
    fn path(&self) -> &'static str {
        RECORD
    }

    fn import(&self) -> &'static str {
        "torch.ops.profiler._record_function_enter_new"
    }
}

fn begin(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [range] = exactly(path, args)?;
    need_no_profiler(tracer, path)?;
    let parts = [tracer.get_attr(&range, "name")?, tracer.get_attr(&range, "args")?];
    tracer.set_attr(&range, "record", Value::parts(RECORD, parts))?;
    Ok(range)
}

fn end(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [range, _, _, _] = exactly(path, args)?;
    need_no_profiler(tracer, path)?;
    let record = tracer.get_attr(&range, "record")?;
    let calls_back = tracer.get_attr(&range, "run_callbacks_on_exit")?;
    // One that was begun in plain Python ends with the object at the latest.
    if record.is_none() || !tracer.truth(&calls_back)? {
        return unsupported(path);
    }
    Ok(Value::NONE)
}

/// Breaks where a profiler runs, torch's own or the one that newer versions have beside it.
fn need_no_profiler(tracer: &mut Tracer<'_>, path: &str) -> Flow<()> {
    let module = tracer.sys_module("torch.autograd.profiler")?;
    let other = tracer.find_attr(&module, "_active_cuspy_profiler_observer")?;
    let runs = tracer.eval(ENABLED, vec![])?;
    if other.is_some_and(|other| !other.is_none()) || !matches!(runs, Value::Const(Const::Bool(false))) {
        return unsupported(path);
    }
    let source = tracer.function_source();
    tracer.guard(source, GuardKind::Gives(ENABLED.into(), Const::Bool(false)));
    Ok(())
}
