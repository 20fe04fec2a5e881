//! Changes of the user's back ends: builds are copied in, and the record is replaced as a whole. One command at a time holds
//! the lock; whatever moment it is ended at, the record names whole builds, of before or after. Its form is in `flambeau_wire`.

use anyhow::Context;
use flambeau_wire::registry::{self, Chosen, FILE, Plugin, RegistryError};
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How long a build is kept after it was superseded: compiles that ask for it may be on their way.
const KEPT: Duration = Duration::from_secs(3600);
/// What begins the names of files and folders that are not whole yet.
const UNFINISHED: &str = ".new-";

/// The user's back ends, locked.
pub struct Registry {
    data_dir: PathBuf,
    /// Locked while it is open.
    _lock: File,
}

/// Files of a plug-in that were copied but are not part of the user's back ends yet; deleted when dropped.
pub struct Staged {
    /// The copies.
    pub plugin: Plugin,
    /// The hash of both files.
    build: String,
}

impl Registry {
    /// Takes the lock, and waits while another command has it. Makes the folder.
    pub fn lock(data_dir: &Path) -> anyhow::Result<Registry> {
        let folder = registry::folder(data_dir);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)
            .with_context(|| format!("{} cannot be made", folder.display()))?;
        let path = folder.join("lock");
        let open = || File::options().create(true).append(true).mode(0o600).open(&path);
        let file = open().with_context(|| format!("{} cannot be opened", path.display()))?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            eprintln!("waiting for another `flambeau backend` to be done");
            flock(&file, FlockOperation::LockExclusive)?;
        }
        let registry = Registry { data_dir: data_dir.to_owned(), _lock: file };
        registry.sweep(&registry.chosen()?);
        Ok(registry)
    }

    /// What is chosen now.
    pub fn chosen(&self) -> Result<Chosen, RegistryError> {
        registry::read(&self.data_dir)
    }

    fn folder(&self) -> PathBuf {
        registry::folder(&self.data_dir)
    }

    /// Replaces the record. Builds that it no longer names are deleted an hour later, by another command.
    pub fn publish(&self, chosen: &Chosen) -> anyhow::Result<()> {
        let before = self.chosen()?;
        for (name, build) in before.added.iter().filter(|(name, build)| chosen.added.get(*name) != Some(*build)) {
            // Its time says since when it is superseded.
            let folder = registry::build_folder(&self.data_dir, name, build);
            let _ = File::open(folder).and_then(|folder| folder.set_modified(SystemTime::now()));
        }
        let folder = self.folder();
        let fresh = folder.join(format!("{UNFINISHED}{FILE}"));
        let write = || -> io::Result<()> {
            let mut file = File::options().create(true).write(true).truncate(true).mode(0o600).open(&fresh)?;
            file.write_all(serde_json::to_string_pretty(chosen)?.as_bytes())?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            fs::rename(&fresh, folder.join(FILE))?;
            File::open(&folder)?.sync_all()
        };
        write().with_context(|| format!("{} cannot be written", folder.join(FILE).display()))
    }

    /// Copies a plug-in's files, so that what is checked is what is used, whatever becomes of the originals.
    pub fn stage(&self, source: &Plugin) -> anyhow::Result<Staged> {
        let folder = self.folder().join(format!("{UNFINISHED}{}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&folder)?;
        let plugin = Plugin { name: source.name.clone(), folder };
        let mut staged = Staged { plugin, build: String::new() };
        let mut hasher = blake3::Hasher::new();
        let halves = [
            (source.compile_half(), staged.plugin.compile_half()),
            (source.launch_half(), staged.plugin.launch_half()),
        ];
        for (from, to) in halves {
            let bytes = fs::read(&from).map_err(|error| match error.kind() {
                ErrorKind::NotFound => anyhow::anyhow!("{} does not exist; both halves are needed", from.display()),
                _ => anyhow::anyhow!("{} cannot be read ({error})", from.display()),
            })?;
            hasher.update(&(bytes.len() as u64).to_le_bytes()).update(&bytes);
            let write = || -> io::Result<()> {
                let mut file = File::options().create_new(true).write(true).mode(0o500).open(&to)?;
                file.write_all(&bytes)?;
                // Cache keys hold the time; brought again, it is the same build.
                file.set_modified(fs::metadata(&from)?.modified()?)?;
                file.set_permissions(Permissions::from_mode(0o500))?;
                file.sync_all()
            };
            write().with_context(|| format!("{} cannot be written", to.display()))?;
        }
        File::open(&staged.plugin.folder)?.sync_all()?;
        hasher.finalize().to_hex()[..32].clone_into(&mut staged.build);
        Ok(staged)
    }

    /// Moves what was staged to its place; gives its build, for the record.
    pub fn keep(&self, staged: &Staged) -> anyhow::Result<String> {
        let place = registry::build_folder(&self.data_dir, &staged.plugin.name, &staged.build);
        let parent = place.parent().context("no parent folder")?;
        DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
        if !place.exists() {
            fs::rename(&staged.plugin.folder, &place).with_context(|| format!("{} cannot be made", place.display()))?;
            File::open(parent)?.sync_all()?;
        }
        Ok(staged.build.clone())
    }

    /// Deletes what commands left that were ended, and what was superseded long ago.
    fn sweep(&self, chosen: &Chosen) {
        let entries = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        for path in entries(&self.folder()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with(UNFINISHED) {
                let _ = fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path));
                continue;
            }
            for build in entries(&path).filter(|build| build.is_dir()) {
                let used = chosen.added.get(&name).is_some_and(|kept| build.ends_with(kept));
                let since = fs::metadata(&build).and_then(|meta| meta.modified());
                let old = since.is_ok_and(|since| since.elapsed().is_ok_and(|age| age > KEPT));
                if !used && old {
                    let _ = fs::remove_dir_all(&build);
                }
            }
            let _ = fs::remove_dir(&path);
        }
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.plugin.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn halves(folder: &Path, content: &str) -> Plugin {
        let plugin = Plugin { name: "x".into(), folder: folder.to_owned() };
        fs::create_dir_all(folder).unwrap();
        fs::write(plugin.compile_half(), content).unwrap();
        fs::write(plugin.launch_half(), content).unwrap();
        plugin
    }

    fn add(registry: &Registry, source: &Plugin) -> String {
        let staged = registry.stage(source).unwrap();
        let build = registry.keep(&staged).unwrap();
        let mut chosen = registry.chosen().unwrap();
        chosen.added.insert("x".into(), build.clone());
        registry.publish(&chosen).unwrap();
        build
    }

    #[test]
    fn a_build_is_a_folder_and_the_same_files_are_the_same_build() {
        let dir = tempfile::tempdir().unwrap();
        let registry = Registry::lock(dir.path()).unwrap();
        let (one, two) = (halves(&dir.path().join("1"), "one"), halves(&dir.path().join("2"), "two"));
        let first = add(&registry, &one);
        let second = add(&registry, &two);
        assert_ne!(first, second);
        assert_eq!(add(&registry, &one), first);
        fs::remove_dir_all(&one.folder).unwrap();
        let kept = registry::build_folder(dir.path(), "x", &first);
        assert_eq!(fs::read(Plugin { name: "x".into(), folder: kept }.launch_half()).unwrap(), b"one");
        let names = fs::read_dir(registry.folder()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        assert_eq!(names, [FILE, "lock", "x"], "nothing unfinished is left");
    }

    #[test]
    fn what_an_ended_command_left_is_swept_and_so_is_what_was_superseded_long_ago() {
        let dir = tempfile::tempdir().unwrap();
        let registry = Registry::lock(dir.path()).unwrap();
        let first = add(&registry, &halves(&dir.path().join("1"), "one"));
        let left = registry.stage(&halves(&dir.path().join("2"), "two")).unwrap();
        let place = left.plugin.folder.clone();
        std::mem::forget(left);
        let second = add_after(&dir, registry, &place);
        let folder = |build: &str| registry::build_folder(dir.path(), "x", build);
        assert!(folder(&first).exists() && folder(&second).exists());
        let long_ago = SystemTime::now() - 2 * KEPT;
        for build in [&first, &second] {
            File::open(folder(build)).unwrap().set_modified(long_ago).unwrap();
        }
        drop(Registry::lock(dir.path()).unwrap());
        assert!(!folder(&first).exists() && folder(&second).exists());
    }

    /// Another command: finds the place of the one that was ended swept.
    fn add_after(dir: &tempfile::TempDir, ended: Registry, place: &Path) -> String {
        assert!(place.exists());
        drop(ended);
        let registry = Registry::lock(dir.path()).unwrap();
        assert!(!place.exists());
        add(&registry, &halves(&dir.path().join("2"), "two"))
    }
}
