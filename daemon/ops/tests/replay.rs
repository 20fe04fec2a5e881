//! Replays what real torch answered (`tests/ops/gen_rules.py`) through the rules. A rule may decline; it may not differ.

use flambeau_ir::code::Const;
use flambeau_ir::dim::{Dim, SymId};
use flambeau_ir::graph::{Target, ValueMeta};
use flambeau_ir::guard::{Ambient, Relation};
use flambeau_ir::kernel::DType;
use flambeau_ir::tensor::{Device, TensorMeta};
use flambeau_ops::{InferError, Inferred, OpArg, ShapeEnv, infer};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// All sizes are constants here.
struct Fixed;

impl ShapeEnv for Fixed {
    fn decide(&mut self, _: Relation, a: &Dim, b: &Dim) -> bool {
        panic!("asked to compare {a} and {b}")
    }
}

fn dtype(short: &str) -> DType {
    DType::ALL.into_iter().find(|d| d.short() == short).unwrap_or_else(|| panic!("no dtype {short}"))
}

fn ints(text: &str) -> Vec<Dim> {
    text.split(',').filter(|t| !t.is_empty()).map(|t| Dim::Const(t.parse().unwrap())).collect()
}

fn tensor(text: &str) -> TensorMeta {
    let mut parts = text.split(' ');
    let mut next = || parts.next().unwrap_or_default();
    let (dtype, sizes, strides) = (dtype(next()), ints(next()), ints(next()));
    TensorMeta { dtype, device: Device::CPU, sizes, strides, requires_grad: next() == "g" }
}

fn parse(value: &Value) -> OpArg {
    match value {
        Value::Null => OpArg::Const(Const::None),
        Value::Bool(b) => OpArg::Const(Const::Bool(*b)),
        Value::Number(n) => OpArg::Const(Const::Int(n.as_i64().unwrap())),
        Value::String(s) => {
            let (kind, rest) = s.split_once(' ').unwrap_or((s, ""));
            match kind {
                "T" => OpArg::Tensor(tensor(rest)),
                "F" => OpArg::Const(Const::Float(rest.parse().unwrap())),
                "D" => OpArg::Const(Const::Dtype(dtype(rest))),
                "M" => OpArg::Const(Const::MemoryFormat(rest.into())),
                "C" => OpArg::Const(Const::Device(Device::CPU)),
                "E" => OpArg::Const(Const::Ellipsis),
                _ => OpArg::Const(Const::str(rest)),
            }
        }
        Value::Array(items) => {
            let parts: Vec<OpArg> = items[1..].iter().map(parse).collect();
            match items[0].as_str() {
                Some("L") => OpArg::List(parts),
                Some("X") => OpArg::Slice(Box::new(parts.try_into().unwrap())),
                _ => OpArg::Tuple(parts),
            }
        }
        Value::Object(_) => panic!("no objects among arguments"),
    }
}

fn meta(value: &Value) -> ValueMeta {
    match parse(value) {
        OpArg::Tensor(t) => ValueMeta::Tensor(t),
        OpArg::Tuple(_) | OpArg::List(_) => ValueMeta::Tuple(value.as_array().unwrap()[1..].iter().map(meta).collect()),
        OpArg::Const(c) => ValueMeta::Const(c),
        other => panic!("{other:?} is no result"),
    }
}

fn expected(seen: &Value) -> Option<Inferred> {
    let index = |name: &str| seen.get(name).map(|v| v.as_u64().unwrap() as usize);
    let writes = seen.get("writes").and_then(Value::as_array);
    Some(Inferred {
        returns_argument: index("same"),
        view_of: index("view"),
        mutates: writes.into_iter().flatten().map(|v| v.as_u64().unwrap() as usize).collect(),
        rng: seen.get("rng").is_some(),
        ..Inferred::fresh(meta(seen.get("meta")?))
    })
}

#[derive(Default)]
struct Tally {
    right: usize,
    declined: usize,
    wrong: Vec<String>,
}

fn ambient() -> Ambient {
    Ambient { grad_enabled: true, sdpa: 0x3f, default_dtype: DType::F32 as u8, ..Ambient::default() }
}

/// One symbol per size; comparisons by the sizes themselves.
struct Hints;

impl ShapeEnv for Hints {
    fn decide(&mut self, relation: Relation, a: &Dim, b: &Dim) -> bool {
        relation.holds(at_hints(a), at_hints(b))
    }
}

fn at_hints(dim: &Dim) -> i64 {
    dim.eval(&|symbol| i64::from(symbol.0)).expect("no division by zero")
}

/// Sizes from two on become symbols whose number is their value.
fn symbolic(arg: OpArg) -> OpArg {
    match arg {
        OpArg::Tensor(mut t) => {
            for size in t.sizes.iter_mut().filter(|s| s.as_const().is_some_and(|c| c > 1)) {
                *size = Dim::sym(SymId(at_hints(size) as u32));
            }
            OpArg::Tensor(t)
        }
        OpArg::List(items) => OpArg::List(items.into_iter().map(symbolic).collect()),
        OpArg::Tuple(items) => OpArg::Tuple(items.into_iter().map(symbolic).collect()),
        other => other,
    }
}

fn concrete(meta: ValueMeta) -> ValueMeta {
    match meta {
        ValueMeta::Tensor(mut t) => {
            t.sizes.iter_mut().chain(&mut t.strides).for_each(|d| *d = Dim::Const(at_hints(d)));
            ValueMeta::Tensor(t)
        }
        ValueMeta::Tuple(parts) => ValueMeta::Tuple(parts.into_iter().map(concrete).collect()),
        other => other,
    }
}

