//! Derivatives of torch's own calls: which core values the gradients of their arguments are. The rules are in each family's
//! `derivative.rs`; those of primitive ops are in `daemon/derive`.

use crate::build::Build;
use crate::decompose::{extern_call, refuse, row_major};
use crate::{attention, conv, index, loss, matmul, norm, pool, reduce};
use flambeau_core::graph::{Core, CoreId, ExternArg, ExternCall};
use flambeau_ir::code::Const;
use flambeau_ir::dim::Dim;
use flambeau_ir::reason::Reason;
use flambeau_ir::tensor::{TensorMeta, channels_last};

/// Gives the arguments of a call their gradients.
pub type Derivative = fn(&mut Back<'_>) -> Result<(), Reason>;

/// The rule of an op of aten, if there is one.
pub fn derivative(op: &str) -> Option<Derivative> {
    Some(match op.strip_prefix("aten::")? {
        "mm" => matmul::derivative::mm,
        "bmm" => matmul::derivative::bmm,
        "addmm" => matmul::derivative::addmm,
        "convolution" => conv::derivative::convolution,
        "_native_batch_norm_legit_functional" | "_native_batch_norm_legit" => norm::derivative::batch_norm,
        "max_pool2d_with_indices" => pool::derivative::max_pool,
        "avg_pool2d" => pool::derivative::avg_pool,
        "embedding" => index::derivative::embedding,
        "index" => index::derivative::index,
        "gather" => index::derivative::gather,
        "cat" => index::derivative::cat,
        "nll_loss_nd" => loss::derivative::nll_loss,
        "cumsum" => reduce::derivative::cumsum,
        "_scaled_dot_product_flash_attention_for_cpu" => attention::derivative::attention,
        _ => return None,
    })
}

/// A call whose results have gradients.
pub struct Back<'a> {
    core: &'a mut Core,
    id: CoreId,
    call: &'a ExternCall,
    results: &'a [Option<CoreId>],
    gradients: &'a [Option<CoreId>],
    wants: &'a dyn Fn(CoreId) -> bool,
    given: Vec<(CoreId, CoreId)>,
}

impl Build for Back<'_> {
    fn core(&self) -> &Core {
        self.core
    }

    fn core_mut(&mut self) -> &mut Core {
        self.core
    }
}

impl<'a> Back<'a> {
    /// `results` and their `gradients`, those that there are; `wants` says which values are to get one.
    pub fn new(
        core: &'a mut Core,
        (id, call): (CoreId, &'a ExternCall),
        (results, gradients): (&'a [Option<CoreId>], &'a [Option<CoreId>]),
        wants: &'a dyn Fn(CoreId) -> bool,
    ) -> Back<'a> {
        Back { core, id, call, results, gradients, wants, given: Vec::new() }
    }

    /// Values and their gradients.
    pub fn given(self) -> Vec<(CoreId, CoreId)> {
        self.given
    }

    /// The gradient of a result; a refusal where it has none.
    pub(crate) fn gradient(&self, i: usize) -> Result<CoreId, Reason> {
        self.gradients[i].map_or_else(|| refuse(format!("no gradient of the first result of {}", self.call.op)), Ok)
    }

    /// A result; `meta` is its metadata where nothing has read it so far.
    pub(crate) fn result(&mut self, i: usize, meta: &TensorMeta) -> CoreId {
        match self.results[i] {
            Some(known) => known,
            None => crate::decompose::call_result(self.core, self.id, i as u32, meta),
        }
    }

    /// Argument `i` as it is.
    pub(crate) fn arg(&self, i: usize) -> ExternArg {
        self.call.args.get(i).cloned().unwrap_or(ExternArg::Const(Const::None))
    }

    /// Argument `i`, if it is a tensor.
    pub(crate) fn maybe(&self, i: usize) -> Option<CoreId> {
        if let Some(ExternArg::Value(id)) = self.call.args.get(i) { Some(*id) } else { None }
    }

