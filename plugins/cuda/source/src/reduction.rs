//! What the threads of a row find, each of its own elements, and bring together: how it is kept and brought together in C.

use flambeau_c_text::{Dialect, ctype};
use flambeau_plugin::kernel::{DType, Reduce, ReduceOp, ValueId};

/// A reduction over a row.
#[derive(Clone, Debug)]
pub struct Reduction {
    /// The value that it defines.
    pub id: ValueId,
    /// Of that value, and of elements.
    pub dtype: DType,
    /// The element's value.
    pub value: ValueId,
    /// How it is found.
    pub kind: Kind,
}

/// How a reduction is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// As the kernel says, one element after the other.
    Plain(ReduceOp),
    /// Squared deviations from a mean that is still being computed: `Spread` of `joint.cuh`.
    Spread,
    /// Exponentials of what elements are above a number that is not known yet: `Exponentials` of `joint.cuh`.
    Exponentials,
}

impl Reduction {
    /// As the kernel has it.
    pub fn plain(reduce: &Reduce) -> Reduction {
        Reduction { id: reduce.id, dtype: reduce.dtype, value: reduce.value, kind: Kind::Plain(reduce.op) }
    }

    /// The variable that it is kept in.
    pub fn kept_in(&self) -> String {
        format!("a{}", self.id.0)
    }

    /// The type of that variable.
    pub fn kept_type(&self) -> String {
        match self.kind {
            Kind::Plain(op) => ctype(Dialect::Cuda.accumulator(op, self.dtype).0).to_owned(),
            Kind::Spread => format!("Spread<{}>", ctype(self.dtype)),
            Kind::Exponentials => format!("Exponentials<{}>", ctype(self.dtype)),
        }
    }

    /// Its value over no elements.
    pub fn start(&self) -> String {
        match self.kind {
            Kind::Plain(op) => Dialect::Cuda.accumulator(op, self.dtype).1,
            Kind::Spread => "{}".to_owned(),
            Kind::Exponentials => format!("{{{}}}", Dialect::Cuda.accumulator(ReduceOp::Max, self.dtype).1),
        }
    }

    /// How many numbers of up to eight bytes it takes to keep it.
    pub fn numbers(&self) -> u64 {
        match self.kind {
            Kind::Plain(_) => 1,
            Kind::Spread => self.dtype.size() as u64 / 2,
            Kind::Exponentials => self.dtype.size() as u64 / 4,
        }
    }

    /// Brings to it what was found of other elements.
    pub fn add(&self, other: &str) -> String {
        let kept = self.kept_in();
        match self.kind {
            Kind::Plain(op) => format!("{kept} = {};", Dialect::Cuda.step(op, self.dtype, other, &kept)),
            Kind::Spread | Kind::Exponentials => format!("{kept} = with({kept}, {other});"),
        }
    }

    /// Whether threads that have found it of the same elements, brought together in other orders, may differ.
    pub fn may_differ(&self) -> bool {
        match self.kind {
            Kind::Plain(op) => matches!(op, ReduceOp::Max | ReduceOp::Min) && self.dtype.is_float(),
            Kind::Spread => true,
            Kind::Exponentials => false,
        }
    }

    /// The variable of the neighbours that a thread adds at once, if it does not add one after the other.
    pub fn pack(&self) -> Option<String> {
        (!matches!(self.kind, Kind::Plain(_))).then(|| format!("e{}", self.id.0))
    }
}
