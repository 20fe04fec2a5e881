//! A [`Nest`] as LLVM IR text: the loop over outer points, the row loops, vector bodies with masked tails, and rotating
//! accumulators. What one operation becomes is in [`crate::ops`]; how memory is reached in [`crate::memory`].

use crate::found::horner::{self, Step, Steps};
use crate::found::near_one;
use crate::nest::{Lanes, Nest, Split};
use crate::ops::{Ops, constant, identity};
use crate::reduce::{OUTER_SUM_BLOCK, SUM_BLOCK, is_long, sums_singles};
use crate::text::{Elem, Text, Ty, def, run};
use flambeau_cpu_artifact::Isa;
use flambeau_plugin::kernel::{Access, DType, Extent, Inst, Op, Scope, Stage, ValueId};
use flambeau_plugin::simplify::stage_accesses;
use std::collections::{HashMap, HashSet};

/// Name of the function.
pub const ENTRY: &str = "kernel";

/// A stack slot for loads whose address may be wild.
pub const SPARE: &str = "%spare";

/// A value during emission.
#[derive(Clone, Debug)]
pub struct Value {
    /// Operand text; of the element if it is a literal.
    pub text: String,
    pub dtype: DType,
    /// 1, or the width of the nest.
    pub lanes: u32,
    /// A constant, valid as any number of lanes.
    pub literal: bool,
}

/// What is known at a point of the program; restored when a loop is left.
#[derive(Clone, Default)]
pub struct Scoped {
    pub values: HashMap<ValueId, Value>,
    /// Values as vectors, where they are needed as such.
    pub splats: HashMap<ValueId, String>,
    /// Address of each access with the loops that are open.
    pub pointers: HashMap<Access, String>,
    /// Accesses whose address already counts the open loop over a dimension.
    pub advanced: HashSet<(Access, usize)>,
    /// Index along each dimension; of the first lane along the vectorised one.
    pub index: HashMap<usize, String>,
    /// Lanes that exist, if not all.
    pub mask: Option<String>,
    /// Whether stores go past the caches where the nest says so.
    pub streaming: bool,
    /// How many they are.
    pub lanes_left: Option<String>,
    /// Index in the tile along its other dimension.
    pub tile_point: Option<String>,
    /// Loop depth at which each value of the stage is computed: 0 is the outer point.
    pub levels: HashMap<ValueId, usize>,
}

/// Emits one kernel.
pub struct Emitter<'a> {
    pub nest: &'a Nest,
    pub isa: Isa,
    pub text: Text,
    pub at: Scoped,
    pub bases: Vec<String>,
    /// Where a tile of each turned access lies.
    pub rooms: Vec<(Access, String)>,
    scalars: Vec<String>,
    steps: Steps,
    near_one: HashSet<ValueId>,
}

/// The module of a kernel.
pub fn module(nest: &Nest, isa: Isa) -> Result<String, String> {
    let mut emitter = Emitter {
        nest,
        isa,
        text: Text::new(),
        at: Scoped::default(),
        bases: Vec::new(),
        rooms: Vec::new(),
        scalars: Vec::new(),
        steps: horner::steps(&nest.kernel),
        near_one: near_one::erfs(&nest.kernel),
    };
    emitter.arguments();
    emitter.outer_loop()?;
    run!(emitter.text, "ret void");
    let (cpu, bits) = match isa {
        Isa::Avx512 => ("x86-64-v4", 512),
        Isa::Avx2 => ("x86-64-v3", 256),
    };
    Ok(format!(
        "define void @{ENTRY}(ptr noalias nocapture readonly %buffers, ptr noalias nocapture readonly %scalars, \
         i64 %begin, i64 %end) #0 {{\n{}}}\n\
         attributes #0 = {{ nounwind \"no-builtins\" \"min-legal-vector-width\"=\"{bits}\" \
         \"prefer-vector-width\"=\"{bits}\" \"target-cpu\"=\"{cpu}\" }}\n!0 = !{{i32 1}}\n",
        emitter.text.finish()
    ))
}

