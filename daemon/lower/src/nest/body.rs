//! Writes the body of one kernel: values of a fusion group as instructions over loop counters. Which values form a group
//! is [`crate::nest::group`]'s decision; where they live in memory is `plan/memory.rs`'s.

use crate::nest::affine::{Affine, Obstacle, at_least, exact_div, reshaped_strides, through_view};
use crate::nest::joins::Part;
use flambeau_core::graph::{Core, CoreId, CoreNode, CoreOp};
use flambeau_ir::dim::Dim;
use flambeau_ir::kernel::{Binary, DType, ReduceOp, Unary};
use std::collections::{HashMap, HashSet};

/// Index into [`Body::insts`].
pub type InstId = usize;

/// What an instruction computes; as [`flambeau_ir::kernel::Op`], before parameters and scalars are numbered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Expr {
    /// Reads a buffer.
    Load(CoreId, Affine),
    /// Reads a buffer where the condition holds, else gives the third.
    LoadIf(InstId, CoreId, Affine, InstId),
    /// A constant.
    Const(u64),
    /// A symbolic int.
    Scalar(Dim),
    /// A loop counter.
    Index(usize),
    /// One operand.
    Unary(Unary, InstId),
    /// Two operands.
    Binary(Binary, InstId, InstId),
    /// Choice.
    Select(InstId, InstId, InstId),
    /// Conversion.
    Cast(InstId),
    /// Reduction over the row.
    Reduce(ReduceOp, InstId),
}

impl Expr {
    /// Operand instructions.
    pub fn operands(&self) -> Vec<InstId> {
        match self {
            Expr::Load(..) | Expr::Const(_) | Expr::Scalar(_) | Expr::Index(_) => vec![],
            Expr::Unary(_, a) | Expr::Cast(a) | Expr::Reduce(_, a) => vec![*a],
            Expr::Binary(_, a, b) | Expr::LoadIf(a, _, _, b) => vec![*a, *b],
            Expr::Select(c, a, b) => vec![*c, *a, *b],
        }
    }

    /// As [`Expr::operands`], to be changed.
    fn operands_mut(&mut self) -> Vec<&mut InstId> {
        match self {
            Expr::Load(..) | Expr::Const(_) | Expr::Scalar(_) | Expr::Index(_) => vec![],
            Expr::Unary(_, a) | Expr::Cast(a) | Expr::Reduce(_, a) => vec![a],
            Expr::Binary(_, a, b) | Expr::LoadIf(a, _, _, b) => vec![a, b],
            Expr::Select(c, a, b) => vec![c, a, b],
        }
    }
}

/// One instruction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Inst {
    /// What it computes.
    pub expr: Expr,
    /// Its type.
    pub dtype: DType,
    /// Depends on the position within the row.
    pub row: bool,
    /// How many reductions precede it.
    pub level: usize,
}

/// Where a value of a group is written. What is written at the same place in the order of nodes comes in this order: a part may be
/// what was stored.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// Memory of its own.
    Own,
    /// The part of an input's memory that this [`CoreOp::Stored`] names.
    Stored(CoreId),
    /// A part of a joined value's memory.
    Part(Part),
    /// A graph input's memory, at the end.
    Input(u32),
}

impl Place {
    /// True for the memory of an input.
    pub fn is_input(&self) -> bool {
        matches!(self, Place::Input(_) | Place::Stored(_))
    }
}

/// One value to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// The value.
    pub node: CoreId,
    /// Where it goes.
    pub place: Place,
}

impl Root {
    /// The node at whose place in the order of nodes it is written.
    pub fn order(&self) -> CoreId {
        match &self.place {
            Place::Stored(after) => *after,
            // What the program reads of the value before comes first.
            Place::Part(Part { joined, updates: Some(_), .. }) => *joined,
            _ => self.node,
        }
    }
}

/// A write.
#[derive(Clone, Debug)]
pub struct Write {
    /// What and where.
    pub root: Root,
    /// The address.
    pub at: Affine,
    /// The value.
    pub value: InstId,
    /// Written once per outer point only.
    pub outer: bool,
}

/// Instructions and writes over loops.
#[derive(Clone, Debug)]
pub struct Body {
    /// Extents.
    pub loops: Vec<Dim>,
    /// How many leading loops are outer.
    pub outer: usize,
    /// Hash-consed instructions, operands first.
    pub insts: Vec<Inst>,
    /// Writes.
    pub writes: Vec<Write>,
}

