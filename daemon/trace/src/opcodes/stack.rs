//! Stack, locals, cells, constants, operators.

use crate::protocol::truth::Seen;
use crate::state::tracer::Tracer;
use crate::value::flow::{Flow, stop};
use crate::value::frame::{Control, PyFrame, Slot};
use crate::value::{CellId, CellValue, Value};
use flambeau_bytecode::{Binary, Compare, Op, Unary};
use flambeau_ir::code::{Code, Const};
use flambeau_ir::reason::ReasonCode;
use flambeau_ir::source::Step;

pub(super) fn pop_top(f: &mut PyFrame) -> Flow<Control> {
    f.stack.pop();
    Ok(Control::Next)
}

pub(super) fn push_null(f: &mut PyFrame) -> Flow<Control> {
    f.stack.push(None);
    Ok(Control::Next)
}

pub(super) fn swap(f: &mut PyFrame, n: u32) -> Flow<Control> {
    let (top, other) = (f.nth_from_top(1)?, f.nth_from_top(n)?);
    f.stack.swap(top, other);
    Ok(Control::Next)
}

pub(super) fn copy(f: &mut PyFrame, n: u32) -> Flow<Control> {
    let value = f.stack[f.nth_from_top(n)?].clone();
    f.stack.push(value);
    Ok(Control::Next)
}

pub(super) fn load_const(t: &mut Tracer<'_>, f: &mut PyFrame, i: u32) -> Flow<Control> {
    let Some(c) = f.code.consts.get(i as usize).cloned() else {
        return stop(ReasonCode::Internal, "no such constant in the code");
    };
    let asks = matches!(f.decoded.instrs.get(f.pc).map(|next| next.op), Some(Op::Contains { .. }));
    let value = match (&c, f.function.origin) {
        // The order of its elements is that of this very object.
        (Const::FrozenSet(items), Some(origin)) if items.len() > 1 && !asks => t.code_const(origin, i)?,
        _ => t.constant(c),
    };
    f.push(value);
    Ok(Control::Next)
}

/// The value in a slot; an argument is read now.
pub(super) fn read_slot(t: &mut Tracer<'_>, f: &mut PyFrame, i: u32) -> Flow<Option<Value>> {
    match &f.locals[i as usize] {
        Slot::Empty => Ok(None),
        Slot::Value(v) => Ok(Some(v.clone())),
        Slot::Lazy(object, source) => {
            let value = t.take(*object, *source)?;
            f.locals[i as usize] = Slot::Value(value.clone());
            Ok(Some(value))
        }
    }
}

pub(super) fn load_fast(t: &mut Tracer<'_>, f: &mut PyFrame, i: u32) -> Flow<Control> {
    if let Slot::Lazy(object, source) = f.locals[i as usize]
        && let Some(value) = t.take_unused(f, object, source)?
    {
        f.push(value);
        return Ok(Control::Next);
    }
    match read_slot(t, f, i)? {
        Some(value) => f.push(value),
        None => {
            let name = f.code.localsplusnames[i as usize].clone();
            let message = format!("cannot access local variable '{name}' where it is not associated with a value");
            return t.raise_named("UnboundLocalError", &message);
        }
    }
    Ok(Control::Next)
}

pub(super) fn store_fast(f: &mut PyFrame, i: u32) -> Flow<Control> {
    // A null is what a comprehension found in a slot that it took.
    f.locals[i as usize] = match f.stack.pop() {
        Some(value) => value.map_or(Slot::Empty, Slot::Value),
        None => return stop(ReasonCode::Internal, "the stack is empty"),
    };
    Ok(Control::Next)
}

pub(super) fn load_fast_and_clear(t: &mut Tracer<'_>, f: &mut PyFrame, i: u32) -> Flow<Control> {
    let value = read_slot(t, f, i)?;
    f.stack.push(value);
    f.locals[i as usize] = Slot::Empty;
    Ok(Control::Next)
}

pub(super) fn delete_fast(t: &mut Tracer<'_>, f: &mut PyFrame, i: u32) -> Flow<Control> {
    if matches!(f.locals[i as usize], Slot::Empty) {
        let name = f.code.localsplusnames[i as usize].clone();
        let message = format!("cannot access local variable '{name}' where it is not associated with a value");
        return t.raise_named("UnboundLocalError", &message);
    }
    f.locals[i as usize] = Slot::Empty;
    Ok(Control::Next)
}

pub(super) fn make_cell(t: &mut Tracer<'_>, f: &mut PyFrame, i: u32) -> Flow<Control> {
    let value = read_slot(t, f, i)?;
    let cell = t.arenas.cells.push(CellValue { value, loaded: true, ..CellValue::default() });
    f.locals[i as usize] = Slot::Value(Value::Cell(cell));
    Ok(Control::Next)
}

pub(super) fn copy_free_vars(t: &mut Tracer<'_>, f: &mut PyFrame, n: u32) -> Flow<Control> {
    let n = n as usize;
    let cells = closure_cells(t, f)?;
    let Some(at) = f.locals.len().checked_sub(n).filter(|_| cells.len() == n) else {
        return stop(ReasonCode::Internal, "the closure has another size than the code's free variables");
    };
    for (i, cell) in cells.into_iter().enumerate() {
        f.locals[at + i] = Slot::Value(Value::Cell(cell));
    }
    Ok(Control::Next)
}

