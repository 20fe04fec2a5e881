//! Accesses whose elements are next to each other in reverse, or a few elements apart: vectors are read and written whole, and
//! elements picked in registers.

use crate::emit::Emitter;
use crate::text::{Elem, Ty, def, run};
use flambeau_cpu_artifact::Isa;
use flambeau_plugin::kernel::{Access, Extent};
use std::ops::RangeInclusive;

/// Elements apart for which whole vectors are read.
pub const NEAR: RangeInclusive<i64> = 2..=4;

/// Where a vector of a block begins, and of which lane each of its elements is.
struct Block {
    start: i64,
    lanes: Vec<Option<u32>>,
}

/// Vectors that hold `lanes` elements, each `stride` from the last, and nothing beyond them. Each lane is in one.
fn blocks(lanes: u32, stride: i64) -> Vec<Block> {
    let width = i64::from(lanes);
    let span = stride * (width - 1) + 1;
    let mut begun = 0;
    (0..stride)
        .map(|at| {
            let start = (at * width).min(span - width);
            let of = |position: i64| {
                let is_lane = position >= begun && position % stride == 0;
                is_lane.then_some((position / stride) as u32)
            };
            let block = Block { start, lanes: (start..start + width).map(of).collect() };
            begun = start + width;
            block
        })
        .collect()
}

impl Emitter<'_> {
    /// Reads one element per lane; `None` where that takes as many loads.
    pub fn load_near(&mut self, access: &Access, stride: i64, ty: Ty) -> Result<Option<String>, String> {
        if ty.lanes < 4 || !(stride == -1 || NEAR.contains(&stride)) {
            return Ok(None);
        }
        let align = ty.elem.bits() / 8;
        let first = self.lane_pointer(access)?;
        let load = |this: &mut Self, start: i64| {
            let pointer = this.step_lane(access, &first, 1, Extent::Const(start));
            def!(this.text, "load {ty}, ptr {pointer}, align {align}")
        };
        if stride == -1 {
            let vector = load(self, 1 - i64::from(ty.lanes));
            return Ok(Some(self.reversed(ty, &vector)));
        }
        let mut picked = "poison".to_owned();
        for block in blocks(ty.lanes, stride) {
            let vector = load(self, block.start);
            let place = |lane: u32| block.lanes.iter().position(|of| *of == Some(lane));
            let picks = (0..ty.lanes).map(|lane| place(lane).map_or(lane, |at| ty.lanes + at as u32));
            picked = self.shuffle(ty, &picked, &vector, picks);
        }
        Ok(Some(picked))
    }

    /// Writes one element per lane; false where that takes as many stores.
    pub fn store_near(&mut self, access: &Access, stride: i64, ty: Ty, value: &str) -> Result<bool, String> {
        let masked = self.isa == Isa::Avx512 && ty.elem.bits() >= 32 && NEAR.contains(&stride);
        if ty.lanes < 4 || !(stride == -1 || masked) {
            return Ok(false);
        }
        let align = ty.elem.bits() / 8;
        let first = self.lane_pointer(access)?;
        if stride == -1 {
            let pointer = self.step_lane(access, &first, 1, Extent::Const(1 - i64::from(ty.lanes)));
            let value = self.reversed(ty, value);
            run!(self.text, "store {ty} {value}, ptr {pointer}, align {align}");
            return Ok(true);
        }
        let mask_ty = ty.with(Elem::I1);
        for block in blocks(ty.lanes, stride) {
            let pointer = self.step_lane(access, &first, 1, Extent::Const(block.start));
            let spread = self.shuffle(ty, value, "poison", block.lanes.iter().map(|lane| lane.unwrap_or(0)));
            let mask: Vec<String> = block.lanes.iter().map(|lane| format!("i1 {}", lane.is_some())).collect();
            run!(
                self.text,
                "call void @llvm.masked.store.{}.p0({ty} {spread}, ptr {pointer}, i32 {align}, {mask_ty} <{}>)",
                ty.suffix(),
                mask.join(", ")
            );
        }
        Ok(true)
    }

    fn reversed(&mut self, ty: Ty, vector: &str) -> String {
        self.shuffle(ty, vector, "poison", (0..ty.lanes).rev())
    }

    fn shuffle(&mut self, ty: Ty, a: &str, b: &str, picks: impl Iterator<Item = u32>) -> String {
        let picks: Vec<String> = picks.map(|pick| format!("i32 {pick}")).collect();
        def!(self.text, "shufflevector {ty} {a}, {ty} {b}, <{} x i32> <{}>", ty.lanes, picks.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::{NEAR, blocks};

    #[test]
    fn blocks_hold_each_lane_once_and_nothing_beyond() {
        for (lanes, stride) in [4, 8, 16].into_iter().flat_map(|lanes| NEAR.map(move |stride| (lanes, stride))) {
            let mut seen: Vec<u32> = Vec::new();
            for block in blocks(lanes, stride) {
                let end = block.start + i64::from(lanes);
                assert!(block.start >= 0 && end <= stride * i64::from(lanes - 1) + 1);
                for (position, lane) in (block.start..end).zip(&block.lanes) {
                    assert!(lane.is_none_or(|lane| i64::from(lane) * stride == position));
                    seen.extend(lane);
                }
            }
            seen.sort_unstable();
            assert_eq!(seen, (0..lanes).collect::<Vec<_>>());
        }
    }
}
