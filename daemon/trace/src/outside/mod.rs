//! The client's objects as values, with a guard for each fact that is read; and what is only passed on.

mod dicts;
pub mod finalizers;
mod hooks;
pub mod iterators;
mod lists;
pub mod lookup;
pub mod types;
mod unread;
pub mod wrap;
