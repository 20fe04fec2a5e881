//! Exceptions and `with`.

use crate::state::tracer::Tracer;
use crate::value::Args;
use crate::value::flow::{Flow, Stop, stop};
use crate::value::frame::{Control, PyFrame};
use crate::value::{Class, Value};
use flambeau_ir::reason::ReasonCode;
use std::rc::Rc;

pub(super) fn raise(t: &mut Tracer<'_>, f: &mut PyFrame, n: u32) -> Flow<Control> {
    if n == 0 {
        let exception = t.handled()?;
        if exception.is_none() {
            return t.raise_named("RuntimeError", "No active exception to reraise");
        }
        return Err(Stop::Raise(exception));
    }
    let cause = if n == 2 { Some(f.pop()?) } else { None };
    let raised = f.pop()?;
    let base = t.exception_class("BaseException");
    let exception = match raised {
        Value::Class(ref class) if class.is_subclass(&base) => {
            let made = t.call(&raised, Args::default())?;
            if !t.class_of(&made)?.is_subclass(&base) {
                return t.raise_inexact("TypeError", "a class of exceptions that makes something else is raised");
            }
            made
        }
        other if t.class_of(&other)?.is_subclass(&base) => other,
        _ => return t.raise_named("TypeError", "exceptions must derive from BaseException"),
    };
    let cause = cause.map(|cause| cause_of(t, cause, &base)).transpose()?;
    if t.raised_mut(&exception).is_some() {
        if let Some(cause) = cause {
            t.set_cause(&exception, cause);
        }
        t.set_context(&exception);
        return Err(Stop::Raise(exception));
    }
    // Raising gives it a traceback and a context, which no effect does.
    stop(ReasonCode::Exception, "an exception that was not made in the trace is raised")
}

/// What `from` names, as `do_raise` in CPython's `Python/ceval.c` takes it.
fn cause_of(t: &mut Tracer<'_>, cause: Value, base: &Rc<Class>) -> Flow<Value> {
    let cause = match cause {
        Value::Class(ref class) if class.is_subclass(base) => t.call(&cause, Args::default())?,
        other => other,
    };
    if cause.is_none() || t.class_of(&cause)?.is_subclass(base) {
        return Ok(cause);
    }
    t.raise_named("TypeError", "exception causes must derive from BaseException")
}

pub(super) fn reraise(f: &mut PyFrame) -> Flow<Control> {
    Err(Stop::Raise(f.pop()?))
}

pub(super) fn push_exc_info(t: &mut Tracer<'_>, f: &mut PyFrame) -> Flow<Control> {
    let exception = f.pop()?;
    let former = t.handling.last().cloned().unwrap_or(Value::NONE);
    f.push(former);
    f.push(exception.clone());
    t.handling.push(exception);
    f.handling += 1;
    Ok(Control::Next)
}

pub(super) fn pop_except(t: &mut Tracer<'_>, f: &mut PyFrame) -> Flow<Control> {
    f.pop()?;
    t.handling.pop();
    f.handling = f.handling.saturating_sub(1);
    Ok(Control::Next)
}

pub(super) fn check_match(t: &mut Tracer<'_>, f: &mut PyFrame) -> Flow<Control> {
    let wanted = f.pop()?;
    let exception = f.peek(1)?.clone();
    let class = t.class_of(&exception)?;
    let classes = match &wanted {
        Value::Tuple(classes) => classes.items.clone(),
        one => vec![one.clone()],
    };
    // `_PyEval_CheckExceptTypeValid` in CPython's `Python/ceval.c`: before any is compared.
    let base = t.exception_class("BaseException");
    if classes.iter().any(|of| matches!(of, Value::Class(of) if !of.is_subclass(&base))) {
        let message = "catching classes that do not inherit from BaseException is not allowed";
        return t.raise_named("TypeError", message);
    }
    let mut found = false;
    for candidate in &classes {
        let Value::Class(candidate) = candidate else {
            return stop(ReasonCode::UnsupportedObject, "an except clause with something that is no class");
        };
        found |= class.is_subclass(candidate);
    }
    f.push(Value::bool(found));
    Ok(Control::Next)
}

pub(super) fn load_assertion_error(t: &mut Tracer<'_>, f: &mut PyFrame) -> Flow<Control> {
    let class = t.exception_class("AssertionError");
    f.push(Value::Class(class));
    Ok(Control::Next)
}

pub(super) fn before_with(t: &mut Tracer<'_>, f: &mut PyFrame) -> Flow<Control> {
    let manager = f.pop()?;
    let (Some(enter), Some(exit)) = (t.special(&manager, "__enter__")?, t.special(&manager, "__exit__")?) else {
        let (class, name) = (t.class_of(&manager)?, t.type_name(&manager));
        // What types of C do besides what the tracer knows of them.
        if t.type_lookup(&class, "__enter__")?.is_some() && t.type_lookup(&class, "__exit__")?.is_some() {
            return stop(ReasonCode::UnsupportedObject, format!("a {name} as a context manager"));
        }
        let half = if t.special(&manager, "__enter__")?.is_some() { " (missed __exit__ method)" } else { "" };
        let message = format!("'{name}' object does not support the context manager protocol{half}");
        return t.raise_named("TypeError", &message);
    };
    f.push(exit);
    let entered = t.call(&enter, Args::default())?;
    f.push(entered);
    Ok(Control::Next)
}

pub(super) fn with_except_start(t: &mut Tracer<'_>, f: &mut PyFrame) -> Flow<Control> {
    let exception = f.peek(1)?.clone();
    let exit = f.peek(4)?.clone();
    let class = t.class_of(&exception)?;
    let args = vec![Value::Class(class), exception, t.traceback()];
    let result = t.call(&exit, Args::new(args))?;
    f.push(result);
    Ok(Control::Next)
}
