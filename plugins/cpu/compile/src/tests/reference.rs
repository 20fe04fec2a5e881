//! The kernel IR's meaning, one scalar at a time, on buffers whose bounds are checked.

use flambeau_plugin::kernel::{Access, DType, Extent, Kernel, Op, Scope, Stage, ValueId};
pub use flambeau_plugin::reference::{Accumulator, binary, cast, constant, from_f64, from_i64, scalar, to_f64, unary};
use std::collections::HashMap;

/// Memory of one parameter, and where its element 0 lies.
#[derive(Clone, Debug)]
pub struct Buffer {
    pub dtype: DType,
    pub bytes: Vec<u8>,
}

impl Buffer {
    pub fn new(dtype: DType, bits: impl IntoIterator<Item = u64>) -> Buffer {
        let bytes = bits.into_iter().flat_map(|b| b.to_le_bytes()[..dtype.size()].to_vec()).collect();
        Buffer { dtype, bytes }
    }

    pub fn f32(values: &[f32]) -> Buffer {
        Buffer::new(DType::F32, values.iter().map(|v| u64::from(v.to_bits())))
    }

    pub fn zeros(dtype: DType, len: usize) -> Buffer {
        Buffer { dtype, bytes: vec![0; len * dtype.size()] }
    }

    pub fn len(&self) -> usize {
        self.bytes.len() / self.dtype.size()
    }

    pub fn get(&self, index: i64) -> u64 {
        let size = self.dtype.size();
        let at = usize::try_from(index).unwrap() * size;
        let mut bits = [0; 8];
        bits[..size].copy_from_slice(&self.bytes[at..at + size]);
        let bits = u64::from_le_bytes(bits);
        if self.dtype == DType::Bool { u64::from(bits != 0) } else { bits }
    }

    fn set(&mut self, index: i64, bits: u64) {
        let size = self.dtype.size();
        let at = usize::try_from(index).unwrap() * size;
        self.bytes[at..at + size].copy_from_slice(&bits.to_le_bytes()[..size]);
    }
}

struct Machine<'a> {
    kernel: &'a Kernel,
    scalars: &'a [i64],
    buffers: &'a mut [Buffer],
    values: HashMap<ValueId, (DType, u64)>,
    index: Vec<i64>,
}

/// Runs a kernel on buffers.
pub fn run(kernel: &Kernel, buffers: &mut [Buffer], scalars: &[i64]) {
    let index = vec![0; kernel.dims.len()];
    let mut machine = Machine { kernel, scalars, buffers, values: HashMap::new(), index };
    machine.nest(0, kernel.outer, &mut |m| m.outer_point());
}

impl Machine<'_> {
    fn extent(&self, extent: Extent) -> i64 {
        match extent {
            Extent::Const(c) => c,
            Extent::Scalar(i) => self.scalars[i as usize],
        }
    }

    fn nest(&mut self, dim: usize, end: usize, body: &mut dyn FnMut(&mut Self)) {
        if dim == end {
            return body(self);
        }
        for i in 0..self.extent(self.kernel.dims[dim]) {
            self.index[dim] = i;
            self.nest(dim + 1, end, body);
        }
        self.index[dim] = 0;
    }

    fn outer_point(&mut self) {
        for stage in &self.kernel.stages {
            match stage.scope {
                Scope::Outer => self.body(stage, &mut Vec::new()),
                Scope::Row => {
                    let mut sums: Vec<Accumulator> =
                        stage.reduces.iter().map(|r| Accumulator::new(r.op, r.dtype)).collect();
                    self.nest(self.kernel.outer, self.kernel.dims.len(), &mut |m| m.body(stage, &mut sums));
                    for (reduce, sum) in stage.reduces.iter().zip(sums) {
                        self.values.insert(reduce.id, (reduce.dtype, sum.value()));
                    }
                }
            }
        }
    }

    fn address(&self, access: &Access) -> i64 {
        let steps = access.strides.iter().zip(&self.index).map(|(s, i)| self.extent(*s) * i);
        self.extent(access.offset) + steps.sum::<i64>()
    }

    fn body(&mut self, stage: &Stage, sums: &mut Vec<Accumulator>) {
        for inst in &stage.insts {
            let of = |id: &ValueId| self.values[id];
            let bits = match &inst.op {
                Op::Load(access) => self.buffers[access.param as usize].get(self.address(access)),
                Op::LoadIf { cond, access, other } => {
                    if of(cond).1 != 0 {
                        self.buffers[access.param as usize].get(self.address(access))
                    } else {
                        of(other).1
                    }
                }
                Op::Const(bits) => constant(inst.dtype, *bits),
                Op::Scalar(i) => scalar(inst.dtype, self.scalars[*i as usize]),
                Op::Index(d) => self.index[*d as usize] as u64,
                Op::Unary(op, a) => unary(*op, of(a).0, of(a).1),
                Op::Binary(op, a, b) => binary(*op, of(a).0, of(a).1, of(b).1),
                Op::Select(c, a, b) => {
                    if of(c).1 != 0 {
                        of(a).1
                    } else {
                        of(b).1
                    }
                }
                Op::Cast(a) => cast(of(a).0, inst.dtype, of(a).1),
            };
            self.values.insert(inst.id, (inst.dtype, bits));
        }
        for store in &stage.stores {
            let address = self.address(&store.access);
            let bits = self.values[&store.value].1;
            self.buffers[store.access.param as usize].set(address, bits);
        }
        for (reduce, sum) in stage.reduces.iter().zip(sums) {
            sum.add(self.values[&reduce.value].1);
        }
    }
}
