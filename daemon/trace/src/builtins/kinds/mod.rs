//! Kinds of value whose objects are what their parts are: a file and a line each. Those that may come from outside have a line in
//! `flambeau_ir::object::PARTS` as well.

mod generic_alias;
mod getters;
mod partial;
mod proxy;
pub(super) mod pure;
pub(super) mod range;
mod record;
pub(super) mod slice;
mod super_object;
pub(super) mod union;

use super::Table;
use crate::state::kind::Kind;

const KINDS: &[&dyn Kind] = &[
    &slice::Slice,
    &range::Range,
    &partial::Partial,
    &proxy::Proxy,
    &super_object::Super,
    &generic_alias::GenericAlias,
    &getters::ItemGetter,
    &getters::AttrGetter,
    &getters::MethodCaller,
    &record::Record,
    &union::Union,
    &pure::Pure("re.Pattern"),
    &pure::Pure("re.Match"),
    &pure::Pure("datetime.date"),
    &pure::Pure("datetime.datetime"),
    &pure::Pure("datetime.time"),
    &pure::Pure("datetime.timedelta"),
    &pure::Pure("numpy.float64"),
    &pure::Pure("numpy.float32"),
    &pure::Pure("numpy.int64"),
    &pure::Pure("numpy.int32"),
    &pure::Pure("numpy.bool"),
    &pure::Pure("numpy.bool_"),
];

pub(super) const TABLES: &[Table] = &[
    slice::TABLE,
    range::TABLE,
    partial::TABLE,
    proxy::TABLE,
    super_object::TABLE,
    generic_alias::TABLE,
    getters::TABLE,
    record::TABLE,
    pure::TABLE,
];

/// The kind of the type at this path, or that is imported from there.
pub(super) fn kind(path: &str) -> Option<&'static dyn Kind> {
    KINDS.iter().find(|kind| kind.path() == path || kind.import() == path).copied()
}