/// What sizes and devices a case is replayed with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum With {
    /// As recorded.
    Constants,
    /// Every size a symbol.
    Symbols,
    /// Every tensor, and every device that is named, on a CUDA device.
    Cuda,
}

const CUDA: Device = Device { kind: 1, index: 0 };

/// With all tensors and devices on another device.
fn on_device(arg: OpArg, device: Device) -> OpArg {
    let all = |items: Vec<OpArg>| items.into_iter().map(|item| on_device(item, device)).collect();
    match arg {
        OpArg::Tensor(t) => OpArg::Tensor(TensorMeta { device, ..t }),
        OpArg::Const(Const::Device(_)) => OpArg::Const(Const::Device(device)),
        OpArg::List(items) => OpArg::List(all(items)),
        OpArg::Tuple(items) => OpArg::Tuple(all(items)),
        other => other,
    }
}

/// With all tensors on another device; `None` where one is not on `from`.
fn moved(meta: ValueMeta, from: Device, to: Device) -> Option<ValueMeta> {
    Some(match meta {
        ValueMeta::Tensor(t) if t.device == from => ValueMeta::Tensor(TensorMeta { device: to, ..t }),
        ValueMeta::Tensor(_) => return None,
        ValueMeta::Tuple(parts) => {
            ValueMeta::Tuple(parts.into_iter().map(|part| moved(part, from, to)).collect::<Option<_>>()?)
        }
        other => other,
    })
}

fn replay(case: &Value, tally: &mut Tally, with: With) {
    let name = case[0].as_str().unwrap();
    let target = match name.strip_prefix('.') {
        Some(method) => Target::Method(method.into()),
        None => Target::Function(name.into()),
    };
    let arg = |value: &Value| match with {
        With::Constants => parse(value),
        With::Symbols => symbolic(parse(value)),
        With::Cuda => on_device(parse(value), CUDA),
    };
    let args: Vec<OpArg> = case[1].as_array().unwrap().iter().map(arg).collect();
    let kwargs: Vec<(Arc<str>, OpArg)> =
        case[2].as_object().unwrap().iter().map(|(k, v)| (k.as_str().into(), arg(v))).collect();
    let grad_enabled = case[3].get("no_grad").is_none();
    let ambient = Ambient { grad_enabled, ..ambient() };
    let env: &mut dyn ShapeEnv = if with == With::Symbols { &mut Hints } else { &mut Fixed };
    let got = infer(&target, &args, &kwargs, &ambient, env);
    // What a call checks was not recorded.
    let got = got.map(|i| Inferred { meta: concrete(i.meta), checks: false, ..i });
    let mut want = expected(&case[3]);
    let takes_tensors = args.iter().chain(kwargs.iter().map(|(_, arg)| arg)).any(is_placed);
    if with == With::Cuda && takes_tensors {
        want = want.and_then(|want| Some(Inferred { meta: moved(want.meta, Device::CPU, CUDA)?, ..want }));
    }
    match (&got, &want) {
        (Ok(got), Some(want)) if got == want => tally.right += 1,
        (Err(InferError::Invalid(_)), None) => tally.right += 1,
        (Err(InferError::NoRule | InferError::Refused | InferError::Dynamic(_) | InferError::Unknown(_)), _) => {
            tally.declined += 1;
        }
        _ => tally.wrong.push(format!("{case}\n    got {got:?}")),
    }
}

fn cases() -> Value {
    let committed = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases.json");
    let path = std::env::var("FLAMBEAU_OPS_CASES").unwrap_or_else(|_| committed.into());
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn is_placed(arg: &OpArg) -> bool {
    match arg {
        OpArg::Tensor(_) | OpArg::Const(Const::Device(_)) => true,
        OpArg::List(items) | OpArg::Tuple(items) => items.iter().any(is_placed),
        _ => false,
    }
}

fn replay_all(with: With) {
    let cases = cases();
    let mut tallies: BTreeMap<&str, Tally> = BTreeMap::new();
    for case in cases.as_array().unwrap() {
        replay(case, tallies.entry(case[0].as_str().unwrap()).or_default(), with);
    }
    let mut wrong = 0;
    for (name, tally) in &tallies {
        let total = tally.right + tally.declined + tally.wrong.len();
        if !tally.wrong.is_empty() || tally.declined * 2 > total {
            println!("{name}: {} right, {} declined, {} wrong", tally.right, tally.declined, tally.wrong.len());
        }
        tally.wrong.iter().take(3).for_each(|w| println!("  {w}"));
        wrong += tally.wrong.len();
    }
    let right: usize = tallies.values().map(|t| t.right).sum();
    println!("{right} right, {wrong} wrong of {}", cases.as_array().unwrap().len());
    assert_eq!(wrong, 0, "rules differ from torch");
    assert!(right * 10 > cases.as_array().unwrap().len() * 8, "too many cases are declined");
}

#[test]
fn rules_agree_with_torch() {
    replay_all(With::Constants);
}

/// The same answers with every size a symbol.
#[test]
fn rules_agree_on_symbolic_sizes() {
    replay_all(With::Symbols);
}

/// The same answers on CUDA, but for the device. That torch gives the same there is for `tests/e2e/test_devices.py` to show.
#[test]
fn rules_are_the_same_on_cuda() {
    replay_all(With::Cuda);
}

/// A trace infers hundreds of calls: a rule takes microseconds (loosely, for busy machines and unoptimised builds).
#[test]
fn rules_are_fast() {
    let cases = cases();
    let cases = cases.as_array().unwrap();
    let mut tally = Tally::default();
    let start = std::time::Instant::now();
    cases.iter().for_each(|case| replay(case, &mut tally, With::Constants));
    let each = start.elapsed() / cases.len() as u32;
    println!("{each:?} per call, parsing included");
    assert!(each.as_micros() < 500);
}
