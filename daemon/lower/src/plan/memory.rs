//! Memory: which values share storage, when it is allocated and freed; and the launch plan that follows.

use crate::nest::affine::Affine;
use crate::nest::body::{Body, Expr, Place, Write};
use crate::nest::group::{MemoryView, Schedule, Task, memory_view};
use crate::nest::versions::{overwritten, written_by};
use crate::plan::kernels::{self, Buffer, Buffers, Launch};
use flambeau_core::graph::{Core, CoreId, CoreOp, ExternArg, ExternCall, OutputBase};
use flambeau_ir::dim::Dim;
use flambeau_ir::kernel::{DType, Kernel};
use flambeau_ir::plan::{Plan, PlanArg, PlanKernel, PlanStep, Reg, TAPED};
use flambeau_ir::reason::Reason;
use flambeau_ir::source::SourceId;
use flambeau_ir::tensor::contiguous_strides;
use flambeau_ops::decompose::refuse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A buffer is kept for a later one of the same size for at most this many tasks.
const KEEP: usize = 4;

/// A tensor in a register.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    dtype: DType,
    sizes: Vec<Dim>,
    strides: Vec<Dim>,
}

impl Shape {
    /// That of a value in memory of its own.
    pub fn of(core: &Core, id: CoreId) -> Shape {
        let node = core.node(id);
        Shape { dtype: node.dtype, sizes: node.sizes.clone(), strides: node.strides.clone() }
    }

    /// Whether the memory of one is of the size of the other's.
    pub fn has_room_of(&self, other: &Shape) -> bool {
        self.dtype.size() == other.dtype.size() && room(self) == room(other)
    }
}

struct Storage {
    reg: Reg,
    shape: Shape,
    /// Elements from its first to its last.
    room: Dim,
    /// May be taken over or reused.
    ours: bool,
}

struct Builder<'a> {
    core: &'a Core,
    schedule: &'a Schedule,
    held: Buffers<'a>,
    steps: Vec<PlanStep>,
    /// Objects that calls take beside tensors.
    objects: Vec<SourceId>,
    /// A check comes after what cannot be taken back.
    checks_late: bool,
    regs: u32,
    storages: Vec<Storage>,
    /// Storage of every buffer that has one now.
    home: BTreeMap<Buffer, usize>,
    /// Storages nobody uses, with the task that freed them.
    pool: Vec<(usize, usize)>,
    last_use: BTreeMap<Buffer, usize>,
    views: HashMap<(Reg, Shape, Dim), Reg>,
    kernels: Vec<Kernel>,
    known: HashMap<Kernel, u32>,
    commit: Option<usize>,
    /// Draws can be taken back.
    restores: bool,
    /// Inputs that kernels write to.
    written: BTreeSet<u32>,
    /// Inputs that are written the same when the plan is run once more.
    overwritten: BTreeSet<u32>,
    /// The first step that writes to another.
    changes: Option<usize>,
}

/// What lowering yields.
#[derive(Clone, Debug, Default)]
pub struct Lowered {
    /// The plan; its kernels have no artifacts yet.
    pub plan: Plan,
    /// The kernels, in the order of [`Plan::kernels`].
    pub kernels: Vec<Kernel>,
}

/// Plans memory and writes the plan. `inputs` are the sources of the tensor inputs; `restores`: draws can be taken back.
pub fn plan(
    core: &Core,
    schedule: &Schedule,
    inputs: Vec<SourceId>,
    backend: &str,
    restores: bool,
) -> Result<Lowered, Reason> {
    let mut builder = Builder {
        core,
        schedule,
        held: Buffers::of(core, schedule),
        steps: vec![],
        objects: vec![],
        checks_late: false,
        regs: inputs.len() as u32,
        storages: vec![],
        home: BTreeMap::new(),
        pool: vec![],
        last_use: BTreeMap::new(),
        views: HashMap::new(),
        kernels: vec![],
        known: HashMap::new(),
        commit: None,
        restores,
        written: BTreeSet::new(),
        overwritten: BTreeSet::new(),
        changes: None,
    };
    builder.overwritten = overwritten(core, schedule.tasks.iter().flat_map(|task| builder.read_by(task)));
    builder.take_inputs(inputs.len());
    builder.find_last_uses();
    for (at, task) in schedule.tasks.iter().enumerate() {
        match task {
            Task::Kernel(body) => builder.kernel(at, body),
            Task::Extern(id) => builder.call(at, *id),
        }
        builder.release(at);
    }
    let outputs = builder.outputs();
    let calls = |step: &PlanStep| matches!(step, PlanStep::Call { .. });
    if builder.changes.is_some_and(|at| builder.steps[at..].iter().any(calls)) {
        return refuse("a write to a part of a large input, which is read before it, and a call of torch after it");
    }
    if builder.checks_late {
        return refuse("a check after what cannot be taken back");
    }
    let commit = builder.commit;
    let (steps, commit) = with_frees(builder.steps, inputs.len() as u32, &outputs, commit);
    let names = builder.kernels.iter().map(PlanKernel::of).collect();
    let plan = Plan {
        regs: builder.regs,
        inputs,
        objects: builder.objects,
        steps,
        outputs,
        backend: backend.into(),
        device: core.device,
        kernels: names,
        commit: commit as u32,
        restores,
    };
    Ok(Lowered { plan, kernels: builder.kernels })
}

