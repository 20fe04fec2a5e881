//! Imports of modules that are loaded already; any other import runs code and is a named break.

use crate::state::tracer::Tracer;
use crate::value::Value;
use crate::value::flow::{Flow, stop};
use crate::value::frame::{Control, PyFrame};
use flambeau_ir::reason::ReasonCode;

pub(super) fn name(t: &mut Tracer<'_>, f: &mut PyFrame, i: u32) -> Flow<Control> {
    let names = f.pop()?;
    let level = f.pop()?.as_int().unwrap_or(0);
    let mut full = f.name(i)?.to_string();
    if level > 0 {
        let package = t.dict_get_str(f.function.globals, "__package__")?;
        let Some(package) = package.as_ref().and_then(Value::as_str) else {
            return stop(ReasonCode::UnsupportedObject, "a relative import without __package__");
        };
        let mut base: &str = package;
        for _ in 1..level {
            base = base.rsplit_once('.').map_or("", |(head, _)| head);
        }
        full = if full.is_empty() { base.to_string() } else { format!("{base}.{full}") };
    }
    need_unchanged(t, &full)?;
    let leaf = t.sys_module(&full)?;
    let from = matches!(&names, Value::Tuple(names) if !names.items.is_empty());
    let module = match full.split_once('.') {
        Some((top, _)) if !from => t.sys_module(top)?,
        _ => leaf,
    };
    if let Value::Tuple(names) = &names {
        // What is no attribute yet may be a submodule, which this instruction imports (`_handle_fromlist` in CPython's
        // `importlib/_bootstrap.py`).
        for name in names.items.iter().filter_map(Value::as_str).filter(|name| &***name != "*") {
            if t.find_attr(&module, name)?.is_none() {
                return stop(ReasonCode::SideEffect, format!("importing {name} from {full}"));
            }
        }
    }
    f.push(module);
    Ok(Control::Next)
}

/// Breaks where the trace wrote a module, or deleted it, in a dict from outside: that may be `sys.modules`.
fn need_unchanged(t: &Tracer<'_>, module: &str) -> Flow<()> {
    let is_it = |name: &Value| {
        name.as_str().is_some_and(|name| {
            module.strip_prefix(&**name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    };
    let mut written = t.arenas.dicts.iter().filter(|(_, dict)| dict.origin.is_some() && dict.owner.is_none());
    if written.any(|(_, dict)| dict.writes.values().any(|(name, _)| is_it(name))) {
        return stop(ReasonCode::SideEffect, format!("importing {module}, which the trace stored or deleted"));
    }
    Ok(())
}

pub(super) fn from(t: &mut Tracer<'_>, f: &mut PyFrame, i: u32) -> Flow<Control> {
    let module = f.peek(1)?.clone();
    let name = f.name(i)?.to_string();
    let value = match t.find_attr(&module, &name)? {
        Some(value) => value,
        None => match &module {
            Value::Module(m) => t.sys_module(&format!("{}.{name}", m.name))?,
            _ => return stop(ReasonCode::UnsupportedObject, format!("importing {name} from no module")),
        },
    };
    f.push(value);
    Ok(Control::Next)
}
