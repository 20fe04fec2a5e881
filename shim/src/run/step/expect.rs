//! The check that torch returned what the rules predicted: a plan reads the memory of a call's results by sizes and strides
//! that were known before the call ran.

use super::extents::{Extents, Interner, layout};
use crate::run::step::ops::OpError;
use crate::run::step::regs::Regs;
use crate::torch::{Facts, Form, Handle, Torch};
use flambeau_ir::dim::Dim;
use flambeau_ir::kernel::DType;
use flambeau_ir::tensor::Device;
use std::rc::Rc;

/// Metadata that a register's tensor must have.
pub struct Expected {
    /// The register.
    pub reg: usize,
    /// What its tensor must be.
    pub metadata: Rc<Metadata>,
    /// The call that made it, for messages.
    pub made_by: String,
}

/// What plans rely on of a tensor.
pub struct Metadata {
    dtype: DType,
    device: Device,
    /// In elements.
    sizes: Rc<Extents>,
    strides: Rc<Extents>,
    /// All of that as words of torch's own structure, where it is the same on every call.
    form: Option<Form>,
}

impl Metadata {
    /// Ready to compare. Sizes and strides are in elements.
    pub fn new(
        torch: &Torch,
        interner: &mut Interner,
        (dtype, device): (DType, Device),
        sizes: &[Dim],
        strides: &[Dim],
    ) -> Metadata {
        let (sizes, strides) = (interner.extents(sizes), interner.extents(strides));
        let form = form(torch, dtype, device, &sizes, &strides);
        Metadata { dtype, device, sizes, strides, form }
    }
}

impl Expected {
    /// Compares with the tensor in the register.
    #[inline]
    pub fn check(&self, regs: &Regs<'_>, symbols: &[i64]) -> Result<(), OpError> {
        let handle = regs.handle(self.reg)?;
        // SAFETY: a live handle.
        if self.metadata.form.as_ref().is_some_and(|form| unsafe { form.fits(handle) }) {
            return Ok(());
        }
        self.check_each(regs.torch, handle, symbols)
    }

    fn check_each(&self, torch: &Torch, handle: Handle, symbols: &[i64]) -> Result<(), OpError> {
        let wanted = &*self.metadata;
        // SAFETY: a live handle; only strided tensors are asked for strides.
        let (dtype, device) = unsafe { (torch.dtype(handle), torch.device(handle)) };
        let plain = dtype == wanted.dtype as i32
            && device.kind == wanted.device.kind
            && (device.is_host() || wanted.device.index < 0 || device.index == wanted.device.index);
        // SAFETY: as above.
        let (sizes, strides) = unsafe { (torch.sizes(handle), torch.strides(handle)) };
        let mut rooms = Default::default();
        let (expected, steps) = layout(&wanted.sizes, &wanted.strides, symbols, &mut rooms)?;
        if plain && same_places(expected, steps, sizes, strides) {
            return Ok(());
        }
        Err(OpError::Unexpected(self.describe(expected, steps, (dtype, sizes, strides))))
    }

    fn describe(&self, sizes: &[i64], strides: &[i64], found: (i32, &[i64], &[i64])) -> String {
        let dtype = DType::from_torch(found.0 as u8).map_or_else(|| format!("type {}", found.0), |d| format!("{d:?}"));
        format!(
            "{} returned {dtype} sizes {:?} strides {:?} where flambeau predicted {:?} sizes {sizes:?} strides {strides:?}",
            self.made_by, found.1, found.2, self.metadata.dtype,
        )
    }
}

/// The words of a tensor whose elements lie at these places.
fn form(torch: &Torch, dtype: DType, device: Device, sizes: &Extents, strides: &Extents) -> Option<Form> {
    let (Extents::Fixed(sizes), Extents::Fixed(strides)) = (sizes, strides) else { return None };
    let counts = |(size, stride): (&i64, &i64)| (*size != 1 && !sizes.contains(&0)).then_some(*stride);
    let strides: Vec<Option<i64>> = sizes.iter().zip(strides).map(counts).collect();
    let sizes: Vec<Option<i64>> = sizes.iter().copied().map(Some).collect();
    torch.form(&Facts { sizes: &sizes, strides: &strides, dtype, device, keys: None })
}

/// Whether every element lies at the same distance from the first. Strides of dimensions with one element say nothing, nor
/// do those of a tensor without elements.
fn same_places(sizes: &[i64], strides: &[i64], found_sizes: &[i64], found_strides: &[i64]) -> bool {
    // Word by word: for so few, a call of `memcmp` takes longer.
    let same = |a: &[i64], b: &[i64]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a == b);
    same(sizes, found_sizes)
        && (same(strides, found_strides)
            || sizes.contains(&0)
            || sizes.iter().zip(strides.iter().zip(found_strides)).all(|(size, (a, b))| *size == 1 || a == b))
}

#[cfg(test)]
mod tests {
    use super::same_places;

    #[test]
    fn strides_count_where_there_is_more_than_one_element() {
        assert!(same_places(&[2, 3], &[3, 1], &[2, 3], &[3, 1]));
        assert!(!same_places(&[2, 3], &[3, 1], &[2, 3], &[1, 2]));
        assert!(!same_places(&[2, 3], &[3, 1], &[3, 2], &[3, 1]));
        assert!(!same_places(&[2, 3], &[3, 1], &[2], &[3]));
        assert!(same_places(&[2, 1], &[1, 1], &[2, 1], &[1, 7]));
        assert!(same_places(&[0, 3], &[3, 1], &[0, 3], &[1, 1]));
    }
}