impl Builder<'_> {
    fn shape(&self, id: CoreId) -> Shape {
        Shape::of(self.core, id)
    }

    fn take_inputs(&mut self, count: usize) {
        for node in self.core.nodes() {
            let CoreOp::Input(i) = node.op else { continue };
            let shape = Shape { dtype: node.dtype, sizes: node.sizes.clone(), strides: node.strides.clone() };
            let room = room(&shape);
            debug_assert!((i as usize) < count);
            self.home.insert(Buffer::Input(i), self.storages.len());
            self.storages.push(Storage { reg: Reg(i), shape, room, ours: false });
        }
    }

    /// The values in memory that a task reads; what a call writes to is none of them.
    fn read_by(&self, task: &Task) -> Vec<CoreId> {
        match task {
            Task::Kernel(body) => loaded(body).collect(),
            Task::Extern(id) => {
                let op = &self.core.node(*id).op;
                let written = usize::from(written_by(op).is_some());
                op.operands().into_iter().skip(written).map(|operand| self.view(operand).base).collect()
            }
        }
    }

    fn view(&self, id: CoreId) -> MemoryView {
        memory_view(self.core, &self.schedule.copied, id)
    }

    fn results(&self, call: CoreId) -> BTreeMap<u32, CoreId> {
        let of = |id: CoreId| match self.core.node(id).op {
            CoreOp::Result(c, i) if c == call => Some((i, id)),
            _ => None,
        };
        self.core.ids().filter_map(of).collect()
    }

    fn find_last_uses(&mut self) {
        let mut last = BTreeMap::new();
        for (at, task) in self.schedule.tasks.iter().enumerate() {
            self.read_by(task).into_iter().for_each(|id| {
                last.insert(self.held.source(id), at);
            });
            match task {
                Task::Kernel(body) => body.writes.iter().for_each(|w| {
                    last.insert(self.held.target(w), at);
                }),
                Task::Extern(id) => self.results(*id).values().for_each(|r| {
                    last.insert(Buffer::Value(*r), at);
                }),
            }
        }
        for id in self.core.output_values() {
            let base = self.view(id).base;
            last.insert(self.held.source(base), usize::MAX);
        }
        // Torch keeps what it likes of them for the derivative.
        for task in &self.schedule.tasks {
            let Task::Extern(id) = task else { continue };
            if matches!(&self.core.node(*id).op, CoreOp::Extern(call) if &*call.op == TAPED) {
                let read = self.read_by(task).into_iter().map(|id| self.held.source(id));
                let given = self.results(*id).into_values().map(Buffer::Value);
                last.extend(read.chain(given).map(|buffer| (buffer, usize::MAX)));
            }
        }
        self.last_use = last;
    }

    fn expect(&self, reg: Reg, shape: Shape) -> PlanStep {
        let Shape { dtype, sizes, strides } = shape;
        PlanStep::Expect { reg, dtype, device: self.core.device, sizes, strides }
    }

    fn fresh(&mut self) -> Reg {
        self.regs += 1;
        Reg(self.regs - 1)
    }

    /// Storage for a buffer: reused where one of the same size was freed lately, else new.
    fn allocate(&mut self, at: usize, id: CoreId) -> usize {
        let shape = self.shape(id);
        let room = room(&shape);
        let fits = |s: &Storage| s.shape.dtype.size() == shape.dtype.size() && s.room == room;
        let found = self.pool.iter().rposition(|(s, freed)| fits(&self.storages[*s]) && at - freed <= KEEP);
        let storage = if let Some(slot) = found {
            self.pool.remove(slot).0
        } else {
            let reg = self.fresh();
            self.steps.push(PlanStep::Alloc {
                reg,
                dtype: shape.dtype,
                device: self.core.device,
                sizes: shape.sizes.clone(),
                strides: shape.strides.clone(),
            });
            self.storages.push(Storage { reg, shape, room, ours: true });
            self.storages.len() - 1
        };
        self.home.insert(Buffer::Value(id), storage);
        storage
    }

    /// A register that holds exactly this tensor over the storage.
    fn register(&mut self, storage: usize, shape: &Shape, offset: &Dim) -> Reg {
        let held = &self.storages[storage];
        if held.shape == *shape && offset.is(0) {
            return held.reg;
        }
        let key = (held.reg, shape.clone(), offset.clone());
        if let Some(reg) = self.views.get(&key) {
            return *reg;
        }
        let base = held.reg;
        let reg = self.new_view(base, shape, offset);
        self.views.insert(key, reg);
        reg
    }

    fn new_view(&mut self, base: Reg, shape: &Shape, offset: &Dim) -> Reg {
        let reg = self.fresh();
        self.steps.push(PlanStep::View {
            reg,
            base,
            sizes: shape.sizes.clone(),
            strides: shape.strides.clone(),
            offset: offset.clone(),
            dtype: shape.dtype,
        });
        reg
    }

    fn kernel(&mut self, at: usize, body: &Body) {
        if self.is_done(body) {
            return;
        }
        let in_place = self.take_over(at, body);
        let Launch { kernel, buffers, scalars } = kernels::finish(self.core, self.held, body, &in_place);
        let targets: Vec<Buffer> = body.writes.iter().map(|w| self.held.target(w)).collect();
        for target in &targets {
            if let (Buffer::Value(id), false) = (target, self.home.contains_key(target)) {
                self.allocate(at, *id);
            }
        }
        let regs = buffers.iter().filter_map(|b| self.home.get(b)).map(|s| self.storages[*s].reg).collect();
        for target in &targets {
            if let Buffer::Input(input) = in_place.get(target).unwrap_or(target) {
                self.writes_to(*input);
            }
        }
        let kernel = self.intern(kernel);
        self.steps.push(PlanStep::Launch { kernel, buffers: regs, scalars });
    }

    /// Whether a kernel would copy a value to the input whose memory it is in.
    fn is_done(&self, body: &Body) -> bool {
        let home = |buffer| self.home.get(&buffer);
        let stays = |write: &Write| match write.root.place {
            Place::Input(input) => home(Buffer::Value(write.root.node)) == home(Buffer::Input(input)),
            _ => false,
        };
        body.writes.iter().all(stays)
    }

    /// What comes next writes to an input.
    fn writes_to(&mut self, input: u32) {
        // Those of the end together: the client needs the interpreter for it.
        let at_the_end = |(_, value): &&(u32, CoreId)| !self.core.node(*value).op.is_input();
        let end: Vec<u32> = self.core.writes.iter().filter(at_the_end).map(|(input, _)| *input).collect();
        for input in if end.contains(&input) { end } else { vec![input] } {
            if self.written.insert(input) && !self.core.uncounted.contains(&input) {
                self.steps.push(PlanStep::Bump(Reg(input)));
            }
        }
        if !self.overwritten.contains(&input) {
            self.changes.get_or_insert(self.steps.len());
            self.commits();
        }
    }

    fn commits(&mut self) {
        self.commit.get_or_insert(self.steps.len());
    }

    fn intern(&mut self, mut kernel: Kernel) -> u32 {
        if let Some(at) = self.known.get(&kernel) {
            return *at;
        }
        let at = self.kernels.len() as u32;
        self.known.insert(kernel.clone(), at);
        kernel.name = format!("{}_{at}", kernels::name(&kernel));
        self.kernels.push(kernel);
        at
    }

    /// The input whose memory a value can be written to at once, where it would be copied to it at the end: nothing reads
    /// what lies there later, but for each element at its own place, and nothing that may fail comes after.
    fn destination(&self, at: usize, body: &Body, write: &Write) -> Option<u32> {
        let value = write.root.node;
        let mut written = self.core.writes.iter().filter(|(_, id)| *id == value);
        let (Some((input, _)), None) = (written.next(), written.next()) else { return None };
        let held = &self.storages[*self.home.get(&Buffer::Input(*input))?];
        let lies_there = |id: CoreId| self.core.input(id) == Some(*input);
        let later = &self.schedule.tasks[at + 1..];
        let fits = held.shape == self.shape(value)
            && !self.core.output_values().any(|id| self.view(id).base == value)
            && only_at(body, lies_there, &write.at)
            && !later
                .iter()
                .any(|task| matches!(task, Task::Extern(_)) || self.read_by(task).into_iter().any(lies_there));
        fits.then_some(*input)
    }

    /// Lets writes take over buffers that the kernel is the last to read, each element at its own place.
    fn take_over(&mut self, at: usize, body: &Body) -> HashMap<Buffer, Buffer> {
        let mut pairs = HashMap::new();
        let top = body.insts.iter().map(|i| i.level).max().unwrap_or(0);
        let candidates: BTreeSet<CoreId> = loaded(body).collect();
        for write in body.writes.iter().filter(|w| w.root.place == Place::Own && body.insts[w.value].level == top) {
            let target = self.held.target(write);
            let wanted = self.shape(write.root.node);
            if self.home.contains_key(&target) {
                continue;
            }
            if let Some(input) = self.destination(at, body, write) {
                pairs.insert(target, Buffer::Input(input));
                self.home.insert(target, self.home[&Buffer::Input(input)]);
                continue;
            }
            let fits = |id: &CoreId| {
                let buffer = self.held.source(*id);
                let Some(&storage) = self.home.get(&buffer) else { return false };
                let held = &self.storages[storage];
                held.ours
                    && self.last_use.get(&buffer) == Some(&at)
                    && !pairs.values().any(|b| *b == buffer)
                    && self.core.node(*id).dtype == wanted.dtype
                    && held.shape.dtype.size() == wanted.dtype.size()
                    && held.room == room(&wanted)
                    && only_at(body, |id| self.held.source(id) == buffer, &write.at)
            };
            let Some(id) = candidates.iter().find(|id| fits(id)) else { continue };
            let buffer = self.held.source(*id);
            pairs.insert(target, buffer);
            let storage = self.home[&buffer];
            self.home.insert(target, storage);
        }
        pairs
    }

    fn call(&mut self, at: usize, id: CoreId) {
        let CoreOp::Extern(call) = &self.core.node(id).op else { return };
        let call: &ExternCall = call;
        self.checks_late |= call.only_checks() && self.commit.is_some();
        let mut args: Vec<PlanArg> = call.args.iter().map(|a| self.argument(at, a)).collect();
        let nodes = self.results(id);
        if call.draws && !self.restores {
            self.commits();
        }
        if let Some(input) = written_by(&self.core.node(id).op).and_then(|of| self.core.input(self.view(of).base)) {
            self.writes_to(input);
        }
        if let (Some(out), true) = (&call.out, nodes.len() == call.results as usize) {
            let mut expected = Vec::new();
            for result in nodes.values() {
                let storage = self.allocate(at, *result);
                let shape = self.shape(*result);
                let reg = self.register(storage, &shape, &Dim::Const(0));
                args.push(PlanArg::Reg(reg));
                expected.push(self.expect(reg, shape));
            }
            self.steps.push(PlanStep::Call { op: call.op.clone(), overload: out.clone(), args, results: vec![] });
            self.steps.extend(expected);
            return;
        }
        let (mut results, mut expected) = (Vec::new(), Vec::new());
        for i in 0..call.results {
            let reg = self.fresh();
            results.push(reg);
            if let Some(result) = nodes.get(&i) {
                let shape = self.shape(*result);
                if self.last_use.get(&Buffer::Value(*result)).is_some_and(|last| *last > at) {
                    expected.push(self.expect(reg, shape.clone()));
                }
                self.home.insert(Buffer::Value(*result), self.storages.len());
                self.storages.push(Storage { reg, room: room(&shape), shape, ours: true });
            }
        }
        self.steps.push(PlanStep::Call { op: call.op.clone(), overload: call.overload.clone(), args, results });
        self.steps.extend(expected);
    }

    fn argument(&mut self, at: usize, arg: &ExternArg) -> PlanArg {
        match arg {
            ExternArg::Const(c) => PlanArg::Const(c.clone()),
            ExternArg::Dim(d) => d
                .as_const()
                .map_or_else(|| PlanArg::Dim(d.clone()), |c| PlanArg::Const(flambeau_ir::code::Const::Int(c))),
            ExternArg::Object(source) => {
                let known = self.objects.iter().position(|known| known == source);
                let at = known.unwrap_or(self.objects.len());
                self.objects.resize(self.objects.len().max(at + 1), *source);
                PlanArg::Object(at as u32)
            }
            ExternArg::List(items) => PlanArg::List(items.iter().map(|i| self.argument(at, i)).collect()),
            ExternArg::Value(id) => {
                let view = self.view(*id);
                let storage = self.storage_of(at, view.base);
                let node = self.core.node(*id);
                let shape = Shape { dtype: node.dtype, sizes: node.sizes.clone(), strides: view.strides };
                PlanArg::Reg(self.register(storage, &shape, &view.offset))
            }
        }
    }

    /// The storage of a value; empty values that no kernel writes get theirs here.
    fn storage_of(&mut self, at: usize, base: CoreId) -> usize {
        let buffer = self.held.source(base);
        self.home.get(&buffer).copied().unwrap_or_else(|| self.allocate(at, base))
    }

    fn release(&mut self, at: usize) {
        let ended: Vec<Buffer> = self
            .home
            .keys()
            .filter(|b| matches!(b, Buffer::Value(_)) && self.last_use.get(b).is_some_and(|l| *l <= at))
            .copied()
            .collect();
        let mut freed = BTreeSet::new();
        for buffer in ended {
            freed.extend(self.home.remove(&buffer));
        }
        let used: BTreeSet<usize> = self.home.values().copied().collect();
        let free = freed.into_iter().filter(|s| !used.contains(s) && self.storages[*s].ours).map(|s| (s, at));
        self.pool.extend(free.collect::<Vec<_>>());
    }

    fn outputs(&mut self) -> Vec<Reg> {
        let mut taken = BTreeSet::new();
        let mut regs = Vec::new();
        let end = self.schedule.tasks.len();
        for output in &self.core.outputs {
            let (storage, offset, dtype) = match output.base {
                OutputBase::Input(i) => {
                    let storage = self.home[&Buffer::Input(i)];
                    (storage, output.offset.clone(), self.storages[storage].shape.dtype)
                }
                OutputBase::Value(id) => {
                    let view = self.view(id);
                    (self.storage_of(end, view.base), output.offset.add(&view.offset), self.core.node(id).dtype)
                }
            };
            let shape = Shape { dtype, sizes: output.sizes.clone(), strides: output.strides.clone() };
            let held = &self.storages[storage];
            let whole = held.ours && held.shape == shape && offset.is(0) && taken.insert(held.reg);
            let reg = if whole { held.reg } else { self.new_view(held.reg, &shape, &offset) };
            regs.push(reg);
        }
        regs
    }
}

