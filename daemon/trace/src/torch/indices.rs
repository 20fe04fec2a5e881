//! Calls that raise for what their tensors hold only where an index lies outside of a dimension. Where what the indices are
//! can be told before the graph runs, that is checked then, and such a call may stand behind the commit point.

use crate::state::tracer::Tracer;
use crate::value::{TensorId, Value};
use flambeau_ir::code::Const;
use flambeau_ir::dim::{Dim, SymId};
use flambeau_ir::graph::{Arg, Effect, Node, NodeId, NodeOp, Target};
use flambeau_ir::kernel::DType;
use flambeau_ir::plan::{IndexCheck, Term};
use std::sync::Arc;

/// The ops with the names of the parameters that are indexed and that hold the indices.
const INDEXING: &[(&str, &str, &str)] = &[
    ("embedding", "weight", "indices"),
    ("gather", "input", "index"),
    ("index_add", "input", "index"),
    ("index_copy", "input", "index"),
    ("index_fill", "input", "index"),
    ("index_select", "input", "index"),
    ("scatter", "input", "index"),
    ("scatter_add", "input", "index"),
];

/// Ops that give the numbers of their first argument, all or some of them.
const PASSING: &[&str] = &[
    "clone",
    "contiguous",
    "expand",
    "flatten",
    "getitem",
    "permute",
    "reshape",
    "squeeze",
    "t",
    "to",
    "transpose",
    "unsqueeze",
    "view",
];

/// Ops that say where in their input along a dimension, the last unless they are told, they found what they give.
const FINDING: &[&str] = &["argmax", "argmin", "argsort", "kthvalue", "max", "median", "min", "mode", "sort", "topk"];

/// Terms of one check.
const MOST_TERMS: usize = 32;

/// A call's arguments, as its node has them.
pub(super) type GraphArgs<'a> = (&'a [Arg], &'a [(Arc<str>, Arg)]);

