//! For back ends: traits to implement, and macros that export them as root modules with every method fenced.

use crate::abi::{Compiled, Description, Loaded, MemoryTable};
use crate::kernel::Kernel;
use abi_stable::std_types::{RErr, ROk, RResult, RSlice, RStr, RString, RVec};
use std::any::Any;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

/// Status of a launch whose method panicked.
pub const STATUS_PANIC: i32 = -1;

/// The compile half of a back end.
pub trait CompileBackend {
    /// What it is, or why it cannot be used here.
    fn describe() -> Result<Description, String>;
    /// One artifact or reason per kernel.
    fn compile(kernels: &[Kernel], target: &str) -> Result<Vec<Result<Vec<u8>, String>>, String>;
    /// The table of an optional interface; null for none.
    fn extension(_name: &str) -> *const c_void {
        ptr::null()
    }
}

/// The launch half of a back end.
pub trait LaunchBackend {
    /// What an artifact becomes.
    type Executable: Send + Sync;
    /// What it is, or why it cannot be used here.
    fn describe() -> Result<Description, String>;
    /// Makes an artifact executable on a device, by its place in the description.
    fn load(artifact: &[u8], device: u32) -> Result<Self::Executable, String>;
    /// Runs it; 0 is success.
    ///
    /// # Safety
    /// As [`crate::abi::LaunchFn`]: buffers and scalars are what the kernel was compiled for.
    unsafe fn launch(
        executable: &Self::Executable,
        buffers: *const *mut c_void,
        scalars: *const i64,
        stream: *mut c_void,
        threads: u32,
    ) -> i32;
    /// A sentence for a non-zero status of `launch`.
    fn explain(status: i32) -> String;
    /// The table of an optional interface, e.g. [`memory_table`]'s for [`crate::abi::MEMORY_EXTENSION`]; null for none.
    fn extension(_name: &str) -> *const c_void {
        ptr::null()
    }
}

/// Memory of a back end whose description says [`crate::abi::MEMORY_OWN`]. Errors are statuses, explained as a launch's.
pub trait OwnMemory {
    /// See [`MemoryTable::allocate`].
    fn allocate(device: u32, bytes: u64) -> Result<*mut c_void, i32>;
    /// See [`MemoryTable::import`].
    ///
    /// # Safety
    /// `host` is memory of so many bytes, which the caller keeps and leaves alone until the memory is released.
    unsafe fn import(device: u32, host: *mut c_void, bytes: u64) -> Result<*mut c_void, i32>;
    /// See [`MemoryTable::export`].
    ///
    /// # Safety
    /// `memory` was made by this back end; both have `bytes` bytes.
    unsafe fn export(memory: *mut c_void, host: *mut c_void, bytes: u64) -> Result<(), i32>;
    /// See [`MemoryTable::release`].
    ///
    /// # Safety
    /// `memory` was made by this back end and is not used again.
    unsafe fn release(memory: *mut c_void);
    /// See [`MemoryTable::synchronize`].
    fn synchronize(device: u32) -> Result<(), i32>;
}

/// The table of [`crate::abi::MEMORY_EXTENSION`], with every method fenced.
pub fn memory_table<M: OwnMemory>() -> &'static MemoryTable {
    fn status(body: impl FnOnce() -> Result<(), i32>) -> i32 {
        catch_unwind(AssertUnwindSafe(body)).map_or(STATUS_PANIC, |done| done.err().unwrap_or(0))
    }
    /// # Safety
    /// `into` may be written to.
    unsafe fn made(into: *mut *mut c_void, body: impl FnOnce() -> Result<*mut c_void, i32>) -> i32 {
        // SAFETY: the caller's promise.
        status(|| body().map(|memory| unsafe { into.write(memory) }))
    }
    unsafe extern "C" fn allocate<M: OwnMemory>(device: u32, bytes: u64, memory: *mut *mut c_void) -> i32 {
        // SAFETY: the caller's promise.
        unsafe { made(memory, || M::allocate(device, bytes)) }
    }
    unsafe extern "C" fn import<M: OwnMemory>(
        device: u32,
        host: *mut c_void,
        bytes: u64,
        memory: *mut *mut c_void,
    ) -> i32 {
        // SAFETY: the caller's promise.
        unsafe { made(memory, || M::import(device, host, bytes)) }
    }
    unsafe extern "C" fn export<M: OwnMemory>(memory: *mut c_void, host: *mut c_void, bytes: u64) -> i32 {
        // SAFETY: the caller's promise.
        status(|| unsafe { M::export(memory, host, bytes) })
    }
    unsafe extern "C" fn release<M: OwnMemory>(memory: *mut c_void) {
        // SAFETY: the caller's promise.
        let _ = catch_unwind(AssertUnwindSafe(|| unsafe { M::release(memory) }));
    }
    extern "C" fn synchronize<M: OwnMemory>(device: u32) -> i32 {
        status(|| M::synchronize(device))
    }
    &MemoryTable {
        allocate: allocate::<M>,
        import: import::<M>,
        export: export::<M>,
        release: release::<M>,
        synchronize: synchronize::<M>,
    }
}

