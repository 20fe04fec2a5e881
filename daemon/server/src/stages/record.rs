//! Recordings: one compile's snapshot, the answers given, and what came of it, in one file; and their replay.

use crate::base::lock;
use crate::stages::exchange::{Exchange, Replayed};
use crate::stages::{self, Traced};
use anyhow::{Context, bail};
use flambeau_ir::reason::Reason;
use flambeau_wire::endpoint::BUILD;
use flambeau_wire::from_client::{FrameKey, Snapshot};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// First bytes of a recording.
const MAGIC: &[u8] = b"flambeau recording 1\n";

/// A recorded compile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recording {
    /// Build that recorded it.
    pub build: String,
    /// What it was stored under.
    pub key: FrameKey,
    /// The frame.
    pub snapshot: Snapshot,
    /// Questions and answers, in order.
    pub exchanges: Vec<Exchange>,
    /// What came of it.
    pub result: Recorded,
}

/// What a trace came to, as text. Two traces are the same if these texts are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Recorded {
    /// Graph and guards.
    Traced {
        /// The graph's text.
        graph: String,
        /// One line per guard, in checking order.
        guards: Vec<String>,
        /// blake3 of graph, guards, symbols and exit in their encoded form.
        hash: [u8; 32],
    },
    /// The reason's name and detail.
    Refused(String, String),
}

impl Recorded {
    /// Describes a traced frame.
    pub fn of(result: Result<&Traced, &Reason>) -> Recorded {
        match result {
            Ok(traced) => {
                let program = &traced.program;
                let line =
                    |g: &flambeau_ir::guard::Guard| format!("{}: {:?}", program.sources.display(g.source), g.kind);
                let guards = program.guards.iter().map(line).collect();
                let trace = &traced.trace;
                let run = (&trace.graph, &trace.indices, trace.needs_autograd, trace.exact);
                let parts = (run, program, &trace.symbols, &trace.exit);
                let hash = *blake3::hash(&postcard::to_stdvec(&parts).unwrap_or_default()).as_bytes();
                Recorded::Traced { graph: trace.graph.to_string(), guards, hash }
            }
            Err(reason) => Recorded::Refused(reason.code.name().to_owned(), reason.detail.clone()),
        }
    }

    /// Where two results differ, in words; `None` if they are the same.
    pub fn difference(&self, other: &Recorded) -> Option<String> {
        match (self, other) {
            (a, b) if a == b => None,
            (Recorded::Traced { graph: a, .. }, Recorded::Traced { graph: b, .. }) if a != b => {
                Some(format!("the graph differs\n--- recorded\n{a}\n--- replayed\n{b}"))
            }
            (Recorded::Traced { guards: a, .. }, Recorded::Traced { guards: b, .. }) if a != b => {
                let at = a.iter().zip(b).take_while(|(a, b)| a == b).count();
                let line = |lines: &[String]| lines.get(at).cloned().unwrap_or_else(|| "(none)".to_owned());
                Some(format!("guard {at} differs\n--- recorded\n{}\n--- replayed\n{}", line(a), line(b)))
            }
            (Recorded::Traced { .. }, Recorded::Traced { .. }) => {
                Some("graph and guards read the same, but their encoded forms differ".to_owned())
            }
            (a, b) => Some(format!("recorded {a:?}\nreplayed {b:?}")),
        }
    }
}

/// What a recording needs beyond the result.
pub struct Parts {
    /// The snapshot as it came.
    pub snapshot: Snapshot,
    /// Questions and answers of the last trace.
    pub exchanges: Mutex<Vec<Exchange>>,
}

impl Parts {
    /// Nothing was asked yet.
    pub fn of(snapshot: Snapshot) -> Parts {
        Parts { snapshot, exchanges: Mutex::default() }
    }
}

/// Writes the recording of compile `id` into the folder `dir`. Failing to is logged: it costs nobody a result.
pub fn write(parts: &Parts, key: &FrameKey, id: u64, dir: &Path, result: Result<&Traced, &Reason>) {
    let recording = Recording {
        build: BUILD.to_owned(),
        key: key.clone(),
        snapshot: parts.snapshot.clone(),
        exchanges: lock(&parts.exchanges).clone(),
        result: Recorded::of(result),
    };
    match save(&recording, dir, id) {
        Ok(path) => tracing::info!(path = %path.display(), "recorded"),
        Err(error) => tracing::warn!(%error, "cannot write a recording"),
    }
}

fn save(recording: &Recording, dir: &Path, id: u64) -> anyhow::Result<PathBuf> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let code = recording.snapshot.described.codes.iter().find(|c| c.hash == recording.key.frame.code);
    let name: String =
        code.map_or("frame", |c| c.name.as_str()).chars().filter(|c| c.is_alphanumeric() || *c == '_').collect();
    let body = postcard::to_stdvec(recording)?;
    let path = dir.join(format!("{name}-{}-{}-{id}.flrec", recording.key.frame.code, std::process::id()));
    let partial = path.with_extension("partial");
    let mut file = std::fs::File::options().write(true).create(true).truncate(true).mode(0o600).open(&partial)?;
    file.write_all(MAGIC)?;
    file.write_all(blake3::hash(&body).as_bytes())?;
    file.write_all(&body)?;
    std::fs::rename(&partial, &path)?;
    Ok(path)
}

/// Reads a recording.
pub fn load(path: &Path) -> anyhow::Result<Recording> {
    let bytes = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    let Some((hash, body)) = bytes.strip_prefix(MAGIC).and_then(|rest| rest.split_at_checked(32)) else {
        bail!("{} is no recording of a compile", path.display());
    };
    if blake3::hash(body).as_bytes()[..] != *hash {
        bail!("{} is damaged", path.display());
    }
    postcard::from_bytes(body).with_context(|| format!("{} was recorded by another version", path.display()))
}

/// What a replay gives.
pub struct Replay {
    /// What the trace came to.
    pub result: Recorded,
    /// The traced frame, for the stages after.
    pub traced: Option<Traced>,
    /// Recorded questions that were not asked again.
    pub unasked: usize,
}

/// Runs capture, trace and guard again on what was recorded.
pub fn replay(recording: &Recording) -> anyhow::Result<Replay> {
    let frame = flambeau_capture::capture(recording.key.frame.clone(), recording.snapshot.clone())?;
    let mut oracle = Replayed::new(recording.exchanges.clone());
    let trace = stages::trace(&frame, &mut oracle, &mut Vec::new());
    let traced = match trace.exit.refused() {
        Some(reason) => Err(reason.clone()),
        None => Ok(stages::guard(&frame, trace)),
    };
    let result = Recorded::of(traced.as_ref());
    Ok(Replay { result, traced: traced.ok(), unasked: oracle.left() })
}