impl Tracer<'_> {
    /// What has to hold for the call to raise nothing; `None` where that cannot be told before the graph runs.
    pub(super) fn index_check(&self, target: &Target, (args, kwargs): GraphArgs<'_>) -> Option<IndexCheck> {
        let canon = flambeau_ops::canonical(target)?;
        let (name, indexed, indices) = INDEXING.iter().find(|(name, ..)| *name == canon.op.name)?;
        let bound = canon.bind(args, kwargs).ok()?;
        let (Arg::Node(indexed), Arg::Node(indices)) = (bound.arg(indexed)?, bound.arg(indices)?) else { return None };
        let sizes = &self.arenas.tensors[self.tensor_of(*indexed)?].meta.sizes;
        let dim = if *name == "embedding" { 0 } else { place(bound.int("dim").ok()??, sizes.len())? };
        let size = sizes.get(dim)?.clone();
        let mut numbers = Vec::new();
        self.numbers(*indices, self.graph.nodes.len(), &mut numbers)?;
        let check = IndexCheck { numbers, size };
        // Where sizes alone decide, a check that fails now would always fail.
        let of_sizes = !check.numbers.iter().any(|term| matches!(term, Term::Tensor(_)));
        let seen = |symbol: SymId| self.hint(&Dim::sym(symbol));
        (!of_sizes || check.holds(&mut |_| None, &seen)).then_some(check)
    }

    /// Remembers what a call, made by this node, wrote to.
    pub(super) fn note_changed(&mut self, node: NodeId, written: impl Iterator<Item = Value>) {
        for value in written {
            match value {
                Value::Tensor(id) => self.graph.changed.push((node, id)),
                Value::List(list) => {
                    let items = self.arenas.lists[list].items.clone();
                    self.note_changed(node, items.into_iter());
                }
                Value::Tuple(tuple) => self.note_changed(node, tuple.items.iter().cloned()),
                _ => {}
            }
        }
    }

    fn tensor_of(&self, node: NodeId) -> Option<TensorId> {
        self.arenas.tensors.iter().find(|(_, tensor)| tensor.node == node).map(|(id, _)| id)
    }

    /// The numbers that a node's tensor of integers holds when the node at `read_at` reads it.
    fn numbers(&self, node: NodeId, read_at: usize, terms: &mut Vec<Term>) -> Option<()> {
        let tensor = self.tensor_of(node)?;
        let meta = &self.arenas.tensors[tensor].meta;
        let fits = meta.dtype == DType::I64 && meta.device.is_cpu() && terms.len() < MOST_TERMS;
        if !fits || self.may_be_changed(tensor, read_at) {
            return None;
        }
        let at = node.0 as usize;
        let (target, args, kwargs) = match &self.graph.nodes.get(at)?.op {
            NodeOp::Placeholder(source) => {
                if self.hint(&meta.numel()) > IndexCheck::MOST_NUMBERS {
                    return None;
                }
                terms.push(Term::Tensor(*source));
                return Some(());
            }
            NodeOp::Call { target, args, kwargs } => (target, args, kwargs),
        };
        let canon = flambeau_ops::canonical(target).filter(|canon| !canon.inplace)?;
        let bound = canon.bind(args, kwargs).ok()?;
        let operation = match canon.op.name {
            "arange" => {
                let start = bound.arg("start").map_or(Some(Dim::Const(0)), dim_of)?;
                let end = bound.arg("end").and_then(dim_of)?;
                let by_one = |step: &Arg| *step == Arg::Const(Const::Int(1));
                if !bound.arg("step").is_none_or(by_one) {
                    return None;
                }
                terms.push(Term::Between(start, end.sub(&Dim::Const(1))));
                return Some(());
            }
            "argmax" | "argmin" | "argsort" => {
                terms.push(self.positions(node)?);
                return Some(());
            }
            "add" => Term::Add,
            "sub" => Term::Sub,
            "mul" => Term::Mul,
            name if PASSING.contains(&name) => {
                let Arg::Node(from) = args.first()? else { return None };
                if self.graph.nodes[from.0 as usize].meta.as_tensor().is_some() {
                    return self.numbers(*from, at, terms);
                }
                // Of several results the second says where the first was found.
                let is_second = args.get(1) == Some(&Arg::Const(Const::Int(1)));
                terms.push(is_second.then(|| self.positions(*from))??);
                return Some(());
            }
            _ => return None,
        };
        if bound.arg("alpha").is_some_and(|alpha| *alpha != Arg::Const(Const::Int(1))) {
            return None;
        }
        let mut several = 0;
        for name in ["input", "other"] {
            match bound.arg(name)? {
                Arg::Node(operand) => {
                    let meta = self.graph.nodes[operand.0 as usize].meta.as_tensor()?;
                    several += usize::from(!meta.numel().is(1));
                    // Of two sets of numbers it is not known which meet.
                    if several == 2 {
                        return None;
                    }
                    self.numbers(*operand, at, terms)?;
                }
                number => {
                    let number = dim_of(number)?;
                    terms.push(Term::Between(number.clone(), number));
                }
            }
        }
        terms.push(operation);
        Some(())
    }

    /// Whether one of the first nodes may write to a tensor: it does what cannot be taken back, and nothing says what.
    fn may_be_changed(&self, tensor: TensorId, nodes: usize) -> bool {
        let changed = &self.graph.changed;
        let known = |at: usize| changed.iter().any(|(by, _)| by.0 as usize == at);
        let commits = |node: &Node| node.effect == Effect::Commits;
        changed.iter().any(|(by, other)| (by.0 as usize) < nodes && self.share_memory(*other, tensor))
            || self.graph.nodes[..nodes].iter().enumerate().any(|(at, node)| commits(node) && !known(at))
    }

    /// What a call can give as positions.
    fn positions(&self, node: NodeId) -> Option<Term> {
        let NodeOp::Call { target, args, kwargs } = &self.graph.nodes[node.0 as usize].op else { return None };
        let canon = flambeau_ops::canonical(target).filter(|canon| FINDING.contains(&canon.op.name))?;
        let bound = canon.bind(args, kwargs).ok()?;
        let Arg::Node(input) = bound.arg("input")? else { return None };
        let meta = &self.arenas.tensors[self.tensor_of(*input)?].meta;
        let count = match bound.arg("dim") {
            Some(Arg::Const(Const::Int(dim))) => meta.sizes.get(place(*dim, meta.ndim())?)?.clone(),
            None if matches!(canon.op.name, "argmax" | "argmin") => meta.numel(),
            None => meta.sizes.last()?.clone(),
            Some(_) => return None,
        };
        Some(Term::Between(Dim::Const(0), count.sub(&Dim::Const(1))))
    }
}

/// The dimension that a number means, which counts from the end if it is negative.
fn place(dim: i64, ndim: usize) -> Option<usize> {
    usize::try_from(if dim < 0 { dim + i64::try_from(ndim).ok()? } else { dim }).ok()
}

fn dim_of(arg: &Arg) -> Option<Dim> {
    match arg {
        Arg::Const(Const::Int(number)) => Some(Dim::Const(*number)),
        Arg::Dim(dim) => Some(dim.clone()),
        _ => None,
    }
}
