//! Folders that are checked once and then used by descriptor: owner and mode are those of the opened folder, and every
//! file is opened relative to it. No open follows a link or waits (a FIFO has nobody at its other end), and what is
//! opened is a regular file of this user that nobody else can write to, or it is refused.

use crate::CacheError;
use crate::files::FileError;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, fstat, mkdirat, openat, renameat, unlinkat};
use rustix::io::Errno;
use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// What new files are called until they are whole.
pub(crate) const NEW: &str = ".new-";

/// An opened folder of this user that nobody else can write to.
#[derive(Debug)]
pub struct Folder {
    fd: OwnedFd,
    path: PathBuf,
}

/// One entry of a folder, as it stood when the folder was read.
#[derive(Debug)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Whether it is a folder; not through a link.
    pub is_folder: bool,
    /// Whether it is a regular file of this user that nobody else can write to.
    pub is_ours: bool,
    /// Bytes.
    pub size: u64,
    /// Last change of the content, in seconds.
    pub modified: i64,
}

fn io_error(error: Errno) -> FileError {
    match error {
        Errno::NOENT => FileError::Missing,
        // Links where a file or folder should be; FIFOs that nobody reads, sockets, folders in place of files.
        Errno::LOOP | Errno::NOTDIR | Errno::NXIO | Errno::ISDIR => FileError::Unsafe,
        error => FileError::Io(error.into()),
    }
}

fn ours(stat: &rustix::fs::Stat) -> bool {
    stat.st_uid == own_uid() && stat.st_mode & 0o022 == 0
}

pub(crate) fn own_uid() -> u32 {
    rustix::process::getuid().as_raw()
}

impl Folder {
    /// Opens the folder at `path`; makes it (mode 0700) and its parents if missing. A link to a folder of this user is
    /// the user's choice of a place.
    pub fn open(path: &Path) -> Result<Folder, CacheError> {
        let io = |e| CacheError::Io(path.to_path_buf(), e);
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(io)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = openat(CWD, path, flags, Mode::empty()).map_err(|e| io(e.into()))?;
        match fstat(&fd) {
            Ok(stat) if ours(&stat) => Ok(Folder { fd, path: path.to_path_buf() }),
            Ok(_) => Err(CacheError::Unsafe(path.to_path_buf())),
            Err(error) => Err(io(error.into())),
        }
    }

    /// Where it was when it was opened, for messages and for libraries that take paths.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the folder `name` in this one; a link is refused.
    pub fn existing(&self, name: &str) -> Result<Folder, FileError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = openat(&self.fd, name, flags, Mode::empty()).map_err(io_error)?;
        let stat = fstat(&fd).map_err(io_error)?;
        if ours(&stat) { Ok(Folder { fd, path: self.path.join(name) }) } else { Err(FileError::Unsafe) }
    }

    /// As [`Folder::existing`]; makes the folder (mode 0700) if it is missing.
    pub fn folder(&self, name: &str) -> Result<Folder, FileError> {
        match mkdirat(&self.fd, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => self.existing(name),
            Err(error) => Err(io_error(error)),
        }
    }

    /// As [`Folder::folder`]; what stands in its place and is no folder of ours is moved aside.
    pub fn folder_anyhow(&self, name: &str) -> Result<Folder, FileError> {
        match self.folder(name) {
            Err(FileError::Unsafe) => {
                self.move_aside(name)?;
                self.folder(name)
            }
            done => done,
        }
    }

    /// Renames an entry to `quarantine-NAME`, in place of an earlier one.
    pub fn move_aside(&self, name: &str) -> Result<(), FileError> {
        let aside = format!("quarantine-{name}");
        self.remove_all(&aside);
        self.rename(name, &aside)
    }

    fn file(&self, name: &str, flags: OFlags) -> Result<(File, u64), FileError> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let fd = openat(&self.fd, name, flags, Mode::RUSR | Mode::WUSR).map_err(io_error)?;
        let stat = fstat(&fd).map_err(io_error)?;
        let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        // A second name elsewhere (a hard link) is how another user could aim at a file of ours.
        if regular && ours(&stat) && stat.st_nlink <= 1 {
            Ok((File::from(fd), stat.st_size as u64))
        } else {
            Err(FileError::Unsafe)
        }
    }

    /// The content of a file; larger ones than `most` bytes are refused unread.
    pub fn read(&self, name: &str, most: u64) -> Result<Vec<u8>, FileError> {
        let (file, size) = self.file(name, OFlags::RDONLY)?;
        if size > most {
            return Err(FileError::Content);
        }
        let mut content = Vec::with_capacity(size as usize);
        file.take(most).read_to_end(&mut content)?;
        Ok(content)
    }

    /// Opens a file for writing at its end, made (mode 0600) if missing.
    pub fn append(&self, name: &str) -> Result<File, FileError> {
        Ok(self.file(name, OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE)?.0)
    }

    /// Opens a file that is there, for its lock.
    pub fn open_file(&self, name: &str) -> Result<File, FileError> {
        Ok(self.file(name, OFlags::RDONLY)?.0)
    }

    /// Puts `content` at `name`, whole or not at all: a new file, renamed. Gives the file, which is not on disk yet.
    pub fn write(&self, name: &str, content: &[u8]) -> Result<File, FileError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let new = format!("{NEW}{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let mut file = match self.file(&new, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL) {
            // An earlier process of this number left one.
            Err(FileError::Io(error)) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.remove(&new)?;
                self.file(&new, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)?
            }
            opened => opened?,
        }
        .0;
        let written = file.write_all(content).map_err(FileError::Io).and_then(|()| self.rename(&new, name));
        if let Err(error) = written {
            let _ = self.remove(&new);
            return Err(error);
        }
        Ok(file)
    }

    /// Renames an entry within the folder.
    pub fn rename(&self, from: &str, to: &str) -> Result<(), FileError> {
        renameat(&self.fd, from, &self.fd, to).map_err(io_error)
    }

    /// Removes what is not a folder; it may be gone already.
    pub fn remove(&self, name: &str) -> Result<(), FileError> {
        match unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(io_error(error)),
        }
    }

    /// Removes an entry, whatever it is, with all below. Best effort.
    pub fn remove_all(&self, name: &str) {
        if self.remove(name).is_err() {
            let _ = std::fs::remove_dir_all(self.path.join(name));
        }
    }

    /// Whether there is an entry of this name, of whatever kind.
    pub fn has(&self, name: &str) -> bool {
        rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// All entries.
    pub fn entries(&self) -> Result<Vec<Entry>, FileError> {
        let mut found = Vec::new();
        for entry in Dir::read_from(self.fd.as_fd()).map_err(io_error)? {
            let entry = entry.map_err(io_error)?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            if name == "." || name == ".." {
                continue;
            }
            let Ok(stat) = rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let kind = FileType::from_raw_mode(stat.st_mode);
            found.push(Entry {
                name: name.to_owned(),
                is_folder: kind == FileType::Directory,
                is_ours: kind == FileType::RegularFile && ours(&stat),
                size: stat.st_size as u64,
                modified: stat.st_mtime,
            });
        }
        Ok(found)
    }
}
