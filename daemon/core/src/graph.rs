//! The core graph: functional tensors over a dozen primitive ops. Lowering decomposes torch calls into it.
//! Printing lives in `print.rs`; scheduling and memory are `daemon/lower`'s.

use flambeau_ir::code::Const;
use flambeau_ir::dim::{Atom, Dim};
use flambeau_ir::kernel::{Binary, DType, ReduceOp, Unary};
use flambeau_ir::plan::WARNED;
use flambeau_ir::source::SourceId;
use flambeau_ir::tensor::{Device, contiguous_strides};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Index of a node in its core graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CoreId(pub u32);

/// One tensor value (or one call with several results).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CoreNode {
    /// How it is computed.
    pub op: CoreOp,
    /// Element type.
    pub dtype: DType,
    /// Sizes; operands of pointwise ops have exactly these.
    pub sizes: Vec<Dim>,
    /// Strides it has in memory if it gets memory of its own.
    pub strides: Vec<Dim>,
}

impl CoreNode {
    /// Whether it has no elements, whatever the symbols are: no kernel makes it.
    pub fn is_empty(&self) -> bool {
        self.sizes.iter().any(|size| size.is(0))
    }
}

/// Primitive ops.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CoreOp {
    /// The graph's tensor input with this number.
    Input(u32),
    /// Every element is this constant (encoded as [`flambeau_ir::kernel::Op::Const`]).
    Const(u64),
    /// Every element is this symbolic int.
    Scalar(Dim),
    /// The index along one dimension.
    Iota(u32),
    /// One operand.
    Unary(Unary, CoreId),
    /// Two operands of one dtype.
    Binary(Binary, CoreId, CoreId),
    /// `cond ? a : b`.
    Select(CoreId, CoreId, CoreId),
    /// Conversion to the node's dtype.
    Cast(CoreId),
    /// The same value in memory of its own.
    Copy(CoreId),
    /// The same value, as autograd does not follow it: no derivative goes through. Only where a derivative is to be taken.
    Stop(CoreId),
    /// The first operand, whose derivative by the second is the third, element by element. Only where a derivative is to be
    /// taken.
    Sloped(CoreId, CoreId, CoreId),
    /// Reduction over dimensions, which stay with size 1.
    Reduce(ReduceOp, CoreId, Vec<u32>),
    /// Dimensions of size 1 repeated to the node's sizes.
    Expand(CoreId),
    /// `sizes[d] = operand.sizes[order[d]]`.
    Permute(CoreId, Vec<u32>),
    /// The same elements in row-major order under other sizes.
    Reshape(CoreId),
    /// `start + step * i` along one dimension.
    Slice(CoreId, u32, Dim, i64),
    /// Each index of the operand is a sum of the node's: diagonals, windows that slide.
    Sums(CoreId, Arc<[IndexSum]>),
    /// Element `i` is the operand's at `i - low`, or this constant where the operand has no such element.
    Pad(CoreId, u64, Vec<Dim>),
    /// Operands one after the other along one dimension.
    Join(Vec<CoreId>, u32),
    /// A torch op run as it is; its results are [`CoreOp::Result`]s.
    Extern(Arc<ExternCall>),
    /// One result of a call.
    Result(CoreId, u32),
    /// The memory of an input, which the first operand is, once the second was stored in it at these places.
    Stored(CoreId, CoreId, IndexSum),
    /// The memory of an input, which the first operand is, once this call wrote to it.
    Changed(CoreId, CoreId),
}

/// `start + sum(factors[d] * index[d])`, over the indices of a view.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IndexSum {
    /// Constant part.
    pub start: Dim,
    /// One per dimension of the view.
    pub factors: Vec<Dim>,
}

/// A call of an overload of an op.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ExternCall {
    /// e.g. `aten::addmm`.
    pub op: Arc<str>,
    /// Overload that returns new tensors.
    pub overload: Arc<str>,
    /// Overload that writes into given tensors without an extra copy, if there is one; the out arguments come last.
    pub out: Option<Arc<str>>,
    /// Arguments in schema order.
    pub args: Vec<ExternArg>,
    /// Number of results.
    pub results: u32,
    /// Draws random numbers, or is a library's and may do what no schema tells: never merged, dropped or reordered against
    /// others. Distinct calls have distinct numbers.
    pub order: Option<u32>,
    /// Draws random numbers.
    pub draws: bool,
    /// Writes to its first argument, which is an input's memory, and gives nothing. Run again it writes the same.
    pub in_place: bool,
}

