//! The way to a client: encoded messages queued for the task that writes its socket.

use flambeau_wire::frame::encode;
use flambeau_wire::from_daemon::FromDaemon;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// A client that lets this many bytes pile up does not read; it is disconnected.
const MAX_QUEUED: usize = 128 << 20;
/// So do all clients together.
const MAX_QUEUED_ALL: usize = 256 << 20;
/// Bytes queued for all clients.
static QUEUED: AtomicUsize = AtomicUsize::new(0);

/// Sends to one client from any thread. Cloning shares it.
#[derive(Clone)]
pub struct Outbox {
    sender: UnboundedSender<Vec<u8>>,
    queued: Arc<AtomicUsize>,
}

/// The writing end's view of an [`Outbox`].
pub struct Queue {
    receiver: UnboundedReceiver<Vec<u8>>,
    queued: Arc<AtomicUsize>,
}

/// A new outbox and its queue.
pub fn outbox() -> (Outbox, Queue) {
    let (sender, receiver) = unbounded_channel();
    let queued = Arc::new(AtomicUsize::new(0));
    (Outbox { sender, queued: queued.clone() }, Queue { receiver, queued })
}

impl Outbox {
    /// Queues a message; false if the client is gone or does not read.
    pub fn send(&self, message: &FromDaemon) -> bool {
        match encode(message) {
            Ok(bytes) => self.send_bytes(bytes),
            Err(error) => {
                tracing::error!(%error, "a message cannot be encoded");
                false
            }
        }
    }

    /// Queues an encoded message.
    pub fn send_bytes(&self, bytes: Vec<u8>) -> bool {
        let length = bytes.len();
        // One message is let through whatever its size.
        let waiting = self.queued.fetch_add(length, Ordering::Relaxed);
        let all = QUEUED.fetch_add(length, Ordering::Relaxed) + length;
        let full = waiting > 0 && (waiting + length > MAX_QUEUED || all > MAX_QUEUED_ALL);
        if full || self.sender.send(bytes).is_err() {
            self.queued.fetch_sub(length, Ordering::Relaxed);
            QUEUED.fetch_sub(length, Ordering::Relaxed);
            return false;
        }
        true
    }
}

impl Queue {
    /// The next message to write; `None` once nobody can send any more.
    pub async fn next(&mut self) -> Option<Vec<u8>> {
        let bytes = self.receiver.recv().await?;
        self.queued.fetch_sub(bytes.len(), Ordering::Relaxed);
        QUEUED.fetch_sub(bytes.len(), Ordering::Relaxed);
        Some(bytes)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.receiver.close();
        while let Ok(bytes) = self.receiver.try_recv() {
            QUEUED.fetch_sub(bytes.len(), Ordering::Relaxed);
        }
    }
}
