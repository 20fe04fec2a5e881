//! The client's settings, as `flambeau.config` resolved them.

use flambeau_wire::endpoint::{Place, Start, kernel_timeout};
use flambeau_wire::from_client::Settings as WireSettings;
use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// All settings; replaced as a whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// What the handshake carries.
    pub wire: WireSettings,
    /// Seconds the daemon lives without clients.
    pub idle_timeout: u64,
    /// Compiled frames of one callable.
    pub recompile_limit: usize,
    /// Compiles of one user function, over all callables that are made of it.
    pub accumulated_recompile_limit: usize,
    /// Graphs that autograd sees become kernels.
    pub native_training: bool,
    /// Longest wait for the daemon without progress.
    pub timeout: Duration,
    /// What to print, of the topics of `FLAMBEAU_LOGS`.
    pub logs: Vec<String>,
}

/// Taken only by threads that hold the GIL, so that none has it when another forks.
static SETTINGS: RwLock<Option<Arc<Settings>>> = RwLock::new(None);

/// The settings now.
pub fn get() -> Arc<Settings> {
    let found = SETTINGS.read().unwrap_or_else(PoisonError::into_inner).clone();
    found.unwrap_or_else(|| {
        let timeout = Duration::from_secs(60);
        Arc::new(Settings { recompile_limit: 8, accumulated_recompile_limit: 256, timeout, ..Settings::default() })
    })
}

/// Replaces the settings; true if the daemon must be told (or another one used).
pub fn set(settings: Settings) -> bool {
    let old = SETTINGS.write().unwrap_or_else(PoisonError::into_inner).replace(Arc::new(settings));
    old.is_some_and(|old| old.wire != get().wire)
}

/// The folder of the Python package, which this library lies in.
pub fn package() -> &'static Path {
    static PACKAGE: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
    PACKAGE.get_or_init(|| {
        // SAFETY: `dladdr` fills the struct for an address inside this very library, whose path outlives it.
        let file = unsafe {
            let mut info: libc::Dl_info = std::mem::zeroed();
            let found = libc::dladdr(package as *const libc::c_void, &raw mut info);
            if found == 0 || info.dli_fname.is_null() {
                return PathBuf::from(".");
            }
            CStr::from_ptr(info.dli_fname)
        };
        let file = PathBuf::from(file.to_string_lossy().into_owned());
        let file = std::path::absolute(&file).unwrap_or(file);
        file.parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
    })
}

/// Where plug-ins came with the package.
pub fn shipped_plugins() -> PathBuf {
    package().join("_plugins")
}

/// The daemon's program.
pub fn daemon() -> PathBuf {
    package().join("_bin/flambeaud")
}

impl Settings {
    /// Where the socket is and how the daemon is started.
    pub fn start(&self) -> Result<Start, String> {
        let socket = Place::from_env(self.wire.cache_dir.clone()).socket().map_err(|e| e.to_string())?;
        Ok(Start {
            socket,
            cache_dir: self.wire.cache_dir.clone(),
            cache_size: self.wire.cache_size,
            idle_timeout: self.idle_timeout,
            plugin_path: self.wire.plugin_path.clone(),
            kernel_timeout: kernel_timeout(self.timeout),
        })
    }

    /// Whether a topic of `FLAMBEAU_LOGS` is on.
    pub fn logs(&self, topic: &str) -> bool {
        self.logs.iter().any(|t| t == topic || t == "all")
    }
}