impl ExternCall {
    /// The op that fails where a tensor holds zero.
    pub const CHECK: &str = "aten::_assert_async";

    /// Whether it gives nothing, and may raise: what cannot be taken back comes after it.
    pub fn only_checks(&self) -> bool {
        matches!(&*self.op, Self::CHECK | WARNED)
    }

    /// A call that only computes its results.
    pub fn pure((op, overload): (&str, &str), out: Option<&str>, args: Vec<ExternArg>, results: usize) -> ExternCall {
        ExternCall {
            op: op.into(),
            overload: overload.into(),
            out: out.map(Into::into),
            args,
            results: results as u32,
            order: None,
            draws: false,
            in_place: false,
        }
    }
}

/// An argument of a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ExternArg {
    /// A tensor.
    Value(CoreId),
    /// A constant.
    Const(Const),
    /// A size.
    Dim(Dim),
    /// An object that is no tensor, from outside.
    Object(SourceId),
    /// A list.
    List(Vec<ExternArg>),
}

impl ExternArg {
    /// Calls `visit` with every tensor in it.
    pub fn values(&self, visit: &mut impl FnMut(CoreId)) {
        match self {
            ExternArg::Value(v) => visit(*v),
            ExternArg::List(items) => items.iter().for_each(|i| i.values(visit)),
            ExternArg::Const(_) | ExternArg::Dim(_) | ExternArg::Object(_) => {}
        }
    }

    /// As [`ExternArg::values`], to be changed.
    pub fn values_mut(&mut self, visit: &mut impl FnMut(&mut CoreId)) {
        match self {
            ExternArg::Value(v) => visit(v),
            ExternArg::List(items) => items.iter_mut().for_each(|i| i.values_mut(visit)),
            ExternArg::Const(_) | ExternArg::Dim(_) | ExternArg::Object(_) => {}
        }
    }
}

impl CoreOp {
    /// The operands, in order.
    pub fn operands(&self) -> Vec<CoreId> {
        match self {
            CoreOp::Input(_) | CoreOp::Const(_) | CoreOp::Scalar(_) | CoreOp::Iota(_) => vec![],
            CoreOp::Unary(_, a)
            | CoreOp::Cast(a)
            | CoreOp::Copy(a)
            | CoreOp::Stop(a)
            | CoreOp::Reduce(_, a, _)
            | CoreOp::Expand(a)
            | CoreOp::Permute(a, _)
            | CoreOp::Reshape(a)
            | CoreOp::Slice(a, ..)
            | CoreOp::Sums(a, _)
            | CoreOp::Pad(a, ..)
            | CoreOp::Result(a, _) => vec![*a],
            CoreOp::Binary(_, a, b) | CoreOp::Stored(a, b, _) | CoreOp::Changed(a, b) => vec![*a, *b],
            CoreOp::Select(c, a, b) | CoreOp::Sloped(c, a, b) => vec![*c, *a, *b],
            CoreOp::Join(parts, _) => parts.clone(),
            CoreOp::Extern(call) => {
                let mut all = Vec::new();
                call.args.iter().for_each(|a| a.values(&mut |v| all.push(v)));
                all
            }
        }
    }

    /// The operands of an op that is no call, to be changed, in order.
    pub fn operands_mut(&mut self) -> Vec<&mut CoreId> {
        match self {
            CoreOp::Input(_) | CoreOp::Const(_) | CoreOp::Scalar(_) | CoreOp::Iota(_) | CoreOp::Extern(_) => vec![],
            CoreOp::Unary(_, a)
            | CoreOp::Cast(a)
            | CoreOp::Copy(a)
            | CoreOp::Stop(a)
            | CoreOp::Reduce(_, a, _)
            | CoreOp::Expand(a)
            | CoreOp::Permute(a, _)
            | CoreOp::Reshape(a)
            | CoreOp::Slice(a, ..)
            | CoreOp::Sums(a, _)
            | CoreOp::Pad(a, ..)
            | CoreOp::Result(a, _) => vec![a],
            CoreOp::Binary(_, a, b) | CoreOp::Stored(a, b, _) | CoreOp::Changed(a, b) => vec![a, b],
            CoreOp::Select(c, a, b) | CoreOp::Sloped(c, a, b) => vec![c, a, b],
            CoreOp::Join(parts, _) => parts.iter_mut().collect(),
        }
    }

