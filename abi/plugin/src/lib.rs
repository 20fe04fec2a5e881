//! The plug-in contract: kernel IR and the ABI of back ends. It knows of no daemon, no client and no device.

pub mod kernel;
