//! What decompositions are written with: a call bound to its parameters, and a builder of core values. The
//! decompositions themselves are in each family's `decompose.rs`.

use crate::build::Build;
use crate::registry::OpDef;
use crate::signature::{Argument, Bound, Seen, Value};
use flambeau_core::graph::{Core, CoreId, CoreNode, CoreOp, ExternArg, ExternCall, IndexSum};
use flambeau_ir::code::Const;
use flambeau_ir::dim::Dim;
use flambeau_ir::frame::Subgradients;
use flambeau_ir::graph::{Arg, NodeId, ValueMeta};
use flambeau_ir::kernel::DType;
use flambeau_ir::reason::{Reason, ReasonCode};
use flambeau_ir::tensor::{TensorMeta, contiguous_strides};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A change of indices that torch makes without copying.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum View {
    /// Sizes of 1 grow; the rank stays.
    Expand(Vec<Dim>),
    /// `sizes[d] = old[order[d]]`
    Permute(Vec<u32>),
    /// The same elements in row-major order.
    Reshape(Vec<Dim>),
    /// `start + step * i`, `length` of them, along one dimension.
    Slice {
        /// Dimension.
        dim: u32,
        /// First index.
        start: Dim,
        /// Distance.
        step: i64,
        /// How many.
        length: Dim,
    },
    /// Each old index is a sum of the new ones.
    Sums {
        /// New sizes.
        sizes: Vec<Dim>,
        /// One per old dimension.
        sums: Arc<[IndexSum]>,
    },
}

/// What a call yields.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// A tensor of its own.
    Fresh(CoreId),
    /// A view of an argument.
    View(NodeId, Vec<View>),
    /// A view of an argument where its memory allows, else a copy.
    ViewOrCopy(NodeId, Vec<View>),
    /// The argument itself.
    Same(NodeId),
    /// The argument, which now has this value.
    Write(NodeId, CoreId),
    /// Part of the argument now has this value; the call yields nothing.
    WriteView(NodeId, Vec<View>, CoreId),
    /// Several.
    Tuple(Vec<Outcome>),
    /// This, after arguments were given new values.
    With(Vec<(NodeId, CoreId)>, Box<Outcome>),
    /// No tensor.
    None,
}

impl Outcome {
    /// The arguments that are written to.
    pub fn written(&self) -> Vec<NodeId> {
        match self {
            Outcome::Write(id, _) | Outcome::WriteView(id, ..) => vec![*id],
            Outcome::Tuple(items) => items.iter().flat_map(Outcome::written).collect(),
            Outcome::With(values, then) => values.iter().map(|(id, _)| *id).chain(then.written()).collect(),
            Outcome::Fresh(_) | Outcome::View(..) | Outcome::ViewOrCopy(..) | Outcome::Same(_) | Outcome::None => {
                vec![]
            }
        }
    }
}

/// A decomposition.
pub type Rule = fn(&mut Decompose) -> Result<Outcome, Reason>;

/// A call being decomposed.
pub struct Decompose<'a> {
    /// The graph that grows.
    pub core: &'a mut Core,
    /// The call's arguments.
    pub bound: Bound<'a, Arg>,
    /// Metadata of the call's result.
    pub meta: &'a ValueMeta,
    /// Current value of every tensor argument.
    pub values: &'a BTreeMap<NodeId, CoreId>,
    /// Metadata of every tensor argument.
    pub metas: &'a BTreeMap<NodeId, TensorMeta>,
    /// The op.
    pub op: &'static OpDef,
    /// Number for the next call that draws random numbers.
    pub draws: &'a mut u32,
    /// Torch's default float type.
    pub default_dtype: DType,
    /// Autograd sees the result: what it is made of is what the derivative is taken of, with these derivatives.
    pub training: Option<Subgradients>,
}

/// A refusal: the graph runs through torch instead.
pub fn refuse<T>(detail: impl Into<String>) -> Result<T, Reason> {
    Err(Reason::new(ReasonCode::NotLowered, detail))
}

/// The type in which values of `dtype` are computed.
pub fn compute_type(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::Bf16 => DType::F32,
        other => other,
    }
}

