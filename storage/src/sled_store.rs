//! The index on sled. sled panics on damaged files instead of returning errors, so every call is fenced.

use crate::store::{Store, StoreError, StoreStats};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Upper bound of sled's page cache, in bytes. The index holds small records only.
const PAGE_CACHE: u64 = 4 << 20;

/// Between two flushes by sled's own thread: what is written meanwhile is gone if the process is killed.
const FLUSH_MS: u64 = 100;

/// An open sled database.
pub struct SledStore {
    /// `None` only while dropping.
    db: Option<sled::Db>,
}

impl SledStore {
    /// Opens or makes the database in `dir`. What is written outlives the process after [`FLUSH_MS`] or [`Store::flush`]. An error means damage, or another opener.
    pub fn open(dir: &Path) -> Result<SledStore, StoreError> {
        let config = sled::Config::new()
            .path(dir)
            .cache_capacity(PAGE_CACHE)
            .flush_every_ms(Some(FLUSH_MS))
            .mode(sled::Mode::LowSpace)
            .print_profile_on_drop(false);
        fence("open", || config.open()).map(|db| SledStore { db: Some(db) })
    }

    fn with<T>(&self, what: &str, work: impl FnOnce(&sled::Db) -> sled::Result<T>) -> Result<T, StoreError> {
        let db = self.db.as_ref().ok_or_else(|| StoreError("closed".into()))?;
        fence(what, || work(db))
    }
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
        self.with("insert", |db| db.insert(key, value).map(|_| ()))
    }

    fn remove(&mut self, key: &[u8]) -> Result<(), StoreError> {
        self.with("remove", |db| db.remove(key).map(|_| ()))
    }

    fn scan(&self, prefix: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>, StoreError> {
        self.with("scan", |db| db.scan_prefix(prefix).map(|p| p.map(|(k, v)| (k.to_vec(), v.to_vec()))).collect())
    }

    fn stats(&self) -> Result<StoreStats, StoreError> {
        self.with("stats", |db| Ok(StoreStats { records: db.len() as u64, disk: db.size_on_disk()? }))
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        self.with("flush", |db| db.flush().map(|_| ()))
    }
}

impl Drop for SledStore {
    fn drop(&mut self) {
        let db = self.db.take();
        if catch_unwind(AssertUnwindSafe(move || drop(db))).is_err() {
            tracing::warn!("closing the index failed");
        }
    }
}
