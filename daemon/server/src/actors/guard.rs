//! Guard: the front desk of all compiles. It owns the tables of compiled frames, knows what is in flight and who waits
//! for it, and orders guards.

use super::{Station, station};
use crate::base::encoded::{self, Encoded};
use crate::base::lock;
use crate::hub::job::{Job, JobId, Outcome, Stage};
use crate::hub::messages::{
    CacheMessage, CaptureMessage, GuardMessage, LowerMessage, Place, Request, SessionMessage, TraceMessage,
};
use crate::hub::oracle::Asker;
use crate::hub::pool::{Pool, PoolOptions, STACK};
use crate::hub::{Hub, count};
use crate::stages;
use flambeau_core::trace::Trace;
use flambeau_ir::frame::{Frame, TraceOptions};
use flambeau_ir::graph::Graph;
use flambeau_ir::reason::{Reason, ReasonCode};
use flambeau_ir::verify;
use flambeau_wire::frame::encode;
use flambeau_wire::from_client::{FrameKey, KeyOptions, RequestId, Snapshot};
use flambeau_wire::from_daemon::FromDaemon;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Most bytes of compiled frames kept in memory. What is not here is on disk.
const TABLE_BYTES: usize = 16 << 20;
/// Look-ups kept for `flambeau cache why`.
const MISSES_KEPT: usize = 64;

/// The front desk.
pub struct Guard {
    hub: Arc<Hub>,
    pool: Pool,
    table: HashMap<[u8; 32], Entry>,
    table_bytes: usize,
    clock: u64,
    loading: HashMap<[u8; 32], Loading>,
    flights: BTreeMap<JobId, Flight>,
    joins: HashMap<[u8; 32], JobId>,
    next_job: JobId,
}

/// All frames stored under one key.
struct Entry {
    frames: Vec<Encoded>,
    /// Failures that clients reported, by frame.
    failures: Vec<u64>,
    used: u64,
}

/// A key whose frames are being read from disk.
#[derive(Default)]
struct Loading {
    waiting: Vec<Request>,
    /// What was stored meanwhile: what is read may be without it.
    stored: Vec<Encoded>,
}

/// A compile in flight.
struct Flight {
    job: Arc<Job>,
    place: Place,
    join: [u8; 32],
    waiters: Vec<Asker>,
}

station!(Guard, GuardMessage);

impl Station for Guard {
    type Told = GuardMessage;

    fn new(hub: Arc<Hub>) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let pool = Pool::new(&hub, PoolOptions { name: "guard", threads, waiting: 256, stack: STACK });
        Guard {
            hub,
            pool,
            table: HashMap::new(),
            table_bytes: 0,
            clock: 0,
            loading: HashMap::new(),
            flights: BTreeMap::new(),
            joins: HashMap::new(),
            next_job: 1,
        }
    }
}

impl Guard {
    fn on(&mut self, message: GuardMessage) {
        match message {
            GuardMessage::Lookup(request) => self.look_up(request),
            GuardMessage::Loaded(place, result) => self.loaded(&place, result),
            GuardMessage::Compile(request, snapshot, join) => self.compile(request, snapshot, join),
            GuardMessage::LowerGraph(request, graph, options, join) => self.lower_graph(request, *graph, options, join),
            GuardMessage::Traced(job, frame, trace) => self.traced(job, frame, *trace),
            GuardMessage::Refused(job, frame, trace) => self.refused(job, frame, *trace),
            GuardMessage::Keep(place, frame) => self.store(place, frame),
            GuardMessage::Lost(job, frame) => self.lost(&job, frame),
            GuardMessage::Finished(job, outcome) => self.finished(job, outcome),
            GuardMessage::Logged(job, lines) => self.logged(&job, &lines),
            GuardMessage::Deliver(job, frame) => self.deliver(&job, frame),
            GuardMessage::Cancel(client, request) => self.forget(|a| a.client == client && a.request == request),
            GuardMessage::Gone(client) => self.forget(|a| a.client == client),
            GuardMessage::Failures(request, failures) => self.failures(&request, &failures),
            GuardMessage::Clear => {
                self.table.clear();
                self.table_bytes = 0;
            }
            GuardMessage::Tick => self.tick(),
        }
    }

    fn place(&self, request: &Request) -> Place {
        let build = request.plugin.as_ref().map(|plugin| self.hub.backends.of(plugin).fingerprint(plugin));
        Place::new(&request.key, build.unwrap_or_default())
    }

