//! Which calls without a rule of ours may raise for what their tensors hold.

use flambeau_ir::graph::Target;
use flambeau_ops::OpArg;
use std::sync::Arc;

/// Factorisations and their users, by how their names begin: of singular matrices and what does not converge.
const MATRICES: &[&str] = &[
    "linalg_",
    "inverse",
    "pinverse",
    "cholesky",
    "svd",
    "lu",
    "lstsq",
    "solve",
    "matrix_power",
    "logdet",
    "slogdet",
    "eig",
    "symeig",
    "lobpcg",
    "triangular_solve",
];

/// Functions of floats that want them in a range.
const RANGES: &[&str] = &[
    "binary_cross_entropy",
    "quantile",
    "nanquantile",
    "histc",
    "histogram",
    "histogramdd",
    "bernoulli",
    "multinomial",
    "normal",
    "poisson",
    "binomial",
];

/// Whether the call may raise for what its tensors hold: where it takes tensors of integers, which index and divide, and
/// where a library brought it. What is left of torch takes floats as they are, but for these.
pub fn may_raise(target: &Target, args: &[OpArg], kwargs: &[(Arc<str>, OpArg)]) -> bool {
    let (Target::Function(path) | Target::Method(path)) = target;
    let of_torch = matches!(target, Target::Method(_))
        || path.starts_with("torch.") && !path.starts_with("torch.ops.")
        || path.starts_with("_operator.");
    let name = path.rsplit('.').next().unwrap_or(path).trim_start_matches('_');
    !of_torch
        || MATRICES.iter().any(|begin| name.starts_with(begin))
        || RANGES.contains(&name)
        || name.starts_with("assert")
        || args.iter().chain(kwargs.iter().map(|(_, arg)| arg)).any(holds_integers)
}

fn holds_integers(arg: &OpArg) -> bool {
    match arg {
        OpArg::Tensor(meta) => meta.dtype.is_integer(),
        OpArg::List(items) | OpArg::Tuple(items) => items.iter().any(holds_integers),
        OpArg::Slice(_) | OpArg::Const(_) | OpArg::Dim(_) => false,
    }
}
