//! Prints graphs.

use crate::code::Const;
use crate::dim::Dim;
use crate::graph::{Arg, Effect, Graph, Node, NodeOp, Target, ValueMeta};
use crate::kernel::DType;
use crate::tensor::{Device, TensorMeta, contiguous_strides};
use std::fmt::{self, Display, Formatter};

/// Writes items separated by commas.
pub fn join<T>(
    f: &mut Formatter<'_>,
    items: impl IntoIterator<Item = T>,
    mut one: impl FnMut(&mut Formatter<'_>, T) -> fmt::Result,
) -> fmt::Result {
    for (i, item) in items.into_iter().enumerate() {
        if i > 0 {
            f.write_str(", ")?;
        }
        one(f, item)?;
    }
    Ok(())
}

/// Writes dims between brackets.
pub fn dims(f: &mut Formatter<'_>, open: char, dims: &[Dim], close: char) -> fmt::Result {
    write!(f, "{open}")?;
    join(f, dims, |f, d| write!(f, "{d}"))?;
    write!(f, "{close}")
}

impl Display for TensorMeta {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.dtype.short())?;
        dims(f, '[', &self.sizes, ']')?;
        if self.strides != contiguous_strides(&self.sizes) {
            dims(f, '{', &self.strides, '}')?;
        }
        if self.device != Device::CPU {
            write!(f, "@{}:{}", self.device.kind, self.device.index)?;
        }
        f.write_str(if self.requires_grad { "!" } else { "" })
    }
}

impl Display for ValueMeta {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            ValueMeta::Tensor(t) => t.fmt(f),
            ValueMeta::Tuple(items) => {
                f.write_str("(")?;
                join(f, items, |f, i| i.fmt(f))?;
                f.write_str(")")
            }
            ValueMeta::Int(d) => write!(f, "int({d})"),
            ValueMeta::Const(c) => {
                f.write_str("const ")?;
                constant(f, c)
            }
            ValueMeta::Object => f.write_str("object"),
        }
    }
}

/// Writes a constant.
pub fn constant(f: &mut Formatter<'_>, c: &Const) -> fmt::Result {
    let hex = |bytes: &[u8]| bytes.iter().fold(String::new(), |s, b| s + &format!("{b:02x}"));
    let items = |f: &mut Formatter<'_>, name: &str, items: &[Const]| {
        write!(f, "{name}(")?;
        join(f, items, constant)?;
        f.write_str(")")
    };
    match c {
        Const::None => f.write_str("None"),
        Const::Ellipsis => f.write_str("Ellipsis"),
        Const::NotImplemented => f.write_str("NotImplemented"),
        Const::Bool(b) => f.write_str(if *b { "True" } else { "False" }),
        Const::Int(i) => write!(f, "{i}"),
        Const::BigInt(b) => write!(f, "bigint.x{}", hex(b)),
        Const::Float(x) => float(f, *x),
        Const::Complex(re, im) => {
            f.write_str("complex(")?;
            float(f, *re)?;
            f.write_str(", ")?;
            float(f, *im)?;
            f.write_str(")")
        }
        Const::Str(s) => write!(f, "{s:?}"),
        Const::Bytes(b) => write!(f, "bytes.x{}", hex(b)),
        Const::Tuple(v) => items(f, "tuple", v),
        Const::FrozenSet(v) => items(f, "frozenset", v),
        Const::Slice(v) => items(f, "const_slice", &v[..]),
        Const::Code(code) => write!(f, "code.x{}", code.hash),
        Const::Dtype(d) => write!(f, "dtype.{}", d.short()),
        Const::Device(d) => write!(f, "device({}, {})", d.kind, d.index),
        Const::Layout(l) => write!(f, "layout.{l}"),
        Const::MemoryFormat(m) => write!(f, "memory_format.{m}"),
    }
}

fn float(f: &mut Formatter<'_>, x: f64) -> fmt::Result {
    if x.is_nan() {
        return f.write_str("nan");
    }
    write!(f, "{x:?}")
}

struct Printer<'a>(&'a Graph);

impl Printer<'_> {
    fn arg(&self, f: &mut Formatter<'_>, arg: &Arg) -> fmt::Result {
        let items = |f: &mut Formatter<'_>, open: &str, items: &[Arg], close: &str| {
            f.write_str(open)?;
            join(f, items, |f, i| self.arg(f, i))?;
            f.write_str(close)
        };
        match arg {
            Arg::Node(id) => write!(f, "%{}", self.0.node(*id).name),
            Arg::Const(c) => constant(f, c),
            Arg::Dim(d) => write!(f, "dim({d})"),
            Arg::List(v) => items(f, "[", v, "]"),
            Arg::Tuple(v) => items(f, "(", v, ")"),
            Arg::Slice(v) => items(f, "slice(", &v[..], ")"),
            Arg::Dict(pairs) => {
                f.write_str("{")?;
                join(f, pairs, |f, (k, v)| {
                    constant(f, k)?;
                    f.write_str(": ")?;
                    self.arg(f, v)
                })?;
                f.write_str("}")
            }
        }
    }

    fn node(&self, f: &mut Formatter<'_>, node: &Node) -> fmt::Result {
        write!(f, "  %{}: {} = ", node.name, node.meta)?;
        match &node.op {
            NodeOp::Placeholder(source) => write!(f, "placeholder {}", source.0)?,
            NodeOp::Call { target, args, kwargs } => {
                match target {
                    Target::Function(path) => f.write_str(path)?,
                    Target::Method(name) => write!(f, ".{name}")?,
                }
                f.write_str("(")?;
                join(f, args, |f, a| self.arg(f, a))?;
                for (i, (name, arg)) in kwargs.iter().enumerate() {
                    f.write_str(if i > 0 || !args.is_empty() { ", " } else { "" })?;
                    write!(f, "{name}=")?;
                    self.arg(f, arg)?;
                }
                f.write_str(")")?;
            }
        }
        if let Some((_, word)) = Effect::WORDS.iter().find(|(effect, _)| *effect == node.effect) {
            write!(f, " {word}")?;
        }
        f.write_str(if node.view { " view" } else { "" })?;
        f.write_str(if node.torchs { " torchs" } else { "" })?;
        f.write_str(if node.fresh { " fresh" } else { "" })?;
        if let Some(schema) = &node.schema {
            write!(f, " schema {schema:?}")?;
        }
        match node.location {
            Some(l) => writeln!(f, " # {l}"),
            None => writeln!(f),
        }
    }
}

impl Display for Graph {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let printer = Printer(self);
        f.write_str(if self.restores { "graph restores" } else { "graph" })?;
        match self.default_dtype {
            DType::F32 => f.write_str(" {\n")?,
            other => writeln!(f, " {} {{", other.short())?,
        }
        self.nodes.iter().try_for_each(|n| printer.node(f, n))?;
        for (first, last) in &self.checkpoints {
            writeln!(f, "  checkpoint %{} %{}", self.node(*first).name, self.node(*last).name)?;
        }
        f.write_str("  return ")?;
        join(f, &self.outputs, |f, id| write!(f, "%{}", self.node(*id).name))?;
        f.write_str("\n")?;
        for (i, l) in self.locations.iter().enumerate() {
            writeln!(f, "  # {i}: {:?} {} {:?}", l.file, l.line, l.function)?;
        }
        f.write_str("}\n")
    }
}
