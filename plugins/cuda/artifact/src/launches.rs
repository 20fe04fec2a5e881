//! Launches of an artifact as data: which function, how many threads and blocks, for which arguments.

use flambeau_plugin::kernel::Extent;
use serde::{Deserialize, Serialize};

/// Most threads of a block, on every device.
const MAX_THREADS: u32 = 1024;

/// Most blocks of a launch, in its first dimension.
const MAX_BLOCKS: u64 = (1 << 31) - 1;

/// `ceil(factor * product(extents) / divisor)`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// See above.
    pub factor: u64,
    /// Those that are negative count as 0.
    pub extents: Vec<Extent>,
    /// See above; not 0.
    pub divisor: u64,
}

impl Count {
    /// Its value for these scalars; `u64::MAX` for all that is greater.
    pub fn value(&self, scalars: &[i64]) -> u64 {
        let mut total = self.factor;
        for extent in &self.extents {
            let size = match extent {
                Extent::Const(size) => *size,
                Extent::Scalar(at) => scalars[*at as usize],
            };
            match u64::try_from(size) {
                Ok(size @ 1..) => total = total.saturating_mul(size),
                _ => return 0,
            }
        }
        total.div_ceil(self.divisor)
    }

    pub(crate) fn is_whole(&self, scalars: u32) -> bool {
        self.divisor > 0 && self.extents.iter().all(|e| !matches!(e, Extent::Scalar(at) if *at >= scalars))
    }
}

/// One launch. Its grid and its blocks have one dimension, and it asks for no dynamic shared memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// Name of the function in the cubin.
    pub entry: String,
    /// Threads of a block.
    pub threads: u32,
    /// How many blocks there is work for. With fewer of them each does more: any number but 0 is right.
    pub blocks: Count,
}

impl Launch {
    /// Blocks of the grid for these scalars: as many as there is work for, or as a grid may have. 0: there is no work, and no
    /// launch.
    pub fn grid(&self, scalars: &[i64]) -> u32 {
        self.blocks.value(scalars).min(MAX_BLOCKS) as u32
    }

    pub(crate) fn is_whole(&self) -> bool {
        !self.entry.is_empty() && !self.entry.contains('\0') && (1..=MAX_THREADS).contains(&self.threads)
    }
}

/// Launches that read and write several elements at once, and the arguments they are for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fast {
    /// Per buffer, bytes: its address is a multiple of it. A power of two; 1 where any address will do.
    pub alignments: Vec<u32>,
    /// Scalars by their index, and what they are multiples of.
    pub multiples: Vec<(u32, u32)>,
    /// In order.
    pub launches: Vec<Launch>,
}

impl Fast {
    /// Whether they are right for these arguments.
    pub fn fits(&self, addresses: impl IntoIterator<Item = usize>, scalars: &[i64]) -> bool {
        let divides = |&(at, of): &(u32, u32)| scalars[at as usize] % i64::from(of) == 0;
        let aligned = |(address, to): (usize, &u32)| address & (*to as usize - 1) == 0;
        self.multiples.iter().all(divides) && addresses.into_iter().zip(&self.alignments).all(aligned)
    }

    pub(crate) fn is_whole(&self, buffers: u32, scalars: u32) -> bool {
        self.alignments.len() == buffers as usize
            && self.alignments.iter().all(|to| to.is_power_of_two())
            && self.multiples.iter().all(|(at, of)| *at < scalars && *of > 0)
            && !self.launches.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(factor: u64, extents: &[i64], divisor: u64) -> u64 {
        let extents = (0..extents.len() as u32).map(Extent::Scalar).zip(extents).collect::<Vec<_>>();
        let scalars: Vec<i64> = extents.iter().map(|(_, size)| **size).collect();
        let extents = extents.into_iter().map(|(extent, _)| extent).collect();
        Count { factor, extents, divisor }.value(&scalars)
    }

    #[test]
    fn counts_round_up_and_do_not_overflow() {
        assert_eq!(count(1, &[7, 3], 4), 6);
        assert_eq!(count(3, &[], 1), 3);
        assert_eq!(count(1, &[0, 1 << 62, 1 << 62], 4), 0);
        assert_eq!(count(1, &[-2, -3], 1), 0);
        assert_eq!(count(1, &[1 << 62, 1 << 62], 1), u64::MAX);
    }

    #[test]
    fn grids_have_as_many_blocks_as_devices_take() {
        let blocks = Count { factor: 1, extents: vec![Extent::Scalar(0)], divisor: 2 };
        let launch = Launch { entry: "run".to_owned(), threads: 32, blocks };
        assert_eq!([0, 5, 1 << 40].map(|size| launch.grid(&[size])), [0, 3, 0x7fff_ffff]);
    }
}
