//! Graphs as Python that people read: one statement a call, each group under the user's line it comes from.
//!
//! ```text
//! def graph(x: "f32[2, 3]"):
//!     # model.py:3 in inner: y = x * 2
//!     mul: "f32[2, 3]" = x * 2
//!     return mul
//! ```

use crate::code::Const;
use crate::graph::{Arg, Graph, Location, Node, NodeOp, Target};
use std::fmt::Write;

/// The graph as a function definition. `line` gives the text of a line of the user's program, if there is any.
pub fn python(graph: &Graph, line: &mut dyn FnMut(&Location) -> Option<String>) -> String {
    let inputs = graph.nodes.iter().filter(|n| matches!(n.op, NodeOp::Placeholder(_)));
    let inputs: Vec<String> = inputs.map(|n| format!("{}: \"{}\"", n.name, n.meta)).collect();
    let mut text = format!("def graph({}):\n", inputs.join(", "));
    let mut at = None;
    for node in &graph.nodes {
        let NodeOp::Call { target, args, kwargs } = &node.op else { continue };
        if node.location.is_some() && node.location != at {
            at = node.location;
            if let Some(place) = at.and_then(|i| graph.locations.get(i as usize)) {
                // Writing to a string does not fail.
                let _ = writeln!(text, "    {}", comment(place, line(place)));
            }
        }
        let value = call(graph, target, args, kwargs);
        let _ = writeln!(text, "    {}: \"{}\" = {value}", node.name, node.meta);
    }
    let outputs: Vec<&str> = graph.outputs.iter().map(|id| graph.node(*id).name.as_str()).collect();
    match outputs[..] {
        [] => text.push_str("    return None\n"),
        [one] => text = text + "    return " + one + "\n",
        _ => text = text + "    return " + &outputs.join(", ") + "\n",
    }
    text
}

fn comment(place: &Location, line: Option<String>) -> String {
    let text = line.map(|l| format!(": {}", l.trim())).unwrap_or_default();
    format!("# {}:{} in {}{text}", place.file, place.line, place.function)
}

fn call(graph: &Graph, target: &Target, args: &[Arg], kwargs: &[(std::sync::Arc<str>, Arg)]) -> String {
    let mut parts: Vec<String> = args.iter().map(|a| arg(graph, a)).collect();
    if let (Target::Function(path), true) = (target, kwargs.is_empty())
        && let Some(text) = operator(path, &parts)
    {
        return text;
    }
    parts.extend(kwargs.iter().map(|(name, value)| format!("{name}={}", arg(graph, value))));
    match target {
        Target::Function(path) => format!("{path}({})", parts.join(", ")),
        Target::Method(name) => format!("{}.{name}({})", parts[0], parts[1..].join(", ")),
    }
}

/// A call of a function of `operator` as the operator, where an argument cannot bind more loosely than it.
fn operator(path: &str, parts: &[String]) -> Option<String> {
    const INFIX: &[(&str, &str)] = &[
        ("add", "+"),
        ("sub", "-"),
        ("mul", "*"),
        ("truediv", "/"),
        ("floordiv", "//"),
        ("mod", "%"),
        ("pow", "**"),
        ("matmul", "@"),
        ("and_", "&"),
        ("or_", "|"),
        ("xor", "^"),
        ("lshift", "<<"),
        ("rshift", ">>"),
        ("eq", "=="),
        ("ne", "!="),
        ("lt", "<"),
        ("le", "<="),
        ("gt", ">"),
        ("ge", ">="),
    ];
    let name = path.strip_prefix("_operator.")?;
    let is_atom = |part: &String| part.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '.'));
    match (name, parts) {
        ("getitem", [base, key]) if is_atom(base) => Some(format!("{base}[{key}]")),
        ("neg", [a]) if is_atom(a) => Some(format!("-{a}")),
        ("invert", [a]) if is_atom(a) => Some(format!("~{a}")),
        (_, [a, b]) if is_atom(a) && is_atom(&b.trim_start_matches('-').to_owned()) => {
            let (_, sign) = INFIX.iter().find(|(n, _)| *n == name)?;
            Some(format!("{a} {sign} {b}"))
        }
        _ => None,
    }
}

