//! Grad mode and the like: read from the simulated state, changed in it and in the graph.

use crate::state::tracer::Tracer;
use crate::value::Args;
use crate::value::Value;
use crate::value::flow::{Flow, stop};
use flambeau_ir::code::Const;
use flambeau_ir::frame::BackendKind;
use flambeau_ir::graph::{Arg, Target, ValueMeta};
use flambeau_ir::guard::GuardKind;
use flambeau_ir::kernel::DType;
use flambeau_ir::reason::ReasonCode;

impl Tracer<'_> {
    /// Makes the guard on the thread's state cover what precision torch's libraries compute with.
    pub(crate) fn guard_precision(&mut self) {
        let precision = self.frame.ambient.precision;
        for guard in &mut self.guards {
            if let GuardKind::Ambient(ambient) = &mut guard.kind {
                ambient.precision = precision;
            }
        }
    }

    /// Functions that read or change the calling thread's torch state.
    pub(super) fn fold_ambient(&mut self, path: &str, args: &Args) -> Flow<Option<Value>> {
        let name = path.strip_prefix("torch._C.").or_else(|| path.strip_prefix("torch.")).unwrap_or(path);
        let flag = |b: bool| Ok(Some(Value::bool(b)));
        match name {
            "is_grad_enabled" => flag(self.ambient.grad_enabled),
            // No frame is traced under such modes, and none is entered in a trace.
            "_len_torch_dispatch_stack" if args.pos.is_empty() && args.kw.is_empty() => Ok(Some(Value::int(0))),
            "_get_dispatch_mode" if args.pos.len() == 1 && args.kw.is_empty() => Ok(Some(Value::NONE)),
            "_len_torch_function_stack"
                if self.ambient.default_device.is_none() && args.pos.is_empty() && args.kw.is_empty() =>
            {
                Ok(Some(Value::int(0)))
            }
            "_is_torch_function_enabled" if args.pos.is_empty() && args.kw.is_empty() => flag(true),
            "is_inference_mode_enabled" => flag(self.ambient.inference_mode),
            "_set_grad_enabled" => {
                let Some(mode) = args.pos.first().cloned() else { return Ok(None) };
                // Anything else is a TypeError that torch words.
                let Value::Const(Const::Bool(mode)) = mode else { return Ok(None) };
                self.set_grad_mode(mode)?;
                Ok(Some(Value::NONE))
            }
            "get_default_dtype" => match DType::from_torch(self.ambient.default_dtype) {
                Some(dtype) => Ok(Some(Value::Const(Const::Dtype(dtype)))),
                None => Ok(None),
            },
            "is_autocast_enabled"
            | "is_autocast_cpu_enabled"
            | "is_autocast_cache_enabled"
            | "is_any_autocast_enabled" => self.autocast_flag(name, args),
            "get_autocast_gpu_dtype" | "get_autocast_cpu_dtype" | "get_autocast_dtype" => {
                self.autocast_dtype(name, args)
            }
            "are_deterministic_algorithms_enabled" | "_get_deterministic_algorithms" => {
                flag(self.ambient.deterministic.0)
            }
            "is_deterministic_algorithms_warn_only_enabled" => flag(self.ambient.deterministic.1),
            "set_autocast_enabled"
            | "set_autocast_cpu_enabled"
            | "set_autocast_dtype"
            | "set_autocast_cpu_dtype"
            | "set_autocast_gpu_dtype"
            | "set_autocast_cache_enabled" => self.set_autocast(name, args),
            // Each kind that programs run on has autocast.
            "_is_autocast_available" => {
                let kind = args.pos.first().and_then(Value::as_str).filter(|kind| self.autocast_of(kind).is_some());
                Ok(kind.filter(|_| args.pos.len() == 1 && args.kw.is_empty()).map(|_| Value::bool(true)))
            }
            "autocast_increment_nesting" | "autocast_decrement_nesting" | "clear_autocast_cache"
                if !args.pos.is_empty() || !args.kw.is_empty() =>
            {
                stop(ReasonCode::UnsupportedCall, format!("{path} with these arguments"))
            }
            "autocast_increment_nesting" => self.count_autocast(1).map(Some),
            "autocast_decrement_nesting" => self.count_autocast(-1).map(Some),
            "clear_autocast_cache" => Ok(Some(self.clear_autocast())),
            "autograd.grad_mode.inference_mode" => {
                stop(ReasonCode::UnsupportedCall, "inference_mode inside a compiled function")
            }
            "_enter_inference_mode" | "_InferenceMode" | "_C._InferenceMode" => {
                stop(ReasonCode::UnsupportedCall, "inference_mode inside a compiled function")
            }
            _ => Ok(None),
        }
    }

    /// `torch._C._set_grad_enabled(mode)`, also in the graph.
    fn set_grad_mode(&mut self, mode: bool) -> Flow<()> {
        if self.ambient.grad_enabled == mode {
            return Ok(());
        }
        self.ambient.grad_enabled = mode;
        if mode {
            self.graph.touches_grad = true;
            // A back end that takes FX looks at the mode once, where the graph begins.
            self.exact |= self.frame.options.backend == BackendKind::Fx && !self.frame.ambient.grad_enabled;
        }
        let target = Target::Function("torch._C._set_grad_enabled".into());
        let arg = Arg::Const(Const::Bool(mode));
        self.graph_call(&target, vec![arg], vec![], ValueMeta::Const(Const::None))?;
        Ok(())
    }
}
