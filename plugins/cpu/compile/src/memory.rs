//! Reaching memory: addresses kept per open loop, contiguous vectors, gathers and scatters, masks.

use crate::emit::{Emitter, SPARE, Value};
use crate::nest::Lanes;
use crate::text::{Elem, Ty, def, run};
use flambeau_plugin::kernel::{Access, DType, Extent, Stage, Store, ValueId};

/// Alignment of stores past the caches, bytes: the processor refuses others. It is also a cache line, which such stores
/// should fill.
const STREAM_ALIGN: u32 = 64;

/// How an access lies along the vectorised dimension.
enum Along {
    /// Does not move.
    Still,
    /// One element per lane.
    Contiguous,
    /// This many elements per lane.
    Strided(Extent),
}

impl Emitter<'_> {
    fn along(&self, access: &Access) -> Along {
        match access.strides[self.nest.vector_dim()] {
            Extent::Const(0) => Along::Still,
            Extent::Const(1) => Along::Contiguous,
            stride => Along::Strided(stride),
        }
    }

    pub fn memory_elem(&self, access: &Access) -> Elem {
        Elem::in_memory(self.nest.kernel.params[access.param as usize].dtype)
    }

    /// The innermost row loop an access depends on, counted from 1; 0 if on none.
    pub fn reach(&self, access: &Access) -> usize {
        let row = &access.strides[self.nest.kernel.outer..];
        row.iter().rposition(|s| *s != Extent::Const(0)).map_or(0, |d| d + 1)
    }

    /// `pointer + index * stride`.
    fn step(&mut self, access: &Access, pointer: &str, index: &str, stride: Extent) -> String {
        let elem = self.memory_elem(access).text();
        let offset = match stride {
            Extent::Const(1) => index.to_owned(),
            stride => {
                let stride = self.extent(stride);
                def!(self.text, "mul nsw i64 {index}, {stride}")
            }
        };
        def!(self.text, "getelementptr {elem}, ptr {pointer}, i64 {offset}")
    }

    /// Computes the address of an access at the current outer point.
    pub fn outer_pointer(&mut self, access: &Access) {
        if self.at.pointers.contains_key(access) {
            return;
        }
        let mut pointer = self.bases[access.param as usize].clone();
        if access.offset != Extent::Const(0) {
            let offset = self.extent(access.offset);
            pointer = self.step(access, &pointer, &offset, Extent::Const(1));
        }
        for d in 0..self.nest.kernel.outer {
            let index = self.at.index.get(&d).cloned().unwrap_or_default();
            if access.strides[d] != Extent::Const(0) {
                pointer = self.step(access, &pointer, &index, access.strides[d]);
            }
        }
        self.at.pointers.insert(access.clone(), pointer);
    }

    /// Moves the address of an access along a row dimension that is not vectorised.
    pub fn advance_pointer(&mut self, access: &Access, dim: usize, index: &str) {
        if access.strides[dim] == Extent::Const(0) {
            return;
        }
        if let Some(pointer) = self.at.pointers.get(access).cloned() {
            // Stepped from the loop's outside value each time: the same access may occur twice in a stage.
            let key = (access.clone(), dim);
            if self.at.advanced.contains(&key) {
                return;
            }
            let moved = self.step(access, &pointer, index, access.strides[dim]);
            self.at.pointers.insert(access.clone(), moved);
            self.at.advanced.insert(key);
        }
    }

    fn pointer(&self, access: &Access) -> Result<String, String> {
        self.at.pointers.get(access).cloned().ok_or_else(|| "an access without an address".to_owned())
    }

    /// The address of the first lane.
    pub fn lane_pointer(&mut self, access: &Access) -> Result<String, String> {
        let pointer = self.pointer(access)?;
        if self.nest.lanes == Lanes::Outer {
            return Ok(pointer);
        }
        let dim = self.nest.vector_dim();
        let index = self.at.index.get(&dim).cloned().unwrap_or_else(|| "0".to_owned());
        Ok(self.step(access, &pointer, &index, access.strides[dim]))
    }

    /// One address per lane.
    fn lane_pointers(&mut self, access: &Access, stride: Extent) -> Result<String, String> {
        let width = self.width();
        let first = self.lane_pointer(access)?;
        let offsets = match stride {
            Extent::Const(s) => {
                let offsets: Vec<String> = (0..i64::from(width)).map(|l| format!("i64 {}", l * s)).collect();
                format!("<{}>", offsets.join(", "))
            }
            Extent::Scalar(_) => {
                let ty = Ty::new(Elem::I64, width);
                let stride = self.extent(stride);
                let stride = self.splat(ty, &stride);
                let lanes: Vec<String> = (0..width).map(|l| format!("i64 {l}")).collect();
                def!(self.text, "mul {ty} {stride}, <{}>", lanes.join(", "))
            }
        };
        let elem = self.memory_elem(access).text();
        Ok(def!(self.text, "getelementptr {elem}, ptr {first}, <{width} x i64> {offsets}"))
    }

    fn loaded(&mut self, dtype: DType, lanes: u32, text: String) -> Value {
        let text = if dtype == DType::Bool {
            let ty = Ty::new(Elem::I8, lanes);
            def!(self.text, "icmp ne {ty} {text}, {}", ty.int(0))
        } else {
            text
        };
        Value { text, dtype, lanes, literal: false }
    }

    /// Reads an access whose parameter has the type of the instruction.
    pub fn load(&mut self, access: &Access, dtype: DType) -> Result<Value, String> {
        let param = self.nest.kernel.params[access.param as usize].dtype;
        if param != dtype {
            return Err(format!("a load of {dtype:?} from a buffer of {param:?}"));
        }
        let width = self.width();
        let mask = self.at.mask.clone();
        let ty = Ty::new(Elem::in_memory(dtype), width);
        let align = ty.elem.bits() / 8;
        if let Some(pointer) = self.turned(access) {
            let text = def!(self.text, "load {ty}, ptr {pointer}, align {align}");
            return Ok(self.loaded(dtype, width, text));
        }
        let text = match (self.along(access), mask) {
            (Along::Still, _) => {
                let pointer = self.pointer(access)?;
                let text = def!(self.text, "load {}, ptr {pointer}, align {align}", ty.elem.text());
                return Ok(self.loaded(dtype, 1, text));
            }
            (Along::Contiguous, None) => {
                let pointer = self.lane_pointer(access)?;
                def!(self.text, "load {ty}, ptr {pointer}, align {align}")
            }
            (Along::Strided(stride), None) => self.gather(access, stride, ty)?,
            (_, Some(mask)) => self.masked_load(access, ty, &mask, "zeroinitializer")?,
        };
        Ok(self.loaded(dtype, width, text))
    }

    /// Lane by lane: faster than a gather instruction on most CPUs, and the same everywhere.
    fn gather(&mut self, access: &Access, stride: Extent, ty: Ty) -> Result<String, String> {
        if let Extent::Const(stride) = stride
            && let Some(vector) = self.load_near(access, stride, ty)?
        {
            return Ok(vector);
        }
        let first = self.lane_pointer(access)?;
        let align = ty.elem.bits() / 8;
        let mut vector = "poison".to_owned();
        for lane in 0..ty.lanes {
            let pointer = self.step_lane(access, &first, lane, stride);
            let one = def!(self.text, "load {}, ptr {pointer}, align {align}", ty.elem.text());
            vector = def!(self.text, "insertelement {ty} {vector}, {} {one}, i64 {lane}", ty.elem.text());
        }
        Ok(vector)
    }

    pub fn step_lane(&mut self, access: &Access, first: &str, lane: u32, stride: Extent) -> String {
        match stride {
            Extent::Const(s) => self.step(access, first, &(i64::from(lane) * s).to_string(), Extent::Const(1)),
            stride => self.step(access, first, &lane.to_string(), stride),
        }
    }

    fn masked_load(&mut self, access: &Access, ty: Ty, mask: &str, other: &str) -> Result<String, String> {
        let align = ty.elem.bits() / 8;
        let mask_ty = ty.with(Elem::I1);
        let stride = match self.along(access) {
            Along::Contiguous => {
                let pointer = self.lane_pointer(access)?;
                return Ok(def!(
                    self.text,
                    "call {ty} @llvm.masked.load.{}.p0(ptr {pointer}, i32 {align}, {mask_ty} {mask}, {ty} {other})",
                    ty.suffix()
                ));
            }
            Along::Still => Extent::Const(0),
            Along::Strided(stride) => stride,
        };
        let pointers = self.lane_pointers(access, stride)?;
        let (lanes, suffix) = (ty.lanes, ty.suffix());
        Ok(def!(
            self.text,
            "call {ty} @llvm.masked.gather.{suffix}.v{lanes}p0(<{lanes} x ptr> {pointers}, i32 {align}, {mask_ty} {mask}, {ty} {other})"
        ))
    }

    /// Reads where `cond` holds; `other` elsewhere.
    pub fn load_if(&mut self, cond: ValueId, access: &Access, other: ValueId, dtype: DType) -> Result<Value, String> {
        let param = self.nest.kernel.params[access.param as usize].dtype;
        if param != dtype {
            return Err(format!("a load of {dtype:?} from a buffer of {param:?}"));
        }
        let still = matches!(self.along(access), Along::Still);
        let lanes = if still { self.lanes_of(&[cond, other]) } else { self.width() };
        let (condition, other) = (self.operand(cond, lanes)?, self.operand(other, lanes)?);
        let ty = Ty::new(Elem::in_memory(dtype), lanes);
        if lanes == 1 {
            let value = self.storable(dtype, 1, &other);
            run!(self.text, "store {ty} {value}, ptr {SPARE}, align 8");
            let pointer = self.pointer(access)?;
            let safe = def!(self.text, "select i1 {condition}, ptr {pointer}, ptr {SPARE}");
            let text = def!(self.text, "load {ty}, ptr {safe}, align {}", ty.elem.bits() / 8);
            return Ok(self.loaded(dtype, 1, text));
        }
        let bools = ty.with(Elem::I1);
        let mask = match self.at.mask.clone() {
            Some(mask) => def!(self.text, "and {bools} {condition}, {mask}"),
            None => condition,
        };
        let other = self.storable(dtype, lanes, &other);
        let text = self.masked_load(access, ty, &mask, &other)?;
        Ok(self.loaded(dtype, lanes, text))
    }

    fn storable(&mut self, dtype: DType, lanes: u32, text: &str) -> String {
        if dtype != DType::Bool {
            return text.to_owned();
        }
        def!(self.text, "zext {} {text} to {}", Ty::new(Elem::I1, lanes), Ty::new(Elem::I8, lanes))
    }

    /// Whether every streaming store of a stage, from this index on, begins at a multiple of [`STREAM_ALIGN`]; `None` if
    /// there are none.
    pub fn can_stream(&mut self, stage: &Stage, start: &str) -> Result<Option<String>, String> {
        let nest = self.nest;
        let saved = self.at.index.insert(nest.vector_dim(), start.to_owned());
        let mut low = None;
        for store in stage.stores.iter().filter(|s| nest.streams_to(&s.access)) {
            let pointer = self.lane_pointer(&store.access)?;
            let bits = def!(self.text, "ptrtoint ptr {pointer} to i64");
            low = Some(match low {
                Some(low) => def!(self.text, "or i64 {low}, {bits}"),
                None => bits,
            });
        }
        self.at.index.remove(&nest.vector_dim());
        self.at.index.extend(saved.map(|index| (nest.vector_dim(), index)));
        let Some(low) = low else { return Ok(None) };
        let low = def!(self.text, "and i64 {low}, {}", STREAM_ALIGN - 1);
        Ok(Some(def!(self.text, "icmp eq i64 {low}, 0")))
    }

    /// Writes a value.
    pub fn store(&mut self, store: &Store) -> Result<(), String> {
        let access = &store.access;
        let dtype = self.nest.kernel.params[access.param as usize].dtype;
        let has = self.at.values.get(&store.value).map(|v| v.dtype);
        if has != Some(dtype) {
            return Err(format!("a store of {has:?} to a buffer of {dtype:?}"));
        }
        let along = self.along(access);
        let lanes = if matches!(along, Along::Still) { 1 } else { self.width() };
        let value = self.operand(store.value, lanes)?;
        let value = self.storable(dtype, lanes, &value);
        let ty = Ty::new(Elem::in_memory(dtype), lanes);
        let (align, mask_ty) = (ty.elem.bits() / 8, ty.with(Elem::I1));
        if let Some(pointer) = self.turned(access) {
            run!(self.text, "store {ty} {value}, ptr {pointer}, align {align}");
            return Ok(());
        }
        let mask = self.at.mask.clone();
        match (along, mask) {
            (Along::Still, _) => {
                let pointer = self.pointer(access)?;
                run!(self.text, "store {ty} {value}, ptr {pointer}, align {align}");
            }
            (Along::Contiguous, None) if self.at.streaming && self.nest.streams_to(access) => {
                let pointer = self.lane_pointer(access)?;
                let align = STREAM_ALIGN.min(ty.elem.bits() / 8 * lanes);
                run!(self.text, "store {ty} {value}, ptr {pointer}, align {align}, !nontemporal !0");
            }
            (Along::Contiguous, None) => {
                let pointer = self.lane_pointer(access)?;
                run!(self.text, "store {ty} {value}, ptr {pointer}, align {align}");
            }
            (Along::Contiguous, Some(mask)) => {
                let pointer = self.lane_pointer(access)?;
                run!(
                    self.text,
                    "call void @llvm.masked.store.{}.p0({ty} {value}, ptr {pointer}, i32 {align}, {mask_ty} {mask})",
                    ty.suffix()
                );
            }
            (Along::Strided(stride), None) => {
                if let Extent::Const(stride) = stride
                    && self.store_near(access, stride, ty, &value)?
                {
                    return Ok(());
                }
                let first = self.lane_pointer(access)?;
                for lane in 0..lanes {
                    let pointer = self.step_lane(access, &first, lane, stride);
                    let one = def!(self.text, "extractelement {ty} {value}, i64 {lane}");
                    run!(self.text, "store {} {one}, ptr {pointer}, align {align}", ty.elem.text());
                }
            }
            (Along::Strided(stride), Some(mask)) => {
                let pointers = self.lane_pointers(access, stride)?;
                run!(
                    self.text,
                    "call void @llvm.masked.scatter.{}.v{lanes}p0({ty} {value}, <{lanes} x ptr> {pointers}, i32 {align}, {mask_ty} {mask})",
                    ty.suffix()
                );
            }
        }
        Ok(())
    }
}
