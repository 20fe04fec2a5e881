//! The whole protocol between the shim and the daemon: one file per direction, and the framing they share.
//! Messages carry `flambeau-ir` types; nothing here opens a socket; where it is, is `endpoint`.

pub mod endpoint;
pub mod frame;
pub mod from_client;
pub mod from_daemon;

/// Bumped with every change of a message. Both ends must match exactly, as must the build hash.
pub const PROTOCOL: u32 = 1;
