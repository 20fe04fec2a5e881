//! Kernels to artifacts through plug-in workers. The daemon never opens a plug-in itself: a code generator may abort,
//! so it runs in child processes (`flambeaud worker`), which this crate starts, feeds, restarts and stops.

mod confine;
mod discover;
mod libraries;
mod pool;
mod scratch;
mod worker;

pub use confine::Confined;
pub use discover::{BackendFiles, discover};
pub use libraries::{Libraries, VARIABLE};
pub use worker::worker_main;

use flambeau_ir::kernel::Kernel;
use flambeau_plugin::{Capabilities, LoadError, file};
use flambeau_wire::from_daemon::Artifact;
use pool::{Lost, Pool, Reply, Request};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// How workers are started and bounded.
#[derive(Clone, Debug)]
pub struct CodegenOptions {
    /// Command line of a worker; the path of the plug-in's compile half is appended. `[flambeaud, "worker"]`.
    pub command: Vec<OsString>,
    /// Directories with plug-ins; earlier ones win.
    pub plugin_dirs: Vec<PathBuf>,
    /// Most worker processes per back end.
    pub workers: usize,
    /// Longest time for one kernel, after which its worker is killed.
    pub timeout: Duration,
    /// Where workers look for libraries. One that lacked something is replaced when there are others.
    pub libraries: Arc<Libraries>,
}

/// Why kernels were not compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodegenError {
    /// No such plug-in.
    #[error("no back end named {name} in {}", join(dirs))]
    NoBackend {
        /// What was asked for.
        name: String,
        /// Where it was looked for.
        dirs: Vec<PathBuf>,
    },
    /// The plug-in does not load, or says that it cannot work here.
    #[error("{0}")]
    Unavailable(String),
    /// The plug-in refused a kernel.
    #[error(
        "back end {backend} refused kernel {kernel}: {why}; `flambeau plugin check` on the plug-in's file says what else it \
         refuses"
    )]
    Refused {
        /// Its name.
        kernel: String,
        /// The plug-in's.
        backend: String,
        /// What the plug-in said.
        why: String,
    },
    /// A kernel ended its worker twice.
    #[error(
        "kernel {kernel} ended the code generator of back end {backend} twice ({how}); `flambeau plugin check` on the \
         plug-in's file says at what else it fails"
    )]
    Poisoned {
        /// Its name.
        kernel: String,
        /// The plug-in's.
        backend: String,
        /// Signal or exit code.
        how: String,
    },
    /// A code generator was stopped, and is not started again.
    #[error(
        "the code generator of back end {backend} gave no answer in {seconds} s and is not used any more; replace the \
         plug-in, then `flambeau stop`, or give a slow one time with FLAMBEAU_TIMEOUT"
    )]
    Hung {
        /// The plug-in's name.
        backend: String,
        /// How long it was waited for.
        seconds: u64,
    },
    /// The plug-in panicked, or refused all kernels.
    #[error(
        "back end {backend} compiled nothing: {why}; `flambeau plugin check` on the plug-in's file says at what else it fails"
    )]
    Failed {
        /// The plug-in's name.
        backend: String,
        /// What it said.
        why: String,
    },
    /// Processes cannot be started or talked to.
    #[error("code generation worker: {0}")]
    Worker(String),
}

fn join(dirs: &[PathBuf]) -> String {
    let dirs: Vec<String> = dirs.iter().map(|d| d.display().to_string()).collect();
    if dirs.is_empty() { "no plug-in directory".to_owned() } else { dirs.join(", ") }
}

/// What a back end's compile half says of itself.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Described {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Where its kernels find their buffers: `MEMORY_HOST`, ... of the ABI.
    pub memory: u32,
    /// Targets it compiles for.
    pub targets: Vec<String>,
    /// What it can compile.
    pub capabilities: Capabilities,
    /// What its workers forbid themselves.
    pub confined: Confined,
}

/// Compiles kernels. Shared by all threads.
pub struct Codegen {
    options: CodegenOptions,
    backends: Mutex<BTreeMap<String, Arc<Backend>>>,
}

struct Backend {
    files: BackendFiles,
    pool: Pool,
    described: OnceLock<Described>,
    /// What is wrong with the compile half's file, found out once: it takes as long as compiling a small kernel.
    checked: OnceLock<Result<(), LoadError>>,
    /// How long it was waited for in vain.
    hung: OnceLock<Duration>,
}

impl Backend {
    /// Asks a worker, unless it is known that none can answer. The inner error is how a worker was lost.
    fn ask(&self, request: &Request) -> Result<Result<Reply, Lost>, CodegenError> {
        let path = &self.files.compile;
        let check = || file::check(path).map_err(|fault| LoadError { path: path.clone(), problem: fault.into() });
        self.checked.get_or_init(check).clone().map_err(|e| CodegenError::Unavailable(e.to_string()))?;
        let hung = |after: &Duration| CodegenError::Hung { backend: self.files.name.clone(), seconds: after.as_secs() };
        if let Some(after) = self.hung.get() {
            return Err(hung(after));
        }
        match self.pool.request(request) {
            Err(Lost::TimeOut(after)) => Err(hung(self.hung.get_or_init(|| after))),
            other => Ok(other),
        }
    }
}

impl Codegen {
    /// Starts nothing yet.
    pub fn new(options: CodegenOptions) -> Self {
        scratch::sweep();
        Codegen { options, backends: Mutex::default() }
    }

    /// The plug-ins found now, by name.
    pub fn backends(&self) -> Vec<BackendFiles> {
        discover(&self.options.plugin_dirs)
    }