    /// Argument `i`, which is a tensor.
    pub(crate) fn tensor(&self, i: usize) -> Result<CoreId, Reason> {
        self.maybe(i).map_or_else(|| refuse(format!("argument {i} of {} is no tensor", self.call.op)), Ok)
    }

    /// Whether argument `i` is a tensor that is to get a gradient.
    pub(crate) fn wants(&self, i: usize) -> bool {
        self.maybe(i).is_some_and(|id| (self.wants)(id))
    }

    /// Gives argument `i` its gradient.
    pub(crate) fn give(&mut self, i: usize, gradient: CoreId) -> Result<(), Reason> {
        let of = self.tensor(i)?;
        let gradient = self.cast(gradient, self.dtype(of));
        self.given.push((of, gradient));
        Ok(())
    }

    /// Gives the first arguments their gradients, those that are to get one.
    pub(crate) fn give_each(&mut self, given: &[CoreId]) -> Result<(), Reason> {
        for (i, gradient) in given.iter().enumerate() {
            if self.wants(i) {
                self.give(i, *gradient)?;
            }
        }
        Ok(())
    }

    /// Whether a value is to get a gradient.
    pub(crate) fn wants_value(&self, id: CoreId) -> bool {
        (self.wants)(id)
    }

    /// Gives a value, which is in a list, its gradient.
    pub(crate) fn give_value(&mut self, of: CoreId, gradient: CoreId) {
        let gradient = self.cast(gradient, self.dtype(of));
        self.given.push((of, gradient));
    }

    /// Metadata of a contiguous tensor of the type of `like`.
    pub(crate) fn meta(&self, like: CoreId, sizes: Vec<Dim>) -> TensorMeta {
        TensorMeta::contiguous(self.dtype(like), self.core.device, sizes)
    }

    /// Metadata of a tensor like this one.
    pub(crate) fn like(&self, of: CoreId) -> TensorMeta {
        self.meta(of, self.sizes(of))
    }

    /// A tensor of images as torch's own derivatives take it, and the metadata of its gradient, which lies as the tensor does:
    /// with channels last if that is known, else row-major.
    pub(crate) fn laid_out(&mut self, of: CoreId) -> (CoreId, TensorMeta) {
        let (node, meta) = (self.core.node(of), self.like(of));
        let last = channels_last(&node.sizes);
        let is_known = node.op.is_input() || self.core.is_pinned(of);
        if is_known && node.strides == last && last != meta.strides {
            return (of, TensorMeta { strides: last, ..meta });
        }
        (row_major(self.core, of), meta)
    }

    /// A call of torch that gives one tensor of this metadata.
    pub(crate) fn torch(
        &mut self,
        (op, overload): (&str, &str),
        out: Option<&str>,
        args: Vec<ExternArg>,
        meta: &TensorMeta,
    ) -> CoreId {
        self.torch_all((op, overload), out, args, std::slice::from_ref(meta))[0]
    }

    /// A call of torch that gives several.
    pub(crate) fn torch_all(
        &mut self,
        target: (&str, &str),
        out: Option<&str>,
        args: Vec<ExternArg>,
        metas: &[TensorMeta],
    ) -> Vec<CoreId> {
        extern_call(self.core, ExternCall::pure(target, out, args, metas.len()), metas)
    }
}

/// A list of flags, as torch takes which gradients are wanted.
pub(crate) fn mask(wanted: &[bool]) -> ExternArg {
    ExternArg::List(wanted.iter().map(|w| ExternArg::Const(Const::Bool(*w))).collect())
}

/// A fixed size.
pub(crate) fn fixed(dims: &[Dim]) -> ExternArg {
    ExternArg::List(dims.iter().cloned().map(size).collect())
}

/// A size.
pub(crate) fn size(dim: Dim) -> ExternArg {
    match dim.as_const() {
        Some(n) => ExternArg::Const(Const::Int(n)),
        None => ExternArg::Dim(dim),
    }
}

/// No tensor.
pub(crate) fn none() -> ExternArg {
    ExternArg::Const(Const::None)
}
