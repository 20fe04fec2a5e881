//! The two root modules and the types that cross the boundary: frozen, as the tests below say. The rules are in the crate
//! header; what may come later comes as an extension (rule 4).
#![expect(clippy::expl_impl_clone_on_copy, reason = "made by the StableAbi derive")]

use crate::capabilities::Capabilities;
use abi_stable::StableAbi;
use abi_stable::library::RootModule;
use abi_stable::sabi_types::VersionStrings;
use abi_stable::std_types::{RResult, RSlice, RStr, RString, RVec};
use std::ffi::c_void;

/// Version of this ABI, which is this crate's own: `abi_stable` compares the versions of the crates that types come from.
/// Major versions are incompatible; a minor one brings extensions.
pub const ABI_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Version of the kernel IR's postcard form: a host takes back ends of this one and of earlier ones down to
/// [`OLDEST_KERNEL_IR`] (rule 5).
pub const KERNEL_IR: u32 = 1;

/// The first kernel IR whose postcard form is still read as it was written.
pub const OLDEST_KERNEL_IR: u32 = 1;

/// [`Description::memory`]: buffers are addresses in the host's memory, and a launch is done when it returns.
pub const MEMORY_HOST: u32 = 0;
/// [`Description::memory`]: buffers are addresses on the device that torch's tensors are on, and a launch is in order with
/// what else torch's current stream holds.
pub const MEMORY_TORCH: u32 = 1;
/// [`Description::memory`]: buffers are [`Region`]s of memory that the back end made ([`MemoryTable`]).
pub const MEMORY_OWN: u32 = 2;

/// What a back end says of itself. Both halves of one build give the same answer but for `targets` and `devices`.
#[repr(C)]
#[derive(StableAbi, Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Name users select it by, e.g. `cpu`.
    pub name: RString,
    /// Its own version, for reports.
    pub version: RString,
    /// [`KERNEL_IR`] it was built with.
    pub kernel_ir: u32,
    /// Where kernels find their buffers: [`MEMORY_HOST`], [`MEMORY_TORCH`] or [`MEMORY_OWN`].
    pub memory: u32,
    /// Compile half: targets it can compile for. Launch half: none.
    pub targets: RVec<RString>,
    /// Launch half: what kernels can run on here, in the device's own order (for [`MEMORY_TORCH`], torch's). Compile half:
    /// none.
    pub devices: RVec<Device>,
    /// Postcard of [`crate::Capabilities`].
    pub capabilities: RVec<u8>,
}

/// Something that kernels run on.
#[repr(C)]
#[derive(StableAbi, Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// For reports, e.g. the processor's own name.
    pub name: RString,
    /// What kernels may be compiled for to run on it, best first. A target names everything that shapes the code, e.g.
    /// `x86-64-avx512`.
    pub targets: RVec<RString>,
}

impl Description {
    /// A compile half's, for kernels in the host's memory.
    pub fn of_compile_half(name: &str, version: &str, targets: &[&str], capabilities: &Capabilities) -> Self {
        Description {
            name: name.into(),
            version: version.into(),
            kernel_ir: KERNEL_IR,
            memory: MEMORY_HOST,
            targets: targets.iter().map(|target| RString::from(*target)).collect(),
            devices: RVec::new(),
            capabilities: capabilities.to_bytes().into(),
        }
    }

    /// A launch half's, for kernels in the host's memory.
    pub fn of_launch_half(name: &str, version: &str, devices: Vec<Device>, capabilities: &Capabilities) -> Self {
        Description { devices: devices.into(), ..Self::of_compile_half(name, version, &[], capabilities) }
    }
}

impl Device {
    /// A device with these targets, best first.
    pub fn new(name: &str, targets: &[&str]) -> Self {
        Device { name: name.into(), targets: targets.iter().map(|target| RString::from(*target)).collect() }
    }
}

/// Result of compiling one kernel: the artifact, or one sentence saying why not.
pub type Compiled = RResult<RVec<u8>, RString>;

/// `launch(handle, buffers, scalars, stream, threads) -> status`. Status 0 is success; others are explained by
/// [`LaunchHalf::explain`].
///
/// `buffers` points to one pointer per kernel parameter: the address of the parameter's element 0, or with [`MEMORY_OWN`]
/// the address of a [`Region`]. `scalars` points to one `i64` per scalar argument. `stream` is the queue of the device
/// that the kernel was loaded for: torch's current stream (a `cudaStream_t`, ...) with [`MEMORY_TORCH`], otherwise null,
/// the back end's own. `threads` is the most threads of the host to use.
pub type LaunchFn = unsafe extern "C" fn(
    handle: *const c_void,
    buffers: *const *mut c_void,
    scalars: *const i64,
    stream: *mut c_void,
    threads: u32,
) -> i32;

/// A parameter's place in memory that a back end made. Valid during the launch that it is handed to.
#[repr(C)]
#[derive(StableAbi, Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// From [`MemoryTable::allocate`] or [`MemoryTable::import`].
    pub memory: *mut c_void,
    /// From its start to the parameter's element 0, in bytes.
    pub offset: u64,
    /// From that element to the end of what the kernel may reach, in bytes.
    pub bytes: u64,
}