impl Body {
    /// The body with these writes only, and what they need.
    #[must_use]
    pub fn with(&self, writes: Vec<Write>) -> Body {
        let mut needed = vec![false; self.insts.len()];
        writes.iter().for_each(|write| needed[write.value] = true);
        for (at, inst) in self.insts.iter().enumerate().rev() {
            if needed[at] {
                inst.expr.operands().into_iter().for_each(|operand| needed[operand] = true);
            }
        }
        let mut places = vec![0; self.insts.len()];
        let mut insts: Vec<Inst> = Vec::new();
        for (at, inst) in self.insts.iter().enumerate().filter(|(at, _)| needed[*at]) {
            places[at] = insts.len();
            insts.push(inst.clone());
        }
        insts.iter_mut().flat_map(|inst| inst.expr.operands_mut()).for_each(|operand| *operand = places[*operand]);
        let writes = writes.into_iter().map(|write| Write { value: places[write.value], ..write }).collect();
        Body { loops: self.loops.clone(), outer: self.outer, insts, writes }
    }
}

/// The iteration space of a group: sizes other than 1, and which of them are reduced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Space {
    /// Sizes, in the order of the values' dimensions.
    pub sizes: Vec<Dim>,
    /// Whether the group's reductions run over it.
    pub reduced: Vec<bool>,
}

/// The sizes that are not 1.
pub fn squeezed(sizes: &[Dim]) -> Vec<Dim> {
    sizes.iter().filter(|s| !s.is(1)).cloned().collect()
}

impl Space {
    /// The space of a value computed alone.
    pub fn of(core: &Core, id: CoreId) -> Space {
        let node = core.node(id);
        if let CoreOp::Reduce(_, a, dims) = &node.op {
            let kept = core.node(*a).sizes.iter().enumerate().filter(|(_, s)| !s.is(1));
            let (sizes, reduced) = kept.map(|(d, s)| (s.clone(), dims.contains(&(d as u32)))).unzip();
            return Space { sizes, reduced };
        }
        let sizes = squeezed(&node.sizes);
        Space { reduced: vec![false; sizes.len()], sizes }
    }

    /// True if there is a reduction.
    pub fn reduces(&self) -> bool {
        self.reduced.contains(&true)
    }

    /// Sizes that are not reduced.
    pub fn outer(&self) -> Vec<Dim> {
        self.sizes.iter().zip(&self.reduced).filter(|(_, r)| !**r).map(|(s, _)| s.clone()).collect()
    }
}

/// Why a group cannot be one kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// This value needs memory of its own.
    Realise(CoreId),
    /// These roots do not belong together.
    Apart,
}

/// Writes the body. `here` are the values the group computes; other values with memory are loaded.
pub fn write(core: &Core, space: &Space, roots: &[Root], in_memory: &HashSet<CoreId>) -> Result<Body, Unfit> {
    let order: Vec<usize> = (0..space.sizes.len())
        .filter(|d| !space.reduced[*d])
        .chain((0..space.sizes.len()).filter(|d| space.reduced[*d]))
        .collect();
    let mut loops: Vec<Dim> = order.iter().map(|d| space.sizes[*d].clone()).collect();
    let mut outer = space.reduced.iter().filter(|r| !**r).count();
    let mut base = vec![Affine::zero(); space.sizes.len()];
    order.iter().enumerate().for_each(|(l, d)| base[*d] = Affine::of_loop(l));
    let here: HashSet<CoreId> = roots.iter().filter(|r| r.place == Place::Own).map(|r| r.node).collect();
    for _ in 0..64 {
        let mut writer = Writer {
            core,
            space,
            here: &here,
            in_memory,
            base: base.clone(),
            loops: loops.clone(),
            outer,
            insts: vec![],
            cons: HashMap::new(),
            memo: HashMap::new(),
            places: HashMap::new(),
        };
        match writer.all(roots) {
            Ok(writes) => return Ok(Body { loops, outer, insts: writer.insts, writes }),
            Err(Stop::Split(id, inner)) => {
                let hi = exact_div(&loops[id], &inner).ok_or(Unfit::Apart)?;
                loops[id] = hi;
                loops.insert(id + 1, inner.clone());
                outer += usize::from(id < outer);
                base = base.iter().map(|a| a.split(id, &inner)).collect();
            }
            Err(Stop::Unfit(unfit)) => return Err(unfit),
        }
    }
    Err(Unfit::Apart)
}

