//! The assembler for tests in Python: a JSON request a line on standard input, a JSON answer a line on standard output.
//! Instructions are named by their offset in code units; of two that one opcode becomes, the second is half a unit behind.

use flambeau_bytecode::resume::{AssembleError, Entry, Item, ResumePoint, assemble};
use flambeau_bytecode::{Decoded, Output, decode, live_for, thin_call, thin_instr};
use flambeau_ir::code::Code;
use serde_json::{Value, json};
use std::io::{BufRead, Write};

fn main() {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let answer = answer(&line).unwrap_or_else(|error| json!({ "error": error }));
        if writeln!(out, "{answer}").and_then(|()| out.flush()).is_err() {
            return;
        }
    }
}

fn answer(line: &str) -> Result<Value, String> {
    let request: Value = serde_json::from_str(line).map_err(|e| e.to_string())?;
    let code: Code = serde_json::from_value(request["code"].clone()).map_err(|e| e.to_string())?;
    let decoded = decode(&code).map_err(|e| e.to_string())?;
    let index = |key: &str| {
        let place = request[key].as_f64().unwrap_or(f64::MAX);
        decoded.index_of(place as u32) as u32 + u32::from(place.fract() > 0.0)
    };
    match request["do"].as_str() {
        Some("assemble") => {
            let point = ResumePoint {
                at: index("at"),
                target: index("target"),
                locals: list(&request["locals"]).iter().map(number).collect(),
                stack: list(&request["stack"]).iter().map(item).collect(),
                entry: entry(&request["entry"])?,
            };
            made(assemble(&code, &decoded, &point))
        }
        Some("thin_call") => made(thin_call(&code, &decoded, index("at"), &held(&request))),
        Some("thin_instr") => {
            let inputs: Vec<Item> = list(&request["inputs"]).iter().map(item).collect();
            made(thin_instr(&code, &decoded, index("at"), &inputs, output(&request["output"])?, &held(&request)))
        }
        Some("live") => Ok(json!(live_for(&code, &decoded, index("at"), index("target"), entry(&request["entry"])?))),
        Some("facts") => Ok(facts(&decoded)),
        other => Err(format!("no command {other:?}")),
    }
}

fn held(request: &Value) -> Vec<u32> {
    list(&request["held"]).iter().map(number).collect()
}

fn made(code: Result<Code, AssembleError>) -> Result<Value, String> {
    let code = code.map_err(|e| format!("{e:?}: {e}"))?;
    Ok(json!({ "code": code, "resume": code.is_resume() }))
}

/// Per instruction: offset, operation, what it does alone, depth of its handler.
fn facts(decoded: &Decoded) -> Value {
    let instrs = decoded.instrs.iter().enumerate().map(|(at, instr)| {
        let alone = instr.op.alone().map(|(inputs, output)| json!([inputs, format!("{output:?}")]));
        let handler = decoded.handler(at).map(|h| h.depth);
        let is_second = at > 0 && decoded.instrs[at - 1].offset == instr.offset;
        let offset = if is_second { json!(f64::from(instr.offset) + 0.5) } else { json!(instr.offset) };
        json!([offset, format!("{:?}", instr.op), alone, handler])
    });
    Value::Array(instrs.collect())
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn number(value: &Value) -> u32 {
    value.as_u64().unwrap_or(u64::from(u32::MAX)) as u32
}

fn item(value: &Value) -> Item {
    match value.as_str() {
        Some("Null") => Item::Null,
        Some("Handled") => Item::Handled,
        _ => Item::Value,
    }
}

/// A name, or a name and a count.
fn named(value: &Value) -> (Option<&str>, u32) {
    (value[0].as_str(), number(&value[1]))
}

fn entry(value: &Value) -> Result<Entry, String> {
    Ok(match named(value) {
        (Some("Nothing"), _) => Entry::Nothing,
        (Some("Value"), _) => Entry::Value,
        (Some("NullValue"), _) => Entry::NullValue,
        (Some("Items"), count) => Entry::Items(count),
        (Some("Child"), _) => Entry::Child,
        (Some("ChildDropped"), _) => Entry::ChildDropped,
        (Some("Raise"), _) => Entry::Raise,
        (Some("Yield"), _) => Entry::Yield,
        _ => return Err(format!("no entry {value}")),
    })
}

fn output(value: &Value) -> Result<Output, String> {
    Ok(match named(value) {
        (Some("None"), _) => Output::None,
        (Some("Value"), _) => Output::Value,
        (Some("NullValue"), _) => Output::NullValue,
        (Some("Items"), count) => Output::Items(count),
        (Some("Truth"), _) => Output::Truth,
        (Some("Next"), _) => Output::Next,
        _ => return Err(format!("no output {value}")),
    })
}
