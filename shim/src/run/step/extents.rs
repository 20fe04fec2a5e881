//! Sizes and strides of a plan, evaluated only where they change from call to call.

use crate::guard::Expr;
use flambeau_ir::dim::Dim;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::rc::Rc;

/// Sizes or strides.
pub enum Extents {
    /// The same on every call.
    Fixed(Box<[i64]>),
    /// Some depend on symbols.
    Dynamic(Box<[Expr]>),
}

/// The sizes and strides of a plan. Equal ones are kept once: many steps have the same, and few fit into the processor's
/// nearest cache.
#[derive(Default)]
pub struct Interner(HashMap<Vec<Dim>, Rc<Extents>>);

impl Interner {
    /// Ready to be evaluated.
    pub fn extents(&mut self, dims: &[Dim]) -> Rc<Extents> {
        if let Some(known) = self.0.get(dims) {
            return known.clone();
        }
        let made = Rc::new(Extents::new(dims));
        self.0.insert(dims.to_vec(), made.clone());
        made
    }
}

/// Where the values of one call are put if they are its own.
pub type Room = SmallVec<[i64; 6]>;

impl Extents {
    fn new(dims: &[Dim]) -> Extents {
        match dims.iter().map(Dim::as_const).collect::<Option<Vec<_>>>() {
            Some(fixed) => Extents::Fixed(fixed.into()),
            None => Extents::Dynamic(dims.iter().map(Expr::from).collect()),
        }
    }

    /// The values for these symbols.
    #[inline]
    pub fn eval<'a>(&'a self, symbols: &[i64], room: &'a mut Room) -> Result<&'a [i64], String> {
        match self {
            Extents::Fixed(values) => Ok(values),
            Extents::Dynamic(dims) => {
                *room = dims.iter().map(|dim| size(dim, symbols)).collect::<Result<_, String>>()?;
                Ok(room)
            }
        }
    }
}

/// Sizes and strides of one call.
#[inline]
pub fn layout<'a>(
    sizes: &'a Extents,
    strides: &'a Extents,
    symbols: &[i64],
    [first, second]: &'a mut [Room; 2],
) -> Result<(&'a [i64], &'a [i64]), String> {
    Ok((sizes.eval(symbols, first)?, strides.eval(symbols, second)?))
}

/// The value of one size.
pub fn size(dim: &Expr, symbols: &[i64]) -> Result<i64, String> {
    dim.eval(symbols).ok_or_else(|| "a size of the plan has no value".to_owned())
}
