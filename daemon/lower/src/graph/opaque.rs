//! Calls that no kernel computes: torch's own op becomes one step of the plan, and what is around it is still fused. An op
//! without an aten overload that says all it does in its schema is refused.

use crate::nest::body::computes;
use flambeau_core::graph::{Core, CoreId, CoreOp, ExternArg, ExternCall};
use flambeau_ir::Capabilities;
use flambeau_ir::code::Const;
use flambeau_ir::graph::{Arg, NodeId, Target, ValueMeta};
use flambeau_ir::kernel::DType;
use flambeau_ir::reason::Reason;
use flambeau_ir::tensor::TensorMeta;
use flambeau_ops::aten::{self, Chosen, Overload};
use flambeau_ops::decompose::{Outcome, extern_call, refuse};
use flambeau_ops::{Mark, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The first operation among the nodes from `start` on that the back end has no code for.
pub fn missing(core: &Core, start: usize, table: &Capabilities) -> Option<String> {
    core.nodes()[start..].iter().find_map(|node| {
        let dtype = |id: &CoreId| core.node(*id).dtype;
        let (known, what, of) = match &node.op {
            CoreOp::Unary(op, a) => (table.unary.contains(&(*op, dtype(a))), format!("{op:?}"), dtype(a)),
            CoreOp::Binary(op, a, _) => (table.binary.contains(&(*op, dtype(a))), format!("{op:?}"), dtype(a)),
            CoreOp::Cast(a) => (table.casts.contains(&(dtype(a), node.dtype)), "cast".to_owned(), dtype(a)),
            CoreOp::Reduce(op, ..) => (table.reduces.contains(&(*op, node.dtype)), format!("{op:?}"), node.dtype),
            _ => return None,
        };
        (!known).then(|| format!("{what} of {}", of.torch_name()))
    })
}

/// The type of complex numbers that the nodes from `start` on compute with, which no kernel does.
pub fn complex(core: &Core, start: usize) -> Option<DType> {
    let passes_on = |op: &CoreOp| op.is_view() || !computes(op) && !matches!(op, CoreOp::Join(..));
    let computing = core.nodes()[start..].iter().filter(|node| !passes_on(&node.op));
    computing
        .flat_map(|node| node.op.operands().into_iter().map(|id| core.node(id).dtype).chain([node.dtype]))
        .find(|dtype| dtype.is_complex())
}

/// The call of torch that made `value` of the tensor `shown`, for a write to it.
pub fn made_by(core: &Core, shown: CoreId, value: CoreId) -> Option<&ExternCall> {
    let CoreOp::Result(call, 0) = core.node(value).op else { return None };
    let CoreOp::Extern(call) = &core.node(call).op else { return None };
    let Some(ExternArg::Value(of)) = call.args.first() else { return None };
    (*of == shown || core.node(*of).op == CoreOp::Copy(shown)).then_some(call)
}

/// Such a call as one that writes to the tensor itself. Only of ops that overwrite: what they write is the same when a graph
/// that failed later is run again.
pub fn in_place(call: &ExternCall) -> Option<ExternCall> {
    let adds = call.args.get(3) == Some(&ExternArg::Const(Const::Bool(true)));
    let overwrites = match &*call.op {
        "aten::index_copy" | "aten::index_fill" | "aten::masked_fill" | "aten::masked_scatter" => true,
        "aten::index_put" | "aten::put" => !adds,
        "aten::scatter" => matches!(&*call.overload, "src" | "value"),
        _ => false,
    };
    let op = format!("{}_", call.op).into();
    overwrites.then(|| ExternCall { op, out: None, results: 0, in_place: true, ..call.clone() })
}

/// A call of the graph.
pub struct Call<'a> {
    /// What is called.
    pub target: &'a Target,
    /// Positional arguments.
    pub args: &'a [Arg],
    /// Named arguments.
    pub kwargs: &'a [(Arc<str>, Arg)],
    /// What it yields.
    pub meta: &'a ValueMeta,
    /// Current value of every tensor argument.
    pub values: &'a BTreeMap<NodeId, CoreId>,
    /// Whether what it yields is known to share no memory with an argument.
    pub fresh: bool,
    /// The schema of the overload of `torch.ops` that it means.
    pub schema: Option<&'a str>,
    /// The tensor that gets the result, and its metadata.
    pub written: Option<(NodeId, TensorMeta)>,
}

