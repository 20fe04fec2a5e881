//! For hosts: opening the halves of a back end. Every failure is one sentence.

use crate::abi::{ABI_VERSION, CompileHalfRef, Description, KERNEL_IR, LaunchFn, LaunchHalfRef, Loaded};
use crate::capabilities::Capabilities;
use crate::kernel::Kernel;
use abi_stable::library::{LibraryError, RawLibrary, RootModule, lib_header_from_raw_library};
use abi_stable::sabi_types::VersionNumber;
use abi_stable::std_types::{RResult, RSlice, RStr};
use std::ffi::c_void;
use std::path::{Path, PathBuf};

/// Why a plug-in cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("back end {}: {problem}", path.display())]
pub struct LoadError {
    /// The file.
    pub path: PathBuf,
    /// One sentence.
    pub problem: Problem,
}

/// The ways in which opening fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The dynamic loader refused the file.
    #[error("cannot be opened ({0})")]
    Open(String),
    /// A library, but no plug-in.
    #[error("is no flambeau plug-in")]
    NoPlugin,
    /// Built for another version of the ABI.
    #[error("was built for plug-in ABI {found}, this flambeau has {ABI_VERSION}")]
    Version {
        /// What the file says.
        found: String,
    },
    /// The version matches and the types do not, or it is the other half.
    #[error("has another layout of the plug-in interface (rebuild it, or is it the other half of the back end?)")]
    Layout,
    /// Built with another kernel IR.
    #[error("was built for kernel IR {found}, this flambeau has {KERNEL_IR}")]
    KernelIr {
        /// What the file says.
        found: u32,
    },
    /// It loads and says that it cannot work here.
    #[error("is not available: {0}")]
    Unavailable(String),
}

/// Opens a library that stays loaded for the life of the process, and checks its root module.
fn open<M: RootModule>(path: &Path) -> Result<M, Problem> {
    let library = RawLibrary::load_at(path).map_err(|error| match error {
        LibraryError::OpenError { err, .. } => Problem::Open(err.to_string().lines().next().unwrap_or("").to_owned()),
        other => Problem::Open(other.to_string().lines().next().unwrap_or("").to_owned()),
    })?;
    let library: &'static RawLibrary = Box::leak(Box::new(library));
    // SAFETY: the library is leaked, so the header stays valid.
    let header = unsafe { lib_header_from_raw_library(library) }.map_err(|_| Problem::NoPlugin)?;
    let found = header.version_strings();
    let version = |strings| VersionNumber::new(strings).ok();
    let compatible = match (version(found), version(M::VERSION_STRINGS)) {
        (Some(theirs), Some(ours)) => theirs.major == ours.major && theirs.minor >= ours.minor,
        _ => false,
    };
    if !compatible {
        return Err(Problem::Version { found: found.version.to_string() });
    }
    header.init_root_module::<M>().map_err(|error| match error {
        LibraryError::RootModule { err, .. } => Problem::Unavailable(err.to_string()),
        _ => Problem::Layout,
    })
}

fn checked(description: Description) -> Result<(Description, Capabilities), Problem> {
    if description.kernel_ir != KERNEL_IR {
        return Err(Problem::KernelIr { found: description.kernel_ir });
    }
    let capabilities = Capabilities::from_bytes(&description.capabilities)
        .map_err(|e| Problem::Unavailable(format!("its capabilities cannot be read: {e}")))?;
    Ok((description, capabilities))
}

fn described(
    result: RResult<Description, abi_stable::std_types::RString>,
) -> Result<(Description, Capabilities), Problem> {
    checked(result.into_result().map_err(|e| Problem::Unavailable(e.into_string()))?)
}

/// An open compile half.
pub struct CompileLibrary {
    module: CompileHalfRef,
    description: Description,
    capabilities: Capabilities,
}

impl CompileLibrary {
    /// Opens and checks the file. It stays loaded for the life of the process.
    pub fn open(path: &Path) -> Result<Self, LoadError> {
        let opened = || {
            let module = open::<CompileHalfRef>(path)?;
            let (description, capabilities) = described((module.describe())())?;
            Ok(CompileLibrary { module, description, capabilities })
        };
        opened().map_err(|problem| LoadError { path: path.to_owned(), problem })
    }

