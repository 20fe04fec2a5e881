//! The trace's log: one line per instruction with the symbolic stack before it. Reading a value for it makes no guard.

use crate::frame::PyFrame;
use crate::tracer::Tracer;
use crate::value::Value;
use flambeau_bytecode::Op;
use flambeau_ir::code::Const;

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
        self.log.push(format!("{indent}{}:{line} {op:?} [{}]", frame.code.qualname, stack.join(", ")));
    }

    /// A value in a few words.
    fn brief(&self, value: &Value) -> String {
        match value {
            Value::Const(Const::Str(s)) => format!("{:?}", s.chars().take(MAX_CONST).collect::<String>()),
            Value::Const(c) => format!("{c:?}").chars().take(MAX_CONST).collect(),
            Value::Int(dim) => format!("{dim}"),
            Value::Tensor(id) => {
                let meta = &self.arenas.tensors[*id].meta;
                let sizes: Vec<String> = meta.sizes.iter().map(ToString::to_string).collect();
                format!("{:?}[{}]", meta.dtype, sizes.join(", "))
            }
            Value::Tuple(t) => format!("tuple of {}", t.items.len()),
            Value::List(_) => "list".into(),
            Value::Dict(_) => "dict".into(),
            Value::DictView(..) => "dict view".into(),
            Value::Set(_) => "set".into(),
            Value::Slice(_) => "slice".into(),
            Value::Range(_) => "range".into(),
            Value::Function(f) => format!("function {}", f.qualname),
            Value::Method(_) => "method".into(),
            Value::Builtin(b) => b.path.to_string(),
            Value::Class(c) => format!("class {}", c.name.qualname),
            Value::Instance(id) => self.arenas.instances[*id].class.name.qualname.to_string(),
            Value::Module(m) => format!("module {}", m.name),
            Value::Cell(_) => "cell".into(),
            Value::Iter(_) => "iterator".into(),
            Value::Generator(_) => "generator".into(),
            Value::Super(_) => "super".into(),
            Value::Partial(_) => "partial".into(),
            Value::Descriptor(_) => "descriptor".into(),
            Value::Code(c) => format!("code {}", c.qualname),
            Value::Opaque(o) => o.class.name.qualname.to_string(),
        }
    }
}
