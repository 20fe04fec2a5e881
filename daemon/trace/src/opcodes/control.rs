//! Jumps, loops, generators.

use crate::protocol::truth::Seen;
use crate::state::tracer::Tracer;
use crate::value::Value;
use crate::value::flow::{Flow, Stop, stop};
use crate::value::frame::{Control, FrameEnd, PyFrame};
use flambeau_bytecode::Condition;
use flambeau_ir::reason::ReasonCode;

pub(super) fn pop_jump_if(t: &mut Tracer<'_>, f: &mut PyFrame, cond: Condition, target: u32) -> Flow<Control> {
    let value = f.pop()?;
    let mut truth = || match t.checked_truth(&value, Seen::ByInstruction)? {
        Some(truth) => Ok(truth),
        None => t.truth(&value),
    };
    let jump = match cond {
        Condition::True => truth()?,
        Condition::False => !truth()?,
        Condition::None => value.is_none(),
        Condition::NotNone => !value.is_none(),
    };
    Ok(if jump { Control::Jump(target) } else { Control::Next })
}

pub(super) fn jump_if_or_pop(t: &mut Tracer<'_>, f: &mut PyFrame, cond: bool, target: u32) -> Flow<Control> {
    let value = f.peek(1)?.clone();
    if t.truth(&value)? == cond {
        return Ok(Control::Jump(target));
    }
    f.pop()?;
    Ok(Control::Next)
}

pub(super) fn get_iter(t: &mut Tracer<'_>, f: &mut PyFrame) -> Flow<Control> {
    let value = f.pop()?;
    let iter = t.iter(&value)?;
    f.push(iter);
    Ok(Control::Next)
}

pub(super) fn for_iter(t: &mut Tracer<'_>, f: &mut PyFrame, target: u32) -> Flow<Control> {
    let iter = f.peek(1)?.clone();
    match t.next_unread(&iter)? {
        Some(value) => {
            f.push(value);
            Ok(Control::Next)
        }
        None => {
            f.pop()?;
            Ok(Control::Jump(target))
        }
    }
}

pub(super) fn return_generator(f: &mut PyFrame) -> Flow<Control> {
    // 0x20 is CO_GENERATOR; coroutines and async generators are not consumed by traced code.
    if f.code.flags & 0x20 == 0 {
        return stop(ReasonCode::Generator, f.code.qualname.clone());
    }
    Ok(Control::Generator)
}

pub(super) fn send(t: &mut Tracer<'_>, f: &mut PyFrame, target: u32) -> Flow<Control> {
    let sent = f.pop()?;
    let receiver = f.peek(1)?.clone();
    let end = match &receiver {
        Value::Generator(id) => t.resume(*id, Ok(sent))?,
        // It may end with a value.
        Value::Instance(_) => return stop(ReasonCode::UnsupportedObject, "`yield from` an iterator of a Python class"),
        _ if sent.is_none() => match t.next(&receiver)? {
            Some(value) => FrameEnd::Yield(value),
            None => FrameEnd::Return(Value::NONE),
        },
        _ => return stop(ReasonCode::UnsupportedObject, "sending into an iterator that is no generator"),
    };
    match end {
        FrameEnd::Yield(value) => {
            f.push(value);
            Ok(Control::Next)
        }
        FrameEnd::Return(value) => {
            f.pop()?;
            f.push(value);
            Ok(Control::Jump(target))
        }
        FrameEnd::Generator => stop(ReasonCode::Internal, "a generator made itself anew"),
    }
}

/// What was thrown into a generator that delegates: only the end of the other one is no error.
pub(super) fn cleanup_throw(t: &mut Tracer<'_>, f: &mut PyFrame) -> Flow<Control> {
    let exception = f.pop()?;
    if t.class_of(&exception)?.derives("builtins.StopIteration") {
        return stop(ReasonCode::UnsupportedOpcode, "StopIteration thrown into a generator that delegates");
    }
    Err(Stop::Raise(exception))
}

pub(super) fn get_yield_from_iter(t: &mut Tracer<'_>, f: &mut PyFrame) -> Flow<Control> {
    if matches!(f.peek(1)?, Value::Generator(_)) {
        return Ok(Control::Next);
    }
    get_iter(t, f)
}
