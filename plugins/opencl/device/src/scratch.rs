//! A folder for the files that a driver makes of programs. PoCL, the driver for CPUs, can run nothing without files, and would
//! keep them below the user's home for good. No OpenCL here.

use rustix::fs::{StatVfsMountFlags, statvfs};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::{env, io, process};

const PREFIX: &str = "flambeau-opencl-";

/// Locked as long as the folder's process lives.
const LOCK: &str = "lock";

/// Where PoCL keeps files.
const POCL_FOLDER: &str = "POCL_CACHE_DIR";

/// What this process has to remove when it ends.
static OURS: OnceLock<(PathBuf, File, u32)> = OnceLock::new();

/// Gives the driver a folder of this process's own, unless the user chose one. Called once, before the first OpenCL function.
/// Where there is no room for one, the driver goes its own way.
pub fn prepare() {
    if env::var_os(POCL_FOLDER).is_some() {
        return;
    }
    let places = [Some(env::temp_dir()), env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from)];
    let Some(place) = places.into_iter().flatten().find(|place| runs_code(place)) else { return };
    sweep(&place);
    let Ok((folder, lock)) = make(&place) else { return };
    // SAFETY: the driver, and so whoever reads these two names, is loaded after this. A thread that reads another variable
    // meanwhile finds it as before, as `setenv` leaves the strings alone.
    unsafe {
        env::set_var(POCL_FOLDER, &folder);
        // Files of a program go when the program is released.
        env::set_var("POCL_KERNEL_CACHE", "0");
    }
    if OURS.set((folder, lock, process::id())).is_ok() {
        // SAFETY: the handler only removes files, and this library is never unloaded.
        unsafe { libc::atexit(remove_ours) };
    }
}

/// Whether libraries can be loaded from there: the driver ends the process where that fails.
fn runs_code(place: &Path) -> bool {
    statvfs(place).is_ok_and(|of| !of.f_flag.contains(StatVfsMountFlags::NOEXEC))
}

/// A new folder that no other user can look into, and its lock. It has a lock from the first moment that it is seen to have one.
fn make(place: &Path) -> io::Result<(PathBuf, File)> {
    let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(place)?.keep();
    let fresh = folder.join("unlocked");
    let lock = File::create(&fresh)?;
    lock.lock()?;
    fs::rename(fresh, folder.join(LOCK))?;
    Ok((folder, lock))
}

/// Removes folders of this user's processes that were killed.
fn sweep(place: &Path) {
    let Ok(entries) = fs::read_dir(place) else { return };
    let ours = |entry: &fs::DirEntry| {
        entry.file_name().to_string_lossy().starts_with(PREFIX)
            && entry.metadata().is_ok_and(|of| of.uid() == rustix::process::geteuid().as_raw())
    };
    for entry in entries.flatten().filter(ours) {
        if File::open(entry.path().join(LOCK)).is_ok_and(|lock| lock.try_lock().is_ok()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

extern "C" fn remove_ours() {
    if let Some((folder, _, owner)) = OURS.get()
        && *owner == process::id()
    {
        let _ = fs::remove_dir_all(folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_the_dead_are_swept_and_others_kept() {
        let place = tempfile::tempdir().unwrap();
        let (alive, _lock) = make(place.path()).unwrap();
        let (dead, lock) = make(place.path()).unwrap();
        drop(lock);
        let starting = place.path().join(format!("{PREFIX}starting"));
        fs::create_dir(&starting).unwrap();
        sweep(place.path());
        assert!(alive.exists() && starting.exists() && !dead.exists());
    }
}
