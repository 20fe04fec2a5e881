//! One compiled frame: checked, made ready, run; how it came to be; where its trace ended.

pub mod breaks;
mod dropped;
mod indices;
pub mod installed;
pub mod record;
