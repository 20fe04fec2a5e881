//! The verifier of compiled frames: everything in one that is an index, a count or a size is looked at before a client
//! makes it ready. What passes may still be a wrong frame; it is none that reaches beyond its own tables, registers and
//! memory. Code is believed as far as its hash goes: what its instructions mean, only CPython knows.

use crate::code::{Code, Const};
use crate::dim::{Atom, Dim, SymId};
use crate::exit::{Build, BuildId, Effect, End, Exit, Resume, Then};
use crate::graph::{Arg, Graph, NodeId, NodeOp};
use crate::guard::{Guard, GuardKind, GuardProgram, KeyObject, TensorGuard};
use crate::kernel::DType;
use crate::object::part_name;
use crate::plan::{
    Body, CompiledFrame, IndexCheck, Plan, PlanArg, PlanStep, Reg, Symbol, SymbolOf, Taken, Term, Training,
};
use crate::source::{CallKey, KeyPart, SourceId, SourceTable, Step};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Most dimensions of a tensor.
pub(crate) const MAX_NDIM: usize = 64;
/// Most symbols and registers; both are allocated by their largest number.
const MAX_NUMBER: u32 = 1 << 20;
/// Most items that an iterator is advanced by.
const MAX_SKIP: u64 = 1 << 40;

/// What is wrong with a frame: one line, for the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the frame is damaged: {0}")]
pub struct Damage(pub String);

type Checked = Result<(), Damage>;

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(Damage(what())) }
}

/// Checks a frame for calls with so many argument slots.
pub fn frame(frame: &CompiledFrame, args: usize) -> Checked {
    let CompiledFrame { guards, symbols, indices, body, exit, .. } = frame;
    let sources = sources(&guards.sources, args)?;
    let defined = self::symbols(symbols, sources)?;
    let scope = Scope { sources, symbols: &defined };
    scope.guards(guards)?;
    indices.iter().try_for_each(|check| scope.indices(check, guards))?;
    let outputs = match body {
        Body::Eager(graph) | Body::Fx(graph) => {
            scope.graph(graph)?;
            graph.outputs.len()
        }
        Body::Native(plan) => {
            scope.plan(plan, guards)?;
            plan.outputs.len()
        }
        Body::Training(training) => {
            scope.training(training, guards)?;
            training.left as usize
        }
    };
    scope.exit(exit, outputs)
}

/// Checks a graph that came by itself: `sources` of them, no symbols.
pub fn graph(graph: &Graph, sources: usize) -> Checked {
    Scope { sources, symbols: &BTreeSet::new() }.graph(graph)
}

fn sources(table: &SourceTable, args: usize) -> Result<usize, Damage> {
    for (index, node) in table.nodes().iter().enumerate() {
        let root = matches!(node.step, Step::Arg(_) | Step::Function | Step::SysModule(_) | Step::Builtins);
        ensure(root == node.base.is_none(), || format!("source {index} begins where no path does"))?;
        ensure(node.base.is_none_or(|base| (base.0 as usize) < index), || {
            format!("source {index} is before its base")
        })?;
        let inside = match node.step {
            Step::Arg(i) => (i as usize) < args,
            Step::Part(of, at) => part_name(of, at).is_some(),
            Step::Cached(ref key) => {
                let mut inside = true;
                key.map(&mut |source| inside &= (source.0 as usize) < index);
                inside
            }
            _ => true,
        };
        ensure(inside, || format!("source {index} is no part of its base"))?;
    }
    Ok(table.nodes().len())
}

fn symbols(symbols: &[Symbol], sources: usize) -> Result<BTreeSet<SymId>, Damage> {
    let mut defined = BTreeSet::new();
    for symbol in symbols {
        let id = symbol.id.0;
        ensure(id < MAX_NUMBER, || format!("symbol {id} is one of too many"))?;
        defined.insert(symbol.id);
        ensure((symbol.source.0 as usize) < sources, || format!("symbol {id} has no source"))?;
        let inside = match symbol.of {
            SymbolOf::Int => true,
            SymbolOf::Size(d) | SymbolOf::Stride(d) => (d as usize) < MAX_NDIM,
        };
        ensure(inside, || format!("symbol {id} is of no dimension"))?;
    }
    Ok(defined)
}

/// What parts of a frame may refer to.
struct Scope<'a> {
    sources: usize,
    symbols: &'a BTreeSet<SymId>,
}

