//! The two root modules and the types that cross the boundary. Rules and changelog are in the crate header.
#![expect(clippy::expl_impl_clone_on_copy, reason = "made by the StableAbi derive")]

use abi_stable::StableAbi;
use abi_stable::library::RootModule;
use abi_stable::sabi_types::VersionStrings;
use abi_stable::std_types::{RResult, RSlice, RStr, RString, RVec};
use std::ffi::c_void;

/// Version of this ABI: major versions are incompatible, minor ones add fields at the end of a root module.
pub const ABI_VERSION: &str = "1.0.0";

/// Version of the kernel IR's postcard form. Bumped with every change of [`crate::kernel`]; both ends must match.
pub const KERNEL_IR: u32 = 1;

/// What a back end says of itself. Both halves of one build give the same answer but for `targets`.
#[repr(C)]
#[derive(StableAbi, Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Name users select it by, e.g. `cpu`.
    pub name: RString,
    /// Its own version, for reports.
    pub version: RString,
    /// [`KERNEL_IR`] it was built with.
    pub kernel_ir: u32,
    /// Compile half: targets it can compile for. Launch half: targets that run on this machine's devices, best first.
    /// A target names everything that shapes the code, e.g. `x86-64-avx512`.
    pub targets: RVec<RString>,
    /// Postcard of [`crate::Capabilities`].
    pub capabilities: RVec<u8>,
}

/// Result of compiling one kernel: the artifact, or one sentence saying why not.
pub type Compiled = RResult<RVec<u8>, RString>;

/// `launch(handle, buffers, scalars, stream, threads) -> status`. Status 0 is success; others are explained by
/// [`LaunchHalf::explain`].
///
/// `buffers` points to one pointer per kernel parameter, `scalars` to one `i64` per scalar argument. `stream` is the
/// device's queue, null for the CPU. `threads` is the most threads to use.
pub type LaunchFn = unsafe extern "C" fn(
    handle: *const c_void,
    buffers: *const *mut c_void,
    scalars: *const i64,
    stream: *mut c_void,
    threads: u32,
) -> i32;

/// An artifact ready to run.
#[repr(C)]
#[derive(StableAbi, Clone, Copy, Debug)]
pub struct Loaded {
    /// First argument of `launch`; owned by the plug-in until `unload`.
    pub handle: *const c_void,
    /// Runs it: a [`LaunchFn`], spelt out because `abi_stable` reads the signature from here.
    pub launch: unsafe extern "C" fn(
        handle: *const c_void,
        buffers: *const *mut c_void,
        scalars: *const i64,
        stream: *mut c_void,
        threads: u32,
    ) -> i32,
}

/// Root module of a compile half.
#[repr(C)]
#[derive(StableAbi)]
#[sabi(kind(Prefix(prefix_ref = CompileHalfRef)))]
pub struct CompileHalf {
    /// What it is. An error says why it cannot be used here (a missing driver, ...).
    pub describe: extern "C" fn() -> RResult<Description, RString>,
    /// Compiles postcard of `Vec<Kernel>` for a target: one result per kernel, or an error for the whole request.
    #[sabi(last_prefix_field)]
    pub compile: extern "C" fn(kernels: RSlice<'_, u8>, target: RStr<'_>) -> RResult<RVec<Compiled>, RString>,
}

impl RootModule for CompileHalfRef {
    abi_stable::declare_root_module_statics! {CompileHalfRef}
    const BASE_NAME: &'static str = "flambeau_compile";
    const NAME: &'static str = "flambeau_compile";
    const VERSION_STRINGS: VersionStrings = VersionStrings::new(ABI_VERSION);
}

/// Root module of a launch half.
#[repr(C)]
#[derive(StableAbi)]
#[sabi(kind(Prefix(prefix_ref = LaunchHalfRef)))]
pub struct LaunchHalf {
    /// What it is. An error says why it cannot be used here (no device, a missing driver, ...).
    pub describe: extern "C" fn() -> RResult<Description, RString>,
    /// Makes an artifact executable.
    pub load: extern "C" fn(artifact: RSlice<'_, u8>) -> RResult<Loaded, RString>,
    /// Frees what `load` made. No launch of it may be running.
    pub unload: unsafe extern "C" fn(Loaded),
    /// A sentence for a non-zero status of `launch`.
    #[sabi(last_prefix_field)]
    pub explain: extern "C" fn(status: i32) -> RString,
}

impl RootModule for LaunchHalfRef {
    abi_stable::declare_root_module_statics! {LaunchHalfRef}
    const BASE_NAME: &'static str = "flambeau_launch";
    const NAME: &'static str = "flambeau_launch";
    const VERSION_STRINGS: VersionStrings = VersionStrings::new(ABI_VERSION);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    #[test]
    fn layout_is_what_version_one_fixed() {
        assert_eq!(size_of::<Loaded>(), 16);
        assert_eq!(offset_of!(Loaded, launch), 8);
        assert_eq!(size_of::<Description>(), 32 + 32 + 8 + 32 + 32);
        assert_eq!(offset_of!(Description, kernel_ir), 64);
        assert_eq!(size_of::<CompileHalf>(), 2 * 8);
        assert_eq!(size_of::<LaunchHalf>(), 4 * 8);
        assert_eq!(offset_of!(LaunchHalf, unload), 16);
    }
}
