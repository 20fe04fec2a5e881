//! Daemon to client.

use crate::from_client::RequestId;
use flambeau_ir::oracle::Question;
use flambeau_ir::plan::CompiledFrame;
use flambeau_ir::reason::Reason;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Every message the daemon sends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FromDaemon {
    /// The connection is open.
    Welcome {
        /// Process id of the daemon.
        pid: u32,
        /// Compile requests this client may have in flight.
        credits: u32,
    },
    /// The connection is refused and closed: wrong protocol, build or user.
    Refused(String),
    /// Answer to `Lookup`: all stored frames for the key, best first; possibly none.
    Candidates {
        /// Names the request.
        request: RequestId,
        /// Frames with their artifacts.
        frames: Vec<Delivery>,
        /// If there are none: why, for `cache why` and counters.
        miss: Option<String>,
    },
    /// The trace needs answers.
    Questions {
        /// Names the request.
        request: RequestId,
        /// In order.
        questions: Vec<Question>,
    },
    /// The compile is done. It is on its way to the cache: within 250 ms it is where it outlives the daemon, however that
    /// ends. What `Admin::CacheFlush` reports as stored is there already.
    Compiled {
        /// Names the request.
        request: RequestId,
        /// The frame.
        delivery: Box<Delivery>,
        /// Seconds per stage, in pipeline order.
        timings: Vec<(String, f64)>,
    },
    /// The frame cannot be compiled; run it eagerly.
    Failed {
        /// Names the request.
        request: RequestId,
        /// Why.
        reason: Box<Reason>,
    },
    /// The daemon is overloaded; run eagerly and ask again at a later call.
    Later {
        /// Names the request.
        request: RequestId,
    },
    /// Still working; resets the client's no-progress deadline.
    Progress {
        /// Names the request.
        request: RequestId,
        /// Stage name.
        stage: String,
    },
    /// What the trace did, an instruction a line, for a client that asked for it.
    Log {
        /// Names the request.
        request: RequestId,
        /// In order.
        lines: Vec<String>,
    },
    /// Answer to `Admin`: a JSON document.
    Report {
        /// Names the request.
        request: RequestId,
        /// JSON text.
        json: String,
    },
    /// The user's default back end or the build of one changed: read the record ([`crate::registry`]) anew.
    Swapped,
    /// The daemon is going away; finish up and reconnect when needed.
    Goodbye,
}

/// A compiled frame and the artifacts its plan names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Delivery {
    /// The frame; postcard of [`CompiledFrame`] is what storage keeps.
    pub frame: Arc<CompiledFrame>,
    /// Artifact bytes by blake3.
    pub artifacts: Vec<Artifact>,
}

/// One compiled kernel's bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    /// blake3 of `bytes`; checked before it is mapped.
    pub hash: [u8; 32],
    /// What the plug-in's launch half loads.
    pub bytes: Arc<[u8]>,
}
