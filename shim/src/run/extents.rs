//! Sizes and strides of a plan, evaluated only where they change from call to call.

use crate::guard::Expr;
use flambeau_ir::dim::Dim;
use smallvec::SmallVec;
use std::ops::Deref;

/// Sizes or strides.
pub enum Extents {
    /// The same on every call.
    Fixed(Box<[i64]>),
    /// Some depend on symbols.
    Dynamic(Box<[Expr]>),
}

/// Sizes or strides of one call.
pub enum Evaluated<'a> {
    /// As on every call.
    Fixed(&'a [i64]),
    /// Of this one.
    Computed(SmallVec<[i64; 6]>),
}

impl Deref for Evaluated<'_> {
    type Target = [i64];

    fn deref(&self) -> &[i64] {
        match self {
            Evaluated::Fixed(values) => values,
            Evaluated::Computed(values) => values,
        }
    }
}

impl Extents {
    /// Ready to be evaluated.
    pub fn new(dims: &[Dim]) -> Extents {
        match dims.iter().map(Dim::as_const).collect::<Option<Vec<_>>>() {
            Some(fixed) => Extents::Fixed(fixed.into()),
            None => Extents::Dynamic(dims.iter().map(Expr::from).collect()),
        }
    }

    /// The values for these symbols.
    pub fn eval(&self, symbols: &[i64]) -> Result<Evaluated<'_>, String> {
        match self {
            Extents::Fixed(values) => Ok(Evaluated::Fixed(values)),
            Extents::Dynamic(dims) => {
                Ok(Evaluated::Computed(dims.iter().map(|d| size(d, symbols)).collect::<Result<_, String>>()?))
            }
        }
    }
}

/// The value of one size.
pub fn size(dim: &Expr, symbols: &[i64]) -> Result<i64, String> {
    dim.eval(symbols).ok_or_else(|| "a size of the plan has no value".to_owned())
}
