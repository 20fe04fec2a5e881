//! Torch's callables that tell a fact instead of computing: switches, limits of dtypes, devices. What asks for the state
//! that a trace simulates is [`crate::torch`]'s.

use super::args::{bind, exactly};
use super::{Table, unsupported};
use crate::state::tracer::Tracer;
use crate::value::Args;
use crate::value::flow::Flow;
use crate::value::{Class, Instance, Payload, Tuple, Value};
use flambeau_ir::code::Const;
use flambeau_ir::device::DeviceKind;
use flambeau_ir::dim::Dim;
use flambeau_ir::guard::{GuardKind, Relation};
use flambeau_ir::kernel::DType;
use flambeau_ir::tensor::Device;
use std::rc::Rc;

pub const TABLE: Table = &[
    ("torch._C._get_cudnn_enabled", ambient_flag),
    ("torch._C._get_cudnn_benchmark", ambient_flag),
    ("torch._C._get_mkldnn_enabled", ambient_flag),
    ("torch._C._get_cudnn_deterministic", ambient_flag),
    ("torch._C._get_cudnn_allow_tf32", ambient_flag),
    ("torch._C._get_cublas_allow_tf32", ambient_flag),
    ("torch._C._get_flash_sdp_enabled", ambient_flag),
    ("torch._C._get_math_sdp_enabled", ambient_flag),
    ("torch._C._get_mem_efficient_sdp_enabled", ambient_flag),
    ("torch._C._get_cudnn_sdp_enabled", ambient_flag),
    ("torch._C._get_float32_matmul_precision", ambient_flag),
    ("sys.exc_info", exc_info),
    ("sys.exception", exception),
    ("sys.getrecursionlimit", process_state),
    ("torch._C._get_privateuse1_backend_name", process_state),
    ("torch._C._cuda_getDeviceCount", process_state),
    ("torch._C._accelerator_getAccelerator", process_state),
    ("torch._C._get_cpu_capability", process_state),
    ("torch._C._get_autograd_fallback_mode", process_state),
    ("torch._C._autograd._profiler_enabled", process_state),
    ("torch.is_warn_always_enabled", process_state),
    ("torch.get_num_threads", process_state),
    ("torch.get_num_interop_threads", process_state),
    ("torch.fx.experimental.symbolic_shapes.expect_true", truth),
    ("torch.fx.experimental.symbolic_shapes.guard_or_false", truth),
    ("torch.fx.experimental.symbolic_shapes.guard_or_true", truth),
    ("torch.fx.experimental.symbolic_shapes.guard_size_oblivious", truth),
    ("torch.fx.experimental.symbolic_shapes.statically_known_true", truth),
    ("torch.promote_types", pure),
    ("torch._C._promote_types", pure),
    ("torch.can_cast", pure),
    ("torch.finfo", limits_of),
    ("torch.iinfo", limits_of),
    ("torch.device", device),
    ("torch.functional.broadcast_shapes", broadcast_shapes),
];

/// A switch that the ambient state's guard covers; the client reads it.
fn ambient_flag(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [] = exactly(path, args)?;
    tracer.guard_precision();
    tracer.eval(path, vec![])
}

/// What torch asks of a relation of sizes. Those of a trace are ints, whose relations are known or guarded.
fn truth(_: &mut Tracer<'_>, path: &str, mut args: Args) -> Flow<Value> {
    match (args.pos.pop(), args.pos.is_empty() && args.kw.is_empty()) {
        (Some(value @ Value::Const(Const::Bool(_))), true) => Ok(value),
        _ => unsupported(path),
    }
}

/// What the process has set: each call asks again.
fn process_state(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [] = exactly(path, args)?;
    let value = tracer.eval(path, vec![])?;
    let Value::Const(now) = &value else { return unsupported(path) };
    let source = tracer.function_source();
    tracer.guard(source, GuardKind::Gives(path.into(), now.clone()));
    Ok(value)
}

fn exception(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [] = exactly(path, args)?;
    tracer.handled()
}

fn exc_info(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [] = exactly(path, args)?;
    let handled = tracer.handled()?;
    if handled.is_none() {
        return Ok(Value::tuple(vec![Value::NONE, Value::NONE, Value::NONE]));
    }
    let class = tracer.class_of(&handled)?;
    Ok(Value::tuple(vec![Value::Class(class), handled, tracer.traceback()]))
}

/// A pure function of constants.
fn pure(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let consts: Option<Vec<Const>> = args.pos.iter().map(|v| tracer.as_const(v)).collect();
    match consts {
        Some(consts) if args.kw.is_empty() => tracer.eval(path, consts),
        _ => unsupported(path),
    }
}

/// `torch.finfo(dtype)`, `torch.iinfo(dtype)`
fn limits_of(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [of] = bind(path, args, ["type"], 0)?;
    let of = match of {
        Some(of) => of,
        None if path == "torch.finfo" => DType::from_torch(tracer.ambient.default_dtype)
            .map_or_else(|| unsupported(path), |d| Ok(Value::Const(Const::Dtype(d))))?,
        None => return unsupported(path),
    };
    let Value::Const(Const::Dtype(element)) = of else { return unsupported(path) };
    if element.is_float() != (path == "torch.finfo") || matches!(element, DType::Bool) {
        return unsupported(path);
    }
    let instance = Instance {
        class: Class::builtin(path, &[]),
        attrs: None,
        slots: indexmap::IndexMap::new(),
        slot_writes: indexmap::IndexMap::new(),
        payload: Payload::Native(vec![of]),
        origin: None,
    };
    Ok(Value::Instance(tracer.arenas.instances.push(instance)))
}

