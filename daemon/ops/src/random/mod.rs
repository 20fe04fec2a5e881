//! Ops that draw from torch's random generator. None is ever merged, removed or reordered.

pub(crate) mod decompose;

use crate::call::{Answer, Call, Pointwise, invalid};
use crate::layout::preserved;
use crate::registry::{
    Effect::Draws,
    Mark::{Checks, Writes},
    OpDef, Saved,
    place::*,
};
use crate::{InferError, Inferred};
use flambeau_ir::tensor::TensorMeta;

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new("dropout", "input:T, p:N, train:B", dropout, FN | INPLACE)
        .derives(decompose::dropout)
        .effect(Draws)
        .saves(Saved::Own),
    OpDef::new("bernoulli", "input:T, *, generator=None, out:T=None", bernoulli, BOTH).is(Checks).effect(Draws),
    OpDef::new("bernoulli_", "input:T, p:TN=0.5, *, generator=None", bernoulli_, METHOD).is(Writes),
    OpDef::new("uniform_", "input:T, from:N=0, to:N=1, *, generator=None", uniform_, METHOD).is(Writes),
    OpDef::new("normal_", "input:T, mean:N=0, std:N=1, *, generator=None", normal_, METHOD).is(Writes),
    OpDef::new("exponential_", "input:T, lambd:N=1, *, generator=None", exponential_, METHOD).is(Writes),
];

/// Without effect (not training, or `p` zero) it returns its input; with `p` one it draws nothing.
fn dropout(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    let p = call.bound.float("p")?.ok_or(InferError::NoRule)?;
    if !(0.0..=1.0).contains(&p) {
        return invalid("dropout probability has to be between 0 and 1");
    }
    if p == 0.0 || !call.bound.bool("train")? || call.env.is_empty(&input.sizes) {
        return call.same_object("input");
    }
    if !input.dtype.is_float() {
        return Err(InferError::NoRule);
    }
    let rng = p < 1.0;
    if call.inplace {
        return Ok(Inferred { rng, ..call.written("input")? });
    }
    let mut over = Pointwise::default();
    over.add(input);
    let noise = TensorMeta { strides: preserved(&mut call.env, input), ..input.clone() };
    let zero = TensorMeta::contiguous(input.dtype, input.device, Vec::new());
    over.add(if rng { &noise } else { &zero });
    let result = call.pointwise(&over, input.dtype, None)?;
    Ok(Inferred { rng, ..Inferred::tensor(result) })
}

fn bernoulli(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    if !input.dtype.is_float() || call.bound.arg("generator").is_some() {
        return Err(InferError::NoRule);
    }
    call.absent("out")?;
    let rng = !call.env.is_empty(&input.sizes);
    let result = call.contiguous(input, input.dtype, input.sizes.clone());
    Ok(Inferred { rng, ..Inferred::tensor(result) })
}

/// Fills the input, unless the parameters are out of range, which torch words.
fn draw(call: &mut Call, in_range: bool) -> Answer {
    let input = call.tensor("input")?;
    if !in_range || !input.dtype.is_float() || call.bound.arg("generator").is_some() {
        return Err(InferError::NoRule);
    }
    let rng = !call.env.is_empty(&input.sizes);
    Ok(Inferred { rng, ..call.written("input")? })
}

fn number(call: &Call, name: &str) -> Result<f64, InferError> {
    call.bound.float(name)?.ok_or(InferError::NoRule)
}

fn bernoulli_(call: &mut Call) -> Answer {
    if call.maybe_tensor_or_number("p").is_some() {
        return Err(InferError::NoRule);
    }
    let in_range = (0.0..=1.0).contains(&number(call, "p")?);
    draw(call, in_range)
}

fn uniform_(call: &mut Call) -> Answer {
    let in_range = number(call, "from")? <= number(call, "to")?;
    draw(call, in_range)
}

fn normal_(call: &mut Call) -> Answer {
    let in_range = number(call, "std")? >= 0.0;
    draw(call, in_range)
}

fn exponential_(call: &mut Call) -> Answer {
    let in_range = number(call, "lambd")? > 0.0;
    draw(call, in_range)
}
