//! Text form of kernels, for goldens and logs.

use crate::kernel::{Access, Extent, Inst, Kernel, Op, Role, Scope, Stage, ValueId};
use std::fmt::{self, Display, Formatter};

impl Display for Extent {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Extent::Const(c) => write!(f, "{c}"),
            Extent::Scalar(s) => write!(f, "${s}"),
        }
    }
}

impl Display for ValueId {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

fn extents(f: &mut Formatter<'_>, items: &[Extent]) -> fmt::Result {
    for (i, item) in items.iter().enumerate() {
        write!(f, "{}{item}", if i > 0 { ", " } else { "" })?;
    }
    Ok(())
}

impl Display for Access {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "p{}[{}; ", self.param, self.offset)?;
        extents(f, &self.strides)?;
        f.write_str("]")
    }
}

fn lower(name: &impl fmt::Debug) -> String {
    format!("{name:?}").to_lowercase()
}

impl Display for Inst {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} = ", self.id, self.dtype.short())?;
        match &self.op {
            Op::Load(access) => write!(f, "load {access}"),
            Op::LoadIf { cond, access, other } => write!(f, "loadif {cond}, {access}, {other}"),
            Op::Const(bits) => write!(f, "const {bits:#x}"),
            Op::Scalar(s) => write!(f, "scalar {s}"),
            Op::Index(d) => write!(f, "index {d}"),
            Op::Unary(op, a) => write!(f, "{} {a}", lower(op)),
            Op::Binary(op, a, b) => write!(f, "{} {a}, {b}", lower(op)),
            Op::Select(c, a, b) => write!(f, "select {c}, {a}, {b}"),
            Op::Cast(a) => write!(f, "cast {a}"),
        }
    }
}

fn stage(f: &mut Formatter<'_>, stage: &Stage) -> fmt::Result {
    let scope = match stage.scope {
        Scope::Outer => "outer",
        Scope::Row => "row",
    };
    writeln!(f, "  {scope} {{")?;
    stage.insts.iter().try_for_each(|i| writeln!(f, "    {i}"))?;
    stage.stores.iter().try_for_each(|s| writeln!(f, "    store {}, {}", s.access, s.value))?;
    for r in &stage.reduces {
        writeln!(f, "    {}: {} = reduce_{} {}", r.id, r.dtype.short(), lower(&r.op), r.value)?;
    }
    f.write_str("  }\n")
}

impl Display for Kernel {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "kernel {}(", self.name)?;
        for (i, p) in self.params.iter().enumerate() {
            let role = match p.role {
                Role::In => "in",
                Role::Out => "out",
                Role::InOut => "inout",
            };
            write!(f, "{}{role} {}", if i > 0 { ", " } else { "" }, p.dtype.short())?;
        }
        write!(f, "; {}) [", self.scalars)?;
        extents(f, &self.dims[..self.outer])?;
        f.write_str(" | ")?;
        extents(f, &self.dims[self.outer..])?;
        f.write_str("] {\n")?;
        self.stages.iter().try_for_each(|s| stage(f, s))?;
        f.write_str("}\n")
    }
}
