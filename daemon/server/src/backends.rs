//! Plug-ins as the server sees them: one code generator per list of directories, and a fingerprint for cache keys.

use crate::hub::lock;
use flambeau_codegen::{Codegen, CodegenOptions};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long a fingerprint is believed before the files are looked at again.
const FINGERPRINT_AGE: Duration = Duration::from_secs(1);

/// All code generators in use.
pub struct Backends {
    common: Vec<PathBuf>,
    /// Longest time one kernel may take.
    timeout: Duration,
    sets: Mutex<BTreeMap<Vec<PathBuf>, Arc<BackendSet>>>,
}

/// The plug-ins found in one list of directories.
pub struct BackendSet {
    /// Compiles with them.
    pub codegen: Codegen,
    fingerprint: Mutex<Option<(Instant, [u8; 32])>>,
}

impl Backends {
    /// `plugin_path` first, then where plug-ins lie beside this executable.
    pub fn new(plugin_path: &[PathBuf], timeout: Duration) -> Backends {
        let mut common = plugin_path.to_vec();
        if let Some(folder) = std::env::current_exe().ok().as_deref().and_then(Path::parent) {
            common.push(folder.join("../_plugins"));
            common.push(folder.to_path_buf());
        }
        Backends { common, timeout, sets: Mutex::default() }
    }

    /// The plug-ins for a client that looks in `extra` first.
    pub fn set(&self, extra: &[PathBuf]) -> Arc<BackendSet> {
        let mut dirs = extra.to_vec();
        dirs.extend(self.common.iter().cloned());
        let mut seen = Vec::new();
        dirs.retain(|d| {
            !seen.contains(d) && {
                seen.push(d.clone());
                true
            }
        });
        lock(&self.sets).entry(dirs.clone()).or_insert_with(|| Arc::new(BackendSet::new(dirs, self.timeout))).clone()
    }
}

impl BackendSet {
    fn new(plugin_dirs: Vec<PathBuf>, timeout: Duration) -> BackendSet {
        let program = std::env::current_exe().unwrap_or_else(|_| "flambeaud".into());
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let options = CodegenOptions { command: vec![program.into(), "worker".into()], plugin_dirs, workers, timeout };
        BackendSet { codegen: Codegen::new(options), fingerprint: Mutex::default() }
    }

    /// Changes when a plug-in is added, removed or replaced. From names, sizes and times of the files: reading a code
    /// generator's 50 MB would cost more than a warm start may.
    pub fn fingerprint(&self) -> [u8; 32] {
        let mut known = lock(&self.fingerprint);
        match *known {
            Some((at, fingerprint)) if at.elapsed() < FINGERPRINT_AGE => fingerprint,
            _ => {
                let mut hasher = blake3::Hasher::new();
                for backend in self.codegen.backends() {
                    hasher.update(backend.name.as_bytes());
                    for file in [Some(&backend.compile), backend.launch.as_ref()].into_iter().flatten() {
                        let meta = std::fs::metadata(file).map(|m| (m.len(), m.mtime(), m.mtime_nsec()));
                        let (length, seconds, nanos) = meta.unwrap_or_default();
                        hasher
                            .update(&length.to_le_bytes())
                            .update(&seconds.to_le_bytes())
                            .update(&nanos.to_le_bytes());
                    }
                }
                let fingerprint = *hasher.finalize().as_bytes();
                *known = Some((Instant::now(), fingerprint));
                fingerprint
            }
        }
    }
}