/// The name of a back end whose halves are the packages `flambeau-<name>-compile` and `-launch`, as the names of their files
/// have it: `backend_name(env!("CARGO_PKG_NAME"))`.
pub fn backend_name(package: &str) -> String {
    let name = package.strip_prefix("flambeau-").unwrap_or(package);
    let name = name.strip_suffix("-compile").or_else(|| name.strip_suffix("-launch")).unwrap_or(name);
    name.replace('-', "_")
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the plug-in panicked: {}", text.unwrap_or("no message"))
}

fn fenced<T>(body: impl FnOnce() -> Result<T, String>) -> RResult<T, RString> {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => ROk(value),
        Ok(Err(error)) => RErr(error.into()),
        Err(panic) => RErr(panic_text(&*panic).into()),
    }
}

#[doc(hidden)]
pub extern "C" fn describe_compile<B: CompileBackend>() -> RResult<Description, RString> {
    fenced(B::describe)
}

#[doc(hidden)]
pub extern "C" fn compile<B: CompileBackend>(
    kernels: RSlice<'_, u8>,
    target: RStr<'_>,
) -> RResult<RVec<Compiled>, RString> {
    fenced(|| {
        let kernels: Vec<Kernel> =
            postcard::from_bytes(kernels.as_slice()).map_err(|e| format!("malformed kernels: {e}"))?;
        let compiled = B::compile(&kernels, target.as_str())?;
        let to_abi = |one: Result<Vec<u8>, String>| match one {
            Ok(bytes) => ROk(bytes.into()),
            Err(error) => RErr(error.into()),
        };
        Ok(compiled.into_iter().map(to_abi).collect())
    })
}

#[doc(hidden)]
pub extern "C" fn describe_launch<B: LaunchBackend>() -> RResult<Description, RString> {
    fenced(B::describe)
}

#[doc(hidden)]
pub extern "C" fn load<B: LaunchBackend>(artifact: RSlice<'_, u8>, device: u32) -> RResult<Loaded, RString> {
    fenced(|| {
        let executable = Box::new(B::load(artifact.as_slice(), device)?);
        Ok(Loaded { handle: Box::into_raw(executable).cast_const().cast(), launch: launch::<B> })
    })
}

unsafe extern "C" fn launch<B: LaunchBackend>(
    handle: *const c_void,
    buffers: *const *mut c_void,
    scalars: *const i64,
    stream: *mut c_void,
    threads: u32,
) -> i32 {
    // SAFETY: `handle` came from `load::<B>`, which paired it with this function, and is not unloaded while it runs.
    let executable = unsafe { &*handle.cast::<B::Executable>() };
    // SAFETY: the caller vouches for the arguments (`LaunchFn`).
    let run = || unsafe { B::launch(executable, buffers, scalars, stream, threads) };
    catch_unwind(AssertUnwindSafe(run)).unwrap_or(STATUS_PANIC)
}

#[doc(hidden)]
/// # Safety
/// `loaded` came from `load::<B>`, is not used again, and no launch of it is running.
pub unsafe extern "C" fn unload<B: LaunchBackend>(loaded: Loaded) {
    // SAFETY: `load::<B>` made the box; the caller gives it back once.
    let executable = unsafe { Box::from_raw(loaded.handle.cast_mut().cast::<B::Executable>()) };
    // A destructor that panics leaks what it had; there is nobody to tell.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(executable)));
}

