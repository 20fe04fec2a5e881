//! Kernels, memory, and the plan that launches them.

pub mod arena;
pub mod early;
pub mod generalise;
mod kernels;
pub mod memory;
pub mod transfers;
pub mod updates;
