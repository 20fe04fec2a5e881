//! Content-addressed files: `<dir>/<first two hex digits>/<64 hex digits>`, the name being the blake3 of the content.

use crate::folder::{Folder, NEW};
use crate::{CacheError, Hash};
use std::fs::File;
use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};

/// Larger files are not ours. Unit: bytes.
const MOST: u64 = 512 << 20;
/// Files of which the writing to disk may be outstanding.
const UNSYNCED: usize = 256;

/// Why a file's content cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// There is no such file.
    #[error("file missing")]
    Missing,
    /// The content does not have the hash that is its name.
    #[error("file content")]
    Content,
    /// It is no regular file, or somebody else owns it or could have written it.
    #[error("file kind, owner or mode")]
    Unsafe,
    /// Reading or writing failed.
    #[error("file: {0}")]
    Io(#[from] io::Error),
}

/// A directory of content-addressed files.
#[derive(Debug)]
pub struct Files {
    dir: Folder,
    /// To the thread that waits for the disk, so that nobody else does; `None` before the first file.
    syncing: Option<SyncSender<Unsynced>>,
}

/// For the thread that waits for the disk.
#[derive(Debug)]
enum Unsynced {
    /// A new file.
    File(File),
    /// Whoever waits for all files before.
    Waits(SyncSender<()>),
}

impl Files {
    /// Uses the folder `name` in `dir`, which is made with mode 0700 if missing.
    pub fn open(dir: &Folder, name: &str) -> Result<Files, CacheError> {
        let dir = dir.folder_anyhow(name).map_err(|error| match error {
            FileError::Io(error) => CacheError::Io(dir.path().join(name), error),
            _ => CacheError::Unsafe(dir.path().join(name)),
        })?;
        Ok(Files { dir, syncing: None })
    }

    /// Stores `content`: whole or not at all, and there for every process from now on, whatever ends this one. Returns
    /// its hash. A sound file that is there is kept. What a loss of power leaves, [`Files::sync`] decides.
    pub fn insert(&mut self, content: &[u8]) -> Result<Hash, FileError> {
        let hash = *blake3::hash(content).as_bytes();
        let name = name(&hash);
        if self.read(&hash).is_ok() {
            return Ok(hash);
        }
        let folder = self.dir.folder_anyhow(&name[..2])?;
        let file = match folder.write(&name, content) {
            // A folder stands where the file should.
            Err(FileError::Unsafe) => {
                folder.remove_all(&name);
                folder.write(&name, content)?
            }
            written => written?,
        };
        if self.syncing.is_none() {
            self.syncing = start_syncing().ok();
        }
        if let Some(syncing) = &self.syncing {
            // Of a disk that is so far behind the system writes when it can.
            let _ = syncing.try_send(Unsynced::File(file));
        }
        Ok(hash)
    }

    /// Waits until what was stored is on disk.
    pub fn sync(&self) {
        let (done, wait) = sync_channel(1);
        if let Some(syncing) = &self.syncing
            && syncing.send(Unsynced::Waits(done)).is_ok()
        {
            let _ = wait.recv();
        }
    }

    /// The content named `hash`, checked.
    pub fn read(&self, hash: &Hash) -> Result<Vec<u8>, FileError> {
        let name = name(hash);
        let content = self.dir.existing(&name[..2])?.read(&name, MOST)?;
        if blake3::hash(&content).as_bytes() == hash { Ok(content) } else { Err(FileError::Content) }
    }

