//! Graph to kernels and launch plan: a pure function. What torch ops mean is in `daemon/ops`; code generation is the
//! plug-ins'.

mod affine;
mod arena;
mod body;
mod collapse;
mod early;
mod functional;
mod generalise;
mod group;
mod halves;
mod kernels;
mod layout;
mod memory;
mod opaque;
mod pipeline;
mod transfers;

pub use memory::Lowered;
pub use pipeline::{LowerOptions, lower};
