//! Dicts, instance dicts and namespaces. An outside dict is read item by item, or whole when its order or length matters.

use super::{Class, Id, Key, Origin, Value};
use flambeau_ir::code::Const;
use flambeau_ir::object::ObjId;
use indexmap::IndexMap;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// Names a dict object.
pub type DictId = Id<DictValue>;

/// Which view of a dict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the methods'")]
pub enum ViewKind {
    Keys,
    Values,
    Items,
}

/// What is known of an outside dict's real items.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outside {
    /// The items sent with the object, by key, once indexed; never for a namespace, which is asked per key.
    pub index: Option<Rc<DictIndex>>,
}

/// A dict. Use the `Tracer::dict_*` functions, which read, guard and log.
#[derive(Clone, Debug, Default)]
pub struct DictValue {
    /// Items read or written so far (all of them if `loaded`): key as written, value. Among the values written there may be
    /// unread ones.
    pub(crate) items: IndexMap<Key, (Value, Value)>,
    /// Keys known not to be there now.
    pub(crate) absent: HashSet<Key>,
    /// How many items were deleted.
    pub(crate) deleted: usize,
    /// All items are in `items`, in order.
    pub(crate) loaded: bool,
    pub(crate) outside: Option<Outside>,
    /// Writes to replay at exit, in order, for a dict from outside; `None`: deleted.
    pub(crate) writes: IndexMap<Key, (Value, Option<Value>)>,
    /// Keys of the real dict that were deleted: stored again, they stand last.
    pub(crate) moved: HashSet<Key>,
    /// Replayed by writing the dict anew (its order changed).
    pub(crate) rewritten: bool,
    /// Its type where that is not `dict` itself.
    pub class: Option<Rc<Class>>,
    /// Instance dict of a subclass's instance.
    pub attrs: Option<DictId>,
    /// `default_factory` of a `defaultdict`, once read of one from outside: use [`Tracer::dict_factory`].
    pub factory: Option<Value>,
    /// What the program set it to on one from outside.
    pub(crate) written_factory: Option<Value>,
    /// Where it is from, if from outside.
    pub origin: Option<Origin>,
    /// The object whose `__dict__` this is, if it is an instance dict.
    pub owner: Option<Origin>,
    /// The `__dict__` of an object that the trace made.
    pub(crate) of_new: bool,
}

impl DictValue {
    /// Makes a new dict the `__dict__` of an outside object that has none: what is stored in it is replayed.
    pub(crate) fn belongs_to(&mut self, owner: Origin) {
        self.owner = Some(owner);
        self.outside = Some(Outside { index: Some(Rc::default()) });
    }

    /// Whether changes of it are replayed: it is from outside, or an outside object's.
    pub(crate) fn is_outside(&self) -> bool {
        self.origin.is_some() || self.owner.is_some()
    }

    /// Whether the program changed it: what it is now is replayed at the exit if it is from outside.
    pub(crate) fn is_changed(&self) -> bool {
        self.rewritten || self.written_factory.is_some() || !self.writes.is_empty()
    }
}

/// The items of an outside dict by key.
#[derive(Debug, Default)]
pub(crate) struct DictIndex {
    /// The key as stored, and the value.
    pub items: HashMap<Key, (Const, ObjId)>,
    /// Keys in order.
    pub order: Vec<Key>,
    /// There are keys that are no constants.
    pub other_keys: bool,
    /// One of these may be equal to a constant.
    pub equal_consts: bool,
}
