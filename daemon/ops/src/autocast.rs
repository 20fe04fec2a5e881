//! What autocast does to the tensors that a call is given: torch's own lists, one for each kind of device. Ops that torch has no
//! kernel of autocast for take their tensors as they are, but for those that it composes of others.

use crate::OpArg;
use crate::aten::is_one_kernel;
use crate::registry::{Canon, canonical};
use Policy::{Composed, Float32, Joined, Lower, Result32, Widest};
use flambeau_ir::code::Const;
use flambeau_ir::device::DeviceKind;
use flambeau_ir::graph::Target;
use flambeau_ir::guard::Ambient;
use flambeau_ir::kernel::DType;
use flambeau_ir::tensor::{Device, TensorMeta};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

/// What torch does with the tensors of a call under autocast, before anything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Casts {
    /// None.
    None,
    /// Those of real floating-point types but float64 become this, if they lie on this kind of device.
    To(DType, &'static DeviceKind),
    /// It is given this type as its argument `dtype`, unless it has one.
    Result(DType),
    /// That is not known here: torch has to make the call under autocast.
    Unknown,
}

/// Torch's policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    /// Tensors become of the type of autocast.
    Lower,
    /// Tensors become float32.
    Float32,
    /// Tensors become float32 if one is, else they are of the type of autocast.
    Widest,
    /// The result is float32.
    Result32,
    /// Torch joins parts of the tensor, which it refuses where it is neither float32 nor of the type of autocast.
    Joined,
    /// Torch makes it of calls that have policies of their own.
    Composed,
}

/// Names of ops, as aten has them, by what torch does on each kind of device.
const LISTS: &[(&str, Policy, &str)] = &[
    (
        "cpu",
        Lower,
        "_addmm_activation _convolution _native_multi_head_attention addbmm addmm baddbmm bmm conv1d conv2d conv3d conv_tbc \
         conv_transpose1d conv_transpose2d conv_transpose3d linalg_vecdot linear matmul mkldnn_rnn_layer mm prelu \
         scaled_dot_product_attention",
    ),
    (
        "cpu",
        Float32,
        "_grid_sampler_2d_cpu_fallback _lu_with_info adaptive_avg_pool3d adaptive_max_pool3d avg_pool3d \
         binary_cross_entropy binary_cross_entropy_with_logits cdist cholesky_inverse cholesky_solve cosine_embedding_loss \
         cross_entropy_loss ctc_loss fake_quantize_per_tensor_affine fft_fft fft_fft2 fft_fftn fft_hfft fft_ifft fft_ifft2 \
         fft_ifftn fft_ihfft fft_irfft fft_irfft2 fft_irfftn fft_rfft fft_rfft2 fft_rfftn fractional_max_pool2d \
         fractional_max_pool3d geqrf grid_sampler grid_sampler_2d grid_sampler_3d hinge_embedding_loss huber_loss inverse \
         kl_div l1_loss linalg_cholesky linalg_cholesky_ex linalg_cond linalg_eig linalg_eigh linalg_eigvals \
         linalg_eigvalsh linalg_householder_product linalg_inv linalg_inv_ex linalg_lstsq linalg_matrix_rank \
         linalg_matrix_sqrth linalg_qr linalg_solve linalg_svd linalg_svdvals linalg_tensorinv linalg_tensorsolve lu_solve \
         margin_ranking_loss max_pool3d max_unpool2d max_unpool3d mse_loss multi_margin_loss multilabel_margin_loss \
         multilabel_margin_loss_forward nanquantile nll_loss nll_loss2d nll_loss_nd orgqr ormqr pinverse poisson_nll_loss \
         polar prod quantile reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d replication_pad3d \
         smooth_l1_loss soft_margin_loss stft svd trace triangular_solve triplet_margin_loss view_as_complex",
    ),
    ("cpu", Joined, "isin roll"),
    ("cpu", Composed, "bilinear diff gru_cell linalg_polar lstm_cell pairwise_distance rnn_relu_cell rnn_tanh_cell"),
    ("cpu", Widest, "cat column_stack dstack hstack index_copy stack vstack"),
    (
        "cuda",
        Lower,
        "_convolution _scaled_dot_product_flash_attention _thnn_fused_gru_cell _thnn_fused_lstm_cell addbmm addmm addmv addr \
         baddbmm bmm chain_matmul conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d \
         convolution cudnn_convolution cudnn_convolution_transpose einsum gru_cell linalg_multi_dot linalg_vecdot linear \
         lstm_cell matmul mm mv prelu rnn_relu_cell rnn_tanh_cell scaled_dot_product_attention",
    ),
    (
        "cuda",
        Float32,
        "_upsample_bicubic2d_aa _upsample_bilinear2d_aa _upsample_nearest_exact1d _upsample_nearest_exact2d \
         _upsample_nearest_exact3d acos asin binary_cross_entropy_with_logits cdist cosh cosine_embedding_loss \
         cosine_similarity dist erfinv exp expm1 group_norm hinge_embedding_loss huber_loss kl_div l1_loss layer_norm log \
         log10 log1p log2 logsumexp margin_ranking_loss mse_loss multi_margin_loss multilabel_margin_loss native_layer_norm \
         nll_loss nll_loss2d nll_loss_nd pdist poisson_nll_loss pow reciprocal renorm rms_norm rsqrt sinh smooth_l1_loss \
         soft_margin_loss softplus square tan triplet_margin_loss upsample_bicubic2d upsample_bilinear2d upsample_linear1d \
         upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_trilinear3d",
    ),
    ("cuda", Result32, "cumprod cumsum linalg_matrix_norm log_softmax prod softmax sum vector_norm"),
    ("cuda", Widest, "addcdiv addcmul atan2 bilinear cross dot grid_sampler index_put scatter_add tensordot vdot"),
    // `cross_entropy_loss` asks `log_softmax` for the type of its argument.
    ("cuda", Composed, "cross_entropy_loss diff float_power linalg_polar norm pairwise_distance sum_to_size"),
];

