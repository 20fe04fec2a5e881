//! Ops that draw from torch's random generator. None is ever merged, removed or reordered.

pub(crate) mod decompose;

use crate::call::{Answer, Call, Pointwise, invalid};
use crate::layout::preserved;
use crate::registry::{OpDef, place::*};
use crate::{InferError, Inferred};
use flambeau_ir::tensor::TensorMeta;

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new("dropout", "input:T, p:N, train:B", dropout, FN | INPLACE),
    OpDef::new("bernoulli", "input:T, *, generator=None, out:T=None", bernoulli, BOTH).checks(),
    OpDef::new("bernoulli_", "input:T, p:TN=0.5, *, generator=None", draw, METHOD),
    OpDef::new("uniform_", "input:T, from:N=0, to:N=1, *, generator=None", draw, METHOD),
    OpDef::new("normal_", "input:T, mean:N=0, std:N=1, *, generator=None", draw, METHOD),
    OpDef::new("exponential_", "input:T, lambd:N=1, *, generator=None", draw, METHOD),
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

fn draw(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    if !input.dtype.is_float() || call.bound.arg("generator").is_some() {
        return Err(InferError::NoRule);
    }
    if call.bound.value("p").is_some() && call.maybe_tensor_or_number("p").is_some() {
        return Err(InferError::NoRule);
    }
    let number = |name: &str, default: f64| Ok(call.bound.float(name)?.unwrap_or(default));
    let fits = match call.canon.op.name {
        "bernoulli_" => (0.0..=1.0).contains(&number("p", 0.5)?),
        "uniform_" => number("from", 0.0)? <= number("to", 1.0)?,
        "normal_" => number("std", 1.0)? >= 0.0,
        _ => number("lambd", 1.0)? > 0.0,
    };
    if !fits {
        return Err(InferError::NoRule);
    }
    let rng = !call.env.is_empty(&input.sizes);
    Ok(Inferred { rng, ..call.written("input")? })
}
