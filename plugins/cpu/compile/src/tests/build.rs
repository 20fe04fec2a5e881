//! Short ways to write kernels.

use flambeau_plugin::kernel::{
    Access, DType, Extent, Inst, Kernel, Op, Param, Reduce, ReduceOp, Role, Scope, Stage, Store, ValueId,
};

/// A kernel under construction.
pub struct Builder {
    pub kernel: Kernel,
    next: u32,
}

pub fn consts(values: &[i64]) -> Vec<Extent> {
    values.iter().map(|v| Extent::Const(*v)).collect()
}

impl Builder {
    pub fn new(name: &str, dims: Vec<Extent>, outer: usize) -> Builder {
        let kernel = Kernel { name: name.to_owned(), params: vec![], scalars: 0, dims, outer, stages: vec![] };
        Builder { kernel, next: 0 }
    }

    pub fn param(&mut self, dtype: DType, role: Role) -> u32 {
        self.kernel.params.push(Param { dtype, role });
        self.kernel.params.len() as u32 - 1
    }

    pub fn stage(&mut self, scope: Scope) -> &mut Self {
        self.kernel.stages.push(Stage { scope, insts: vec![], stores: vec![], reduces: vec![] });
        self
    }

    fn last(&mut self) -> &mut Stage {
        self.kernel.stages.last_mut().unwrap()
    }

    fn id(&mut self) -> ValueId {
        self.next += 1;
        ValueId(self.next - 1)
    }

    pub fn inst(&mut self, dtype: DType, op: Op) -> ValueId {
        let id = self.id();
        self.last().insts.push(Inst { id, dtype, op });
        id
    }

    pub fn f32(&mut self, value: f32) -> ValueId {
        self.inst(DType::F32, Op::Const(u64::from(value.to_bits())))
    }

    pub fn load(&mut self, param: u32, strides: &[i64]) -> ValueId {
        self.load_at(param, Extent::Const(0), consts(strides))
    }

    pub fn load_at(&mut self, param: u32, offset: Extent, strides: Vec<Extent>) -> ValueId {
        let dtype = self.kernel.params[param as usize].dtype;
        self.inst(dtype, Op::Load(Access { param, offset, strides }))
    }

    pub fn store(&mut self, param: u32, strides: &[i64], value: ValueId) {
        self.store_at(param, Extent::Const(0), consts(strides), value);
    }

    pub fn store_at(&mut self, param: u32, offset: Extent, strides: Vec<Extent>, value: ValueId) {
        self.last().stores.push(Store { access: Access { param, offset, strides }, value });
    }

    pub fn reduce(&mut self, op: ReduceOp, dtype: DType, value: ValueId) -> ValueId {
        let id = self.id();
        self.last().reduces.push(Reduce { id, dtype, op, value });
        id
    }
}

/// Numbers that look random and are the same every time.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Uniform in [-1, 1).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / f64::exp2(52.0) - 1.0
    }

    pub fn f32s(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| (self.unit() * 4.0) as f32).collect()
    }
}