impl Scope<'_> {
    fn source(&self, source: SourceId) -> Checked {
        ensure((source.0 as usize) < self.sources, || format!("there is no source {}", source.0))
    }

    fn dim(&self, dim: &Dim) -> Checked {
        let Dim::Expr(poly) = dim else { return Ok(()) };
        for atom in poly.terms().flat_map(|(atoms, _)| atoms) {
            match atom {
                Atom::Sym(id) => ensure(self.symbols.contains(id), || format!("there is no symbol {}", id.0))?,
                Atom::FloorDiv(a, b) | Atom::Mod(a, b) | Atom::Max(a, b) | Atom::Min(a, b) => {
                    self.dim(a)?;
                    self.dim(b)?;
                }
            }
        }
        Ok(())
    }

    /// The terms of a check are complete, and its tensors are guarded to be integers on the CPU.
    fn indices(&self, check: &IndexCheck, program: &GuardProgram) -> Checked {
        self.dim(&check.size)?;
        let mut known = 0_usize;
        for term in &check.numbers {
            match term {
                Term::Tensor(source) => {
                    let is_read = |guard: &Guard| match &guard.kind {
                        GuardKind::Tensor(of) => {
                            guard.source == *source && of.dtype == DType::I64 && of.device.is_cpu()
                        }
                        _ => false,
                    };
                    ensure(program.guards.iter().any(is_read), || "indices in no such tensor".to_owned())?;
                    known += 1;
                }
                Term::Between(least, greatest) => {
                    self.dim(least)?;
                    self.dim(greatest)?;
                    known += 1;
                }
                Term::Add | Term::Sub | Term::Mul => {
                    ensure(known >= 2, || "indices computed of nothing".to_owned())?;
                    known -= 1;
                }
            }
        }
        ensure(known == 1, || "a check of no indices".to_owned())
    }

    /// Sizes and strides of one tensor.
    fn layout(&self, sizes: &[Dim], strides: &[Dim]) -> Checked {
        ensure(sizes.len() == strides.len() && sizes.len() <= MAX_NDIM, || "sizes without strides".to_owned())?;
        let negative = |dim: &Dim| dim.as_const().is_some_and(|c| c < 0);
        ensure(!sizes.iter().chain(strides).any(negative), || "a negative size or stride".to_owned())?;
        sizes.iter().chain(strides).try_for_each(|dim| self.dim(dim))
    }

    fn guards(&self, program: &GuardProgram) -> Checked {
        for node in program.sources.nodes() {
            match &node.step {
                Step::Item(key) => constant(key)?,
                Step::Cached(key) => call_key(key)?,
                _ => {}
            }
        }
        for guard in &program.guards {
            self.source(guard.source)?;
            match &guard.kind {
                GuardKind::Same(other)
                | GuardKind::NotSame(other)
                | GuardKind::NoKey(KeyObject::Source(other))
                | GuardKind::NotRegistered(KeyObject::Source(other)) => {
                    self.source(*other)?;
                }
                GuardKind::Distinct(others) | GuardKind::DisjointStorage(others) => {
                    ensure(!others.is_empty(), || "a guard about no value".to_owned())?;
                    others.iter().try_for_each(|other| self.source(*other))?;
                }
                GuardKind::Made(_, args) => args.iter().try_for_each(constant)?,
                GuardKind::Tensor(of) => self.layout(&of.sizes, &of.strides)?,
                GuardKind::Relation(_, a, b) => {
                    self.dim(a)?;
                    self.dim(b)?;
                }
                GuardKind::Equals(value)
                | GuardKind::BaseEquals(value)
                | GuardKind::NoItem(value)
                | GuardKind::Gives(_, value) => constant(value)?,
                GuardKind::NotCached { key, .. } => {
                    call_key(key)?;
                    let mut named = Vec::new();
                    key.map(&mut |source| named.push(*source));
                    named.into_iter().try_for_each(|source| self.source(source))?;
                }
                GuardKind::Keys(values) | GuardKind::Elements(values) | GuardKind::InOrder(values) => {
                    values.iter().try_for_each(constant)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn graph(&self, graph: &Graph) -> Checked {
        for (index, node) in graph.nodes.iter().enumerate() {
            let location = node.location.iter().chain(&node.stack).all(|l| (*l as usize) < graph.locations.len());
            ensure(location, || format!("node {index} has no location"))?;
            match &node.op {
                NodeOp::Placeholder(source) => self.source(*source)?,
                NodeOp::Call { args, kwargs, .. } => {
                    args.iter().chain(kwargs.iter().map(|(_, arg)| arg)).try_for_each(|arg| self.arg(arg, index))?;
                }
            }
        }
        let inside = graph.outputs.iter().all(|id| (id.0 as usize) < graph.nodes.len());
        ensure(inside, || "an output is no node".to_owned())?;
        let mut next = NodeId(0);
        let apart = graph.checkpoints.iter().all(|(first, last)| {
            let follows = next <= *first && first <= last && (last.0 as usize) < graph.nodes.len();
            next = NodeId(last.0 + 1);
            follows
        });
        ensure(apart, || "regions that are computed again overlap".to_owned())
    }

    fn arg(&self, arg: &Arg, before: usize) -> Checked {
        match arg {
            Arg::Node(id) => ensure((id.0 as usize) < before, || format!("node {before} reads a later one")),
            Arg::Const(value) => constant(value),
            Arg::Dim(dim) => self.dim(dim),
            Arg::List(parts) | Arg::Tuple(parts) => parts.iter().try_for_each(|part| self.arg(part, before)),
            Arg::Slice(parts) => parts.iter().try_for_each(|part| self.arg(part, before)),
            Arg::Dict(items) => items.iter().try_for_each(|(key, part)| {
                constant(key)?;
                self.arg(part, before)
            }),
        }
    }

    /// All plans, and that what one gives is what the other takes.
    fn training(&self, training: &Training, guards: &GuardProgram) -> Checked {
        let Training { forward, left, written, nodes, ended, views, .. } = training;
        self.plan(forward, guards)?;
        let (inputs, outputs) = (forward.inputs.len(), forward.outputs.len());
        ensure(*left as usize <= outputs, || "a graph of more outputs than its plan".to_owned())?;
        ensure(written.iter().all(|i| (*i as usize) < inputs), || "a write to no input".to_owned())?;
        let known = |taken: &Taken| match *taken {
            Taken::Input(i) => (i as usize) < inputs,
            Taken::Output(i) => (i as usize) < outputs,
        };
        let is_pair = |(output, input): &(u32, u32)| known(&Taken::Output(*output)) && known(&Taken::Input(*input));
        ensure(ended.iter().all(is_pair), || "an end of what is no output".to_owned())?;
        let is_view = |(output, of): &(u32, Taken)| known(&Taken::Output(*output)) && known(of);
        ensure(views.iter().all(is_view), || "a view of nothing".to_owned())?;
        for node in nodes {
            self.steps(&node.backward, &[])?;
            let taken = node.reads.len() + node.outputs.len();
            ensure(taken == node.backward.inputs.len(), || "a derivative of other inputs".to_owned())?;
            let given = node.backward.outputs.len();
            ensure(given == node.gradients.len(), || "a derivative of other outputs".to_owned())?;
            let reached = node.reached_by.iter().flatten().all(|at| (*at as usize) < node.outputs.len());
            ensure(reached && node.reached_by.len() == given, || "a gradient of no output".to_owned())?;
            let is_object =
                |taken: &Taken| matches!(*taken, Taken::Input(i) if (i as usize) < forward.sources().count());
            let all = [&node.reads, &node.gradients].into_iter().flatten().all(known);
            let takes = node.takes.iter().all(|taken| known(taken) || is_object(taken));
            ensure(all && takes, || "a derivative by nothing".to_owned())?;
            for followed in &node.outputs {
                ensure(known(&Taken::Output(followed.output)), || "a derivative of no output".to_owned())?;
                self.layout(&followed.sizes, &followed.strides)?;
            }
            if let Some(graph) = &node.graph {
                Scope { sources: node.takes.len(), symbols: self.symbols }.graph(graph)?;
                let same = graph.outputs.len() == node.outputs.len();
                ensure(same, || "a part of a graph with other outputs".to_owned())?;
            }
        }
        Ok(())
    }

    fn plan(&self, plan: &Plan, guards: &GuardProgram) -> Checked {
        plan.sources().try_for_each(|source| self.source(source))?;
        let tensors = tensors(guards);
        let each = plan.inputs.iter().enumerate().map(|(reg, source)| {
            let of = tensors.get(source).ok_or_else(|| Damage(format!("input {reg} is guarded to be no tensor")))?;
            Ok(bytes(of.dtype, &of.sizes, &of.strides))
        });
        let known: Vec<Option<i64>> = each.collect::<Result<_, Damage>>()?;
        self.steps(plan, &known)
    }

    /// The steps of a plan, of whose first inputs the bytes are known.
    fn steps(&self, plan: &Plan, known: &[Option<i64>]) -> Checked {
        let inputs = plan.inputs.len();
        ensure(plan.regs <= MAX_NUMBER && inputs <= plan.regs as usize, || {
            "too many registers, or too few".to_owned()
        })?;
        ensure(plan.commit as usize <= plan.steps.len(), || "the commit point is no step".to_owned())?;
        let mut run = Run { scope: self, plan, live: vec![false; plan.regs as usize], bytes: HashMap::new() };
        run.live[..inputs].fill(true);
        run.bytes.extend((0..).zip(known).filter_map(|(reg, bytes)| Some((reg, (*bytes)?))));
        for (at, step) in plan.steps.iter().enumerate() {
            run.step(step).map_err(|Damage(why)| Damage(format!("step {at}: {why}")))?;
        }
        plan.outputs.iter().try_for_each(|reg| run.read(*reg))
    }

    fn exit(&self, exit: &Exit, outputs: usize) -> Checked {
        for (index, build) in exit.builds.iter().enumerate() {
            let part = |id: &BuildId| ensure((id.0 as usize) < index, || format!("build {index} has a later part"));
            match build {
                Build::Output(i) => ensure((*i as usize) < outputs, || format!("there is no output {i}"))?,
                Build::Source(source) => self.source(*source)?,
                Build::Const(value) => constant(value)?,
                Build::Dim(dim) => self.dim(dim)?,
                Build::Path(_) | Build::Cell => {}
                Build::Tuple(items, class) => items.iter().chain(class).try_for_each(part)?,
                Build::List(items) | Build::Set(items) | Build::FrozenSet(items) | Build::Call(_, items) => {
                    items.iter().try_for_each(part)?;
                }
                Build::Dict(items, class) => {
                    items.iter().flat_map(|(key, value)| [key, value]).chain(class).try_for_each(part)?;
                }
                Build::Instance { class, dict } => {
                    part(class)?;
                    dict.iter().try_for_each(|(_, value)| part(value))?;
                }
                Build::Iter(of, skip) => {
                    part(of)?;
                    ensure(*skip <= MAX_SKIP, || format!("build {index} is advanced too far"))?;
                }
                Build::Generator { function, state, .. } => [function, state].into_iter().try_for_each(part)?,
                Build::NewGenerator { function, args, keywords } => {
                    part(function)?;
                    args.iter().chain(keywords.iter().map(|(_, value)| value)).try_for_each(part)?;
                }
                Build::Method(function, receiver) => [function, receiver].into_iter().try_for_each(part)?,
                Build::Function { code, globals, defaults, kwdefaults, closure, .. } => {
                    let Const::Code(of) = code else { return Err(Damage(format!("build {index} has no code"))) };
                    constant(code)?;
                    self.source(*globals)?;
                    closure.iter().chain(defaults).chain(kwdefaults).try_for_each(part)?;
                    let free = of.localspluskinds.iter().filter(|kind| **kind & Code::FREE != 0).count();
                    ensure(free == closure.len(), || format!("build {index} has other cells than its code"))?;
                }
            }
        }
        let known =
            |id: &BuildId| ensure((id.0 as usize) < exit.builds.len(), || format!("there is no build {}", id.0));
        exit.effects.iter().try_for_each(|effect| parts_of(effect).into_iter().try_for_each(|id| known(&id)))?;
        match &exit.end {
            End::Nothing | End::Refused(_) => Ok(()),
            End::Return(id) => known(id),
            End::Break(end) => {
                let resume = |resume: &Resume| known(&resume.function).and_then(|()| known(&resume.state));
                known(&end.action.0)?;
                known(&end.action.1)?;
                if let Some(catch) = &end.catch {
                    resume(&catch.resume)?;
                }
                match &end.then {
                    Then::Return => Ok(()),
                    Then::Resume(point) => resume(point),
                    Then::Branch { yes: a, no: b } | Then::Iterate { body: a, done: b } => {
                        resume(a).and_then(|()| resume(b))
                    }
                }
            }
        }
    }
}

fn parts_of(effect: &Effect) -> Vec<BuildId> {
    match effect {
        Effect::SetAttr(object, _, value) | Effect::SetSlot(object, _, value) => vec![*object, *value],
        Effect::SetDescriptor(object, _, value) => vec![*object, *value],
        Effect::DropGrad(tensor) => vec![*tensor],
        Effect::DelAttr(object, _) | Effect::DelSlot(object, _) | Effect::Advance(object, _) => vec![*object],
        Effect::SetItem(object, key, value) => vec![*object, *key, *value],
        Effect::DelItem(object, key) => vec![*object, *key],
        Effect::SetList(object, items)
        | Effect::SetDeque(object, items, _)
        | Effect::ExtendList(object, items)
        | Effect::ChangeSet(object, _, items) => items.iter().chain([object]).copied().collect(),
        Effect::Recall { function, args, keywords, found } => {
            keywords.iter().map(|(_, value)| value).chain(args).chain([function]).chain(found).copied().collect()
        }
        Effect::SetDict(object, items) => {
            items.iter().flat_map(|(key, value)| [*key, *value]).chain([*object]).collect()
        }
        Effect::SetCell(cell, value) => value.iter().chain([cell]).copied().collect(),
        Effect::SetGradMode(_) | Effect::Autocast { .. } | Effect::SetBreaks { .. } => vec![],
    }
}

/// Constants among the arguments of a call.
fn call_key(key: &CallKey<SourceId>) -> Checked {
    fn part_of(part: &KeyPart<SourceId>) -> Checked {
        match part {
            KeyPart::Const(value) => constant(value),
            KeyPart::Tuple(parts) => parts.iter().try_for_each(part_of),
            KeyPart::Object(_) => Ok(()),
        }
    }
    key.args.iter().chain(key.keywords.iter().map(|(_, value)| value)).try_for_each(part_of)
}

/// Constants become objects by themselves; code in them must be what its hash says.
fn constant(value: &Const) -> Checked {
    ensure(value.is_sound() && shaped(value), || "code that is not what its hash says".to_owned())
}

/// Whether what is counted twice in code objects agrees.
fn shaped(value: &Const) -> bool {
    match value {
        Const::Tuple(parts) | Const::FrozenSet(parts) => parts.iter().all(shaped),
        Const::Slice(parts) => parts.iter().all(shaped),
        Const::Code(code) => {
            let arguments = u64::from(code.argcount) + u64::from(code.kwonlyargcount);
            code.localsplusnames.len() == code.localspluskinds.len()
                && code.bytecode.len().is_multiple_of(2)
                && !code.bytecode.is_empty()
                && arguments <= code.localsplusnames.len() as u64
                && code.posonlyargcount <= code.argcount
                && code.stacksize < MAX_NUMBER
                && code.consts.iter().all(shaped)
        }
        _ => true,
    }
}

/// The tensors that guards name, also by way of others that are the same object.
fn tensors(program: &GuardProgram) -> BTreeMap<SourceId, &TensorGuard> {
    let mut found = BTreeMap::new();
    for guard in &program.guards {
        if let GuardKind::Tensor(of) = &guard.kind {
            found.insert(guard.source, of);
        }
    }
    for guard in &program.guards {
        if let GuardKind::Same(other) = guard.kind {
            let known = found.get(&other).or_else(|| found.get(&guard.source)).copied();
            if let Some(known) = known {
                found.entry(guard.source).or_insert(known);
                found.entry(other).or_insert(known);
            }
        }
    }
    found
}

/// Bytes from a tensor's first element to the end of its last, where that is known; `None` as well where it is beyond all
/// memory.
fn bytes(dtype: DType, sizes: &[Dim], strides: &[Dim]) -> Option<i64> {
    let mut last = 0_i64;
    for (size, stride) in sizes.iter().zip(strides) {
        match (size.as_const()?, stride.as_const()?) {
            (0, _) => return Some(0),
            (size, stride) => last = last.checked_add((size - 1).checked_mul(stride)?)?,
        }
    }
    last.checked_add(1)?.checked_mul(dtype.size() as i64)
}

/// The registers of a plan as its steps go by.
struct Run<'a> {
    scope: &'a Scope<'a>,
    plan: &'a Plan,
    live: Vec<bool>,
    /// Of the tensors of which that is known.
    bytes: HashMap<u32, i64>,
}

impl Run<'_> {
    fn read(&self, reg: Reg) -> Checked {
        let live = self.live.get(reg.0 as usize).copied().unwrap_or(false);
        ensure(live, || format!("register {} holds nothing", reg.0))
    }

    fn write(&mut self, reg: Reg) -> Checked {
        let own = (reg.0 as usize) >= self.plan.inputs.len();
        let place = self.live.get_mut(reg.0 as usize).filter(|_| own);
        *place.ok_or_else(|| Damage(format!("register {} cannot be written", reg.0)))? = true;
        self.bytes.remove(&reg.0);
        Ok(())
    }

    fn step(&mut self, step: &PlanStep) -> Checked {
        match step {
            PlanStep::Alloc { reg, dtype, sizes, strides, .. } => {
                self.scope.layout(sizes, strides)?;
                self.write(*reg)?;
                self.bytes.extend(bytes(*dtype, sizes, strides).map(|bytes| (reg.0, bytes)));
            }
            PlanStep::View { reg, base, sizes, strides, offset, dtype } => {
                self.read(*base)?;
                self.scope.layout(sizes, strides)?;
                self.scope.dim(offset)?;
                self.view(*base, *dtype, offset, bytes(*dtype, sizes, strides))?;
                self.write(*reg)?;
            }
            PlanStep::Launch { kernel, buffers, scalars } => {
                let Some(of) = self.plan.kernels.get(*kernel as usize) else {
                    return Err(Damage(format!("there is no kernel {kernel}")));
                };
                let taken = (of.buffers as usize, of.scalars as usize);
                ensure(taken == (buffers.len(), scalars.len()), || format!("kernel {kernel} takes other arguments"))?;
                buffers.iter().try_for_each(|reg| self.read(*reg))?;
                scalars.iter().try_for_each(|dim| self.scope.dim(dim))?;
            }
            PlanStep::Call { args, results, .. } => {
                args.iter().try_for_each(|arg| self.arg(arg))?;
                results.iter().try_for_each(|reg| self.write(*reg))?;
            }
            PlanStep::Expect { reg, sizes, strides, .. } => {
                self.read(*reg)?;
                self.scope.layout(sizes, strides)?;
            }
            PlanStep::Bump(reg) => {
                let is_input = (reg.0 as usize) < self.plan.inputs.len();
                ensure(is_input, || format!("register {} is no input", reg.0))?;
            }
            PlanStep::Free(reg) => {
                self.read(*reg)?;
                self.write(*reg)?;
                self.live[reg.0 as usize] = false;
            }
            PlanStep::Import(reg) | PlanStep::Reserve(reg) | PlanStep::Export(reg) | PlanStep::Release(reg) => {
                let known = (reg.0 as usize) < self.live.len();
                ensure(known, || format!("there is no register {}", reg.0))?;
            }
        }
        Ok(())
    }

    /// A view of a tensor that the plan made stays within it, where both are known.
    fn view(&self, base: Reg, dtype: DType, offset: &Dim, bytes: Option<i64>) -> Checked {
        let own = base.0 as usize >= self.plan.inputs.len();
        let room = self.bytes.get(&base.0).filter(|_| own);
        let (Some(room), Some(offset)) = (room, offset.as_const()) else { return Ok(()) };
        let sizes_vary = bytes.is_none();
        let start = offset.checked_mul(dtype.size() as i64).filter(|start| *start >= 0);
        let end = start.and_then(|start| start.checked_add(bytes.unwrap_or(0)));
        let inside = end.is_some_and(|end| end <= *room);
        ensure(inside || bytes == Some(0) || sizes_vary, || format!("a view beyond the memory of register {}", base.0))
    }

    fn arg(&self, arg: &PlanArg) -> Checked {
        match arg {
            PlanArg::Reg(reg) => self.read(*reg),
            PlanArg::Const(value) => constant(value),
            PlanArg::Dim(dim) => self.scope.dim(dim),
            PlanArg::Object(at) => {
                ensure((*at as usize) < self.plan.objects.len(), || format!("there is no object {at}"))
            }
            PlanArg::List(parts) => parts.iter().try_for_each(|part| self.arg(part)),
        }
    }
}

#[cfg(test)]
mod tests;
