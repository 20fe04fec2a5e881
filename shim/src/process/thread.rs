//! What a thread is in the middle of, all in one place: to look a thread-local up costs nanoseconds, and a call needs most.

use crate::python::raw::Raw;
use std::cell::Cell;
use std::ptr::{null, null_mut};

/// What a thread is looking for in frames that plain Python calls.
#[derive(Clone, Copy)]
pub struct Search {
    /// The compiled callable (its `Entry`) whose options and tables frames are compiled with; null while nothing is
    /// looked for.
    pub entry: *const (),
    /// The next frame of this code is let through: it is known not to compile.
    pub known: Raw,
}

impl Search {
    /// For nothing.
    pub const NOTHING: Search = Search { entry: null(), known: null_mut() };
}

/// State of the calling thread.
pub struct Thread {
    /// Above zero while it captures a frame: compiled calls made meanwhile run eagerly.
    capturing: Cell<u32>,
    /// What it has in place of `flambeau.config.nested_graph_breaks`.
    pub nested: Cell<Option<bool>>,
    /// Whether graph breaks are errors.
    pub error: Cell<bool>,
    /// Chains of resume functions that it began.
    chains: Cell<u64>,
    /// The chain that it is in.
    chain: Cell<u64>,
    /// What it is looking for.
    pub search: Cell<Search>,
    /// How many frames it looked at.
    pub looked: Cell<u64>,
    /// How many calls were compiled or tried below plain Python.
    pub found: Cell<u64>,
}

thread_local! {
    static HERE: Thread = const {
        Thread {
            capturing: Cell::new(0),
            nested: Cell::new(None),
            error: Cell::new(false),
            chains: Cell::new(0),
            chain: Cell::new(0),
            search: Cell::new(Search::NOTHING),
            looked: Cell::new(0),
            found: Cell::new(0),
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

    /// Notes that looking for frames was worth it.
    pub fn note_found(&self) {
        self.found.set(self.found.get() + 1);
    }

    /// Begins a chain of resume functions: a call that broke off.
    pub fn begin_chain(&self) -> u64 {
        self.chains.set(self.chains.get() + 1);
        self.chains.get()
    }

    /// Goes on with a chain, below which others may have begun.
    pub fn take_up_chain(&self, chain: u64) {
        self.chain.set(chain);
    }

    /// What tells one call from the next, by the chain that it is or will be.
    pub fn call(&self, resumed: bool) -> u64 {
        if resumed { self.chain.get() } else { self.chains.get() + 1 }
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
