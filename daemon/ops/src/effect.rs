//! Which calls can be taken back by running the frame again: those that write to nothing the user can see, draw no random
//! numbers and leave the thread's state alone. What is not known to be such commits.

use crate::registry::{Effect, Mark, known, writes_first};
use flambeau_ir::code::Const;
use flambeau_ir::graph::{Arg, Target};
use std::sync::Arc;

/// Roots whose functions are pure unless a table says otherwise.
const KNOWN_ROOTS: &[&str] = &["torch.", "_operator.", "operator.", "math.", "builtins."];

fn is_of_torch(target: &Target) -> bool {
    match target {
        Target::Method(_) => true,
        Target::Function(path) => KNOWN_ROOTS.iter().any(|root| path.starts_with(root)),
    }
}

fn effect(target: &Target, args: &[Arg], kwargs: &[(Arc<str>, Arg)]) -> Effect {
    let (Target::Method(name) | Target::Function(name)) = target;
    let given = |param: &str, place: usize| {
        let arg = args.get(place).or_else(|| kwargs.iter().find(|(n, _)| &**n == param).map(|(_, v)| v));
        let off = Arg::Const(Const::Bool(false));
        ![None, Some(&off), Some(&Arg::Const(Const::Int(0))), Some(&Arg::Const(Const::Float(0.0)))].contains(&arg)
    };
    match known(name).map_or(Effect::Pure, |op| op.effect) {
        Effect::DrawsIf(param, place) if given(param, place) => Effect::Draws,
        Effect::UpdatesIf(param, place) if given(param, place) => Effect::Updates,
        Effect::DrawsIf(..) | Effect::UpdatesIf(..) => Effect::Pure,
        effect => effect,
    }
}

fn has(kwargs: &[(Arc<str>, Arg)], name: &str) -> bool {
    kwargs.iter().any(|(n, value)| &**n == name && *value != Arg::Const(Const::None))
}

/// Whether a failure after this call must be raised instead of running the frame again.
pub fn commits(target: &Target, args: &[Arg], kwargs: &[(Arc<str>, Arg)]) -> bool {
    if target.sets_state() {
        return false;
    }
    let (Target::Method(name) | Target::Function(name)) = target;
    has(kwargs, "out")
        || !is_of_torch(target)
        || writes_first(target)
        || known(name).is_some_and(|op| op.has(Mark::Stores))
        || effect(target, args, kwargs) != Effect::Pure
}

/// Whether all that a failure after this call must not repeat is a draw from the default generator of a device.
pub fn only_draws(target: &Target, args: &[Arg], kwargs: &[(Arc<str>, Arg)]) -> bool {
    let draws = effect(target, args, kwargs) == Effect::Draws && !writes_first(target);
    draws && is_of_torch(target) && !has(kwargs, "generator") && !has(kwargs, "out")
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
        assert!(!function("torch.set_autocast_enabled") && !function("torch._C._set_grad_enabled"));
    }

    #[test]
    fn writes_randomness_and_the_unknown_commit() {
        let autocast = ["torch.amp.autocast_mode._enter_autocast", "torch.set_autocast_cpu_enabled"];
        let others = ["torch.relu_", "_operator.iadd", "torch.rand", "torch.dropout", "mylib.op", "_operator.setitem"];
        for path in others.into_iter().chain(autocast) {
            assert!(function(path), "{path}");
        }
        assert!(commits(&Target::Method("add_".into()), &[], &[]));
        assert!(commits(&Target::Method("__iadd__".into()), &[], &[]));
        let out = [("out".into(), Arg::Node(flambeau_ir::graph::NodeId(0)))];
        assert!(commits(&Target::Function("torch.add".into()), &[], &out));
        let training = vec![Arg::Const(Const::Bool(true)); 6];
        assert!(commits(&Target::Function("torch.batch_norm".into()), &training, &[]));
        let eval = vec![Arg::Const(Const::Bool(false)); 6];
        assert!(!commits(&Target::Function("torch.batch_norm".into()), &eval, &[]));
    }
}
