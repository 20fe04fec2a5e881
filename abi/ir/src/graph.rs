//! The torch-level graph: what an FX graph holds. In-place ops and views are ordinary calls, in program order.

use crate::code::{CodeHash, Const};
use crate::dim::{Atom, Dim, SymId};
use crate::kernel::DType;
use crate::source::SourceId;
use crate::tensor::TensorMeta;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Index of a node in its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeId(pub u32);

/// A graph of torch calls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Graph {
    /// Placeholders first, then calls, in execution order.
    pub nodes: Vec<Node>,
    /// What leaves the graph.
    pub outputs: Vec<NodeId>,
    /// Distinct user locations, referred to by nodes.
    pub locations: Vec<Location>,
    /// Torch's default dtype where its calls run: what a Python float is beside tensors of integers.
    pub default_dtype: DType,
    /// A call may raise for what its tensors hold after others drew: if one fails, the state of the CPU's default generator
    /// is put back before the frame is run again.
    pub restores: bool,
    /// Regions of activation checkpointing, in order and apart: the first and the last call of each. What they give is computed
    /// again for their derivative instead of being kept for it.
    pub checkpoints: Vec<(NodeId, NodeId)>,
}

impl Default for Graph {
    fn default() -> Graph {
        Graph {
            nodes: vec![],
            outputs: vec![],
            locations: vec![],
            default_dtype: DType::F32,
            restores: false,
            checkpoints: vec![],
        }
    }
}

/// One node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// A unique readable name, as FX gives them: `add`, `add_1`.
    pub name: String,
    /// What it is.
    pub op: NodeOp,
    /// What it yields.
    pub meta: ValueMeta,
    /// User line it comes from: index into [`Graph::locations`].
    pub location: Option<u32>,
    /// The frames it is called in, outermost first, as indices into [`Graph::locations`]: of calls whose failure does not
    /// run the frame again, as what comes before cannot be taken back.
    pub stack: Vec<u32>,
    /// What is seen of it if the frame is run again.
    pub effect: Effect,
    /// It yields a view of its argument, which its symbolic sizes alone may not tell: what the guards say of them is known
    /// to the trace.
    pub view: bool,
    /// The op's rule does not take these arguments, so how it is lowered is not for them either: torch computes it.
    pub torchs: bool,
    /// No rule of the op says that what it yields shares no memory with an argument, but torch's fake tensors do.
    pub fresh: bool,
    /// The schema of the overload of `torch.ops` that is called, where no rule says what the call does.
    pub schema: Option<Arc<str>>,
}

/// What is seen of a call if the frame is run again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Effect {
    /// Nothing.
    #[default]
    None,
    /// Nothing, though it writes: only to memory made in this graph.
    Private,
    /// That it drew from the CPU's default generator.
    Draws,
    /// What it wrote to, or drew from another generator, or did elsewhere: if a later call fails, that is raised.
    Commits,
}

impl Effect {
    /// Those that the text form has a word for.
    pub const WORDS: [(Effect, &str); 3] =
        [(Effect::Private, "private"), (Effect::Draws, "draws"), (Effect::Commits, "commits")];
}

/// The kinds of nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum NodeOp {
    /// An input: a tensor, a symbolic int, or an object that is passed on, found at this source.
    Placeholder(SourceId),
    /// A call.
    Call {
        /// Of what.
        target: Target,
        /// Positional arguments.
        args: Vec<Arg>,
        /// Keyword arguments, in call order.
        kwargs: Vec<(Arc<str>, Arg)>,
    },
}

/// The function of a call that warns, as [`crate::plan::WARNED`] takes its arguments.
pub const WARNS: &str = "flambeau._calls.warned";

/// What torch's autocast manager calls, each in the form that takes the kind of device.
const SETS_AUTOCAST: &[&str] = &[
    "torch.set_autocast_enabled",
    "torch.set_autocast_dtype",
    "torch.set_autocast_cache_enabled",
    "torch.autocast_increment_nesting",
    "torch.autocast_decrement_nesting",
    "torch.clear_autocast_cache",
];