    fn reply(&self, asker: &Asker, bytes: Vec<u8>) {
        if let Some(session) = self.hub.session(asker.client) {
            session.do_send(SessionMessage::Reply(asker.request, bytes));
        }
    }

    fn reply_with(&self, asker: &Asker, message: &FromDaemon) {
        match encode(message) {
            Ok(bytes) => self.reply(asker, bytes),
            Err(error) => tracing::error!(%error, "a reply cannot be encoded"),
        }
    }

    fn look_up(&mut self, request: Request) {
        let place = self.place(&request);
        self.clock += 1;
        if let Some(entry) = self.table.get_mut(&place.key) {
            entry.used = self.clock;
            count(&self.hub.counters.hits_memory);
            let bytes = encoded::candidates(request.asker.request, &entry.frames, None);
            return self.reply(&request.asker, bytes);
        }
        let loading = self.loading.entry(place.key).or_default();
        loading.waiting.push(request);
        if loading.waiting.len() == 1 {
            self.hub.cache.tell(CacheMessage::Load(place));
        }
    }

    fn loaded(&mut self, place: &Place, result: Result<Vec<Encoded>, String>) {
        let Loading { waiting, stored } = self.loading.remove(&place.key).unwrap_or_default();
        let (mut frames, miss) = match result {
            Ok(frames) => (frames, None),
            Err(miss) => (Vec::new(), Some(miss).filter(|_| stored.is_empty())),
        };
        for frame in stored {
            if !frames.iter().any(|known| known.hash == frame.hash) {
                frames.push(frame);
            }
        }
        for request in waiting {
            if let Some(miss) = &miss {
                count(&self.hub.counters.misses);
                self.note_miss(&request.key, miss);
            } else {
                count(&self.hub.counters.hits_disk);
            }
            self.reply(&request.asker, encoded::candidates(request.asker.request, &frames, miss.as_deref()));
        }
        if !frames.is_empty() {
            self.keep(place.key, frames);
        }
    }

    fn note_miss(&self, key: &FrameKey, miss: &str) {
        let mut misses = lock(&self.hub.misses);
        misses.push_back((key.frame.code.to_string(), miss.to_owned()));
        if misses.len() > MISSES_KEPT {
            misses.pop_front();
        }
    }

    /// Puts all frames of a key into the table; drops what was used longest ago.
    fn keep(&mut self, key: [u8; 32], frames: Vec<Encoded>) {
        self.table_bytes += frames.iter().map(Encoded::len).sum::<usize>();
        let failures = vec![0; frames.len()];
        if let Some(old) = self.table.insert(key, Entry { frames, failures, used: self.clock }) {
            self.table_bytes -= old.bytes();
        }
        while self.table_bytes > TABLE_BYTES && self.table.len() > 1 {
            let Some(oldest) = self.table.iter().min_by_key(|(_, e)| e.used).map(|(k, _)| *k) else { break };
            if let Some(old) = self.table.remove(&oldest) {
                self.table_bytes -= old.bytes();
            }
        }
    }

    /// Lets a request wait for one in flight that is the same.
    fn join(&mut self, request: &Request, join: &[u8; 32]) -> bool {
        let Some(flight) = self.joins.get(join).and_then(|id| self.flights.get_mut(id)) else { return false };
        count(&self.hub.counters.shared);
        flight.waiters.push(request.asker.clone());
        flight.job.waiters.store(flight.waiters.len() as u32, Ordering::Relaxed);
        tracing::debug!(job = flight.job.id, client = request.asker.client, "shares a compile");
        true
    }

    fn depart(&mut self, request: Request, join: [u8; 32], recorded: Option<Snapshot>) -> Arc<Job> {
        count(&self.hub.counters.compiles);
        let id = self.next_job;
        self.next_job += 1;
        let place = self.place(&request);
        let asker = request.asker.clone();
        let job = Job::new(id, request, recorded);
        self.joins.insert(join, id);
        self.flights.insert(id, Flight { job: job.clone(), place, join, waiters: vec![asker] });
        job
    }

    fn compile(&mut self, request: Request, snapshot: Box<Snapshot>, join: [u8; 32]) {
        if self.join(&request, &join) {
            return;
        }
        let recorded = request.settings.record_dir.is_some().then(|| (*snapshot).clone());
        let job = self.depart(request, join, recorded);
        self.hub.capture.tell(CaptureMessage::Snapshot(job, snapshot));
    }

