//! Decompositions of pooling: small windows are unrolled, averages over everything are means.

use crate::build::Build;
use crate::decompose::{Decompose, Outcome, bits_of, compute_type, refuse, row_major};
use crate::reduce::decompose::averaged;
use flambeau_core::graph::{CoreId, CoreOp, ExternArg};
use flambeau_ir::code::Const;
use flambeau_ir::dim::Dim;
use flambeau_ir::kernel::{Binary, DType};
use flambeau_ir::reason::Reason;
use flambeau_ir::tensor::{TensorMeta, contiguous_strides};

type Done = Result<Outcome, Reason>;

/// Dimensions of an image.
const RANK: usize = 2;

/// Largest window that is unrolled.
const WINDOW: i64 = 64;

struct Window {
    kernel: Vec<i64>,
    stride: Vec<i64>,
    padding: Vec<i64>,
    dilation: Vec<i64>,
}

fn spread(list: Option<Vec<i64>>, default: &[i64]) -> Result<Vec<i64>, Reason> {
    match list.unwrap_or_default() {
        list if list.is_empty() => Ok(default.to_vec()),
        list if list.len() == 1 => Ok(vec![list[0]; RANK]),
        list if list.len() == RANK => Ok(list),
        list => refuse(format!("a window parameter with {} entries", list.len())),
    }
}

fn window(cx: &Decompose) -> Result<Window, Reason> {
    let kernel = spread(cx.ints("kernel_size")?, &[])?;
    let given = |name: &str| if cx.bound.value(name).is_some() { cx.ints(name) } else { Ok(None) };
    let window = Window {
        stride: spread(given("stride")?, &kernel)?,
        padding: spread(given("padding")?, &[0; RANK])?,
        dilation: spread(given("dilation")?, &[1; RANK])?,
        kernel,
    };
    if window.kernel.len() != RANK || window.kernel.iter().product::<i64>() > WINDOW {
        return refuse("a pooling window that is too large to unroll");
    }
    Ok(window)
}

/// Combines the elements of every window, one dimension after the other. `other` stands for what is outside.
fn windows(cx: &mut Decompose, mut x: CoreId, window: &Window, other: u64, op: Binary, out: &[Dim]) -> CoreId {
    let lead = out.len() - window.kernel.len();
    for (d, &kernel) in window.kernel.iter().enumerate() {
        let (at, dilation) = (lead + d, window.dilation[d]);
        let sizes = cx.sizes(x);
        let reach = out[at].sub(&Dim::Const(1)).mul(&Dim::Const(window.stride[d]));
        let mut wide = sizes.clone();
        wide[at] = reach.add(&Dim::Const((kernel - 1) * dilation + 1));
        let mut low = vec![Dim::Const(0); sizes.len()];
        low[at] = Dim::Const(window.padding[d]);
        if wide != sizes || window.padding[d] != 0 {
            x = cx.core.push(CoreOp::Pad(x, other, low), cx.dtype(x), wide);
        }
        let place =
            |cx: &mut Decompose, k: i64| cx.slice(x, at, Dim::Const(k * dilation), window.stride[d], out[at].clone());
        let mut total = place(cx, 0);
        for k in 1..kernel {
            let next = place(cx, k);
            total = cx.binary(op, total, next);
        }
        x = total;
    }
    x
}

fn lowest(dtype: DType) -> Option<u64> {
    let number = match dtype {
        d if d.is_float() => Const::Float(f64::NEG_INFINITY),
        DType::U8 => Const::Int(0),
        DType::I8 => Const::Int(i64::from(i8::MIN)),
        DType::I16 => Const::Int(i64::from(i16::MIN)),
        DType::I32 => Const::Int(i64::from(i32::MIN)),
        DType::I64 => Const::Int(i64::MIN),
        _ => return None,
    };
    bits_of(&number, dtype)
}

