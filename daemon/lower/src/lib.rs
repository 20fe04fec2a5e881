//! Graph to kernels and launch plan: a pure function. What torch ops mean is in `daemon/ops`; code generation is the
//! plug-ins'.

mod options;

mod nest;

mod graph;

mod plan;

mod pipeline;

pub use graph::facts::unified;
pub use graph::follow::Functional;
pub use options::LowerOptions;
pub use pipeline::{functional, lower, lower_core};
pub use plan::memory::Lowered;
