//! Lists.

use super::{Class, DictId, Id, Origin, Value};
use std::rc::Rc;

/// Names a list object.
pub type ListId = Id<ListValue>;

/// A list. One from outside is read when first touched: use [`Tracer::list_items`], [`Tracer::list_mut`] and, for what needs
/// no items, [`Tracer::list_add`].
#[derive(Clone, Debug, Default)]
pub struct ListValue {
    /// Of a list that was not read yet: those behind the ones that it came with.
    pub(crate) items: Vec<Value>,
    /// False for a list from outside whose items were not read yet.
    pub(crate) loaded: bool,
    /// True if values were stored that were not read.
    pub(crate) unread: bool,
    pub(crate) dirty: bool,
    /// Its type where that is not `list` itself.
    pub class: Option<Rc<Class>>,
    /// Instance dict of a subclass's instance.
    pub attrs: Option<DictId>,
    /// Where it is from, if from outside.
    pub origin: Option<Origin>,
}
