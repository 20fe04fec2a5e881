//! Cache: owns storage. One thread does all of it, in the order of the messages.

use super::{Station, station};
use crate::base::encoded::Encoded;
use crate::base::lock;
use crate::hub::Hub;
use crate::hub::messages::{CacheMessage, GuardMessage};
use crate::hub::pool::{Pool, PoolOptions};
use flambeau_storage::{Cache as Store, CacheError, CacheOptions};
use flambeau_wire::endpoint::BUILD;
use flambeau_wire::from_daemon::Artifact;
use serde_json::json;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long to wait for another daemon of this cache to end before going on in memory.
const LOCK_PATIENCE: Duration = Duration::from_secs(3);

/// Owns storage.
pub struct Cache {
    hub: Arc<Hub>,
    pool: Pool,
    store: Arc<Mutex<Option<Store>>>,
}

station!(Cache, CacheMessage);

impl Station for Cache {
    type Told = CacheMessage;

    fn new(hub: Arc<Hub>) -> Self {
        let pool = Pool::new(&hub, PoolOptions { name: "cache", threads: 1, waiting: 4096, stack: 4 << 20 });
        let store = hub.store.clone();
        let cache = Cache { hub, pool, store };
        // Opens it while the first client still says hello.
        cache.work(|_| {});
        cache
    }
}

fn open(hub: &Hub) -> Option<Store> {
    let config = &hub.config;
    let options = CacheOptions { dir: config.cache_dir.clone(), build: BUILD.to_owned(), limit: config.cache_size };
    let start = Instant::now();
    let error = loop {
        match Store::open(&options) {
            Ok(store) => {
                tracing::info!(seconds = start.elapsed().as_secs_f64(), dir = %options.dir.display(), "cache open");
                return Some(store);
            }
            Err(CacheError::Locked(_)) if start.elapsed() < LOCK_PATIENCE => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(error) => break error,
        }
    };
    tracing::warn!(%error, "keeping compiles in memory only");
    Store::in_memory(options.limit).map_err(|error| tracing::error!(%error, "no cache at all")).ok()
}

impl Cache {
    /// Queues work on the store; it is opened by the first.
    fn work(&self, work: impl FnOnce(&mut Store) + Send + 'static) -> bool {
        let (hub, store) = (self.hub.clone(), self.store.clone());
        let accepted = self.pool.offer(move || {
            let mut store = lock(&store);
            if store.is_none() {
                *store = open(&hub);
            }
            if let Some(store) = &mut *store {
                work(store);
            }
        });
        if !accepted {
            tracing::warn!("the cache thread is behind; dropping a request");
        }
        accepted
    }

    fn on(&mut self, message: CacheMessage) {
        let hub = self.hub.clone();
        let waiting = if let CacheMessage::Load(place) = &message { Some(place.clone()) } else { None };
        let accepted = match message {
            CacheMessage::Load(place) => self.work(move |store| {
                let loaded = store.frames(&place.key, &place.parts).map_err(|miss| miss.to_string()).map(|found| {
                    let encode = |f: flambeau_storage::Found| {
                        let artifacts: Vec<_> = f.artifacts.iter().map(|(h, b)| (*h, &b[..])).collect();
                        Encoded::from_parts(f.frame, &artifacts).ok()
                    };
                    found.into_iter().filter_map(encode).collect()
                });
                hub.guard.tell(GuardMessage::Loaded(place, loaded));
            }),
            CacheMessage::Store(place, frame) => self.work(move |store| {
                if let Err(error) = store.insert_frame(&place.key, &place.parts, frame.frame(), &frame.artifacts) {
                    tracing::warn!(%error, "cannot store a frame");
                }
            }),
            CacheMessage::Reorder(place, order) => self.work(move |store| store.reorder(&place.key, &order)),
            CacheMessage::Kernels(hashes, reply) => self.work(move |store| {
                let artifact = |(hash, bytes): ([u8; 32], Vec<u8>)| Artifact { hash, bytes: bytes.into() };
                let found = hashes.iter().map(|h| store.kernel(h).ok().map(artifact)).collect();
                let _ = reply.send(found);
            }),
            CacheMessage::StoreKernel(kernel, artifact) => self.work(move |store| {
                if let Err(error) = store.insert_kernel(&kernel, &artifact.bytes) {
                    tracing::warn!(%error, "cannot store a kernel");
                }
            }),
            CacheMessage::Stats(reply) => self.work(move |store| {
                let _ = reply.send(serde_json::to_value(store.stats()).unwrap_or_default());
            }),
            CacheMessage::Clear(reply) => self.work(move |store| {
                let before = store.stats();
                store.clear();
                hub.guard.tell(GuardMessage::Clear);
                let _ =
                    reply.send(json!({ "frames": before.frames, "kernels": before.kernels, "bytes": before.bytes }));
            }),
            CacheMessage::Tidy => self.work(Store::tidy),
            CacheMessage::Flush(reply) => self.work(move |store| {
                store.flush();
                let _ = reply.send(json!({ "stored": store.flush() }));
            }),
        };
        // Everything else that is dropped only costs a compile; a look-up has a client waiting.
        if let (false, Some(place)) = (accepted, waiting) {
            self.hub.guard.tell(GuardMessage::Loaded(place, Err("the cache is busy".to_owned())));
        }
    }
}
