//! Grad mode, autocast and the like: read from the simulated state, changed in it and in the graph.

use crate::state::tracer::Tracer;
use crate::value::Args;
use crate::value::Value;
use crate::value::flow::{Flow, stop};
use flambeau_ir::code::Const;
use flambeau_ir::device::DeviceKind;
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
            | "set_autocast_dtype"
            | "autocast_increment_nesting"
            | "autocast_decrement_nesting"
            | "set_autocast_cache_enabled"
            | "clear_autocast_cache"
            | "amp.autocast_mode.autocast"
            | "autocast_mode.autocast" => {
                stop(ReasonCode::UnsupportedCall, format!("{path} (autocast inside a compiled function)"))
            }
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

    /// Whether autocast is on for the kind of device that is called so, and its type; `None`: no kind that plans run on.
    fn autocast_of(&self, kind: &str) -> Option<(bool, u8)> {
        let at = DeviceKind::running().position(|running| running.name == kind)?;
        Some(self.ambient.autocast[at])
    }

    fn autocast_flag(&mut self, name: &str, args: &Args) -> Flow<Option<Value>> {
        let asked = args.pos.first().map(Value::as_str);
        let on = match (name, asked) {
            ("is_autocast_cache_enabled", _) => Some(self.ambient.autocast_cache),
            ("is_any_autocast_enabled", _) => Some(self.ambient.autocasts()),
            ("is_autocast_cpu_enabled", _) => self.autocast_of("cpu").map(|(on, _)| on),
            (_, None) => self.autocast_of("cuda").map(|(on, _)| on),
            (_, Some(kind)) => kind.and_then(|kind| self.autocast_of(kind)).map(|(on, _)| on),
        };
        Ok(on.map(Value::bool))
    }

    fn autocast_dtype(&mut self, name: &str, args: &Args) -> Flow<Option<Value>> {
        let of = match name {
            "get_autocast_gpu_dtype" => self.autocast_of("cuda"),
            "get_autocast_cpu_dtype" => self.autocast_of("cpu"),
            _ => args.pos.first().and_then(Value::as_str).and_then(|kind| self.autocast_of(kind)),
        };
        Ok(of.and_then(|(_, code)| DType::from_torch(code)).map(|d| Value::Const(Const::Dtype(d))))
    }
}
