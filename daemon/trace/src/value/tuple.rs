//! Tuples and their subclasses (`torch.Size`, named tuples).

use super::{Class, DictId, Origin, Value};
use std::rc::Rc;

/// A tuple. Identity is the `Rc`'s.
#[derive(Clone, Debug)]
pub struct Tuple {
    /// Its items.
    pub items: Vec<Value>,
    /// Its type where that is not `tuple` itself.
    pub class: Option<Rc<Class>>,
    /// Instance dict of one of a subclass that the trace made.
    pub attrs: Option<DictId>,
    /// Where it is from, if from outside.
    pub origin: Option<Origin>,
}
