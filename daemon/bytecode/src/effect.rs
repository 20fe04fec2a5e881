//! What the instructions take from the stack and leave there that may run alone, in a frame other than their own.

use crate::op::Op;

/// What an instruction that runs alone gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Output {
    /// Nothing: `None`.
    None,
    /// The value it leaves.
    Value,
    /// It leaves a null and a value, or two values in place of a value's attribute: the value, or the attribute.
    NullValue,
    /// A tuple of so many values, the last was on top.
    Items(u32),
    /// Not what it leaves (it is a jump), but the truth of its input.
    Truth,
    /// Of an iterator: the next item as a tuple of one, or `None` at its end.
    Next,
}

impl Op {
    /// How many items this instruction takes off the top of the stack when it runs alone, and what it gives back. `None`
    /// for what needs its own frame (locals, cells, jumps, the handled exception, what suspends) and for what only moves
    /// the stack. Containers that an instruction changes are taken and given back, with all that lies above them.
    pub fn alone(self) -> Option<(u32, Output)> {
        use Output::{Items, NullValue, Value};
        Some(match self {
            Op::Unary(_) | Op::ListToTuple | Op::GetIter | Op::ConvertValue(_) => (1, Value),
            Op::Binary { .. } | Op::Compare(_) | Op::Is { .. } | Op::Contains { .. } | Op::BinarySubscr => (2, Value),
            Op::BinarySlice | Op::LoadSuperAttr { method: false, .. } => (3, Value),
            Op::LoadSuperAttr { method: true, .. } => (3, NullValue),
            Op::StoreSlice => (4, Output::None),
            Op::StoreSubscr => (3, Output::None),
            Op::DeleteSubscr | Op::StoreAttr(_) => (2, Output::None),
            Op::DeleteAttr(_) | Op::StoreGlobal(_) | Op::PrintExpr => (1, Output::None),
            Op::DeleteGlobal(_) => (0, Output::None),
            Op::LoadGlobal { push_null: true, .. } => (0, NullValue),
            Op::LoadGlobal { push_null: false, .. } | Op::LoadBuildClass | Op::LoadAssertionError => (0, Value),
            Op::LoadAttr { method: true, .. } => (1, NullValue),
            Op::LoadAttr { method: false, .. } => (1, Value),
            Op::BuildTuple(n) | Op::BuildList(n) | Op::BuildSet(n) | Op::BuildString(n) | Op::BuildSlice(n) => {
                (n, Value)
            }
            Op::BuildMap(pairs) => (2 * pairs, Value),
            Op::BuildConstKeyMap(n) => (n + 1, Value),
            Op::ListAppend(at) | Op::SetAdd(at) | Op::ListExtend(at) | Op::SetUpdate(at) | Op::DictUpdate(at) => {
                (at + 1, Items(at))
            }
            Op::MapAdd(at) => (at + 2, Items(at)),
            // With a null between, it cannot be given back.
            Op::DictMerge { dict, callable } if callable == dict + 2 => (callable + 1, Items(callable)),
            Op::UnpackSequence(n) => (1, Items(n)),
            Op::UnpackEx { before, after } => (1, Items(before + 1 + after)),
            Op::FormatValue { spec, .. } => (1 + u32::from(spec), Value),
            Op::MakeFunction(parts) | Op::SetFunctionAttribute(parts) => (1 + parts.count(), Value),
            Op::Call { argc } => (argc + 2, Value),
            Op::CallKw { argc } => (argc + 3, Value),
            Op::CallEx { kwargs } => (3 + u32::from(kwargs), Value),
            Op::ImportName(_) => (2, Value),
            Op::ImportFrom(_) | Op::GetLen | Op::MatchMapping | Op::MatchSequence | Op::BeforeWith => (1, Items(2)),
            Op::MatchKeys => (2, Items(3)),
            Op::MatchClass(_) => (3, Value),
            Op::CheckExcMatch => (2, Items(2)),
            _ => return None,
        })
    }
}
