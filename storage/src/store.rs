//! The narrow trait behind which an index lives, and the one that lives in memory.

use std::collections::BTreeMap;

/// A store operation failed; the index is to be quarantined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StoreError(pub String);

/// Figures of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Number of records.
    pub records: u64,
    /// Bytes on disk; 0 for a store in memory.
    pub disk: u64,
}

/// An ordered map from bytes to small values.
pub trait Store: Send {
    /// The value stored under `key`.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;
    /// Stores `value`, replacing what was there.
    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError>;
    /// Drops `key`, if present.
    fn remove(&mut self, key: &[u8]) -> Result<(), StoreError>;
    /// All pairs whose key starts with `prefix`, in key order.
    fn scan(&self, prefix: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>, StoreError>;
    /// Figures.
    fn stats(&self) -> Result<StoreStats, StoreError>;
    /// Makes everything written so far durable.
    fn flush(&mut self) -> Result<(), StoreError>;
}

/// A store that ends with the process: where no directory can be used, and in tests.
#[derive(Debug, Default)]
pub struct MemoryStore(BTreeMap<Vec<u8>, Vec<u8>>);

impl Store for MemoryStore {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.0.get(key).cloned())
    }

    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.0.insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    fn remove(&mut self, key: &[u8]) -> Result<(), StoreError> {
        self.0.remove(key);
        Ok(())
    }

    fn scan(&self, prefix: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>, StoreError> {
        let from = self.0.range(prefix.to_vec()..);
        Ok(from.take_while(|(k, _)| k.starts_with(prefix)).map(|(k, v)| (k.clone(), v.clone())).collect())
    }

    fn stats(&self) -> Result<StoreStats, StoreError> {
        Ok(StoreStats { records: self.0.len() as u64, disk: 0 })
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
}
