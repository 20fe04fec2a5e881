//! Worker threads behind a bounded channel. Stages run here; actors only hand work over.

use crate::hub::{Hub, fence};
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread;

type Work = Box<dyn FnOnce() + Send>;

/// Stack of threads that recurse over a client's data, in bytes: only reserved. It has a guard page below it and is never
/// used up ([`flambeau_ir::bounds`]). All stages have the same, so that what one could build the next can walk.
pub const STACK: usize = 256 << 20;

/// How a pool is sized.
#[derive(Clone, Copy, Debug)]
pub struct PoolOptions {
    /// Name of its threads.
    pub name: &'static str,
    /// Most threads; they start when first needed.
    pub threads: usize,
    /// Work items that may wait.
    pub waiting: usize,
    /// Stack of each thread, in bytes. Reserved, not used, until needed.
    pub stack: usize,
}

/// A pool of threads. Cloning shares it.
#[derive(Clone)]
pub struct Pool {
    options: PoolOptions,
    sender: Sender<Work>,
    receiver: Receiver<Work>,
    started: Arc<AtomicUsize>,
    /// Work items queued or running.
    open: Arc<AtomicUsize>,
    hub: Weak<Hub>,
}

impl Pool {
    /// A pool with no thread yet.
    pub fn new(hub: &Arc<Hub>, options: PoolOptions) -> Pool {
        let (sender, receiver) = bounded(options.waiting);
        Pool { options, sender, receiver, started: Arc::default(), open: Arc::default(), hub: Arc::downgrade(hub) }
    }

    /// Queues `work`; false if too much waits already. A panic in it ends that work item only.
    #[must_use]
    pub fn offer(&self, work: impl FnOnce() + Send + 'static) -> bool {
        let open = self.open.fetch_add(1, Ordering::AcqRel) + 1;
        match self.sender.try_send(Box::new(work)) {
            Ok(()) => {
                self.grow(open);
                true
            }
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.open.fetch_sub(1, Ordering::AcqRel);
                false
            }
        }
    }

    /// Starts one more thread if there are fewer than work items, and may be more.
    fn grow(&self, open: usize) {
        let index = self.started.fetch_add(1, Ordering::AcqRel);
        if index >= self.options.threads.min(open) {
            self.started.fetch_sub(1, Ordering::AcqRel);
            return;
        }
        let (receiver, counter, hub) = (self.receiver.clone(), self.open.clone(), self.hub.clone());
        let stack = self.options.stack;
        let name = format!("{}-{index}", self.options.name);
        let run = move || {
            flambeau_ir::bounds::bound(stack);
            while let (Ok(work), Some(hub)) = (receiver.recv(), hub.upgrade()) {
                let _ = fence(&hub, "worker thread", work);
                counter.fetch_sub(1, Ordering::AcqRel);
            }
        };
        if let Err(error) = thread::Builder::new().name(name).stack_size(self.options.stack).spawn(run) {
            self.started.fetch_sub(1, Ordering::AcqRel);
            tracing::error!(%error, pool = self.options.name, "cannot start a worker thread");
        }
    }
}