/// What a call node calls.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Target {
    /// A function by import path, e.g. `torch._C._nn.linear`, `_operator.add`, `_operator.getitem`.
    Function(Arc<str>),
    /// A method of the first argument (a tensor), e.g. `view`, `add_`.
    Method(Arc<str>),
}

/// The function whose call stands for `backward()`. Of a tensor, the gradient that it begins with or `None`, a list of leaves,
/// and whether torch's graph is kept, it gives the gradients of the leaves, each laid out as torch accumulates it.
pub const GRADIENTS: &str = "flambeau._training.gradients";

/// The function whose call stands for `torch.autograd.grad`. Of a list of tensors, a list of the gradients that these begin
/// with or `None`, a list of tensors, whether torch's graph is kept, and whether one is made, it gives the gradients of the
/// latter tensors.
pub const ASKED: &str = "flambeau._training.asked";

impl Target {
    /// Whether it is the call that switches grad mode.
    pub fn sets_grad_mode(&self) -> bool {
        matches!(self, Target::Function(path) if path.ends_with("._set_grad_enabled"))
    }

    /// Whether it is a call that stands for one of autograd's engine: [`GRADIENTS`] or [`ASKED`].
    pub fn gives_gradients(&self) -> bool {
        matches!(self, Target::Function(path) if [GRADIENTS, ASKED].contains(&&**path))
    }

    /// Whether it is a call that switches autocast, or that counts its regions.
    pub fn sets_autocast(&self) -> bool {
        matches!(self, Target::Function(path) if SETS_AUTOCAST.contains(&&**path))
    }

    /// Whether it is a call that changes the thread's state, which executors undo themselves.
    pub fn sets_state(&self) -> bool {
        self.sets_grad_mode() || self.sets_autocast()
    }
}

