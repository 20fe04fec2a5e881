//! Lists, tuples, dicts, sets, and the types of `collections`.

pub mod collections;
pub mod dicts;
pub mod lists;
pub mod sets;
pub mod tuples;
