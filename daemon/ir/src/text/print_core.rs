//! Prints core graphs and plans. These have no parser: goldens compare them, nothing reads them.

use super::print::{constant, dims, join};
use crate::core::{Core, CoreId, CoreNode, CoreOp, ExternArg, OutputBase};
use crate::plan::{Plan, PlanArg, PlanStep, Reg};
use crate::tensor::contiguous_strides;
use std::fmt::{self, Display, Formatter};

impl Display for CoreId {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.0)
    }
}

impl Display for Reg {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "r{}", self.0)
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
        CoreOp::Reduce(op, a, over) => write!(f, "reduce_{} {a} over {over:?}", format!("{op:?}").to_lowercase()),
        CoreOp::Expand(a) => write!(f, "expand {a}"),
        CoreOp::Permute(a, order) => write!(f, "permute {a} {order:?}"),
        CoreOp::Reshape(a) => write!(f, "reshape {a}"),
        CoreOp::Slice(a, d, start, step) => write!(f, "slice {a} dim {d} from {start} step {step}"),
        CoreOp::Pad(a, bits, low) => {
            write!(f, "pad {a} with {bits:#x} low ")?;
            dims(f, '[', low, ']')
        }
        CoreOp::Join(parts, d) => {
            write!(f, "join dim {d} of ")?;
            join(f, parts, |f, p| write!(f, "{p}"))
        }
        CoreOp::Result(call, i) => write!(f, "result {i} of {call}"),
        CoreOp::Extern(call) => {
            write!(f, "call {}.{}(", call.op, call.overload)?;
            join(f, &call.args, extern_arg)?;
            f.write_str(")")
        }
    }
}

fn extern_arg(f: &mut Formatter<'_>, arg: &ExternArg) -> fmt::Result {
    match arg {
        ExternArg::Value(id) => write!(f, "{id}"),
        ExternArg::Const(c) => constant(f, c),
        ExternArg::Dim(d) => write!(f, "{d}"),
        ExternArg::List(items) => {
            f.write_str("[")?;
            join(f, items, extern_arg)?;
            f.write_str("]")
        }
    }
}

impl Display for Plan {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "plan for {}", self.backend)?;
        if !self.device.is_cpu() {
            write!(f, " on {}", self.device)?;
        }
        f.write_str(if self.restores { " restores {\n" } else { " {\n" })?;
        for (at, step) in self.steps.iter().enumerate() {
            if at == self.commit as usize {
                f.write_str("  commit\n")?;
            }
            plan_step(f, self, step)?;
        }
        f.write_str("  return ")?;
        join(f, &self.outputs, |f, r| write!(f, "{r}"))?;
        f.write_str("\n}\n")
    }
}

fn plan_step(f: &mut Formatter<'_>, plan: &Plan, step: &PlanStep) -> fmt::Result {
    match step {
        PlanStep::Alloc { reg, dtype, sizes, strides, .. } => {
            write!(f, "  {reg} = alloc {}", dtype.short())?;
            dims(f, '[', sizes, ']')?;
            dims(f, '{', strides, '}')?;
            f.write_str("\n")
        }
        PlanStep::View { reg, base, sizes, strides, offset, dtype } => {
            write!(f, "  {reg} = view {base} {}", dtype.short())?;
            dims(f, '[', sizes, ']')?;
            dims(f, '{', strides, '}')?;
            writeln!(f, " + {offset}")
        }
        PlanStep::Launch { kernel, buffers, scalars } => {
            write!(f, "  launch {}(", plan.kernels[*kernel as usize].name)?;
            join(f, buffers, |f, r| write!(f, "{r}"))?;
            f.write_str("; ")?;
            join(f, scalars, |f, d| write!(f, "{d}"))?;
            f.write_str(")\n")
        }
        PlanStep::Call { op, overload, args, results } => {
            f.write_str("  ")?;
            join(f, results, |f, r| write!(f, "{r}"))?;
            write!(f, "{}{op}.{overload}(", if results.is_empty() { "" } else { " = " })?;
            join(f, args, plan_arg)?;
            f.write_str(")\n")
        }
        PlanStep::Expect { reg, dtype, sizes, strides, .. } => {
            write!(f, "  expect {reg} {}", dtype.short())?;
            dims(f, '[', sizes, ']')?;
            dims(f, '{', strides, '}')?;
            f.write_str("\n")
        }
        PlanStep::Free(reg) => writeln!(f, "  free {reg}"),
        PlanStep::Import(reg) => writeln!(f, "  import {reg}"),
        PlanStep::Reserve(reg) => writeln!(f, "  reserve {reg}"),
        PlanStep::Export(reg) => writeln!(f, "  export {reg}"),
        PlanStep::Release(reg) => writeln!(f, "  release {reg}"),
    }
}

fn plan_arg(f: &mut Formatter<'_>, arg: &PlanArg) -> fmt::Result {
    match arg {
        PlanArg::Reg(r) => write!(f, "{r}"),
        PlanArg::Const(c) => constant(f, c),
        PlanArg::Dim(d) => write!(f, "{d}"),
        PlanArg::List(items) => {
            f.write_str("[")?;
            join(f, items, plan_arg)?;
            f.write_str("]")
        }
    }
}
