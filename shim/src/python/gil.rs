//! State that the GIL guards.

use pyo3::prelude::*;
use std::cell::{RefCell, RefMut};
use std::convert::Infallible;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::OnceLock;

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

/// A value that is made when it is first asked for. Unlike pyo3's cells it does not let other threads run meanwhile: what is
/// read of Python's objects round it may be borrowed.
pub struct GilOnce<T>(OnceLock<T>);

impl<T> GilOnce<T> {
    /// Not made yet.
    pub const fn new() -> Self {
        GilOnce(OnceLock::new())
    }

    /// The value, if it was made.
    pub fn get(&self, _py: Python<'_>) -> Option<&T> {
        self.0.get()
    }

    /// The value; `make` may run on several threads if it runs Python, and the first result stays.
    pub fn get_or_init(&self, py: Python<'_>, make: impl FnOnce() -> T) -> &T {
        match self.get_or_try_init(py, || Ok::<T, Infallible>(make())) {
            Ok(value) => value,
        }
    }

    /// The same; a failure leaves it unmade.
    pub fn get_or_try_init<E>(&self, _py: Python<'_>, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        if let Some(value) = self.0.get() {
            return Ok(value);
        }
        let made = make()?;
        Ok(self.0.get_or_init(|| made))
    }
}

/// An interned str, made when it is first asked for, as by [`GilOnce`].
macro_rules! interned {
    ($py:expr, $text:literal) => {{
        static NAME: $crate::python::gil::GilOnce<pyo3::Py<pyo3::types::PyString>> =
            $crate::python::gil::GilOnce::new();
        NAME.get_or_init($py, || pyo3::types::PyString::intern($py, $text).unbind()).bind($py)
    }};
}
pub(crate) use interned;

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