    /// The memory of an input before this write to it.
    pub fn before(&self) -> Option<CoreId> {
        if let CoreOp::Stored(of, ..) | CoreOp::Changed(of, _) = self { Some(*of) } else { None }
    }

    /// True for an input's memory, before or after writes.
    pub fn is_input(&self) -> bool {
        matches!(self, CoreOp::Input(_) | CoreOp::Stored(..) | CoreOp::Changed(..))
    }

    /// True for ops that only rename indices.
    pub fn is_view(&self) -> bool {
        matches!(
            self,
            CoreOp::Expand(_) | CoreOp::Permute(..) | CoreOp::Reshape(_) | CoreOp::Slice(..) | CoreOp::Sums(..)
        )
    }
}

/// What leaves a core graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreOutput {
    /// Whose memory it is.
    pub base: OutputBase,
    /// Sizes.
    pub sizes: Vec<Dim>,
    /// Strides.
    pub strides: Vec<Dim>,
    /// Elements from the base's first element.
    pub offset: Dim,
}

/// Whose memory an output is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OutputBase {
    /// A tensor input's.
    Input(u32),
    /// This value's own.
    Value(CoreId),
}

/// A functional graph, nodes in topological order, no two equal.
#[derive(Clone, Debug, Default)]
pub struct Core {
    /// Where all of its tensors are.
    pub device: Device,
    nodes: Vec<CoreNode>,
    index: HashMap<CoreNode, CoreId>,
    /// Nodes whose strides torch fixed.
    pinned: Vec<bool>,
    /// The region of activation checkpointing that nodes added from now on are in.
    pub region: Option<u32>,
    /// Those that the nodes are in; what was first computed elsewhere is not a region's own.
    regions: Vec<Option<u32>>,
    /// Where parts begin whose nodes are apart from equal ones before.
    parts: Vec<u32>,
    /// Nodes of a part that compute again what was computed before it.
    again: BTreeSet<CoreId>,
    /// What parts of sizes are, where guards say it.
    known: BTreeMap<Atom, Dim>,
    /// Something is repeated along a size that is 1, but is not written as 1: views take it for all elements.
    pub unclear: bool,
    /// What is returned.
    pub outputs: Vec<CoreOutput>,
    /// Tensor inputs that are written, and what they are then: a value that is copied to them at the end, or their own
    /// memory.
    pub writes: Vec<(u32, CoreId)>,
    /// Of these inputs, those whose version counters do not count it.
    pub uncounted: BTreeSet<u32>,
}

impl Core {
    /// An empty graph. `known`: what parts of sizes are, where guards say it.
    pub fn new(known: BTreeMap<Atom, Dim>) -> Core {
        Core { known, ..Core::default() }
    }

    /// Whether calls take objects that are no tensors.
    pub fn takes_objects(&self) -> bool {
        fn has(arg: &ExternArg) -> bool {
            match arg {
                ExternArg::Object(_) => true,
                ExternArg::List(items) => items.iter().any(has),
                _ => false,
            }
        }
        self.nodes.iter().any(|node| matches!(&node.op, CoreOp::Extern(call) if call.args.iter().any(has)))
    }

    /// All nodes.
    pub fn nodes(&self) -> &[CoreNode] {
        &self.nodes
    }

    /// The values whose own memory outputs are.
    pub fn output_values(&self) -> impl Iterator<Item = CoreId> {
        self.outputs.iter().filter_map(|output| match output.base {
            OutputBase::Value(id) => Some(id),
            OutputBase::Input(_) => None,
        })
    }

    /// The number of the input whose memory it is.
    pub fn input(&self, mut id: CoreId) -> Option<u32> {
        while let Some(before) = self.node(id).op.before() {
            id = before;
        }
        if let CoreOp::Input(input) = self.node(id).op { Some(input) } else { None }
    }

    /// One node.
    pub fn node(&self, id: CoreId) -> &CoreNode {
        &self.nodes[id.0 as usize]
    }

