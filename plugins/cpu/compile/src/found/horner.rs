//! Polynomial steps `c + a * b` with a constant `c`, to be computed with one rounding. Products of two values of the
//! program are never fused with sums of others: `a * b - c * d` of equal products stays exactly zero.

use flambeau_plugin::kernel::{Binary, DType, Inst, Kernel, Op, Unary, ValueId};
use std::collections::{HashMap, HashSet};

/// How a step adds up its product and its constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Factors of the product.
    pub factors: (ValueId, ValueId),
    /// The constant.
    pub addend: ValueId,
    /// `c - a * b`
    pub negate_product: bool,
    /// `a * b - c`
    pub negate_addend: bool,
}

/// Sums that are steps, and products that only occur in them (`None`).
pub type Steps = HashMap<ValueId, Option<Step>>;

/// The steps of a kernel. None where a last bit could decide between two results: roundings, comparisons, choices.
pub fn steps(kernel: &Kernel) -> Steps {
    let insts = || kernel.stages.iter().flat_map(|s| &s.insts);
    let mut steps = Steps::new();
    if insts().any(decides) {
        return steps;
    }
    let uses = uses(kernel);
    let constants = insts().filter(|i| matches!(i.op, Op::Const(_))).map(|i| i.id).collect();
    for stage in &kernel.stages {
        let known: HashMap<ValueId, &Inst> = stage.insts.iter().map(|i| (i.id, i)).collect();
        for inst in &stage.insts {
            let sums = uses.get(&inst.id).is_some_and(|u| u.arithmetic > 0 && u.arithmetic == u.all);
            let Some(step) = step(inst, &known, &constants).filter(|_| sums) else { continue };
            let (Op::Binary(_, a, b), true) = (&inst.op, matches!(inst.dtype, DType::F32 | DType::F64)) else {
                continue;
            };
            let product = if step.addend == *a { *b } else { *a };
            if uses.get(&product).is_some_and(|u| u.all == 1) {
                steps.insert(inst.id, Some(step));
                steps.insert(product, None);
            }
        }
    }
    steps
}

fn step(inst: &Inst, known: &HashMap<ValueId, &Inst>, constants: &HashSet<ValueId>) -> Option<Step> {
    let Op::Binary(op @ (Binary::Add | Binary::Sub), a, b) = inst.op else { return None };
    let product = |id: ValueId| match known.get(&id)?.op {
        Op::Binary(Binary::Mul, x, y) => Some((x, y)),
        _ => None,
    };
    let constant = |id: ValueId| constants.contains(&id);
    let (factors, addend, first) = match (product(a), product(b)) {
        (Some(factors), None) if constant(b) => (factors, b, true),
        (None, Some(factors)) if constant(a) => (factors, a, false),
        _ => return None,
    };
    let subtracts = op == Binary::Sub;
    Some(Step { factors, addend, negate_product: subtracts && !first, negate_addend: subtracts && first })
}

#[derive(Clone, Copy, Default)]
/// How often a value is an operand.
pub struct Uses {
    /// In all.
    pub all: u32,
    /// As an operand of a sum, a product or a quotient.
    arithmetic: u32,
}

/// The uses of each value.
pub fn uses(kernel: &Kernel) -> HashMap<ValueId, Uses> {
    let mut uses: HashMap<ValueId, Uses> = HashMap::new();
    for stage in &kernel.stages {
        for inst in &stage.insts {
            let arithmetic = matches!(inst.op, Op::Binary(Binary::Add | Binary::Sub | Binary::Mul | Binary::Div, ..));
            for id in crate::emit::operands(&inst.op) {
                let uses = uses.entry(id).or_default();
                uses.all += 1;
                uses.arithmetic += u32::from(arithmetic);
            }
        }
        let others = stage.stores.iter().map(|s| s.value).chain(stage.reduces.iter().map(|r| r.value));
        others.for_each(|id| uses.entry(id).or_default().all += 1);
    }
    uses
}

fn decides(inst: &Inst) -> bool {
    match &inst.op {
        Op::Unary(op, _) => matches!(
            op,
            Unary::Floor | Unary::Ceil | Unary::Round | Unary::Trunc | Unary::Sign | Unary::IsNan | Unary::IsInf
        ),
        Op::Binary(op, ..) => !matches!(
            op,
            Binary::Add
                | Binary::Sub
                | Binary::Mul
                | Binary::Div
                | Binary::Pow
                | Binary::Atan2
                | Binary::Max
                | Binary::Min
        ),
        Op::Select(..) => true,
        Op::Cast(_) => !inst.dtype.is_float(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flambeau_plugin::kernel::{Access, Extent, Param, Role, Scope, Stage, Store};

    /// `x`, the constant 2, then these instructions; the last one is stored.
    fn kernel(ops: &[Op]) -> Kernel {
        let at = |param| Access { param, offset: Extent::Const(0), strides: vec![Extent::Const(1)] };
        let mut all = vec![Op::Load(at(0)), Op::Const(u64::from(2.0_f32.to_bits()))];
        all.extend(ops.iter().cloned());
        let insts: Vec<Inst> = (0..).zip(all).map(|(i, op)| Inst { id: ValueId(i), dtype: DType::F32, op }).collect();
        let value = ValueId(insts.len() as u32 - 1);
        let stores = vec![Store { access: at(1), value }];
        let param = |role| Param { dtype: DType::F32, role };
        Kernel {
            name: "k".into(),
            params: vec![param(Role::In), param(Role::Out)],
            scalars: 0,
            dims: vec![Extent::Const(64)],
            outer: 0,
            stages: vec![Stage { scope: Scope::Row, insts, stores, reduces: vec![] }],
        }
    }

    const X: ValueId = ValueId(0);
    const TWO: ValueId = ValueId(1);

    fn mul(a: u32, b: u32) -> Op {
        Op::Binary(Binary::Mul, ValueId(a), ValueId(b))
    }

    #[test]
    fn inner_steps_are_fused() {
        // x * (2 - x * x)
        let steps = steps(&kernel(&[mul(0, 0), Op::Binary(Binary::Sub, TWO, ValueId(2)), mul(0, 3)]));
        let step = Step { factors: (X, X), addend: TWO, negate_product: true, negate_addend: false };
        assert_eq!(steps, Steps::from([(ValueId(3), Some(step)), (ValueId(2), None)]));
    }

    #[test]
    fn stored_sums_shared_products_and_products_of_products_are_not() {
        assert!(steps(&kernel(&[mul(0, 0), Op::Binary(Binary::Add, TWO, ValueId(2))])).is_empty());
        let shared = [mul(0, 0), Op::Binary(Binary::Add, TWO, ValueId(2)), mul(2, 3)];
        assert!(steps(&kernel(&shared)).is_empty());
        let cross = [mul(0, 0), mul(0, 1), Op::Binary(Binary::Sub, ValueId(2), ValueId(3)), mul(4, 4)];
        assert!(steps(&kernel(&cross)).is_empty());
    }

    #[test]
    fn kernels_that_round_have_none() {
        let ops = [mul(0, 0), Op::Binary(Binary::Add, TWO, ValueId(2)), mul(0, 3), Op::Unary(Unary::Floor, ValueId(4))];
        assert!(steps(&kernel(&ops)).is_empty());
    }
}
