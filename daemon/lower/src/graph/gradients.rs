//! `backward()` and `torch.autograd.grad` in a graph: gradients, computed in the graph itself.

use crate::graph::functional::Lowering;
use crate::graph::value::Value;
use flambeau_core::graph::{CoreId, CoreNode, CoreOp};
use flambeau_ir::code::Const;
use flambeau_ir::dim::Dim;
use flambeau_ir::graph::{Arg, GRADIENTS, Node, NodeId, Target, ValueMeta};
use flambeau_ir::reason::Reason;
use flambeau_ir::tensor::{TensorMeta, contiguous_strides, is_dense};
use flambeau_ops::decompose::refuse;
use std::collections::BTreeSet;

/// The arguments of such a call.
struct Asked<'a> {
    /// Of what, and the gradients that it begins with; where there is none, with one.
    of: Vec<(NodeId, Option<NodeId>)>,
    by: Vec<NodeId>,
    /// Torch's graph is there afterwards.
    keeps: bool,
    /// The gradients may have gradients.
    creates: bool,
    metas: &'a [ValueMeta],
    /// Only what lies between goes by, and nothing else of torch's graph.
    between: bool,
}

impl Asked<'_> {
    fn new<'a>(node: &'a Node, target: &Target, args: &[Arg]) -> Option<Asked<'a>> {
        let ValueMeta::Tuple(metas) = &node.meta else { return None };
        let is = |arg: &Arg| *arg == Arg::Const(Const::Bool(true));
        let nodes = |arg: &Arg| match arg {
            Arg::List(items) => items.iter().map(node_of).collect::<Option<Vec<_>>>(),
            _ => None,
        };
        let seed = |arg: &Arg| match arg {
            Arg::Const(Const::None) => Some(None),
            arg => node_of(arg).map(Some),
        };
        if matches!(target, Target::Function(path) if &**path == GRADIENTS) {
            let [of, with, leaves, keeps] = args else { return None };
            let of = vec![(node_of(of)?, seed(with)?)];
            return Some(Asked { of, by: nodes(leaves)?, keeps: is(keeps), creates: false, metas, between: false });
        }
        let [of, Arg::List(seeds), by, keeps, creates] = args else { return None };
        let seeds = seeds.iter().map(seed).collect::<Option<Vec<_>>>()?;
        let of = nodes(of)?.into_iter().zip(seeds).collect();
        Some(Asked { of, by: nodes(by)?, keeps: is(keeps), creates: is(creates), metas, between: true })
    }
}

fn node_of(arg: &Arg) -> Option<NodeId> {
    if let Arg::Node(id) = arg { Some(*id) } else { None }
}

impl Lowering<'_> {
    /// What [`GRADIENTS`] or [`flambeau_ir::graph::ASKED`] gives for these arguments.
    pub fn gradients(&mut self, node: &Node, target: &Target, args: &[Arg]) -> Result<Value, Reason> {
        let Some(asked) = Asked::new(node, target, args) else { return refuse("gradients of what is no tensor") };
        if self.follow.is_none() {
            return refuse("gradients of what autograd does not follow");
        }
        let mut roots = Vec::new();
        for (of, seed) in &asked.of {
            let seed = seed.map(|seed| self.present(seed)).transpose()?;
            let Value::Tensor { base, views, meta, severed: false } = self.values[of.0 as usize].clone() else {
                return refuse("a gradient of a tensor that shares memory only");
            };
            roots.push((self.taken(base, &views, &meta), seed));
        }
        self.check_connected(&asked)?;
        let points: Vec<CoreId> = asked.by.iter().map(|id| self.point(*id)).collect::<Result<_, _>>()?;
        let found = flambeau_derive::within(&mut self.core, &points, &roots, asked.creates)?;
        let mut given = Vec::new();
        for (gradient, meta) in found.into_iter().zip(asked.metas) {
            let ValueMeta::Tensor(meta) = meta else { return refuse("a gradient that is no tensor") };
            let CoreNode { dtype, sizes, .. } = self.core.node(gradient).clone();
            let end = if meta.requires_grad { gradient } else { self.core.push(CoreOp::Stop(gradient), dtype, sizes) };
            // Others lie otherwise in torch's memory, as parts of larger ones; such do not leave the graph.
            let lies = dense(meta);
            let mut value = self.fresh(end, &TensorMeta { strides: lies, ..meta.clone() })?;
            if let Value::Tensor { meta: shown, .. } = &mut value {
                *shown = meta.clone();
            }
            given.push(value);
        }
        let given = Value::Tuple(given);
        self.note_gradients(node, &asked, &given);
        Ok(given)
    }

    /// Inputs of the graph that autograd does not connect with what the gradient is of have none.
    fn check_connected(&self, asked: &Asked<'_>) -> Result<(), Reason> {
        let base_of = |id: &NodeId| self.values[id.0 as usize].base();
        let Some(follow) = &self.follow else { return Ok(()) };
        let mut reached = BTreeSet::new();
        asked.of.iter().filter_map(|(of, _)| base_of(of)).for_each(|base| reached.extend(follow.reached(base)));
        let lost = asked
            .by
            .iter()
            .filter_map(base_of)
            .filter_map(|base| self.bases[base].input)
            .find(|i| !reached.contains(i));
        match lost {
            Some(_) => refuse("a leaf that the graph does not connect with what its gradient is of"),
            None => Ok(()),
        }
    }

    /// Notes what torch saves for the gradients' own gradients, what they are connected with, and what it frees.
    fn note_gradients(&mut self, node: &Node, asked: &Asked<'_>, given: &Value) {
        let mut behind: BTreeSet<NodeId> = BTreeSet::new();
        asked.of.iter().for_each(|(of, _)| behind.extend(self.behind(*of)));
        if asked.between {
            let between = self.downstream(&asked.by);
            behind.retain(|id| between.contains(id));
        }
        self.note_derived(node, &behind, given);
        if !asked.keeps {
            self.follow.iter_mut().for_each(|follow| follow.free(&behind));
        }
    }

    /// The value of a tensor now, as an argument.
    fn present(&mut self, of: NodeId) -> Result<CoreId, Reason> {
        match self.values[of.0 as usize].clone() {
            Value::Tensor { base, views, meta, severed } => {
                let value = self.taken(base, &views, &meta);
                self.as_followed(value, base, (&meta, !views.is_empty(), severed))
            }
            _ => refuse("a gradient that is no tensor"),
        }
    }
}

/// Strides of a tensor that shows a part of another, as calls would give them for it.
fn dense(meta: &TensorMeta) -> Vec<Dim> {
    if is_dense(&meta.sizes, &meta.strides) {
        return meta.strides.clone();
    }
    let fixed: Option<Vec<i64>> = meta.strides.iter().map(Dim::as_const).collect();
    let Some(fixed) = fixed.filter(|strides| strides.iter().all(|stride| *stride > 0)) else {
        return contiguous_strides(&meta.sizes);
    };
    let mut order: Vec<usize> = (0..fixed.len()).collect();
    order.sort_by_key(|d| std::cmp::Reverse(fixed[*d]));
    let inner = contiguous_strides(&order.iter().map(|d| meta.sizes[*d].clone()).collect::<Vec<_>>());
    let mut strides = meta.strides.clone();
    order.into_iter().zip(inner).for_each(|(d, stride)| strides[d] = stride);
    strides
}
