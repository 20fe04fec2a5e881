//! Kernels as text in C, for back ends whose compilers take OpenCL C or CUDA C: what operations become, and how text is laid
//! out. Which thread does what, where values are read and written, and compilers are the back ends' own.

mod ops;
mod text;

pub use ops::{Dialect, cast, ctype, value};
pub use text::{Text, name};

use flambeau_plugin::kernel::Kernel;
use flambeau_plugin::simplify::{check, is_free, merge_neighbours, merge_stages, remove_unit_dims, sort_by_stride};

/// Functions that what [`value`] gives calls. Before it stand the dialect's own definitions: `FUNCTION` is what a function's
/// definition begins with, and it has `div_` and `sqrt_` of `float` and `double`, conversions of f16, bf16 and to integers.
pub const OPERATIONS: &str = include_str!("operations.h");

/// With as few and as long dimensions as there can be.
pub fn simplified(kernel: &Kernel) -> Result<Kernel, String> {
    check(kernel)?;
    let mut kernel = kernel.clone();
    remove_unit_dims(&mut kernel);
    if is_free(&kernel) {
        merge_stages(&mut kernel);
    }
    sort_by_stride(&mut kernel);
    merge_neighbours(&mut kernel);
    Ok(kernel)
}
