//! Capture: decodes large messages and checks snapshots, off the I/O thread.

use super::{Station, station};
use crate::hub::Hub;
use crate::hub::job::{Outcome, Stage};
use crate::hub::messages::{CaptureMessage, GuardMessage, TraceMessage};
use crate::hub::pool::{Pool, PoolOptions, STACK};
use flambeau_ir::reason::{Reason, ReasonCode};
use std::sync::Arc;

/// Checks snapshots.
pub struct Capture {
    hub: Arc<Hub>,
    pool: Pool,
}

station!(Capture, CaptureMessage);

impl Station for Capture {
    type Told = CaptureMessage;

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
