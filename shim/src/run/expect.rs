//! The check that torch returned what the rules predicted: a plan reads the memory of a call's results by sizes and strides
//! that were known before the call ran.

use super::extents::Extents;
use crate::torch_abi::{Handle, Torch};
use flambeau_ir::kernel::DType;
use flambeau_ir::tensor::Device;

/// Metadata that a register's tensor must have.
pub struct Expected {
    /// The register.
    pub reg: usize,
    /// Element type.
    pub dtype: DType,
    /// Device.
    pub device: Device,
    /// Sizes, in elements.
    pub sizes: Extents,
    /// Strides, in elements.
    pub strides: Extents,
    /// The call that made it, for messages.
    pub made_by: String,
}

/// What of a tensor was not as predicted.
pub enum Unexpected {
    /// A size could not be computed.
    Sizes(String),
    /// The tensor differs; prediction and finding in words.
    Tensor(String),
}

impl Expected {
    /// Compares with the tensor.
    pub fn check(&self, torch: &Torch, handle: Handle, symbols: &[i64]) -> Result<(), Unexpected> {
        // SAFETY: a live handle; only strided tensors are asked for strides.
        let (dtype, device) = unsafe { (torch.dtype(handle), torch.device(handle)) };
        let plain = dtype == self.dtype as i32
            && device.kind == self.device.kind
            && (device.kind == 0 || self.device.index < 0 || device.index == self.device.index);
        // SAFETY: as above.
        let (sizes, strides) = unsafe { (torch.sizes(handle), torch.strides(handle)) };
        let expected = self.sizes.eval(symbols).map_err(Unexpected::Sizes)?;
        let steps = self.strides.eval(symbols).map_err(Unexpected::Sizes)?;
        if plain && same_places(&expected, &steps, sizes, strides) {
            return Ok(());
        }
        Err(Unexpected::Tensor(self.describe(&expected, &steps, (dtype, sizes, strides))))
    }

    fn describe(&self, sizes: &[i64], strides: &[i64], found: (i32, &[i64], &[i64])) -> String {
        let dtype = DType::from_torch(found.0 as u8).map_or_else(|| format!("type {}", found.0), |d| format!("{d:?}"));
        format!(
            "{} returned {dtype} sizes {:?} strides {:?} where flambeau predicted {:?} sizes {sizes:?} strides {strides:?}",
            self.made_by, found.1, found.2, self.dtype,
        )
    }
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
