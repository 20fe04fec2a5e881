//! Calls that no kernel computes and that mean no op with a schema that a plan could call: the plan calls what the program
//! calls, as one step. What is around it is still fused.

use crate::graph::functional::Lowering;
use crate::graph::regions::has_overlap;
use crate::nest::affine::same_layout;
use flambeau_core::graph::{CoreId, ExternArg, ExternCall};
use flambeau_ir::code::Const;
use flambeau_ir::dim::Dim;
use flambeau_ir::graph::{Arg, Effect, Node, NodeId, NodeOp, Target, ValueMeta, WARNS};
use flambeau_ir::guard::{Ambient, Relation};
use flambeau_ir::plan::{CALLED, WARNED};
use flambeau_ir::reason::Reason;
use flambeau_ir::tensor::{TensorMeta, is_dense};
use flambeau_ops::decompose::{Outcome, extern_call, refuse, row_major};
use flambeau_ops::{Inferred, OpArg, ShapeEnv};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A call of the graph.
#[derive(Clone, Copy)]
pub struct Foreign<'a> {
    /// The node.
    pub node: &'a Node,
    /// What is called.
    pub target: &'a Target,
    /// Positional arguments.
    pub args: &'a [Arg],
    /// Named arguments.
    pub kwargs: &'a [(Arc<str>, Arg)],
    /// Current value of every tensor argument.
    pub values: &'a BTreeMap<NodeId, CoreId>,
    /// Metadata of every tensor argument.
    pub metas: &'a BTreeMap<NodeId, TensorMeta>,
    /// The tensor that it writes to and returns.
    pub written: Option<NodeId>,
}

impl Lowering<'_> {
    /// Adds the call as the program's own.
    pub fn foreign(&mut self, call: &Foreign<'_>) -> Result<Outcome, Reason> {
        let (Target::Function(name) | Target::Method(name)) = call.target;
        if let "torch._assert_async" | WARNS = &**name {
            return self.checked(call, if &**name == WARNS { WARNED } else { ExternCall::CHECK });
        }
        let names_out = call.kwargs.iter().any(|(name, _)| &**name == "out");
        let writes_first = call.written.is_some();
        let acts = call.node.effect == Effect::Commits || call.node.effect == Effect::Private && !writes_first;
        if acts || names_out {
            return refuse(format!("{name} may do more than make a new tensor"));
        }
        let metas = match (call.written.and_then(|id| call.metas.get(&id)), &call.node.meta) {
            (Some(meta), _) => vec![TensorMeta::contiguous(meta.dtype, meta.device, meta.sizes.clone())],
            (None, ValueMeta::Tensor(meta)) => vec![meta.clone()],
            (None, ValueMeta::Tuple(items)) => {
                let is_given = |item: &&ValueMeta| **item != ValueMeta::Const(Const::None);
                let tensors = items.iter().filter(is_given).map(|item| item.as_tensor().cloned());
                match tensors.collect() {
                    Some(metas) => metas,
                    None => return refuse(format!("{name} gives more than tensors")),
                }
            }
            _ => return refuse(format!("{name} gives no tensor")),
        };
        if metas.iter().any(|meta| has_overlap(&meta.sizes, &meta.strides)) {
            return refuse(format!("{name} gives a tensor whose elements share memory"));
        }
        let text = |text: &str| ExternArg::Const(Const::str(text));
        let path = match call.target {
            Target::Function(path) => text(path),
            Target::Method(name) => text(&format!(".{name}")),
        };
        let names = ExternArg::List(call.kwargs.iter().map(|(name, _)| text(name)).collect());
        let strides = |meta: &TensorMeta| ExternArg::List(meta.strides.iter().cloned().map(ExternArg::Dim).collect());
        let strides = ExternArg::List(metas.iter().map(strides).collect());
        let mut args = vec![path, names, ExternArg::Const(Const::Bool(writes_first)), strides];
        for arg in call.args.iter().chain(call.kwargs.iter().map(|(_, arg)| arg)) {
            args.push(self.foreign_arg(call, arg)?);
        }
        let draws = call.node.effect == Effect::Draws;
        // What an op of a library does beside its results is not known.
        let is_librarys = call.node.schema.as_ref().is_some_and(|schema| !schema.starts_with("aten::"));
        let order = (draws || is_librarys).then(|| self.next_draw());
        let pure = ExternCall::pure((CALLED, "default"), None, args, metas.len());
        if !writes_first && !call.makes_new() {
            if metas.len() > 1 {
                return refuse(format!("{name} gives tensors that may share memory"));
            }
            self.lends.extend(call.metas.keys().filter_map(|id| self.values[id.0 as usize].base()));
        }
        let ids = extern_call(&mut self.core, ExternCall { order, draws, ..pure }, &metas);
        Ok(match (call.written, &call.node.meta) {
            (Some(id), _) => Outcome::Write(id, ids[0]),
            (None, ValueMeta::Tensor(_)) => Outcome::Fresh(ids[0]),
            (None, ValueMeta::Tuple(items)) => {
                let mut ids = ids.into_iter();
                let given =
                    |item: &ValueMeta| item.as_tensor().and_then(|_| ids.next()).map_or(Outcome::None, Outcome::Fresh);
                Outcome::Tuple(items.iter().map(given).collect())
            }
            _ => Outcome::None,
        })
    }

    /// A call that gives nothing and may raise ([`ExternCall::only_checks`]).
    fn checked(&mut self, call: &Foreign<'_>, op: &str) -> Result<Outcome, Reason> {
        let args = call.args.iter().map(|arg| self.foreign_arg(call, arg)).collect::<Result<_, _>>()?;
        let order = Some(self.next_draw());
        extern_call(&mut self.core, ExternCall { order, ..ExternCall::pure((op, "default"), None, args, 0) }, &[]);
        Ok(Outcome::None)
    }

    /// An argument, whose tensors lie in memory as torch has them: results may lie as arguments do.
    fn foreign_arg(&mut self, call: &Foreign<'_>, arg: &Arg) -> Result<ExternArg, Reason> {
        flambeau_ir::bounds::check();
        let text = |text: &str| ExternArg::Const(Const::str(text));
        let mut sequence = |kind: &str, items: &[Arg]| {
            let items = items.iter().map(|item| self.foreign_arg(call, item));
            Ok(ExternArg::List(std::iter::once(Ok(text(kind))).chain(items).collect::<Result<_, Reason>>()?))
        };
        match arg {
            Arg::List(items) => sequence("list", items),
            Arg::Tuple(items) => sequence("tuple", items),
            Arg::Slice(parts) => sequence("slice", &parts[..]),
            Arg::Dict(items) => {
                let flat: Vec<Arg> =
                    items.iter().flat_map(|(key, item)| [Arg::Const(key.clone()), item.clone()]).collect();
                sequence("dict", &flat)
            }
            Arg::Const(value) => Ok(ExternArg::Const(value.clone())),
            Arg::Dim(dim) => Ok(ExternArg::Dim(dim.clone())),
            Arg::Node(id) => match (call.values.get(id), call.metas.get(id), &self.graph.node(*id).meta) {
                (Some(value), Some(_), _) if call.written == Some(*id) => {
                    Ok(ExternArg::Value(row_major(&mut self.core, *value)))
                }
                (Some(value), Some(meta), _) if is_dense(&meta.sizes, &meta.strides) => {
                    let node = self.core.node(*value);
                    let lies_so = node.op.is_input() && same_layout(&node.sizes, &node.strides, &meta.strides);
                    Ok(ExternArg::Value(if lies_so { *value } else { self.laid_out(*value, &meta.strides) }))
                }
                (Some(value), Some(_), _) => Ok(ExternArg::Value(*value)),
                (None, _, ValueMeta::Int(dim)) => Ok(ExternArg::Dim(dim.clone())),
                (None, _, ValueMeta::Object) => match &self.graph.node(*id).op {
                    NodeOp::Placeholder(source) => Ok(ExternArg::Object(*source)),
                    NodeOp::Call { .. } => refuse("an object that a call gives"),
                },
                _ => refuse("an argument that is no tensor"),
            },
        }
    }

    /// Notes that a new tensor may share these others' memory.
    pub fn share(&mut self, base: usize, with: &[usize]) {
        self.bases[base].shares.extend(with.iter().filter(|other| **other != base));
    }

    /// Whether an output may share memory with what is seen outside of the graph.
    pub fn is_seen_to_share(&self, base: usize) -> bool {
        let family = self.family(base);
        let is_of_family = |id: &NodeId| {
            self.values[id.0 as usize].base().is_some_and(|other| !self.family(other).is_disjoint(&family))
        };
        family.len() > 1
            && (family.iter().any(|of| self.bases[*of].input.is_some())
                || self.graph.outputs.iter().filter(|id| is_of_family(id)).count() > 1)
    }

    /// The base and those whose memory it may share.
    fn family(&self, base: usize) -> BTreeSet<usize> {
        let mut found = BTreeSet::from([base]);
        let mut left = vec![base];
        while let Some(of) = left.pop() {
            left.extend(self.bases[of].shares.iter().copied().filter(|other| found.insert(*other)));
        }
        found
    }
}

