//! How graph breaks are taken in a region of the program: what `disable_nested_graph_breaks` and `error_on_graph_break`
//! set for their thread, and the default that `flambeau.config` sets for all. Part of a trace's options.

use crate::process::thread::{self, Thread};
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};

/// `flambeau.config.nested_graph_breaks`
static NESTED: AtomicBool = AtomicBool::new(true);

/// The calling thread's region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// A break below the top frame resumes every frame of the inlined stack.
    pub nested: bool,
    /// A break is an error.
    pub error: bool,
}

impl Region {
    /// As it is now.
    pub fn now() -> Region {
        thread::with(Region::of)
    }

    /// A thread's.
    pub fn of(thread: &Thread) -> Region {
        let nested = thread.nested.get().unwrap_or_else(|| NESTED.load(Ordering::Relaxed));
        Region { nested, error: thread.error.get() }
    }

    /// Makes it the calling thread's.
    pub fn enter(self) {
        let default = NESTED.load(Ordering::Relaxed);
        thread::with(|here| {
            here.nested.set((self.nested != default).then_some(self.nested));
            here.error.set(self.error);
        });
    }
}

/// Sets the default.
pub fn set_default(nested: bool) {
    NESTED.store(nested, Ordering::Relaxed);
}

/// Switches nested graph breaks for this thread; gives what held before.
#[pyfunction]
pub fn set_nested_breaks(enabled: bool) -> bool {
    let before = Region::now();
    Region { nested: enabled, ..before }.enter();
    before.nested
}

/// Makes graph breaks errors in this thread, or not; gives what held before.
#[pyfunction]
pub fn set_error_on_break(enabled: bool) -> bool {
    let before = Region::now();
    Region { error: enabled, ..before }.enter();
    before.error
}
