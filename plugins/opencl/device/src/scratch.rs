//! A folder for the files that a driver makes of programs. PoCL, the driver for CPUs, can run nothing without files, and would
//! keep them below the user's home for good. No OpenCL here.

use rustix::fs::{StatVfsMountFlags, statvfs};
use std::ffi::{CStr, CString, OsStr, c_char};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};
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
    // A process that started this one may have left its own folder here, which goes with it.
    if env::var_os(POCL_FOLDER).is_some_and(|folder| !is_scratch(Path::new(&folder))) {
        return;
    }
    let places = [Some(env::temp_dir()), env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from)];
    let Some(place) = places.into_iter().flatten().find(|place| runs_code(place)) else { return };
    sweep(&place);
    let Ok((folder, lock)) = make(&place) else { return };
    // Files of a program go when the program is released.
    set_variables(&[(POCL_FOLDER, folder.as_os_str()), ("POCL_KERNEL_CACHE", OsStr::new("0"))]);
    if OURS.set((folder, lock, process::id())).is_ok() {
        // SAFETY: the handler only removes files, and this library is never unloaded.
        unsafe { libc::atexit(remove_ours) };
    }
}

/// Whether a folder was made here, by its name.
fn is_scratch(folder: &Path) -> bool {
    folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX))
}

unsafe extern "C" {
    static mut environ: *mut *mut c_char;
}

/// Sets variables of the environment in a copy of it. `setenv` moves what threads may be reading that know nothing of its lock:
/// one that starts a process, for example.
fn set_variables(variables: &[(&str, &OsStr)]) {
    let is_set_here = |line: &[u8]| {
        let name = line.split(|byte| *byte == b'=').next().unwrap_or_default();
        variables.iter().any(|(known, _)| known.as_bytes() == name)
    };
    let lines = variables.iter().map(|(name, value)| [OsStr::new(name), OsStr::new("="), value].map(OsStr::as_bytes));
    let mut all: Vec<*mut c_char> =
        lines.filter_map(|line| CString::new(line.concat()).ok()).map(CString::into_raw).collect();
    // SAFETY: the variables of a process are a list of strings that ends in null. The copy is never freed.
    unsafe {
        let current = AtomicPtr::from_ptr(&raw mut environ);
        let mut at = current.load(Ordering::Acquire);
        while !at.is_null() && !(*at).is_null() {
            if !is_set_here(CStr::from_ptr(*at).to_bytes()) {
                all.push(*at);
            }
            at = at.add(1);
        }
        all.push(std::ptr::null_mut());
        current.store(Box::leak(all.into_boxed_slice()).as_mut_ptr(), Ordering::Release);
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
        is_scratch(&entry.path()) && entry.metadata().is_ok_and(|of| of.uid() == rustix::process::geteuid().as_raw())
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
    fn variables_are_set_and_replaced_and_others_stay() {
        let before = env::vars_os().count();
        for value in ["one", "two"] {
            set_variables(&[("FLAMBEAU_SCRATCH_TEST", OsStr::new(value))]);
            assert_eq!(env::var("FLAMBEAU_SCRATCH_TEST").unwrap(), value);
            assert_eq!(env::vars_os().count(), before + 1);
        }
    }

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