    fn lower_graph(&mut self, request: Request, graph: Graph, options: TraceOptions, join: [u8; 32]) {
        if self.join(&request, &join) {
            return;
        }
        let sound = request.key.frame.code == graph.content_hash()
            && request.key.options == KeyOptions::of(&options)
            && verify::graph(&graph, graph.nodes.len()).is_ok();
        let job = self.depart(request, join, None);
        if !sound {
            let reason = Reason::new(ReasonCode::Internal, "the graph is not what its key says, or is none");
            return self.finished(job, Outcome::Failed(reason));
        }
        let trace = stages::trace_of_graph(graph);
        let program = flambeau_guard::program(&trace);
        let traced = stages::Traced { frame: job.key.frame.clone(), options, trace, program };
        self.hub.lower.tell(LowerMessage::Lower(job, Box::new(traced)));
    }

    fn traced(&mut self, job: Arc<Job>, frame: Arc<Frame>, trace: Trace) {
        let (hub, work) = (self.hub.clone(), job.clone());
        let accepted = self.pool.offer(move || {
            let result = work.run(&hub, Stage::Guard, || Ok(stages::guard(&frame, trace)));
            match result {
                Ok(traced) => {
                    work.record(Ok(&traced));
                    hub.lower.tell(LowerMessage::Lower(work, Box::new(traced)));
                }
                Err(reason) => hub.guard.tell(GuardMessage::Finished(work, Outcome::Failed(reason))),
            }
        });
        if !accepted {
            self.finished(job, Outcome::Later);
        }
    }

    /// Answers, then stores why, so that the next process need not ask.
    fn refused(&mut self, job: Arc<Job>, frame: Arc<Frame>, trace: Trace) {
        let Some(reason) = trace.exit.refused().cloned() else { return };
        tracing::info!(job = job.id, frame = %job.key.frame.code, reason = reason.code.name(), reason.detail, "refused");
        let place = self.flights.get(&job.id).map(|flight| flight.place.clone());
        let lasts = !matches!(reason.code, ReasonCode::Internal | ReasonCode::UnusualAmbient);
        self.finished(job, Outcome::Failed(reason));
        let Some(place) = place.filter(|_| lasts) else { return };
        let hub = self.hub.clone();
        // Where there is too much to do, the next process asks again.
        let _ = self.pool.offer(move || match Encoded::new(&stages::refused(&frame, trace), &[]) {
            Ok(encoded) => hub.guard.tell(GuardMessage::Keep(place, encoded)),
            Err(error) => tracing::warn!(%error, "a refusal cannot be encoded"),
        });
    }

    /// The asking client is gone or stopped: another that waits takes over, from the start of the trace. One that is
    /// stopped stays a waiter.
    fn lost(&mut self, job: &Arc<Job>, frame: Arc<Frame>) {
        let Some(flight) = self.flights.get_mut(&job.id) else { return };
        let before = lock(&job.asker).as_ref().map(|a| (a.client, a.request));
        let next = flight.waiters.iter().find(|a| Some((a.client, a.request)) != before).cloned();
        if let Some(next) = next {
            count(&self.hub.counters.restarted);
            tracing::info!(job = job.id, client = next.client, "another client answers from here");
            *lock(&job.asker) = Some(next);
            self.hub.trace.tell(TraceMessage::Start(job.clone(), frame));
        } else {
            let reason =
                Reason::new(ReasonCode::Internal, "the client did not answer the compiler's questions in time");
            self.finished(job.clone(), Outcome::Failed(reason));
        }
    }

    fn logged(&self, job: &Job, lines: &[String]) {
        for asker in self.flights.get(&job.id).into_iter().flat_map(|flight| &flight.waiters) {
            let _ = asker.outbox.send(&FromDaemon::Log { request: asker.request, lines: lines.to_vec() });
        }
    }