    /// Removes the file; it may be gone already.
    pub fn remove(&self, hash: &Hash) -> Result<(), FileError> {
        let name = name(hash);
        match self.dir.existing(&name[..2]) {
            Ok(folder) => folder.remove_all(&name),
            Err(FileError::Missing) => {}
            Err(FileError::Unsafe) => self.dir.remove_all(&name[..2]),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Removes every entry that `keep` does not want, temporary files of a crashed writer included. Returns the bytes of
    /// what stays.
    pub fn sweep(&self, keep: &dyn Fn(&Hash) -> bool) -> Result<u64, FileError> {
        let mut kept = 0;
        for entry in self.dir.entries()? {
            let Ok(folder) = self.dir.existing(&entry.name) else {
                self.dir.remove_all(&entry.name);
                continue;
            };
            for file in folder.entries()? {
                let wanted = blake3::Hash::from_hex(&file.name).is_ok_and(|h| keep(h.as_bytes()));
                if wanted && file.is_ours {
                    kept += file.size;
                } else {
                    folder.remove_all(&file.name);
                }
            }
        }
        Ok(kept)
    }

    /// Removes what writers that were killed left half done. Nothing else writes while this is called.
    pub fn sweep_new(&self) {
        for folder in self.dir.entries().unwrap_or_default().iter().filter_map(|e| self.dir.existing(&e.name).ok()) {
            for file in folder.entries().unwrap_or_default().iter().filter(|e| e.name.starts_with(NEW)) {
                folder.remove_all(&file.name);
            }
        }
    }
}

/// Starts the thread that waits for the disk. It ends once it has done so for all that it was given.
fn start_syncing() -> io::Result<SyncSender<Unsynced>> {
    let (sender, receiver) = sync_channel(UNSYNCED);
    let run = move || {
        for next in receiver {
            match next {
                Unsynced::File(file) => {
                    if let Err(error) = file.sync_data() {
                        tracing::warn!(%error, "a cache file may not be on disk");
                    }
                }
                Unsynced::Waits(done) => _ = done.send(()),
            }
        }
    };
    std::thread::Builder::new().name("cache-sync".to_owned()).spawn(run)?;
    Ok(sender)
}

fn name(hash: &Hash) -> String {
    blake3::Hash::from(*hash).to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::path::{Path, PathBuf};

    fn open(dir: &Path) -> Files {
        Files::open(&Folder::open(dir).unwrap(), "files").unwrap()
    }

    fn path(dir: &Path, hash: &Hash) -> PathBuf {
        let name = name(hash);
        dir.join("files").join(&name[..2]).join(&name)
    }

    #[test]
    fn what_is_written_is_read_back_and_damage_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = open(dir.path());
        let hash = files.insert(b"content").unwrap();
        assert_eq!(files.read(&hash).unwrap(), b"content");
        assert_eq!(fs::metadata(path(dir.path(), &hash)).unwrap().mode() & 0o777, 0o600);
        fs::write(path(dir.path(), &hash), b"c0ntent").unwrap();
        assert!(matches!(files.read(&hash), Err(FileError::Content)));
        files.insert(b"content").unwrap();
        assert_eq!(files.read(&hash).unwrap(), b"content");
        fs::set_permissions(path(dir.path(), &hash), fs::Permissions::from_mode(0o666)).unwrap();
        assert!(matches!(files.read(&hash), Err(FileError::Unsafe)));
        files.remove(&hash).unwrap();
        assert!(matches!(files.read(&hash), Err(FileError::Missing)));
    }

    #[test]
    fn links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = open(dir.path());
        let hash = files.insert(b"content").unwrap();
        let path = path(dir.path(), &hash);
        fs::rename(&path, dir.path().join("elsewhere")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("elsewhere"), &path).unwrap();
        assert!(matches!(files.read(&hash), Err(FileError::Unsafe)));
    }

    #[test]
    fn sweep_removes_the_unwanted() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = open(dir.path());
        let (a, b) = (files.insert(b"aa").unwrap(), files.insert(b"bbb").unwrap());
        assert_eq!(files.sweep(&|h| *h == a).unwrap(), 2);
        assert!(files.read(&a).is_ok() && files.read(&b).is_err());
    }

    #[test]
    fn a_directory_open_to_others_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let open = dir.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(Folder::open(&open), Err(CacheError::Unsafe(_))));
    }

    #[test]
    fn what_is_no_file_of_ours_is_refused_at_once_and_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = open(dir.path());
        let hash = files.insert(b"content").unwrap();
        let file = path(dir.path(), &hash);
        let fifo = |at: &Path| {
            rustix::fs::mknodat(rustix::fs::CWD, at, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
        };
        for kind in ["fifo", "folder", "hard link", "sparse", "fifo for the folder", "link for the folder"] {
            let folder = file.parent().unwrap();
            if kind.ends_with("for the folder") {
                fs::remove_dir_all(folder).unwrap();
            } else {
                fs::remove_file(&file).unwrap();
            }
            match kind {
                "fifo" => fifo(&file),
                "folder" => fs::create_dir(&file).unwrap(),
                "hard link" => {
                    fs::write(dir.path().join("other"), b"content").unwrap();
                    fs::hard_link(dir.path().join("other"), &file).unwrap();
                }
                "sparse" => fs::File::create(&file).unwrap().set_len(1 << 40).unwrap(),
                "fifo for the folder" => fifo(folder),
                _ => std::os::unix::fs::symlink(dir.path(), folder).unwrap(),
            }
            assert!(matches!(files.read(&hash), Err(FileError::Unsafe | FileError::Content)), "{kind}");
            files.insert(b"content").unwrap();
            assert_eq!(files.read(&hash).unwrap(), b"content", "{kind}");
        }
    }

    #[test]
    fn half_written_files_are_swept() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = open(dir.path());
        let hash = files.insert(b"content").unwrap();
        let left = path(dir.path(), &hash).with_file_name(".new-1-1");
        fs::write(&left, b"cont").unwrap();
        files.sweep_new();
        assert!(!left.exists() && files.read(&hash).is_ok());
    }
}
