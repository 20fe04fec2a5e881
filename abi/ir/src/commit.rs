//! Which torch calls can be taken back by running the frame again: those that write to nothing the user can see, draw no
//! random numbers and leave the thread's state alone. What is not known to be such commits.

use crate::code::Const;
use crate::graph::{Arg, Target};
use std::sync::Arc;

/// Roots whose functions are pure unless named below.
const KNOWN_ROOTS: &[&str] = &["torch.", "_operator.", "operator.", "math.", "builtins."];

/// In-place operators and item stores of the `operator` module.
const STORES: &[&str] = &[
    "iadd",
    "iand",
    "iconcat",
    "ifloordiv",
    "ilshift",
    "imatmul",
    "imod",
    "imul",
    "ior",
    "ipow",
    "irshift",
    "isub",
    "itruediv",
    "ixor",
    "setitem",
    "delitem",
    "setattr",
    "delattr",
];

/// Functions that draw from torch's generators, at least with some arguments.
const RANDOM: &[&str] = &[
    "rand",
    "randn",
    "randint",
    "randperm",
    "normal",
    "bernoulli",
    "multinomial",
    "poisson",
    "rand_like",
    "randn_like",
    "randint_like",
    "binomial",
    "rrelu",
    "gumbel_softmax",
    "fractional_max_pool2d",
    "fractional_max_pool3d",
    "fractional_max_pool2d_with_indices",
    "fractional_max_pool3d_with_indices",
    "multi_head_attention_forward",
    "scaled_dot_product_attention",
    "rnn_tanh",
    "rnn_relu",
    "lstm",
    "gru",
];

/// Functions that set the state of torch's generators.
const SEEDS: &[&str] = &["manual_seed", "seed", "set_rng_state"];

/// Functions that may update running statistics or renormalise a weight.
const UPDATES: &[&str] = &[
    "batch_norm",
    "instance_norm",
    "native_batch_norm",
    "embedding_bag",
    "embedding_renorm",
    "_batch_norm_impl_index",
];

/// Whether the call switches grad mode, which executors undo themselves.
pub fn is_grad_mode(target: &Target) -> bool {
    matches!(target, Target::Function(path) if path.ends_with("._set_grad_enabled"))
}

/// Whether a failure after this call must be raised instead of running the frame again.
pub fn commits(target: &Target, args: &[Arg], kwargs: &[(Arc<str>, Arg)]) -> bool {
    if kwargs.iter().any(|(name, value)| &**name == "out" && *value != Arg::Const(Const::None)) {
        return true;
    }
    let (name, known) = match target {
        Target::Method(name) => (&**name, true),
        Target::Function(path) => {
            (path.rsplit('.').next().unwrap_or(path), KNOWN_ROOTS.iter().any(|root| path.starts_with(root)))
        }
    };
    if is_grad_mode(target) {
        return false;
    }
    let dunder = name.starts_with("__") && name.ends_with("__") && name.len() > 4;
    let base = if dunder { &name[2..name.len() - 2] } else { name };
    if base == "batch_norm" {
        return !is_eval_batch_norm(args, kwargs);
    }
    if base == "scaled_dot_product_attention" {
        return may_drop_out(args, kwargs);
    }
    !known
        || (!dunder && base.ends_with('_') && !matches!(base, "and_" | "or_" | "not_" | "is_"))
        || STORES.contains(&base)
        || RANDOM.contains(&base)
        || SEEDS.contains(&base)
        || UPDATES.contains(&base)
        || base.contains("dropout")
        || base.starts_with("set_")
        || base.starts_with("_set_")
        || base.contains("autocast")
}

/// Whether all that a failure after this call must not repeat is a draw from the default generator of a device.
pub fn only_draws(target: &Target, args: &[Arg], kwargs: &[(Arc<str>, Arg)]) -> bool {
    let (Target::Method(path) | Target::Function(path)) = target;
    let name = path.rsplit('.').next().unwrap_or(path);
    let draws = match name {
        "scaled_dot_product_attention" => may_drop_out(args, kwargs),
        _ => !name.ends_with('_') && (RANDOM.contains(&name) || name.contains("dropout")),
    };
    let known = matches!(target, Target::Method(_)) || KNOWN_ROOTS.iter().any(|root| path.starts_with(root));
    let given = |name: &str| kwargs.iter().any(|(n, value)| &**n == name && *value != Arg::Const(Const::None));
    draws && known && !given("generator") && !given("out")
}

fn argument<'a>(args: &'a [Arg], kwargs: &'a [(Arc<str>, Arg)], index: usize, name: &str) -> Option<&'a Arg> {
    args.get(index).or_else(|| kwargs.iter().find(|(n, _)| &**n == name).map(|(_, v)| v))
}

/// `torch.batch_norm(input, weight, bias, mean, var, training, ...)` and its functional form agree on place 5.
fn is_eval_batch_norm(args: &[Arg], kwargs: &[(Arc<str>, Arg)]) -> bool {
    matches!(argument(args, kwargs, 5, "training"), Some(Arg::Const(Const::Bool(false))))
}

fn may_drop_out(args: &[Arg], kwargs: &[(Arc<str>, Arg)]) -> bool {
    !matches!(argument(args, kwargs, 4, "dropout_p"), None | Some(Arg::Const(Const::Float(0.0) | Const::Int(0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(path: &str) -> bool {
        commits(&Target::Function(path.into()), &[], &[])
    }

    #[test]
    fn pure_calls_do_not_commit() {
        for path in ["torch.relu", "_operator.add", "torch._C._nn.linear", "torch.nn.functional.softmax"] {
            assert!(!function(path), "{path}");
        }
        assert!(!commits(&Target::Method("__add__".into()), &[], &[]));
    }

    #[test]
    fn writes_randomness_and_the_unknown_commit() {
        for path in ["torch.relu_", "_operator.iadd", "torch.rand", "torch.dropout", "mylib.op", "_operator.setitem"] {
            assert!(function(path), "{path}");
        }
        assert!(commits(&Target::Method("add_".into()), &[], &[]));
        assert!(commits(&Target::Method("__iadd__".into()), &[], &[]));
        let out = [("out".into(), Arg::Node(crate::graph::NodeId(0)))];
        assert!(commits(&Target::Function("torch.add".into()), &[], &out));
        let training = vec![Arg::Const(Const::Bool(true)); 6];
        assert!(commits(&Target::Function("torch.batch_norm".into()), &training, &[]));
        let eval = vec![Arg::Const(Const::Bool(false)); 6];
        assert!(!commits(&Target::Function("torch.batch_norm".into()), &eval, &[]));
    }
}
