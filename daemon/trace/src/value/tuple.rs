//! Tuples and their subclasses (`torch.Size`, named tuples).

use super::{Class, Origin, Value};
use std::rc::Rc;

/// A tuple. Identity is the `Rc`'s.
#[derive(Clone, Debug)]
pub struct Tuple {
    /// Its items.
    pub items: Vec<Value>,
    /// Its type where that is not `tuple` itself.
    pub class: Option<Rc<Class>>,
    /// Where it is from, if from outside.
    pub origin: Option<Origin>,
}
