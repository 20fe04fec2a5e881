//! Answers to administrative requests, as JSON documents.

use crate::base::lock;
use crate::base::wire_out::Outbox;
use crate::hub::Hub;
use crate::hub::messages::CacheMessage;
use crate::hub::swap;
use crate::plugins::known::known;
use flambeau_wire::endpoint::BUILD;
use flambeau_wire::from_client::{Admin, RequestId, Settings};
use flambeau_wire::from_daemon::FromDaemon;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long the cache thread may take for a report.
const PATIENCE: Duration = Duration::from_secs(30);

/// Answers a command on a thread of its own: some wait for the cache.
pub fn answer(hub: Arc<Hub>, settings: Arc<Settings>, request: RequestId, command: Admin, outbox: Outbox) {
    let work = move || {
        let report = match command {
            Admin::Status => status(&hub),
            Admin::Stop => json!({ "stopping": std::process::id() }),
            Admin::CacheStats => ask(&hub, CacheMessage::Stats),
            Admin::CacheFlush => ask(&hub, CacheMessage::Flush),
            Admin::CacheClear => ask(&hub, CacheMessage::Clear),
            Admin::CacheWhy => why(&hub),
            Admin::Backends => known(&hub.backends, &hub.config.plugin_path, &settings.data_dir),
            Admin::Swap => {
                swap::look(&hub);
                let sessions = lock(&hub.sessions).len().saturating_sub(1);
                json!({ "pid": std::process::id(), "clients": sessions })
            }
        };
        outbox.send(&FromDaemon::Report { request, json: report.to_string() });
        if command == Admin::Stop {
            // After the report, which would otherwise race with the goodbye. `notify_one` keeps the wish if nobody
            // listens yet.
            hub.stop.notify_one();
        }
    };
    if let Err(error) = std::thread::Builder::new().name("report".into()).spawn(work) {
        tracing::error!(%error, "cannot start a thread");
    }
}

/// Asks the cache thread; null if it does not answer.
pub fn ask(hub: &Hub, message: fn(crossbeam_channel::Sender<Value>) -> CacheMessage) -> Value {
    let (sender, receiver) = crossbeam_channel::bounded(1);
    hub.cache.tell(message(sender));
    receiver.recv_timeout(PATIENCE).unwrap_or(Value::Null)
}

fn status(hub: &Hub) -> Value {
    json!({
        "pid": std::process::id(),
        "build": BUILD,
        "version": env!("CARGO_PKG_VERSION"),
        "socket": hub.config.socket,
        "cache_dir": hub.config.cache_dir,
        "uptime_s": hub.started.elapsed().as_secs(),
        "idle_timeout_s": hub.config.idle_timeout,
        "rss_bytes": resident(),
        "clients": lock(&hub.sessions).len().saturating_sub(1),
        "in_flight": hub.in_flight.load(Ordering::Relaxed),
        "counters": hub.counters,
    })
}

/// Resident memory of this process, in bytes; 0 where it cannot be read.
pub fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_whitespace().nth(1).and_then(|p| p.parse::<u64>().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

fn why(hub: &Hub) -> Value {
    let misses = lock(&hub.misses);
    let notes = misses.iter().rev().map(|(frame, reason)| json!({ "frame": frame, "reason": reason }));
    json!({ "misses": notes.collect::<Vec<_>>() })
}
