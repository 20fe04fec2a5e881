//! Decompositions of matrix products: views become ours, the product itself stays torch's, but for tiny ones.

use crate::build::Build;
use crate::decompose::{Decompose, Outcome, refuse};
use flambeau_core::graph::{CoreId, ExternArg};
use flambeau_ir::code::Const;
use flambeau_ir::dim::Dim;
use flambeau_ir::kernel::{DType, ReduceOp};
use flambeau_ir::reason::Reason;
use flambeau_ir::tensor::TensorMeta;

type Done = Result<Outcome, Reason>;

/// A contiguous tensor like this one with other sizes.
pub(super) fn like(meta: &TensorMeta, sizes: Vec<Dim>) -> TensorMeta {
    TensorMeta { requires_grad: meta.requires_grad, ..TensorMeta::contiguous(meta.dtype, meta.device, sizes) }
}

pub(super) fn direct(cx: &mut Decompose, op: &str, names: &[&str]) -> Done {
    let args = names.iter().map(|n| cx.tensor(n).map(ExternArg::Value)).collect::<Result<Vec<_>, _>>()?;
    let meta = cx.result()?;
    Ok(Outcome::Fresh(cx.call((op, "default"), Some("out"), args, &[meta])[0]))
}

pub(super) fn scaled(cx: &mut Decompose, op: &str, names: [&str; 2]) -> Done {
    let mut args = vec![ExternArg::Value(cx.tensor("input")?)];
    for name in names {
        args.push(ExternArg::Value(cx.tensor(name)?));
    }
    args.extend([ExternArg::Const(cx.number("beta")?), ExternArg::Const(cx.number("alpha")?)]);
    let meta = cx.result()?;
    Ok(Outcome::Fresh(cx.call((op, "default"), Some("out"), args, &[meta])[0]))
}

/// Multiplications up to which our own loops are done before torch's product has begun: calling it takes a microsecond.
const TINY: i64 = 2048;

/// Multiplications of a product with a vector up to which it does not matter how few sums threads share, sums that they share
/// well, and multiplications up to which torch's library is not faster.
const ONE_THREAD: i64 = 1 << 14;
const SHARED: i64 = 64;
const FROM_CACHES: i64 = 1 << 22;

/// `a @ turned.T` in our own loops, if it is tiny or one of them is a vector, so that each element is read once: sums of the
/// products of rows.
fn tiny(cx: &mut Decompose, a: CoreId, turned: CoreId) -> Option<CoreId> {
    let (left, right) = (cx.sizes(a), cx.sizes(turned));
    let [rows, inner, columns] = [left[0].as_const()?, left[1].as_const()?, right[0].as_const()?];
    let count = rows.checked_mul(inner)?.checked_mul(columns)?;
    let of_vector = cx.metas.values().all(|meta| meta.device.is_host())
        && (rows == 1 || columns == 1)
        && (count <= ONE_THREAD || rows * columns >= SHARED && count <= FROM_CACHES);
    if count < 1 || !(count <= TINY || of_vector) || !matches!(cx.dtype(a), DType::F32 | DType::F64) {
        return None;
    }
    let [rows, one, columns, inner] = [rows, 1, columns, inner].map(Dim::Const);
    let a = cx.reshape(a, vec![rows.clone(), one.clone(), inner.clone()]);
    let b = cx.reshape(turned, vec![one, columns.clone(), inner]);
    let products = cx.mul(a, b);
    let sums = cx.reduce(ReduceOp::Sum, products, &[2]);
    Some(cx.reshape(sums, vec![rows, columns]))
}

/// The product of two matrices.
pub(super) fn product(cx: &mut Decompose, a: CoreId, b: CoreId, meta: &TensorMeta) -> CoreId {
    let turned = cx.permute(b, &[1, 0]);
    tiny(cx, a, turned).unwrap_or_else(|| {
        let pair = vec![ExternArg::Value(a), ExternArg::Value(b)];
        cx.call(("aten::mm", "default"), Some("out"), pair, std::slice::from_ref(meta))[0]
    })
}

