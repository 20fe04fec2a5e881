//! Trace: runs the symbolic interpreter on its threads. A thread waits while the client answers questions, so there are
//! more of them than cores.

use super::{Station, station};
use crate::base::lock;
use crate::hub::Hub;
use crate::hub::job::{Job, Outcome, Stage};
use crate::hub::messages::{GuardMessage, TraceMessage};
use crate::hub::oracle::SessionOracle;
use crate::hub::pool::{Pool, PoolOptions, STACK};
use crate::stages;
use crate::stages::exchange::Recorder;
use flambeau_ir::frame::Frame;
use std::sync::Arc;

/// Traces frames.
pub struct Trace {
    hub: Arc<Hub>,
    pool: Pool,
}

station!(Trace, TraceMessage);

impl Station for Trace {
    type Told = TraceMessage;

    fn new(hub: Arc<Hub>) -> Self {
        // Inlining recurses on the stack of the thread; the memory is only reserved.
        let pool = Pool::new(&hub, PoolOptions { name: "trace", threads: 32, waiting: 256, stack: STACK });
        Trace { hub, pool }
    }
}

impl Trace {
    fn on(&mut self, message: TraceMessage) {
        let TraceMessage::Start(job, frame) = message;
        let (hub, work) = (self.hub.clone(), job.clone());
        if !self.pool.offer(move || run(&hub, work, &frame)) {
            self.hub.guard.tell(GuardMessage::Finished(job, Outcome::Later));
        }
    }
}

fn run(hub: &Hub, job: Arc<Job>, frame: &Arc<Frame>) {
    let mut oracle = SessionOracle::new(hub, &job);
    let mut log = Vec::new();
    let result = if let Some(recording) = &job.recording {
        let mut recorder = Recorder::new(&mut oracle);
        let result = job.run(hub, Stage::Trace, || Ok(stages::trace(frame, &mut recorder, &mut log)));
        *lock(&recording.exchanges) = recorder.exchanges;
        result
    } else {
        job.run(hub, Stage::Trace, || Ok(stages::trace(frame, &mut oracle, &mut log)))
    };
    let (lost, waited) = (oracle.lost, oracle.waited);
    job.took("questions", waited.as_secs_f64());
    if !log.is_empty() {
        hub.guard.tell(GuardMessage::Logged(job.clone(), log));
    }
    let next = match result {
        Ok(trace) if trace.exit.refused().is_none() => GuardMessage::Traced(job, frame.clone(), Box::new(trace)),
        _ if lost => GuardMessage::Lost(job, frame.clone()),
        Ok(trace) => GuardMessage::Refused(job, frame.clone(), Box::new(trace)),
        Err(reason) => GuardMessage::Finished(job, Outcome::Failed(reason)),
    };
    hub.guard.tell(next);
}
