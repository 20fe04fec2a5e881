//! Folders for what code generators write: one for each worker, which is its temporary folder and goes with it. Those of
//! daemons that were killed are swept when the next one starts code generation.

use rustix::fs::{FlockOperation, StatVfsMountFlags, flock, statvfs};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const PREFIX: &str = "flambeau-worker-";

/// A folder of this user's alone. It is removed when this is dropped.
pub struct Scratch {
    folder: TempDir,
    /// The opened folder, locked: somebody uses it.
    _lock: File,
}

impl Scratch {
    /// Where temporary files belong. Drivers load what they wrote: a place from which no code runs is the second choice.
    pub fn new() -> io::Result<Scratch> {
        let runs_code = |place: &PathBuf| statvfs(place).is_ok_and(|of| !of.f_flag.contains(StatVfsMountFlags::NOEXEC));
        let place = places().into_iter().find(runs_code).unwrap_or_else(std::env::temp_dir);
        Scratch::new_in(&place)
    }

    fn new_in(place: &Path) -> io::Result<Scratch> {
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(place)?;
        let lock = File::open(folder.path())?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Scratch { folder, _lock: lock })
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

fn places() -> Vec<PathBuf> {
    [Some(std::env::temp_dir()), std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from)].into_iter().flatten().collect()
}

/// Removes folders of this user that nobody has any more.
pub fn sweep() {
    places().iter().for_each(|place| sweep_in(place));
}

fn sweep_in(place: &Path) {
    let ours = |entry: &fs::DirEntry| {
        entry.file_name().to_string_lossy().starts_with(PREFIX)
            && entry.metadata().is_ok_and(|of| of.is_dir() && of.uid() == rustix::process::geteuid().as_raw())
    };
    for entry in fs::read_dir(place).into_iter().flatten().flatten().filter(ours) {
        let free = |folder: File| flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok();
        if File::open(entry.path()).is_ok_and(free) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_the_dead_are_swept_and_others_kept() {
        let place = tempfile::tempdir().unwrap();
        let alive = Scratch::new_in(place.path()).unwrap();
        let dead = place.path().join(format!("{PREFIX}dead"));
        let other = place.path().join("other");
        fs::create_dir(&dead).and_then(|()| fs::write(dead.join("left"), "")).unwrap();
        fs::create_dir(&other).unwrap();
        sweep_in(place.path());
        assert!(alive.path().exists() && other.exists() && !dead.exists());
        let path = alive.path().to_owned();
        drop(alive);
        assert!(!path.exists());
    }
}
