//! State that the GIL guards.

use pyo3::prelude::*;
use std::cell::{RefCell, RefMut};
use std::ops::Deref;
use std::rc::Rc;

/// A value that only a thread holding the GIL touches. Borrows never span a call into Python.
#[derive(Debug, Default)]
pub struct GilCell<T>(RefCell<T>);

// SAFETY: every access goes through `borrow`, which asks for proof of the GIL.
unsafe impl<T: Send> Sync for GilCell<T> {}

impl<T> GilCell<T> {
    /// Wraps a value.
    pub const fn new(value: T) -> Self {
        GilCell(RefCell::new(value))
    }

    /// The value, exclusively.
    pub fn borrow(&self, _py: Python<'_>) -> RefMut<'_, T> {
        self.0.borrow_mut()
    }
}

/// Shared ownership that only threads holding the GIL take and give up: counting needs no atomics.
#[derive(Debug)]
pub struct Shared<T>(Rc<T>);

// SAFETY: see the type.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// The first owner.
    pub fn new(value: T) -> Self {
        Shared(Rc::new(value))
    }

    /// Whether both own the same value.
    pub fn is(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Shared(self.0.clone())
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