fn closure_cells(t: &mut Tracer<'_>, f: &PyFrame) -> Flow<Vec<CellId>> {
    let Some(origin) = f.function.origin else { return Ok(f.function.closure.clone()) };
    let described = t.describe(origin.object)?;
    let flambeau_ir::object::ObjectData::Function(desc) = &described.data else {
        return stop(ReasonCode::Internal, "a function that was not described as one");
    };
    let mut cells = Vec::with_capacity(desc.closure.len());
    for (i, cell) in desc.closure.iter().enumerate() {
        let source = t.step(origin.source, Step::Closure(i as u32));
        cells.push(t.cell_at(*cell, source)?);
    }
    Ok(cells)
}

pub(super) fn cell(f: &PyFrame, i: u32) -> Flow<CellId> {
    match &f.locals[i as usize] {
        Slot::Value(Value::Cell(cell)) => Ok(*cell),
        _ => stop(ReasonCode::Internal, "no cell in the slot"),
    }
}

pub(super) fn load_closure(_t: &mut Tracer<'_>, f: &mut PyFrame, i: u32) -> Flow<Control> {
    let cell = cell(f, i)?;
    f.push(Value::Cell(cell));
    Ok(Control::Next)
}

pub(super) fn load_deref(t: &mut Tracer<'_>, f: &mut PyFrame, i: u32) -> Flow<Control> {
    let value = read_cell(t, f, i)?;
    f.push(value);
    Ok(Control::Next)
}

pub(super) fn read_cell(t: &mut Tracer<'_>, f: &mut PyFrame, i: u32) -> Flow<Value> {
    let cell = cell(f, i)?;
    match t.cell_get(cell)? {
        Some(value) => Ok(value),
        None => {
            let name = f.code.localsplusnames[i as usize].clone();
            if f.code.localspluskinds[i as usize] & Code::FREE == 0 {
                let message = format!("cannot access local variable '{name}' where it is not associated with a value");
                return t.raise_named("UnboundLocalError", &message);
            }
            let message = format!(
                "cannot access free variable '{name}' where it is not associated with a value in enclosing scope"
            );
            t.raise_named("NameError", &message)
        }
    }
}

pub(super) fn store_deref(t: &mut Tracer<'_>, f: &mut PyFrame, i: u32) -> Flow<Control> {
    let value = f.pop()?;
    t.cell_set(cell(f, i)?, Some(value));
    Ok(Control::Next)
}

pub(super) fn delete_deref(t: &mut Tracer<'_>, f: &mut PyFrame, i: u32) -> Flow<Control> {
    read_cell(t, f, i)?;
    t.cell_set(cell(f, i)?, None);
    Ok(Control::Next)
}

pub(super) fn unary(t: &mut Tracer<'_>, f: &mut PyFrame, op: Unary) -> Flow<Control> {
    let a = f.pop()?;
    let checked = if op == Unary::Not { t.checked_truth(&a, Seen::ByInstruction)? } else { None };
    let result = match checked {
        Some(truth) => Value::bool(!truth),
        None => t.unary(op, &a)?,
    };
    f.push(result);
    Ok(Control::Next)
}

pub(super) fn binary(t: &mut Tracer<'_>, f: &mut PyFrame, op: Binary, inplace: bool) -> Flow<Control> {
    let (b, a) = (f.pop()?, f.pop()?);
    let result = t.binary(op, inplace, &a, &b)?;
    f.push(result);
    Ok(Control::Next)
}

pub(super) fn compare(t: &mut Tracer<'_>, f: &mut PyFrame, op: Compare) -> Flow<Control> {
    let (b, a) = (f.pop()?, f.pop()?);
    let result = t.compare(op, &a, &b)?;
    f.push(result);
    Ok(Control::Next)
}

pub(super) fn is(t: &mut Tracer<'_>, f: &mut PyFrame, invert: bool) -> Flow<Control> {
    let (b, a) = (f.pop()?, f.pop()?);
    let same = t.identical(&a, &b)?;
    f.push(Value::bool(same != invert));
    Ok(Control::Next)
}

pub(super) fn contains(t: &mut Tracer<'_>, f: &mut PyFrame, invert: bool) -> Flow<Control> {
    let (container, item) = (f.pop()?, f.pop()?);
    let found = t.contains(&container, &item)?;
    f.push(Value::bool(found != invert));
    Ok(Control::Next)
}

pub(super) fn subscript(t: &mut Tracer<'_>, f: &mut PyFrame) -> Flow<Control> {
    let (key, container) = (f.pop()?, f.pop()?);
    let result = match t.unread_item(&container, &key)? {
        Some(item) => item,
        None => {
            let container = t.read(&container)?;
            t.subscript(&container, &key)?
        }
    };
    f.push(result);
    Ok(Control::Next)
}

pub(super) fn store_subscript(t: &mut Tracer<'_>, f: &mut PyFrame) -> Flow<Control> {
    let (key, container, value) = (f.pop()?, f.pop()?, f.pop()?);
    t.store_subscript(&container, &key, value)?;
    Ok(Control::Next)
}

pub(super) fn delete_subscript(t: &mut Tracer<'_>, f: &mut PyFrame) -> Flow<Control> {
    let (key, container) = (f.pop()?, f.pop()?);
    t.delete_subscript(&container, &key)?;
    Ok(Control::Next)
}

pub(super) fn get_len(t: &mut Tracer<'_>, f: &mut PyFrame) -> Flow<Control> {
    let value = f.peek(1)?.clone();
    let length = t.length(&value)?;
    f.push(length);
    Ok(Control::Next)
}