impl Foreign<'_> {
    /// Whether it gives tensors that share no memory with its arguments, and writes to none.
    fn makes_new(&self) -> bool {
        if self.node.fresh {
            return true;
        }
        let arg = |arg: &Arg| self.op_arg(arg);
        let args: Option<Vec<OpArg>> = self.args.iter().map(arg).collect();
        let kwargs: Option<Vec<(Arc<str>, OpArg)>> =
            self.kwargs.iter().map(|(name, of)| Some((name.clone(), arg(of)?))).collect();
        let Some((args, kwargs)) = args.zip(kwargs) else { return false };
        let mut sizes = Fixed { all: true };
        let told = flambeau_ops::infer(self.target, &args, &kwargs, &Ambient::default(), &mut sizes);
        let is_new = |Inferred { returns_argument, view_of, mutates, .. }: Inferred| {
            returns_argument.is_none() && view_of.is_none() && mutates.is_empty()
        };
        told.is_ok_and(is_new) && sizes.all
    }

    fn op_arg(&self, arg: &Arg) -> Option<OpArg> {
        let each = |items: &[Arg]| items.iter().map(|item| self.op_arg(item)).collect::<Option<Vec<_>>>();
        Some(match arg {
            Arg::Node(id) => OpArg::Tensor(self.metas.get(id)?.clone()),
            Arg::Const(value) => OpArg::Const(value.clone()),
            Arg::Dim(dim) => OpArg::Dim(dim.clone()),
            Arg::List(items) => OpArg::List(each(items)?),
            Arg::Tuple(items) => OpArg::Tuple(each(items)?),
            Arg::Slice(_) | Arg::Dict(_) => return None,
        })
    }
}

/// Sizes of which nothing is known but what is fixed.
struct Fixed {
    /// Nothing else was asked for.
    all: bool,
}

impl ShapeEnv for Fixed {
    fn decide(&mut self, _: Relation, _: &Dim, _: &Dim) -> bool {
        self.all = false;
        false
    }
}