#[doc(hidden)]
pub extern "C" fn explain<B: LaunchBackend>(status: i32) -> RString {
    if status == STATUS_PANIC {
        return RString::from("the plug-in panicked during a launch");
    }
    catch_unwind(|| B::explain(status)).unwrap_or_else(|p| panic_text(&*p)).into()
}

#[doc(hidden)]
pub extern "C" fn compile_extension<B: CompileBackend>(name: RStr<'_>) -> *const c_void {
    catch_unwind(|| B::extension(name.as_str())).unwrap_or(ptr::null())
}

#[doc(hidden)]
pub extern "C" fn launch_extension<B: LaunchBackend>(name: RStr<'_>) -> *const c_void {
    catch_unwind(|| B::extension(name.as_str())).unwrap_or(ptr::null())
}

#[doc(hidden)]
pub mod reexport {
    pub use abi_stable::library::{__call_root_module_loader, CheckTypeLayout, LibHeader, RootModuleResult};
    pub use abi_stable::prefix_type::PrefixTypeTrait;
}

/// Exports a [`CompileBackend`] as the root module of this shared library.
#[macro_export]
macro_rules! export_compile_half {
    ($backend:ty) => {
        $crate::export_root_module!($crate::abi::CompileHalfRef, || {
            $crate::export::reexport::PrefixTypeTrait::leak_into_prefix($crate::abi::CompileHalf {
                describe: $crate::export::describe_compile::<$backend>,
                compile: $crate::export::compile::<$backend>,
                extension: $crate::export::compile_extension::<$backend>,
            })
        });
    };
}

/// Exports a [`LaunchBackend`] as the root module of this shared library.
#[macro_export]
macro_rules! export_launch_half {
    ($backend:ty) => {
        $crate::export_root_module!($crate::abi::LaunchHalfRef, || {
            $crate::export::reexport::PrefixTypeTrait::leak_into_prefix($crate::abi::LaunchHalf {
                describe: $crate::export::describe_launch::<$backend>,
                load: $crate::export::load::<$backend>,
                unload: $crate::export::unload::<$backend>,
                explain: $crate::export::explain::<$backend>,
                extension: $crate::export::launch_extension::<$backend>,
            })
        });
    };
}

/// The symbol `abi_stable` looks for (`ROOT_MODULE_LOADER_NAME`). Written out because its own attribute macro predates
/// edition 2024's `unsafe(no_mangle)`.
#[doc(hidden)]
#[macro_export]
macro_rules! export_root_module {
    ($module:ty, $make:expr) => {
        // SAFETY: the name is abi_stable's own and defined once per shared library.
        #[unsafe(export_name = "_1as_0lib_1header_0root_bmodule_bloader")]
        #[doc(hidden)]
        pub static FLAMBEAU_ROOT_MODULE: $crate::export::reexport::LibHeader = {
            extern "C" fn erased() -> $crate::export::reexport::RootModuleResult {
                fn module() -> $module {
                    ($make)()
                }
                $crate::export::reexport::__call_root_module_loader(module)
            }
            // SAFETY: `erased` returns the prefix of exactly this module type.
            unsafe {
                $crate::export::reexport::LibHeader::from_constructor::<$module>(
                    erased,
                    $crate::export::reexport::CheckTypeLayout::Yes,
                )
            }
        };
    };
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_of_back_ends_are_those_of_their_files() {
        assert_eq!(super::backend_name("flambeau-my-chip-compile"), "my_chip");
        assert_eq!(super::backend_name("flambeau-cpu-launch"), "cpu");
    }

    #[test]
    fn exported_symbol_is_the_one_abi_stable_reads() {
        let source = include_str!("export.rs");
        let wanted = format!("export_name = \"{}\"", abi_stable::library::ROOT_MODULE_LOADER_NAME);
        assert!(source.contains(&wanted), "abi_stable reads {}", abi_stable::library::ROOT_MODULE_LOADER_NAME);
    }
}
