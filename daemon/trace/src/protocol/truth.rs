//! Truth values, lengths, and facts about symbolic ints.

use crate::state::tracer::Tracer;
use crate::value::Args;
use crate::value::flow::{Flow, stop};
use crate::value::{Payload, TensorId, Value};
use flambeau_bytecode::{Condition, Decoded, Op, Unary};
use flambeau_ir::code::Const;
use flambeau_ir::dim::Dim;
use flambeau_ir::frame::BackendKind;
use flambeau_ir::graph::Target;
use flambeau_ir::guard::{GuardKind, Relation};
use flambeau_ir::reason::ReasonCode;

/// Instructions of a side that only raises, at most.
const MOST_INSTRUCTIONS: usize = 64;

/// What sees a truth first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    /// The instruction that the frame is at.
    ByInstruction,
    /// The next one, for which that pushes it.
    ByNext,
}

impl Tracer<'_> {
    /// What a tensor's truth must be, if all that becomes of it is a jump of which one side only raises: the trace takes the
    /// other one, and the graph checks what the tensor holds: a call for which that fails is run again as plain Python, which
    /// raises then.
    pub(crate) fn checked_truth(&mut self, value: &Value, seen: Seen) -> Flow<Option<bool>> {
        let Value::Tensor(id) = value else { return Ok(None) };
        if !self.may_check(*id) {
            return Ok(None);
        }
        let Some(truth) = self.only_side(seen) else { return Ok(None) };
        let mut condition = value.clone();
        if !truth {
            condition = self.torch_call(Target::Function("torch.logical_not".into()), Args::new(vec![condition]))?;
        }
        self.torch_call(Target::Function("torch._assert_async".into()), Args::new(vec![condition]))?;
        Ok(Some(truth))
    }

    /// Which truth leads on where the other one only raises. Follows the truth out of the frames that return it.
    fn only_side(&self, seen: Seen) -> Option<bool> {
        let mut frames = self.stack.iter().rev();
        let mut frame = frames.next()?;
        let mut at = frame.next - usize::from(seen == Seen::ByInstruction);
        let mut inverted = false;
        for _ in 0..MOST_INSTRUCTIONS {
            let op = frame.decoded.instrs.get(at)?.op;
            at += 1;
            match op {
                Op::Unary(Unary::Not) => inverted = !inverted,
                Op::ToBool => {}
                Op::ReturnValue if frame.direct => {
                    frame = frames.next()?;
                    at = frame.next;
                }
                Op::PopJumpIf { cond: Condition::True, target } => {
                    return leads_on(&frame.decoded, target, at as u32).map(|truth| truth != inverted);
                }
                Op::PopJumpIf { cond: Condition::False, target } => {
                    return leads_on(&frame.decoded, at as u32, target).map(|truth| truth != inverted);
                }
                _ => return None,
            }
        }
        None
    }

    /// Whether the graph can check what a tensor holds, and be run again as plain Python if it is something else.
    fn may_check(&self, id: TensorId) -> bool {
        let meta = &self.arenas.tensors[id].meta;
        let is_one = meta.sizes.iter().all(|size| size.is(1));
        let is_ours = self.frame.options.backend != BackendKind::Fx && !self.frame.options.cautious;
        is_one
            && is_ours
            && meta.device.is_cpu()
            && !meta.requires_grad
            && !self.graph.before.commits
            && !self.in_one_call
    }

    /// `bool(value)`.
    pub fn truth(&mut self, value: &Value) -> Flow<bool> {
        Ok(match value {
            Value::Const(Const::NotImplemented) => {
                return stop(ReasonCode::UnsupportedObject, "the truth of NotImplemented, of which Python warns");
            }
            Value::Const(c) => const_truth(c),
            Value::Int(dim) => self.decide(Relation::Ne, dim, &Dim::Const(0)),
            Value::Tensor(_) => return stop(ReasonCode::DataDependentJump, "the truth of a tensor"),
            Value::Tuple(t) if t.class.as_ref().is_none_or(|c| !c.is_python) => !t.items.is_empty(),
            Value::List(id) if self.arenas.lists[*id].class.is_none() => !self.list_is_empty(*id)?,
            Value::Set(id) => !self.arenas.sets[*id].items.is_empty(),
            Value::DictView(dict, _) => self.dict_len(*dict)? > 0,
            // Also of one with more items than a length can tell.
            Value::Parts(parts) if self.kind_of(parts).is_pure() => {
                let truth = self.library.call(self, "builtins.bool", Args::new(vec![value.clone()]))?;
                matches!(truth, Some(Value::Const(Const::Bool(true))))
            }
            Value::Parts(parts) => match self.kind_of(parts).length(self, parts)? {
                Some(length) => self.truth(&length)?,
                None => true,
            },
            Value::Instance(_) | Value::Dict(_) | Value::List(_) | Value::Tuple(_) | Value::Class(_) => {
                self.object_truth(value)?
            }
            Value::Opaque(o) => {
                let class = o.class.clone();
                if self.type_lookup(&class, "__bool__")?.is_some() || self.type_lookup(&class, "__len__")?.is_some() {
                    return stop(ReasonCode::UnsupportedObject, format!("the truth of a {}", class.name.qualname));
                }
                true
            }
            _ => true,
        })
    }

    fn object_truth(&mut self, value: &Value) -> Flow<bool> {
        if let Some(method) = self.python_special(value, "__bool__")? {
            let result = self.call(&method, Args::default())?;
            return match result {
                Value::Const(Const::Bool(b)) => Ok(b),
                other => {
                    let name = self.type_name(&other);
                    self.raise_named("TypeError", &format!("__bool__ should return bool, returned {name}"))
                }
            };
        }
        if let Value::Instance(id) = value
            && let Payload::Const(c) = self.arenas.instances[*id].payload.clone()
        {
            // Numbers have a `__bool__` of their own; the truth of other values is asked of a `__len__`.
            if !matches!(c, Const::Str(_) | Const::Bytes(_)) || self.python_special(value, "__len__")?.is_none() {
                return Ok(const_truth(&c));
            }
        }
        if self.python_special(value, "__len__")?.is_none() && matches!(value, Value::Instance(_) | Value::Class(_)) {
            return Ok(true);
        }
        let length = self.length(value)?;
        self.truth(&length)
    }

    /// `len(value)`: an int, maybe symbolic.
    pub fn length(&mut self, value: &Value) -> Flow<Value> {
        if let Some(method) = self.python_special(value, "__len__")? {
            let length = self.call(&method, Args::default())?;
            return self.checked_length(length);
        }
        let length = match value {
            Value::Tuple(t) => t.items.len(),
            Value::List(id) => self.list_len(*id)?,
            Value::Dict(id) | Value::DictView(id, _) => self.dict_len(*id)?,
            Value::Set(id) => self.arenas.sets[*id].items.len(),
            Value::Const(Const::Str(s)) => s.chars().count(),
            Value::Const(Const::Bytes(b)) => b.len(),
            Value::Parts(parts) => match self.kind_of(parts).length(self, parts)? {
                Some(Value::Const(Const::BigInt(_))) => {
                    return self.raise_named("OverflowError", "Python int too large to convert to C ssize_t");
                }
                Some(length) => return Ok(length),
                None => return self.no_length(value),
            },
            Value::Tensor(id) => {
                return match self.arenas.tensors[*id].meta.sizes.first() {
                    Some(size) => Ok(Value::dim(size.clone())),
                    None => self.raise_named("TypeError", "len() of a 0-d tensor"),
                };
            }
            _ => return self.no_length(value),
        };
        Ok(Value::int(length as i64))
    }

    fn no_length(&mut self, value: &Value) -> Flow<Value> {
        self.need_plain(value, "the length")?;
        let name = self.type_name(value);
        self.raise_named("TypeError", &format!("object of type '{name}' has no len()"))
    }

    /// What `slot_sq_length` in CPython's `Objects/typeobject.c` makes of the result of `__len__`.
    fn checked_length(&mut self, length: Value) -> Flow<Value> {
        let negative = match &length {
            Value::Int(dim) => !self.decide(Relation::Ge, dim, &Dim::Const(0)),
            Value::Const(Const::Int(_) | Const::Bool(_)) => length.as_int().is_some_and(|n| n < 0),
            Value::Const(Const::BigInt(_)) | Value::Instance(_) | Value::Tensor(_) | Value::Opaque(_) => {
                return stop(ReasonCode::UnsupportedCall, "a __len__ that gives no int");
            }
            _ => {
                let name = self.type_name(&length);
                let message = format!("'{name}' object cannot be interpreted as an integer");
                return self.raise_named("TypeError", &message);
            }
        };
        if negative {
            return self.raise_named("ValueError", "__len__() should return >= 0");
        }
        Ok(match length {
            Value::Const(Const::Bool(b)) => Value::int(i64::from(b)),
            length => length,
        })
    }

    /// Whether a relation of two sizes holds for the values seen; becomes a guard.
    pub fn decide(&mut self, relation: Relation, a: &Dim, b: &Dim) -> bool {
        let difference = a.sub(b);
        if let Some(d) = difference.as_const() {
            return relation.holds(d, 0);
        }
        let (x, y) = (self.hint(a), self.hint(b));
        let found = relation.holds(x, y);
        let fact = if found { relation } else { negation(relation) };
        let source = self.function_source();
        self.guard(source, GuardKind::Relation(fact, a.clone(), b.clone()));
        found
    }

    /// The value of a symbolic int, which becomes a guard (it is then fixed in this trace).
    pub fn fix(&mut self, dim: &Dim) -> i64 {
        let hint = self.hint(dim);
        self.decide(Relation::Eq, dim, &Dim::Const(hint));
        hint
    }

    /// The value of a size while tracing.
    pub fn hint(&self, dim: &Dim) -> i64 {
        self.hint_of(dim).unwrap_or(0)
    }

    /// As [`Self::hint`]; `None` if it divides by zero or is too large.
    pub fn hint_of(&self, dim: &Dim) -> Option<i64> {
        dim.eval(&|s| self.symbols.get(s.0 as usize).map_or(0, |s| s.hint))
    }
}