/// An argument of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Arg {
    /// Another node's value.
    Node(NodeId),
    /// A constant.
    Const(Const),
    /// A symbolic int (constant dims are `Const(Int)`).
    Dim(Dim),
    /// A list.
    List(#[serde(deserialize_with = "crate::bounds::nested_items")] Vec<Arg>),
    /// A tuple.
    Tuple(#[serde(deserialize_with = "crate::bounds::nested_items")] Vec<Arg>),
    /// A slice.
    Slice(#[serde(deserialize_with = "crate::bounds::nested")] Box<[Arg; 3]>),
    /// A dict with constant keys.
    Dict(#[serde(deserialize_with = "crate::bounds::nested_items")] Vec<(Const, Arg)>),
}

impl Arg {
    /// Calls `visit` with every node in it.
    pub fn nodes(&self, visit: &mut impl FnMut(NodeId)) {
        match self {
            Arg::Node(id) => visit(*id),
            Arg::Const(_) | Arg::Dim(_) => {}
            Arg::List(parts) | Arg::Tuple(parts) => parts.iter().for_each(|part| part.nodes(visit)),
            Arg::Slice(parts) => parts.iter().for_each(|part| part.nodes(visit)),
            Arg::Dict(items) => items.iter().for_each(|(_, part)| part.nodes(visit)),
        }
    }

    /// Whether a node is in it.
    pub fn has_nodes(&self) -> bool {
        let mut found = false;
        self.nodes(&mut |_| found = true);
        found
    }

    /// Changes every node in it.
    pub fn rename(&mut self, to: &impl Fn(NodeId) -> NodeId) {
        match self {
            Arg::Node(id) => *id = to(*id),
            Arg::Const(_) | Arg::Dim(_) => {}
            Arg::List(parts) | Arg::Tuple(parts) => parts.iter_mut().for_each(|part| part.rename(to)),
            Arg::Slice(parts) => parts.iter_mut().for_each(|part| part.rename(to)),
            Arg::Dict(items) => items.iter_mut().for_each(|(_, part)| part.rename(to)),
        }
    }

    fn dims(&self, visit: &mut impl FnMut(&Dim)) {
        match self {
            Arg::Dim(dim) => visit(dim),
            Arg::Node(_) | Arg::Const(_) => {}
            Arg::List(parts) | Arg::Tuple(parts) => parts.iter().for_each(|part| part.dims(visit)),
            Arg::Slice(parts) => parts.iter().for_each(|part| part.dims(visit)),
            Arg::Dict(items) => items.iter().for_each(|(_, part)| part.dims(visit)),
        }
    }

    fn replace(&mut self, atom: &impl Fn(&Atom) -> Option<Dim>) {
        match self {
            Arg::Dim(dim) => {
                let now = dim.replace(atom);
                *self = now.as_const().map_or(Arg::Dim(now), |value| Arg::Const(Const::Int(value)));
            }
            Arg::Node(_) | Arg::Const(_) => {}
            Arg::List(parts) | Arg::Tuple(parts) => parts.iter_mut().for_each(|part| part.replace(atom)),
            Arg::Slice(parts) => parts.iter_mut().for_each(|part| part.replace(atom)),
            Arg::Dict(items) => items.iter_mut().for_each(|(_, part)| part.replace(atom)),
        }
    }
}

/// What a node yields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ValueMeta {
    /// A tensor.
    Tensor(TensorMeta),
    /// A tuple or list of values, taken apart by `_operator.getitem` nodes.
    Tuple(#[serde(deserialize_with = "crate::bounds::nested_items")] Vec<ValueMeta>),
    /// A symbolic int.
    Int(Dim),
    /// A constant (calls kept for their effect yield `None`).
    Const(Const),
    /// An object that is only passed on.
    Object,
}

impl ValueMeta {
    fn dims(&self, visit: &mut impl FnMut(&Dim)) {
        match self {
            ValueMeta::Tensor(meta) => meta.sizes.iter().chain(&meta.strides).for_each(visit),
            ValueMeta::Tuple(parts) => parts.iter().for_each(|part| part.dims(visit)),
            ValueMeta::Int(dim) => visit(dim),
            ValueMeta::Const(_) | ValueMeta::Object => {}
        }
    }

    fn replace(&mut self, atom: &impl Fn(&Atom) -> Option<Dim>) {
        match self {
            ValueMeta::Tensor(meta) => {
                meta.sizes.iter_mut().chain(&mut meta.strides).for_each(|dim| *dim = dim.replace(atom));
            }
            ValueMeta::Tuple(parts) => parts.iter_mut().for_each(|part| part.replace(atom)),
            ValueMeta::Int(dim) => *dim = dim.replace(atom),
            ValueMeta::Const(_) | ValueMeta::Object => {}
        }
    }

    /// The tensor, if it is one.
    pub fn as_tensor(&self) -> Option<&TensorMeta> {
        match self {
            ValueMeta::Tensor(t) => Some(t),
            _ => None,
        }
    }
}

/// A place in the user's program.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Location {
    /// File name as Python has it.
    pub file: Arc<str>,
    /// Line, from 1.
    pub line: u32,
    /// Function's qualified name.
    pub function: Arc<str>,
}

impl Graph {
    /// The node with this id.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    /// The region of activation checkpointing that a node is in.
    pub fn checkpoint(&self, id: NodeId) -> Option<u32> {
        (0..).zip(&self.checkpoints).find(|(_, (first, last))| *first <= id && id <= *last).map(|(at, _)| at)
    }

    /// The symbols that calls are given or sizes depend on.
    pub fn symbols(&self) -> BTreeSet<SymId> {
        let mut found = BTreeSet::new();
        let mut note = |dim: &Dim| dim.symbols(&mut |symbol| found.extend([symbol]));
        for node in &self.nodes {
            node.meta.dims(&mut note);
            if let NodeOp::Call { args, kwargs, .. } = &node.op {
                args.iter().chain(kwargs.iter().map(|(_, arg)| arg)).for_each(|arg| arg.dims(&mut note));
            }
        }
        found
    }

    /// Puts expressions in place of atoms of sizes.
    pub fn replace(&mut self, atom: &impl Fn(&Atom) -> Option<Dim>) {
        for node in &mut self.nodes {
            node.meta.replace(atom);
            if let NodeOp::Call { args, kwargs, .. } = &mut node.op {
                args.iter_mut().chain(kwargs.iter_mut().map(|(_, arg)| arg)).for_each(|arg| arg.replace(atom));
            }
        }
    }

    /// Names the graph by its content.
    pub fn content_hash(&self) -> CodeHash {
        // Writing plain data to memory cannot fail.
        CodeHash(*blake3::hash(&postcard::to_stdvec(self).unwrap_or_default()).as_bytes())
    }

    /// The part from `ends` to `outputs` as a graph of its own, and the nodes that its placeholders stand for. `None` if it
    /// cannot be run by itself: it takes more than tensors, or something else draws random numbers or writes to what it reads.
    pub fn part(&self, outputs: &[NodeId], ends: &[NodeId]) -> Option<(Graph, Vec<NodeId>)> {
        let mut reached = vec![ends.is_empty(); self.nodes.len()];
        outputs.iter().for_each(|id| reached[id.0 as usize] = true);
        let is_end = |id: NodeId| ends.contains(&id) || matches!(self.node(id).op, NodeOp::Placeholder(_));
        let (mut part, mut takes) =
            (Graph { nodes: vec![], outputs: vec![], checkpoints: vec![], ..self.clone() }, Vec::new());
        for (at, node) in self.nodes.iter().enumerate().rev() {
            let id = NodeId(at as u32);
            let NodeOp::Call { target, args, kwargs } = &node.op else { continue };
            reached[at] |= target.sets_grad_mode();
            if !reached[at] && node.effect != Effect::None {
                return None;
            }
            if reached[at] && (!is_end(id) || outputs.contains(&id)) {
                let all = args.iter().chain(kwargs.iter().map(|(_, arg)| arg));
                all.for_each(|arg| arg.nodes(&mut |id| reached[id.0 as usize] = true));
            }
        }
        let mut places = vec![NodeId(0); self.nodes.len()];
        let all = (0..self.nodes.len()).map(|at| NodeId(at as u32)).filter(|id| reached[id.0 as usize]);
        let (ends, calls): (Vec<_>, Vec<_>) = all.partition(|id| is_end(*id) && !outputs.contains(id));
        for id in ends {
            if !matches!(self.node(id).meta, ValueMeta::Tensor(_) | ValueMeta::Object) {
                return None;
            }
            places[id.0 as usize] = NodeId(part.nodes.len() as u32);
            let op = NodeOp::Placeholder(SourceId(takes.len() as u32));
            part.nodes.push(Node { op, effect: Effect::None, ..self.node(id).clone() });
            takes.push(id);
        }
        for id in calls {
            let mut node = self.node(id).clone();
            let NodeOp::Call { args, kwargs, .. } = &mut node.op else { return None };
            let all = args.iter_mut().chain(kwargs.iter_mut().map(|(_, arg)| arg));
            all.for_each(|arg| arg.rename(&|id| places[id.0 as usize]));
            places[id.0 as usize] = NodeId(part.nodes.len() as u32);
            part.nodes.push(node);
        }
        part.outputs = outputs.iter().map(|id| places[id.0 as usize]).collect();
        Some((part, takes))
    }

    /// Number of calls.
    pub fn calls(&self) -> usize {
        self.nodes.iter().filter(|n| matches!(n.op, NodeOp::Call { .. })).count()
    }
}
