//! What the steps of a plan do: kernels, calls of torch through its C interface or through Python, views, transfers; and the
//! registers that hold what goes from one to the next.

pub mod direct;
pub mod expect;
pub mod extents;
pub mod kernel;
pub mod launch;
pub mod ops;
pub mod regs;
pub mod rows;
pub mod stream;
pub mod transfer;
pub mod view;
