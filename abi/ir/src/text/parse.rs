//! Parses graphs.

use super::lex::{Lexer, ParseError, Parsed};
use crate::code::Const;
use crate::graph::{Arg, Effect, Graph, Location, Node, NodeId, NodeOp, Target, ValueMeta};
use crate::source::SourceId;
use crate::tensor::{Device, TensorMeta, contiguous_strides};
use crate::verify::MAX_NDIM;
use std::collections::HashMap;
use std::sync::Arc;

/// Parses what a graph's `Display` prints. Code objects in constants have no text form that parses.
pub fn parse_graph(text: &str) -> Result<Graph, ParseError> {
    let mut parser = Parser { lex: Lexer::new(text), names: HashMap::new() };
    parser.graph()
}

struct Parser<'a> {
    lex: Lexer<'a>,
    names: HashMap<String, NodeId>,
}

impl Parser<'_> {
    fn graph(&mut self) -> Parsed<Graph> {
        let mut graph = Graph::default();
        self.lex.expect("graph")?;
        if !self.lex.eat("{") {
            graph.restores = self.lex.eat_word("restores");
            if !self.lex.eat("{") {
                graph.default_dtype = self.lex.dtype()?;
                self.lex.expect("{")?;
            }
        }
        while self.lex.eat("%") {
            let node = self.node()?;
            self.names.insert(node.name.clone(), NodeId(graph.nodes.len() as u32));
            graph.nodes.push(node);
        }
        while self.lex.eat_word("checkpoint") {
            self.lex.expect("%")?;
            let first = self.reference()?;
            self.lex.expect("%")?;
            graph.checkpoints.push((first, self.reference()?));
        }
        self.lex.expect("return")?;
        while self.lex.eat("%") {
            graph.outputs.push(self.reference()?);
            self.lex.eat(",");
        }
        while self.lex.eat("#") {
            self.lex.number::<u32>()?;
            self.lex.expect(":")?;
            let file = self.lex.quoted()?.into();
            let line = self.lex.number()?;
            graph.locations.push(Location { file, line, function: self.lex.quoted()?.into() });
        }
        self.lex.expect("}")?;
        if !self.lex.at_end() {
            return self.lex.error("text after the graph");
        }
        Ok(graph)
    }

    fn reference(&mut self) -> Parsed<NodeId> {
        let name = self.lex.word()?;
        match self.names.get(name) {
            Some(id) => Ok(*id),
            None => self.lex.error(format!("no node %{name}")),
        }
    }

    fn node(&mut self) -> Parsed<Node> {
        let name = self.lex.word()?.to_owned();
        self.lex.expect(":")?;
        let meta = self.meta()?;
        self.lex.expect("=")?;
        let op = if self.lex.eat_word("placeholder") {
            NodeOp::Placeholder(SourceId(self.lex.number()?))
        } else {
            self.call()?
        };
        let said = Effect::WORDS.into_iter().find(|(_, word)| self.lex.eat_word(word));
        let effect = said.map_or(Effect::None, |(effect, _)| effect);
        let view = self.lex.eat_word("view");
        let torchs = self.lex.eat_word("torchs");
        let fresh = self.lex.eat_word("fresh");
        let schema = if self.lex.eat_word("schema") { Some(self.lex.quoted()?.into()) } else { None };
        let location = if self.lex.eat("#") { Some(self.lex.number()?) } else { None };
        Ok(Node { name, op, meta, location, stack: Vec::new(), effect, view, torchs, fresh, schema })
    }

    fn call(&mut self) -> Parsed<NodeOp> {
        let path = self.lex.word()?;
        let target = match path.strip_prefix('.') {
            Some(method) => Target::Method(method.into()),
            None => Target::Function(path.into()),
        };
        self.lex.expect("(")?;
        let (mut args, mut kwargs) = (Vec::new(), Vec::new());
        while !self.lex.eat(")") {
            match self.keyword() {
                Some(name) => kwargs.push((name, self.arg()?)),
                None => args.push(self.arg()?),
            }
            if !self.lex.eat(",") {
                self.lex.expect(")")?;
                break;
            }
        }
        Ok(NodeOp::Call { target, args, kwargs })
    }

    /// `name=`, if that is what stands here.
    fn keyword(&mut self) -> Option<Arc<str>> {
        self.lex.keyword().map(Into::into)
    }

    fn meta(&mut self) -> Parsed<ValueMeta> {
        if self.lex.eat("(") {
            self.lex.down()?;
            let mut items = Vec::new();
            while !self.lex.eat(")") {
                items.push(self.meta()?);
                self.lex.eat(",");
            }
            self.lex.up();
            return Ok(ValueMeta::Tuple(items));
        }
        if self.lex.eat_word("int") {
            self.lex.expect("(")?;
            let dim = self.lex.dim()?;
            self.lex.expect(")")?;
            return Ok(ValueMeta::Int(dim));
        }
        if self.lex.eat_word("object") {
            return Ok(ValueMeta::Object);
        }
        if self.lex.eat_word("const") {
            return match self.arg()? {
                Arg::Const(c) => Ok(ValueMeta::Const(c)),
                _ => self.lex.error("expected a constant"),
            };
        }
        let dtype = self.lex.dtype()?;
        self.lex.expect("[")?;
        let sizes = self.lex.list("]", Lexer::dim)?;
        if sizes.len() > MAX_NDIM {
            return self.lex.error("too many dimensions");
        }
        let strides = if self.lex.eat("{") { self.lex.list("}", Lexer::dim)? } else { contiguous_strides(&sizes) };
        let device = if self.lex.eat("@") {
            let kind = self.lex.number()?;
            self.lex.expect(":")?;
            Device { kind, index: self.lex.number()? }
        } else {
            Device::CPU
        };
        let requires_grad = self.lex.eat("!");
        Ok(ValueMeta::Tensor(TensorMeta { dtype, device, sizes, strides, requires_grad }))
    }

    fn args(&mut self, close: &str) -> Parsed<Vec<Arg>> {
        let mut items = Vec::new();
        while !self.lex.eat(close) {
            items.push(self.arg()?);
            if !self.lex.eat(",") {
                self.lex.expect(close)?;
                break;
            }
        }
        Ok(items)
    }

    fn constants(&mut self) -> Parsed<Vec<Const>> {
        self.lex.expect("(")?;
        let mut items = Vec::new();
        for arg in self.args(")")? {
            match arg {
                Arg::Const(c) => items.push(c),
                _ => return self.lex.error("expected a constant"),
            }
        }
        Ok(items)
    }

    fn arg(&mut self) -> Parsed<Arg> {
        self.lex.down()?;
        let arg = self.arg_or_parts()?;
        self.lex.up();
        Ok(arg)
    }

    fn arg_or_parts(&mut self) -> Parsed<Arg> {
        if self.lex.eat("%") {
            return self.reference().map(Arg::Node);
        }
        if self.lex.eat("[") {
            return self.args("]").map(Arg::List);
        }
        if self.lex.eat("(") {
            return self.args(")").map(Arg::Tuple);
        }
        if self.lex.eat("{") {
            return self.dict();
        }
        if self.lex.peek("\"") {
            return Ok(Arg::Const(Const::Str(self.lex.quoted()?.into())));
        }
        if let Some(x) = self.lex.float() {
            return Ok(Arg::Const(Const::Float(x)));
        }
        if let Some(i) = self.lex.take_number() {
            return Ok(Arg::Const(Const::Int(i)));
        }
        let word = self.lex.word()?;
        self.named(word)
    }

    fn dict(&mut self) -> Parsed<Arg> {
        let mut pairs = Vec::new();
        while !self.lex.eat("}") {
            let Arg::Const(key) = self.arg()? else { return self.lex.error("expected a constant key") };
            self.lex.expect(":")?;
            pairs.push((key, self.arg()?));
            self.lex.eat(",");
        }
        Ok(Arg::Dict(pairs))
    }

    fn named(&mut self, word: &str) -> Parsed<Arg> {
        let three = |items: Vec<Const>| <[Const; 3]>::try_from(items).ok();
        let constant = match word {
            "None" => Const::None,
            "Ellipsis" => Const::Ellipsis,
            "NotImplemented" => Const::NotImplemented,
            "True" => Const::Bool(true),
            "False" => Const::Bool(false),
            "tuple" => Const::Tuple(self.constants()?),
            "frozenset" => Const::FrozenSet(self.constants()?),
            "const_slice" => match three(self.constants()?) {
                Some(parts) => Const::Slice(parts.into()),
                None => return self.lex.error("a slice has three parts"),
            },
            "complex" => match self.constants()?[..] {
                [Const::Float(re), Const::Float(im)] => Const::Complex(re, im),
                _ => return self.lex.error("a complex number has two parts"),
            },
            "device" => match self.constants()?[..] {
                [Const::Int(kind), Const::Int(index)] => Const::Device(Device { kind: kind as u8, index: index as i8 }),
                _ => return self.lex.error("a device has two parts"),
            },
            "dim" => {
                self.lex.expect("(")?;
                let dim = self.lex.dim()?;
                self.lex.expect(")")?;
                return Ok(Arg::Dim(dim));
            }
            "slice" => {
                self.lex.expect("(")?;
                return match <[Arg; 3]>::try_from(self.args(")")?) {
                    Ok(parts) => Ok(Arg::Slice(parts.into())),
                    Err(_) => self.lex.error("a slice has three parts"),
                };
            }
            _ => return self.dotted(word).map(Arg::Const),
        };
        Ok(Arg::Const(constant))
    }

    fn dotted(&mut self, word: &str) -> Parsed<Const> {
        let bytes = |hex: &str| -> Option<Vec<u8>> {
            let hex = hex.strip_prefix('x')?;
            (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(hex.get(i..i + 2)?, 16).ok()).collect()
        };
        let found = match word.split_once('.') {
            Some(("dtype", name)) => {
                crate::kernel::DType::ALL.into_iter().find(|d| d.short() == name).map(Const::Dtype)
            }
            Some(("layout", name)) => Some(Const::Layout(name.into())),
            Some(("memory_format", name)) => Some(Const::MemoryFormat(name.into())),
            Some(("bigint", hex)) => bytes(hex).map(Const::BigInt),
            Some(("bytes", hex)) => bytes(hex).map(Const::Bytes),
            _ => None,
        };
        found.map_or_else(|| self.lex.error(format!("no constant {word}")), Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"graph {
  %x: f32[8, s0]! = placeholder 3
  %n: int(s0) = placeholder 4
  %y: f32[s0, 8]{1, s0} = .transpose(%x, 0, -1) # 0
  %z: (f32[], i64[2]@1:0) = torch.thing([%x, (%y, None)], 1.5, -inf, dim(1+2*s0), "a\"b", slice(None, 2, None), dtype=dtype.bf16, d={"k": %x}, c=tuple(1, frozenset(True)), e=1e-5, f=-0.0, m=memory_format.channels_last, g=device(0, -1), w=complex(1.0, nan))
  %last: const None = torch._assert(%x)
  return %y, %z
  # 0: "model \"x\".py" 12 "Model.forward.<locals>.f"
}
"#;

    #[test]
    fn graphs_round_trip() {
        let graph = parse_graph(TEXT).unwrap();
        assert_eq!(graph.to_string(), TEXT);
        assert_eq!(parse_graph(&graph.to_string()).unwrap().to_string(), TEXT);
        let double = TEXT.replacen("graph {", "graph f64 {", 1);
        assert_eq!(parse_graph(&double).unwrap().to_string(), double);
    }

    #[test]
    fn errors_name_their_line() {
        let error = parse_graph("graph {\n  %x: f32[2] = placeholder 0\n  return %y\n}").unwrap_err();
        assert_eq!(error, ParseError { line: 3, what: "no node %y".into() });
    }
}
