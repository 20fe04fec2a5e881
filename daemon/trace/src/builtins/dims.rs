//! Symbolic ints: what stays symbolic, and what fixes them.

use crate::state::tracer::Tracer;
use crate::value::Value;
use crate::value::flow::Flow;
use flambeau_bytecode::{Binary, Compare, Unary};
use flambeau_ir::dim::Dim;
use flambeau_ir::guard::Relation;

/// `a <op> b` where at least one is symbolic and both are ints; `None`: fix them and fold.
pub fn binary(tracer: &mut Tracer<'_>, op: Binary, a: &Dim, b: &Dim) -> Flow<Option<Value>> {
    let divides = matches!(op, Binary::FloorDivide | Binary::Remainder);
    if divides && !tracer.decide(Relation::Ne, b, &Dim::Const(0)) {
        let what = if op == Binary::Remainder { "integer modulo" } else { "integer division or modulo" };
        return tracer.raise_named("ZeroDivisionError", &format!("{what} by zero"));
    }
    let result = match op {
        Binary::Add => a.add(b),
        Binary::Subtract => a.sub(b),
        Binary::Multiply => a.mul(b),
        Binary::FloorDivide => a.floor_div(b),
        Binary::Remainder => a.modulo(b),
        Binary::Power => match b.as_const() {
            Some(n @ 0..=4) => Dim::product(std::iter::repeat_n(a, n as usize)),
            _ => return Ok(None),
        },
        Binary::Lshift => match b.as_const() {
            Some(n @ 0..=31) => a.mul(&Dim::Const(1 << n)),
            _ => return Ok(None),
        },
        Binary::Rshift => match b.as_const() {
            Some(n @ 0..=31) => a.floor_div(&Dim::Const(1 << n)),
            _ => return Ok(None),
        },
        _ => return Ok(None),
    };
    // Python's ints have no largest, and loops would make expressions without end.
    Ok((result.is_handy() && tracer.hint_of(&result).is_some()).then(|| Value::dim(result)))
}

/// `<op> a`
pub fn unary(op: Unary, a: &Dim) -> Value {
    match op {
        Unary::Negative => Value::dim(a.mul(&Dim::Const(-1))),
        Unary::Invert => Value::dim(a.mul(&Dim::Const(-1)).sub(&Dim::Const(1))),
        Unary::Positive | Unary::Not => Value::dim(a.clone()),
    }
}

/// `a <op> b`; becomes a guard.
pub fn compare(tracer: &mut Tracer<'_>, op: Compare, a: &Dim, b: &Dim) -> bool {
    let relation = match op {
        Compare::Lt => Relation::Lt,
        Compare::Le => Relation::Le,
        Compare::Eq => Relation::Eq,
        Compare::Ne => Relation::Ne,
        Compare::Gt => Relation::Gt,
        Compare::Ge => Relation::Ge,
    };
    tracer.decide(relation, a, b)
}
