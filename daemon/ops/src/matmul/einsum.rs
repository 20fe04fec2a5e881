//! `einsum` of one or two operands: sums, dimensions in another order, and one product.

use crate::build::Build;
use crate::decompose::{Decompose, Outcome, refuse};
use crate::index::decompose::tensors;
use flambeau_core::graph::CoreId;
use flambeau_ir::code::Const;
use flambeau_ir::dim::Dim;
use flambeau_ir::kernel::{DType, ReduceOp};
use flambeau_ir::reason::Reason;
use flambeau_ir::tensor::TensorMeta;

/// Letters of the dimensions of each operand, and of the result.
struct Equation {
    operands: Vec<Vec<char>>,
    result: Vec<char>,
}

impl Equation {
    /// `None`: with an ellipsis, or a letter twice in one operand.
    fn parse(text: &str) -> Option<Equation> {
        let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let (left, right) = match text.split_once("->") {
            Some((left, right)) => (left.to_owned(), Some(right.chars().collect::<Vec<_>>())),
            None => (text, None),
        };
        let operands: Vec<Vec<char>> = left.split(',').map(|o| o.chars().collect()).collect();
        let all: Vec<char> = operands.iter().flatten().copied().collect();
        let once = |letters: &[char]| letters.iter().enumerate().all(|(i, c)| !letters[..i].contains(c));
        let result = right.unwrap_or_else(|| {
            let mut alone: Vec<char> =
                all.iter().copied().filter(|c| all.iter().filter(|d| *d == c).count() == 1).collect();
            alone.sort_unstable_by_key(|c| (c.is_ascii_lowercase(), *c));
            alone
        });
        let letters = all.iter().all(char::is_ascii_alphabetic) && result.iter().all(|c| all.contains(c));
        (letters && once(&result) && operands.iter().all(|o| once(o))).then_some(Equation { operands, result })
    }
}

/// A value whose dimensions have letters.
struct Lettered {
    value: CoreId,
    letters: Vec<char>,
}

impl Lettered {
    /// With these letters only, in this order: others are summed over.
    fn ordered(self, cx: &mut Decompose, letters: &[char]) -> CoreId {
        let gone: Vec<usize> = (0..self.letters.len()).filter(|d| !letters.contains(&self.letters[*d])).collect();
        let value = cx.reduce(ReduceOp::Sum, self.value, &gone);
        let at = |c: &char| self.letters.iter().position(|of| of == c);
        let order: Vec<usize> = letters.iter().filter_map(at).chain(gone.iter().copied()).collect();
        let turned = cx.permute(value, &order);
        let sizes = cx.sizes(turned)[..letters.len()].to_vec();
        cx.reshape(turned, sizes)
    }
}

pub(super) fn einsum(cx: &mut Decompose) -> Result<Outcome, Reason> {
    let Some(Const::Str(text)) = cx.bound.constant("equation") else { return refuse("einsum without its equation") };
    let Some(equation) = Equation::parse(text) else { return refuse("einsum with an ellipsis or a diagonal") };
    let (values, meta) = (tensors(cx, "operands")?, cx.result()?);
    let fits = values.len() == equation.operands.len()
        && values
            .iter()
            .zip(&equation.operands)
            .all(|(v, letters)| cx.dtype(*v) == meta.dtype && cx.sizes(*v).len() == letters.len());
    if !fits || !matches!(meta.dtype, DType::F32 | DType::F64) {
        return refuse("einsum of other types");
    }
    let mut operands: Vec<Lettered> = values
        .into_iter()
        .zip(&equation.operands)
        .map(|(value, letters)| Lettered { value, letters: letters.clone() })
        .collect();
    let (right, left) = (operands.pop(), operands.pop());
    let value = match (left, right, operands.is_empty()) {
        (None, Some(only), true) => {
            let value = only.ordered(cx, &equation.result);
            // Torch gives a view where nothing is summed.
            if equation.operands[0].len() == equation.result.len() {
                return refuse("einsum that gives a view");
            }
            value
        }
        (Some(left), Some(right), true) => product(cx, left, right, &equation.result, &meta)?,
        _ => return refuse("einsum of more than two operands"),
    };
    Ok(Outcome::Fresh(cx.reshape(value, meta.sizes)))
}

/// The product of two operands: of matrices of those letters that only one of them has, over those that the result lacks, for
/// each of those that all have.
fn product(
    cx: &mut Decompose,
    left: Lettered,
    right: Lettered,
    result: &[char],
    meta: &TensorMeta,
) -> Result<CoreId, Reason> {
    let size = |cx: &Decompose, of: &Lettered, c: char| {
        of.letters.iter().position(|l| *l == c).map(|d| cx.sizes(of.value)[d].clone())
    };
    let shared = |c: &char| left.letters.contains(c) && right.letters.contains(c);
    let batch: Vec<char> = result.iter().copied().filter(|c| shared(c)).collect();
    let summed: Vec<char> = left.letters.iter().copied().filter(|c| shared(c) && !result.contains(c)).collect();
    let own = |of: &Lettered| -> Vec<char> {
        result.iter().copied().filter(|c| of.letters.contains(c) && !batch.contains(c)).collect()
    };
    let (rows, columns) = (own(&left), own(&right));
    if batch.iter().chain(&summed).any(|c| size(cx, &left, *c) != size(cx, &right, *c)) {
        return refuse("einsum that repeats a dimension");
    }
    let dims = |cx: &Decompose, of: &Lettered, letters: &[char]| -> Vec<Dim> {
        letters.iter().filter_map(|c| size(cx, of, *c)).collect()
    };
    let sizes = [dims(cx, &left, &batch), dims(cx, &left, &rows), dims(cx, &right, &columns), dims(cx, &left, &summed)];
    let [b, r, c, k] = [0, 1, 2, 3].map(|at: usize| Dim::product(&sizes[at]));
    let a = left.ordered(cx, &[&batch[..], &rows, &summed].concat());
    let turned = right.ordered(cx, &[&batch[..], &columns, &summed].concat());
    let (a, turned) = (
        cx.reshape(a, vec![b.clone(), r.clone(), k.clone()]),
        cx.reshape(turned, vec![b.clone(), c.clone(), k.clone()]),
    );
    let value = if k.is(1) || r.is(1) && c.is(1) {
        let (a, turned) = (
            cx.reshape(a, vec![b.clone(), r.clone(), Dim::Const(1), k.clone()]),
            cx.reshape(turned, vec![b, Dim::Const(1), c, k]),
        );
        let products = cx.mul(a, turned);
        cx.reduce(ReduceOp::Sum, products, &[3])
    } else if b.is(1) {
        let (a, turned) = (cx.reshape(a, vec![r.clone(), k.clone()]), cx.reshape(turned, vec![c.clone(), k]));
        let other = cx.permute(turned, &[1, 0]);
        super::decompose::product(cx, a, other, &super::decompose::like(meta, vec![r, c]))
    } else {
        let other = cx.permute(turned, &[0, 2, 1]);
        super::decompose::batched(cx, a, other, &super::decompose::like(meta, vec![b, r, c]))
    };
    let [b, r, c, _] = sizes;
    let value = cx.reshape(value, [b, r, c].concat());
    let letters = [batch, rows, columns].concat();
    Ok(Lettered { value, letters }.ordered(cx, result))
}