/// Elements from the first to the last: more than there are where the strides leave gaps.
fn room(shape: &Shape) -> Dim {
    let Shape { sizes, strides, .. } = shape;
    if sizes.iter().any(|s| s.is(0)) || *strides == contiguous_strides(sizes) {
        return Dim::product(sizes);
    }
    let reach = |(size, stride): (&Dim, &Dim)| size.sub(&Dim::Const(1)).mul(stride);
    sizes.iter().zip(strides).map(reach).fold(Dim::Const(1), |all, one| all.add(&one))
}

/// Values that a kernel reads from memory, as often as it does.
pub fn loaded(body: &Body) -> impl Iterator<Item = CoreId> + '_ {
    body.insts.iter().filter_map(|i| match i.expr {
        Expr::Load(id, _) | Expr::LoadIf(_, id, ..) => Some(id),
        _ => None,
    })
}

/// True if every read of what is in a buffer is at this address.
fn only_at(body: &Body, is_in: impl Fn(CoreId) -> bool, at: &Affine) -> bool {
    body.insts.iter().all(|i| match &i.expr {
        Expr::Load(id, address) => !is_in(*id) || address == at,
        Expr::LoadIf(_, id, ..) => !is_in(*id),
        _ => true,
    })
}

/// Adds a `Free` after the last use of every register that is neither an input nor an output.
fn with_frees(steps: Vec<PlanStep>, inputs: u32, outputs: &[Reg], commit: Option<usize>) -> (Vec<PlanStep>, usize) {
    let mut last: BTreeMap<Reg, usize> = BTreeMap::new();
    for (at, step) in steps.iter().enumerate() {
        step.registers(&mut |r| {
            last.insert(r, at);
        });
    }
    let mut frees: BTreeMap<usize, Vec<Reg>> = BTreeMap::new();
    for (reg, at) in last {
        if reg.0 >= inputs && !outputs.contains(&reg) {
            frees.entry(at).or_default().push(reg);
        }
    }
    let mut out = Vec::new();
    let mut committed = None;
    for (at, step) in steps.into_iter().enumerate() {
        if commit == Some(at) {
            committed = Some(out.len());
        }
        out.push(step);
        out.extend(frees.remove(&at).into_iter().flatten().map(PlanStep::Free));
    }
    let end = out.len();
    (out, committed.unwrap_or(end))
}
