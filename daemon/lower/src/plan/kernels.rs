//! Turns bodies into plug-in kernels: numbers parameters and scalars, cuts the body into stages. Equal kernels are kept
//! once.

use crate::nest::affine::Affine;
use crate::nest::body::{Body, Expr, Place, Write};
use crate::nest::group::Schedule;
use flambeau_core::graph::{Core, CoreId};
use flambeau_ir::dim::Dim;
use flambeau_ir::kernel::{Access, DType, Extent, Inst, Kernel, Op, Param, Reduce, Role, Scope, Stage, Store, ValueId};
use std::collections::{BTreeMap, HashMap};

/// A buffer argument of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Buffer {
    /// The memory of a value.
    Value(CoreId),
    /// A graph input's memory.
    Input(u32),
}

/// A kernel with the arguments of one launch.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The kernel, unnamed.
    pub kernel: Kernel,
    /// Its buffers.
    pub buffers: Vec<Buffer>,
    /// Its scalars.
    pub scalars: Vec<Dim>,
}

/// Which buffer each value is in.
#[derive(Clone, Copy)]
pub struct Buffers<'a> {
    core: &'a Core,
    updates: &'a BTreeMap<CoreId, CoreId>,
}

impl<'a> Buffers<'a> {
    /// Those of a schedule.
    pub fn of(core: &'a Core, schedule: &'a Schedule) -> Buffers<'a> {
        Buffers { core, updates: &schedule.updates }
    }

    /// The buffer a write goes to.
    pub fn target(self, write: &Write) -> Buffer {
        match &write.root.place {
            Place::Own => self.source(write.root.node),
            Place::Part(part) => self.source(part.joined),
            Place::Input(i) => Buffer::Input(*i),
            Place::Stored(after) => self.source(*after),
        }
    }

    /// The buffer a value is read from.
    pub fn source(self, id: CoreId) -> Buffer {
        let own = || Buffer::Value(self.updates.get(&id).copied().unwrap_or(id));
        self.core.input(id).map_or_else(own, Buffer::Input)
    }
}

struct Finisher<'a> {
    core: &'a Core,
    held: Buffers<'a>,
    body: &'a Body,
    /// Writes that share the buffer of a read.
    in_place: &'a HashMap<Buffer, Buffer>,
    params: Vec<Param>,
    buffers: Vec<Buffer>,
    scalars: Vec<Dim>,
    next: u32,
    /// Values of outer scope and accumulators by instruction.
    outer: HashMap<usize, ValueId>,
}

/// Makes the kernel. `in_place` maps written buffers to the read buffer whose memory they take over.
pub fn finish(core: &Core, held: Buffers<'_>, body: &Body, in_place: &HashMap<Buffer, Buffer>) -> Launch {
    let mut finisher = Finisher {
        core,
        held,
        body,
        in_place,
        params: vec![],
        buffers: vec![],
        scalars: vec![],
        next: 0,
        outer: HashMap::new(),
    };
    let dims = body.loops.iter().map(|d| finisher.extent(d)).collect();
    let stages = finisher.stages();
    let kernel = Kernel {
        name: String::new(),
        params: finisher.params,
        scalars: finisher.scalars.len() as u32,
        dims,
        outer: body.outer,
        stages,
    };
    Launch { kernel, buffers: finisher.buffers, scalars: finisher.scalars }
}

