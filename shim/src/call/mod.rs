//! Calls of compiled callables: which frame runs, what is compiled when none fits, and which frames plain Python reaches.

pub mod account;
pub mod callable;
pub mod compile;
pub mod discover;
pub mod entry;
pub mod table;
