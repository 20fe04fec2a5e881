//! Lower: chooses the body of a compiled frame, and lowers graphs for native back ends.

use super::{Station, station};
use crate::hub::Hub;
use crate::hub::job::{Outcome, Stage};
use crate::hub::messages::{CodegenMessage, GuardMessage, LowerMessage};
use crate::hub::pool::{Pool, PoolOptions, STACK};
use crate::stages::{self, Bodied};
use std::sync::Arc;

/// Lowers graphs.
pub struct Lower {
    hub: Arc<Hub>,
    pool: Pool,
}

station!(Lower, LowerMessage);

impl Station for Lower {
    type Told = LowerMessage;

    fn new(hub: Arc<Hub>) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let pool = Pool::new(&hub, PoolOptions { name: "lower", threads, waiting: 256, stack: STACK });
        Lower { hub, pool }
    }
}

impl Lower {
    fn on(&mut self, message: LowerMessage) {
        let LowerMessage::Lower(job, traced) = message;
        let (hub, work) = (self.hub.clone(), job.clone());
        let accepted = self.pool.offer(move || {
            let folder = work.plugin.as_ref().map(|plugin| hub.backends.of(plugin));
            let codegen = folder.as_deref().map(|folder| &folder.codegen);
            let result = work.run(&hub, Stage::Lower, || Ok(stages::body(*traced, codegen)));
            match result {
                Ok(Bodied::Kernels(pending)) => hub.codegen.tell(CodegenMessage::Compile(work, pending)),
                Ok(Bodied::Done(frame)) => {
                    hub.guard.tell(GuardMessage::Finished(work, Outcome::Compiled(Arc::new(*frame), vec![])));
                }
                Err(reason) => hub.guard.tell(GuardMessage::Finished(work, Outcome::Failed(reason))),
            }
        });
        if !accepted {
            self.hub.guard.tell(GuardMessage::Finished(job, Outcome::Later));
        }
    }
}
