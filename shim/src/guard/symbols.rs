//! Symbols of one call, and expressions over them made quick to evaluate.

use super::Slot;
use crate::python::raw::Raw;
use crate::torch::Torch;
use flambeau_ir::dim::Dim;
use flambeau_ir::plan::{Symbol, SymbolOf};
use flambeau_ir::source::SourceId;
use pyo3::ffi;
use smallvec::SmallVec;

/// Values of symbols, by id.
pub type Bound = SmallVec<[i64; 8]>;

/// Where symbols come from, and their ranges.
pub struct Symbols {
    /// With the slot of the value that each is read from.
    defined: Vec<(Symbol, usize)>,
    /// One more than the largest id.
    count: usize,
}

impl Symbols {
    /// From their definitions. `slot` gives the place of a source's value.
    pub fn new(defined: &[Symbol], slot: &mut dyn FnMut(SourceId) -> usize) -> Self {
        let count = defined.iter().map(|s| s.id.0 as usize + 1).max().unwrap_or(0);
        Symbols { defined: defined.iter().map(|s| (s.clone(), slot(s.source))).collect(), count }
    }

    /// Fills in the value of each symbol by id; else the index of one that cannot be read or is out of its range.
    pub fn bind(&self, torch: &Torch, slots: &[Slot], bound: &mut Bound) -> Result<(), usize> {
        bound.clear();
        bound.resize(self.count, 0);
        for (index, (symbol, slot)) in self.defined.iter().enumerate() {
            // SAFETY: a live object or null, GIL held.
            let found = unsafe { read(torch, slots[*slot].object, symbol.of) };
            match found {
                Some(v) if v >= symbol.min && v <= symbol.max => bound[symbol.id.0 as usize] = v,
                _ => return Err(index),
            }
        }
        Ok(())
    }
}

/// What a symbol is read from.
unsafe fn read(torch: &Torch, object: Raw, of: SymbolOf) -> Option<i64> {
    // SAFETY: each arm checks the kind of object.
    unsafe {
        if object.is_null() {
            return None;
        }
        match of {
            SymbolOf::Int => {
                if ffi::PyLong_CheckExact(object) == 0 {
                    return None;
                }
                let mut overflow = 0;
                let value = ffi::PyLong_AsLongLongAndOverflow(object, &raw mut overflow);
                (overflow == 0).then_some(value)
            }
            SymbolOf::Size(d) if torch.is_tensor(object) => torch.sizes(torch.handle(object)).get(d as usize).copied(),
            SymbolOf::Stride(d) if torch.is_tensor(object) => {
                torch.strides(torch.handle(object)).get(d as usize).copied()
            }
            _ => None,
        }
    }
}

/// A dim that is evaluated on every call.
#[derive(Clone, Debug)]
pub enum Expr {
    /// Known.
    Const(i64),
    /// One symbol.
    Symbol(usize),
    /// Anything else.
    Dim(Dim),
}

impl From<&Dim> for Expr {
    fn from(dim: &Dim) -> Self {
        let Dim::Expr(poly) = dim else {
            return Expr::Const(dim.as_const().unwrap_or_default());
        };
        let mut terms = poly.terms();
        if let (Some(([flambeau_ir::dim::Atom::Sym(s)], 1)), None) = (terms.next(), terms.next()) {
            return Expr::Symbol(s.0 as usize);
        }
        Expr::Dim(dim.clone())
    }
}

impl Expr {
    /// The value under these symbols; division by zero fails.
    pub fn eval(&self, symbols: &[i64]) -> Option<i64> {
        match self {
            Expr::Const(c) => Some(*c),
            Expr::Symbol(s) => symbols.get(*s).copied(),
            Expr::Dim(d) => d.eval(&|s| symbols.get(s.0 as usize).copied().unwrap_or_default()),
        }
    }
}