fn arg(graph: &Graph, value: &Arg) -> String {
    let list = |items: &[Arg]| items.iter().map(|a| arg(graph, a)).collect::<Vec<_>>().join(", ");
    match value {
        Arg::Node(id) => {
            let Node { name, .. } = graph.node(*id);
            name.clone()
        }
        Arg::Const(c) => constant(c),
        Arg::Dim(d) => d.to_string(),
        Arg::List(items) => format!("[{}]", list(items)),
        Arg::Tuple(items) if items.len() == 1 => format!("({},)", list(items)),
        Arg::Tuple(items) => format!("({})", list(items)),
        Arg::Slice(parts) => format!("slice({})", list(&parts[..])),
        Arg::Dict(pairs) => {
            let pairs: Vec<_> = pairs.iter().map(|(k, v)| format!("{}: {}", constant(k), arg(graph, v))).collect();
            format!("{{{}}}", pairs.join(", "))
        }
    }
}

/// A constant as Python writes it.
pub fn constant(c: &Const) -> String {
    let list = |items: &[Const]| items.iter().map(constant).collect::<Vec<_>>().join(", ");
    match c {
        Const::None => "None".into(),
        Const::Ellipsis => "...".into(),
        Const::NotImplemented => "NotImplemented".into(),
        Const::Bool(b) => if *b { "True" } else { "False" }.into(),
        Const::Int(i) => i.to_string(),
        Const::BigInt(bytes) => num_bigint::BigInt::from_signed_bytes_le(bytes).to_string(),
        Const::Float(x) => float(*x),
        Const::Complex(re, im) => format!("complex({}, {})", float(*re), float(*im)),
        Const::Str(s) => quoted(s),
        Const::Bytes(bytes) => {
            let text: String = bytes.iter().map(|b| b.escape_ascii().to_string()).collect();
            format!("b\"{text}\"")
        }
        Const::Tuple(items) if items.len() == 1 => format!("({},)", list(items)),
        Const::Tuple(items) => format!("({})", list(items)),
        Const::FrozenSet(items) if items.is_empty() => "frozenset()".into(),
        Const::FrozenSet(items) => format!("frozenset({{{}}})", list(items)),
        Const::Slice(parts) => format!("slice({})", list(&parts[..])),
        Const::Code(code) => format!("<code {}>", code.qualname),
        Const::Dtype(dtype) => format!("torch.{}", dtype.torch_name()),
        Const::Device(device) => format!("torch.device(\"{device}\")"),
        Const::Layout(name) | Const::MemoryFormat(name) => format!("torch.{name}"),
    }
}

fn float(x: f64) -> String {
    if x.is_finite() { format!("{x:?}") } else { format!("float(\"{x}\")") }
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            c if c.is_control() => {
                let _ = write!(quoted, "\\x{:02x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use crate::text::{parse_graph, python};

    #[test]
    fn a_graph_reads_as_a_function() {
        let text = r#"graph {
  %x: f32[s0, 3]{1, s0} = placeholder 3
  %w: f32[3]! = placeholder 4
  %mul: f32[s0, 3] = _operator.mul(%x, -2) # 0
  %sum: f32[] = .sum(%mul, dtype=dtype.f64) # 0
  %add: f32[3] = _operator.add(%w, %sum) # 1
  %split: (f32[1], f32[2]) = torch.functional.split(%add, [1, 2], "a\"b", tuple(1)) # 1
  %getitem: f32[1] = _operator.getitem(%split, 0) # 1
  return %add, %getitem
  # 0: "model.py" 12 "forward"
  # 1: "model.py" 13 "forward"
}
"#;
        let graph = parse_graph(text).unwrap();
        let printed = python(&graph, &mut |place| (place.line == 12).then(|| "  y = (x * -2).sum()\n".to_owned()));
        assert_eq!(
            printed,
            r#"def graph(x: "f32[s0, 3]{1, s0}", w: "f32[3]!"):
    # model.py:12 in forward: y = (x * -2).sum()
    mul: "f32[s0, 3]" = x * -2
    sum: "f32[]" = mul.sum(dtype=torch.float64)
    # model.py:13 in forward
    add: "f32[3]" = w + sum
    split: "(f32[1], f32[2])" = torch.functional.split(add, [1, 2], "a\"b", (1,))
    getitem: "f32[1]" = split[0]
    return add, getitem
"#
        );
    }
}