impl flambeau_ops::ShapeEnv for Tracer<'_> {
    fn decide(&mut self, relation: Relation, a: &Dim, b: &Dim) -> bool {
        Tracer::decide(self, relation, a, b)
    }
}

fn negation(relation: Relation) -> Relation {
    match relation {
        Relation::Eq => Relation::Ne,
        Relation::Ne => Relation::Eq,
        Relation::Lt => Relation::Ge,
        Relation::Le => Relation::Gt,
        Relation::Gt => Relation::Le,
        Relation::Ge => Relation::Lt,
    }
}

/// Which truth leads on, if the other one only raises.
fn leads_on(decoded: &Decoded, if_true: u32, if_false: u32) -> Option<bool> {
    let (by_true, by_false) = (raises(decoded, if_true), raises(decoded, if_false));
    (by_true != by_false).then_some(by_false)
}

/// Whether code from an instruction on does nothing but raise.
fn raises(decoded: &Decoded, from: u32) -> bool {
    for instr in decoded.instrs.iter().skip(from as usize).take(MOST_INSTRUCTIONS) {
        match instr.op {
            Op::RaiseVarargs(_) => return true,
            Op::Jump(_) | Op::PopJumpIf { .. } | Op::JumpIfOrPop { .. } | Op::ForIter(_) | Op::ReturnValue => {
                return false;
            }
            _ => {}
        }
    }
    false
}

fn const_truth(c: &Const) -> bool {
    match c {
        Const::None | Const::Bool(false) | Const::Int(0) => false,
        Const::Float(x) => *x != 0.0,
        Const::Complex(x, y) => *x != 0.0 || *y != 0.0,
        Const::Str(s) => !s.is_empty(),
        Const::Bytes(b) => !b.is_empty(),
        _ => true,
    }
}
