//! For back ends whose drivers do not come along when a process forks: their threads are not in the child, so every call of
//! theirs might fail or wait for good.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

static FORKED: AtomicBool = AtomicBool::new(false);

/// Why nothing of `driver`, e.g. `OpenCL`, runs in such a process.
pub fn sentence(driver: &str) -> String {
    format!(
        "{driver} does not work in a process that was forked from one that used it; start processes with \
         multiprocessing's \"spawn\" or \"forkserver\" method"
    )
}

extern "C" fn in_child() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Looks out for forks from now on: to be called when the driver is started.
pub fn watch() {
    static WATCH: Once = Once::new();
    // SAFETY: the handler only stores to a static, and libraries with this in them are never unloaded (rule 3).
    WATCH.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(in_child));
    });
}

/// Whether this process was forked from one that watches.
#[inline]
pub fn is_child() -> bool {
    FORKED.load(Ordering::Relaxed)
}