/// By torch's own op, which has a derivative of its own.
fn torchs(cx: &mut Decompose, op: &str, window: &Window) -> Done {
    let (x, meta) = (cx.tensor("input")?, cx.result()?);
    let x = row_major(cx.core, x);
    let ceil = matches!(cx.bound.constant("ceil_mode"), Some(Const::Bool(true)));
    if meta.strides != contiguous_strides(&meta.sizes) || meta.sizes.len() != RANK + 2 {
        return refuse("a derivative of pooling in another layout");
    }
    let list = |list: &[i64]| ExternArg::List(list.iter().map(|i| ExternArg::Const(Const::Int(*i))).collect());
    let mut args = vec![ExternArg::Value(x), list(&window.kernel), list(&window.stride), list(&window.padding)];
    let mut metas = vec![meta.clone()];
    if op == "aten::avg_pool2d" {
        args.extend([Const::Bool(ceil), Const::Bool(true), Const::None].map(ExternArg::Const));
    } else {
        args.extend([list(&window.dilation), ExternArg::Const(Const::Bool(ceil))]);
        metas.push(TensorMeta { dtype: DType::I64, ..meta });
    }
    Ok(Outcome::Fresh(cx.call((op, "default"), None, args, &metas)[0]))
}

pub(super) fn max_pool(cx: &mut Decompose) -> Done {
    let meta = cx.result()?;
    let dtype = compute_type(meta.dtype);
    let x = cx.operand("input", dtype)?;
    let window = window(cx)?;
    if cx.training.is_some() {
        return torchs(cx, "aten::max_pool2d_with_indices", &window);
    }
    let Some(low) = lowest(dtype) else { return refuse("max_pool of this type") };
    let top = windows(cx, x, &window, low, Binary::Max, &meta.sizes);
    Ok(Outcome::Fresh(if top == x { cx.core_copy_of(x) } else { top }))
}

pub(super) fn avg_pool(cx: &mut Decompose) -> Done {
    let meta = cx.result()?;
    let dtype = compute_type(meta.dtype);
    let x = cx.operand("input", dtype)?;
    let window = window(cx)?;
    let padded = window.padding.iter().any(|p| *p != 0);
    let counts_padding = !matches!(cx.bound.constant("count_include_pad"), Some(Const::Bool(false)));
    let ceil = matches!(cx.bound.constant("ceil_mode"), Some(Const::Bool(true)));
    let divisor = cx.bound.constant("divisor_override").is_some_and(|c| *c != Const::None);
    if !dtype.is_float() || (padded && !counts_padding) || ceil || divisor {
        return refuse("avg_pool with windows of different weight");
    }
    if cx.training.is_some() {
        return torchs(cx, "aten::avg_pool2d", &window);
    }
    let total = windows(cx, x, &window, 0, Binary::Add, &meta.sizes);
    let count = cx.real(window.kernel.iter().product::<i64>() as f64, dtype);
    Ok(Outcome::Fresh(cx.div(total, count)))
}

/// Equal windows only: every input size is a multiple of the output's.
pub(super) fn adaptive_avg_pool(cx: &mut Decompose) -> Done {
    let meta = cx.result()?;
    let dtype = compute_type(meta.dtype);
    let x = cx.operand("input", dtype)?;
    let sizes = cx.sizes(x);
    let lead = sizes.len() - RANK;
    let mut split = sizes[..lead].to_vec();
    let mut over = Vec::new();
    for (size, out) in sizes[lead..].iter().zip(&meta.sizes[lead..]) {
        let part = size.floor_div(out);
        if part.mul(out) != *size {
            return refuse("adaptive pooling with unequal windows");
        }
        over.push(split.len() + 1);
        split.extend([out.clone(), part]);
    }
    let x = cx.reshape(x, split);
    let mean = averaged(cx, x, &over);
    let mean = if mean == x { cx.core_copy_of(x) } else { mean };
    Ok(Outcome::Fresh(cx.reshape(mean, meta.sizes)))
}
