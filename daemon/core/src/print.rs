//! Prints core graphs. They have no parser: goldens compare them, nothing reads them.

use crate::graph::{Core, CoreId, CoreNode, CoreOp, ExternArg, IndexSum, OutputBase};
use flambeau_ir::tensor::contiguous_strides;
use flambeau_ir::text::print::{constant, dims, join};
use std::fmt::{self, Display, Formatter};

impl Display for CoreId {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.0)
    }
}

impl Display for Core {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("core {\n")?;
        for (id, node) in self.ids().zip(self.nodes()) {
            write!(f, "  {id}: {}", node.dtype.short())?;
            dims(f, '[', &node.sizes, ']')?;
            if node.strides != contiguous_strides(&node.sizes) {
                dims(f, '{', &node.strides, '}')?;
            }
            f.write_str(" = ")?;
            op(f, node)?;
            f.write_str("\n")?;
        }
        for (input, value) in &self.writes {
            writeln!(f, "  write input {input} = {value}")?;
        }
        for out in &self.outputs {
            match out.base {
                OutputBase::Input(i) => write!(f, "  return input {i} ")?,
                OutputBase::Value(id) => write!(f, "  return {id} ")?,
            }
            dims(f, '[', &out.sizes, ']')?;
            dims(f, '{', &out.strides, '}')?;
            writeln!(f, " + {}", out.offset)?;
        }
        f.write_str("}\n")
    }
}

fn op(f: &mut Formatter<'_>, node: &CoreNode) -> fmt::Result {
    match &node.op {
        CoreOp::Input(i) => write!(f, "input {i}"),
        CoreOp::Const(bits) => write!(f, "const {bits:#x}"),
        CoreOp::Scalar(dim) => write!(f, "scalar {dim}"),
        CoreOp::Iota(d) => write!(f, "iota {d}"),
        CoreOp::Unary(op, a) => write!(f, "{} {a}", format!("{op:?}").to_lowercase()),
        CoreOp::Binary(op, a, b) => write!(f, "{} {a}, {b}", format!("{op:?}").to_lowercase()),
        CoreOp::Select(c, a, b) => write!(f, "select {c}, {a}, {b}"),
        CoreOp::Cast(a) => write!(f, "cast {a}"),
        CoreOp::Copy(a) => write!(f, "copy {a}"),
        CoreOp::Stop(a) => write!(f, "stop {a}"),
        CoreOp::Sloped(value, of, slope) => write!(f, "{value} with slope {slope} by {of}"),
        CoreOp::Reduce(op, a, over) => write!(f, "reduce_{} {a} over {over:?}", format!("{op:?}").to_lowercase()),
        CoreOp::Expand(a) => write!(f, "expand {a}"),
        CoreOp::Permute(a, order) => write!(f, "permute {a} {order:?}"),
        CoreOp::Reshape(a) => write!(f, "reshape {a}"),
        CoreOp::Slice(a, d, start, step) => write!(f, "slice {a} dim {d} from {start} step {step}"),
        CoreOp::Sums(a, sums) => {
            write!(f, "sums {a} ")?;
            join(f, &**sums, index_sum)
        }
        CoreOp::Pad(a, bits, low) => {
            write!(f, "pad {a} with {bits:#x} low ")?;
            dims(f, '[', low, ']')
        }
        CoreOp::Join(parts, d) => {
            write!(f, "join dim {d} of ")?;
            join(f, parts, |f, p| write!(f, "{p}"))
        }
        CoreOp::Result(call, i) => write!(f, "result {i} of {call}"),
        CoreOp::Stored(of, value, at) => {
            write!(f, "{of} with {value} at ")?;
            index_sum(f, at)
        }
        CoreOp::Changed(of, call) => write!(f, "{of} after {call}"),
        CoreOp::Extern(call) => {
            write!(f, "call {}.{}(", call.op, call.overload)?;
            join(f, &call.args, extern_arg)?;
            f.write_str(")")
        }
    }
}

fn index_sum(f: &mut Formatter<'_>, sum: &IndexSum) -> fmt::Result {
    write!(f, "{} + ", sum.start)?;
    dims(f, '[', &sum.factors, ']')
}

fn extern_arg(f: &mut Formatter<'_>, arg: &ExternArg) -> fmt::Result {
    match arg {
        ExternArg::Value(id) => write!(f, "{id}"),
        ExternArg::Const(c) => constant(f, c),
        ExternArg::Dim(d) => write!(f, "{d}"),
        ExternArg::Object(source) => write!(f, "object of source {}", source.0),
        ExternArg::List(items) => {
            f.write_str("[")?;
            join(f, items, extern_arg)?;
            f.write_str("]")
        }
    }
}
