//! Grad mode, autocast and the like: read from the simulated state, changed in it and in the graph.

use crate::state::tracer::Tracer;
use crate::value::Args;
use crate::value::Value;
use crate::value::flow::{Flow, stop};
use flambeau_ir::code::Const;
use flambeau_ir::device::DeviceKind;
use flambeau_ir::frame::BackendKind;
use flambeau_ir::graph::{Arg, NodeOp, Target, ValueMeta};
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
            "autocast_increment_nesting" => self.count_autocast(name, 1),
            "autocast_decrement_nesting" => self.count_autocast(name, -1),
            "clear_autocast_cache" => self.state_call(name, vec![]).map(Some),
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

    /// A call that changes the thread's state, in the graph.
    fn state_call(&mut self, name: &str, args: Vec<Const>) -> Flow<Value> {
        let target = Target::Function(format!("torch.{name}").into());
        let args = args.into_iter().map(Arg::Const).collect();
        self.graph_call(&target, args, vec![], ValueMeta::Const(Const::None))?;
        Ok(Value::NONE)
    }

    /// A switch of autocast, also in the graph where it changes anything.
    fn set_autocast(&mut self, name: &str, args: &Args) -> Flow<Option<Value>> {
        let unknown = || stop(ReasonCode::UnsupportedCall, format!("torch.{name} with these arguments"));
        let given = args.pos.iter().map(|value| match value {
            Value::Const(c) => Some(c.clone()),
            _ => None,
        });
        let Some(given) = given.collect::<Option<Vec<Const>>>().filter(|_| args.kw.is_empty()) else {
            return unknown();
        };
        let (kind, value) = match (name, given.as_slice()) {
            ("set_autocast_cache_enabled", [Const::Bool(keeps)]) => {
                if self.ambient.autocast_cache != *keeps {
                    self.ambient.autocast_cache = *keeps;
                    self.state_call(name, given)?;
                }
                return Ok(Some(Value::NONE));
            }
            ("set_autocast_enabled" | "set_autocast_dtype", [Const::Str(kind), value]) => (kind.as_ref(), value),
            ("set_autocast_cpu_enabled" | "set_autocast_cpu_dtype", [value]) => ("cpu", value),
            ("set_autocast_enabled" | "set_autocast_gpu_dtype", [value]) => ("cuda", value),
            _ => return unknown(),
        };
        let Some(at) = DeviceKind::running().position(|running| running.name == kind) else { return unknown() };
        let (enabled, number) = self.ambient.autocast[at];
        let (after, setter) = match value {
            Const::Bool(on) if name.ends_with("enabled") => ((*on, number), "set_autocast_enabled"),
            Const::Dtype(dtype) if name.ends_with("dtype") => ((enabled, *dtype as u8), "set_autocast_dtype"),
            _ => return unknown(),
        };
        if after != (enabled, number) {
            self.ambient.autocast[at] = after;
            self.state_call(setter, vec![Const::str(kind), value.clone()])?;
        }
        Ok(Some(Value::NONE))
    }

    /// Enters a region of autocast or leaves one, also in the graph; how many are entered then. How many are entered
    /// where the frame begins is a fact.
    fn count_autocast(&mut self, name: &str, by: i64) -> Flow<Option<Value>> {
        const DEPTH: &str = "flambeau._autocast.depth";
        let (first, now) = match self.autocast_depth {
            Some(known) => known,
            None => {
                let Value::Const(Const::Int(first)) = self.eval(DEPTH, vec![])? else {
                    return stop(ReasonCode::UnusualAmbient, "a number of autocast regions that is not known");
                };
                let source = self.function_source();
                self.guard(source, GuardKind::Gives(DEPTH.into(), Const::Int(first)));
                (first, first)
            }
        };
        self.autocast_depth = Some((first, now + by));
        self.state_call(name, vec![])?;
        Ok(Some(Value::Const(Const::Int(now + by))))
    }

    /// Takes regions of autocast out of the graph in which it was off as it is outside of them: they change nothing but what
    /// is kept of earlier ones. How many more are entered than left, and whether what is kept is to be cleared.
    pub(crate) fn take_out_idle_autocast(&mut self) -> Option<(i16, bool)> {
        let called = |wanted: &dyn Fn(&str) -> bool| {
            self.graph.nodes.iter().any(|node| match &node.op {
                NodeOp::Call { target: target @ Target::Function(path), .. } => target.sets_autocast() && wanted(path),
                _ => false,
            })
        };
        if called(&|path| path.starts_with("torch.set_")) || self.frame.ambient.autocasts() {
            return None;
        }
        let clears = called(&|path| path == "torch.clear_autocast_cache");
        let entered = i16::try_from(self.autocast_depth.map_or(0, |(first, now)| now - first)).ok()?;
        self.graph.drop_calls(0, |target, _| target.sets_autocast());
        (clears || entered != 0).then_some((entered, clears))
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
