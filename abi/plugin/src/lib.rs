//! The plug-in contract: kernel IR and the ABI of back ends. It knows of no daemon, no client and no device.
//!
//! # Rules of the ABI
//! A back end is two shared libraries: `libflambeau_<name>_compile.so` (opened by `flambeaud worker` processes, may
//! carry a code generator, may abort) and `libflambeau_<name>_launch.so` (opened by clients; small, never aborts).
//!
//! 1. Both sides of a call are checked before the first one: version string, then the layout of every type that crosses
//!    (`abi_stable`), then [`abi::KERNEL_IR`], because kernels cross as postcard bytes whose layout nothing else checks.
//! 2. Only `#[repr(C)]` types of `abi_stable`, raw pointers and integers cross. No panic crosses: [`export`] fences every
//!    method. No memory is freed on the side that did not allocate it, except through `abi_stable`'s own types.
//! 3. Libraries are never unloaded. A newer build is copied to a new file name and loaded beside the old one.
//! 4. Fields of the root modules are only added, at the end. Anything else is a new major version.
//! 5. An artifact is opaque to all but the back end that made it. The client passes only artifacts whose hash it has
//!    checked; the launch half still refuses bytes that are none of its own.
//! 6. `launch` is called with pointers the caller vouches for, from any thread, without the GIL, concurrently for one
//!    handle; it keeps no reference to its arguments after it returns (or after its stream has drained).
//!
//! # Changelog
//! - 1.0.0: first version.
#![expect(unsafe_code, reason = "shared libraries are opened, and raw kernel arguments cross the boundary, here")]

pub mod abi;
pub mod capabilities;
pub mod export;
pub mod kernel;
pub mod load;
mod text;

pub use abi::{ABI_VERSION, Description};
pub use capabilities::Capabilities;
pub use load::{CompileLibrary, Executable, LaunchLibrary, LoadError};
