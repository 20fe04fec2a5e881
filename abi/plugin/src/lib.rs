//! The plug-in contract: kernel IR and the ABI of back ends. It knows of no daemon, no client and no device.
//!
//! # Rules of the ABI
//! A back end is two shared libraries: `libflambeau_<name>_compile.so` (opened by `flambeaud worker` processes, may
//! carry a code generator, may abort) and `libflambeau_<name>_launch.so` (opened by clients; small, never aborts).
//!
//! 1. Both sides of a call are checked before the first one: the file ([`file`]), the version string, the layout of every
//!    type that crosses (`abi_stable`), then [`abi::KERNEL_IR`], because kernels cross as postcard bytes whose layout
//!    nothing else checks.
//! 2. Only `#[repr(C)]` types of `abi_stable`, raw pointers and integers cross. No panic crosses: [`export`] fences every
//!    method. No memory is freed on the side that did not allocate it, except through `abi_stable`'s own types.
//! 3. Libraries are never unloaded. A newer build is copied to a new file name and loaded beside the old one.
//! 4. Version 1 is frozen: its types keep their fields, in number, order and meaning, and `abi_stable` stays at 0.11. What
//!    comes later comes as an *extension*: a `#[repr(C)]` table that a half gives for a name like `flambeau.memory.1`.
//!    A host does without those it does not know, and without those a back end lacks; so back ends and hosts of all minor
//!    versions work together. A table that was released never changes; its successor has the next number. Anything else is
//!    a new major version, which a host of this one refuses.
//! 5. The kernel IR grows at the end of its `enum`s only, and counts up with every release that made it grow. A host reads
//!    what older back ends list as their capabilities, and sends no back end what it does not list. A back end that is newer
//!    than the host is refused. Where a form of its own cannot be avoided, [`abi::OLDEST_KERNEL_IR`] rises with it.
//! 6. An artifact is opaque to all but the back end that made it. The client passes only artifacts whose hash it has
//!    checked; the launch half still refuses bytes that are none of its own.
//! 7. `launch` is called with pointers the caller vouches for, from any thread, without the GIL, concurrently for one
//!    handle; it keeps no reference to its arguments after it returns (or after its stream has drained).
//! 8. A back end says where its memory is ([`abi::Description::memory`]). In the host's memory a launch is done when it
//!    returns. On torch's device it is put into torch's current stream, makes no other wait, and can be captured in a
//!    graph. In memory of its own it is put into the device's one queue; `export` and `synchronize` wait for it.
//! 9. Constants, scalars, choices and indices exist in every type of [`Capabilities::buffers`], and in `i64` and `bool`
//!    always; everything else is in a table of [`Capabilities`] or is not asked for.
//!
//! What changed from version to version is in `CHANGELOG.md`.
#![expect(unsafe_code, reason = "shared libraries are opened, and raw kernel arguments cross the boundary, here")]

pub mod abi;
pub mod capabilities;
pub mod export;
pub mod file;
pub mod fork;
pub mod kernel;
pub mod load;
pub mod reference;
pub mod simplify;
mod text;

pub use abi::{ABI_VERSION, Description};
pub use capabilities::Capabilities;
pub use load::{CompileLibrary, Executable, LaunchLibrary, LoadError};
