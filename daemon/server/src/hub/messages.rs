//! What actors tell each other: an enum for each of them.

use crate::base::encoded::Encoded;
use crate::hub::ClientId;
use crate::hub::job::{Job, Outcome};
use crate::hub::oracle::Asker;
use crate::stages::{Pending, Traced};
use actix::Message;
use crossbeam_channel::Sender;
use flambeau_core::trace::Trace;
use flambeau_ir::frame::{Frame, TraceOptions};
use flambeau_ir::graph::Graph;
use flambeau_storage::KeyParts;
use flambeau_wire::from_client::{FrameKey, FromClient, RequestId, Settings, Snapshot};
use flambeau_wire::from_daemon::Artifact;
use flambeau_wire::registry::Plugin;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;

/// A request of a client: who, which, under which settings.
#[derive(Clone)]
pub struct Request {
    /// Who, and the way back.
    pub asker: Asker,
    /// Its settings.
    pub settings: Arc<Settings>,
    /// Of what.
    pub key: FrameKey,
    /// What compiles it.
    pub plugin: Option<Plugin>,
}

/// A frame's place in storage.
#[derive(Clone)]
pub struct Place {
    /// blake3 of the key and of the plug-in's fingerprint.
    pub key: [u8; 32],
    /// The key's readable parts.
    pub parts: Arc<KeyParts>,
}

impl Place {
    /// The place of `key` where the plug-in has this fingerprint; zero without one.
    pub fn new(key: &FrameKey, plugin: [u8; 32]) -> Place {
        let bytes = postcard::to_stdvec(&(key, plugin)).unwrap_or_default();
        let short = |bytes: &[u8; 32]| blake3::Hash::from(*bytes).to_hex()[..8].to_owned();
        let part = |name: &str, value: String| (name.to_owned(), value);
        let parts = vec![
            part("options", format!("{:?}", key.options)),
            part("structure", short(&key.shape)),
            part("python", key.python.clone()),
            part("torch", key.torch.clone()),
            part("target", key.target.clone()),
            part("plug-in", short(&plugin)),
            part("resume point", format!("{:?}", key.frame.path)),
        ];
        let family = key.frame.code.0;
        Place { key: *blake3::hash(&bytes).as_bytes(), parts: Arc::new(KeyParts { family, parts }) }
    }
}

/// What Capture is told.
pub enum CaptureMessage {
    /// Check this snapshot; the frame goes on to Trace.
    Snapshot(Arc<Job>, Box<Snapshot>),
    /// Run this off the I/O thread (decoding of large messages).
    Decode(Box<dyn FnOnce() + Send>),
}

/// What Trace is told.
pub enum TraceMessage {
    /// Trace this frame; the trace goes on to Guard. Sent again with another asker if the first goes away.
    Start(Arc<Job>, Arc<Frame>),
}

/// What Guard is told.
pub enum GuardMessage {
    /// Answer with the frames stored for a key.
    Lookup(Request),
    /// From Cache: what is stored there, or why nothing.
    Loaded(Place, Result<Vec<Encoded>, String>),
    /// Compile this snapshot; the hash of its bytes says which requests are the same.
    Compile(Request, Box<Snapshot>, [u8; 32]),
    /// Lower this graph.
    LowerGraph(Request, Box<Graph>, TraceOptions, [u8; 32]),
    /// From Trace.
    Traced(Arc<Job>, Arc<Frame>, Box<Trace>),
    /// From Trace: a frame that is not compiled.
    Refused(Arc<Job>, Arc<Frame>, Box<Trace>),
    /// From a worker thread: something to store besides.
    Keep(Place, Encoded),
    /// From Trace: what it did, for clients that asked.
    Logged(Arc<Job>, Vec<String>),
    /// From Trace: the client that answered is gone.
    Lost(Arc<Job>, Arc<Frame>),
    /// From any stage: the end of a compile.
    Finished(Arc<Job>, Outcome),
    /// From a worker thread: the end of a compile, encoded.
    Deliver(Arc<Job>, Encoded),
    /// A client no longer waits for a request.
    Cancel(ClientId, RequestId),
    /// A client went away.
    Gone(ClientId),
    /// Guards failed so often, by index of the candidate.
    Failures(Request, Vec<(u32, u32)>),
    /// Storage was emptied.
    Clear,
    /// A second passed.
    Tick,
}

/// What Lower is told.
pub enum LowerMessage {
    /// Give this traced frame a body; native ones go on to Codegen, others are finished.
    Lower(Arc<Job>, Box<Traced>),
}

/// What Codegen is told.
pub enum CodegenMessage {
    /// Compile the kernels of this plan.
    Compile(Arc<Job>, Box<Pending>),
    /// A client with these settings connected: have its default back end's workers ready.
    Prewarm(Arc<Settings>),
}

/// What Cache is told.
pub enum CacheMessage {
    /// Give Guard the frames stored there.
    Load(Place),
    /// Store a frame.
    Store(Place, Encoded),
    /// Put stored frames into this order.
    Reorder(Place, Vec<usize>),
    /// Artifacts of these kernels, where known.
    Kernels(Vec<[u8; 32]>, Sender<Vec<Option<Artifact>>>),
    /// Store a kernel's artifact.
    StoreKernel([u8; 32], Artifact),
    /// Figures, as JSON.
    Stats(Sender<Value>),
    /// Drop everything.
    Clear(Sender<Value>),
    /// Idle work.
    Tidy,
    /// Make everything durable.
    Flush(Sender<Value>),
}

/// What a session is told.
pub enum SessionMessage {
    /// A message came; with the hash of what follows its request id.
    Received(Box<FromClient>, [u8; 32]),
    /// The client is gone, or talks nonsense.
    Closed(String),
    /// The last message about a request, encoded.
    Reply(RequestId, Vec<u8>),
    /// The daemon lost its memory of what is in flight.
    FailAll,
    /// The back ends of users of this folder changed.
    Swapped(PathBuf),
    /// The daemon is going away.
    Goodbye,
}

macro_rules! messages {
    ($($message:ident),*) => {$(
        impl Message for $message {
            type Result = ();
        }
    )*};
}

messages!(CaptureMessage, TraceMessage, GuardMessage, LowerMessage, CodegenMessage, CacheMessage, SessionMessage);
