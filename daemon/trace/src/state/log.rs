//! The trace's log: one line per instruction with the symbolic stack before it. Reading a value for it makes no guard.

use crate::state::tracer::Tracer;
use crate::value::Value;
use crate::value::frame::PyFrame;
use flambeau_bytecode::Op;
use flambeau_ir::code::{Code, Const};

/// Lines kept of one trace.
const MAX_LINES: usize = 100_000;
/// Characters of a constant shown.
const MAX_CONST: usize = 40;

impl Tracer<'_> {
    /// Notes an instruction that is about to run.
    pub(crate) fn log_instruction(&mut self, frame: &PyFrame, op: Op) {
        if self.log.len() >= MAX_LINES {
            return;
        }
        let stack: Vec<String> =
            frame.stack.iter().map(|v| v.as_ref().map_or_else(|| "null".into(), |v| self.brief(v))).collect();
        let (depth, line) = (self.stack.len(), self.stack.last().map_or(0, |f| f.line));
        let indent = "  ".repeat(depth.saturating_sub(1).min(20));
        self.log.push(format!(
            "{indent}{}:{line} {} [{}]",
            frame.code.qualname,
            words(&frame.code, op),
            stack.join(", ")
        ));
    }

    /// A value in a few words.
    fn brief(&self, value: &Value) -> String {
        match value {
            Value::Const(c) => constant(c),
            Value::Int(dim) => format!("{dim}"),
            Value::Address(_) => "id".into(),
            Value::Tensor(id) => {
                let meta = &self.arenas.tensors[*id].meta;
                let sizes: Vec<String> = meta.sizes.iter().map(ToString::to_string).collect();
                format!("{}[{}]", meta.dtype.short(), sizes.join(", "))
            }
            Value::Tuple(t) => format!("tuple of {}", t.items.len()),
            Value::List(_) => "list".into(),
            Value::Dict(_) => "dict".into(),
            Value::DictView(..) => "dict view".into(),
            Value::Set(_) => "set".into(),
            Value::Parts(parts) => parts.of.rsplit('.').next().unwrap_or(parts.of).into(),
            Value::Function(f) => format!("function {}", f.qualname),
            Value::Method(_) => "method".into(),
            Value::Builtin(b) => b.path.to_string(),
            Value::Class(c) => format!("class {}", c.name.qualname),
            Value::Instance(id) => self.arenas.instances[*id].class.name.qualname.to_string(),
            Value::Module(m) => format!("module {}", m.name),
            Value::Cell(_) => "cell".into(),
            Value::Iter(_) => "iterator".into(),
            Value::Generator(_) => "generator".into(),
            Value::Descriptor(_) => "descriptor".into(),
            Value::Code(c) => format!("code {}", c.qualname),
            Value::Opaque(o) => o.class.name.qualname.to_string(),
            Value::Unread(_) => "not read".into(),
        }
    }
}

/// An instruction with what its number stands for: `LoadFast x`, `Binary *`.
fn words(code: &Code, op: Op) -> String {
    let debug = format!("{op:?}");
    let kind = debug.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    let at = |names: &[String], i: u32| names.get(i as usize).cloned().unwrap_or_default();
    let operand = match op {
        Op::LoadFast(i)
        | Op::StoreFast(i)
        | Op::DeleteFast(i)
        | Op::MakeCell(i)
        | Op::LoadClosure(i)
        | Op::LoadDeref(i)
        | Op::StoreDeref(i)
        | Op::DeleteDeref(i)
        | Op::LoadFastAndClear(i)
        | Op::LoadFromDictOrDeref(i)
        | Op::LoadClassDeref(i) => at(&code.localsplusnames, i),
        Op::LoadGlobal { name, .. } | Op::LoadAttr { name, .. } | Op::LoadSuperAttr { name, .. } => {
            at(&code.names, name)
        }
        Op::StoreGlobal(i)
        | Op::DeleteGlobal(i)
        | Op::LoadName(i)
        | Op::LoadFromDictOrGlobals(i)
        | Op::StoreName(i)
        | Op::DeleteName(i)
        | Op::StoreAttr(i)
        | Op::DeleteAttr(i)
        | Op::ImportName(i)
        | Op::ImportFrom(i) => at(&code.names, i),
        Op::LoadConst(i) | Op::KwNames(i) => code.consts.get(i as usize).map_or_else(String::new, constant),
        Op::Binary { kind, inplace } => kind.symbol().to_owned() + if inplace { "=" } else { "" },
        Op::Compare(kind) => kind.symbol().to_owned(),
        Op::Call { argc } | Op::CallKw { argc } => argc.to_string(),
        Op::Jump(to) | Op::ForIter(to) => format!("to {to}"),
        Op::PopJumpIf { cond, target } => format!("{cond:?} to {target}"),
        _ => return debug,
    };
    format!("{kind} {operand}")
}

fn constant(value: &Const) -> String {
    flambeau_ir::text::constant(value).chars().take(MAX_CONST).collect()
}
