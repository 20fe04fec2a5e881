//! Functions of the standard library's modules, a file each.

pub mod contextvars;
pub mod functools;
pub mod itertools;
pub mod warnings;
