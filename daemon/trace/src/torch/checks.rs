//! Which calls without a rule of ours may raise for what their tensors hold.

use super::is;
use flambeau_ir::graph::Target;
use flambeau_ir::kernel::DType;
use flambeau_ops::{Mark, OpArg};
use std::sync::Arc;

/// Whether the call may raise for what its tensors hold: where it takes tensors of integers, which index and divide, or of
/// bools, which pick, and where a library brought it. What is left of torch takes floats as they are, unless a table says otherwise.
pub fn may_raise(target: &Target, args: &[OpArg], kwargs: &[(Arc<str>, OpArg)]) -> bool {
    let (Target::Function(path) | Target::Method(path)) = target;
    let of_torch = matches!(target, Target::Method(_))
        || path.starts_with("torch.") && !path.starts_with("torch.ops.")
        || path.starts_with("_operator.");
    !of_torch || is(path, Mark::Checks) || args.iter().chain(kwargs.iter().map(|(_, arg)| arg)).any(holds_indices)
}

fn holds_indices(arg: &OpArg) -> bool {
    match arg {
        OpArg::Tensor(meta) => meta.dtype.is_integer() || meta.dtype == DType::Bool,
        OpArg::List(items) | OpArg::Tuple(items) => items.iter().any(holds_indices),
        OpArg::Slice(_) | OpArg::Const(_) | OpArg::Dim(_) => false,
    }
}
