//! Immutable objects of C, by what makes an equal one: patterns of `re`, dates and times, numbers of NumPy.

use crate::python::consts;
use crate::python::raw::{self, Raw};
use flambeau_ir::code::Const;
use pyo3::prelude::*;
use std::cell::RefCell;
use std::sync::Arc;

/// Their types, as `tp_name` says them. Objects of all of them come from pure functions, those of the last one only so.
const TYPES: &[&str] = &[
    "re.Pattern",
    "datetime.date",
    "datetime.datetime",
    "datetime.time",
    "datetime.timedelta",
    "numpy.float64",
    "numpy.float32",
    "numpy.int64",
    "numpy.int32",
    "numpy.bool",
    "numpy.bool_",
    "re.Match",
];

/// The path of the object's type, if it is exactly one of these.
///
/// # Safety
/// A live object, GIL held.
pub unsafe fn type_of(py: Python<'_>, object: Raw) -> Option<&'static str> {
    // SAFETY: the caller's promise.
    unsafe {
        let class = raw::class_of(object);
        let name = raw::tp_name(class);
        let known = TYPES.iter().find(|known| **known == name)?;
        (!raw::is_python_class(py, class)).then_some(known)
    }
}

/// What makes an object equal to this one, of such a type: the path of a function, and its arguments.
pub fn made_of(object: &Bound<'_, PyAny>) -> Option<(Arc<str>, Vec<Const>)> {
    let found = object.py().import("flambeau._pure").ok()?.call_method1("made_of", (object,)).ok()?;
    let (path, args): (String, Bound<'_, PyAny>) = found.extract().ok()?;
    match consts::from_code_const(&args)? {
        Const::Tuple(args) => Some((path.into(), args)),
        _ => None,
    }
}

/// That an object is equal to what a function makes of constants.
pub struct Made {
    maker: Arc<str>,
    args: Vec<Const>,
    /// The object that it was last seen to hold of.
    seen: RefCell<Option<Py<PyAny>>>,
}

impl Made {
    /// Of this function and these arguments.
    pub fn new(maker: &Arc<str>, args: &[Const]) -> Self {
        Made { maker: maker.clone(), args: args.to_vec(), seen: RefCell::default() }
    }

    /// Whether it holds.
    ///
    /// # Safety
    /// A live object, GIL held.
    pub unsafe fn holds(&self, py: Python<'_>, object: Raw) -> bool {
        if self.seen.borrow().as_ref().is_some_and(|seen| seen.as_ptr() == object) {
            return true;
        }
        // SAFETY: the caller's promise.
        let (of_type, bound) = unsafe { (type_of(py, object), Bound::from_borrowed_ptr(py, object)) };
        let found = of_type.and_then(|_| made_of(&bound));
        let holds = found.is_some_and(|(maker, args)| maker == self.maker && args == self.args);
        // Such objects have no finalizers.
        holds.then(|| self.seen.replace(Some(bound.unbind())));
        holds
    }
}
