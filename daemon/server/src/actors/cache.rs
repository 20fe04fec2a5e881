//! Cache: owns storage. One thread does all of it, in the order of the messages.

use super::{Station, station};
use crate::actors::guard::GuardMessage;
use crate::encoded::Encoded;
use crate::hub::{Hub, lock};
use crate::pool::{Pool, PoolOptions};
use crossbeam_channel::Sender;
use flambeau_storage::{Cache as Store, CacheError, CacheOptions, KeyParts};
use flambeau_wire::endpoint::BUILD;
use flambeau_wire::from_client::FrameKey;
use flambeau_wire::from_daemon::Artifact;
use serde_json::{Value, json};
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

/// What it is told.
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

station!(Cache, CacheMessage);

impl Station for Cache {
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