/// Multiplications of each of many products up to which calling torch's library for it takes longer.
const SMALL: i64 = 64;

/// The products of the matrices of two batches: small ones in our own loops.
pub(super) fn batched(cx: &mut Decompose, a: CoreId, b: CoreId, meta: &TensorMeta) -> CoreId {
    let (left, right) = (cx.sizes(a), cx.sizes(b));
    let sizes = [&left[1], &left[2], &right[2]].map(Dim::as_const);
    let count = sizes.into_iter().try_fold(1_i64, |all, size| all.checked_mul(size?));
    let fits = count.is_some_and(|count| (1..=SMALL).contains(&count)) && meta.device.is_host();
    if !fits || !matches!(cx.dtype(a), DType::F32 | DType::F64) || cx.dtype(a) != cx.dtype(b) {
        let pair = vec![ExternArg::Value(a), ExternArg::Value(b)];
        return cx.call(("aten::bmm", "default"), Some("out"), pair, std::slice::from_ref(meta))[0];
    }
    let turned = cx.permute(b, &[0, 2, 1]);
    let one = Dim::Const(1);
    let a = cx.reshape(a, vec![left[0].clone(), left[1].clone(), one.clone(), left[2].clone()]);
    let b = cx.reshape(turned, vec![right[0].clone(), one, right[2].clone(), right[1].clone()]);
    let products = cx.mul(a, b);
    let sums = cx.reduce(ReduceOp::Sum, products, &[3]);
    cx.reshape(sums, meta.sizes.clone())
}

pub(super) fn bmm(cx: &mut Decompose) -> Done {
    let (a, b, meta) = (cx.tensor("input")?, cx.tensor("mat2")?, cx.result()?);
    Ok(Outcome::Fresh(batched(cx, a, b, &meta)))
}

/// The product of a matrix or a vector with a vector.
pub(super) fn of_vector(cx: &mut Decompose, op: &str, names: [&str; 2]) -> Done {
    let (a, b, meta) = (cx.tensor(names[0])?, cx.tensor(names[1])?, cx.result()?);
    match with_vector(cx, a, b) {
        Some(product) => Ok(Outcome::Fresh(cx.reshape(product, meta.sizes))),
        None if cx.training.is_some() => refuse("a product with a vector that torch computes"),
        None => direct(cx, op, &names),
    }
}

/// A product of which a factor is a vector, or both are, in our own loops.
fn with_vector(cx: &mut Decompose, a: CoreId, b: CoreId) -> Option<CoreId> {
    let (left, right) = (cx.sizes(a), cx.sizes(b));
    let one = Dim::Const(1);
    let (a, turned) = match (&left[..], &right[..]) {
        ([n], [m]) => (cx.reshape(a, vec![one.clone(), n.clone()]), cx.reshape(b, vec![one, m.clone()])),
        ([_, _], [m]) => (a, cx.reshape(b, vec![one, m.clone()])),
        ([n], [_, _]) => (cx.reshape(a, vec![one, n.clone()]), cx.permute(b, &[1, 0])),
        _ => return None,
    };
    if cx.dtype(a) == cx.dtype(turned) { tiny(cx, a, turned) } else { None }
}

pub(super) fn outer(cx: &mut Decompose) -> Done {
    let (a, b, meta) = (cx.tensor("input")?, cx.tensor("vec2")?, cx.result()?);
    if cx.dtype(a) != cx.dtype(b) || meta.dtype == DType::Bool {
        return refuse("an outer product of two types");
    }
    let mut column = cx.sizes(a);
    column.push(Dim::Const(1));
    let a = cx.reshape(a, column);
    Ok(Outcome::Fresh(cx.mul(a, b)))
}

