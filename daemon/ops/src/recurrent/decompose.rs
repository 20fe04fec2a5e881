//! Decompositions of cells: products of the input and of the state, and arithmetic on their gates. The order of the gates is
//! torch's.

use crate::build::Build;
use crate::decompose::{Decompose, Outcome, compute_type, refuse};
use crate::index::decompose::tensors;
use crate::matmul::decompose::linear_of;
use flambeau_core::graph::CoreId;
use flambeau_ir::kernel::{Binary, Unary};
use flambeau_ir::reason::Reason;
use flambeau_ir::tensor::TensorMeta;

type Done = Result<Outcome, Reason>;

/// `x @ weight.T + bias` of the input and of the state.
fn products(cx: &mut Decompose, state: CoreId, like: &TensorMeta) -> Result<[CoreId; 2], Reason> {
    if compute_type(like.dtype) != like.dtype {
        return refuse("a cell of halves, which torch rounds at each step");
    }
    let x = cx.tensor("input")?;
    let (w, b) = (cx.tensor("w_ih")?, cx.maybe_tensor("b_ih")?);
    let of_input = linear_of(cx, x, w, b, like);
    let (w, b) = (cx.tensor("w_hh")?, cx.maybe_tensor("b_hh")?);
    Ok([of_input, linear_of(cx, state, w, b, like)])
}

/// One of so many parts of the last dimension.
fn gate(cx: &mut Decompose, gates: CoreId, at: i64, count: i64) -> CoreId {
    let sizes = cx.sizes(gates);
    let last = sizes.len() - 1;
    let width = sizes[last].floor_div(&count.into());
    cx.slice(gates, last, width.mul(&at.into()), 1, width)
}

pub(super) fn lstm(cx: &mut Decompose) -> Done {
    let [state, cell] = tensors(cx, "hx")?[..] else { return refuse("a cell without its state") };
    let like = cx.results()?[0].clone();
    let [of_input, of_state] = products(cx, state, &like)?;
    let gates = cx.add(of_state, of_input);
    let parts = [0, 1, 2, 3].map(|at| gate(cx, gates, at, 4));
    let [input, forget, output] = [parts[0], parts[1], parts[3]].map(|part| cx.unary(Unary::Sigmoid, part));
    let new = cx.unary(Unary::Tanh, parts[2]);
    let (kept, new) = (cx.mul(forget, cell), cx.mul(input, new));
    let cell = cx.add(kept, new);
    let shown = cx.unary(Unary::Tanh, cell);
    let state = cx.mul(output, shown);
    Ok(Outcome::Tuple(vec![Outcome::Fresh(state), Outcome::Fresh(cell)]))
}

pub(super) fn gru(cx: &mut Decompose) -> Done {
    let (state, like) = (cx.tensor("hx")?, cx.result()?);
    let [of_input, of_state] = products(cx, state, &like)?;
    let mut gated = |at: i64| {
        let (x, h) = (gate(cx, of_input, at, 3), gate(cx, of_state, at, 3));
        let sum = cx.add(h, x);
        cx.unary(Unary::Sigmoid, sum)
    };
    let (reset, update) = (gated(0), gated(1));
    let (x, h) = (gate(cx, of_input, 2, 3), gate(cx, of_state, 2, 3));
    let h = cx.mul(h, reset);
    let new = cx.add(x, h);
    let new = cx.unary(Unary::Tanh, new);
    let off = cx.sub(state, new);
    let kept = cx.mul(off, update);
    Ok(Outcome::Fresh(cx.add(kept, new)))
}

fn simple(cx: &mut Decompose, activate: impl FnOnce(&mut Decompose, CoreId) -> CoreId) -> Done {
    let (state, like) = (cx.tensor("hx")?, cx.result()?);
    let [of_input, of_state] = products(cx, state, &like)?;
    let sum = cx.add(of_input, of_state);
    Ok(Outcome::Fresh(activate(cx, sum)))
}

pub(super) fn tanh(cx: &mut Decompose) -> Done {
    simple(cx, |cx, sum| cx.unary(Unary::Tanh, sum))
}

pub(super) fn relu(cx: &mut Decompose) -> Done {
    simple(cx, |cx, sum| {
        let zero = cx.real(0.0, cx.dtype(sum));
        let low = cx.binary(Binary::Le, sum, zero);
        cx.select(low, zero, sum)
    })
}