/// Attributes of `finfo` and `iinfo`.
pub fn limits(tracer: &mut Tracer<'_>, value: &Value, state: &[Value], wanted: &str) -> Flow<Option<Value>> {
    let class = tracer.class_of(value)?;
    let [Value::Const(Const::Dtype(element))] = state else { return Ok(None) };
    if class.is("torch.iinfo") {
        let (low, high) = match element {
            DType::U8 => (0, 255),
            DType::I8 => (-128, 127),
            DType::I16 => (i64::from(i16::MIN), i64::from(i16::MAX)),
            DType::I32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
            _ => (i64::MIN, i64::MAX),
        };
        return Ok(match wanted {
            "min" => Some(Value::int(low)),
            "max" => Some(Value::int(high)),
            "bits" => Some(Value::int(element.size() as i64 * 8)),
            _ => None,
        });
    }
    if !class.is("torch.finfo") {
        return Ok(None);
    }
    // Largest, epsilon, smallest normal, resolution in decimals.
    let (max, eps, tiny, resolution) = match element {
        DType::F16 => (65504.0, 2_f64.powi(-10), 2_f64.powi(-14), 1e-3),
        DType::Bf16 => ((2.0 - 2_f64.powi(-7)) * 2_f64.powi(127), 2_f64.powi(-7), 2_f64.powi(-126), 1e-2),
        DType::F32 => (f64::from(f32::MAX), f64::from(f32::EPSILON), f64::from(f32::MIN_POSITIVE), 1e-6),
        DType::F64 => (f64::MAX, f64::EPSILON, f64::MIN_POSITIVE, 1e-15),
        _ => return Ok(None),
    };
    let float = |x: f64| Some(Value::Const(Const::Float(x)));
    Ok(match wanted {
        "max" => float(max),
        "min" => float(-max),
        "eps" => float(eps),
        "tiny" | "smallest_normal" => float(tiny),
        "resolution" => float(resolution),
        "bits" => Some(Value::int(element.size() as i64 * 8)),
        "dtype" => Some(Value::str(element.torch_name())),
        _ => None,
    })
}

/// `torch.device(...)`
fn device(_: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [kind, index] = bind(path, args, ["type", "index"], 1)?;
    if let (Some(device @ Value::Const(Const::Device(_))), None) = (&kind, &index) {
        return Ok(device.clone());
    }
    let Some(text) = kind.as_ref().and_then(Value::as_str) else { return unsupported(path) };
    let (name, inline) = text.split_once(':').map_or((&**text, None), |(name, index)| (name, index.parse::<i8>().ok()));
    let given = index.as_ref().filter(|i| !i.is_none()).map(Value::as_int);
    let index = match (inline, given) {
        (None, None) if !text.contains(':') => -1,
        (Some(index), None) => index,
        (None, Some(Some(index))) => i8::try_from(index).or_else(|_| unsupported(path))?,
        _ => return unsupported(path),
    };
    let Some(kind) = DeviceKind::named(name) else { return unsupported(path) };
    Ok(Value::Const(Const::Device(Device { kind: kind.number, index })))
}

/// `torch.broadcast_shapes(*shapes)`, of shapes that fit.
fn broadcast_shapes(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    if !args.kw.is_empty() {
        return unsupported(path);
    }
    let mut shapes: Vec<Vec<Dim>> = Vec::new();
    for shape in &args.pos {
        let sizes = match shape {
            Value::Tuple(tuple) => tuple.items.clone(),
            Value::List(id) => tracer.list_items(*id)?.clone(),
            size => vec![size.clone()],
        };
        let Some(sizes) = sizes.iter().map(Value::as_dim).collect::<Option<Vec<Dim>>>() else {
            return unsupported(path);
        };
        if sizes.iter().any(|size| tracer.decide(Relation::Lt, size, &Dim::Const(0))) {
            return unsupported(path);
        }
        shapes.push(sizes);
    }
    let Ok(result) = flambeau_ops::broadcast_shapes(tracer, shapes.iter().map(Vec::as_slice)) else {
        return unsupported(path);
    };
    let items = result.into_iter().map(Value::dim).collect();
    Ok(Value::Tuple(Rc::new(Tuple {
        items,
        class: Some(tracer.builtin_class("torch.Size")),
        attrs: None,
        origin: None,
    })))
}

/// Attributes of torch's constants.
pub fn attribute(value: &Const, name: &str) -> Option<Value> {
    match (value, name) {
        (Const::Dtype(d), "is_floating_point") => Some(Value::bool(d.is_float())),
        (Const::Dtype(d), "is_complex") => Some(Value::bool(matches!(d, DType::C32 | DType::C64 | DType::C128))),
        (Const::Dtype(d), "is_signed") => Some(Value::bool(!matches!(d, DType::U8 | DType::Bool))),
        (Const::Dtype(d), "itemsize") => Some(Value::int(d.size() as i64)),
        (Const::Device(d), "type") => d.known().map(|kind| Value::str(kind.name)),
        (Const::Device(d), "index") => Some(if d.index < 0 { Value::NONE } else { Value::int(i64::from(d.index)) }),
        _ => None,
    }
}
