//! The daemon's log file: size-bounded, rotated by renaming.

use flambeau_storage::{FileError, Folder};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use tracing::level_filters::LevelFilter;

/// Size at which a log file is set aside, in bytes.
const ROTATE_AT: u64 = 4 << 20;
/// Files set aside: `flambeaud.log.1` is the latest.
const KEPT: u32 = 2;

/// Its name.
const NAME: &str = "flambeaud.log";

/// The log file of the daemon that serves `cache_dir`.
pub fn path(cache_dir: &Path) -> PathBuf {
    cache_dir.join(flambeau_wire::endpoint::BUILD).join(NAME)
}

/// Sends this process's log to the file in the cache folder; or to standard error if none is given, or if the folder is
/// not safe to write to: then nothing of it is touched.
pub fn start(cache_dir: Option<&Path>, level: LevelFilter) {
    let builder = tracing_subscriber::fmt().with_max_level(level).with_ansi(false).with_target(false);
    let opened = cache_dir.map(|dir| open_in(dir).map_err(|error| (dir, error)));
    match opened {
        Some(Ok(writer)) => builder.with_writer(Mutex::new(writer)).init(),
        Some(Err((dir, error))) => {
            builder.with_writer(io::stderr).init();
            tracing::warn!(dir = %dir.display(), error, "no log file");
        }
        None => builder.with_writer(io::stderr).init(),
    }
    std::panic::set_hook(Box::new(|info| tracing::error!("{info}")));
}

fn open_in(cache_dir: &Path) -> Result<Rotating, String> {
    let cache = Folder::open(cache_dir).map_err(|e| e.to_string())?;
    let folder = cache.folder(flambeau_wire::endpoint::BUILD).map_err(|e| e.to_string())?;
    Rotating::open(folder, NAME).map_err(|e| e.to_string())
}

/// A file that is renamed and begun anew once it is large.
struct Rotating {
    folder: Folder,
    name: String,
    file: File,
    size: u64,
}

impl Rotating {
    fn open(folder: Folder, name: &str) -> Result<Rotating, FileError> {
        let file = begin(&folder, name)?;
        let size = file.metadata()?.len();
        Ok(Rotating { folder, name: name.to_owned(), file, size })
    }

    fn numbered(&self, number: u32) -> String {
        format!("{}.{number}", self.name)
    }

    fn rotate(&mut self) -> Result<(), FileError> {
        for number in (1..KEPT).rev() {
            let _ = self.folder.rename(&self.numbered(number), &self.numbered(number + 1));
        }
        self.folder.rename(&self.name, &self.numbered(1))?;
        self.file = begin(&self.folder, &self.name)?;
        self.size = 0;
        Ok(())
    }
}

/// Opens the file; what is no file of ours in its place (a link, a FIFO) is moved aside, never written to.
fn begin(folder: &Folder, name: &str) -> Result<File, FileError> {
    match folder.append(name) {
        Err(FileError::Unsafe) => folder.move_aside(name).and_then(|()| folder.append(name)),
        opened => opened,
    }
}

impl Write for Rotating {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.size + bytes.len() as u64 > ROTATE_AT && self.size > 0 {
            self.rotate().map_err(io::Error::other)?;
        }
        let written = self.file.write(bytes)?;
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn large_logs_are_set_aside_and_their_number_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Rotating::open(Folder::open(&dir.path().join("sub")).unwrap(), NAME).unwrap();
        for i in 0..5_u8 {
            log.write_all(&vec![b'0' + i; ROTATE_AT as usize - 10]).unwrap();
            log.write_all(b"end\n").unwrap();
        }
        let folder = dir.path().join("sub");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1 + KEPT as usize);
        assert_eq!(fs::read(folder.join(NAME)).unwrap()[0], b'4');
        assert_eq!(fs::read(folder.join(log.numbered(1))).unwrap()[0], b'3');
    }

    #[test]
    fn a_link_in_place_of_the_log_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let build = dir.path().join(flambeau_wire::endpoint::BUILD);
        fs::create_dir(&build).unwrap();
        fs::write(dir.path().join("target"), "mine").unwrap();
        std::os::unix::fs::symlink(dir.path().join("target"), build.join(NAME)).unwrap();
        open_in(dir.path()).unwrap().write_all(b"a line").unwrap();
        assert_eq!(fs::read(dir.path().join("target")).unwrap(), b"mine");
        assert_eq!(fs::read(path(dir.path())).unwrap(), b"a line");
    }

    #[test]
    fn nothing_is_opened_in_a_folder_that_others_can_write_to() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(open_in(dir.path()).is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
