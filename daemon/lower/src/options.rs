//! What is lowered for.

use flambeau_ir::Capabilities;
use flambeau_ir::dim::{Atom, Dim};
use flambeau_ir::frame::Subgradients;
use flambeau_ir::tensor::Device;
use std::collections::BTreeMap;

/// What the back end can do and how it wants its kernels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LowerOptions {
    /// Name of the plug-in that launches the kernels.
    pub backend: String,
    /// Kind of the device that its kernels take tensors of: torch's `c10::DeviceType` number.
    pub device_kind: u8,
    /// Whether its kernels take buffers in memory of its own.
    pub own_memory: bool,
    /// Threads a kernel may use.
    pub threads: u32,
    /// What its kernels may compute; `None`: everything.
    pub capabilities: Option<Capabilities>,
    /// What parts of sizes are, where guards say it (see [`crate::unified`]).
    pub known: BTreeMap<Atom, Dim>,
    /// Derivatives that versions of torch choose differently.
    pub subgradients: Subgradients,
}

impl Default for LowerOptions {
    fn default() -> Self {
        LowerOptions {
            backend: "cpu".into(),
            device_kind: Device::CPU.kind,
            own_memory: false,
            threads: 2,
            capabilities: None,
            known: BTreeMap::new(),
            subgradients: Subgradients::default(),
        }
    }
}
