//! The cache: what is stored under which key, how it is checked, and how it stays below its size.
//!
//! Index keys are one letter and a hash: `F` frames of a key, `K` a kernel's artifact, `E` a key whose frames were
//! evicted, `P` the keys of a family. Frames and artifacts themselves are files.

use crate::files::{FileError, Files};
use crate::folder::{Folder, NEW};
use crate::record::{open as open_record, seal};
use crate::sled_store::SledStore;
use crate::store::{MemoryStore, Store, StoreError};
use crate::{CacheError, Hash, Miss};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// How a cache is opened.
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// The user's cache directory; made with mode 0700 if missing.
    pub dir: PathBuf,
    /// Names the index inside it: builds do not share one.
    pub build: String,
    /// Upper bound of all files, in bytes. Unused keys go first.
    pub limit: u64,
}

/// The readable parts of a key, so that a miss can say what differs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyParts {
    /// What keys have in common that differ in settings only: the hash of the frame's code.
    pub family: Hash,
    /// Name and value of each part.
    pub parts: Vec<(String, String)>,
}

/// One stored frame with the artifacts it names, all checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The frame as it was given to [`Cache::insert_frame`].
    pub frame: Vec<u8>,
    /// Artifacts by hash.
    pub artifacts: Vec<(Hash, Vec<u8>)>,
}

