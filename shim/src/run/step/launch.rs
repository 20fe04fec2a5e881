//! Launch halves of plug-ins, opened once a process, and the kernels loaded through them.

use flambeau_ir::device::Runs;
use flambeau_ir::tensor::Device;
use flambeau_plugin::abi::{MEMORY_HOST, MEMORY_OWN, MEMORY_TORCH, MemoryTable};
use flambeau_plugin::load::{Executable, LaunchLibrary};
use flambeau_wire::from_daemon::Artifact;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

/// A loaded kernel and the back end that explains its failures.
#[derive(Clone)]
pub struct LoadedKernel {
    executable: Arc<Executable>,
    library: Arc<LaunchLibrary>,
}

impl LoadedKernel {
    /// Runs it on `threads` threads at most, or puts it into torch's current stream of its device.
    ///
    /// # Safety
    /// As [`Executable::launch`].
    pub unsafe fn launch(
        &self,
        buffers: &[*mut std::ffi::c_void],
        scalars: &[i64],
        stream: *mut std::ffi::c_void,
        threads: u32,
    ) -> Result<(), String> {
        // SAFETY: the caller's promise.
        let status = unsafe { self.status(buffers.as_ptr(), scalars.as_ptr(), stream, threads) };
        if status == 0 { Ok(()) } else { Err(self.explain(status)) }
    }

    /// Runs it: zero, or a status to be explained.
    ///
    /// # Safety
    /// As [`Executable::launch`].
    #[inline]
    pub unsafe fn status(
        &self,
        buffers: *const *mut std::ffi::c_void,
        scalars: *const i64,
        stream: *mut std::ffi::c_void,
        threads: u32,
    ) -> i32 {
        // SAFETY: the caller's promise.
        unsafe { self.executable.launch(buffers, scalars, stream, threads) }
    }

    /// A sentence for a status other than zero.
    pub fn explain(&self, status: i32) -> String {
        format!("back end {}: {}", self.library.description().name, self.library.explain(status))
    }
}

/// The memory of a back end that has its own.
#[derive(Clone)]
pub struct OwnMemory {
    library: Arc<LaunchLibrary>,
    table: &'static MemoryTable,
}

impl OwnMemory {
    /// Its functions.
    pub fn table(&self) -> &'static MemoryTable {
        self.table
    }

    /// Which of the back end's devices it belongs to.
    pub fn device(&self) -> u32 {
        HOST_DEVICE
    }

    /// Turns a status into a sentence.
    pub fn check(&self, status: i32) -> Result<(), String> {
        if status == 0 {
            return Ok(());
        }
        Err(format!("back end {}: {}", self.library.description().name, self.library.explain(status)))
    }
}

#[derive(Default)]
struct Loaded {
    /// Or why one cannot be used; it is not tried again.
    libraries: HashMap<PathBuf, Result<Arc<LaunchLibrary>, String>>,
    /// By library, device and hash of the artifact.
    kernels: HashMap<(PathBuf, u32, [u8; 32]), Weak<Executable>>,
}

impl Loaded {
    fn library(&mut self, path: &Path) -> Result<Arc<LaunchLibrary>, String> {
        let open = || LaunchLibrary::open(path).map(Arc::new).map_err(|e| e.to_string());
        self.libraries.entry(path.to_owned()).or_insert_with(open).clone()
    }
}

fn loaded() -> &'static Mutex<Loaded> {
    static LOADED: OnceLock<Mutex<Loaded>> = OnceLock::new();
    LOADED.get_or_init(Mutex::default)
}

/// What kernels of a back end are to be compiled for here.
pub fn target(dirs: &[PathBuf], backend: &str) -> Result<String, String> {
    let path = find(dirs, backend)?;
    let library = loaded().lock().unwrap_or_else(PoisonError::into_inner).library(&path)?;
    let first =
        library.description().devices.first().and_then(|device| device.targets.first().map(ToString::to_string));
    first.ok_or_else(|| format!("plug-in {} names no device with a target", path.display()))
}

/// The device of back ends that compute on tensors in the host's memory, or on copies of them: their best.
const HOST_DEVICE: u32 = 0;

/// Which of a back end's devices computes on tensors of a device of torch's.
fn device_number(library: &LaunchLibrary, device: Device) -> Result<u32, String> {
    let said = library.description();
    match (said.memory, device.runs()) {
        (MEMORY_HOST | MEMORY_OWN, Runs::OnHost) => Ok(HOST_DEVICE),
        (MEMORY_TORCH, Runs::OnStream) if device.index >= 0 => Ok(device.index as u32),
        _ => Err(format!("back end {} does not compute on {device}", said.name)),
    }
}

/// The memory of a back end, if it has its own.
pub fn own_memory(dirs: &[PathBuf], backend: &str) -> Result<Option<OwnMemory>, String> {
    let path = find(dirs, backend)?;
    let library = loaded().lock().unwrap_or_else(PoisonError::into_inner).library(&path)?;
    let own = library.memory().filter(|_| library.description().memory == MEMORY_OWN);
    Ok(own.map(|table| OwnMemory { library, table }))
}

/// Loads the kernel whose artifact has this hash, for tensors of a device. Its bytes are checked against the hash before they
/// are mapped.
pub fn kernel(
    dirs: &[PathBuf],
    backend: &str,
    device: Device,
    hash: &[u8; 32],
    artifacts: &[Artifact],
) -> Result<LoadedKernel, String> {
    let path = find(dirs, backend)?;
    let mut loaded = loaded().lock().unwrap_or_else(PoisonError::into_inner);
    let library = loaded.library(&path)?;
    let number = device_number(&library, device)?;
    let key = (path, number, *hash);
    if let Some(executable) = loaded.kernels.get(&key).and_then(Weak::upgrade) {
        return Ok(LoadedKernel { executable, library });
    }
    let artifact = artifacts.iter().find(|a| a.hash == *hash).ok_or("an artifact of the plan was not delivered")?;
    if blake3::hash(&artifact.bytes).as_bytes() != hash {
        return Err("an artifact of the plan is damaged".into());
    }
    let executable = Arc::new(library.load(&artifact.bytes, number)?);
    loaded.kernels.retain(|_, kept| kept.strong_count() > 0);
    loaded.kernels.insert(key, Arc::downgrade(&executable));
    Ok(LoadedKernel { executable, library })
}

fn find(dirs: &[PathBuf], backend: &str) -> Result<PathBuf, String> {
    let name = format!("libflambeau_{backend}_launch.so");
    let found = dirs.iter().map(|dir| dir.join(&name)).find(|path: &PathBuf| Path::exists(path));
    found.ok_or_else(|| format!("no launch half of back end {backend} ({name}) was found"))
}
