//! Launch plans: what the client runs after its guards passed; and compiled frames, which hold them.

use crate::code::Const;
use crate::dim::{Dim, SymId};
use crate::exit::Exit;
use crate::frame::FrameId;
use crate::graph::Graph;
use crate::guard::GuardProgram;
use crate::kernel::{DType, Kernel};
use crate::reason::Reason;
use crate::source::SourceId;
use crate::tensor::Device;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Everything a client needs to run one frame.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompiledFrame {
    /// Which frame.
    pub frame: FrameId,
    /// When it may run.
    pub guards: GuardProgram,
    /// How symbols get their values, in id order.
    pub symbols: Vec<Symbol>,
    /// What has to hold for the body to run: calls that it cannot take back would raise else.
    pub indices: Vec<IndexCheck>,
    /// What runs.
    pub body: Body,
    /// What is rebuilt and returned.
    pub exit: Exit,
    /// The torch-level graph as text, for logs and `explain`.
    pub graph_text: String,
    /// Why the body is `Eager` although a native one was asked for; counted by the client.
    pub fallback: Option<Reason>,
}

/// That all numbers of a tensor of indices lie within a dimension. Lists terms before what is computed of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct IndexCheck {
    /// Where the numbers are from.
    pub numbers: Vec<Term>,
    /// Size of the dimension.
    pub size: Dim,
}

/// A set of integers, or an operation on the two sets before it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Term {
    /// What a tensor holds.
    Tensor(SourceId),
    /// From the first to the second, and no others.
    Between(Dim, Dim),
    /// Sums of two.
    Add,
    /// Differences of two.
    Sub,
    /// Products of two.
    Mul,
}

impl IndexCheck {
    /// Of a tensor with more elements the numbers are not looked at: nothing is known of them.
    pub const MOST_NUMBERS: i64 = 1 << 12;

    /// Whether it surely holds. `tensor` gives the least and the greatest number of a tensor.
    pub fn holds(
        &self,
        tensor: &mut impl FnMut(SourceId) -> Option<(i64, i64)>,
        symbol: &impl Fn(SymId) -> i64,
    ) -> bool {
        let within = |&(least, greatest): &(i64, i64)| Some(least >= 0 && greatest < self.size.eval(symbol)?);
        self.range(tensor, symbol).as_ref().and_then(within).unwrap_or(false)
    }

    fn range(
        &self,
        tensor: &mut impl FnMut(SourceId) -> Option<(i64, i64)>,
        symbol: &impl Fn(SymId) -> i64,
    ) -> Option<(i64, i64)> {
        let mut known: Vec<(i64, i64)> = Vec::with_capacity(self.numbers.len());
        for term in &self.numbers {
            let found = match term {
                Term::Tensor(source) => tensor(*source)?,
                Term::Between(least, greatest) => (least.eval(symbol)?, greatest.eval(symbol)?),
                operation => {
                    let ((c, d), (a, b)) = (known.pop()?, known.pop()?);
                    match operation {
                        Term::Add => (a.checked_add(c)?, b.checked_add(d)?),
                        Term::Sub => (a.checked_sub(d)?, b.checked_sub(c)?),
                        _ => {
                            let ends = [a.checked_mul(c)?, a.checked_mul(d)?, b.checked_mul(c)?, b.checked_mul(d)?];
                            (*ends.iter().min()?, *ends.iter().max()?)
                        }
                    }
                }
            };
            known.push(found);
        }
        known.pop()
    }
}

/// Defines one symbol. Symbols are bound before guards on dims are checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Symbol {
    /// Its name.
    pub id: SymId,
    /// What it is read from.
    pub source: SourceId,
    /// What of it.
    pub of: SymbolOf,
    /// The value seen while tracing.
    pub hint: i64,
    /// Smallest value allowed (2 by default: 0 and 1 are their own compiles).
    pub min: i64,
    /// Largest value allowed.
    pub max: i64,
}

/// What a symbol is read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SymbolOf {
    /// The int itself.
    Int,
    /// A tensor's size in this dimension.
    Size(u32),
    /// A tensor's stride in this dimension.
    Stride(u32),
}

/// What runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Body {
    /// Op by op through torch, autograd included.
    Eager(Graph),
    /// Rebuilt as a `torch.fx.GraphModule` for the named back end (or the user's callable, named by the client).
    Fx(Graph),
    /// Kernels and direct torch calls.
    Native(Plan),
    /// The same of a graph that autograd sees.
    Training(Box<Training>),
}

/// A graph that autograd sees: a plan for the graph, and one for the derivative of each of its nodes of autograd.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Training {
    /// The graph. Its last outputs are what it keeps for derivatives.
    pub forward: Plan,
    /// How many outputs the graph has itself.
    pub left: u32,
    /// Inputs that the graph writes to.
    pub written: Vec<u32>,
    /// Its nodes of autograd, in an order in which each takes outputs of earlier ones.
    pub nodes: Vec<TrainingNode>,
    /// Outputs that a node has which `backward()` in the graph freed, each with an input that autograd connects it with.
    pub ended: Vec<(u32, u32)>,
    /// Outputs that are views as torch has them, each with the input or output that it is one of: torch makes them of that.
    pub views: Vec<(u32, Taken)>,
    /// Calls of torch in the graph.
    pub calls: u32,
}

