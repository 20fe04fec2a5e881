//! What actors share: each other's addresses, the configuration, the counters. An address can be replaced while the
//! daemon runs (the watchdog recreates an actor that died), so nobody keeps one.

pub mod job;
pub mod messages;
pub mod oracle;
pub mod pool;
pub mod report;
pub mod swap;

use crate::base::lock;
use crate::plugins::backends::Backends;
use actix::{Message, Recipient};
use messages::{
    CacheMessage, CaptureMessage, CodegenMessage, GuardMessage, LowerMessage, SessionMessage, TraceMessage,
};
use oracle::Questions;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};
use swap::Watched;

/// Of how many [`CHUNK`]s all messages that are being read may be, those of all clients together.
pub const INCOMING_CHUNKS: u32 = 256;
/// Bytes read at a time into a buffer that grows: an announced length alone reserves no memory.
pub const CHUNK: u64 = 1 << 20;

/// What the daemon was started with.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it listens.
    pub socket: PathBuf,
    /// Where compiles are kept.
    pub cache_dir: PathBuf,
    /// Upper bound of the cache, bytes.
    pub cache_size: u64,
    /// Exit after this many seconds without a client; 0 for never.
    pub idle_timeout: u64,
    /// Extra plug-in directories.
    pub plugin_path: Vec<PathBuf>,
    /// Longest time that a plug-in may take for one kernel.
    pub kernel_timeout: Duration,
}

impl Config {
    /// Longest time for one stage of a compile, waits for a client's answers not counted: as long as a client waits.
    pub fn stage_timeout(&self) -> Duration {
        flambeau_wire::endpoint::patience(self.kernel_timeout)
    }
}

/// Names one connection.
pub type ClientId = u64;

/// The shared state.
pub struct Hub {
    /// What the daemon was started with.
    pub config: Config,
    /// When it started.
    pub started: Instant,
    /// One slot per actor.
    pub capture: Slot<CaptureMessage>,
    /// See [`Hub::capture`].
    pub trace: Slot<TraceMessage>,
    /// See [`Hub::capture`].
    pub guard: Slot<GuardMessage>,
    /// See [`Hub::capture`].
    pub lower: Slot<LowerMessage>,
    /// See [`Hub::capture`].
    pub codegen: Slot<CodegenMessage>,
    /// See [`Hub::capture`].
    pub cache: Slot<CacheMessage>,
    /// Open connections.
    pub sessions: Mutex<BTreeMap<ClientId, Recipient<SessionMessage>>>,
    /// Questions that wait for an answer.
    pub questions: Questions,
    /// Plug-ins, by their folders.
    pub backends: Backends,
    /// Records of users' back ends.
    pub watched: Watched,
    /// The open cache; used by the Cache actor's thread only. It outlives the actor.
    pub store: Arc<Mutex<Option<flambeau_storage::Cache>>>,
    /// The latest look-ups that found nothing: frame, reason.
    pub misses: Mutex<VecDeque<(String, String)>>,
    /// Counts since the start.
    pub counters: Counters,
    /// Compiles in flight at the last tick.
    pub in_flight: AtomicU64,
    /// Memory for messages that are being read, in [`CHUNK`]s.
    pub incoming: Arc<tokio::sync::Semaphore>,
    /// When a client was last seen.
    pub last_client: Mutex<Instant>,
    /// Set once the daemon is going away.
    pub closing: AtomicBool,
    /// Asks the main loop to end.
    pub stop: tokio::sync::Notify,
}

impl Hub {
    /// A hub whose actors are still to be started.
    pub fn new(config: Config) -> Arc<Hub> {
        Arc::new(Hub {
            backends: Backends::new(config.kernel_timeout),
            watched: Watched::default(),
            config,
            started: Instant::now(),
            capture: Slot::default(),
            trace: Slot::default(),
            guard: Slot::default(),
            lower: Slot::default(),
            codegen: Slot::default(),
            cache: Slot::default(),
            sessions: Mutex::default(),
            questions: Questions::default(),
            store: Arc::default(),
            misses: Mutex::default(),
            counters: Counters::default(),
            in_flight: AtomicU64::new(0),
            incoming: Arc::new(tokio::sync::Semaphore::new(INCOMING_CHUNKS as usize)),
            last_client: Mutex::new(Instant::now()),
            closing: AtomicBool::new(false),
            stop: tokio::sync::Notify::new(),
        })
    }

    /// The session of a client, if it is still connected.
    pub fn session(&self, client: ClientId) -> Option<Recipient<SessionMessage>> {
        lock(&self.sessions).get(&client).cloned()
    }
}

/// Counts since the daemon started, for `flambeau status`.
#[derive(Debug, Default, Serialize)]
pub struct Counters {
    /// Connections accepted.
    pub clients: AtomicU64,
    /// Connections refused in the handshake.
    pub refused: AtomicU64,
    /// `Lookup` messages.
    pub lookups: AtomicU64,
    /// Look-ups answered from memory.
    pub hits_memory: AtomicU64,
    /// Look-ups answered from disk.
    pub hits_disk: AtomicU64,
    /// Look-ups with no frame.
    pub misses: AtomicU64,
    /// Compile requests.
    pub compiles: AtomicU64,
    /// Compile requests that joined one in flight.
    pub shared: AtomicU64,
    /// Traces run again because the answering client went away.
    pub restarted: AtomicU64,
    /// Frames compiled.
    pub compiled: AtomicU64,
    /// Requests that ended in a reason.
    pub failed: AtomicU64,
    /// Requests turned away.
    pub later: AtomicU64,
    /// Kernels compiled.
    pub kernels: AtomicU64,
    /// Kernels taken from the cache.
    pub kernels_cached: AtomicU64,
    /// Panics fenced in stages and actors.
    pub panics: AtomicU64,
    /// Actors recreated by the watchdog.
    pub revived: AtomicU64,
    /// Changes of users' back ends that clients were told of.
    pub swaps: AtomicU64,
}

/// Adds one.
pub fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// The current address of one actor, by what it is told.
pub struct Slot<M: Message<Result = ()> + Send>(RwLock<Option<Recipient<M>>>);

impl<M: Message<Result = ()> + Send> Default for Slot<M> {
    fn default() -> Self {
        Slot(RwLock::new(None))
    }
}

impl<M: Message<Result = ()> + Send> Slot<M> {
    /// Makes `addr` the actor's address.
    pub fn put(&self, addr: Recipient<M>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(addr);
    }

    /// Whether the actor takes messages.
    pub fn alive(&self) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).as_ref().is_some_and(Recipient::connected)
    }

    /// Sends a message that must arrive. Not bounded by the mailbox: what is sent this way is bounded by the number of
    /// requests admitted.
    pub fn tell(&self, message: M) {
        if let Some(addr) = &*self.0.read().unwrap_or_else(PoisonError::into_inner) {
            addr.do_send(message);
        }
    }

    /// Sends a message unless the mailbox is full or the actor is gone; then gives false.
    pub fn offer(&self, message: M) -> bool {
        let addr = self.0.read().unwrap_or_else(PoisonError::into_inner);
        addr.as_ref().is_some_and(|a| a.try_send(message).is_ok())
    }
}

/// Runs `work`; a panic is logged and counted, and gives its message.
pub fn fence<T>(hub: &Hub, what: &str, work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default();
        count(&hub.counters.panics);
        tracing::error!(what, text, "panic");
        text
    })
}
