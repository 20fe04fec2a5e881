//! Torch functions whose result is known without running anything: metadata, dispatch questions, compiler state.

use crate::state::tracer::Tracer;
use crate::value::Args;
use crate::value::flow::{Flow, stop};
use crate::value::{TensorId, Value};
use flambeau_ir::code::Const;
use flambeau_ir::dim::Dim;
use flambeau_ir::graph::Target;
use flambeau_ir::guard::Relation;
use flambeau_ir::kernel::DType;
use flambeau_ir::reason::ReasonCode;

/// Questions that are answered no while nothing unusual is active.
const NO: &[&str] = &[
    "torch.jit._script.is_scripting",
    "torch.jit.is_scripting",
    "torch._jit_internal.is_scripting",
    "torch.jit._trace.is_tracing",
    "torch.jit.is_tracing",
    "torch._C._is_tracing",
    "torch.compiler.is_exporting",
    "torch._C._is_torch_function_mode_enabled",
    "torch.onnx.is_in_onnx_export",
    "torch.onnx._internal.exporter._flags.is_in_onnx_export",
    "torch._C._functorch.is_batchedtensor",
    "torch._C._functorch.is_gradtrackingtensor",
    "torch._C._functorch.is_functorch_wrapped_tensor",
    "torch._C._are_functorch_transforms_active",
    "torch.fx._symbolic_trace.is_fx_tracing",
    "torch.fx._symbolic_trace.is_fx_symbolic_tracing",
];

/// Whether a compiler traces the code, which then takes the path it keeps for compilers: flambeau stands where
/// `torch.compile` would.
const COMPILING: &[&str] = &[
    "flambeau.is_compiling",
    "flambeau._marks.is_compiling",
    "torch.compiler.is_compiling",
    "torch.compiler.is_dynamo_compiling",
    "torch._dynamo.external_utils.is_compiling",
];

