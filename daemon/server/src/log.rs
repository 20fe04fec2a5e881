//! The daemon's log file: size-bounded, rotated by renaming.

use anyhow::Context;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use tracing::level_filters::LevelFilter;

/// Size at which a log file is set aside, in bytes.
const ROTATE_AT: u64 = 4 << 20;
/// Files set aside: `flambeaud.log.1` is the latest.
const KEPT: u32 = 2;

/// The log file of the daemon that serves `cache_dir`.
pub fn path(cache_dir: &Path) -> PathBuf {
    cache_dir.join(flambeau_wire::endpoint::BUILD).join("flambeaud.log")
}

/// Sends this process's log to the file, or to standard error if there is no file.
pub fn start(file: Option<&Path>, level: LevelFilter) -> anyhow::Result<()> {
    let builder = tracing_subscriber::fmt().with_max_level(level).with_ansi(false).with_target(false);
    match file {
        Some(path) => {
            let writer = Rotating::open(path).with_context(|| format!("log file {}", path.display()))?;
            builder.with_writer(Mutex::new(writer)).init();
        }
        None => builder.with_writer(io::stderr).init(),
    }
    std::panic::set_hook(Box::new(|info| tracing::error!("{info}")));
    Ok(())
}

/// A file that is renamed and begun anew once it is large.
struct Rotating {
    path: PathBuf,
    file: File,
    size: u64,
}

impl Rotating {
    fn open(path: &Path) -> io::Result<Rotating> {
        if let Some(folder) = path.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let file = File::options().create(true).append(true).mode(0o600).open(path)?;
        let size = file.metadata()?.len();
        Ok(Rotating { path: path.to_path_buf(), file, size })
    }

    fn numbered(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }

    fn rotate(&mut self) -> io::Result<()> {
        for number in (1..KEPT).rev() {
            let _ = fs::rename(self.numbered(number), self.numbered(number + 1));
        }
        fs::rename(&self.path, self.numbered(1))?;
        *self = Rotating::open(&self.path)?;
        Ok(())
    }
}

impl Write for Rotating {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.size + bytes.len() as u64 > ROTATE_AT && self.size > 0 {
            self.rotate()?;
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

    #[test]
    fn large_logs_are_set_aside_and_their_number_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sub/flambeaud.log");
        let mut log = Rotating::open(&path).unwrap();
        for i in 0..5_u8 {
            log.write_all(&vec![b'0' + i; ROTATE_AT as usize - 10]).unwrap();
            log.write_all(b"end\n").unwrap();
        }
        let files = fs::read_dir(path.parent().unwrap()).unwrap().count();
        assert_eq!(files, 1 + KEPT as usize);
        assert_eq!(fs::read(&path).unwrap()[0], b'4');
        assert_eq!(fs::read(log.numbered(1)).unwrap()[0], b'3');
    }
}
