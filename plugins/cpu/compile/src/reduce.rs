//! Reductions: rotating accumulators, sums of blocks, and how what lanes and copies have is joined.

use crate::emit::{Emitter, Value};
use crate::nest::Lanes;
use crate::ops::identity;
use crate::text::{Elem, Ty, def};
use flambeau_cpu_artifact::Isa;
use flambeau_plugin::kernel::{DType, Extent, Reduce, ReduceOp, Stage};

/// Row elements summed before their sum joins a total: keeps the error of long f32 sums near a pairwise sum's.
pub const SUM_BLOCK: i64 = 4096;

/// The same where each lane sums its own row.
pub const OUTER_SUM_BLOCK: i64 = 512;

impl Emitter<'_> {
    /// Rotating copies of each accumulator: a step depends on the one that many iterations ago, not on the last.
    pub fn copies(&self, stage: &Stage) -> usize {
        let registers = if self.isa == Isa::Avx512 { 8 } else { 4 };
        (registers / stage.reduces.len().max(1) / self.nest.registers as usize).clamp(1, 4)
    }

    pub fn accumulators(&self, stage: &Stage) -> Vec<(Ty, String)> {
        let copies = self.copies(stage);
        let of = |r: &Reduce| {
            let ty = Ty::new(Elem::of(r.dtype), self.width());
            std::iter::repeat_n((ty, ty.constant(identity(r.op, r.dtype))), copies)
        };
        stage.reduces.iter().flat_map(of).collect()
    }

    pub fn typed(&self, stage: &Stage, values: Vec<String>) -> Vec<(Ty, String)> {
        self.accumulators(stage).into_iter().zip(values).map(|((ty, _), value)| (ty, value)).collect()
    }

    /// Reduces `[0, end)` block by block, each into accumulators of its own.
    pub fn in_blocks(
        &mut self,
        stage: &Stage,
        (end, block): (&str, i64),
        accumulators: Vec<String>,
        mut reduce: impl FnMut(&mut Self, &str, &str, Vec<String>) -> Result<Vec<String>, String>,
    ) -> Result<Vec<String>, String> {
        let totals = self.typed(stage, accumulators);
        self.for_loop(("0", end, block), true, &totals, |this, start, totals| {
            let stop = def!(this.text, "add nsw i64 {start}, {block}");
            let stop = def!(this.text, "call i64 @llvm.smin.i64(i64 {stop}, i64 {end})");
            let fresh = this.accumulators(stage).into_iter().map(|(_, v)| v).collect();
            let sums = reduce(this, start, &stop, fresh)?;
            let copies = this.copies(stage);
            let width = this.width();
            let mut joined = Vec::with_capacity(sums.len());
            for (i, (total, sum)) in totals.iter().zip(&sums).enumerate() {
                joined.push(this.combine(&stage.reduces[i / copies], width, total, sum)?);
            }
            Ok(joined)
        })
    }

    pub fn combine(&mut self, reduce: &Reduce, lanes: u32, a: &str, b: &str) -> Result<String, String> {
        let combined = self.ops(lanes).combine(reduce.op, reduce.dtype, a, b);
        combined.ok_or_else(|| format!("{:?} reduction of {:?}", reduce.op, reduce.dtype))
    }

    /// Joins the copies, and the lanes where they belong to one row; defines the accumulator values.
    pub fn finish_reductions(&mut self, stage: &Stage, accumulators: Vec<String>) -> Result<(), String> {
        let copies = self.copies(stage);
        for (reduce, group) in stage.reduces.iter().zip(accumulators.chunks(copies)) {
            let mut parts = group.to_vec();
            while parts.len() > 1 {
                let last = parts.pop().unwrap_or_default();
                let at = parts.len() / 2;
                parts[at] = self.combine(reduce, self.width(), &parts[at].clone(), &last)?;
            }
            let mut text = parts.swap_remove(0);
            let mut lanes = self.width();
            if self.nest.lanes == Lanes::Row {
                text = self.across_lanes(reduce, text)?;
                lanes = 1;
            }
            self.at.values.insert(reduce.id, Value { text, dtype: reduce.dtype, lanes, literal: false });
        }
        Ok(())
    }

    /// Halves the vector until one element is left. Neighbours are joined where their order tells (zeros of both signs).
    fn across_lanes(&mut self, reduce: &Reduce, vector: String) -> Result<String, String> {
        let elem = Elem::of(reduce.dtype);
        let (mut vector, mut lanes) = (vector, self.width());
        let ordered = matches!(reduce.op, ReduceOp::Max | ReduceOp::Min);
        while lanes > 1 {
            let half = lanes / 2;
            let ty = Ty::new(elem, lanes);
            let mut part = |which: u32| {
                let pick = |l: u32| if ordered { 2 * l + which } else { l + which * half };
                let picks: Vec<String> = (0..half).map(|l| format!("i32 {}", pick(l))).collect();
                let mask = format!("<{half} x i32> <{}>", picks.join(", "));
                def!(self.text, "shufflevector {ty} {vector}, {ty} poison, {mask}")
            };
            let (low, high) = (part(0), part(1));
            if half == 1 {
                let one = format!("<1 x {}>", elem.text());
                let low = def!(self.text, "extractelement {one} {low}, i64 0");
                let high = def!(self.text, "extractelement {one} {high}, i64 0");
                return self.combine(reduce, 1, &low, &high);
            }
            vector = self.combine(reduce, half, &low, &high)?;
            lanes = half;
        }
        Ok(vector)
    }
}

/// Whether a row is more than two blocks of this size, as far as is known.
pub fn is_long(extent: Extent, block: i64) -> bool {
    !matches!(extent, Extent::Const(n) if n <= 2 * block)
}

/// Whether a stage sums numbers of single precision.
pub fn sums_singles(stage: &Stage) -> bool {
    stage.reduces.iter().any(|r| r.op == ReduceOp::Sum && r.dtype == DType::F32)
}
