//! What all parts of the daemon use: locks, the log, limits of the process, encoded frames, the way to a client.

pub mod encoded;
pub mod limits;
pub mod log;
pub mod wire_out;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, whoever panicked before.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