/// Ops that torch makes of one call of another, whose policy is theirs.
const KERNELS: &[(&str, &str)] = &[
    ("column_stack", "cat"),
    ("dstack", "cat"),
    ("hstack", "cat"),
    ("nll_loss_nd", "nll_loss"),
    ("square", "pow"),
    ("vector_norm", "linalg_vector_norm"),
    ("vstack", "cat"),
];

/// By the name of the kind of device, by the name of the op.
static POLICIES: LazyLock<HashMap<(&str, &str), Policy>> = LazyLock::new(|| {
    let named = |(kind, policy, names): &(&'static str, Policy, &'static str)| {
        let (kind, policy) = (*kind, *policy);
        names.split_whitespace().map(move |name| ((kind, name), policy))
    };
    LISTS.iter().flat_map(named).collect()
});

/// What torch does with the tensors of a call of `target` under this state. `has_kernel` says whether the user's torch has a
/// kernel of autocast for an op of this name on this kind of device, where that is known.
pub fn casts(
    target: &Target,
    args: &[OpArg],
    kwargs: &[(Arc<str>, OpArg)],
    ambient: &Ambient,
    has_kernel: &dyn Fn(&str, &str) -> bool,
) -> Casts {
    let mut tensors = Vec::new();
    let all = args.iter().chain(kwargs.iter().map(|(_, arg)| arg));
    all.clone().for_each(|arg| arg.tensors(&mut |tensor| tensors.push(tensor)));
    let on = |(kind, (on, dtype)): (&'static DeviceKind, &(bool, u8))| {
        let lower = DType::from_torch(*dtype)?;
        let here = || tensors.iter().any(|tensor| is_eligible(tensor, kind));
        (*on && here()).then_some((kind, lower))
    };
    let mut kinds = DeviceKind::running().zip(&ambient.autocast).filter_map(on);
    let (kind, lower) = match (kinds.next(), kinds.next()) {
        (None, _) => return Casts::None,
        (Some(found), None) => found,
        (Some(_), Some(_)) => return Casts::Unknown,
    };
    let (Target::Function(path) | Target::Method(path)) = target;
    let canon = canonical(target);
    let name = canon.map_or_else(|| path.rsplit('.').next().unwrap_or(path), |canon| canon.op.name);
    let writes = canon.is_some_and(|canon| canon.inplace) || kwargs.iter().any(|(name, _)| &**name == "out");
    match policy(canon, name, kind, all, has_kernel) {
        Ok(None) => Casts::None,
        Err(()) | Ok(Some(Composed)) => Casts::Unknown,
        Ok(Some(_)) if writes => Casts::Unknown,
        Ok(Some(Lower)) => Casts::To(lower, kind),
        Ok(Some(Float32)) => Casts::To(DType::F32, kind),
        Ok(Some(Result32)) => match canon.and_then(|canon| canon.bind(args, kwargs).ok()) {
            None => Casts::Unknown,
            Some(bound) if bound.arg("dtype").is_some() => Casts::None,
            Some(_) => Casts::Result(DType::F32),
        },
        Ok(Some(policy @ (Widest | Joined))) => {
            let types = || tensors.iter().filter(|tensor| is_eligible(tensor, kind)).map(|tensor| tensor.dtype);
            let is_wide = types().any(|dtype| dtype == DType::F32);
            // Torch raises where there is a third type.
            match types().all(|dtype| dtype == lower || dtype == DType::F32) {
                true if policy == Joined => Casts::None,
                true => Casts::To(if is_wide { DType::F32 } else { lower }, kind),
                false => Casts::Unknown,
            }
        }
    }
}

