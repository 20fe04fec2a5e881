//! A function of the program on its way: its parameters, its values, and what it does with elements of a row.

use crate::place::{Index, extent, place};
use crate::reduction::Reduction;
use crate::vector::{Vector, Walk, loads};
use flambeau_c_text::{Dialect, Text, ctype, name, value};
use flambeau_plugin::kernel::{Access, DType, Extent, Inst, Kernel, Op, Role, Stage, ValueId};
use std::collections::BTreeMap;

/// A function that is being written.
pub struct Entry<'a> {
    pub kernel: &'a Kernel,
    pub vector: &'a Vector,
    /// Of all indices.
    pub index: Index,
    /// What is read once for all stages: `c0`, `c1`, ... have it for all elements of a thread.
    pub cached: Vec<Access>,
    text: &'a mut Text,
    /// Types of the values emitted so far.
    types: BTreeMap<ValueId, DType>,
}

impl<'a> Entry<'a> {
    /// Begins it. `more` is what parameters it has beyond buffers and scalars.
    pub fn begin(
        kernel: &'a Kernel,
        vector: &'a Vector,
        text: &'a mut Text,
        name: &str,
        threads: u32,
        more: &[&str],
    ) -> Self {
        let buffers = kernel.params.iter().enumerate().map(|(i, param)| {
            let c = ctype(param.dtype);
            if param.role == Role::In { format!("const {c} *__restrict__ p{i}") } else { format!("{c} *p{i}") }
        });
        let scalars = (0..kernel.scalars).map(|i| format!("const long s{i}"));
        let more = more.iter().map(|parameter| (*parameter).to_owned());
        let parameters = buffers.chain(scalars).chain(more).collect::<Vec<_>>().join(", ");
        text.line("");
        text.open(&format!("extern \"C\" __global__ void __launch_bounds__({threads}) {name}({parameters})"));
        Entry { kernel, vector, index: Index::of(kernel), cached: Vec::new(), text, types: BTreeMap::new() }
    }

    /// A line of it.
    pub fn line(&mut self, line: &str) {
        self.text.line(line);
    }

    /// Begins a block.
    pub fn open(&mut self, line: &str) {
        self.text.open(line);
    }

    /// Ends the block begun last.
    pub fn close(&mut self) {
        self.text.close();
    }

    /// A value that later lines use.
    pub fn define(&mut self, id: ValueId, dtype: DType, value: &str) {
        self.types.insert(id, dtype);
        self.line(&format!("const {} {} = {value};", ctype(dtype), name(id)));
    }

    /// Declares what a stage's reductions are kept in.
    pub fn start(&mut self, reductions: &[Reduction]) {
        for reduction in reductions {
            let (kept_type, kept) = (reduction.kept_type(), reduction.kept_in());
            self.line(&format!("{kept_type} {kept} = {};", reduction.start()));
        }
    }

    /// What a stage computes once for each row, as far as it is needed.
    pub fn outside(&mut self, stage: &Stage, needed: impl Fn(ValueId) -> bool) {
        for inst in stage.insts.iter().filter(|inst| needed(inst.id)) {
            let computed = value(Dialect::Cuda, inst, &self.types, |access| self.direct(access));
            self.define(inst.id, inst.dtype, &computed);
        }
    }

    /// What a stage writes once for each row.
    pub fn store_outside(&mut self, stage: &Stage) {
        for store in &stage.stores {
            let place = place(&store.access, |dim| format!("i{dim}"));
            self.line(&format!("p{}[{place}] = {};", store.access.param, name(store.value)));
        }
    }

    /// Declares the indices of elements of the row: `count` counts them.
    pub fn indices(&mut self, count: &str) {
        let dims = self.kernel.outer..self.kernel.dims.len();
        let names: Vec<String> = dims.clone().map(|dim| self.base(dim)).collect();
        for line in self.index.divided(count, &names, &self.kernel.dims[dims]) {
            self.line(&line);
        }
    }

    /// A stage for the elements whose indices were declared, and what it finds. `turn` counts them in what was read before.
    pub fn elements(&mut self, stage: &Stage, reductions: &[Reduction], turn: &str) {
        let wide = self.vector.width > 1;
        let packed = |access: &&Access| wide && self.vector.walk(access) == Walk::Packed;
        let mut read: Vec<Access> = Vec::new();
        for access in loads(stage).filter(packed) {
            if !read.contains(access) && !self.cached.contains(access) {
                read.push(access.clone());
            }
        }
        let written: Vec<Access> = stage.stores.iter().map(|store| &store.access).filter(packed).cloned().collect();
        for (at, access) in read.iter().enumerate() {
            self.line(&format!("const auto m{at} = {};", self.pack(access)));
        }
        for (at, access) in written.iter().enumerate() {
            let c = ctype(self.kernel.params[access.param as usize].dtype);
            self.line(&format!("Pack<{}, {c}> w{at};", self.vector.width));
        }
        for reduction in reductions {
            if let Some(pack) = reduction.pack() {
                self.line(&format!("Pack<{}, {}> {pack};", self.vector.width, ctype(reduction.dtype)));
            }
        }
        self.open_lanes();
        for inst in &stage.insts {
            let computed = value(Dialect::Cuda, inst, &self.types, |access| self.element(inst, access, &read, turn));
            self.define(inst.id, inst.dtype, &computed);
        }
        for store in &stage.stores {
            let value = name(store.value);
            match written.iter().position(|access| *access == store.access) {
                Some(at) => self.line(&format!("w{at}.lane[k] = {value};")),
                None => self.store(&store.access, &value),
            }
        }
        for reduction in reductions {
            let value = name(reduction.value);
            let lane = if wide { "k" } else { "0" };
            self.line(&match reduction.pack() {
                Some(pack) => format!("{pack}.lane[{lane}] = {value};"),
                None => reduction.add(&value),
            });
        }
        self.close_lanes();
        for reduction in reductions {
            if let Some(pack) = reduction.pack() {
                self.line(&reduction.add(&pack));
            }
        }
        for (at, access) in written.iter().enumerate() {
            let place = place(access, |dim| self.base(dim));
            self.line(&format!("write(p{} + {place}, w{at});", access.param));
        }
    }