impl Training {
    /// All plans: the graph's, then those of derivatives.
    pub fn plans(&self) -> impl Iterator<Item = &Plan> {
        std::iter::once(&self.forward).chain(self.nodes.iter().map(|node| &node.backward))
    }
}

/// One node of autograd.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrainingNode {
    /// The derivative. Its inputs: first what it `reads`, then the gradients of `outputs`. Its outputs: the gradients of
    /// `gradients`. The sources of its inputs name nothing.
    pub backward: Plan,
    /// What it reads of the graph.
    pub reads: Vec<Taken>,
    /// Outputs of the graph that are those of the node.
    pub outputs: Vec<Followed>,
    /// What gradients are computed of: the node's inputs.
    pub gradients: Vec<Taken>,
    /// For each of these, the outputs that autograd connects it with, by their places in `outputs`: it has no gradient where
    /// none of them has one.
    pub reached_by: Vec<Vec<u32>>,
    /// The part of the graph from `takes`, which its placeholders are in that order, to `outputs`: for derivatives of the
    /// derivative. `None`: there are none, as the part cannot be run once more.
    pub graph: Option<Graph>,
    /// Whether it draws random numbers.
    pub draws: bool,
    /// What it takes. Objects of the plan are numbered as inputs, after these.
    pub takes: Vec<Taken>,
}

/// A tensor that a graph takes or gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Taken {
    /// The tensor input of this number.
    Input(u32),
    /// The output of this number.
    Output(u32),
}

/// An output that autograd follows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Followed {
    /// Its number.
    pub output: u32,
    /// Element type.
    pub dtype: DType,
    /// Sizes of its gradient.
    pub sizes: Vec<Dim>,
    /// Strides of its gradient.
    pub strides: Vec<Dim>,
    /// Whether autograd goes back from it once, as it frees what it saved on the way.
    pub spent: bool,
}

impl Body {
    /// The plans in it.
    pub fn plans_mut(&mut self) -> Vec<&mut Plan> {
        match self {
            Body::Native(plan) => vec![plan],
            Body::Training(training) => {
                let backward = training.nodes.iter_mut().map(|node| &mut node.backward);
                std::iter::once(&mut training.forward).chain(backward).collect()
            }
            Body::Eager(_) | Body::Fx(_) => vec![],
        }
    }
}

/// Names a value during a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Reg(pub u32);

/// A straight-line program over tensors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Number of registers.
    pub regs: u32,
    /// Inputs: loaded into registers `0..inputs.len()` as borrowed tensors.
    pub inputs: Vec<SourceId>,
    /// Objects that are no tensors, which calls take.
    pub objects: Vec<SourceId>,
    /// Steps in order.
    pub steps: Vec<PlanStep>,
    /// Registers of the graph outputs, in the order of [`crate::exit::Build::Output`].
    pub outputs: Vec<Reg>,
    /// Back end that launches the kernels.
    pub backend: String,
    /// Where all tensors are.
    pub device: Device,
    /// Compiled kernels.
    pub kernels: Vec<PlanKernel>,
    /// Index of the first step whose effect cannot be taken back; `steps.len()` if none.
    pub commit: u32,
    /// Steps before that draw from the CPU's default generator, whose state is put back if one fails.
    pub restores: bool,
}

impl Plan {
    /// What it is given: its inputs, then objects.
    pub fn sources(&self) -> impl Iterator<Item = SourceId> {
        self.inputs.iter().chain(&self.objects).copied()
    }

    /// Of each view, the register of the tensor whose memory it is in.
    pub fn roots(&self) -> BTreeMap<Reg, Reg> {
        let mut roots: BTreeMap<Reg, Reg> = BTreeMap::new();
        for step in &self.steps {
            if let PlanStep::View { reg, base, .. } = step {
                roots.insert(*reg, *roots.get(base).unwrap_or(base));
            }
        }
        roots
    }
}

/// One compiled kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanKernel {
    /// For logs.
    pub name: String,
    /// blake3 of the artifact.
    pub artifact: [u8; 32],
    /// How many buffers each launch gives it.
    pub buffers: u32,
    /// How many scalar arguments.
    pub scalars: u32,
}

