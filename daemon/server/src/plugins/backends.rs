//! Plug-ins as the server sees them: one code generator per folder, and a fingerprint of each build for cache keys.

use crate::base::lock;
use flambeau_codegen::{Codegen, CodegenOptions, Libraries};
use flambeau_wire::registry::{self, Chosen, Origin, Places, Plugin};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long a fingerprint is believed before the files are looked at again.
const FINGERPRINT_AGE: Duration = Duration::from_secs(1);

/// All code generators in use.
pub struct Backends {
    /// Where plug-ins lie beside this executable.
    shipped: Vec<PathBuf>,
    /// Longest time one kernel may take.
    timeout: Duration,
    /// Where they look for libraries.
    libraries: Arc<Libraries>,
    folders: Mutex<BTreeMap<PathBuf, Arc<Folder>>>,
}

/// The plug-ins of one folder.
pub struct Folder {
    path: PathBuf,
    /// Compiles with them.
    pub codegen: Codegen,
    /// Of each build, by name.
    fingerprints: Mutex<BTreeMap<String, (Instant, [u8; 32])>>,
}

impl Backends {
    /// Opens nothing yet.
    pub fn new(timeout: Duration) -> Backends {
        let program = std::env::current_exe().ok();
        let beside = program.as_deref().and_then(Path::parent);
        let shipped = beside.map_or_else(Vec::new, |folder| vec![folder.join("../_plugins"), folder.to_path_buf()]);
        let shipped = shipped.iter().filter_map(|folder| folder.canonicalize().ok()).collect();
        Backends { shipped, timeout, libraries: Arc::default(), folders: Mutex::default() }
    }

    /// Where back ends are looked for, for a user with this choice.
    pub fn places<'a>(&'a self, plugin_path: &'a [PathBuf], data_dir: &'a Path, chosen: &'a Chosen) -> Places<'a> {
        Places { plugin_path, data_dir, chosen, shipped: &self.shipped }
    }

    /// The build of a back end that these settings find. Without one, a folder that lacks it, so that who uses it is told.
    pub fn find(&self, name: &str, plugin_path: &[PathBuf], data_dir: &Path) -> (Plugin, Origin) {
        let chosen = registry::read(data_dir).unwrap_or_default();
        let lacking = || Plugin { name: name.to_owned(), folder: self.shipped.first().cloned().unwrap_or_default() };
        self.places(plugin_path, data_dir, &chosen).find(name).unwrap_or_else(|| (lacking(), Origin::Shipped))
    }

    /// Folders in which a client's packages keep libraries: code generators look there too, from now on.
    pub fn hear_of(&self, library_path: &[PathBuf]) {
        self.libraries.hear_of(library_path);
    }

    /// How long a plug-in may take to answer.
    pub fn patience(&self) -> Duration {
        self.timeout
    }

    /// The code generators of a plug-in's folder.
    pub fn of(&self, plugin: &Plugin) -> Arc<Folder> {
        let fresh = || Arc::new(Folder::new(plugin.folder.clone(), self.timeout, self.libraries.clone()));
        lock(&self.folders).entry(plugin.folder.clone()).or_insert_with(fresh).clone()
    }

    /// Lets go of builds that a user does not use any more: their workers end once they have done what they are at.
    pub fn retire(&self, data_dir: &Path, chosen: &Chosen) {
        let home = registry::folder(data_dir);
        let used: Vec<PathBuf> =
            chosen.added.iter().map(|(name, build)| registry::build_folder(data_dir, name, build)).collect();
        let kept = |folder: &PathBuf| !folder.starts_with(&home) || used.contains(folder);
        let mut retired = Vec::new();
        lock(&self.folders).retain(|path, folder| {
            let keep = kept(path);
            if !keep {
                retired.push(folder.clone());
            }
            keep
        });
        // Ends idle workers and waits for them, so not under the lock.
        for folder in retired {
            tracing::info!(folder = %folder.path.display(), "a build is not used any more");
        }
    }
}

impl Folder {
    fn new(path: PathBuf, timeout: Duration, libraries: Arc<Libraries>) -> Folder {
        let program = std::env::current_exe().unwrap_or_else(|_| "flambeaud".into());
        let options = CodegenOptions {
            command: vec![program.into(), "worker".into()],
            plugin_dirs: vec![path.clone()],
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            timeout,
            libraries,
        };
        Folder { path, codegen: Codegen::new(options), fingerprints: Mutex::default() }
    }

    /// Differs between builds of a plug-in. From names, sizes and times of its files: reading a code generator's 50 MB would
    /// cost more than a warm start may. The folder of a build that was added is named by its hash.
    pub fn fingerprint(&self, plugin: &Plugin) -> [u8; 32] {
        let mut known = lock(&self.fingerprints);
        match known.get(&plugin.name) {
            Some((at, fingerprint)) if at.elapsed() < FINGERPRINT_AGE => *fingerprint,
            _ => {
                let mut hasher = blake3::Hasher::new();
                hasher.update(plugin.name.as_bytes());
                hasher.update(self.path.file_name().unwrap_or_default().as_encoded_bytes());
                for file in [plugin.compile_half(), plugin.launch_half()] {
                    let meta = std::fs::metadata(file).map(|m| (m.len(), m.mtime(), m.mtime_nsec()));
                    let (length, seconds, nanos) = meta.unwrap_or_default();
                    hasher.update(&length.to_le_bytes()).update(&seconds.to_le_bytes()).update(&nanos.to_le_bytes());
                }
                let fingerprint = *hasher.finalize().as_bytes();
                known.insert(plugin.name.clone(), (Instant::now(), fingerprint));
                fingerprint
            }
        }
    }
}