impl Finisher<'_> {
    fn scalar(&mut self, dim: &Dim) -> u32 {
        let at = self.scalars.iter().position(|s| s == dim).unwrap_or_else(|| {
            self.scalars.push(dim.clone());
            self.scalars.len() - 1
        });
        at as u32
    }

    fn extent(&mut self, dim: &Dim) -> Extent {
        dim.as_const().map_or_else(|| Extent::Scalar(self.scalar(dim)), Extent::Const)
    }

    fn param(&mut self, buffer: Buffer, dtype: DType, role: Role) -> u32 {
        let buffer = self.in_place.get(&buffer).copied().unwrap_or(buffer);
        if let Some(at) = self.buffers.iter().position(|b| *b == buffer) {
            let known = &mut self.params[at].role;
            if *known != role {
                *known = Role::InOut;
            }
            return at as u32;
        }
        self.buffers.push(buffer);
        self.params.push(Param { dtype, role });
        (self.buffers.len() - 1) as u32
    }

    fn access(&mut self, param: u32, at: &Affine) -> Access {
        let offset = self.extent(&at.offset);
        let strides = (0..self.body.loops.len()).map(|l| self.extent(&at.coefficient(l))).collect();
        Access { param, offset, strides }
    }

    fn fresh(&mut self) -> ValueId {
        self.next += 1;
        ValueId(self.next - 1)
    }

    fn stages(&mut self) -> Vec<Stage> {
        let body = self.body;
        let levels = body.insts.iter().map(|i| i.level).max().unwrap_or(0);
        let mut stages = Vec::new();
        for level in 0..=levels {
            stages.extend(self.outer_stage(level));
            stages.extend(self.row_stage(level));
        }
        stages
    }

    /// Instructions of outer scope that become known at `level`.
    fn outer_stage(&mut self, level: usize) -> Option<Stage> {
        let body = self.body;
        let writes: Vec<&Write> =
            body.writes.iter().filter(|w| w.outer && body.insts[w.value].level == level).collect();
        let mut insts = Vec::new();
        for (at, inst) in body.insts.iter().enumerate() {
            if !inst.row && inst.level == level && !matches!(inst.expr, Expr::Reduce(..)) {
                let id = self.fresh();
                let op = self.op(at, &HashMap::new());
                insts.push(Inst { id, dtype: inst.dtype, op });
                self.outer.insert(at, id);
            }
        }
        let stores = writes.iter().map(|w| self.store(w, self.outer[&w.value])).collect::<Vec<_>>();
        (!insts.is_empty() || !stores.is_empty()).then_some(Stage {
            scope: Scope::Outer,
            insts,
            stores,
            reduces: vec![],
        })
    }

    /// The loop over the row at `level`: its reductions, and the writes that are possible now.
    fn row_stage(&mut self, level: usize) -> Option<Stage> {
        let body = self.body;
        let writes: Vec<&Write> =
            body.writes.iter().filter(|w| !w.outer && body.insts[w.value].level == level).collect();
        let reduces: Vec<usize> = (0..body.insts.len())
            .filter(|at| matches!(body.insts[*at].expr, Expr::Reduce(..)) && body.insts[*at].level == level + 1)
            .collect();
        if writes.is_empty() && reduces.is_empty() {
            return None;
        }
        let mut needed = vec![false; body.insts.len()];
        writes.iter().for_each(|w| needed[w.value] = true);
        reduces.iter().for_each(|r| body.insts[*r].expr.operands().iter().for_each(|o| needed[*o] = true));
        for at in (0..body.insts.len()).rev().filter(|at| body.insts[*at].row) {
            if needed[at] {
                body.insts[at].expr.operands().iter().for_each(|o| needed[*o] = true);
            }
        }
        let mut local = HashMap::new();
        let mut insts = Vec::new();
        for (at, inst) in body.insts.iter().enumerate().filter(|(at, i)| needed[*at] && i.row) {
            let id = self.fresh();
            let op = self.op(at, &local);
            insts.push(Inst { id, dtype: inst.dtype, op });
            local.insert(at, id);
        }
        let value = |this: &Self, at: usize| local.get(&at).copied().unwrap_or_else(|| this.outer[&at]);
        let stores = writes
            .iter()
            .map(|w| {
                let v = value(self, w.value);
                self.store(w, v)
            })
            .collect();
        let mut accumulators = Vec::new();
        for at in reduces {
            let Expr::Reduce(op, arg) = body.insts[at].expr else { continue };
            let arg = value(self, arg);
            let id = self.fresh();
            accumulators.push(Reduce { id, dtype: body.insts[at].dtype, op, value: arg });
            self.outer.insert(at, id);
        }
        Some(Stage { scope: Scope::Row, insts, stores, reduces: accumulators })
    }

    fn store(&mut self, write: &Write, value: ValueId) -> Store {
        let dtype = self.core.node(write.root.node).dtype;
        let param = self.param(self.held.target(write), dtype, Role::Out);
        Store { access: self.access(param, &write.at), value }
    }

    fn op(&mut self, at: usize, local: &HashMap<usize, ValueId>) -> Op {
        let inst = &self.body.insts[at];
        let dtype = inst.dtype;
        let operand = |i: usize| local.get(&i).copied().unwrap_or_else(|| self.outer[&i]);
        let v: Vec<ValueId> = inst.expr.operands().into_iter().map(operand).collect();
        match &inst.expr {
            Expr::Load(id, address) => {
                let param = self.param(self.held.source(*id), dtype, Role::In);
                Op::Load(self.access(param, address))
            }
            Expr::LoadIf(_, id, address, _) => {
                let param = self.param(self.held.source(*id), dtype, Role::In);
                Op::LoadIf { cond: v[0], access: self.access(param, address), other: v[1] }
            }
            Expr::Const(bits) => Op::Const(*bits),
            Expr::Scalar(dim) => Op::Scalar(self.scalar(dim)),
            Expr::Index(l) => Op::Index(*l as u32),
            Expr::Unary(op, _) => Op::Unary(*op, v[0]),
            Expr::Binary(op, ..) => Op::Binary(*op, v[0], v[1]),
            Expr::Select(..) => Op::Select(v[0], v[1], v[2]),
            Expr::Cast(_) => Op::Cast(v[0]),
            Expr::Reduce(..) => unreachable!("reductions are not instructions"),
        }
    }
}

/// A readable name: what the kernel computes, in order.
pub fn name(kernel: &Kernel) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut add = |word: String| {
        if words.len() < 6 && !words.contains(&word) {
            words.push(word);
        }
    };
    for stage in &kernel.stages {
        for inst in &stage.insts {
            match &inst.op {
                Op::Unary(op, _) => add(format!("{op:?}").to_lowercase()),
                Op::Binary(op, ..) => add(format!("{op:?}").to_lowercase()),
                Op::Select(..) => add("where".into()),
                Op::Cast(_) => add(format!("to_{}", inst.dtype.short())),
                _ => {}
            }
        }
        stage.reduces.iter().for_each(|r| add(format!("reduce_{:?}", r.op).to_lowercase()));
    }
    if words.is_empty() { "copy".into() } else { words.join("_") }
}
