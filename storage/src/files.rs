//! Content-addressed files: `<dir>/<first two hex digits>/<64 hex digits>`, the name being the blake3 of the content.

use crate::{CacheError, Hash};
use rustix::fs::{Mode, OFlags};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Why a file's content cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// There is no such file.
    #[error("file missing")]
    Missing,
    /// The content does not have the hash that is its name.
    #[error("file content")]
    Content,
    /// Somebody else owns it or could have written it.
    #[error("file owner or mode")]
    Unsafe,
    /// Reading or writing failed.
    #[error("file: {0}")]
    Io(#[from] io::Error),
}

/// A directory of content-addressed files.
#[derive(Debug)]
pub struct Files {
    dir: PathBuf,
}

impl Files {
    /// Uses `dir`, which is made with mode 0700 if missing.
    pub fn open(dir: PathBuf) -> Result<Files, CacheError> {
        private_directory(&dir)?;
        Ok(Files { dir })
    }

    fn path(&self, hash: &Hash) -> PathBuf {
        let name = blake3::Hash::from(*hash).to_hex();
        self.dir.join(&name[..2]).join(&name[..])
    }

    /// Stores `content`: temporary file, rename. Returns its hash. A sound file that is there is kept. Nothing waits for the
    /// disk, as look-ups wait behind this: a file that a power failure tears does not have the hash that is its name, and
    /// is dropped when it is read.
    pub fn insert(&self, content: &[u8]) -> Result<Hash, FileError> {
        let hash = *blake3::hash(content).as_bytes();
        let path = self.path(&hash);
        if self.read(&hash).is_ok() {
            return Ok(hash);
        }
        let folder = path.parent().unwrap_or(&self.dir);
        match fs::DirBuilder::new().mode(0o700).create(folder) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e.into()),
            _ => {}
        }
        let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(folder)?;
        file.write_all(content)?;
        file.persist(&path).map_err(|e| e.error)?;
        Ok(hash)
    }

    /// The content named `hash`, checked.
    pub fn read(&self, hash: &Hash) -> Result<Vec<u8>, FileError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::open(self.path(hash), flags, Mode::empty()).map_err(|e| match e {
            rustix::io::Errno::NOENT => FileError::Missing,
            e => FileError::Io(e.into()),
        })?;
        let mut file = File::from(fd);
        let meta = file.metadata()?;
        if !meta.is_file() || meta.uid() != own_uid() || meta.mode() & 0o022 != 0 {
            return Err(FileError::Unsafe);
        }
        let mut content = Vec::with_capacity(meta.len() as usize);
        file.read_to_end(&mut content)?;
        if blake3::hash(&content).as_bytes() == hash { Ok(content) } else { Err(FileError::Content) }
    }

    /// Removes the file; it may be gone already.
    pub fn remove(&self, hash: &Hash) -> Result<(), FileError> {
        match fs::remove_file(self.path(hash)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e.into()),
            _ => Ok(()),
        }
    }

    /// Removes every file that `keep` does not want, temporary files of a crashed writer included. Returns the bytes of
    /// what stays.
    pub fn sweep(&self, keep: &dyn Fn(&Hash) -> bool) -> Result<u64, FileError> {
        let mut kept = 0;
        for folder in fs::read_dir(&self.dir)?.flatten().filter(|f| f.path().is_dir()) {
            for entry in fs::read_dir(folder.path())?.flatten() {
                let wanted = entry.file_name().to_str().and_then(|n| blake3::Hash::from_hex(n).ok());
                if wanted.is_some_and(|h| keep(h.as_bytes())) {
                    kept += entry.metadata().map_or(0, |m| m.len());
                } else if let Err(error) = fs::remove_file(entry.path()) {
                    tracing::warn!(%error, "cannot remove a cache file");
                }
            }
        }
        Ok(kept)
    }
}

pub(crate) fn own_uid() -> u32 {
    rustix::process::getuid().as_raw()
}

/// Makes `dir` with mode 0700 (and its parents) if missing; refuses one that others own or can write to.
pub(crate) fn private_directory(dir: &Path) -> Result<(), CacheError> {
    let io = |e| CacheError::Io(dir.to_path_buf(), e);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(io)?;
    let meta = fs::metadata(dir).map_err(io)?;
    if meta.uid() != own_uid() || meta.mode() & 0o022 != 0 {
        return Err(CacheError::Unsafe(dir.to_path_buf()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_is_written_is_read_back_and_damage_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::open(dir.path().join("files")).unwrap();
        let hash = files.insert(b"content").unwrap();
        assert_eq!(files.read(&hash).unwrap(), b"content");
        assert_eq!(fs::metadata(files.path(&hash)).unwrap().mode() & 0o777, 0o600);
        fs::write(files.path(&hash), b"c0ntent").unwrap();
        assert!(matches!(files.read(&hash), Err(FileError::Content)));
        files.insert(b"content").unwrap();
        assert_eq!(files.read(&hash).unwrap(), b"content");
        fs::set_permissions(files.path(&hash), fs::Permissions::from_mode(0o666)).unwrap();
        assert!(matches!(files.read(&hash), Err(FileError::Unsafe)));
        files.remove(&hash).unwrap();
        assert!(matches!(files.read(&hash), Err(FileError::Missing)));
    }

    #[test]
    fn links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::open(dir.path().join("files")).unwrap();
        let hash = files.insert(b"content").unwrap();
        let path = files.path(&hash);
        fs::rename(&path, dir.path().join("elsewhere")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("elsewhere"), &path).unwrap();
        assert!(matches!(files.read(&hash), Err(FileError::Io(_))));
    }

    #[test]
    fn sweep_removes_the_unwanted() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::open(dir.path().join("files")).unwrap();
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
        assert!(matches!(Files::open(open), Err(CacheError::Unsafe(_))));
    }
}
