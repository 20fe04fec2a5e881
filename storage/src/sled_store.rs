//! The index on sled. sled panics on damaged files instead of returning errors, so every call is fenced.

use crate::files::FileError;
use crate::folder::Folder;
use crate::journal::Journal;
use crate::store::{Store, StoreError, StoreStats};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Upper bound of sled's page cache, in bytes. The index holds small records only.
const PAGE_CACHE: u64 = 4 << 20;

/// From a change to its flush: changes that come meanwhile are flushed with it.
const GROUP: Duration = Duration::from_millis(20);

/// An open sled database.
pub struct SledStore {
    /// `None` only while dropping.
    db: Option<sled::Db>,
    /// Says that there is something to flush; `None` only while dropping.
    changed: Option<SyncSender<()>>,
    flusher: Option<JoinHandle<()>>,
    /// Has all changes that are not flushed.
    journal: Arc<Mutex<Journal>>,
}

impl SledStore {
    /// Opens or makes the database in `folder`. What is written outlives the process at once. An error means damage, or
    /// another opener.
    pub fn open(folder: &Folder) -> Result<SledStore, StoreError> {
        let failed = |error: FileError| StoreError(format!("open: {error}"));
        // sled's own thread would wake all the time.
        let config = sled::Config::new()
            .path(folder.path())
            .cache_capacity(PAGE_CACHE)
            .flush_every_ms(None)
            .mode(sled::Mode::LowSpace)
            .print_profile_on_drop(false);
        let db = fence("open", || config.open())?;
        // After sled's lock: another process may write to it.
        let (journal, changes) = Journal::open(folder).map_err(failed)?;
        let journal = Arc::new(Mutex::new(journal));
        let (changed, notes) = sync_channel(1);
        let (flushed, noted) = (db.clone(), journal.clone());
        let flusher = std::thread::Builder::new()
            .name("cache-flush".to_owned())
            .spawn(move || flush_changes(&flushed, &noted, &notes))
            .map_err(|error| failed(error.into()))?;
        let mut store = SledStore { db: Some(db), changed: Some(changed), flusher: Some(flusher), journal };
        for (key, value) in changes {
            match value {
                Some(value) => store.with("insert", |db| db.insert(key, value))?,
                None => store.with("remove", |db| db.remove(key))?,
            };
        }
        // Behind a record that is not whole, nothing that is noted would be found.
        if lock(&store.journal).length() > 0 {
            store.flush()?;
        }
        Ok(store)
    }

    /// As [`SledStore::with`], for a change.
    fn change<T>(
        &self,
        what: &str,
        key: &[u8],
        value: Option<&[u8]>,
        work: impl FnOnce(&sled::Db) -> sled::Result<T>,
    ) -> Result<(), StoreError> {
        self.with(what, work)?;
        if let Err(error) = lock(&self.journal).note(key, value) {
            tracing::warn!(%error, "a change of the index is not noted before it is flushed");
        }
        // If the channel is full, the flush to come is of this, too.
        _ = self.changed.as_ref().map(|changed| changed.try_send(()));
        Ok(())
    }

    fn with<T>(&self, what: &str, work: impl FnOnce(&sled::Db) -> sled::Result<T>) -> Result<T, StoreError> {
        let db = self.db.as_ref().ok_or_else(|| StoreError("closed".into()))?;
        fence(what, || work(db))
    }
}

/// Flushes what was changed, until nobody can change anything. sled notes an error, and gives it to the next call.
fn flush_changes(db: &sled::Db, journal: &Mutex<Journal>, changes: &Receiver<()>) {
    while changes.recv().is_ok() {
        std::thread::sleep(GROUP);
        let noted = lock(journal).length();
        let flushed = fence("flush", || db.flush());
        let mut journal = lock(journal);
        let flushed = match flushed {
            Ok(_) if journal.length() == noted => Ok(0),
            Ok(_) if journal.is_large() => fence("flush", || db.flush()),
            // What was changed meanwhile is flushed next.
            Ok(_) => continue,
            error => error,
        };
        match flushed {
            Ok(_) => journal.clear(),
            Err(error) => tracing::warn!(%error, "the index may lose what was stored"),
        }
    }
}

fn lock(journal: &Mutex<Journal>) -> MutexGuard<'_, Journal> {
    journal.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs one sled call; a panic becomes an error that carries its message.
fn fence<T>(what: &str, work: impl FnOnce() -> sled::Result<T>) -> Result<T, StoreError> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(StoreError(format!("{what}: {error}"))),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("panic");
            Err(StoreError(format!("{what}: {text}")))
        }
    }
}

impl Store for SledStore {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.with("get", |db| Ok(db.get(key)?.map(|v| v.to_vec())))
    }

    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.change("insert", key, Some(value), |db| db.insert(key, value))
    }

    fn remove(&mut self, key: &[u8]) -> Result<(), StoreError> {
        self.change("remove", key, None, |db| db.remove(key))
    }

    fn scan(&self, prefix: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>, StoreError> {
        self.with("scan", |db| db.scan_prefix(prefix).map(|p| p.map(|(k, v)| (k.to_vec(), v.to_vec()))).collect())
    }

    fn stats(&self) -> Result<StoreStats, StoreError> {
        self.with("stats", |db| Ok(StoreStats { records: db.len() as u64, disk: db.size_on_disk()? }))
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        let mut journal = lock(&self.journal);
        self.with("flush", |db| db.flush().map(|_| ()))?;
        journal.clear();
        Ok(())
    }
}

impl Drop for SledStore {
    fn drop(&mut self) {
        drop(self.changed.take());
        _ = self.flusher.take().map(JoinHandle::join);
        let db = self.db.take();
        if catch_unwind(AssertUnwindSafe(move || drop(db))).is_err() {
            tracing::warn!("closing the index failed");
        }
    }
}