/// The bits of a number as a constant of this type.
pub fn bits_of(number: &Const, dtype: DType) -> Option<u64> {
    let (int, float) = match number {
        Const::Bool(b) => (i64::from(*b), f64::from(u8::from(*b))),
        Const::Int(i) => (*i, *i as f64),
        Const::Float(x) => (*x as i64, *x),
        _ => return None,
    };
    Some(match dtype {
        DType::F64 => float.to_bits(),
        DType::F32 | DType::F16 | DType::Bf16 => u64::from((float as f32).to_bits()),
        DType::Bool => u64::from(float != 0.0),
        DType::I64 => int as u64,
        DType::I32 => u64::from(int as i32 as u32),
        DType::I16 => u64::from(int as i16 as u16),
        DType::I8 => u64::from(int as i8 as u8),
        DType::U8 => u64::from(int as u8),
        _ => return None,
    })
}

impl Build for Decompose<'_> {
    fn core(&self) -> &Core {
        self.core
    }

    fn core_mut(&mut self) -> &mut Core {
        self.core
    }
}

impl Decompose<'_> {
    /// The result's metadata; a refusal if it is no tensor.
    pub fn result(&self) -> Result<TensorMeta, Reason> {
        self.meta.as_tensor().cloned().map_or_else(|| refuse(format!("{} yields no tensor", self.op.name)), Ok)
    }

    /// Metadata of the results of a call that yields several.
    pub fn results(&self) -> Result<Vec<TensorMeta>, Reason> {
        match self.meta {
            ValueMeta::Tensor(t) => Ok(vec![t.clone()]),
            ValueMeta::Tuple(items) => {
                let each = |m: &ValueMeta| m.as_tensor().cloned();
                let all: Option<Vec<_>> = items.iter().map(each).collect();
                all.map_or_else(|| refuse(format!("{} yields more than tensors", self.op.name)), Ok)
            }
            _ => refuse(format!("{} yields no tensor", self.op.name)),
        }
    }

    /// The node given for a parameter.
    pub fn node_of(&self, name: &str) -> Result<NodeId, Reason> {
        match self.bound.arg(name) {
            Some(Arg::Node(id)) => Ok(*id),
            _ => refuse(format!("{}: {name} is no tensor", self.op.name)),
        }
    }

    /// The tensor given for a parameter.
    pub fn tensor(&self, name: &str) -> Result<CoreId, Reason> {
        self.value_of(self.node_of(name)?)
    }

    /// The tensor given for a parameter, if one was.
    pub fn maybe_tensor(&self, name: &str) -> Result<Option<CoreId>, Reason> {
        match self.bound.arg(name) {
            None => Ok(None),
            Some(Arg::Node(id)) => self.value_of(*id).map(Some),
            Some(_) => refuse(format!("{}: {name} is no tensor", self.op.name)),
        }
    }

    /// The current value of a tensor node.
    pub fn value_of(&self, id: NodeId) -> Result<CoreId, Reason> {
        self.values.get(&id).copied().map_or_else(|| refuse(format!("{}: an argument is no tensor", self.op.name)), Ok)
    }

    /// The metadata of the tensor given for a parameter.
    pub fn meta_of(&self, name: &str) -> Result<TensorMeta, Reason> {
        let id = self.node_of(name)?;
        self.metas.get(&id).cloned().map_or_else(|| refuse("an argument is no tensor"), Ok)
    }

    /// A tensor or number as a value of this type (numbers with no dimensions).
    pub fn operand(&mut self, name: &str, dtype: DType) -> Result<CoreId, Reason> {
        match self.bound.value(name) {
            Some(Value::Arg(Arg::Node(id))) => {
                let value = self.value_of(*id)?;
                Ok(self.cast(value, dtype))
            }
            Some(Value::Arg(arg)) => match arg.seen() {
                Seen::Const(c) => self.constant(c, dtype, vec![]),
                Seen::Dim(d) => Ok(self.scalar(d, dtype)),
                _ => refuse(format!("{}: {name} is no number", self.op.name)),
            },
            Some(Value::Default(c)) => self.constant(c, dtype, vec![]),
            _ => refuse(format!("{}: {name} is missing", self.op.name)),
        }
    }

    /// A parameter as bool.
    pub fn flag(&self, name: &str) -> Result<bool, Reason> {
        self.bound.bool(name).or_else(|_| refuse(format!("{}: {name} is no bool", self.op.name)))
    }

    /// A parameter as a fixed int.
    pub fn int(&self, name: &str) -> Result<Option<i64>, Reason> {
        self.bound.int(name).or_else(|_| refuse(format!("{}: {name} is no fixed int", self.op.name)))
    }

    /// A parameter as a float.
    pub fn float(&self, name: &str) -> Result<Option<f64>, Reason> {
        self.bound.float(name).or_else(|_| refuse(format!("{}: {name} is no fixed number", self.op.name)))
    }

    /// A parameter as fixed ints.
    pub fn ints(&self, name: &str) -> Result<Option<Vec<i64>>, Reason> {
        self.bound.ints(name).or_else(|_| refuse(format!("{}: {name} is no list of fixed ints", self.op.name)))
    }

    /// The number a parameter has, given or by default.
    pub fn number(&self, name: &str) -> Result<Const, Reason> {
        self.bound
            .constant(name)
            .cloned()
            .map_or_else(|| refuse(format!("{}: {name} is no fixed number", self.op.name)), Ok)
    }

    /// A dimension counted from the front.
    pub fn axis(&self, dim: i64, rank: usize) -> Result<usize, Reason> {
        let rank = rank.max(1) as i64;
        let at = if dim < 0 { dim + rank } else { dim };
        if (0..rank).contains(&at) {
            Ok(at as usize)
        } else {
            refuse(format!("{}: dimension {dim} is out of range", self.op.name))
        }
    }

    /// `value` with its derivative by `of`, element by element, where one is to be taken: what autograd then takes for it is
    /// what torch does.
    pub fn sloped(&mut self, value: CoreId, of: CoreId, slope: impl FnOnce(&mut Self) -> CoreId) -> CoreId {
        if self.training.is_none() {
            return value;
        }
        let (slope, sizes) = (slope(self), self.sizes(value));
        let (of, slope) = (self.expand(of, &sizes), self.expand(slope, &sizes));
        let dtype = self.dtype(value);
        self.core.push(CoreOp::Sloped(value, of, slope), dtype, sizes)
    }

    /// A value that no derivative goes through, where one is to be taken.
    pub fn stopped(&mut self, value: CoreId) -> CoreId {
        if self.training.is_none() {
            return value;
        }
        let (dtype, sizes) = (self.dtype(value), self.sizes(value));
        self.core.push(CoreOp::Stop(value), dtype, sizes)
    }

    /// A constant repeated to these sizes.
    pub fn constant(&mut self, number: &Const, dtype: DType, sizes: Vec<Dim>) -> Result<CoreId, Reason> {
        match bits_of(number, dtype) {
            Some(bits) => Ok(self.core.push(CoreOp::Const(bits), dtype, sizes)),
            None => refuse(format!("{}: {number:?} is no {}", self.op.name, dtype.torch_name())),
        }
    }

    /// A torch op run as it is, with results of this metadata.
    pub fn call(
        &mut self,
        target: (&str, &str),
        out: Option<&str>,
        args: Vec<ExternArg>,
        results: &[TensorMeta],
    ) -> Vec<CoreId> {
        self.torch(target, out, args, results, None)
    }

    /// As [`Decompose::call`], for an op that draws random numbers.
    pub fn draw(&mut self, target: (&str, &str), args: Vec<ExternArg>, results: &[TensorMeta]) -> Vec<CoreId> {
        *self.draws += 1;
        let number = *self.draws;
        self.torch(target, None, args, results, Some(number))
    }

    /// Has a call for which a truth (bool, no dimensions) does not hold run again as plain Python, which raises. Where nothing
    /// waits for the device, that is.
    pub fn check(&mut self, holds: CoreId) {
        *self.draws += 1;
        let args = vec![ExternArg::Value(holds)];
        let call = ExternCall::pure((ExternCall::CHECK, "default"), None, args, 0);
        extern_call(self.core, ExternCall { order: Some(*self.draws), ..call }, &[]);
    }

    fn torch(
        &mut self,
        target: (&str, &str),
        out: Option<&str>,
        args: Vec<ExternArg>,
        results: &[TensorMeta],
        draw: Option<u32>,
    ) -> Vec<CoreId> {
        let pure = ExternCall::pure(target, out, args, results.len());
        extern_call(self.core, ExternCall { order: draw, draws: draw.is_some(), ..pure }, results)
    }
}

