//! One compile in flight: what every stage is told about it, and the runner all stages go through.

use crate::base::lock;
use crate::hub::messages::Request;
use crate::hub::oracle::Asker;
use crate::hub::{Hub, fence};
use crate::stages::Traced;
use crate::stages::record::{self, Parts};
use flambeau_ir::bounds::{EXHAUSTED, LATE, TimeLimit};
use flambeau_ir::plan::CompiledFrame;
use flambeau_ir::reason::{Reason, ReasonCode};
use flambeau_wire::from_client::{FrameKey, Settings, Snapshot};
use flambeau_wire::from_daemon::Artifact;
use flambeau_wire::registry::Plugin;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// The stages, in pipeline order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stage {
    /// Snapshot to checked frame.
    Capture,
    /// Frame to trace.
    Trace,
    /// Trace to guard program.
    Guard,
    /// Graph to kernels and plan.
    Lower,
    /// Kernels to artifacts.
    Codegen,
}

impl Stage {
    /// All, in pipeline order.
    pub const ALL: [Stage; 5] = [Stage::Capture, Stage::Trace, Stage::Guard, Stage::Lower, Stage::Codegen];

    /// The name in logs, timings and progress messages.
    pub fn name(self) -> &'static str {
        ["capture", "trace", "guard", "lower", "codegen"][self as usize]
    }
}

/// Names one compile.
pub type JobId = u64;

/// What travels with a compile through all stages.
pub struct Job {
    /// Its name.
    pub id: JobId,
    /// What it is stored under.
    pub key: FrameKey,
    /// What compiles its kernels.
    pub plugin: Option<Plugin>,
    /// Settings of the client that started it.
    pub settings: Arc<Settings>,
    /// The client that answers questions now.
    pub asker: Mutex<Option<Asker>>,
    /// How many clients wait for it.
    pub waiters: AtomicU32,
    /// Kept where the compile is recorded.
    pub recording: Option<Parts>,
    stage: AtomicU8,
    timings: Mutex<Vec<(String, f64)>>,
    /// When the request came.
    pub started: Instant,
}

/// How a compile ended.
pub enum Outcome {
    /// With a frame.
    Compiled(Arc<CompiledFrame>, Vec<Artifact>),
    /// With a reason to run eagerly.
    Failed(Reason),
    /// Not started: too much to do.
    Later,
}

impl Job {
    /// A compile about to start.
    pub fn new(id: JobId, request: Request, recording: Option<Snapshot>) -> Arc<Job> {
        let Request { asker, settings, key, plugin } = request;
        Arc::new(Job {
            id,
            key,
            plugin,
            settings,
            asker: Mutex::new(Some(asker)),
            waiters: AtomicU32::new(1),
            recording: recording.map(Parts::of),
            stage: AtomicU8::new(0),
            timings: Mutex::default(),
            started: Instant::now(),
        })
    }

    /// The stage it is in.
    pub fn stage(&self) -> Stage {
        Stage::ALL[usize::from(self.stage.load(Ordering::Relaxed)).min(Stage::ALL.len() - 1)]
    }

    /// Seconds per stage so far. A stage that ran twice counts with its sum.
    pub fn timings(&self) -> Vec<(String, f64)> {
        lock(&self.timings).clone()
    }

    /// Writes the recording, where its client asked for one.
    pub fn record(&self, result: Result<&Traced, &Reason>) {
        if let (Some(parts), Some(dir)) = (&self.recording, &self.settings.record_dir) {
            record::write(parts, &self.key, self.id, dir, result);
        }
    }

    /// Adds `seconds` to the entry `name`.
    pub fn took(&self, name: &str, seconds: f64) {
        let mut timings = lock(&self.timings);
        match timings.iter_mut().find(|(n, _)| n == name) {
            Some(entry) => entry.1 += seconds,
            None => timings.push((name.to_owned(), seconds)),
        }
    }

    /// Runs one stage: span, time and its limit, panic fence. Workers have limits of their own.
    pub fn run<T>(&self, hub: &Hub, stage: Stage, work: impl FnOnce() -> Result<T, Reason>) -> Result<T, Reason> {
        self.stage.store(stage as u8, Ordering::Relaxed);
        let client = lock(&self.asker).as_ref().map_or(0, |a| a.client);
        let span =
            tracing::info_span!("stage", stage = stage.name(), job = self.id, frame = %self.key.frame.code, client);
        let _entered = span.enter();
        let start = Instant::now();
        let _limit = (stage != Stage::Codegen).then(|| TimeLimit::new(hub.config.stage_timeout()));
        let result = fence(hub, stage.name(), work).unwrap_or_else(|text| {
            let detail = format!("panic in {}: {text}", stage.name());
            Err(if text == EXHAUSTED || text == LATE {
                Reason::new(ReasonCode::TooLarge, text)
            } else {
                Reason::new(ReasonCode::Internal, detail)
            })
        });
        let seconds = start.elapsed().as_secs_f64();
        self.took(stage.name(), seconds);
        match &result {
            Ok(_) => tracing::debug!(seconds, "done"),
            Err(reason) => tracing::info!(seconds, reason = reason.code.name(), detail = reason.detail, "refused"),
        }
        result
    }
}