    fn finished(&mut self, job: Arc<Job>, outcome: Outcome) {
        let message: Box<dyn Fn(RequestId) -> FromDaemon> = match outcome {
            Outcome::Compiled(frame, artifacts) => return self.encode(job, frame, artifacts),
            Outcome::Later => {
                count(&self.hub.counters.later);
                Box::new(|request| FromDaemon::Later { request })
            }
            Outcome::Failed(reason) => {
                count(&self.hub.counters.failed);
                job.record(Err(&reason));
                Box::new(move |request| FromDaemon::Failed { request, reason: Box::new(reason.clone()) })
            }
        };
        if let Some(flight) = self.land(job.id) {
            for asker in &flight.waiters {
                self.reply_with(asker, &message(asker.request));
            }
        }
    }

    fn encode(
        &mut self,
        job: Arc<Job>,
        frame: Arc<flambeau_ir::plan::CompiledFrame>,
        artifacts: Vec<flambeau_wire::from_daemon::Artifact>,
    ) {
        let (hub, work) = (self.hub.clone(), job.clone());
        let accepted = self.pool.offer(move || {
            let next = match Encoded::new(&frame, &artifacts) {
                Ok(encoded) => GuardMessage::Deliver(work, encoded),
                Err(e) => {
                    let reason = Reason::new(ReasonCode::Internal, format!("a frame cannot be encoded: {e}"));
                    GuardMessage::Finished(work, Outcome::Failed(reason))
                }
            };
            hub.guard.tell(next);
        });
        if !accepted {
            self.finished(job, Outcome::Later);
        }
    }

    fn deliver(&mut self, job: &Arc<Job>, frame: Encoded) {
        count(&self.hub.counters.compiled);
        job.took("total", job.started.elapsed().as_secs_f64());
        let timings = job.timings();
        tracing::info!(job = job.id, frame = %job.key.frame.code, bytes = frame.len(), ?timings, "compiled");
        let Some(flight) = self.land(job.id) else { return };
        for asker in &flight.waiters {
            self.reply(asker, encoded::compiled(asker.request, &frame, &timings));
        }
        if frame.keep {
            self.store(flight.place, frame);
        }
    }

    fn store(&mut self, place: Place, frame: Encoded) {
        if let Some(loading) = self.loading.get_mut(&place.key) {
            loading.stored.push(frame.clone());
        } else if let Some(entry) = self.table.get_mut(&place.key)
            && !entry.frames.iter().any(|f| f.hash == frame.hash)
        {
            self.table_bytes += frame.len();
            entry.frames.push(frame.clone());
            entry.failures.push(0);
        }
        self.hub.cache.tell(CacheMessage::Store(place, frame));
    }

    fn land(&mut self, id: JobId) -> Option<Flight> {
        let flight = self.flights.remove(&id)?;
        if self.joins.get(&flight.join) == Some(&id) {
            self.joins.remove(&flight.join);
        }
        Some(flight)
    }

    /// Takes waiters out. A compile nobody waits for goes on: its result is stored. If the one that answers leaves, the
    /// waiting trace hears of it through [`crate::hub::oracle::Questions`].
    fn forget(&mut self, leaves: impl Fn(&Asker) -> bool) {
        for flight in self.flights.values_mut() {
            flight.waiters.retain(|a| !leaves(a));
            flight.job.waiters.store(flight.waiters.len() as u32, Ordering::Relaxed);
        }
        for loading in self.loading.values_mut() {
            loading.waiting.retain(|r| !leaves(&r.asker));
        }
    }

    /// Counts failures; candidates that fail least come first from the next daemon start on. In this one the order
    /// stays, because clients report by index.
    fn failures(&mut self, request: &Request, failures: &[(u32, u32)]) {
        let place = self.place(request);
        let Some(entry) = self.table.get_mut(&place.key) else { return };
        for (index, times) in failures {
            if let Some(total) = entry.failures.get_mut(*index as usize) {
                *total += u64::from(*times);
            }
        }
        let mut order: Vec<usize> = (0..entry.frames.len()).collect();
        order.sort_by_key(|i| entry.failures[*i]);
        self.hub.cache.tell(CacheMessage::Reorder(place, order));
    }

    /// Tells clients that wait that work goes on.
    fn tick(&mut self) {
        for flight in self.flights.values() {
            let stage = flight.job.stage().name();
            for asker in &flight.waiters {
                let _ = asker.outbox.send(&FromDaemon::Progress { request: asker.request, stage: stage.to_owned() });
            }
        }
        self.hub.in_flight.store(self.flights.len() as u64, Ordering::Relaxed);
    }
}

impl Entry {
    fn bytes(&self) -> usize {
        self.frames.iter().map(Encoded::len).sum()
    }
}
