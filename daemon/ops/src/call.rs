//! One call being inferred: its bound arguments and the thread's state, and the ways a rule may answer.

use crate::layout::{Format, Operand, Sizes, pointwise_strides, strides_in};
use crate::promote::{Category, Promotion, category, complex_of};
use crate::registry::{Canon, Mark};
use crate::signature::{Bound, Seen, Value};
use crate::{InferError, Inferred, OpArg, ShapeEnv};
use flambeau_ir::code::Const;
use flambeau_ir::device::Runs;
use flambeau_ir::dim::Dim;
use flambeau_ir::graph::ValueMeta;
use flambeau_ir::guard::Ambient;
use flambeau_ir::kernel::DType;
use flambeau_ir::tensor::{Device, TensorMeta, contiguous_strides};
use std::sync::Arc;

/// An op's metadata rule.
pub(crate) type Rule = fn(&mut Call) -> Answer;

/// What a rule answers.
pub(crate) type Answer = Result<Inferred, InferError>;

/// One call.
pub(crate) struct Call<'a> {
    pub canon: Canon,
    pub bound: Bound<'a, OpArg>,
    pub ambient: &'a Ambient,
    pub env: Sizes<'a>,
    pub inplace: bool,
}

/// An error that eager would raise.
pub(crate) fn invalid<T>(message: impl Into<String>) -> Result<T, InferError> {
    Err(InferError::Invalid(message.into()))
}

/// Runs the rule of the op that `canon` names.
pub(crate) fn run(
    canon: Canon,
    args: &[OpArg],
    kwargs: &[(Arc<str>, OpArg)],
    ambient: &Ambient,
    env: &mut dyn ShapeEnv,
) -> Answer {
    let bound = canon.bind(args, kwargs)?;
    let mut devices = Devices::default();
    args.iter().chain(kwargs.iter().map(|(_, a)| a)).for_each(|a| devices.add(a));
    if devices.foreign && canon.op.has(Mark::CpuOnly) || devices.mixed {
        return Err(InferError::NoRule);
    }
    if canon.op.has(Mark::NoBools) && ["input", "other"].iter().any(|name| is_bool(bound.arg(name))) {
        return invalid("not implemented for bools");
    }
    // `x += y` writes only into a tensor; a number on the left makes a new tensor.
    let inplace = canon.inplace && matches!(args.first(), Some(OpArg::Tensor(_)));
    let mut call = Call { canon, bound, ambient, env: Sizes(env), inplace };
    match (canon.op.rule)(&mut call) {
        // What torch refuses differs from device to device.
        Err(InferError::Invalid(_)) if devices.foreign => Err(InferError::NoRule),
        Err(InferError::NoRule) => Err(InferError::Refused),
        Err(InferError::Told) => Err(InferError::NoRule),
        answer => answer.map(|inferred| Inferred { checks: inferred.checks || canon.op.has(Mark::Checks), ..inferred }),
    }
}

fn is_bool(arg: Option<&OpArg>) -> bool {
    match arg {
        Some(OpArg::Tensor(t)) => t.dtype == DType::Bool,
        Some(OpArg::Const(c)) => matches!(c, Const::Bool(_)),
        _ => false,
    }
}

#[derive(Default)]
struct Devices {
    first: Option<Device>,
    foreign: bool,
    mixed: bool,
}

impl Devices {
    fn add(&mut self, arg: &OpArg) {
        arg.tensors(&mut |tensor| {
            self.foreign |= !tensor.device.is_host();
            self.mixed |= *self.first.get_or_insert(tensor.device) != tensor.device;
        });
    }
}

impl Inferred {
    /// A fresh value.
    pub fn fresh(meta: ValueMeta) -> Inferred {
        let (mutates, chosen, rng, checks) = (Vec::new(), false, false, false);
        Inferred { meta, returns_argument: None, view_of: None, chosen, mutates, rng, checks }
    }

    /// A fresh tensor.
    pub(crate) fn tensor(meta: TensorMeta) -> Inferred {
        Inferred::fresh(ValueMeta::Tensor(meta))
    }