/// Name of the extension of a launch half that is a [`MemoryTable`]: those with [`MEMORY_OWN`] have it.
pub const MEMORY_EXTENSION: &str = "flambeau.memory.1";

/// Memory that a back end makes. Functions that give a status give 0, or one for [`LaunchHalf::explain`]. All may be called
/// from any thread; `device` counts [`Description::devices`].
#[repr(C)]
#[derive(StableAbi, Clone, Copy, Debug)]
pub struct MemoryTable {
    /// Memory of so many bytes on a device, with no particular content.
    pub allocate: unsafe extern "C" fn(device: u32, bytes: u64, memory: *mut *mut c_void) -> i32,
    /// Memory with the content of host memory: that very memory where the device can use it, else a copy. The caller keeps
    /// `host` as it is until the memory is released.
    pub import: unsafe extern "C" fn(device: u32, host: *mut c_void, bytes: u64, memory: *mut *mut c_void) -> i32,
    /// Waits for the launches so far, then copies the first `bytes` bytes of the memory to `host`.
    pub export: unsafe extern "C" fn(memory: *mut c_void, host: *mut c_void, bytes: u64) -> i32,
    /// Gives memory back, once the launches so far are done. No later launch names it.
    pub release: unsafe extern "C" fn(memory: *mut c_void),
    /// Waits for the launches so far on a device, and says if one of them failed.
    pub synchronize: unsafe extern "C" fn(device: u32) -> i32,
}

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
    pub compile: extern "C" fn(kernels: RSlice<'_, u8>, target: RStr<'_>) -> RResult<RVec<Compiled>, RString>,
    /// An optional interface by its name, which ends in its version; null where the back end has none such.
    #[sabi(last_prefix_field)]
    pub extension: extern "C" fn(name: RStr<'_>) -> *const c_void,
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
    /// Makes an artifact executable on a device, by its place in [`Description::devices`].
    pub load: extern "C" fn(artifact: RSlice<'_, u8>, device: u32) -> RResult<Loaded, RString>,
    /// Frees what `load` made. No launch of it may be running.
    pub unload: unsafe extern "C" fn(Loaded),
    /// A sentence for a non-zero status of `launch` or of an extension's function.
    pub explain: extern "C" fn(status: i32) -> RString,
    /// As [`CompileHalf::extension`], e.g. [`MEMORY_EXTENSION`].
    #[sabi(last_prefix_field)]
    pub extension: extern "C" fn(name: RStr<'_>) -> *const c_void,
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
    use std::mem::{align_of, offset_of, size_of};

    /// Size, then the offset of each field, in declaration order.
    macro_rules! assert_layout {
        ($type:ty, $size:literal, $($field:ident at $offset:literal),+) => {
            assert_eq!((size_of::<$type>(), align_of::<$type>()), ($size, 8), stringify!($type));
            $(assert_eq!(offset_of!($type, $field), $offset, concat!(stringify!($type), ".", stringify!($field)));)+
        };
    }

    /// Where one of these numbers has to change, it is a new major version.
    #[test]
    fn layout_is_what_version_one_fixed() {
        assert_layout!(Description, 168, name at 0, version at 32, kernel_ir at 64, memory at 68, targets at 72,
            devices at 104, capabilities at 136);
        assert_layout!(Device, 64, name at 0, targets at 32);
        assert_layout!(Region, 24, memory at 0, offset at 8, bytes at 16);
        assert_layout!(MemoryTable, 40, allocate at 0, import at 8, export at 16, release at 24, synchronize at 32);
        assert_layout!(Loaded, 16, handle at 0, launch at 8);
        assert_layout!(CompileHalf, 24, describe at 0, compile at 8, extension at 16);
        assert_layout!(LaunchHalf, 40, describe at 0, load at 8, unload at 16, explain at 24, extension at 32);
        assert_eq!((size_of::<RString>(), size_of::<RVec<u8>>(), size_of::<RSlice<'_, u8>>()), (32, 32, 16));
        assert_eq!((size_of::<RStr<'_>>(), size_of::<Compiled>()), (16, 40));
        assert_eq!(size_of::<RResult<Description, RString>>(), 176);
        assert_eq!(size_of::<RResult<RVec<Compiled>, RString>>(), 40);
        assert_eq!(size_of::<RResult<Loaded, RString>>(), 40);
        assert_eq!(size_of::<LaunchFn>(), 8);
    }

    #[test]
    fn numbers_are_what_version_one_fixed() {
        assert!(ABI_VERSION.starts_with("1."), "a new major version has new names and a new changelog entry");
        assert_eq!((MEMORY_HOST, MEMORY_TORCH, MEMORY_OWN), (0, 1, 2));
        assert_eq!((KERNEL_IR, OLDEST_KERNEL_IR), (1, 1));
        assert_eq!(MEMORY_EXTENSION, "flambeau.memory.1");
        assert_eq!(crate::export::STATUS_PANIC, -1);
    }
}
