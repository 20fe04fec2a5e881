//! Sizes and strides of a plan, evaluated only where they change from call to call.

use crate::guard::Expr;
use flambeau_ir::dim::Dim;
use smallvec::SmallVec;

/// Sizes or strides.
pub enum Extents {
    /// The same on every call.
    Fixed(Box<[i64]>),
    /// Some depend on symbols.
    Dynamic(Box<[Expr]>),
}

/// Sizes or strides of one call.
pub type Evaluated = SmallVec<[i64; 6]>;

impl Extents {
    /// Ready to be evaluated.
    pub fn new(dims: &[Dim]) -> Extents {
        match dims.iter().map(Dim::as_const).collect::<Option<Vec<_>>>() {
            Some(fixed) => Extents::Fixed(fixed.into()),
            None => Extents::Dynamic(dims.iter().map(Expr::from).collect()),
        }
    }

    /// The values for these symbols.
    pub fn eval(&self, symbols: &[i64]) -> Result<Evaluated, String> {
        match self {
            Extents::Fixed(values) => Ok(Evaluated::from_slice(values)),
            Extents::Dynamic(dims) => dims.iter().map(|d| size(d, symbols)).collect(),
        }
    }
}

/// The value of one size.
pub fn size(dim: &Expr, symbols: &[i64]) -> Result<i64, String> {
    dim.eval(symbols).ok_or_else(|| "a size of the plan has no value".to_owned())
}
