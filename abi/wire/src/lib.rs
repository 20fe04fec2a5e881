//! The whole protocol between the shim and the daemon: one file per direction, and the framing they share.
//! Messages carry `flambeau-ir` types; nothing here opens a socket; where it is, is `endpoint`, and which back ends the user
//! chose, is `registry`.

pub mod endpoint;
pub mod frame;
pub mod from_client;
pub mod from_daemon;
pub mod registry;

/// Bumped with every change of a message. Both ends must match exactly, as must the build hash.
pub const PROTOCOL: u32 = 5;