/// Adds a call of torch; its results have this metadata.
pub fn extern_call(core: &mut Core, call: ExternCall, results: &[TensorMeta]) -> Vec<CoreId> {
    let id = core.push(CoreOp::Extern(call.into()), DType::F32, vec![]);
    (0..).zip(results).map(|(i, meta)| call_result(core, id, i, meta)).collect()
}

/// Result `i` of a call of torch.
pub fn call_result(core: &mut Core, call: CoreId, i: u32, meta: &TensorMeta) -> CoreId {
    let result = core.push(CoreOp::Result(call, i), meta.dtype, meta.sizes.clone());
    core.pin(result, &meta.strides);
    result
}

/// The value under a view.
pub fn apply(core: &mut Core, id: CoreId, view: &View) -> CoreId {
    let node = core.node(id);
    let dtype = node.dtype;
    match view {
        View::Expand(sizes) if *sizes == node.sizes => id,
        View::Expand(sizes) => core.push(CoreOp::Expand(id), dtype, sizes.clone()),
        View::Permute(order) if order.iter().enumerate().all(|(d, o)| d as u32 == *o) => id,
        View::Permute(order) => {
            let sizes = order.iter().map(|d| node.sizes[*d as usize].clone()).collect();
            core.push(CoreOp::Permute(id, order.clone()), dtype, sizes)
        }
        View::Reshape(sizes) if *sizes == node.sizes => id,
        View::Reshape(sizes) => match node.op {
            CoreOp::Const(bits) => core.push(CoreOp::Const(bits), dtype, sizes.clone()),
            CoreOp::Reshape(inner) => apply(core, inner, view),
            _ => core.push(CoreOp::Reshape(id), dtype, sizes.clone()),
        },
        View::Slice { dim, start, step, length } => {
            let mut sizes = node.sizes.clone();
            if start.is(0) && *step == 1 && sizes[*dim as usize] == *length {
                return id;
            }
            sizes[*dim as usize] = length.clone();
            core.push(CoreOp::Slice(id, *dim, start.clone(), *step), dtype, sizes)
        }
        View::Sums { sizes, sums } => core.push(CoreOp::Sums(id, sums.clone()), dtype, sizes.clone()),
    }
}

/// The value in row-major memory, copied if what it is has another layout.
pub fn row_major(core: &mut Core, id: CoreId) -> CoreId {
    let node = core.node(id).clone();
    let strides = contiguous_strides(&node.sizes);
    let is_laid_out =
        if node.op.is_input() { node.strides == strides } else { !node.op.is_view() && core.pin(id, &strides) };
    if is_laid_out { id } else { core.add(CoreNode { op: CoreOp::Copy(id), strides, ..node }) }
}

/// What `base` is once its elements that the indices pick have these values: `base[indices] = value`.
pub fn index_put(core: &mut Core, base: CoreId, indices: Vec<ExternArg>, value: CoreId) -> CoreId {
    let base = row_major(core, base);
    let CoreNode { dtype, sizes, .. } = core.node(base).clone();
    let accumulate = ExternArg::Const(Const::Bool(false));
    let args = vec![ExternArg::Value(base), ExternArg::List(indices), ExternArg::Value(value), accumulate];
    let call = ExternCall::pure(("aten::index_put", "default"), None, args, 1);
    extern_call(core, call, &[TensorMeta::contiguous(dtype, core.device, sizes)])[0]
}
