//! The launch half: walks through kernels, one scalar at a time. Runs in the user's process, and must never end it.
//!
//! To run code on a device instead, hand the artifact to its driver in `load` and start it in `launch`.
#![expect(unsafe_code, reason = "kernels read and write memory at addresses that they are given")]

use flambeau_plugin::abi::Device;
use flambeau_plugin::export::{LaunchBackend, backend_name};
use flambeau_plugin::kernel::{Access, DType, Extent, Inst, Kernel, Op, Scope, Stage, ValueId};
use flambeau_plugin::reference::{self, Accumulator, capabilities};
use flambeau_plugin::{Description, export_launch_half};
use std::collections::HashMap;
use std::ffi::c_void;

/// See the other half.
const MAGIC: &str = concat!(env!("CARGO_PKG_VERSION"), " interpreted");

/// See the other half.
const TARGET: &str = "interpreter";

struct Backend;

impl LaunchBackend for Backend {
    type Executable = Kernel;

    fn describe() -> Result<Description, String> {
        let name = backend_name(env!("CARGO_PKG_NAME"));
        // A missing driver is an error here, in one sentence.
        let devices = vec![Device::new("interpreter", &[TARGET])];
        Ok(Description::of_launch_half(&name, env!("CARGO_PKG_VERSION"), devices, &capabilities()))
    }

    fn load(artifact: &[u8], _device: u32) -> Result<Kernel, String> {
        match postcard::take_from_bytes(artifact) {
            Ok(((MAGIC, kernel), [])) => capabilities().check(&kernel).map(|()| kernel),
            _ => Err("these bytes are no artifact of this back end".to_owned()),
        }
    }

    unsafe fn launch(
        kernel: &Kernel,
        buffers: *const *mut c_void,
        scalars: *const i64,
        _stream: *mut c_void,
        _threads: u32,
    ) -> i32 {
        let index = vec![0; kernel.dims.len()];
        let mut walk = Walk { kernel, buffers, scalars, index, values: HashMap::new() };
        walk.nest(0..kernel.outer, &mut |walk| kernel.stages.iter().for_each(|stage| walk.stage(stage)));
        0
    }

    fn explain(status: i32) -> String {
        format!("there is no status {status}")
    }
}

export_launch_half!(Backend);

/// A launch on its way. The caller of `launch` vouches for the pointers.
struct Walk<'a> {
    kernel: &'a Kernel,
    buffers: *const *mut c_void,
    scalars: *const i64,
    /// Where it is, one number per dimension of the kernel.
    index: Vec<i64>,
    /// What was computed at this point: the type of each value and its bits.
    values: HashMap<ValueId, (DType, u64)>,
}

impl Walk<'_> {
    /// Runs `body` at every point of these dimensions, and leaves the others where they are.
    fn nest(&mut self, mut dims: std::ops::Range<usize>, body: &mut dyn FnMut(&mut Self)) {
        let Some(dim) = dims.next() else { return body(self) };
        for at in 0..self.extent(self.kernel.dims[dim]) {
            self.index[dim] = at;
            self.nest(dims.clone(), body);
        }
        self.index[dim] = 0;
    }

    fn stage(&mut self, stage: &Stage) {
        let mut reduced: Vec<_> = stage.reduces.iter().map(|r| Accumulator::new(r.op, r.dtype)).collect();
        let dims = match stage.scope {
            Scope::Outer => 0..0,
            Scope::Row => self.kernel.outer..self.kernel.dims.len(),
        };
        self.nest(dims, &mut |walk| {
            for inst in &stage.insts {
                let value = walk.value(inst);
                walk.values.insert(inst.id, (inst.dtype, value));
            }
            for store in &stage.stores {
                walk.write(&store.access, walk.bits(store.value));
            }
            for (reduce, so_far) in stage.reduces.iter().zip(&mut reduced) {
                so_far.add(walk.bits(reduce.value));
            }
        });
        for (reduce, total) in stage.reduces.iter().zip(reduced) {
            self.values.insert(reduce.id, (reduce.dtype, total.value()));
        }
    }

    fn value(&self, inst: &Inst) -> u64 {
        match &inst.op {
            Op::Load(access) => self.read(access),
            Op::LoadIf { cond, access, .. } if self.bits(*cond) != 0 => self.read(access),
            Op::LoadIf { other, .. } => self.bits(*other),
            Op::Const(bits) => reference::constant(inst.dtype, *bits),
            Op::Scalar(at) => reference::scalar(inst.dtype, self.extent(Extent::Scalar(*at))),
            Op::Index(dim) => self.index[*dim as usize] as u64,
            Op::Unary(op, a) => reference::unary(*op, self.dtype(*a), self.bits(*a)),
            Op::Binary(op, a, b) => reference::binary(*op, self.dtype(*a), self.bits(*a), self.bits(*b)),
            Op::Select(cond, a, b) => self.bits(if self.bits(*cond) != 0 { *a } else { *b }),
            Op::Cast(a) => reference::cast(self.dtype(*a), inst.dtype, self.bits(*a)),
        }
    }

    fn dtype(&self, value: ValueId) -> DType {
        self.values[&value].0
    }

    fn bits(&self, value: ValueId) -> u64 {
        self.values[&value].1
    }

    fn extent(&self, extent: Extent) -> i64 {
        match extent {
            Extent::Const(value) => value,
            // SAFETY: the caller of `launch` passes as many as the kernel has.
            Extent::Scalar(at) => unsafe { *self.scalars.add(at as usize) },
        }
    }

    /// The element's address and its size in bytes.
    fn element(&self, access: &Access) -> (*mut u8, usize) {
        let size = self.kernel.params[access.param as usize].dtype.size();
        let steps = access.strides.iter().zip(&self.index).map(|(stride, at)| self.extent(*stride) * at);
        let elements = self.extent(access.offset) + steps.sum::<i64>();
        // SAFETY: the caller of `launch` passes a pointer per parameter.
        let start = unsafe { *self.buffers.add(access.param as usize) };
        // SAFETY: each is good for what the kernel reaches.
        (unsafe { start.cast::<u8>().offset(elements as isize * size as isize) }, size)
    }

    fn read(&self, access: &Access) -> u64 {
        let (address, size) = self.element(access);
        let mut bytes = [0; 8];
        // SAFETY: see `element`; no type of a parameter is larger than this.
        unsafe { address.copy_to_nonoverlapping(bytes.as_mut_ptr(), size) };
        u64::from_le_bytes(bytes)
    }

    fn write(&self, access: &Access, bits: u64) {
        let (address, size) = self.element(access);
        // SAFETY: see `read`.
        unsafe { address.copy_from_nonoverlapping(bits.to_le_bytes().as_ptr(), size) };
    }
}
