//! What a forked child does before it uses anything that its parent left: descriptors and locks of the link are given up,
//! and kernels stay on one thread from then on. Everything else is guarded by the GIL, which the forking thread holds.

use crate::link;
use std::sync::Once;
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

extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    link::abandon();
}

/// Looks out for forks. Called when the module is loaded: a fork that comes before the first compile counts too.
pub fn watch() {
    static WATCH: Once = Once::new();
    // SAFETY: the handler only stores to atomics and closes a descriptor; the library is never unloaded.
    WATCH.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(in_child));
    });
}