    /// Fresh tensors, as a tuple.
    pub(crate) fn tuple(metas: impl IntoIterator<Item = TensorMeta>) -> Inferred {
        Inferred::fresh(ValueMeta::Tuple(metas.into_iter().map(ValueMeta::Tensor).collect()))
    }
}

impl<'a> Call<'a> {
    /// The tensor argument with this name.
    pub fn tensor(&self, name: &str) -> Result<&'a TensorMeta, InferError> {
        self.maybe_tensor(name)?.ok_or(InferError::NoRule)
    }

    /// The tensor argument with this name, if one was given; an argument that is no tensor has no rule.
    pub fn maybe_tensor(&self, name: &str) -> Result<Option<&'a TensorMeta>, InferError> {
        match self.bound.arg(name) {
            None => Ok(None),
            Some(OpArg::Tensor(t)) => Ok(Some(t)),
            Some(_) => Err(InferError::NoRule),
        }
    }

    /// The tensor argument with this name; `None` also for a number.
    pub fn maybe_tensor_or_number(&self, name: &str) -> Option<&'a TensorMeta> {
        match self.bound.arg(name) {
            Some(OpArg::Tensor(t)) => Some(t),
            _ => None,
        }
    }

    /// What `t.to(dtype)` is.
    pub fn cast(&mut self, t: &TensorMeta, dtype: DType) -> TensorMeta {
        if t.dtype == dtype {
            return t.clone();
        }
        TensorMeta { dtype, strides: crate::layout::preserved(&mut self.env, t), ..t.clone() }
    }

    /// The tensors of a list argument.
    pub fn tensors(&self, name: &str) -> Result<Vec<&'a TensorMeta>, InferError> {
        let items = self.bound.items(name).ok_or(InferError::NoRule)?;
        let each = |a: &'a OpArg| match a {
            OpArg::Tensor(t) => Ok(t),
            _ => Err(InferError::NoRule),
        };
        items.iter().map(each).collect()
    }

    /// Refuses calls that give this parameter.
    pub fn absent(&self, name: &str) -> Result<(), InferError> {
        if self.bound.arg(name).is_some() { Err(InferError::NoRule) } else { Ok(()) }
    }

    /// A dimension counted from the front.
    pub fn wrap(dim: i64, ndim: usize) -> Result<usize, InferError> {
        let n = (ndim as i64).max(1);
        if dim < -n || dim >= n {
            return invalid(format!(
                "Dimension out of range (expected to be in range of [{}, {}], but got {dim})",
                -n,
                n - 1
            ));
        }
        Ok(if dim < 0 { dim + n } else { dim } as usize)
    }

    /// The dimension parameter with this name, counted from the front.
    pub fn dim_arg(&self, name: &str, ndim: usize) -> Result<usize, InferError> {
        let dim = self.bound.int(name)?.ok_or(InferError::NoRule)?;
        Self::wrap(dim, ndim)
    }

    /// The dtype argument with this name, if given.
    pub fn dtype(&self, name: &str) -> Result<Option<DType>, InferError> {
        match self.bound.arg(name) {
            None => Ok(None),
            Some(OpArg::Const(Const::Dtype(d))) => Ok(Some(*d)),
            Some(_) => Err(InferError::NoRule),
        }
    }

    /// The device argument, if given. One of several devices without an index, or a number, has no rule.
    pub fn device(&self) -> Result<Option<Device>, InferError> {
        match self.bound.arg("device") {
            None => Ok(None),
            Some(OpArg::Const(Const::Device(d))) => plain_device(*d),
            Some(OpArg::Const(Const::Str(s))) if **s == *Device::CPU.to_string() => Ok(Some(Device::CPU)),
            Some(_) => Err(InferError::NoRule),
        }
    }

    /// The memory format argument, if given.
    pub fn format(&self) -> Result<Option<Format>, InferError> {
        match self.bound.arg("memory_format") {
            None => Ok(None),
            Some(OpArg::Const(Const::MemoryFormat(name))) => Format::parse(name).map(Some).ok_or(InferError::NoRule),
            Some(_) => Err(InferError::NoRule),
        }
    }

    /// Refuses any layout but strided.
    pub fn strided(&self) -> Result<(), InferError> {
        match self.bound.arg("layout") {
            None => Ok(()),
            Some(OpArg::Const(Const::Layout(name))) if &**name == "strided" => Ok(()),
            Some(_) => Err(InferError::NoRule),
        }
    }

    /// `torch.get_default_dtype()`.
    pub fn default_dtype(&self) -> Result<DType, InferError> {
        DType::from_torch(self.ambient.default_dtype).ok_or(InferError::NoRule)
    }

    /// Whether autograd records.
    pub fn grad_mode(&self) -> bool {
        self.ambient.grad_enabled && !self.ambient.inference_mode
    }

    /// The kind of number that a parameter is. Torch reads it from a tensor without dimensions that no gradient goes
    /// through.
    pub fn factor(&self, name: &str) -> Result<Category, InferError> {
        match self.bound.arg(name) {
            Some(OpArg::Tensor(t)) => {
                let beside = ["input", "other"].iter().filter_map(|name| self.tensor(name).ok());
                let is_read = t.ndim() == 0 && !t.requires_grad && beside.into_iter().all(|o| o.device == t.device);
                if is_read { Ok(category(t.dtype)) } else { Err(InferError::NoRule) }
            }
            Some(number) => number.seen_number().ok_or(InferError::NoRule),
            None => Ok(Category::Integer),
        }
    }

    /// Whether a differentiable result of this dtype requires grad when `inputs` are what it depends on.
    pub fn grad_of<'t>(&self, dtype: DType, inputs: impl IntoIterator<Item = &'t TensorMeta>) -> bool {
        self.grad_mode() && differentiable(dtype) && inputs.into_iter().any(|t| t.requires_grad)
    }

    /// Whether any tensor argument of the call requires grad.
    pub fn any_grad(&self, dtype: DType) -> bool {
        self.grad_mode() && differentiable(dtype) && self.bound.iter().any(|(_, v)| value_requires_grad(v))
    }

    /// A fresh tensor with these strides; differentiable in all tensor arguments.
    pub fn strided_result(&self, dtype: DType, device: Device, sizes: Vec<Dim>, strides: Vec<Dim>) -> TensorMeta {
        let requires_grad = self.any_grad(dtype);
        TensorMeta { dtype, device, sizes, strides, requires_grad }
    }

    /// A fresh contiguous tensor, differentiable in all tensor arguments.
    pub fn contiguous(&self, like: &TensorMeta, dtype: DType, sizes: Vec<Dim>) -> TensorMeta {
        let strides = contiguous_strides(&sizes);
        self.strided_result(dtype, like.device, sizes, strides)
    }

    /// A fresh tensor in a format that fits its number of dimensions.
    pub fn in_format(
        &self,
        like: &TensorMeta,
        dtype: DType,
        sizes: Vec<Dim>,
        format: Format,
    ) -> Result<TensorMeta, InferError> {
        let strides = strides_in(&sizes, format).ok_or(InferError::NoRule)?;
        Ok(self.strided_result(dtype, like.device, sizes, strides))
    }

    /// A view of the argument `name` with this geometry.
    pub fn view(&self, name: &str, sizes: Vec<Dim>, strides: Vec<Dim>) -> Answer {
        let base = self.tensor(name)?;
        let meta = self.view_meta(base, sizes, strides);
        let view_of = Some(self.place(name)?);
        Ok(Inferred { view_of, ..Inferred::tensor(meta) })
    }

    /// Metadata of a view of `base`: it requires grad with its base, whatever the grad mode.
    pub fn view_meta(&self, base: &TensorMeta, sizes: Vec<Dim>, strides: Vec<Dim>) -> TensorMeta {
        let requires_grad = base.requires_grad;
        TensorMeta { dtype: base.dtype, device: base.device, sizes, strides, requires_grad }
    }

    /// Metadata of a copy of `base`.
    pub fn copy_meta(&self, base: &TensorMeta, sizes: Vec<Dim>, strides: Vec<Dim>) -> TensorMeta {
        let requires_grad = self.grad_mode() && base.requires_grad;
        TensorMeta { dtype: base.dtype, device: base.device, sizes, strides, requires_grad }
    }

    /// Place of the argument with this name.
    pub fn place(&self, name: &str) -> Result<usize, InferError> {
        self.bound.index(name).ok_or(InferError::NoRule)
    }

    /// The call returns the argument `name` itself, unchanged.
    pub fn same_object(&self, name: &str) -> Answer {
        let meta = self.tensor(name)?.clone();
        let returns_argument = Some(self.place(name)?);
        Ok(Inferred { returns_argument, ..Inferred::tensor(meta) })
    }

    /// The call writes into the argument `name` and returns it. Its data depends on all tensor arguments.
    pub fn written(&mut self, name: &str) -> Answer {
        let mut meta = self.tensor(name)?.clone();
        // Most ops refuse to write into overlapping memory, and to make ints depend on what requires grad.
        for (size, stride) in meta.sizes.iter().zip(&meta.strides) {
            if self.env.is(stride, 0) && !self.env.lt(size, &Dim::Const(2)) {
                return Err(InferError::NoRule);
            }
        }
        if !differentiable(meta.dtype) && self.any_grad(DType::F32) {
            return Err(InferError::NoRule);
        }
        meta.requires_grad |= self.any_grad(meta.dtype);
        let at = self.place(name)?;
        Ok(Inferred { returns_argument: Some(at), mutates: vec![at], ..Inferred::tensor(meta) })
    }

    /// Ends a pointwise rule: `result` fresh, or written to the first tensor (in-place form) or to `out=`.
    pub fn finish(&mut self, result: TensorMeta, target: &str) -> Answer {
        let (name, given) = match self.bound.arg("out") {
            Some(OpArg::Tensor(_)) if self.any_grad(DType::F32) => return Err(InferError::NoRule),
            Some(OpArg::Tensor(out)) => ("out", out),
            Some(_) => return Err(InferError::NoRule),
            None if self.inplace => (target, self.tensor(target)?),
            None => return Ok(Inferred::tensor(result)),
        };
        if category(result.dtype) > category(given.dtype) {
            return invalid(format!(
                "result type {} can't be cast to the desired output type {}",
                result.dtype.torch_name(),
                given.dtype.torch_name()
            ));
        }
        if !self.env.same(&result.sizes, &given.sizes) {
            if name == "out" {
                return Err(InferError::NoRule);
            }
            return invalid("output with one shape doesn't match the broadcast shape");
        }
        self.written(name)
    }

    /// The operand that this argument is to a pointwise op.
    pub fn pointwise_arg(&self, arg: &OpArg, over: &mut Pointwise) -> Result<(), InferError> {
        let number = match arg.seen_number() {
            Some(Category::Bool) => DType::Bool,
            Some(Category::Integer) => DType::I64,
            Some(Category::Float) => self.default_dtype()?,
            Some(Category::Complex) => complex_of(self.default_dtype()?),
            None => {
                let OpArg::Tensor(t) = arg else { return Err(InferError::NoRule) };
                over.add(t);
                return Ok(());
            }
        };
        over.promotion.number(number);
        over.order.push(None);
        Ok(())
    }

    /// Collects the operands with these parameter names; absent ones are skipped.
    pub fn operands(&self, names: &[&str]) -> Result<Pointwise, InferError> {
        let mut over = Pointwise::default();
        for name in names {
            match self.bound.value(name) {
                Some(Value::Arg(a)) => {
                    if !matches!(a, OpArg::Const(Const::None)) {
                        self.pointwise_arg(a, &mut over)?;
                    }
                }
                Some(Value::Default(Const::None)) | None => {}
                Some(Value::Default(c)) => self.pointwise_arg(&OpArg::Const(c.clone()), &mut over)?,
                Some(Value::Spread(_)) => return Err(InferError::NoRule),
            }
        }
        Ok(over)
    }

    /// The result of a pointwise op over these operands. `computed` is the type they are cast to beforehand, where they are.
    pub fn pointwise(
        &mut self,
        over: &Pointwise,
        dtype: DType,
        computed: Option<DType>,
    ) -> Result<TensorMeta, InferError> {
        let first = over.tensors.first().ok_or(InferError::NoRule)?;
        let sizes = broadcast(&mut self.env, over.tensors.iter().map(|t| &t.sizes[..]))?;
        let mut tensors = over.tensors.iter();
        let mut operands = Vec::with_capacity(over.order.len());
        for tensor in &over.order {
            let Some(()) = tensor else {
                operands.push(Operand { sizes: Vec::new(), strides: Vec::new() });
                continue;
            };
            let Some(t) = tensors.next() else { break };
            let cast = computed.is_some_and(|c| c != t.dtype) && first.device.is_host();
            let strides = if cast { crate::layout::preserved(&mut self.env, t) } else { t.strides.clone() };
            operands.push(Operand { sizes: t.sizes.clone(), strides });
        }
        let strides = pointwise_strides(&mut self.env, &sizes, &operands);
        Ok(self.strided_result(dtype, first.device, sizes, strides))
    }
}

