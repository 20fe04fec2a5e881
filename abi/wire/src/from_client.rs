//! Client to daemon.

use crate::registry::Plugin;
use flambeau_ir::frame::{BackendKind, FrameId, TraceOptions};
use flambeau_ir::guard::Ambient;
use flambeau_ir::object::{Described, ObjId};
use flambeau_ir::oracle::Answer;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Names one request of one connection; chosen by the client, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RequestId(pub u64);

/// Every message a client sends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FromClient {
    /// First on every connection.
    Hello(Hello),
    /// Are there compiled frames for this key? Answered by `Candidates`.
    Lookup {
        /// Names the request.
        request: RequestId,
        /// The key.
        key: FrameKey,
        /// The plug-in that compiles it, if one does: each has frames of its own.
        plugin: Option<Plugin>,
    },
    /// Compile this frame. Answered by `Questions` (any number), then `Compiled`, `Failed` or `Later`.
    Compile {
        /// Names the request.
        request: RequestId,
        /// The key.
        key: FrameKey,
        /// As in `Lookup`.
        plugin: Option<Plugin>,
        /// The frame.
        snapshot: Box<Snapshot>,
    },
    /// Lower a graph that came from elsewhere (`torch.compile(backend="flambeau")`). Answered as `Compile`.
    Lower {
        /// Names the request.
        request: RequestId,
        /// The key (a hash of the graph in place of a code hash).
        key: FrameKey,
        /// As in `Lookup`.
        plugin: Option<Plugin>,
        /// The graph; placeholder sources are `Step::Arg(i)`.
        graph: Box<flambeau_ir::graph::Graph>,
        /// Options.
        options: TraceOptions,
    },
    /// Answers to `Questions` of this request, in order.
    Answers {
        /// Names the request.
        request: RequestId,
        /// One per question.
        answers: Vec<Answer>,
    },
    /// The client no longer waits for this request.
    Cancel(RequestId),
    /// Guards of this frame failed so often; orders candidates.
    GuardFailures {
        /// Which frame.
        key: FrameKey,
        /// As in `Lookup`.
        plugin: Option<Plugin>,
        /// Index of the candidate, number of failures.
        failures: Vec<(u32, u32)>,
    },
    /// Administrative request, answered by `Report`.
    Admin {
        /// Names the request.
        request: RequestId,
        /// What to do.
        command: Admin,
    },
}

/// Opens a connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// [`crate::PROTOCOL`].
    pub protocol: u32,
    /// Build hash of the package; a daemon of another build refuses.
    pub build: String,
    /// Process id, for reports.
    pub pid: u32,
    /// Resolved settings.
    pub settings: Settings,
}

/// The client's resolved settings; the daemon never reads a client's environment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Settings {
    /// Where compiles are kept.
    pub cache_dir: PathBuf,
    /// Upper bound of the cache, bytes.
    pub cache_size: u64,
    /// Extra plug-in directories.
    pub plugin_path: Vec<PathBuf>,
    /// Folders of native libraries that code generators may need: those of Python packages beside the client's torch.
    pub library_path: Vec<PathBuf>,
    /// Where the user's back ends are ([`crate::registry`]).
    pub data_dir: PathBuf,
    /// If set, every compile is recorded into this directory.
    pub record_dir: Option<PathBuf>,
}

/// What a compile is stored under. Two clients with equal keys share candidates.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FrameKey {
    /// The frame.
    pub frame: FrameId,
    /// The options that shape the trace. The daemon checks that they are those of the snapshot.
    pub options: KeyOptions,
    /// blake3 of what else tells calls apart before any guard does: structure of the module, dimensions marked as dynamic.
    pub shape: [u8; 32],
    /// e.g. `3.11.7`.
    pub python: String,
    /// e.g. `2.15.0+cu132`.
    pub torch: String,
    /// Fingerprint of the device and CPU features the code is for.
    pub target: String,
}

/// Options that are part of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct KeyOptions {
    /// What the graph is for.
    pub backend: BackendKind,
    /// `dynamic=`
    pub dynamic: Option<bool>,
    /// `fullgraph=True`, nested breaks, `error_on_graph_break(True)`, kernels for training and the derivative that torch
    /// chooses for `clamp`: the least bits.
    pub switches: u8,
}

impl KeyOptions {
    /// Those of a trace.
    pub fn of(options: &TraceOptions) -> KeyOptions {
        let (trains, at_limits) = options.training.map_or((false, false), |chosen| (true, chosen.clamp_at_limits));
        let switches = [options.fullgraph, options.nested_breaks, options.error_on_break, trains, at_limits];
        KeyOptions {
            backend: options.backend.clone(),
            dynamic: options.dynamic,
            switches: switches.iter().enumerate().map(|(bit, on)| u8::from(*on) << bit).sum(),
        }
    }
}

/// What the client reads of a frame before asking for its compile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The function object.
    pub function: ObjId,
    /// Arguments by `localsplus` slot.
    pub args: Vec<Option<ObjId>>,
    /// The builtins namespace.
    pub builtins: ObjId,
    /// The thread's state.
    pub ambient: Ambient,
    /// Options.
    pub options: TraceOptions,
    /// Objects and code, prefetched.
    pub described: Described,
}

/// Administrative commands, for the CLI. They cross as words: a message that a bug damaged is none by accident.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "&'static str", try_from = "String")]
pub enum Admin {
    /// Processes, memory, counters.
    Status,
    /// Finish what runs, then exit.
    Stop,
    /// Sizes and hit rates.
    CacheStats,
    /// Answers once all that was compiled before outlives the daemon.
    CacheFlush,
    /// Drop all entries.
    CacheClear,
    /// Why the last look-ups missed.
    CacheWhy,
    /// Known back ends.
    Backends,
    /// The user's back ends changed: tell the clients now.
    Swap,
}

const ADMIN_WORDS: [(Admin, &str); 8] = [
    (Admin::Status, "status"),
    (Admin::Stop, "stop"),
    (Admin::CacheStats, "cache stats"),
    (Admin::CacheFlush, "cache flush"),
    (Admin::CacheClear, "cache clear"),
    (Admin::CacheWhy, "cache why"),
    (Admin::Backends, "backends"),
    (Admin::Swap, "swap"),
];

impl From<Admin> for &'static str {
    fn from(command: Admin) -> &'static str {
        ADMIN_WORDS.iter().find(|(one, _)| *one == command).map_or("", |(_, word)| word)
    }
}

impl TryFrom<String> for Admin {
    type Error = String;

    fn try_from(word: String) -> Result<Admin, String> {
        let found = ADMIN_WORDS.iter().find(|(_, one)| *one == word);
        found.map(|(command, _)| *command).ok_or_else(|| format!("no command is called {word:?}"))
    }
}
