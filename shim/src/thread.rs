//! What a thread is in the middle of, all in one place: to look a thread-local up costs nanoseconds, and a call needs most.

use crate::discover::Search;
use std::cell::Cell;

/// State of the calling thread.
pub struct Thread {
    /// Above zero while it captures a frame: compiled calls made meanwhile run eagerly.
    capturing: Cell<u32>,
    /// What it has in place of `flambeau.config.nested_graph_breaks`.
    pub nested: Cell<Option<bool>>,
    /// Whether graph breaks are errors.
    pub error: Cell<bool>,
    /// What it is looking for in frames that plain Python calls.
    pub search: Cell<Search>,
}

thread_local! {
    static HERE: Thread = const {
        Thread {
            capturing: Cell::new(0),
            nested: Cell::new(None),
            error: Cell::new(false),
            search: Cell::new(Search::NOTHING),
        }
    };
}

/// Gives the calling thread's state to `take`.
pub fn with<T>(take: impl FnOnce(&Thread) -> T) -> T {
    HERE.with(take)
}

impl Thread {
    /// Whether it captures a frame.
    pub fn is_capturing(&self) -> bool {
        self.capturing.get() != 0
    }
}

/// While it lives, compiled calls of this thread run eagerly.
pub struct CaptureScope(());

impl CaptureScope {
    /// Enters.
    pub fn enter() -> Self {
        with(|here| here.capturing.set(here.capturing.get() + 1));
        CaptureScope(())
    }
}

impl Drop for CaptureScope {
    fn drop(&mut self) {
        with(|here| here.capturing.set(here.capturing.get() - 1));
    }
}