/// Figures for `flambeau cache stats`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Keys with frames.
    pub keys: u64,
    /// Frames.
    pub frames: u64,
    /// Kernels.
    pub kernels: u64,
    /// Bytes of frames and artifacts.
    pub bytes: u64,
    /// Bytes of the index on disk.
    pub index_bytes: u64,
    /// The limit, in bytes.
    pub limit: u64,
    /// Keys evicted since the daemon started.
    pub evicted: u64,
    /// Records and files dropped as damaged since the daemon started.
    pub damaged: u64,
    /// Why the index was quarantined, if it was since the daemon started.
    pub quarantined: Option<String>,
    /// Whether the cache lives in memory only.
    pub in_memory: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct FrameRecord {
    parts: KeyParts,
    frames: Vec<FrameEntry>,
    used: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct FrameEntry {
    file: Hash,
    size: u64,
    artifacts: Vec<Hash>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct KernelRecord {
    artifact: Hash,
    size: u64,
    used: u64,
}

/// Eviction frees down to this share of the limit, in percent, so that it is rare.
const LOW_WATER: u64 = 80;
/// Keys of one frame that are looked at to explain a miss: the latest. Each new key writes all of them.
const FAMILY: usize = 32;
/// Most frames kept under one key: modules of equal structure share one, whatever their hooks do.
const FRAMES_PER_KEY: usize = 256;
/// The index is rebuilt once it takes this many bytes per record, and no less than [`REBUILD_FROM`].
const REBUILD_PER_RECORD: u64 = 16 << 10;
const REBUILD_FROM: u64 = 16 << 20;
/// A larger index is damaged (a sparse file has any size). Unit: bytes.
const LARGEST_INDEX: u64 = 2 << 30;
/// Held by the process that has the cache open.
const LOCK: &str = "lock";
/// Names the current index.
const GENERATION: &str = "generation";
/// Other builds' indexes kept in the cache directory.
const OTHER_BUILDS: usize = 2;

/// An open cache. One process at a time has a directory's cache open; one thread of it uses it.
pub struct Cache {
    store: Box<dyn Store>,
    files: Files,
    dir: Folder,
    generation: u64,
    limit: u64,
    /// Bytes of all files the index names, once counted.
    bytes: Option<u64>,
    touched: BTreeMap<Vec<u8>, u64>,
    evicted: u64,
    damaged: u64,
    quarantined: Option<String>,
    in_memory: bool,
    /// Held while the cache is open.
    _lock: Option<File>,
    /// The folder that holds the caches of all builds.
    parent: Option<Folder>,
    _temporary: Option<tempfile::TempDir>,
}

impl Cache {
    /// Opens the cache of `options.build` in `options.dir`. Damage is no error: it ends in an empty index.
    pub fn open(options: &CacheOptions) -> Result<Cache, CacheError> {
        let parent = Folder::open(&options.dir)?;
        let refused = |error| match error {
            FileError::Io(error) => CacheError::Io(options.dir.join(&options.build), error),
            _ => CacheError::Unsafe(options.dir.join(&options.build)),
        };
        let dir = parent.folder(&options.build).map_err(refused)?;
        let lock = match dir.append(LOCK) {
            // A FIFO or a link in its place: nobody holds that.
            Err(FileError::Unsafe) => dir.move_aside(LOCK).and_then(|()| dir.append(LOCK)),
            opened => opened,
        };
        let lock = lock.map_err(refused)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| CacheError::Locked(dir.path().to_path_buf()))?;
        let _ = lock.set_modified(SystemTime::now());
        let files = Files::open(&dir, "files")?;
        files.sweep_new();
        let mut cache = Cache {
            store: Box::new(MemoryStore::default()),
            files,
            generation: current_generation(&dir),
            dir,
            limit: options.limit,
            bytes: None,
            touched: BTreeMap::new(),
            evicted: 0,
            damaged: 0,
            quarantined: None,
            in_memory: false,
            _lock: Some(lock),
            parent: Some(parent),
            _temporary: None,
        };
        cache.open_index();
        Ok(cache)
    }

    /// A cache that lasts as long as the process, for where no directory can be used.
    pub fn in_memory(limit: u64) -> Result<Cache, CacheError> {
        let temporary = tempfile::tempdir().map_err(|e| CacheError::Io(std::env::temp_dir(), e))?;
        let dir = Folder::open(temporary.path())?;
        Ok(Cache {
            store: Box::new(MemoryStore::default()),
            files: Files::open(&dir, "files")?,
            dir,
            generation: 0,
            limit,
            bytes: None,
            touched: BTreeMap::new(),
            evicted: 0,
            damaged: 0,
            quarantined: None,
            in_memory: true,
            _lock: None,
            parent: None,
            _temporary: Some(temporary),
        })
    }

    /// Opens the current index; a damaged one is quarantined first. Ends with a store in memory if nothing opens.
    fn open_index(&mut self) {
        let existed = self.dir.has(&index_name(self.generation));
        match open_index(&self.dir, self.generation) {
            Ok(mut store) => {
                let marked = store.get(b"M");
                match marked {
                    Ok(Some(_)) => {}
                    Ok(None) => {
                        if existed {
                            self.quarantined = Some("the index came up without its records".into());
                        }
                        let _ = store.insert(b"M", &seal(b""));
                    }
                    Err(error) => return self.quarantine(&error),
                }
                self.store = Box::new(store);
            }
            Err(error) => self.quarantine(&error),
        }
    }

    /// Moves the index aside and starts an empty one.
    fn quarantine(&mut self, error: &StoreError) {
        tracing::warn!(%error, "the cache index is damaged; starting an empty one");
        self.quarantined = Some(error.to_string());
        self.bytes = None;
        self.touched.clear();
        self.store = Box::new(MemoryStore::default());
        if self.in_memory {
            return;
        }
        let aside = format!("quarantine-{}", now());
        self.dir.remove_all(&aside);
        let _ = self.dir.rename(&index_name(self.generation), &aside);
        drop_all_but_newest(&self.dir, "quarantine-", 1);
        self.generation += 1;
        self.dir.remove_all(&index_name(self.generation));
        self.write_generation();
        match open_index(&self.dir, self.generation) {
            Ok(mut store) => {
                let _ = store.insert(b"M", &seal(b""));
                self.store = Box::new(store);
            }
            Err(error) => {
                tracing::warn!(%error, "no index can be opened; keeping compiles in memory");
                self.in_memory = true;
            }
        }
    }

    fn write_generation(&self) {
        let text = self.generation.to_string();
        let written = match self.dir.write(GENERATION, text.as_bytes()) {
            Err(_) => self.dir.move_aside(GENERATION).and_then(|()| self.dir.write(GENERATION, text.as_bytes())),
            written => written,
        };
        if let Err(error) = written.and_then(|file| Ok(file.sync_data()?)) {
            tracing::warn!(%error, "cannot note the index generation");
        }
    }

    /// Reads a record; damage drops it and counts.
    fn read<T: DeserializeOwned>(&mut self, key: &[u8]) -> Result<Option<T>, Miss> {
        let sealed = match self.store.get(key) {
            Ok(Some(sealed)) => sealed,
            Ok(None) => return Ok(None),
            Err(error) => {
                self.quarantine(&error);
                return Err(Miss::Quarantined(error.to_string()));
            }
        };
        let body = open_record(&sealed).map_err(|e| e.to_string());
        match body.and_then(|b| postcard::from_bytes(b).map_err(|e| e.to_string())) {
            Ok(value) => Ok(Some(value)),
            Err(what) => {
                self.damaged += 1;
                self.delete(key);
                Err(Miss::Damaged(what))
            }
        }
    }

    fn write<T: Serialize>(&mut self, key: &[u8], value: &T) {
        let Ok(body) = postcard::to_stdvec(value) else { return };
        if let Err(error) = self.store.insert(key, &seal(&body)) {
            self.quarantine(&error);
        }
    }

    fn delete(&mut self, key: &[u8]) {
        self.touched.remove(key);
        if let Err(error) = self.store.remove(key) {
            self.quarantine(&error);
        }
    }

    fn touch(&mut self, key: &[u8]) {
        self.touched.insert(key.to_vec(), now());
    }

    fn read_file(&mut self, hash: &Hash) -> Result<Vec<u8>, FileError> {
        let content = self.files.read(hash);
        if let Err(error) = &content {
            tracing::warn!(%error, file = %blake3::Hash::from(*hash).to_hex(), "dropping a cache file");
            self.damaged += 1;
            let _ = self.files.remove(hash);
        }
        content
    }

    /// All frames stored under `key`, in their order, artifacts included; or why there are none. Frames with anything
    /// missing or damaged are dropped.
    pub fn frames(&mut self, key: &Hash, parts: &KeyParts) -> Result<Vec<Found>, Miss> {
        let id = tagged(b'F', key);
        let Some(mut record) = self.read::<FrameRecord>(&id)? else {
            return Err(self.why_absent(key, parts));
        };
        let before = record.frames.len();
        let mut found = Vec::with_capacity(before);
        let mut damage = None;
        record.frames.retain(|entry| match self.load(entry) {
            Ok(loaded) => {
                found.push(loaded);
                true
            }
            Err(error) => {
                damage = Some(error.to_string());
                false
            }
        });
        if record.frames.len() < before {
            if record.frames.is_empty() { self.delete(&id) } else { self.write(&id, &record) }
        }
        self.touch(&id);
        match damage {
            Some(what) if found.is_empty() => Err(Miss::Damaged(what)),
            _ => Ok(found),
        }
    }

    fn load(&mut self, entry: &FrameEntry) -> Result<Found, FileError> {
        let frame = self.read_file(&entry.file)?;
        let artifacts =
            entry.artifacts.iter().map(|h| Ok((*h, self.read_file(h)?))).collect::<Result<_, FileError>>()?;
        Ok(Found { frame, artifacts })
    }

    fn why_absent(&mut self, key: &Hash, asked: &KeyParts) -> Miss {
        if let Some(why) = &self.quarantined {
            return Miss::Quarantined(why.clone());
        }
        if matches!(self.store.get(&tagged(b'E', key)), Ok(Some(_))) {
            return Miss::Evicted;
        }
        let family = self.read::<Vec<Hash>>(&tagged(b'P', &asked.family)).ok().flatten().unwrap_or_default();
        // The latest other key of the same frame is the likeliest to explain the miss.
        for other in family.iter().rev() {
            if let Ok(Some(record)) = self.read::<FrameRecord>(&tagged(b'F', other)) {
                return Miss::Differs(differences(&record.parts, asked));
            }
        }
        Miss::Absent
    }

    /// Stores a frame under `key`, last in order; a frame equal to a stored one is not stored twice.
    pub fn insert_frame(
        &mut self,
        key: &Hash,
        parts: &KeyParts,
        frame: &[u8],
        artifacts: &[Hash],
    ) -> Result<(), FileError> {
        let id = tagged(b'F', key);
        let file = self.files.insert(frame)?;
        let mut record = self.read::<FrameRecord>(&id).ok().flatten().unwrap_or(FrameRecord {
            parts: parts.clone(),
            frames: Vec::new(),
            used: now(),
        });
        record.frames.retain(|e| e.file != file);
        record.frames.push(FrameEntry { file, size: frame.len() as u64, artifacts: artifacts.to_vec() });
        if record.frames.len() > FRAMES_PER_KEY {
            record.frames.remove(0);
        }
        record.used = now();
        self.write(&id, &record);
        let _ = self.store.remove(&tagged(b'E', key));
        let group = tagged(b'P', &parts.family);
        let mut family = self.read::<Vec<Hash>>(&group).ok().flatten().unwrap_or_default();
        if !family.contains(key) {
            if family.len() == FAMILY {
                family.remove(0);
            }
            family.push(*key);
            self.write(&group, &family);
        }
        self.grown(frame.len() as u64);
        Ok(())
    }

    /// Puts the frames of `key` into `order` (indices into what [`Cache::frames`] gave); no permutation, no change.
    pub fn reorder(&mut self, key: &Hash, order: &[usize]) {
        let id = tagged(b'F', key);
        let Ok(Some(mut record)) = self.read::<FrameRecord>(&id) else { return };
        let distinct: HashSet<usize> = order.iter().copied().filter(|i| *i < record.frames.len()).collect();
        if order.len() == record.frames.len() && distinct.len() == order.len() {
            record.frames = order.iter().map(|i| record.frames[*i].clone()).collect();
            self.write(&id, &record);
        }
    }

    /// The artifact stored for a kernel: its hash and content.
    pub fn kernel(&mut self, kernel: &Hash) -> Result<(Hash, Vec<u8>), Miss> {
        let id = tagged(b'K', kernel);
        let Some(record) = self.read::<KernelRecord>(&id)? else { return Err(Miss::Absent) };
        match self.read_file(&record.artifact) {
            Ok(content) => {
                self.touch(&id);
                Ok((record.artifact, content))
            }
            Err(error) => {
                self.delete(&id);
                Err(Miss::Damaged(error.to_string()))
            }
        }
    }

    /// Stores a kernel's artifact; gives its hash.
    pub fn insert_kernel(&mut self, kernel: &Hash, artifact: &[u8]) -> Result<Hash, FileError> {
        let hash = self.files.insert(artifact)?;
        let size = artifact.len() as u64;
        self.write(&tagged(b'K', kernel), &KernelRecord { artifact: hash, size, used: now() });
        self.grown(size);
        Ok(hash)
    }

    fn grown(&mut self, by: u64) {
        let total = self.bytes.map_or_else(|| self.count(), |b| b.saturating_add(by));
        self.bytes = Some(total);
        if total > self.limit {
            self.evict();
        }
    }

    fn records<T: DeserializeOwned>(&self, tag: u8) -> Result<Vec<(Vec<u8>, T)>, StoreError> {
        let pairs = self.store.scan(&[tag])?;
        let parse = |(k, v): (Vec<u8>, Vec<u8>)| Some((k, postcard::from_bytes(open_record(&v).ok()?).ok()?));
        Ok(pairs.into_iter().filter_map(parse).collect())
    }

    /// Bytes of all files the index names.
    fn count(&self) -> u64 {
        let frames = self.records::<FrameRecord>(b'F').unwrap_or_default();
        let kernels = self.records::<KernelRecord>(b'K').unwrap_or_default();
        let frames = frames.iter().flat_map(|(_, r)| &r.frames).map(|e| e.size);
        sum(frames.chain(kernels.iter().map(|(_, k)| k.size)))
    }

    /// Drops the keys unused for longest until the cache is well below its limit, then what nothing names any more.
    fn evict(&mut self) {
        self.note_uses();
        let (Ok(frames), Ok(kernels)) = (self.records::<FrameRecord>(b'F'), self.records::<KernelRecord>(b'K')) else {
            return;
        };
        let goal = self.limit / 100 * LOW_WATER;
        let mut total = self.count();
        let mut order: Vec<(u64, Vec<u8>, u64)> = Vec::new();
        order.extend(frames.into_iter().map(|(id, r)| (r.used, id, sum(r.frames.iter().map(|e| e.size)))));
        order.extend(kernels.into_iter().map(|(id, k)| (k.used, id, k.size)));
        order.sort();
        for (_, id, size) in order {
            if total <= goal {
                break;
            }
            total = total.saturating_sub(size);
            self.delete(&id);
            if id[0] == b'F' {
                self.evicted += 1;
                let _ = self.store.insert(&[b"E", &id[1..]].concat(), &seal(b""));
            }
        }
        self.bytes = Some(total);
        self.sweep();
        self.compact();
    }

    /// Removes files no record names (a crash between a file and its record leaves some).
    pub fn sweep(&mut self) {
        let (Ok(frames), Ok(kernels)) = (self.records::<FrameRecord>(b'F'), self.records::<KernelRecord>(b'K')) else {
            return;
        };
        let mut named: HashSet<Hash> = kernels.iter().map(|(_, k)| k.artifact).collect();
        for entry in frames.iter().flat_map(|(_, r)| &r.frames) {
            named.insert(entry.file);
            named.extend(&entry.artifacts);
        }
        match self.files.sweep(&|h| named.contains(h)) {
            Ok(kept) => self.bytes = Some(kept),
            Err(error) => tracing::warn!(%error, "cannot sweep the cache files"),
        }
    }

    /// Rebuilds the index into a fresh database where the old one holds much that was dropped: sled frees no space.
    fn compact(&mut self) {
        let Ok(stats) = self.store.stats() else { return };
        if !self.in_memory && stats.disk > REBUILD_FROM.max(stats.records * REBUILD_PER_RECORD) {
            self.rebuild();
        }
    }

    /// Copies every record into a new index, makes it current, drops the old one.
    pub fn rebuild(&mut self) {
        let next = self.generation + 1;
        self.dir.remove_all(&index_name(next));
        let copied = self.store.scan(b"").and_then(|pairs| {
            let mut fresh = open_index(&self.dir, next)?;
            for (key, value) in pairs {
                fresh.insert(&key, &value)?;
            }
            fresh.flush()?;
            Ok(fresh)
        });
        match copied {
            Ok(fresh) => {
                self.store = Box::new(fresh);
                let old = std::mem::replace(&mut self.generation, next);
                self.write_generation();
                self.dir.remove_all(&index_name(old));
            }
            Err(error) => {
                self.dir.remove_all(&index_name(next));
                self.quarantine(&error);
            }
        }
    }

    /// Writes the times of use gathered since the last call.
    fn note_uses(&mut self) {
        for (id, at) in std::mem::take(&mut self.touched) {
            if id[0] == b'F' {
                if let Ok(Some(mut record)) = self.read::<FrameRecord>(&id) {
                    record.used = at;
                    self.write(&id, &record);
                }
            } else if let Ok(Some(mut record)) = self.read::<KernelRecord>(&id) {
                record.used = at;
                self.write(&id, &record);
            }
        }
    }

    /// Makes everything durable; false if something may be lost with this process.
    pub fn flush(&mut self) -> bool {
        self.note_uses();
        let flushed = self.store.flush();
        if let Err(error) = &flushed {
            self.quarantine(error);
        }
        self.files.sync();
        flushed.is_ok() && !self.in_memory
    }

    /// Idle work: times of use, files nothing names, indexes of builds long gone.
    pub fn tidy(&mut self) {
        self.flush();
        self.sweep();
        self.compact();
        if self.in_memory {
            return;
        }
        if let Some(parent) = &self.parent {
            drop_other_builds(parent, self.dir.path());
        }
        for entry in self.dir.entries().unwrap_or_default() {
            let old_index = entry.name.starts_with("index-") && entry.name != index_name(self.generation);
            if old_index || entry.name.starts_with(NEW) {
                self.dir.remove_all(&entry.name);
            }
        }
    }

    /// Drops all entries and files.
    pub fn clear(&mut self) {
        self.touched.clear();
        self.quarantined = None;
        for (key, _) in self.store.scan(b"").unwrap_or_default() {
            if key != b"M" {
                self.delete(&key);
            }
        }
        self.sweep();
        if !self.in_memory {
            self.rebuild();
        }
    }

    /// Figures.
    pub fn stats(&mut self) -> Stats {
        let frames = self.records::<FrameRecord>(b'F').unwrap_or_default();
        let kernels = self.records::<KernelRecord>(b'K').unwrap_or_default();
        Stats {
            keys: frames.len() as u64,
            frames: frames.iter().map(|(_, r)| r.frames.len() as u64).sum(),
            kernels: kernels.len() as u64,
            bytes: self.count(),
            index_bytes: self.store.stats().map_or(0, |s| s.disk),
            limit: self.limit,
            evicted: self.evicted,
            damaged: self.damaged,
            quarantined: self.quarantined.clone(),
            in_memory: self.in_memory,
        }
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Sizes are what records say.
fn sum(sizes: impl Iterator<Item = u64>) -> u64 {
    sizes.fold(0, u64::saturating_add)
}

fn tagged(tag: u8, hash: &Hash) -> Vec<u8> {
    [&[tag][..], hash].concat()
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

fn index_name(generation: u64) -> String {
    format!("index-{generation}")
}

/// Opens an index after a look at what it consists of: sled opens files by their path and believes their size.
fn open_index(dir: &Folder, generation: u64) -> Result<SledStore, StoreError> {
    let name = index_name(generation);
    let odd = |error: FileError| StoreError(format!("{name}: {error}"));
    let folder = dir.folder(&name).map_err(odd)?;
    let mut bytes = 0;
    for below in [Some(folder.existing("blobs")), None] {
        let listed = match below {
            Some(Err(FileError::Missing)) => continue,
            Some(blobs) => blobs.and_then(|blobs| blobs.entries()),
            None => folder.entries(),
        };
        for entry in listed.map_err(odd)? {
            if !entry.is_ours && entry.name != "blobs" {
                return Err(odd(FileError::Unsafe));
            }
            bytes += entry.size;
        }
    }
    if bytes > LARGEST_INDEX {
        return Err(odd(FileError::Content));
    }
    SledStore::open(&folder)
}

fn current_generation(dir: &Folder) -> u64 {
    let text = dir.read(GENERATION, 32).ok().and_then(|t| String::from_utf8(t).ok());
    // As far as there can have been that many; the next one must have a number.
    text.and_then(|t| t.trim().parse().ok()).filter(|g| *g < u64::from(u32::MAX)).unwrap_or(0)
}

fn differences(stored: &KeyParts, asked: &KeyParts) -> String {
    let pairs = stored.parts.iter().zip(&asked.parts).filter(|(s, a)| s != a);
    let texts: Vec<String> = pairs.map(|(s, a)| format!("{}: stored {}, asked for {}", a.0, s.1, a.1)).collect();
    texts.join("; ")
}

/// Keeps the `keep` entries of `dir` named `prefix…` that sort last.
fn drop_all_but_newest(dir: &Folder, prefix: &str, keep: usize) {
    let entries = dir.entries().unwrap_or_default();
    let mut named: Vec<&str> = entries.iter().map(|e| &e.name[..]).filter(|n| n.starts_with(prefix)).collect();
    named.sort_unstable();
    for name in named.iter().rev().skip(keep) {
        dir.remove_all(name);
    }
}

/// Removes caches of other builds that no daemon has open, except the latest used.
fn drop_other_builds(parent: &Folder, own: &Path) {
    let mut others: Vec<(i64, String)> = Vec::new();
    for entry in parent.entries().unwrap_or_default() {
        let Ok(build) = parent.existing(&entry.name) else { continue };
        let lock = build.entries().unwrap_or_default().into_iter().find(|e| e.name == LOCK && e.is_ours);
        if let (Some(lock), false) = (lock, build.path() == own) {
            others.push((lock.modified, entry.name));
        }
    }
    others.sort();
    for (_, name) in others.iter().rev().skip(OTHER_BUILDS) {
        let lock = parent.existing(name).and_then(|build| build.open_file(LOCK));
        if lock.is_ok_and(|l| flock(&l, FlockOperation::NonBlockingLockExclusive).is_ok()) {
            parent.remove_all(name);
        }
    }
}
