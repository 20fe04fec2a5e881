//! Capture: decodes large messages and checks snapshots, off the I/O thread.

use super::{Station, station};
use crate::actors::guard::GuardMessage;
use crate::actors::trace::TraceMessage;
use crate::hub::Hub;
use crate::job::{Job, Outcome, Stage};
use crate::pool::{Pool, PoolOptions, STACK};
use flambeau_ir::reason::{Reason, ReasonCode};
use flambeau_wire::from_client::Snapshot;
use std::sync::Arc;

/// Checks snapshots.
pub struct Capture {
    hub: Arc<Hub>,
    pool: Pool,
}

/// What it is told.
pub enum CaptureMessage {
    /// Check this snapshot; the frame goes on to Trace.
    Snapshot(Arc<Job>, Box<Snapshot>),
    /// Run this off the I/O thread (decoding of large messages).
    Decode(Box<dyn FnOnce() + Send>),
}

station!(Capture, CaptureMessage);

impl Station for Capture {
    fn new(hub: Arc<Hub>) -> Self {
        let pool = Pool::new(&hub, PoolOptions { name: "capture", threads: 4, waiting: 256, stack: STACK });
        Capture { hub, pool }
    }
}

impl Capture {
    fn on(&mut self, message: CaptureMessage) {
        match message {
            CaptureMessage::Decode(work) => {
                // Where the queue is full the connection is closed by the dropped reply.
                let _ = self.pool.offer(work);
            }
            CaptureMessage::Snapshot(job, snapshot) => {
                let (hub, work) = (self.hub.clone(), job.clone());
                let accepted = self.pool.offer(move || {
                    let checked = work.run(&hub, Stage::Capture, || {
                        flambeau_capture::check_key(&work.key, &snapshot)
                            .and_then(|()| flambeau_capture::capture(work.key.frame.clone(), *snapshot))
                            .map_err(|e| Reason::new(ReasonCode::Internal, format!("snapshot: {e}")))
                    });
                    match checked {
                        Ok(frame) => hub.trace.tell(TraceMessage::Start(work, Arc::new(frame))),
                        Err(reason) => hub.guard.tell(GuardMessage::Finished(work, Outcome::Failed(reason))),
                    }
                });
                if !accepted {
                    self.hub.guard.tell(GuardMessage::Finished(job, Outcome::Later));
                }
            }
        }
    }
}
