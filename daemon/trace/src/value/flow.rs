//! How tracing an instruction can end other than with a value: a Python exception, or a named reason to stop.

use crate::value::Value;
use flambeau_ir::reason::{Reason, ReasonCode};

/// Why a step yields no value.
#[derive(Clone, Debug)]
pub enum Stop {
    /// The traced program raised this exception value; a handler inside the trace may catch it.
    Raise(Value),
    /// The frame cannot be traced.
    Break(Box<Reason>),
}

/// What a step of the tracer yields.
pub type Flow<T> = Result<T, Stop>;

/// A named break.
pub fn stop<T>(code: ReasonCode, detail: impl Into<String>) -> Flow<T> {
    Err(Stop::Break(Box::new(Reason::new(code, detail))))
}

/// A break because the tracer met a state of its own that should not occur.
pub fn internal<T>(detail: impl Into<String>) -> Flow<T> {
    stop(ReasonCode::Internal, detail)
}

impl From<Reason> for Stop {
    fn from(reason: Reason) -> Self {
        Stop::Break(Box::new(reason))
    }
}