    /// Reads all that is cached for the elements whose indices were declared.
    pub fn fill(&mut self, turn: &str) {
        for (at, access) in self.cached.clone().iter().enumerate() {
            if self.vector.width > 1 && self.vector.walk(access) == Walk::Packed {
                self.line(&format!("c{at}[{turn}] = {};", self.pack(access)));
                continue;
            }
            self.open_lanes();
            let place = place(access, |dim| format!("i{dim}"));
            self.line(&format!("{} = p{}[{place}];", self.kept(at, turn), access.param));
            self.close_lanes();
        }
    }

    /// Declares the variables of what is cached.
    pub fn declare_cached(&mut self, turns: i64) {
        for (at, access) in self.cached.clone().iter().enumerate() {
            let c = ctype(self.kernel.params[access.param as usize].dtype);
            let element =
                if self.vector.width > 1 { format!("Pack<{}, {c}>", self.vector.width) } else { c.to_owned() };
            self.line(&format!("{element} c{at}[{turns}];"));
        }
    }

    /// Begins what is done for each of the neighbours that a thread does at once.
    fn open_lanes(&mut self) {
        if self.vector.width > 1 {
            let last = self.kernel.dims.len() - 1;
            self.line("#pragma unroll");
            self.open(&format!("for (int k = 0; k < {}; k++)", self.vector.width));
            self.line(&format!("const {} i{last} = b{last} + k;", self.index.ctype()));
        }
    }

    fn close_lanes(&mut self) {
        if self.vector.width > 1 {
            self.close();
        }
    }

    /// The index of the first of the neighbours.
    fn base(&self, dim: usize) -> String {
        let neighbours = self.vector.width > 1 && dim + 1 == self.kernel.dims.len();
        format!("{}{dim}", if neighbours { 'b' } else { 'i' })
    }

    /// Neighbours in memory.
    fn pack(&self, access: &Access) -> String {
        let place = place(access, |dim| self.base(dim));
        format!("read<{}>(p{} + {place})", self.vector.width, access.param)
    }

    /// An element of what is cached.
    fn kept(&self, at: usize, turn: &str) -> String {
        let lane = if self.vector.width > 1 { ".lane[k]" } else { "" };
        format!("c{at}[{turn}]{lane}")
    }

    /// An element that an instruction reads. What is read on a condition is read where it is used.
    fn element(&self, inst: &Inst, access: &Access, read: &[Access], turn: &str) -> String {
        if !matches!(inst.op, Op::Load(_)) {
            return self.direct(access);
        }
        if let Some(at) = self.cached.iter().position(|cached| cached == access) {
            return self.whole(access, self.kept(at, turn));
        }
        match read.iter().position(|packed| packed == access) {
            Some(at) => self.whole(access, format!("m{at}.lane[k]")),
            None => self.direct(access),
        }
    }

    fn direct(&self, access: &Access) -> String {
        let place = place(access, |dim| format!("i{dim}"));
        self.whole(access, format!("p{}[{place}]", access.param))
    }

    /// Bools in memory may be any bytes.
    fn whole(&self, access: &Access, element: String) -> String {
        let is_bool = self.kernel.params[access.param as usize].dtype == DType::Bool;
        if is_bool { format!("(uchar)({element} != 0)") } else { element }
    }

    /// Of elements of the row that are written to one place, the last one stays.
    fn store(&mut self, access: &Access, value: &str) {
        let row = self.kernel.outer..self.kernel.dims.len();
        let dims = row.filter(|dim| access.strides[*dim] == Extent::Const(0));
        let last = dims.map(|dim| format!("i{dim} == {} - 1", extent(self.kernel.dims[dim])));
        let last = last.collect::<Vec<_>>().join(" && ");
        let condition = if last.is_empty() { String::new() } else { format!("if ({last}) ") };
        let place = place(access, |dim| format!("i{dim}"));
        self.line(&format!("{condition}p{}[{place}] = {value};", access.param));
    }
}