impl PlanKernel {
    /// Of a kernel that is not compiled yet.
    pub fn of(kernel: &Kernel) -> PlanKernel {
        PlanKernel {
            name: kernel.name.clone(),
            artifact: [0; 32],
            buffers: kernel.params.len() as u32,
            scalars: kernel.scalars,
        }
    }
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum PlanStep {
    /// A new uninitialised tensor.
    Alloc {
        /// Where it goes.
        reg: Reg,
        /// Element type.
        dtype: DType,
        /// Device.
        device: Device,
        /// Sizes, in elements.
        sizes: Vec<Dim>,
        /// Strides, in elements.
        strides: Vec<Dim>,
    },
    /// A new tensor object over `base`'s storage (no autograd).
    View {
        /// Where it goes.
        reg: Reg,
        /// Whose storage.
        base: Reg,
        /// Sizes.
        sizes: Vec<Dim>,
        /// Strides.
        strides: Vec<Dim>,
        /// Elements relative to `base`'s own first element.
        offset: Dim,
        /// Element type, if it differs from the base's (same size).
        dtype: DType,
    },
    /// Runs a kernel. Buffers are passed by their data pointers.
    Launch {
        /// Index into [`Plan::kernels`].
        kernel: u32,
        /// Buffer arguments.
        buffers: Vec<Reg>,
        /// Scalar arguments.
        scalars: Vec<Dim>,
    },
    /// Calls a torch op.
    Call {
        /// An aten overload, e.g. `aten::addmm` / `default`.
        op: Arc<str>,
        /// Overload name.
        overload: Arc<str>,
        /// All arguments in schema order, defaults filled in.
        args: Vec<PlanArg>,
        /// Registers of the results. For `out` overloads: none, the out registers are among the arguments.
        results: Vec<Reg>,
    },
    /// Ends the run unless torch returned what the rules predicted: later steps read by these sizes and strides. Strides
    /// of dimensions with at most one element are free.
    Expect {
        /// What a call made or wrote.
        reg: Reg,
        /// Element type.
        dtype: DType,
        /// Device.
        device: Device,
        /// Sizes.
        sizes: Vec<Dim>,
        /// Strides.
        strides: Vec<Dim>,
    },
    /// Raises the version counter of an input that kernels are about to write to.
    Bump(Reg),
    /// Drops a register's tensor.
    Free(Reg),
    /// Brings a tensor to the memory of a back end that has its own. Kernels take it and its views from there until
    /// [`PlanStep::Release`].
    Import(Reg),
    /// As [`PlanStep::Import`], but nothing was written to the tensor yet.
    Reserve(Reg),
    /// Brings it back, once the launches so far are done.
    Export(Reg),
    /// Gives that memory back.
    Release(Reg),
}

impl PlanStep {
    /// Gives every register that the step names.
    pub fn registers(&self, visit: &mut impl FnMut(Reg)) {
        fn argument(arg: &PlanArg, visit: &mut impl FnMut(Reg)) {
            match arg {
                PlanArg::Reg(r) => visit(*r),
                PlanArg::List(items) => items.iter().for_each(|i| argument(i, visit)),
                PlanArg::Const(_) | PlanArg::Dim(_) | PlanArg::Object(_) => {}
            }
        }
        match self {
            PlanStep::Alloc { reg, .. }
            | PlanStep::Expect { reg, .. }
            | PlanStep::Bump(reg)
            | PlanStep::Free(reg)
            | PlanStep::Import(reg)
            | PlanStep::Reserve(reg)
            | PlanStep::Export(reg)
            | PlanStep::Release(reg) => visit(*reg),
            PlanStep::View { reg, base, .. } => {
                visit(*reg);
                visit(*base);
            }
            PlanStep::Launch { buffers, .. } => buffers.iter().for_each(|r| visit(*r)),
            PlanStep::Call { args, results, .. } => {
                args.iter().for_each(|a| argument(a, visit));
                results.iter().for_each(|r| visit(*r));
            }
        }
    }
}

/// What [`PlanStep::Call`] names where an op runs under torch's autograd: the name of the op, that of its overload, for each
/// tensor among its arguments whether it gets a gradient, the strides of its results (none: torch's choice), its arguments. It gives the results of the op, and a tape.
pub const TAPED: &str = "flambeau::taped";

/// What it names for the gradients: the tape, and for each result its gradient or `None`. It gives the gradients of the
/// tensors that get one, contiguous.
pub const TAPED_BACKWARD: &str = "flambeau::taped_backward";

/// What it names where the plan calls what the program calls, for which there is no op: the path of the function, or `.` and
/// that of a method of tensors; the names of the last arguments; whether the call writes to its first argument, of which
/// it is then given a copy; the strides of each result; its arguments. Sequences are lists that begin with their kind:
/// `list`, `tuple`, `slice`, `dict`. It gives tensors with memory of their own.
pub const CALLED: &str = "flambeau::called";

/// What it names for a warning of Python's: its text, its class, the file and the line, and the globals of the module there.
pub const WARNED: &str = "flambeau::warned";

/// What it names where an output is a tensor of an input's memory: no other call gives its argument's.
pub const DETACH: &str = "aten::detach";

/// An argument of a torch op.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum PlanArg {
    /// A tensor.
    Reg(Reg),
    /// A constant.
    Const(Const),
    /// A size.
    Dim(Dim),
    /// The one of this number among [`Plan::objects`].
    Object(u32),
    /// A list.
    List(#[serde(deserialize_with = "crate::bounds::nested_items")] Vec<PlanArg>),
}
