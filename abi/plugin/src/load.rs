//! For hosts: opening the halves of a back end. Every failure is one sentence.

use crate::abi::{
    ABI_VERSION, CompileHalfRef, Description, KERNEL_IR, LaunchFn, LaunchHalfRef, Loaded, MEMORY_EXTENSION, MEMORY_OWN,
    MemoryTable, OLDEST_KERNEL_IR,
};
use crate::capabilities::Capabilities;
use crate::file::{self, Fault};
use crate::kernel::Kernel;
use abi_stable::library::{LibraryError, RawLibrary, RootModule, lib_header_from_raw_library};
use abi_stable::sabi_types::VersionNumber;
use abi_stable::std_types::{RResult, RSlice, RStr};
use std::ffi::c_void;
use std::path::{Path, PathBuf};

/// Why a plug-in cannot be used, and what to do about it: one sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("plug-in {} {problem}", path.display())]
pub struct LoadError {
    /// The file.
    pub path: PathBuf,
    /// The rest of the sentence.
    pub problem: Problem,
}

/// The ways in which opening fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The file is missing, foreign, damaged, ...
    #[error(transparent)]
    File(#[from] Fault),
    /// The dynamic loader refused the file.
    #[error("cannot be opened: {0}; install what it needs, or a build for this system")]
    Open(String),
    /// A library, but no plug-in.
    #[error("is a shared library but no flambeau plug-in; it has to end in one of flambeau_plugin's export macros")]
    NoPlugin,
    /// The launch half in place of the compile half, or the other way round.
    #[error("is the {found} half of a back end, where its {wanted} half belongs; the two files were mixed up")]
    OtherHalf {
        /// What it is.
        found: &'static str,
        /// What it should be.
        wanted: &'static str,
    },
    /// Built for another version of the ABI.
    #[error("was built for plug-in ABI {found}, this flambeau has {ABI_VERSION}; get a build of it for that one")]
    Version {
        /// What the file says.
        found: String,
    },
    /// The version matches and the types do not.
    #[error("has another layout of the plug-in interface than its version says; build it again from clean sources")]
    Layout,
    /// Built with another kernel IR.
    #[error("was built for kernel IR {found}, this flambeau has {KERNEL_IR}; get a build of it for that one")]
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
    let first_line = |error: String| Problem::Open(error.lines().next().unwrap_or("").to_owned());
    let library = RawLibrary::load_at(path).map_err(|error| match error {
        LibraryError::OpenError { err, .. } => first_line(err.to_string()),
        other => first_line(other.to_string()),
    })?;
    let library: &'static RawLibrary = Box::leak(Box::new(library));
    // SAFETY: the library is leaked, so the header stays valid.
    let header = unsafe { lib_header_from_raw_library(library) }.map_err(|_| Problem::NoPlugin)?;
    let found = header.version_strings();
    let version = |strings| VersionNumber::new(strings).ok();
    // Minor versions differ in extensions only (rule 4).
    let compatible = match (version(found), version(M::VERSION_STRINGS)) {
        (Some(theirs), Some(ours)) => theirs.major == ours.major,
        _ => false,
    };
    if !compatible {
        return Err(Problem::Version { found: found.version.to_string() });
    }
    if let (Some(found), Some(wanted)) = (half(header.root_mod_consts().name().as_str()), half(M::NAME))
        && found != wanted
    {
        return Err(Problem::OtherHalf { found, wanted });
    }
    header.init_root_module::<M>().map_err(|error| match error {
        LibraryError::RootModule { err, .. } => Problem::Unavailable(err.to_string()),
        _ => Problem::Layout,
    })
}

/// Which half a root module of this name is.
fn half(name: &str) -> Option<&'static str> {
    match name {
        CompileHalfRef::NAME => Some("compile"),
        LaunchHalfRef::NAME => Some("launch"),
        _ => None,
    }
}

fn checked(description: Description) -> Result<(Description, Capabilities), Problem> {
    if !(OLDEST_KERNEL_IR..=KERNEL_IR).contains(&description.kernel_ir) {
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
    /// Checks the file and opens it. It stays loaded for the life of the process.
    pub fn open(path: &Path) -> Result<Self, LoadError> {
        file::check(path).map_err(|fault| LoadError { path: path.to_owned(), problem: fault.into() })?;
        Self::open_checked(path)
    }

    /// Opens a file that [`file::check`] was done for, which for a code generator takes as long as a small kernel.
    pub fn open_checked(path: &Path) -> Result<Self, LoadError> {
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
    memory: Option<&'static MemoryTable>,
}

impl LaunchLibrary {
    /// Checks the file and opens it. It stays loaded for the life of the process.
    pub fn open(path: &Path) -> Result<Self, LoadError> {
        let opened = || {
            file::check(path)?;
            let module = open::<LaunchHalfRef>(path)?;
            let (description, capabilities) = described((module.describe())())?;
            let memory = (module.extension())(RStr::from_str(MEMORY_EXTENSION)).cast::<MemoryTable>();
            // SAFETY: the name stands for a table of this type, which lives as long as the library: for good.
            let memory = unsafe { memory.as_ref() };
            if description.memory > MEMORY_OWN || (description.memory == MEMORY_OWN && memory.is_none()) {
                return Err(Problem::Unavailable("it says nothing that is known of where its memory is".to_owned()));
            }
            Ok(LaunchLibrary { module, description, capabilities, memory })
        };
        opened().map_err(|problem| LoadError { path: path.to_owned(), problem })
    }

    /// What it is; the first target of a device is the one to compile for.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// What the compile half of the same build can compile.
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// Makes memory that kernels can use, if they cannot use the host's or torch's.
    pub fn memory(&self) -> Option<&'static MemoryTable> {
        self.memory
    }

    /// Makes an artifact executable on a device, by its place in the description. The error is one sentence.
    pub fn load(&self, artifact: &[u8], device: u32) -> Result<Executable, String> {
        let loaded = (self.module.load())(RSlice::from_slice(artifact), device).into_result();
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
    /// `buffers` holds one pointer per kernel parameter, as the back end's description says where its memory is, each valid
    /// for all elements that the kernel's accesses reach and distinct as [`crate::kernel::Param`] demands; `scalars` holds
    /// one value per scalar argument. `stream` is a queue of the device that the kernel was loaded for, or null.
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
        assert_eq!(missing.problem, Problem::File(Fault::Missing));
        let dir = tempfile::tempdir().unwrap();
        let garbage = dir.path().join("garbage.so");
        std::fs::write(&garbage, b"not a library at all").unwrap();
        let error = CompileLibrary::open(&garbage).err().unwrap();
        assert_eq!(error.problem, Problem::File(Fault::NoLibrary));
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
