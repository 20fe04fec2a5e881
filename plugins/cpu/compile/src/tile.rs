//! Nests where some accesses are contiguous along the vectorised dimension and others along another one: both are walked in
//! square tiles. What is contiguous along the other one is turned in registers, and lies in a small buffer meanwhile.

use crate::emit::Emitter;
use crate::text::{Elem, Ty, def, run};
use flambeau_plugin::kernel::{Access, Extent, Kernel, Op, Scope, Stage};
use flambeau_plugin::simplify::stage_accesses;

/// Sizes below which tiles are mostly empty.
const LEAST: i64 = 8;

/// The dimension, other than the vectorised one, along which accesses are contiguous that are strided along that one: the one
/// of most such accesses.
pub fn other_dim(kernel: &Kernel, vector: usize) -> Option<usize> {
    let [stage] = &kernel.stages[..] else { return None };
    let long = |d: usize| !matches!(kernel.dims[d], Extent::Const(n) if n < LEAST);
    if stage.scope != Scope::Row || !long(vector) {
        return None;
    }
    let count = |d: usize| accesses(stage).filter(|a| is_turned(a, vector, d)).count();
    (0..kernel.dims.len()).filter(|d| *d != vector && long(*d) && count(*d) > 0).max_by_key(|d| count(*d))
}

/// Whether an access is contiguous along the other dimension only.
pub fn is_turned(access: &Access, vector: usize, other: usize) -> bool {
    !matches!(access.strides[vector], Extent::Const(0 | 1)) && access.strides[other] == Extent::Const(1)
}

/// Accesses to every element, in order: what is read first, and what is written.
fn accesses(stage: &Stage) -> impl Iterator<Item = &Access> {
    loads(stage).chain(stage.stores.iter().map(|store| &store.access))
}

fn loads(stage: &Stage) -> impl Iterator<Item = &Access> {
    stage.insts.iter().filter_map(|inst| if let Op::Load(access) = &inst.op { Some(access) } else { None })
}

fn distinct<'a>(all: impl Iterator<Item = &'a Access>) -> Vec<Access> {
    let mut found: Vec<Access> = Vec::new();
    all.for_each(|access| _ = (!found.contains(access)).then(|| found.push(access.clone())));
    found
}

