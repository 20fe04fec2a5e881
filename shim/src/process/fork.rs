//! What a forked child does before it uses anything that its parent left: what the parent had open is given up, and kernels
//! stay on one thread from then on. Everything else is guarded by the GIL, which the forking thread holds.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Forks between the process that loaded this module and this one.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Differs between a process and the children that it forks.
pub fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Whether this process was forked from one that may have used several threads: libgomp hangs in such a child.
pub fn is_child() -> bool {
    generation() != 0
}

/// Gives up what the parent had open.
static ABANDON: OnceLock<fn()> = OnceLock::new();

extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    if let Some(abandon) = ABANDON.get() {
        abandon();
    }
}

/// Looks out for forks; `abandon` only stores to atomics and closes descriptors. Called when the module is loaded: a fork
/// that comes before the first compile counts too.
pub fn watch(abandon: fn()) {
    if ABANDON.set(abandon).is_ok() {
        // SAFETY: the handler only stores to atomics and closes a descriptor; the library is never unloaded.
        unsafe {
            libc::pthread_atfork(None, None, Some(in_child));
        }
    }
}
