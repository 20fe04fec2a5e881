//! Kinds of value whose objects are what their parts are: a file and a line each. Those that may come from outside have a line in
//! `flambeau_ir::object::PARTS` as well.

mod partial;
mod proxy;
pub(super) mod range;
pub(super) mod slice;
mod super_object;

use super::Table;
use crate::state::kind::Kind;

const KINDS: &[&dyn Kind] = &[&slice::Slice, &range::Range, &partial::Partial, &proxy::Proxy, &super_object::Super];

pub(super) const TABLES: [Table; 5] = [slice::TABLE, range::TABLE, partial::TABLE, proxy::TABLE, super_object::TABLE];

/// The kind of the type at this path.
pub(super) fn kind(path: &str) -> Option<&'static dyn Kind> {
    KINDS.iter().find(|kind| kind.path() == path).copied()
}