impl Call<'_> {
    /// Adds the call as torch's own.
    pub fn lower(&self, core: &mut Core, draws: &mut u32) -> Result<Outcome, Reason> {
        let names_out = self.kwargs.iter().any(|(name, arg)| &**name == "out" && *arg != Arg::Const(Const::None));
        if self.written.is_none() && (flambeau_ops::writes_first(self.target) || names_out) {
            return refuse("a call that writes to other than one tensor");
        }
        let Some(Chosen { overload, args }) = self.choose() else {
            return refuse("no aten overload makes a new tensor from these arguments");
        };
        let name = &overload.op;
        let metas = match (&self.written, self.meta) {
            (Some((_, meta)), _) | (None, ValueMeta::Tensor(meta)) => vec![meta.clone()],
            (None, ValueMeta::Tuple(items)) => match items.iter().map(|m| m.as_tensor().cloned()).collect() {
                Some(metas) => metas,
                None => return refuse(format!("{name} yields more than tensors")),
            },
            _ => return refuse(format!("{name} yields no tensor")),
        };
        if overload.results.is_some_and(|count| count != metas.len()) {
            return refuse(format!("{name} yields {} tensors, which torch does not", metas.len()));
        }
        // What an op of a library does beside its results is not known: it runs, and in its place.
        let in_order = overload.rng || self.schema.is_some() && !self.is_torchs();
        if in_order {
            *draws += 1;
        }
        let call = ExternCall {
            op: overload.op.as_str().into(),
            overload: overload.overload.as_str().into(),
            out: if self.written.is_some() { overload.out.as_deref().map(Into::into) } else { None },
            args: args
                .iter()
                .map(|a| self.argument(a))
                .collect::<Option<_>>()
                .map_or_else(|| refuse(name.as_str()), Ok)?,
            results: metas.len() as u32,
            order: in_order.then_some(*draws),
            draws: overload.rng,
            in_place: false,
        };
        let ids = extern_call(core, call, &metas);
        Ok(match (&self.written, self.meta) {
            (Some((id, _)), _) => Outcome::Write(*id, ids[0]),
            (None, ValueMeta::Tensor(_)) => Outcome::Fresh(ids[0]),
            _ => Outcome::Tuple(ids.into_iter().map(Outcome::Fresh).collect()),
        })
    }

    fn is_torchs(&self) -> bool {
        self.schema.is_some_and(|schema| schema.starts_with("aten::"))
    }

    /// A result that is written to a tensor has that tensor's type and layout: only overloads that are given the memory
    /// convert to them.
    fn choose(&self) -> Option<Chosen> {
        let whole = self.written.is_some();
        if let Some(schema) = self.schema {
            let read = Overload::of_schema(schema).filter(|_| !whole)?;
            // Not all of torch's own schemas tell what their ops write to.
            let overload = if self.is_torchs() { aten::listed(&read.op, &read.overload)? } else { read.into() };
            let args = overload.bind(self.args, self.kwargs, false)?;
            return Some(Chosen { overload, args });
        }
        let canon = flambeau_ops::canonical(self.target);
        let bound = canon.as_ref().and_then(|canon| Some((canon, canon.bind(self.args, self.kwargs).ok()?)));
        // Another overload of an op of which we have one.
        if canon.is_some() && bound.is_none() && !self.fresh {
            return None;
        }
        let chosen = match bound {
            // Bound by our signature: methods and operators have orders of their own.
            Some((canon, bound)) => {
                // `x.bernoulli_()` draws with 0.5 where `bernoulli(x)` draws with the elements of `x`.
                let name = canon.op.name.trim_end_matches('_');
                // `linalg_vector_norm` is `vector_norm` in `torch.linalg`.
                let longer = aten_name(self.target).filter(|longer| longer.ends_with(&format!("_{name}")));
                let name = longer.as_deref().unwrap_or(name);
                let given = bound.iter().filter_map(|(param, value)| {
                    let arg = match value {
                        Value::Arg(arg) => arg.clone(),
                        Value::Spread(items) => Arg::List(items.to_vec()),
                        Value::Default(c) if canon.op.has(Mark::Writes) && *c != Const::None => Arg::Const(c.clone()),
                        Value::Default(_) => return None,
                    };
                    (param.name != "out").then(|| (param.name.into(), arg))
                });
                aten::choose(name, &[], &self.on_its_device(given.collect()), (whole, self.fresh))
            }
            None => {
                let kwargs = self.kwargs.iter().filter(|(n, _)| &**n != "out").cloned().collect();
                aten::choose(&aten_name(self.target)?, self.args, &self.on_its_device(kwargs), (whole, self.fresh))
            }
        };
        let own = |c: &Chosen| !matches!(self.target, Target::Method(_)) || c.overload.is_method();
        chosen.filter(|c| own(c) && (!whole || c.overload.out.is_some()))
    }

    /// Named arguments. Where a call has no tensors, torch's default device may have chosen that of the result, and is none
    /// of aten's.
    fn on_its_device(&self, mut kwargs: Vec<(Arc<str>, Arg)>) -> Vec<(Arc<str>, Arg)> {
        let is_none = |(name, arg): &(Arc<str>, Arg)| &**name == "device" && *arg == Arg::Const(Const::None);
        kwargs.retain(|named| !is_none(named));
        let given = kwargs.iter().any(|(name, _)| &**name == "device");
        if let (true, false, Some(meta)) = (self.values.is_empty(), given, self.meta.as_tensor())
            && !meta.device.is_host()
        {
            kwargs.push(("device".into(), Arg::Const(Const::Device(meta.device))));
        }
        kwargs
    }

    fn argument(&self, arg: &Arg) -> Option<ExternArg> {
        Some(match arg {
            Arg::Node(id) => ExternArg::Value(*self.values.get(id)?),
            Arg::Const(c) => ExternArg::Const(c.clone()),
            Arg::Dim(d) => ExternArg::Dim(d.clone()),
            Arg::List(items) | Arg::Tuple(items) => {
                ExternArg::List(items.iter().map(|i| self.argument(i)).collect::<Option<_>>()?)
            }
            Arg::Slice(_) | Arg::Dict(_) => return None,
        })
    }
}

/// The op's name in aten without its namespace. A name that ends in `_` is that of the op that writes to its argument.
fn aten_name(target: &Target) -> Option<String> {
    let (prefix, name) = match target {
        Target::Method(name) => ("", &**name),
        Target::Function(path) => {
            let (module, name) = path.rsplit_once('.')?;
            match module {
                "torch" | "torch._C._VariableFunctions" | "torch._C._VariableFunctionsClass" => ("", name),
                "torch._C._nn" | "torch._C._special" | "torch._C._linalg" | "torch._C._fft" => ("", name),
                "torch.special" => ("special_", name),
                "torch.linalg" => ("linalg_", name),
                "torch.fft" => ("fft_", name),
                _ => return None,
            }
        }
    };
    Some(format!("{prefix}{}", name.strip_suffix('_').unwrap_or(name)))
}
