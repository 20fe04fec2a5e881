//! Python's protocols: attributes, calls, iteration, truth, operators, raising.

pub mod attr;
mod cached;
pub mod call;
mod class_attr;
mod function;
pub mod iterate;
pub(crate) mod module;
pub mod operators;
mod own_key;
pub mod polyfill;
pub mod raise;
mod set_attr;
mod set_order;
pub mod truth;
