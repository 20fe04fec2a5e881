//! The compile cache: a sled index of small records, and content-addressed files for everything large.
//!
//! Nothing read from disk is believed: index records carry a version, a length and a blake3 of their body, files are
//! named by the blake3 of their content, and whatever does not check is a miss with a name ([`Miss`]), never an error the
//! caller must handle. A damaged index is moved aside and an empty one takes its place. Keys and values are bytes here;
//! what they mean is the daemon's business.

mod cache;
mod files;
mod folder;
mod journal;
mod record;
mod sled_store;
mod store;

pub use cache::{Cache, CacheOptions, Found, KeyParts, Stats};
pub use files::{FileError, Files};
pub use folder::{Entry, Folder};
pub use journal::changes as journal_changes;
pub use record::{RecordError, open as open_record, seal as seal_record};
pub use sled_store::SledStore;
pub use store::{MemoryStore, Store, StoreError, StoreStats};

/// Content hash: the name of a file, the key of a record.
pub type Hash = [u8; 32];

/// Why a look-up found nothing. [`std::fmt::Display`] gives the sentence `flambeau cache why` prints.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Miss {
    /// No record, and none for the same frame under another key.
    #[error("never compiled")]
    Absent,
    /// Records exist for the same frame, with these parts different: `name: stored, asked for`.
    #[error("compiled only with other settings ({0})")]
    Differs(String),
    /// The entry was dropped to stay below the size limit.
    #[error("evicted to stay below the size limit")]
    Evicted,
    /// A record or file failed its check and was removed.
    #[error("damaged on disk ({0}) and dropped")]
    Damaged(String),
    /// The index was damaged as a whole, moved aside, and started empty.
    #[error("the index was damaged and quarantined ({0})")]
    Quarantined(String),
}

/// A cache that cannot be opened at all; the daemon then runs with [`Cache::in_memory`].
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// Another process has it open.
    #[error("cache directory {0} is in use by another daemon")]
    Locked(std::path::PathBuf),
    /// The directory belongs to another user, or others can write to it.
    #[error("cache directory {0} is owned by or writable for other users")]
    Unsafe(std::path::PathBuf),
    /// Reading or writing failed.
    #[error("cache directory {0}: {1}")]
    Io(std::path::PathBuf, #[source] std::io::Error),
}
