//! Replays what real torch answered (`tests/ops/gen_rules.py`) through the rules. A rule may decline; it may not differ.

use flambeau_ir::code::Const;
use flambeau_ir::dim::Dim;
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
        meta: meta(seen.get("meta")?),
        returns_argument: index("same"),
        view_of: index("view"),
        mutates: writes.into_iter().flatten().map(|v| v.as_u64().unwrap() as usize).collect(),
        rng: seen.get("rng").is_some(),
    })
}

#[derive(Default)]
struct Tally {
    right: usize,
    declined: usize,
    wrong: Vec<String>,
}

fn ambient() -> Ambient {
    Ambient { grad_enabled: true, default_dtype: DType::F32 as u8, ..Ambient::default() }
}

fn replay(case: &Value, tally: &mut Tally) {
    let name = case[0].as_str().unwrap();
    let target = match name.strip_prefix('.') {
        Some(method) => Target::Method(method.into()),
        None => Target::Function(name.into()),
    };
    let args: Vec<OpArg> = case[1].as_array().unwrap().iter().map(parse).collect();
    let kwargs: Vec<(Arc<str>, OpArg)> =
        case[2].as_object().unwrap().iter().map(|(k, v)| (k.as_str().into(), parse(v))).collect();
    let got = infer(&target, &args, &kwargs, &ambient(), &mut Fixed);
    let want = expected(&case[3]);
    match (&got, &want) {
        (Ok(got), Some(want)) if got == want => tally.right += 1,
        (Err(InferError::Invalid(_)), None) => tally.right += 1,
        (Err(InferError::NoRule), _) => tally.declined += 1,
        _ => tally.wrong.push(format!("{case}\n    got {got:?}")),
    }
}

#[test]
fn rules_agree_with_torch() {
    let path = std::env::var("FLAMBEAU_OPS_CASES")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases.json").into());
    let cases: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut tallies: BTreeMap<&str, Tally> = BTreeMap::new();
    for case in cases.as_array().unwrap() {
        replay(case, tallies.entry(case[0].as_str().unwrap()).or_default());
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
}
