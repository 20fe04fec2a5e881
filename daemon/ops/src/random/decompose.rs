//! Ops that draw random numbers: torch draws, in program order.

use crate::build::Build;
use crate::decompose::{Decompose, Outcome, compute_type, refuse};
use flambeau_core::graph::{CoreId, ExternArg};
use flambeau_ir::code::Const;
use flambeau_ir::reason::Reason;
use flambeau_ir::tensor::{TensorMeta, contiguous_strides};

/// As torch does it: `x * (noise / (1 - p))`, each rounded to the type of `x`, which lies in memory row by row.
pub(crate) fn by_noise(cx: &mut Decompose, x: CoreId, p: f64) -> Result<CoreId, Reason> {
    if !(0.0..1.0).contains(&p) {
        return refuse("a derivative of dropout of everything");
    }
    let (keeps, rounded, dtype) = (1.0 - p, cx.dtype(x), compute_type(cx.dtype(x)));
    let meta = TensorMeta::contiguous(rounded, cx.core.device, cx.sizes(x));
    let args = vec![ExternArg::Value(x), ExternArg::Const(Const::Float(keeps))];
    let noise = cx.draw(("aten::bernoulli", "p"), args, &[meta])[0];
    let noise = cx.stopped(noise);
    let (noise, keeps) = (cx.cast(noise, dtype), cx.real(keeps, dtype));
    let scaled = cx.div(noise, keeps);
    let scaled = cx.cast(scaled, rounded);
    let (x, scaled) = (cx.cast(x, dtype), cx.cast(scaled, dtype));
    let product = cx.mul(x, scaled);
    Ok(cx.cast(product, rounded))
}

pub(super) fn dropout(cx: &mut Decompose) -> Result<Outcome, Reason> {
    let p = cx.float("p")?.unwrap_or(0.5);
    if !cx.flag("train")? {
        return Ok(Outcome::Same(cx.node_of("input")?));
    }
    if p == 0.0 {
        return refuse("dropout that drops nothing in training");
    }
    let x = cx.tensor("input")?;
    let meta = cx.result()?;
    if cx.training.is_some() {
        if cx.meta_of("input")?.strides != contiguous_strides(&meta.sizes) {
            return refuse("a derivative of dropout of a tensor in another layout");
        }
        return Ok(Outcome::Fresh(by_noise(cx, x, p)?));
    }
    let args = vec![ExternArg::Value(x), ExternArg::Const(Const::Float(p)), ExternArg::Const(Const::Bool(true))];
    Ok(Outcome::Fresh(cx.draw(("aten::dropout", "default"), args, &[meta])[0]))
}