    /// What it is.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// What it can compile.
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// One artifact or sentence per kernel; an outer error is one for the whole request.
    pub fn compile(&self, kernels: &[Kernel], target: &str) -> Result<Vec<Result<Vec<u8>, String>>, String> {
        let bytes = postcard::to_stdvec(kernels).map_err(|e| e.to_string())?;
        let compiled = (self.module.compile())(RSlice::from_slice(&bytes), RStr::from_str(target));
        let results = compiled.into_result().map_err(abi_stable::std_types::RString::into_string)?;
        Ok(results
            .into_iter()
            .map(|one| one.into_result().map(Into::into).map_err(abi_stable::std_types::RString::into_string))
            .collect())
    }
}

/// An open launch half.
#[derive(Clone)]
pub struct LaunchLibrary {
    module: LaunchHalfRef,
    description: Description,
    capabilities: Capabilities,
}

impl LaunchLibrary {
    /// Opens and checks the file. It stays loaded for the life of the process.
    pub fn open(path: &Path) -> Result<Self, LoadError> {
        let opened = || {
            let module = open::<LaunchHalfRef>(path)?;
            let (description, capabilities) = described((module.describe())())?;
            Ok(LaunchLibrary { module, description, capabilities })
        };
        opened().map_err(|problem| LoadError { path: path.to_owned(), problem })
    }

    /// What it is; the first of its targets is the one to compile for.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// What the compile half of the same build can compile.
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// Makes an artifact executable. The error is one sentence.
    pub fn load(&self, artifact: &[u8]) -> Result<Executable, String> {
        let loaded = (self.module.load())(RSlice::from_slice(artifact)).into_result();
        Ok(Executable { loaded: loaded.map_err(abi_stable::std_types::RString::into_string)?, module: self.module })
    }

    /// A sentence for a non-zero status of [`Executable::launch`].
    pub fn explain(&self, status: i32) -> String {
        (self.module.explain())(status).into_string()
    }
}

/// A loaded kernel. Dropping it unloads it.
pub struct Executable {
    loaded: Loaded,
    module: LaunchHalfRef,
}

// SAFETY: rule 6 of the ABI: a handle may be launched from any thread, concurrently, and unloaded from any thread.
unsafe impl Send for Executable {}
// SAFETY: as above.
unsafe impl Sync for Executable {}

impl Executable {
    /// Runs the kernel: one indirect call. Returns 0, or a status for [`LaunchLibrary::explain`].
    ///
    /// # Safety
    /// `buffers` holds one pointer per kernel parameter, each valid for all elements that the kernel's accesses reach and
    /// distinct as [`crate::kernel::Param`] demands; `scalars` holds one value per scalar argument. `stream` is a queue
    /// of the back end's device, or null.
    #[inline]
    pub unsafe fn launch(
        &self,
        buffers: *const *mut c_void,
        scalars: *const i64,
        stream: *mut c_void,
        threads: u32,
    ) -> i32 {
        // SAFETY: the handle and the function came from one `load`; the caller vouches for the rest.
        unsafe { (self.loaded.launch)(self.loaded.handle, buffers, scalars, stream, threads) }
    }

    /// The function and the handle that is its first argument, valid as long as `self`.
    pub fn raw(&self) -> (LaunchFn, *const c_void) {
        (self.loaded.launch, self.loaded.handle)
    }
}

impl Drop for Executable {
    fn drop(&mut self) {
        // SAFETY: `self` owns what `load` made and is going away; a launch borrows `self`, so none is running.
        unsafe { (self.module.unload())(self.loaded) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_and_garbage_files_are_one_sentence() {
        let missing = LaunchLibrary::open(Path::new("/nonexistent/libflambeau_x_launch.so")).err().unwrap();
        assert!(matches!(missing.problem, Problem::Open(_)), "{missing}");
        let garbage = std::env::temp_dir().join(format!("flambeau-garbage-{}.so", std::process::id()));
        std::fs::write(&garbage, b"not a library at all").unwrap();
        let error = CompileLibrary::open(&garbage).err().unwrap();
        std::fs::remove_file(&garbage).unwrap();
        assert!(matches!(error.problem, Problem::Open(_)), "{error}");
        assert_eq!(error.to_string().lines().count(), 1);
    }

    #[test]
    fn a_library_that_is_no_plugin_is_named_so() {
        let Some(libc) =
            ["/lib/x86_64-linux-gnu/libm.so.6", "/lib64/libm.so.6"].into_iter().find(|p| Path::new(p).exists())
        else {
            return;
        };
        assert_eq!(LaunchLibrary::open(Path::new(libc)).err().unwrap().problem, Problem::NoPlugin);
    }
}
