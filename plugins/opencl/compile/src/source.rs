//! A kernel in OpenCL C: a function that does some units of work, which are points of the first dimensions. What operations
//! become is in `flambeau_c_text`.

use flambeau_c_text::{Dialect, OPERATIONS, Text, cast, ctype, name, value};
use flambeau_opencl_device::{Device, ENTRY};
use flambeau_plugin::kernel::{Access, DType, Extent, Kernel, Role, Scope, Stage, ValueId};
use flambeau_plugin::simplify::is_free;
use std::collections::BTreeMap;

const PRELUDE: &str = include_str!("prelude.cl");

/// The program, for a device, of a kernel whose units are the points of `dims[..split]`.
pub fn program(kernel: &Kernel, split: usize, device: &Device) -> String {
    let (rounds_f32, own_memory) = (device.rounds_f32, device.has_own_memory());
    let free = is_free(kernel);
    let mut writer = Writer { kernel, free, types: BTreeMap::new(), text: Text::default() };
    if rounds_f32 {
        writer.line("#define ROUNDS_F32");
    }
    writer.text.text.extend([PRELUDE, OPERATIONS, "\n"]);
    writer.open(&format!("__kernel void {ENTRY}({})", parameters(kernel, own_memory)));
    if own_memory {
        // Element 0 need not be where the buffer begins.
        for i in 0..kernel.params.len() {
            writer.line(&format!("p{i} += f{i};"));
        }
    }
    writer.line("long at = get_global_id(0) * chunk;");
    writer.line("const long end = min(at + chunk, units);");
    writer.units(split);
    writer.close();
    writer.text.text
}

fn parameters(kernel: &Kernel, own_memory: bool) -> String {
    let buffers = kernel.params.iter().enumerate().map(|(i, param)| {
        let read_only = if param.role == Role::In { "const " } else { "" };
        format!("__global {read_only}{} *restrict p{i}", ctype(param.dtype))
    });
    let scalars = (0..kernel.scalars).map(|i| format!("const long s{i}"));
    let firsts = (0..kernel.params.len()).filter(|_| own_memory).map(|i| format!("const long f{i}"));
    let shares = ["const long units", "const long chunk"].map(str::to_owned);
    buffers.chain(scalars).chain(firsts).chain(shares).collect::<Vec<_>>().join(", ")
}

fn extent(extent: Extent) -> String {
    match extent {
        Extent::Const(size) => format!("{size}L"),
        Extent::Scalar(at) => format!("s{at}"),
    }
}

struct Writer<'a> {
    kernel: &'a Kernel,
    /// Whether a unit of work is one point of all dimensions.
    free: bool,
    /// Types of the values emitted so far.
    types: BTreeMap<ValueId, DType>,
    text: Text,
}

impl Writer<'_> {
    fn line(&mut self, line: &str) {
        self.text.line(line);
    }

    fn open(&mut self, line: &str) {
        self.text.open(line);
    }

    fn close(&mut self) {
        self.text.close();
    }

    /// All units of this work-item. Where they are points of the last dimension too, that is a loop of its own, over as many of
    /// them as come one after the other.
    fn units(&mut self, split: usize) {
        let kernel = self.kernel;
        let dims = &kernel.dims;
        let innermost = split.checked_sub(1).filter(|_| split == dims.len());
        let index = |dim| if innermost == Some(dim) { "first".to_owned() } else { format!("i{dim}") };
        self.open("while (at < end)");
        let mut rest = "at".to_owned();
        for dim in (1..split).rev() {
            let (size, index) = (extent(dims[dim]), index(dim));
            self.line(&format!("const long {index} = {rest} % {size}, r{dim} = {rest} / {size};"));
            rest = format!("r{dim}");
        }
        if split > 0 {
            self.line(&format!("const long {} = {rest};", index(0)));
        }
        match innermost {
            Some(dim) => {
                self.line(&format!("const long last = min({}, first + (end - at));", extent(dims[dim])));
                self.open(&format!("for (long i{dim} = first; i{dim} < last; i{dim}++)"));
                self.stages();
                self.close();
                self.line("at += last - first;");
            }
            None => {
                self.stages();
                self.line("at++;");
            }
        }
        self.close();
    }

    /// One unit.
    fn stages(&mut self) {
        for stage in &self.kernel.stages {
            self.stage(stage);
        }
    }

    fn stage(&mut self, stage: &Stage) {
        if stage.scope == Scope::Outer || self.free {
            return self.body(stage);
        }
        for reduce in &stage.reduces {
            let (kept, start) = Dialect::OpenCl.accumulator(reduce.op, reduce.dtype);
            self.line(&format!("{} a{} = {start};", ctype(kept), reduce.id.0));
        }
        let row = self.kernel.outer..self.kernel.dims.len();
        if row.is_empty() {
            self.open("");
        }
        for dim in row.clone() {
            let size = extent(self.kernel.dims[dim]);
            self.open(&format!("for (long i{dim} = 0; i{dim} < {size}; i{dim}++)"));
        }
        self.body(stage);
        for reduce in &stage.reduces {
            let kept = format!("a{}", reduce.id.0);
            let step = Dialect::OpenCl.step(reduce.op, reduce.dtype, &name(reduce.value), &kept);
            self.line(&format!("{kept} = {step};"));
        }
        for _ in 0..row.len().max(1) {
            self.close();
        }
        for reduce in &stage.reduces {
            let (kept, _) = Dialect::OpenCl.accumulator(reduce.op, reduce.dtype);
            let total = cast(kept, reduce.dtype, &format!("a{}", reduce.id.0));
            self.define(reduce.id, reduce.dtype, &total);
        }
    }

    fn body(&mut self, stage: &Stage) {
        for inst in &stage.insts {
            let value = value(Dialect::OpenCl, inst, &self.types, |access| self.read(access));
            self.define(inst.id, inst.dtype, &value);
        }
        for store in &stage.stores {
            let place = self.place(&store.access);
            self.line(&format!("{place} = {};", name(store.value)));
        }
    }

    fn define(&mut self, id: ValueId, dtype: DType, value: &str) {
        self.types.insert(id, dtype);
        self.line(&format!("const {} {} = {value};", ctype(dtype), name(id)));
    }

    /// Bools in memory may be any bytes.
    fn read(&self, access: &Access) -> String {
        let place = self.place(access);
        let is_bool = self.kernel.params[access.param as usize].dtype == DType::Bool;
        if is_bool { format!("(uchar)({place} != 0)") } else { place }
    }

    fn place(&self, access: &Access) -> String {
        let steps = access.strides.iter().enumerate().filter(|(_, stride)| **stride != Extent::Const(0));
        let steps = steps.map(|(dim, stride)| match stride {
            Extent::Const(1) => format!("i{dim}"),
            other => format!("{} * i{dim}", extent(*other)),
        });
        let offset = (access.offset != Extent::Const(0)).then(|| extent(access.offset));
        let sum = offset.into_iter().chain(steps).collect::<Vec<_>>().join(" + ");
        format!("p{}[{}]", access.param, if sum.is_empty() { "0" } else { &sum })
    }
}