impl Tracer<'_> {
    /// The result of a torch function that needs no graph; `None`: not one of them.
    pub(crate) fn fold_torch(&mut self, path: &str, args: &Args) -> Flow<Option<Value>> {
        if !(path.starts_with("torch") || path.starts_with("flambeau")) {
            return Ok(None);
        }
        if NO.contains(&path) {
            return Ok(Some(Value::bool(false)));
        }
        if COMPILING.contains(&path) {
            return Ok(Some(Value::bool(true)));
        }
        if let Some(method) = path.strip_prefix("torch.Tensor.")
            && let Some(Value::Tensor(id)) = args.pos.first()
        {
            return self.fold_method(*id, method, args);
        }
        if let Some(value) = self.fold_ambient(path, args)? {
            return Ok(Some(value));
        }
        if let Some(value) = self.fold_optimizer(path, args)? {
            return Ok(Some(value));
        }
        Ok(Some(match path {
            "torch._C._get_tracing_state" => Value::NONE,
            "torch.is_tensor" => Value::bool(matches!(args.pos.first(), Some(Value::Tensor(_)))),
            "flambeau.graph_break" | "flambeau._marks.graph_break" => {
                return stop(ReasonCode::UserBreak, "graph_break()");
            }
            "flambeau._native.set_nested_breaks" => {
                let Some(Value::Const(Const::Bool(on))) = args.pos.first() else { return Ok(None) };
                Value::bool(std::mem::replace(&mut self.nested_breaks, *on))
            }
            "flambeau._native.set_error_on_break" => {
                let Some(Value::Const(Const::Bool(on))) = args.pos.first() else { return Ok(None) };
                Value::bool(std::mem::replace(&mut self.error_on_break, *on))
            }
            "torch._dynamo.decorators.graph_break" => return stop(ReasonCode::UserBreak, "graph_break()"),
            // Once a program used `torch.compile`, that one's book of the modules which are made.
            "torch._dynamo.mutation_guard._GenerationTracker.tag" => Value::NONE,
            "torch.numel"
            | "torch.is_floating_point"
            | "torch.is_complex"
            | "torch.is_conj"
            | "torch.is_neg"
            | "torch.is_inference"
            | "torch.is_signed"
            | "torch.is_same_size" => {
                let name = path.trim_start_matches("torch.");
                let mut tensor = args.clone();
                if tensor.pos.is_empty()
                    && let Some(input) = tensor.take_kw("input")
                {
                    tensor.pos.push(input);
                }
                match tensor.pos.first() {
                    Some(Value::Tensor(id)) => return self.fold_method(*id, name, &tensor),
                    _ => return Ok(None),
                }
            }
            "torch._assert" => {
                let Some(condition) = args.pos.first() else { return Ok(None) };
                if self.truth(&condition.clone())? {
                    Value::NONE
                } else {
                    let message = args.pos.get(1).cloned().unwrap_or(Value::NONE);
                    return self.raise_with("AssertionError", vec![message]);
                }
            }
            "torch._C._log_api_usage_once" => Value::NONE,
            "torch._C._has_torch_function_unary" | "torch._C._has_torch_function_variadic" => {
                return self.overrides_torch(&args.pos);
            }
            "torch._C._has_torch_function" => match args.pos.first() {
                Some(Value::Tuple(items)) => return self.overrides_torch(&items.items.clone()),
                _ => return Ok(None),
            },
            _ => return Ok(None),
        }))
    }

    /// Whether one of `values` handles torch functions itself. Traced tensors do not: they are plain tensors or
    /// parameters, and no mode is active.
    fn overrides_torch(&mut self, values: &[Value]) -> Flow<Option<Value>> {
        for value in values {
            match value {
                Value::Const(_) | Value::Int(_) | Value::Tensor(_) | Value::Tuple(_) | Value::List(_) => {}
                other => {
                    let name = self.type_name(other);
                    return stop(ReasonCode::UnsupportedObject, format!("a {name} that may override torch functions"));
                }
            }
        }
        Ok(Some(Value::bool(false)))
    }

    fn is_size(&self, value: &Value) -> bool {
        matches!(value, Value::Tuple(tuple) if tuple.class.as_ref().is_some_and(|class| class.derives("torch.Size")))
    }

    /// What torch's optimizers ask of its compilers.
    fn fold_optimizer(&mut self, path: &str, args: &Args) -> Flow<Option<Value>> {
        let is_optimizers = || self.stack.last().is_some_and(|frame| frame.file.ends_with("/torch/optim/optimizer.py"));
        match (path, args.pos.first()) {
            // For the sake of how `torch.compile` lowers writes.
            ("torch._dynamo.decorators.graph_break", _) if is_optimizers() => Ok(Some(Value::NONE)),
            // The count of steps as a number of Python's: what is computed of it is so precise.
            ("torch.optim.optimizer._get_value", Some(Value::Tensor(id)))
                if self.arenas.tensors[*id].meta.ndim() == 0 =>
            {
                self.torch_call(Target::Method("double".into()), args.clone()).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn fold_method(&mut self, id: TensorId, method: &str, args: &Args) -> Flow<Option<Value>> {
        let meta = self.arenas.tensors[id].meta.clone();
        let argument = args.pos.get(1).cloned().or_else(|| args.kw.first().map(|(_, v)| v.clone()));
        Ok(Some(match method {
            "size" | "stride" => {
                let dims = if method == "size" { meta.sizes.clone() } else { meta.strides.clone() };
                match argument {
                    None | Some(Value::Const(Const::None)) if method == "size" => self.size_of(&dims),
                    None | Some(Value::Const(Const::None)) => Value::tuple(dims.into_iter().map(Value::dim).collect()),
                    Some(dim) => {
                        let Some(dim) = self.known_int(&dim) else { return Ok(None) };
                        let at = if dim < 0 { dim + dims.len() as i64 } else { dim };
                        match usize::try_from(at).ok().and_then(|at| dims.get(at)) {
                            Some(size) => Value::dim(size.clone()),
                            None => return self.raise_named("IndexError", "Dimension out of range"),
                        }
                    }
                }
            }
            "dim" | "ndimension" => Value::int(meta.ndim() as i64),
            "numel" | "nelement" => Value::dim(meta.numel()),
            "element_size" => Value::int(meta.dtype.size() as i64),
            "__len__" => self.length(&Value::Tensor(id))?,
            "is_floating_point" => Value::bool(meta.dtype.is_float()),
            "is_complex" => Value::bool(meta.dtype.is_complex()),
            "is_signed" => Value::bool(!matches!(meta.dtype, DType::U8 | DType::Bool)),
            "is_conj" | "is_neg" | "is_distributed" | "has_names" => Value::bool(false),
            // Outside of the mode such tensors are not traced. In it, views of ordinary tensors and inputs are what they were.
            "is_inference" if !self.ambient.inference_mode => Value::bool(false),
            "is_inference" => {
                let tensor = &self.arenas.tensors[id];
                if tensor.origin.is_some() || tensor.base.is_some() || self.graph.may_view {
                    return self.ask_itself("torch.Tensor.is_inference");
                }
                Value::bool(true)
            }
            "is_contiguous" => match argument {
                None => Value::bool(self.is_contiguous(&meta.sizes, &meta.strides)),
                Some(Value::Const(Const::MemoryFormat(f))) if &*f == "contiguous_format" => {
                    Value::bool(self.is_contiguous(&meta.sizes, &meta.strides))
                }
                Some(Value::Const(Const::MemoryFormat(f))) if &*f == "channels_last" && meta.ndim() == 4 => {
                    let order = [0, 2, 3, 1];
                    let pick = |v: &[Dim]| order.iter().map(|i| v[*i].clone()).collect::<Vec<_>>();
                    Value::bool(self.is_contiguous(&pick(&meta.sizes), &pick(&meta.strides)))
                }
                Some(Value::Const(Const::MemoryFormat(f))) if &*f == "channels_last" => Value::bool(false),
                _ => return stop(ReasonCode::UnsupportedCall, "is_contiguous of that memory format"),
            },
            "is_same_size" => match argument {
                Some(Value::Tensor(other)) => {
                    let other = self.arenas.tensors[other].meta.sizes.clone();
                    let mut same = other.len() == meta.sizes.len();
                    for (a, b) in meta.sizes.iter().zip(&other) {
                        same = same && self.decide(Relation::Eq, a, b);
                    }
                    Value::bool(same)
                }
                _ => return Ok(None),
            },
            "get_device" => Value::int(if meta.device.is_host() { -1 } else { i64::from(meta.device.index) }),
            // Torch's own constructor takes a `Size` for a size, and any other sequence for data.
            "new" if args.pos.len() == 2 && self.is_size(&args.pos[1]) => {
                return self.torch_call(Target::Method("new_empty".into()), args.clone()).map(Some);
            }
            "requires_grad_" => {
                self.graph.touches_grad = true;
                return Ok(None);
            }
            _ => return Ok(None),
        }))
    }

    /// Torch's definition: sizes of one are free, an empty tensor is contiguous.
    fn is_contiguous(&mut self, sizes: &[Dim], strides: &[Dim]) -> bool {
        if sizes.iter().any(|s| s.is(0)) {
            return true;
        }
        let mut expected = Dim::Const(1);
        for (size, stride) in sizes.iter().zip(strides).rev() {
            if size.is(1) {
                continue;
            }
            if *stride != expected && !self.decide(Relation::Eq, stride, &expected) {
                return false;
            }
            expected = expected.mul(size);
        }
        true
    }
}
