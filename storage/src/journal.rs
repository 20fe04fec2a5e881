//! Changes of the index since it was flushed. They are written at once, so that they are there for the next process however
//! this one ends, and whatever keeps the disk busy meanwhile. What a loss of power leaves, the flush of the index decides.

use crate::files::FileError;
use crate::folder::Folder;
use crate::record;
use std::fs::File;
use std::io::{self, Write};

/// The file, in the folder of the index.
const NAME: &str = "journal";
/// Larger ones are emptied at the next flush, whoever has to wait for it. Unit: bytes.
const LARGE: u64 = 8 << 20;
/// Larger ones are not ours. Unit: bytes.
const MOST: u64 = 64 << 20;

/// A key, and its value; `None` where it was removed.
pub type Change = (Vec<u8>, Option<Vec<u8>>);

/// The open file.
#[derive(Debug)]
pub struct Journal {
    file: File,
    length: u64,
}

impl Journal {
    /// Opens or makes the journal of the index in `folder`. Gives the changes that may not be in the index, in order.
    pub fn open(folder: &Folder) -> Result<(Journal, Vec<Change>), FileError> {
        let content = match folder.read(NAME, MOST) {
            Ok(content) => content,
            Err(FileError::Missing) => Vec::new(),
            Err(error) => return Err(error),
        };
        let journal = Journal { file: folder.append(NAME)?, length: content.len() as u64 };
        Ok((journal, changes(&content)))
    }

    /// Notes a change.
    pub fn note(&mut self, key: &[u8], value: Option<&[u8]>) -> io::Result<()> {
        let body = postcard::to_stdvec(&(key, value)).map_err(io::Error::other)?;
        let record = record::seal(&body);
        self.length += record.len() as u64;
        self.file.write_all(&record)
    }

    /// What is noted so far, in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Whether it is to be emptied although changes come all the time.
    pub fn is_large(&self) -> bool {
        self.length > LARGE
    }

    /// Forgets all changes: the index has them.
    pub fn clear(&mut self) {
        match self.file.set_len(0) {
            Ok(()) => self.length = 0,
            Err(error) => tracing::warn!(%error, "the journal of the index cannot be emptied"),
        }
    }
}

/// The changes in a journal, up to the first that is not whole.
pub fn changes(mut content: &[u8]) -> Vec<Change> {
    let mut found = Vec::new();
    while let Some((record, rest)) = record::first(content) {
        let Some(change) = record::open(record).ok().and_then(|body| postcard::from_bytes(body).ok()) else { break };
        found.push(change);
        content = rest;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_read_up_to_where_it_was_cut() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        let noted: Vec<Change> =
            vec![(b"a".to_vec(), Some(vec![1; 100])), (b"b".to_vec(), None), (vec![], Some(vec![]))];
        let (mut journal, before) = Journal::open(&folder).unwrap();
        assert_eq!(before, []);
        for (key, value) in &noted {
            journal.note(key, value.as_deref()).unwrap();
        }
        let content = std::fs::read(dir.path().join(NAME)).unwrap();
        assert_eq!(content.len() as u64, journal.length());
        assert_eq!(Journal::open(&folder).unwrap().1, noted);
        for end in 0..content.len() {
            assert!(noted.starts_with(&changes(&content[..end])), "cut at {end}");
        }
        journal.clear();
        assert_eq!(Journal::open(&folder).unwrap().1, []);
        journal.note(b"c", None).unwrap();
        assert_eq!(Journal::open(&folder).unwrap().1, [(b"c".to_vec(), None)]);
    }
}
