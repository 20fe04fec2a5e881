//! The types that cross the socket between client and daemon, shared by all stages: plain data, printers, parsers and
//! verifiers. No stage logic lives here.

pub mod code;
pub mod device;
pub mod dim;
pub mod exit;
pub mod frame;
pub mod graph;
pub mod guard;
pub mod object;
pub mod oracle;
pub mod plan;
pub mod reason;
pub mod source;
pub mod stack;
pub mod tensor;
pub mod text;
pub mod verify;

/// Kernel IR is part of the plug-in contract; the daemon uses the same types.
pub use flambeau_plugin::{Capabilities, kernel};