impl Emitter<'_> {
    pub fn width(&self) -> u32 {
        self.nest.width
    }

    pub fn ops(&mut self, lanes: u32) -> Ops<'_> {
        Ops { text: &mut self.text, lanes, isa: self.isa }
    }

    fn outer(&self) -> usize {
        self.nest.kernel.outer
    }

    fn row_dims(&self) -> usize {
        self.nest.kernel.dims.len() - self.outer()
    }

    fn arguments(&mut self) {
        run!(self.text, "{SPARE} = alloca i64, align 8");
        self.tile_rooms();
        for i in 0..self.nest.kernel.params.len() {
            let slot = def!(self.text, "getelementptr ptr, ptr %buffers, i64 {i}");
            let base = def!(self.text, "load ptr, ptr {slot}, align 8");
            self.bases.push(base);
        }
        for i in 0..self.nest.kernel.scalars {
            let slot = def!(self.text, "getelementptr i64, ptr %scalars, i64 {i}");
            let value = def!(self.text, "load i64, ptr {slot}, align 8");
            self.scalars.push(value);
        }
    }

    /// The operand of an extent.
    pub fn extent(&self, extent: Extent) -> String {
        match extent {
            Extent::Const(c) => c.to_string(),
            Extent::Scalar(i) => self.scalars[i as usize].clone(),
        }
    }

    /// `for i in (start..end).step_by(step)`, carrying values of the given types. `body` gets the index and the carried
    /// values and returns their next ones. Without `entered`, the loop may run zero times.
    pub fn for_loop(
        &mut self,
        (start, end, step): (&str, &str, i64),
        entered: bool,
        carried: &[(Ty, String)],
        body: impl FnOnce(&mut Self, &str, Vec<String>) -> Result<Vec<String>, String>,
    ) -> Result<Vec<String>, String> {
        let saved = self.at.clone();
        let (head, exit) = (self.text.fresh("loop"), self.text.fresh("done"));
        let before = self.text.block();
        if entered {
            run!(self.text, "br label %{head}");
        } else {
            let any = def!(self.text, "icmp slt i64 {start}, {end}");
            run!(self.text, "br i1 {any}, label %{head}, label %{exit}");
        }
        self.text.enter(&head);
        let (latch, next_index) = (self.text.later(), self.text.later());
        let index = def!(self.text, "phi i64 [ {start}, %{before} ], [ {next_index}, %{latch} ]");
        let nexts: Vec<_> = carried.iter().map(|_| self.text.later()).collect();
        let phis: Vec<String> = carried
            .iter()
            .zip(&nexts)
            .map(|((ty, init), next)| def!(self.text, "phi {ty} [ {init}, %{before} ], [ {next}, %{latch} ]"))
            .collect();
        let results = body(self, &index, phis)?;
        let next = def!(self.text, "add nsw i64 {index}, {step}");
        self.text.resolve(next_index, &next);
        let block = self.text.block();
        self.text.resolve(latch, &block);
        for (later, result) in nexts.into_iter().zip(&results) {
            self.text.resolve(later, result);
        }
        let again = def!(self.text, "icmp slt i64 {next}, {end}");
        run!(self.text, "br i1 {again}, label %{head}, label %{exit}");
        self.text.enter(&exit);
        self.at = saved;
        if entered {
            return Ok(results);
        }
        Ok(self.join(carried, &before, &results, &block))
    }

    /// After two ways met: `carried` from `before`, `results` from `block`.
    fn join(&mut self, carried: &[(Ty, String)], before: &str, results: &[String], block: &str) -> Vec<String> {
        let pairs = carried.iter().zip(results);
        pairs
            .map(|((ty, init), result)| def!(self.text, "phi {ty} [ {init}, %{before} ], [ {result}, %{block} ]"))
            .collect()
    }

    /// Runs `body` if `cond`; the carried values pass by otherwise.
    fn when(
        &mut self,
        cond: &str,
        carried: &[(Ty, String)],
        body: impl FnOnce(&mut Self, Vec<String>) -> Result<Vec<String>, String>,
    ) -> Result<Vec<String>, String> {
        let saved = self.at.clone();
        let (then, exit) = (self.text.fresh("then"), self.text.fresh("join"));
        let before = self.text.block();
        run!(self.text, "br i1 {cond}, label %{then}, label %{exit}");
        self.text.enter(&then);
        let results = body(self, carried.iter().map(|(_, v)| v.clone()).collect())?;
        let block = self.text.block();
        run!(self.text, "br label %{exit}");
        self.text.enter(&exit);
        self.at = saved;
        Ok(self.join(carried, &before, &results, &block))
    }

    /// Extents that outer points are counted in.
    fn outer_extents(&mut self) -> Vec<String> {
        let dims = self.nest.kernel.dims[..self.outer()].to_vec();
        let last = dims.len().wrapping_sub(1);
        let blocked = self.nest.lanes == Lanes::Outer || self.nest.tiled.is_some();
        let width = i64::from(self.width());
        dims.into_iter()
            .enumerate()
            .map(|(d, extent)| match (extent, blocked && d == last) {
                (Extent::Const(c), true) => ((c + width - 1) / width).to_string(),
                (extent, false) => self.extent(extent),
                (extent, true) => {
                    let n = self.extent(extent);
                    let up = def!(self.text, "add nsw i64 {n}, {}", width - 1);
                    def!(self.text, "udiv i64 {up}, {width}")
                }
            })
            .collect()
    }

    fn outer_loop(&mut self) -> Result<(), String> {
        let extents = self.outer_extents();
        let (start, end) = match self.nest.split {
            Split::Outer => ("%begin".to_owned(), "%end".to_owned()),
            Split::Row => {
                let mut total = "1".to_owned();
                for extent in &extents {
                    total = def!(self.text, "mul nsw i64 {total}, {extent}");
                }
                ("0".to_owned(), total)
            }
        };
        let i64_ty = Ty::new(Elem::I64, 1);
        // The row-major decomposition of the first point; afterwards indices count up like digits.
        let mut first = Vec::new();
        let mut rest = start.clone();
        for (d, extent) in extents.iter().enumerate().rev() {
            if d == 0 || start == "0" {
                first.push((i64_ty, rest.clone()));
            } else {
                first.push((i64_ty, def!(self.text, "urem i64 {rest}, {extent}")));
                rest = def!(self.text, "udiv i64 {rest}, {extent}");
            }
        }
        first.reverse();
        let entered = self.nest.split == Split::Outer;
        self.for_loop((&start, &end, 1), entered, &first, |this, _, digits| {
            this.outer_point(&digits)?;
            let mut next = digits.clone();
            let mut carry = "1".to_owned();
            for d in (0..digits.len()).rev() {
                let up = def!(this.text, "add nsw i64 {}, {carry}", digits[d]);
                if d == 0 {
                    next[0] = up;
                    break;
                }
                let full = def!(this.text, "icmp eq i64 {up}, {}", extents[d]);
                next[d] = def!(this.text, "select i1 {full}, i64 0, i64 {up}");
                carry = def!(this.text, "zext i1 {full} to i64");
            }
            Ok(next)
        })?;
        Ok(())
    }

    fn outer_point(&mut self, digits: &[String]) -> Result<(), String> {
        for (d, digit) in digits.iter().enumerate() {
            self.at.index.insert(d, digit.clone());
        }
        if self.nest.lanes == Lanes::Outer {
            let d = self.outer() - 1;
            let first = def!(self.text, "mul nsw i64 {}, {}", digits[d], self.width());
            self.at.mask = self.mask_below(self.nest.kernel.dims[d], &first);
            self.at.index.insert(d, first);
        }
        if let Some(d) = self.nest.tiled {
            let first = def!(self.text, "mul nsw i64 {}, {}", digits[d], self.width());
            self.at.index.insert(d, first);
        }
        let nest = self.nest;
        for stage in &nest.kernel.stages {
            self.at.pointers.clear();
            self.at.advanced.clear();
            for access in stage_accesses(stage) {
                self.outer_pointer(access);
            }
            match stage.scope {
                Scope::Outer => {
                    for inst in &stage.insts {
                        self.inst(inst)?;
                    }
                    for store in &stage.stores {
                        self.store(store)?;
                    }
                }
                Scope::Row => self.row_stage(stage)?,
            }
        }
        Ok(())
    }

    /// The mask of lanes `first + lane < extent`, `None` where all are for every multiple of the width.
    fn mask_below(&mut self, extent: Extent, first: &str) -> Option<String> {
        let width = i64::from(self.width());
        if matches!(extent, Extent::Const(c) if c % width == 0) {
            return None;
        }
        let end = self.extent(extent);
        let left = def!(self.text, "sub nsw i64 {end}, {first}");
        Some(self.mask_of(&left))
    }

    /// The mask of the first `count` lanes, for 0 <= count; larger counts give all lanes.
    pub fn mask_of(&mut self, count: &str) -> String {
        let width = self.width();
        let narrow = Ty::new(if width <= 16 { Elem::I32 } else { Elem::I8 }, width);
        let most = def!(self.text, "call i64 @llvm.umin.i64(i64 {count}, i64 {width})");
        let elem = narrow.elem.text();
        let most = def!(self.text, "trunc i64 {most} to {elem}");
        let most = self.splat(narrow, &most);
        let lanes: Vec<String> = (0..width).map(|l| format!("{elem} {l}")).collect();
        def!(self.text, "icmp ult {narrow} <{}>, {most}", lanes.join(", "))
    }

    /// A value in all lanes.
    pub fn splat(&mut self, ty: Ty, scalar: &str) -> String {
        let one = def!(self.text, "insertelement {ty} poison, {} {scalar}, i64 0", ty.elem.text());
        def!(self.text, "shufflevector {ty} {one}, {ty} poison, {} zeroinitializer", ty.with(Elem::I32))
    }

    /// An operand in `lanes` lanes.
    pub fn operand(&mut self, id: ValueId, lanes: u32) -> Result<String, String> {
        let value = self.at.values.get(&id).cloned().ok_or_else(|| format!("value {} is not defined here", id.0))?;
        let ty = Ty::new(Elem::of(value.dtype), lanes);
        if value.literal {
            return Ok(ty.constant(&value.text));
        }
        if value.lanes == lanes {
            return Ok(value.text);
        }
        if lanes == 1 {
            return Err(format!("value {} varies along the lanes where one is needed", id.0));
        }
        if let Some(splat) = self.at.splats.get(&id) {
            return Ok(splat.clone());
        }
        let splat = self.splat(ty, &value.text);
        self.at.splats.insert(id, splat.clone());
        Ok(splat)
    }

    fn dtype(&self, id: ValueId) -> Result<DType, String> {
        self.at.values.get(&id).map(|v| v.dtype).ok_or_else(|| format!("value {} is not defined here", id.0))
    }

    pub fn lanes_of(&self, ids: &[ValueId]) -> u32 {
        ids.iter().filter_map(|id| self.at.values.get(id)).map(|v| v.lanes).max().unwrap_or(1)
    }

    pub fn inst(&mut self, inst: &Inst) -> Result<(), String> {
        let literal = |text: String| Value { text, dtype: inst.dtype, lanes: 1, literal: true };
        let value = match &inst.op {
            Op::Const(bits) => literal(constant(inst.dtype, *bits)),
            Op::Scalar(index) => Value { literal: false, ..literal(self.scalar_argument(*index, inst.dtype)) },
            Op::Index(dim) => self.index_value(*dim as usize, inst.dtype),
            Op::Load(access) => self.load(access, inst.dtype)?,
            Op::LoadIf { cond, access, other } => self.load_if(*cond, access, *other, inst.dtype)?,
            op => {
                let (text, lanes) = match self.steps.get(&inst.id).copied() {
                    // Part of the sum that follows.
                    Some(None) => return Ok(()),
                    Some(Some(step)) => self.step_of(&step, inst.dtype)?,
                    None if self.near_one.contains(&inst.id) => self.erf_near_one(op)?,
                    None => self.computed(op, inst.dtype)?,
                };
                Value { text, dtype: inst.dtype, lanes, literal: false }
            }
        };
        self.at.values.insert(inst.id, value);
        Ok(())
    }

    fn erf_near_one(&mut self, op: &Op) -> Result<(String, u32), String> {
        let ids = operands(op);
        let lanes = self.lanes_of(&ids);
        let text = self.operand(ids[0], lanes)?;
        Ok((self.ops(lanes).erf_near_one(&text), lanes))
    }

    fn computed(&mut self, op: &Op, dtype: DType) -> Result<(String, u32), String> {
        let ids = operands(op);
        let lanes = self.lanes_of(&ids);
        let texts = ids.iter().map(|id| self.operand(*id, lanes)).collect::<Result<Vec<_>, _>>()?;
        let types = ids.iter().map(|id| self.dtype(*id)).collect::<Result<Vec<_>, _>>()?;
        let mut ops = self.ops(lanes);
        let text = match op {
            Op::Unary(unary, _) => ops.unary(*unary, types[0], &texts[0]),
            Op::Binary(binary, ..) if types[0] == types[1] => ops.binary(*binary, types[0], &texts[0], &texts[1]),
            Op::Select(..) if types == [DType::Bool, dtype, dtype] => {
                Some(ops.choose(dtype, &texts[0], &texts[1], &texts[2]))
            }
            Op::Cast(_) => Some(ops.cast(types[0], dtype, &texts[0])),
            _ => None,
        };
        Ok((text.ok_or_else(|| format!("{op:?} of {types:?} giving {dtype:?}"))?, lanes))
    }

    /// A product and a constant with one rounding.
    fn step_of(&mut self, step: &Step, dtype: DType) -> Result<(String, u32), String> {
        let ids = [step.factors.0, step.factors.1, step.addend];
        let lanes = self.lanes_of(&ids);
        let [mut a, b, mut c] =
            [self.operand(ids[0], lanes)?, self.operand(ids[1], lanes)?, self.operand(ids[2], lanes)?];
        let ty = Ty::new(Elem::of(dtype), lanes);
        if step.negate_product {
            a = def!(self.text, "fneg {ty} {a}");
        }
        if step.negate_addend {
            c = def!(self.text, "fneg {ty} {c}");
        }
        Ok((def!(self.text, "call {ty} @llvm.fma.{}({ty} {a}, {ty} {b}, {ty} {c})", ty.suffix()), lanes))
    }

    fn scalar_argument(&mut self, index: u32, dtype: DType) -> String {
        let bits = self.scalars[index as usize].clone();
        let from = if dtype.is_float() { DType::F64 } else { DType::I64 };
        let value = if from == DType::F64 { def!(self.text, "bitcast i64 {bits} to double") } else { bits };
        self.ops(1).cast(from, dtype, &value)
    }

    fn index_value(&mut self, dim: usize, dtype: DType) -> Value {
        let index = self.at.index.get(&dim).cloned().unwrap_or_else(|| "0".to_owned());
        if dim != self.nest.vector_dim() {
            return Value { text: index, dtype, lanes: 1, literal: false };
        }
        let ty = Ty::new(Elem::I64, self.width());
        let first = self.splat(ty, &index);
        let lanes: Vec<String> = (0..self.width()).map(|l| format!("i64 {l}")).collect();
        let text = def!(self.text, "add {ty} {first}, <{}>", lanes.join(", "));
        Value { text, dtype, lanes: self.width(), literal: false }
    }

    /// The depth at which an instruction of a row stage is computed: the innermost row loop it depends on.
    fn level(&self, inst: &Inst) -> usize {
        let outer = self.outer();
        let own = match &inst.op {
            Op::Load(access) | Op::LoadIf { access, .. } => self.reach(access),
            Op::Index(d) => (*d as usize + 1).saturating_sub(outer),
            _ => 0,
        };
        let ids = operands(&inst.op);
        ids.iter().filter_map(|id| self.at.levels.get(id)).copied().fold(own, usize::max)
    }

    fn row_stage(&mut self, stage: &Stage) -> Result<(), String> {
        self.at.levels.clear();
        for inst in &stage.insts {
            let level = if self.nest.tiled.is_some() { self.row_dims() } else { self.level(inst) };
            self.at.levels.insert(inst.id, level);
        }
        let saved = self.at.clone();
        let extents = self.nest.kernel.dims[self.outer()..].to_vec();
        let accumulators = self.accumulators(stage);
        let unknown: Vec<Extent> = extents.iter().copied().filter(|e| matches!(e, Extent::Scalar(_))).collect();
        let split_row = self.nest.split == Split::Row;
        let results = if extents.contains(&Extent::Const(0)) {
            accumulators.iter().map(|(_, v)| v.clone()).collect()
        } else if unknown.is_empty() || (split_row && extents.len() == 1) {
            self.row(stage, accumulators.into_iter().map(|(_, v)| v).collect())?
        } else {
            let mut all = "true".to_owned();
            for extent in unknown {
                let n = self.extent(extent);
                let some = def!(self.text, "icmp sgt i64 {n}, 0");
                all = def!(self.text, "and i1 {all}, {some}");
            }
            self.when(&all, &accumulators, |this, values| this.row(stage, values))?
        };
        self.at = saved;
        self.finish_reductions(stage, results)
    }

    /// Work at the outer point that the row needs, then its loops.
    fn row(&mut self, stage: &Stage, accumulators: Vec<String>) -> Result<Vec<String>, String> {
        self.insts_at(stage, 0)?;
        self.open_loop(stage, 1, accumulators)
    }

    fn insts_at(&mut self, stage: &Stage, level: usize) -> Result<(), String> {
        for inst in &stage.insts {
            if self.at.levels.get(&inst.id) == Some(&level) {
                self.inst(inst)?;
            }
        }
        Ok(())
    }

    /// Opens the row loop of this level (1 is the first), and all inner ones.
    fn open_loop(&mut self, stage: &Stage, level: usize, accumulators: Vec<String>) -> Result<Vec<String>, String> {
        let rows = self.row_dims();
        if level == rows && self.nest.lanes == Lanes::Row {
            return self.vector_loop(stage, accumulators);
        }
        let dim = self.outer() + level - 1;
        let extent = self.nest.kernel.dims[dim];
        let end = self.extent(extent);
        if level == rows && rows == 1 && is_long(extent, OUTER_SUM_BLOCK) && sums_singles(stage) {
            return self.in_blocks(stage, (&end, OUTER_SUM_BLOCK), accumulators, |this, start, stop, fresh| {
                this.row_loop(stage, (start, stop), level, fresh)
            });
        }
        self.row_loop(stage, ("0", &end), level, accumulators)
    }

    /// The loop over a row dimension that is not vectorised, with all inner ones.
    fn row_loop(
        &mut self,
        stage: &Stage,
        (start, end): (&str, &str),
        level: usize,
        accumulators: Vec<String>,
    ) -> Result<Vec<String>, String> {
        let (rows, dim) = (self.row_dims(), self.outer() + level - 1);
        let carried = self.typed(stage, accumulators);
        self.for_loop((start, end, 1), true, &carried, |this, index, values| {
            this.at.index.insert(dim, index.to_owned());
            for access in stage_accesses(stage) {
                this.advance_pointer(access, dim, index);
            }
            if level < rows {
                this.insts_at(stage, level)?;
                return this.open_loop(stage, level + 1, values);
            }
            this.body(stage, level, values)
        })
    }

    fn vector_loop(&mut self, stage: &Stage, accumulators: Vec<String>) -> Result<Vec<String>, String> {
        let extent = self.nest.kernel.dims[self.nest.vector_dim()];
        self.splat_operands(stage)?;
        if self.nest.split == Split::Row {
            return self.segment(stage, "%begin", "%end", None, accumulators);
        }
        let end = self.extent(extent);
        if self.row_dims() != 1 || !is_long(extent, SUM_BLOCK) || !sums_singles(stage) {
            return self.segment(stage, "0", &end, Some(extent), accumulators);
        }
        self.in_blocks(stage, (&end, SUM_BLOCK), accumulators, |this, start, stop, fresh| {
            this.segment(stage, start, stop, None, fresh)
        })
    }

    /// Vectors of what the vector body needs from outside of it, made once before its loop.
    fn splat_operands(&mut self, stage: &Stage) -> Result<(), String> {
        let width = self.width();
        let inner = self.row_dims();
        let inside = |id: &ValueId| self.at.levels.get(id) == Some(&inner);
        let mut needed: Vec<ValueId> = Vec::new();
        for inst in stage.insts.iter().filter(|i| inside(&i.id)) {
            needed.extend(operands(&inst.op));
        }
        needed.extend(stage.reduces.iter().map(|r| r.value));
        needed.extend(stage.stores.iter().map(|s| s.value));
        needed.retain(|id| !inside(id));
        for id in needed {
            if self.at.values.get(&id).is_some_and(|v| !v.literal && v.lanes == 1) {
                self.operand(id, width)?;
            }
        }
        Ok(())
    }

    /// Elements `[start, end)` of the vectorised row dimension: whole vectors, then one masked vector. `known` is the
    /// extent where the segment is all of it.
    fn segment(
        &mut self,
        stage: &Stage,
        start: &str,
        end: &str,
        known: Option<Extent>,
        accumulators: Vec<String>,
    ) -> Result<Vec<String>, String> {
        let width = i64::from(self.width());
        let dim = self.nest.vector_dim();
        let level = self.row_dims();
        let vectors = |this: &mut Self, end: &str, entered: bool, values: Vec<String>| {
            let carried = this.typed(stage, values);
            this.for_loop((start, end, width), entered, &carried, |this, index, values| {
                this.at.index.insert(dim, index.to_owned());
                this.body(stage, level, values)
            })
        };
        let tail = |this: &mut Self, at: &str, count: &str, values: Vec<String>| {
            this.at.index.insert(dim, at.to_owned());
            this.at.mask = Some(this.mask_of(count));
            this.at.lanes_left = Some(count.to_owned());
            this.body(stage, level, values)
        };
        if let Some(Extent::Const(n)) = known {
            let whole = n - n % width;
            let mut values = accumulators;
            if whole > 0 {
                values = vectors(self, &whole.to_string(), true, values)?;
            }
            if whole < n {
                let saved = self.at.clone();
                values = tail(self, &whole.to_string(), &(n - whole).to_string(), values)?;
                self.at = saved;
            }
            return Ok(values);
        }
        let count = def!(self.text, "sub nsw i64 {end}, {start}");
        let whole = def!(self.text, "and i64 {count}, {}", -width);
        let middle = def!(self.text, "add nsw i64 {start}, {whole}");
        let values = match self.can_stream(stage, start)? {
            None => vectors(self, &middle, false, accumulators)?,
            Some(aligned) => {
                self.stream(&aligned, |this| vectors(this, &middle, false, vec![]).map(|_| ()))?;
                accumulators
            }
        };
        let left = def!(self.text, "sub nsw i64 {end}, {middle}");
        let some = def!(self.text, "icmp sgt i64 {left}, 0");
        let carried = self.typed(stage, values);
        self.when(&some, &carried, |this, values| tail(this, &middle, &left, values))
    }

    /// `body` with stores past the caches where the addresses allow it, else with usual ones. Only nests that reduce
    /// nothing stream.
    fn stream(&mut self, aligned: &str, body: impl Fn(&mut Self) -> Result<(), String>) -> Result<(), String> {
        self.when(aligned, &[], |this, _| {
            this.at.streaming = true;
            body(this)?;
            // Such stores are not ordered with what tells other threads that this one is done.
            run!(this.text, "call void @llvm.x86.sse.sfence()");
            Ok(vec![])
        })?;
        let unaligned = def!(self.text, "xor i1 {aligned}, true");
        self.when(&unaligned, &[], |this, _| {
            body(this)?;
            Ok(vec![])
        })?;
        Ok(())
    }

    /// One point (or vector of points) of the row: instructions of the innermost level, stores, reductions.
    fn body(&mut self, stage: &Stage, level: usize, accumulators: Vec<String>) -> Result<Vec<String>, String> {
        if let Some(other) = self.nest.tiled {
            let left = self.at.lanes_left.clone();
            self.tile(stage, other, left.as_deref())?;
            return Ok(accumulators);
        }
        self.insts_at(stage, level)?;
        for store in &stage.stores {
            self.store(store)?;
        }
        let (copies, width) = (self.copies(stage), self.width());
        let mut next = Vec::with_capacity(accumulators.len());
        for (reduce, group) in stage.reduces.iter().zip(accumulators.chunks(copies)) {
            if self.dtype(reduce.value)? != reduce.dtype {
                return Err(format!("a reduction of {:?} in {:?}", self.dtype(reduce.value)?, reduce.dtype));
            }
            let mut value = self.operand(reduce.value, width)?;
            if let (Some(mask), Lanes::Row) = (self.at.mask.clone(), self.nest.lanes) {
                let ty = Ty::new(Elem::of(reduce.dtype), width);
                let neutral = ty.constant(identity(reduce.op, reduce.dtype));
                value = self.ops(width).choose(reduce.dtype, &mask, &value, &neutral);
            }
            let combined = self.combine(reduce, width, &group[0], &value)?;
            next.extend_from_slice(&group[1..]);
            next.push(combined);
        }
        Ok(next)
    }
}

/// Values an operation reads.
pub fn operands(op: &Op) -> Vec<ValueId> {
    match op {
        Op::Load(_) | Op::Const(_) | Op::Scalar(_) | Op::Index(_) => vec![],
        Op::LoadIf { cond, other, .. } => vec![*cond, *other],
        Op::Unary(_, a) | Op::Cast(a) => vec![*a],
        Op::Binary(_, a, b) => vec![*a, *b],
        Op::Select(a, b, c) => vec![*a, *b, *c],
    }
}
