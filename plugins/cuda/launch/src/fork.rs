//! Whether this process was forked from one that had started CUDA, which does not come along.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

static FORKED: AtomicBool = AtomicBool::new(false);

/// Why nothing runs in such a process.
pub const SENTENCE: &str = "CUDA does not work in a process that was forked from one that used it; start processes with \
    multiprocessing's \"spawn\" or \"forkserver\" method";

extern "C" fn in_child() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Looks out for forks from now on.
pub fn watch() {
    static WATCH: Once = Once::new();
    // SAFETY: the handler only stores to a static, and this library is never unloaded.
    WATCH.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(in_child));
    });
}

/// Whether this is such a process.
#[inline]
pub fn is_child() -> bool {
    FORKED.load(Ordering::Relaxed)
}