/// The operands of one pointwise op, in order.
#[derive(Debug, Default)]
pub(crate) struct Pointwise {
    pub tensors: Vec<TensorMeta>,
    pub promotion: Promotion,
    order: Vec<Option<()>>,
}

impl Pointwise {
    /// Adds a tensor.
    pub fn add(&mut self, t: &TensorMeta) {
        self.promotion.tensor(t.dtype, t.ndim());
        self.tensors.push(t.clone());
        self.order.push(Some(()));
    }

    /// Numbers still promote, but no longer count as 0-dim operands for the layout.
    pub fn forget_numbers(&mut self) {
        self.order.retain(Option::is_some);
    }

    /// One tensor and nothing else.
    pub fn is_unary(&self) -> bool {
        self.order.len() == 1
    }

    /// The promoted type.
    pub fn dtype(&self) -> Result<DType, InferError> {
        self.promotion.result().ok_or(InferError::NoRule)
    }
}

impl OpArg {
    /// The category of a Python number; `None` for anything else.
    pub(crate) fn seen_number(&self) -> Option<Category> {
        Some(match self {
            OpArg::Const(Const::Bool(_)) => Category::Bool,
            OpArg::Const(Const::Int(_)) | OpArg::Dim(_) => Category::Integer,
            OpArg::Const(Const::Float(_)) => Category::Float,
            OpArg::Const(Const::Complex(..)) => Category::Complex,
            _ => return None,
        })
    }
}