/// What torch does with the tensors of a call of the op; an error: that is not known.
fn policy<'a>(
    canon: Option<Canon>,
    name: &str,
    kind: &DeviceKind,
    mut args: impl Iterator<Item = &'a OpArg>,
    has_kernel: &dyn Fn(&str, &str) -> bool,
) -> Result<Option<Policy>, ()> {
    let on_host = kind.number == Device::CPU.kind;
    if on_host && name == "pad" {
        // Its other modes have no kernel of autocast.
        let padded =
            |arg: &OpArg| matches!(arg, OpArg::Const(Const::Str(mode)) if matches!(&**mode, "reflect" | "replicate"));
        return Ok(args.any(padded).then_some(Float32));
    }
    if on_host && name == "einsum" {
        return einsum(args);
    }
    if !on_host && name == "div" && canon.is_some_and(|canon| canon.reflected) {
        // `2 / x` is the reciprocal times 2.
        return Err(());
    }
    let policy = POLICIES.get(&(kind.name, name)).copied();
    let kernel = KERNELS.iter().find(|(composed, _)| *composed == name).map_or(name, |(_, kernel)| kernel);
    let listed = policy.is_some_and(|policy| !matches!(policy, Composed | Joined));
    let known = if listed { has_kernel(kind.name, kernel) } else { !has_kernel(kind.name, name) };
    match policy {
        _ if !known => Err(()),
        None if canon.is_none() && !is_one_kernel(name) => Err(()),
        policy => Ok(policy),
    }
}

/// `einsum` of two tensors is a matrix product, if all that is left out of the result is left out of both; or an elementwise
/// one, if nothing is.
fn einsum<'a>(mut args: impl Iterator<Item = &'a OpArg>) -> Result<Option<Policy>, ()> {
    let (Some(OpArg::Const(Const::Str(equation))), Some(OpArg::List(operands) | OpArg::Tuple(operands))) =
        (args.next(), args.next())
    else {
        return Err(());
    };
    let equation = equation.replace(' ', "");
    let (given, result) = equation.split_once("->").ok_or(())?;
    let ((a, b), [OpArg::Tensor(x), OpArg::Tensor(y)]) = (given.split_once(',').ok_or(())?, operands.as_slice()) else {
        return Err(());
    };
    let is_plain = |labels: &str, tensor: &TensorMeta| {
        let once = |label: char| label.is_ascii_alphabetic() && labels.matches(label).count() == 1;
        labels.len() == tensor.ndim() && labels.chars().all(once)
    };
    if !is_plain(a, x) || !is_plain(b, y) {
        return Err(());
    }
    let size = |label: char, labels: &str, tensor: &TensorMeta| labels.find(label).map(|at| tensor.sizes[at].clone());
    let mut left_out = a.chars().chain(b.chars()).filter(|label| !result.contains(*label)).peekable();
    if left_out.peek().is_none() {
        return Ok(None);
    }
    let both = |label| match (size(label, a, x), size(label, b, y)) {
        (Some(one), Some(other)) => one == other && !one.is(1),
        _ => false,
    };
    if left_out.all(both) { Ok(Some(Lower)) } else { Err(()) }
}

/// Whether autocast may change a tensor's type.
pub fn is_eligible(tensor: &TensorMeta, kind: &DeviceKind) -> bool {
    tensor.dtype.is_float() && tensor.dtype != DType::F64 && tensor.device.kind == kind.number
}
