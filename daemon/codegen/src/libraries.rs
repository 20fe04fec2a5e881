//! Folders of native libraries that clients report, in which code generators look for theirs: a compiler like NVRTC comes with
//! the user's torch, of whose place the daemon knows nothing.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What workers are told the folders in: separated by colons, in the order of their arrival.
pub const VARIABLE: &str = "FLAMBEAU_LIBRARY_PATH";

/// Folders kept, of environments that come and go; the oldest are forgotten.
const MOST: usize = 200;

/// The folders heard of. Shared by all back ends.
#[derive(Debug, Default)]
pub struct Libraries(Mutex<Heard>);

#[derive(Debug, Default)]
struct Heard {
    folders: Vec<PathBuf>,
    /// Counted up with each change.
    changes: u64,
}

impl Libraries {
    /// Takes notice of these, as far as they are new.
    pub fn hear_of(&self, folders: &[PathBuf]) {
        let mut heard = self.heard();
        for folder in folders {
            let separable = !folder.as_os_str().as_encoded_bytes().contains(&b':');
            if separable && !heard.folders.contains(folder) {
                heard.folders.push(folder.clone());
                heard.changes += 1;
            }
        }
        let excess = heard.folders.len().saturating_sub(MOST);
        heard.folders.drain(..excess);
    }

    /// Changes so far, and the value of [`VARIABLE`] now.
    pub(crate) fn now(&self) -> (u64, OsString) {
        let heard = self.heard();
        (heard.changes, std::env::join_paths(&heard.folders).unwrap_or_default())
    }

    /// Whether there were others than at that count.
    pub(crate) fn changed_since(&self, changes: u64) -> bool {
        self.heard().changes != changes
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_come_in_order_once_and_the_oldest_go() {
        let libraries = Libraries::default();
        libraries.hear_of(&["/b".into(), "/a".into(), "/with:colon".into()]);
        let (changes, value) = libraries.now();
        assert_eq!(value, "/b:/a");
        libraries.hear_of(&["/a".into()]);
        assert!(!libraries.changed_since(changes));
        let many: Vec<PathBuf> = (1..MOST).map(|i| format!("/{i}").into()).collect();
        libraries.hear_of(&many);
        assert!(libraries.changed_since(changes));
        let value = libraries.now().1.into_string().unwrap();
        assert!(value.starts_with("/a:/1:") && value.split(':').count() == MOST, "{value}");
    }
}