/// The common shape of `shapes`.
pub(crate) fn broadcast<'s>(
    env: &mut Sizes,
    shapes: impl IntoIterator<Item = &'s [Dim]>,
) -> Result<Vec<Dim>, InferError> {
    let mut common: Vec<Dim> = Vec::new();
    for shape in shapes {
        if shape.len() > common.len() {
            let missing = shape.len() - common.len();
            common.splice(0..0, std::iter::repeat_n(Dim::Const(1), missing));
        }
        let skip = common.len() - shape.len();
        for (have, new) in common[skip..].iter_mut().zip(shape) {
            if have == new || new.is(1) {
                continue;
            }
            if have.is(1) || env.is(have, 1) {
                *have = new.clone();
            } else if !env.is(new, 1) && !env.eq(have, new) {
                return invalid(format!("The size of tensor a ({have}) must match the size of tensor b ({new})"));
            }
        }
    }
    Ok(common)
}

/// Whether tensors of this type can require grad.
pub fn differentiable(dtype: DType) -> bool {
    dtype.is_float() || dtype.is_complex()
}

fn plain_device(device: Device) -> Result<Option<Device>, InferError> {
    match device.runs() {
        Runs::OnHost => Ok(Some(Device { index: -1, ..device })),
        Runs::OnStream if device.index >= 0 => Ok(Some(device)),
        _ => Err(InferError::NoRule),
    }
}

fn value_requires_grad(value: Value<OpArg>) -> bool {
    match value {
        Value::Arg(a) => requires_grad(a),
        Value::Spread(items) => items.iter().any(requires_grad),
        Value::Default(_) => false,
    }
}

fn requires_grad(arg: &OpArg) -> bool {
    use crate::signature::Argument;
    match arg.seen() {
        Seen::Items(items) => items.iter().any(requires_grad),
        _ => matches!(arg, OpArg::Tensor(t) if t.requires_grad),
    }
}
