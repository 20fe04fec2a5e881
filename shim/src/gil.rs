//! State that the GIL guards.

use pyo3::prelude::*;
use std::cell::{RefCell, RefMut};

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