    /// All ids in topological order.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = CoreId> + use<> {
        (0..self.nodes.len() as u32).map(CoreId)
    }

    /// The node of an input.
    pub fn input_node(&self, at: u32) -> Option<CoreId> {
        self.ids().find(|id| self.node(*id).op == CoreOp::Input(at))
    }

    /// The node, added if there is no equal one.
    pub fn add(&mut self, node: CoreNode) -> CoreId {
        if let Some(&id) = self.index.get(&node) {
            return id;
        }
        self.unclear |= self.repeats_unseen(&node);
        let id = CoreId(self.nodes.len() as u32);
        self.index.insert(node.clone(), id);
        self.nodes.push(node);
        self.pinned.push(false);
        self.regions.push(self.region);
        id
    }

    /// Has nodes from here on be apart from equal ones before.
    pub fn set_apart(&mut self) {
        self.index.clear();
    }

    /// As [`Core::set_apart`]: what the nodes from here on compute again is meant to be computed late.
    pub fn begin_part(&mut self) {
        self.set_apart();
        self.parts.push(self.nodes.len() as u32);
    }

    /// How many parts begin up to a node.
    pub fn part_of(&self, id: CoreId) -> usize {
        self.parts.partition_point(|begin| *begin <= id.0)
    }

    /// Notes that a node computes again what was computed before its part.
    pub fn note_again(&mut self, id: CoreId) {
        self.again.insert(id);
    }

    /// Whether a node computes again what was computed before its part.
    pub fn is_again(&self, id: CoreId) -> bool {
        self.again.contains(&id)
    }

    /// Begins the part that stands for that of a node of another graph.
    pub fn enter_part(&mut self, old: &Core, id: CoreId) {
        while self.parts.len() < old.part_of(id) {
            self.begin_part();
        }
    }

    /// Adds what stands for a node of another graph, in the part that stands for its own. Ids come in order.
    pub fn add_for(&mut self, old: &Core, id: CoreId, node: CoreNode) -> CoreId {
        self.enter_part(old, id);
        let to = self.add(node);
        if old.is_again(id) {
            self.note_again(to);
        }
        to
    }

    /// Has a call be another one, of which its results are the first.
    pub fn change_call(&mut self, id: CoreId, call: ExternCall) {
        let node = &mut self.nodes[id.0 as usize];
        self.index.remove(node);
        node.op = CoreOp::Extern(call.into());
        self.index.insert(node.clone(), id);
    }

    fn repeats_unseen(&self, node: &CoreNode) -> bool {
        let CoreOp::Expand(of) = node.op else { return false };
        let is_one = |dim: &Dim| dim.replace(&|atom| self.known.get(atom).cloned()).is(1);
        let mut sizes = self.node(of).sizes.iter().zip(&node.sizes);
        !self.known.is_empty() && sizes.any(|(own, to)| own != to && !own.is(1) && is_one(own))
    }

    /// Takes back all nodes added since there were `count`.
    pub fn truncate(&mut self, count: usize) {
        self.nodes.truncate(count);
        self.index.retain(|_, id| (id.0 as usize) < count);
        self.pinned.truncate(count);
        self.regions.truncate(count);
        self.parts.retain(|begin| (*begin as usize) < count);
        self.again.retain(|id| (id.0 as usize) < count);
    }

    /// As [`Core::add`] with row-major strides.
    pub fn push(&mut self, op: CoreOp, dtype: DType, sizes: Vec<Dim>) -> CoreId {
        let strides = contiguous_strides(&sizes);
        self.add(CoreNode { op, dtype, sizes, strides })
    }

    /// Whether torch fixed the strides of a value.
    pub fn is_pinned(&self, id: CoreId) -> bool {
        self.pinned[id.0 as usize]
    }

    /// The region of activation checkpointing that a node is in.
    pub fn region_of(&self, id: CoreId) -> Option<u32> {
        self.regions[id.0 as usize]
    }

    /// A graph without nodes for the same device and guards.
    #[must_use]
    pub fn emptied(&self) -> Core {
        Core { device: self.device, known: self.known.clone(), ..Core::default() }
    }

    /// Fixes the strides of a value that gets memory; false if they are fixed otherwise already.
    pub fn pin(&mut self, id: CoreId, strides: &[Dim]) -> bool {
        let slot = id.0 as usize;
        if self.pinned[slot] {
            return self.nodes[slot].strides == strides;
        }
        self.pinned[slot] = true;
        self.nodes[slot].strides = strides.to_vec();
        true
    }
}
