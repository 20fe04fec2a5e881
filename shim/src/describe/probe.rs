//! What the process asks torch of its tensors, once, before it describes any.

use crate::torch::Torch;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};

/// Asks torch what the process needs to know of its tensors, once. Modes, transforms, default devices and the like belong
/// to the user's thread and see only the user's calls: where there are any, torch is asked on a thread of its own. Its
/// start takes milliseconds beside the threads of OpenMP.
pub fn probe(py: Python<'_>) {
    // Nothing that a child process could find locked after a fork.
    static PROBED: AtomicBool = AtomicBool::new(false);
    if PROBED.swap(true, Ordering::Relaxed) {
        return;
    }
    let ask = |py: Python<'_>| {
        let _ = Torch::get(py);
        crate::describe::snapshot::tensor::ask(py);
    };
    if crate::torch::ambient::changes_calls(py).is_ok_and(|changes| !changes) {
        return ask(py);
    }
    py.detach(|| {
        let probe = std::thread::Builder::new().name("flambeau-probe".into());
        // Without a thread torch is asked at the first call.
        if let Ok(probe) = probe.spawn(move || Python::attach(ask)) {
            let _ = probe.join();
        }
    });
}