    fn backend(&self, name: &str) -> Result<Arc<Backend>, CodegenError> {
        let mut backends = self.backends.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(backend) = backends.get(name) {
            return Ok(backend.clone());
        }
        let files = self
            .backends()
            .into_iter()
            .find(|b| b.name == name)
            .ok_or_else(|| CodegenError::NoBackend { name: name.to_owned(), dirs: self.options.plugin_dirs.clone() })?;
        let pool = Pool::new(&self.options, &files.compile);
        let (described, checked, hung) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        let backend = Arc::new(Backend { files, pool, described, checked, hung });
        backends.insert(name.to_owned(), backend.clone());
        Ok(backend)
    }

    /// Identifies the build of a back end's code generator, for cache keys. Reads the file once.
    pub fn build(&self, backend: &str) -> Result<[u8; 32], CodegenError> {
        let backend = self.backend(backend)?;
        backend
            .files
            .build()
            .map_err(|e| CodegenError::Unavailable(format!("{}: {e}", backend.files.compile.display())))
    }

    /// Starts a back end's workers, so that the first compile finds them warm. Returns at once.
    pub fn prewarm(&self, backend: &str) -> Result<(), CodegenError> {
        self.backend(backend)?.pool.start_all()
    }

    /// What a back end can do; asked of a worker once.
    pub fn describe(&self, backend: &str) -> Result<Described, CodegenError> {
        let backend = self.backend(backend)?;
        if let Some(described) = backend.described.get() {
            return Ok(described.clone());
        }
        match backend.ask(&Request::Describe)? {
            Ok(Reply::Described(described)) => {
                tracing::info!(backend = described.name, confined = ?described.confined, "a code generator is ready");
                Ok(backend.described.get_or_init(|| described).clone())
            }
            Ok(Reply::Unavailable(why)) => Err(CodegenError::Unavailable(why)),
            Ok(Reply::Compiled(_)) => Err(CodegenError::Worker("answered another question".to_owned())),
            Err(lost) => Err(CodegenError::Worker(lost.to_string())),
        }
    }

    /// One artifact per kernel, in order. Kernels run on all workers at once; kernels that differ only in their name are
    /// compiled once. The error is that of the first kernel that has one.
    pub fn compile(&self, backend: &str, kernels: &[Kernel], target: &str) -> Result<Vec<Artifact>, CodegenError> {
        let backend = self.backend(backend)?;
        let mut unique: Vec<&Kernel> = Vec::new();
        let mut seen = BTreeMap::new();
        let places: Vec<usize> = kernels
            .iter()
            .map(|kernel| {
                *seen.entry(kernel_hash([0; 32], target, kernel)).or_insert_with(|| {
                    unique.push(kernel);
                    unique.len() - 1
                })
            })
            .collect();
        let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
        let done: Vec<OnceLock<Result<Artifact, CodegenError>>> = unique.iter().map(|_| OnceLock::new()).collect();
        let work = || {
            while !failed.load(Ordering::Relaxed) {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(kernel) = unique.get(at) else { break };
                let result = compile_one(&backend, kernel, target);
                failed.fetch_or(result.is_err(), Ordering::Relaxed);
                let _ = done[at].set(result);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..self.options.workers.min(unique.len()) {
                scope.spawn(work);
            }
            work();
        });
        let mut artifacts = Vec::with_capacity(unique.len());
        for result in done.into_iter().filter_map(OnceLock::into_inner) {
            artifacts.push(result?);
        }
        if artifacts.len() < unique.len() {
            return Err(CodegenError::Worker("no answer".to_owned()));
        }
        Ok(places.into_iter().map(|at| artifacts[at].clone()).collect())
    }
}

/// A worker that dies takes one more try; the second death is the kernel's fault.
fn compile_one(backend: &Backend, kernel: &Kernel, target: &str) -> Result<Artifact, CodegenError> {
    let name = || backend.files.name.clone();
    let request = Request::Compile { target: target.to_owned(), kernels: vec![kernel.clone()] };
    let mut how = String::new();
    for _ in 0..2 {
        match backend.ask(&request)? {
            Ok(Reply::Compiled(Ok(results))) => {
                let [result] = <[_; 1]>::try_from(results)
                    .map_err(|_| CodegenError::Worker("answered with another number of kernels".to_owned()))?;
                let bytes: Arc<[u8]> = result
                    .map_err(|why| CodegenError::Refused { kernel: kernel.name.clone(), backend: name(), why })?
                    .into();
                return Ok(Artifact { hash: *blake3::hash(&bytes).as_bytes(), bytes });
            }
            Ok(Reply::Compiled(Err(why))) => return Err(CodegenError::Failed { backend: name(), why }),
            Ok(Reply::Unavailable(why)) => return Err(CodegenError::Unavailable(why)),
            Ok(Reply::Described(_)) => return Err(CodegenError::Worker("answered another question".to_owned())),
            Err(lost) => {
                tracing::warn!(kernel = kernel.name, %lost, "code generation worker lost");
                if lost.is_start() {
                    return Err(CodegenError::Worker(lost.to_string()));
                }
                how = lost.to_string();
            }
        }
    }
    Err(CodegenError::Poisoned { kernel: kernel.name.clone(), backend: name(), how })
}

/// What an artifact is stored under: the back end's build, the target and the kernel but for its name.
pub fn kernel_hash(build: [u8; 32], target: &str, kernel: &Kernel) -> [u8; 32] {
    let mut nameless = kernel.clone();
    nameless.name.clear();
    let bytes = postcard::to_stdvec(&(build, target, nameless)).unwrap_or_default();
    *blake3::hash(&bytes).as_bytes()
}