impl Emitter<'_> {
    fn is_turned(&self, access: &Access) -> bool {
        self.nest.tiled.is_some_and(|other| is_turned(access, self.nest.vector_dim(), other))
    }

    /// Room for a tile of each access that is turned.
    pub fn tile_rooms(&mut self) {
        let [stage] = &self.nest.kernel.stages[..] else { return };
        let width = self.width();
        for access in distinct(accesses(stage).filter(|a| self.is_turned(a))) {
            let elem = self.memory_elem(&access).text();
            let room = def!(self.text, "alloca [{} x {elem}], align 64", width * width);
            self.rooms.push((access, room));
        }
    }

    /// Where the lanes of an access at this point of a tile lie, if it is turned.
    pub fn turned(&mut self, access: &Access) -> Option<String> {
        let (_, room) = self.rooms.iter().find(|(of, _)| of == access)?.clone();
        let point = self.at.tile_point.clone()?;
        let elem = self.memory_elem(access).text();
        let at = def!(self.text, "mul nsw i64 {point}, {}", self.width());
        Some(def!(self.text, "getelementptr {elem}, ptr {room}, i64 {at}"))
    }

    /// A tile: one vector along the vectorised dimension, at as many indices of the other one.
    pub fn tile(&mut self, stage: &Stage, other: usize, count: Option<&str>) -> Result<(), String> {
        let (width, first) = (self.width(), self.at.index.get(&other).cloned().unwrap_or_default());
        let extent = self.nest.kernel.dims[other];
        let (indices, mask) = if matches!(extent, Extent::Const(n) if n % i64::from(width) == 0) {
            (width.to_string(), None)
        } else {
            let end = self.extent(extent);
            let left = def!(self.text, "sub nsw i64 {end}, {first}");
            let indices = def!(self.text, "call i64 @llvm.smin.i64(i64 {left}, i64 {width})");
            (indices, Some(self.mask_of(&left)))
        };
        for access in distinct(loads(stage).filter(|a| self.is_turned(a))) {
            let ty = self.tile_type(&access);
            let rows = self.rows(&access, count, mask.as_deref())?;
            let loaded = rows.into_iter().map(|row| self.load_row(ty, &row)).collect();
            let columns = self.transposed(ty, loaded);
            self.keep(&access, ty, &columns);
        }
        self.for_loop(("0", &indices, 1), true, &[], |this, index, _| {
            this.at.tile_point = Some(index.to_owned());
            let at = def!(this.text, "add nsw i64 {first}, {index}");
            this.at.index.insert(other, at);
            // Of those that are turned too: conditional loads read memory.
            for access in stage_accesses(stage) {
                this.advance_pointer(access, other, index);
            }
            for inst in &stage.insts {
                this.inst(inst)?;
            }
            for store in &stage.stores {
                this.store(store)?;
            }
            Ok(vec![])
        })?;
        for access in distinct(stage.stores.iter().map(|s| &s.access).filter(|a| self.is_turned(a))) {
            let ty = self.tile_type(&access);
            let columns = self.kept(&access, ty);
            let turned = self.transposed(ty, columns);
            let rows = self.rows(&access, count, mask.as_deref())?;
            for (row, value) in rows.into_iter().zip(turned) {
                self.store_row(ty, &row, &value);
            }
        }
        Ok(())
    }

    fn tile_type(&self, access: &Access) -> Ty {
        Ty::new(self.memory_elem(access), self.width())
    }

    /// The rows of a tile in memory: the address of each, and which of its elements there are. `count` lanes exist, if not
    /// all.
    fn rows(&mut self, access: &Access, count: Option<&str>, mask: Option<&str>) -> Result<Vec<Row>, String> {
        let (width, dim) = (self.width(), self.nest.vector_dim());
        let (first, stride) = (self.lane_pointer(access)?, access.strides[dim]);
        let bools = Ty::new(Elem::I1, width);
        let mut rows = Vec::new();
        for lane in 0..width {
            let pointer = self.step_lane(access, &first, lane, stride);
            let mask = match count {
                None => mask.map(str::to_owned),
                Some(count) => {
                    let is_there = def!(self.text, "icmp slt i64 {lane}, {count}");
                    let all = mask.map_or_else(|| bools.constant("true"), str::to_owned);
                    Some(def!(self.text, "select i1 {is_there}, {bools} {all}, {bools} zeroinitializer"))
                }
            };
            rows.push(Row { pointer, mask });
        }
        Ok(rows)
    }

    fn load_row(&mut self, ty: Ty, row: &Row) -> String {
        let (pointer, align) = (&row.pointer, ty.elem.bits() / 8);
        let Some(mask) = &row.mask else {
            return def!(self.text, "load {ty}, ptr {pointer}, align {align}");
        };
        let (bools, suffix) = (ty.with(Elem::I1), ty.suffix());
        def!(
            self.text,
            "call {ty} @llvm.masked.load.{suffix}.p0(ptr {pointer}, i32 {align}, {bools} {mask}, {ty} zeroinitializer)"
        )
    }

    fn store_row(&mut self, ty: Ty, row: &Row, value: &str) {
        let (pointer, align) = (&row.pointer, ty.elem.bits() / 8);
        let Some(mask) = &row.mask else {
            run!(self.text, "store {ty} {value}, ptr {pointer}, align {align}");
            return;
        };
        let (bools, suffix) = (ty.with(Elem::I1), ty.suffix());
        run!(
            self.text,
            "call void @llvm.masked.store.{suffix}.p0({ty} {value}, ptr {pointer}, i32 {align}, {bools} {mask})"
        );
    }

    /// As many vectors as each has lanes, rows for columns: what stands half of them apart is interleaved, again and again.
    fn transposed(&mut self, ty: Ty, mut rows: Vec<String>) -> Vec<String> {
        let (lanes, half) = (ty.lanes, rows.len() / 2);
        let interleaved = |from: u32| {
            let picks: Vec<String> =
                (from..from + lanes / 2).flat_map(|l| [l, l + lanes]).map(|l| format!("i32 {l}")).collect();
            format!("<{lanes} x i32> <{}>", picks.join(", "))
        };
        let (low, high) = (interleaved(0), interleaved(lanes / 2));
        for _ in 0..lanes.trailing_zeros() {
            let mut next = Vec::with_capacity(rows.len());
            for (a, b) in rows[..half].iter().zip(&rows[half..]) {
                next.push(def!(self.text, "shufflevector {ty} {a}, {ty} {b}, {low}"));
                next.push(def!(self.text, "shufflevector {ty} {a}, {ty} {b}, {high}"));
            }
            rows = next;
        }
        rows
    }

    fn room_rows(&mut self, access: &Access) -> Vec<String> {
        let (elem, width) = (self.memory_elem(access).text(), self.width());
        let Some((_, room)) = self.rooms.iter().find(|(of, _)| of == access).cloned() else { return vec![] };
        (0..width).map(|row| def!(self.text, "getelementptr {elem}, ptr {room}, i64 {}", row * width)).collect()
    }

    fn keep(&mut self, access: &Access, ty: Ty, columns: &[String]) {
        let align = ty.elem.bits() / 8;
        for (pointer, column) in self.room_rows(access).into_iter().zip(columns) {
            run!(self.text, "store {ty} {column}, ptr {pointer}, align {align}");
        }
    }

    fn kept(&mut self, access: &Access, ty: Ty) -> Vec<String> {
        let align = ty.elem.bits() / 8;
        let rows = self.room_rows(access);
        rows.into_iter().map(|pointer| def!(self.text, "load {ty}, ptr {pointer}, align {align}")).collect()
    }
}

/// One row of a tile in memory.
struct Row {
    pointer: String,
    /// Which elements exist, if not all.
    mask: Option<String>,
}
