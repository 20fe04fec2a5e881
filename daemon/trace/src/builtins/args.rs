//! Arguments of built-in calls. What does not fit is a break: the message of Python's error is not made up here.

use super::unsupported;
use crate::value::Args;
use crate::value::Value;
use crate::value::flow::Flow;

/// Exactly N positional arguments.
pub fn exactly<const N: usize>(path: &str, args: Args) -> Flow<[Value; N]> {
    if !args.kw.is_empty() {
        return unsupported(path);
    }
    args.pos.try_into().or_else(|_| unsupported(path))
}

/// Up to N arguments by position or by these names, the first `required` of which must be there.
pub fn bind<const N: usize>(path: &str, args: Args, names: [&str; N], required: usize) -> Flow<[Option<Value>; N]> {
    let mut bound = [const { None }; N];
    if args.pos.len() > N {
        return unsupported(path);
    }
    for (slot, value) in bound.iter_mut().zip(args.pos) {
        *slot = Some(value);
    }
    for (name, value) in args.kw {
        match names.iter().position(|n| **n == *name) {
            Some(at) if bound[at].is_none() => bound[at] = Some(value),
            _ => return unsupported(path),
        }
    }
    if bound[..required].iter().any(Option::is_none) {
        return unsupported(path);
    }
    Ok(bound)
}

/// As [`bind`] with `None` for what is missing.
pub fn bind_or_none<const N: usize>(path: &str, args: Args, names: [&str; N], required: usize) -> Flow<[Value; N]> {
    bind(path, args, names, required).map(|bound| bound.map(|v| v.unwrap_or(Value::NONE)))
}

/// A method's receiver and the rest.
pub fn receiver(path: &str, mut args: Args) -> Flow<(Value, Args)> {
    if args.pos.is_empty() {
        return unsupported(path);
    }
    let receiver = args.pos.remove(0);
    Ok((receiver, args))
}

/// The last part of a path.
pub fn name(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}
