//! Prints plans. They have no parser: goldens compare them, nothing reads them.

use super::print::{constant, dims, join};
use crate::plan::{Plan, PlanArg, PlanStep, Reg, Taken, Training};
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

impl Display for Reg {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "r{}", self.0)
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

impl Display for Taken {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Taken::Input(i) => write!(f, "input {i}"),
            Taken::Output(i) => write!(f, "output {i}"),
        }
    }
}

impl Display for Training {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.forward.fmt(f)?;
        for node in &self.nodes {
            let names = |taken: &[Taken]| taken.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let outputs: Vec<_> = node.outputs.iter().map(|of| Taken::Output(of.output)).collect();
            writeln!(
                f,
                "gradients of {} from those of {}, reading {}:",
                names(&node.gradients),
                names(&outputs),
                names(&node.reads)
            )?;
            node.backward.fmt(f)?;
        }
        for (output, of) in &self.views {
            writeln!(f, "output {output} is torch's view of {of}")?;
        }
        for (output, input) in &self.ended {
            writeln!(f, "no gradient from output {output}, of input {input}: backward() freed the way")?;
        }
        Ok(())
    }
}

impl Plan {
    /// One of its steps in a line, with the types of the registers that it names.
    pub fn step_text(&self, step: &PlanStep) -> String {
        struct Line<'a>(&'a Plan, &'a PlanStep);
        impl Display for Line<'_> {
            fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
                plan_step(f, self.0, self.1)
            }
        }
        let mut line = Line(self, step).to_string().trim().to_owned();
        let mut named: BTreeMap<Reg, String> = BTreeMap::new();
        step.registers(&mut |reg| _ = named.insert(reg, String::new()));
        for made in &self.steps {
            if let PlanStep::Alloc { reg, .. } | PlanStep::View { reg, .. } | PlanStep::Expect { reg, .. } = made {
                named.entry(*reg).and_modify(|of| of.clone_from(&Line(self, made).to_string().trim().to_owned()));
            }
        }
        for made in named.into_values().filter(|of| !of.is_empty() && *of != line).collect::<Vec<_>>() {
            line.push_str("\n    ");
            line.push_str(&made);
        }
        line
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
        PlanStep::Bump(reg) => writeln!(f, "  bump {reg}"),
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
        PlanArg::Object(at) => write!(f, "object {at}"),
        PlanArg::List(items) => {
            f.write_str("[")?;
            join(f, items, plan_arg)?;
            f.write_str("]")
        }
    }
}