enum Stop {
    Split(usize, Dim),
    Unfit(Unfit),
}

/// Neighbours of which one element computes a value, at most: a window of three by three. Windows of windows would multiply.
const MOST_PLACES: usize = 9;

struct Writer<'a> {
    core: &'a Core,
    space: &'a Space,
    here: &'a HashSet<CoreId>,
    in_memory: &'a HashSet<CoreId>,
    base: Vec<Affine>,
    loops: Vec<Dim>,
    outer: usize,
    insts: Vec<Inst>,
    cons: HashMap<(Expr, DType), InstId>,
    memo: HashMap<(CoreId, Vec<Affine>, Option<InstId>), InstId>,
    /// At how many indices values are computed.
    places: HashMap<CoreId, usize>,
}

impl Writer<'_> {
    fn all(&mut self, roots: &[Root]) -> Result<Vec<Write>, Stop> {
        let mut writes = Vec::new();
        for root in roots {
            let node = self.core.node(root.node);
            let index = self.index_of(&node.sizes)?;
            let value = self.value(root.node, &index, None)?;
            let at = self.address(root, node, &index);
            let outer = self.space.reduces() && squeezed(&node.sizes) != self.space.sizes;
            writes.push(Write { root: root.clone(), at, value, outer });
        }
        Ok(writes)
    }

    fn address(&self, root: &Root, node: &CoreNode, index: &[Affine]) -> Affine {
        match &root.place {
            Place::Own => Affine::dot(index, &node.strides),
            Place::Part(part) => Affine::dot(index, &part.strides).shifted(&part.offset),
            Place::Input(input) => {
                let op = CoreOp::Input(*input);
                let target = self.core.nodes().iter().find(|n| n.op == op);
                Affine::dot(index, target.map_or(&node.strides, |t| &t.strides))
            }
            Place::Stored(after) => match &self.core.node(*after).op {
                CoreOp::Stored(_, _, at) => Affine::dot(index, &at.factors).shifted(&at.start),
                _ => unreachable!("the place of another op"),
            },
        }
    }

    /// The index of a root's current element.
    fn index_of(&self, sizes: &[Dim]) -> Result<Vec<Affine>, Stop> {
        let kept = squeezed(sizes);
        let picked: Vec<&Affine> = if kept == self.space.sizes {
            self.base.iter().collect()
        } else if kept == self.space.outer() {
            self.base.iter().zip(&self.space.reduced).filter(|(_, r)| !**r).map(|(a, _)| a).collect()
        } else {
            return Err(Stop::Unfit(Unfit::Apart));
        };
        let mut picked = picked.into_iter();
        Ok(sizes
            .iter()
            .map(|s| if s.is(1) { Affine::zero() } else { picked.next().cloned().unwrap_or_else(Affine::zero) })
            .collect())
    }

    fn push(&mut self, expr: Expr, dtype: DType) -> InstId {
        let key = (expr, dtype);
        if let Some(id) = self.cons.get(&key) {
            return *id;
        }
        let operands = key.0.operands();
        let moves = |a: &Affine| a.terms.iter().any(|(l, _)| *l >= self.outer);
        let row = match &key.0 {
            Expr::Reduce(..) => false,
            Expr::Index(l) => *l >= self.outer,
            Expr::Load(_, at) | Expr::LoadIf(_, _, at, _) if moves(at) => true,
            _ => operands.iter().any(|o| self.insts[*o].row),
        };
        let level = operands.iter().map(|o| self.insts[*o].level).max().unwrap_or(0);
        let level = level + usize::from(matches!(key.0, Expr::Reduce(..)));
        let id = self.insts.len();
        self.insts.push(Inst { expr: key.0.clone(), dtype, row, level });
        self.cons.insert(key, id);
        id
    }

    fn value(&mut self, id: CoreId, index: &[Affine], mask: Option<InstId>) -> Result<InstId, Stop> {
        let key = (id, index.to_vec(), mask);
        if let Some(found) = self.memo.get(&key) {
            return Ok(*found);
        }
        let node = self.core.node(id);
        let out = if self.stored(id) {
            self.load(id, Affine::dot(index, &node.strides), mask)
        } else if node.is_empty() {
            // No loop reads an element of it.
            self.push(Expr::Const(0), node.dtype)
        } else {
            if node.dtype.is_float() && matches!(node.op, CoreOp::Unary(..) | CoreOp::Binary(..) | CoreOp::Select(..)) {
                let places = self.places.entry(id).or_default();
                *places += 1;
                if *places > MOST_PLACES {
                    return Err(Stop::Unfit(Unfit::Realise(id)));
                }
            }
            self.compute(id, node, index, mask)?
        };
        self.memo.insert(key, out);
        Ok(out)
    }

    /// Whether a value is read from memory here.
    fn stored(&self, id: CoreId) -> bool {
        self.in_memory.contains(&id) && !self.here.contains(&id) || !computes(&self.core.node(id).op)
    }

    fn load(&mut self, id: CoreId, at: Affine, mask: Option<InstId>) -> InstId {
        let dtype = self.core.node(id).dtype;
        match mask {
            // An address that moves along no masked loop is inside wherever the mask points.
            Some(cond) if self.masked(cond).iter().any(|l| !at.coefficient(*l).is(0)) => {
                let other = self.push(Expr::Const(0), dtype);
                self.push(Expr::LoadIf(cond, id, at, other), dtype)
            }
            _ => self.push(Expr::Load(id, at), dtype),
        }
    }

    /// A view's element.
    fn viewed(
        &mut self,
        operand: CoreId,
        (id, view): (CoreId, &CoreNode),
        index: &[Affine],
        mask: Option<InstId>,
    ) -> Result<InstId, Stop> {
        let from = self.core.node(operand);
        match through_view(view, from, index, &self.loops) {
            Ok(inner) => self.value(operand, &inner, mask),
            Err(Obstacle::Split(l, inner)) => Err(Stop::Split(l, inner)),
            Err(Obstacle::Opaque) => {
                // Memory that has the view's sizes as it lies needs no digits.
                let lies = matches!(view.op, CoreOp::Reshape(_)) && self.stored(operand);
                match lies.then(|| reshaped_strides(&from.sizes, &from.strides, &view.sizes)).flatten() {
                    Some(strides) => Ok(self.load(operand, Affine::dot(index, &strides), mask)),
                    // Memory in another order: it is the view that needs some of its own.
                    None if self.stored(operand) => Err(Stop::Unfit(Unfit::Realise(id))),
                    None => Err(Stop::Unfit(Unfit::Realise(operand))),
                }
            }
        }
    }

    /// Loops that a condition looks at.
    fn masked(&self, cond: InstId) -> Vec<usize> {
        match &self.insts[cond].expr {
            Expr::Index(l) => vec![*l],
            other => other.operands().into_iter().flat_map(|o| self.masked(o)).collect(),
        }
    }

    fn compute(&mut self, id: CoreId, node: &CoreNode, index: &[Affine], mask: Option<InstId>) -> Result<InstId, Stop> {
        let dtype = node.dtype;
        Ok(match &node.op {
            CoreOp::Const(bits) => self.push(Expr::Const(*bits), dtype),
            CoreOp::Scalar(dim) => self.scalar(dim, dtype),
            CoreOp::Iota(d) => {
                let at = index[*d as usize].clone();
                self.index_value(&at)
            }
            CoreOp::Unary(op, a) => {
                let a = self.value(*a, index, mask)?;
                self.push(Expr::Unary(*op, a), dtype)
            }
            CoreOp::Binary(op, a, b) => {
                let (a, b) = (self.value(*a, index, mask)?, self.value(*b, index, mask)?);
                self.push(Expr::Binary(*op, a, b), dtype)
            }
            CoreOp::Select(c, a, b) => {
                let c = self.value(*c, index, mask)?;
                let (a, b) = (self.value(*a, index, mask)?, self.value(*b, index, mask)?);
                self.push(Expr::Select(c, a, b), dtype)
            }
            CoreOp::Cast(a) => {
                let a = self.value(*a, index, mask)?;
                self.push(Expr::Cast(a), dtype)
            }
            CoreOp::Copy(a) | CoreOp::Stop(a) | CoreOp::Sloped(a, ..) => self.value(*a, index, mask)?,
            CoreOp::Pad(a, other, low) => self.pad(*a, *other, low, index, mask)?,
            CoreOp::Reduce(op, a, _) => {
                let arg = self.core.node(*a);
                let same_space = Space::of(self.core, id) == *self.space;
                if !same_space || mask.is_some() || *index != self.index_of(&node.sizes)?[..] {
                    return Err(Stop::Unfit(Unfit::Realise(id)));
                }
                let full = self.index_of(&arg.sizes)?;
                let a = self.value(*a, &full, None)?;
                self.push(Expr::Reduce(*op, a), dtype)
            }
            CoreOp::Expand(a)
            | CoreOp::Permute(a, _)
            | CoreOp::Reshape(a)
            | CoreOp::Slice(a, ..)
            | CoreOp::Sums(a, _) => self.viewed(*a, (id, node), index, mask)?,
            CoreOp::Input(_)
            | CoreOp::Result(..)
            | CoreOp::Join(..)
            | CoreOp::Extern(_)
            | CoreOp::Stored(..)
            | CoreOp::Changed(..) => {
                return Err(Stop::Unfit(Unfit::Realise(id)));
            }
        })
    }

    fn scalar(&mut self, dim: &Dim, dtype: DType) -> InstId {
        match dim {
            Dim::Const(c) if dtype == DType::I64 => self.push(Expr::Const(*c as u64), dtype),
            _ => self.push(Expr::Scalar(dim.clone()), dtype),
        }
    }

    fn index_value(&mut self, at: &Affine) -> InstId {
        let mut sum = (!at.offset.is(0) || at.terms.is_empty()).then(|| self.scalar(&at.offset, DType::I64));
        for (l, c) in &at.terms {
            let mut term = self.push(Expr::Index(*l), DType::I64);
            if !c.is(1) {
                let c = self.scalar(c, DType::I64);
                term = self.push(Expr::Binary(Binary::Mul, term, c), DType::I64);
            }
            sum = Some(match sum {
                None => term,
                Some(s) => self.push(Expr::Binary(Binary::Add, s, term), DType::I64),
            });
        }
        sum.unwrap_or_else(|| self.push(Expr::Const(0), DType::I64))
    }

    fn pad(
        &mut self,
        a: CoreId,
        other: u64,
        low: &[Dim],
        index: &[Affine],
        mask: Option<InstId>,
    ) -> Result<InstId, Stop> {
        let arg = self.core.node(a);
        let (dtype, sizes) = (arg.dtype, arg.sizes.clone());
        let mut inside = mask;
        let mut inner = Vec::with_capacity(index.len());
        for (d, at) in index.iter().enumerate() {
            let at = at.shifted(&Dim::Const(0).sub(&low[d]));
            let range = at.range(&self.loops);
            let below = !range.as_ref().is_some_and(|(least, _)| at_least(least, &Dim::Const(0)));
            let above = !range.is_some_and(|(_, most)| at_least(&sizes[d].sub(&Dim::Const(1)), &most));
            if below || above {
                let i = self.index_value(&at);
                for (op, bound, needed) in [(Binary::Ge, Dim::Const(0), below), (Binary::Lt, sizes[d].clone(), above)] {
                    if needed {
                        let bound = self.scalar(&bound, DType::I64);
                        let test = self.push(Expr::Binary(op, i, bound), DType::Bool);
                        inside = Some(match inside {
                            None => test,
                            Some(m) => self.push(Expr::Binary(Binary::And, m, test), DType::Bool),
                        });
                    }
                }
            }
            inner.push(at);
        }
        let value = self.value(a, &inner, inside)?;
        let Some(cond) = inside else { return Ok(value) };
        let other = self.push(Expr::Const(other), dtype);
        if let Expr::LoadIf(c, buffer, at, _) = self.insts[value].expr.clone()
            && c == cond
        {
            return Ok(self.push(Expr::LoadIf(c, buffer, at, other), dtype));
        }
        Ok(self.push(Expr::Select(cond, value, other), dtype))
    }
}

/// True for ops a kernel can compute.
pub fn computes(op: &CoreOp) -> bool {
    !op.is_input() && !matches!(op, CoreOp::Result(..) | CoreOp::Join(..) | CoreOp::Extern(_))
}