pub(super) fn mm(cx: &mut Decompose) -> Done {
    let (a, b, meta) = (cx.tensor("input")?, cx.tensor("mat2")?, cx.result()?);
    Ok(Outcome::Fresh(product(cx, a, b, &meta)))
}

/// `x @ weight.T + bias` on the rows of `x`, as one product of two matrices.
pub(crate) fn linear_of(
    cx: &mut Decompose,
    x: CoreId,
    weight: CoreId,
    bias: Option<CoreId>,
    like_meta: &TensorMeta,
) -> CoreId {
    let (sizes, wide) = (cx.sizes(x), cx.sizes(weight));
    let (rows, features) = (Dim::product(&sizes[..sizes.len() - 1]), sizes[sizes.len() - 1].clone());
    let flat = cx.reshape(x, vec![rows.clone(), features]);
    let product = match (tiny(cx, flat, weight), bias) {
        (Some(product), Some(bias)) => cx.add(product, bias),
        (Some(product), None) => product,
        (None, bias) => {
            let turned = cx.permute(weight, &[1, 0]);
            let meta = like(like_meta, vec![rows, wide[0].clone()]);
            let mut args = vec![ExternArg::Value(flat), ExternArg::Value(turned)];
            let op = match bias {
                Some(bias) => {
                    args.insert(0, ExternArg::Value(bias));
                    args.extend([ExternArg::Const(Const::Int(1)), ExternArg::Const(Const::Int(1))]);
                    "aten::addmm"
                }
                None => "aten::mm",
            };
            cx.call((op, "default"), Some("out"), args, &[meta])[0]
        }
    };
    let mut out = sizes;
    let last = out.len() - 1;
    out[last] = wide[0].clone();
    cx.reshape(product, out)
}

pub(super) fn linear(cx: &mut Decompose) -> Done {
    let meta = cx.result()?;
    if !meta.dtype.is_float() {
        return refuse("linear of integers");
    }
    let (x, weight, bias) = (cx.tensor("input")?, cx.tensor("weight")?, cx.maybe_tensor("bias")?);
    if cx.sizes(weight).len() != 2 || cx.dtype(x) != cx.dtype(weight) {
        return refuse("linear with a weight that is no matrix of the input's type");
    }
    Ok(Outcome::Fresh(linear_of(cx, x, weight, bias, &meta)))
}

pub(super) fn matmul(cx: &mut Decompose) -> Done {
    let meta = cx.result()?;
    let (a, b) = (cx.tensor("input")?, cx.tensor("other")?);
    let (left, right) = (cx.sizes(a), cx.sizes(b));
    let pair = |a, b| vec![ExternArg::Value(a), ExternArg::Value(b)];
    match (left.len(), right.len()) {
        (2, 2) => Ok(Outcome::Fresh(product(cx, a, b, &meta))),
        (n, 2) if n > 2 => {
            let rows = Dim::product(&left[..n - 1]);
            let flat = cx.reshape(a, vec![rows.clone(), left[n - 1].clone()]);
            let product = like(&meta, vec![rows, right[1].clone()]);
            let product = self::product(cx, flat, b, &product);
            Ok(Outcome::Fresh(cx.reshape(product, meta.sizes)))
        }
        (n, m) if n == m && n > 2 && left[..n - 2] == right[..n - 2] => {
            let batch = Dim::product(&left[..n - 2]);
            let fold = |s: &[Dim]| vec![batch.clone(), s[n - 2].clone(), s[n - 1].clone()];
            let (x, y) = (cx.reshape(a, fold(&left)), cx.reshape(b, fold(&right)));
            let product = like(&meta, fold(&meta.sizes));
            let product = batched(cx, x, y, &product);
            Ok(Outcome::Fresh(cx.reshape(product, meta.sizes)))
        }
        _ => Ok(Outcome::Fresh(match with_vector(cx, a, b) {
            Some(product) => cx.reshape(product, meta.sizes),
            None => cx.call(("aten::matmul", "default"), None, pair(a, b), &[meta])[0],
        })),
    }
}
