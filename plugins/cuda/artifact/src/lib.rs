//! What the halves of the CUDA back end share: its name, what it compiles, and the artifact format, which is a header and a
//! cubin. No code generator, no NVRTC and no driver here.
//!
//! Layout: [`MAGIC`], `u32` length of the header, the header in postcard, the cubin. Drivers trust a cubin: one is handed to
//! them only if its hash is right and it is for that very device.

mod launches;

pub use launches::{Count, Fast, Launch};

use flambeau_plugin::{Capabilities, reference};
use serde::{Deserialize, Serialize};

/// Name of the back end.
pub const NAME: &str = "cuda";

/// First bytes of an artifact; the digit is the version of the format.
pub const MAGIC: [u8; 8] = *b"FLMBCUD1";

/// What kernels may hold: all there is in the kernel IR.
pub fn capabilities() -> Capabilities {
    reference::capabilities()
}

/// What the launch half knows of a kernel.
///
/// All entries take the buffers' addresses, then the scalars as `long long`, then, if there is scratch, its address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// What the cubin is for, e.g. `sm_90`.
    pub target: String,
    /// Number of buffers.
    pub buffers: u32,
    /// Number of scalars.
    pub scalars: u32,
    /// Bytes of memory that the launches of one call share, with no particular content, at a multiple of 16.
    pub scratch: Option<Count>,
    /// What is launched, one after the other on one stream, whatever the arguments are.
    pub plain: Vec<Launch>,
    /// What is launched in its place where the arguments fit.
    pub fast: Option<Fast>,
    /// blake3 of the cubin.
    pub hash: [u8; 32],
}

impl Header {
    /// What is launched for these arguments, in order. `addresses` are the buffers', one each.
    pub fn launches(&self, addresses: impl IntoIterator<Item = usize>, scalars: &[i64]) -> &[Launch] {
        self.fast.as_ref().filter(|fast| fast.fits(addresses, scalars)).map_or(&self.plain, |fast| &fast.launches)
    }

    /// Whether all numbers in it can be used as they are.
    fn is_whole(&self) -> bool {
        let fast = self.fast.as_ref();
        let launches = || self.plain.iter().chain(fast.iter().flat_map(|fast| &fast.launches));
        let counts = launches().map(|launch| &launch.blocks).chain(&self.scratch);
        !self.plain.is_empty()
            && launches().all(Launch::is_whole)
            && counts.into_iter().all(|count| count.is_whole(self.scalars))
            && fast.is_none_or(|fast| fast.is_whole(self.buffers, self.scalars))
    }
}

/// Bytes that are no artifact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(&'static str);

/// The artifact of a cubin. Its hash is put into the header here.
pub fn encode(mut header: Header, cubin: &[u8]) -> Vec<u8> {
    header.hash = *blake3::hash(cubin).as_bytes();
    let header = postcard::to_stdvec(&header).unwrap_or_default();
    [&MAGIC[..], &(header.len() as u32).to_le_bytes(), &header, cubin].concat()
}

/// Header and cubin of an artifact, checked against each other.
pub fn decode(bytes: &[u8]) -> Result<(Header, &[u8]), Malformed> {
    let rest = bytes.strip_prefix(&MAGIC).ok_or(Malformed("no artifact of this version of the CUDA back end"))?;
    let (length, rest) = rest.split_first_chunk().ok_or(Malformed("the artifact ends within its header"))?;
    let (header, cubin) = rest
        .split_at_checked(u32::from_le_bytes(*length) as usize)
        .ok_or(Malformed("the artifact ends within its header"))?;
    let header: Header = postcard::from_bytes(header).map_err(|_| Malformed("the artifact's header is malformed"))?;
    if *blake3::hash(cubin).as_bytes() != header.hash {
        return Err(Malformed("the artifact's cubin is damaged"));
    }
    if !header.is_whole() {
        return Err(Malformed("the artifact's launches are malformed"));
    }
    Ok((header, cubin))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flambeau_plugin::kernel::Extent;

    fn launch() -> Launch {
        let blocks = Count { factor: 4, extents: vec![Extent::Scalar(0), Extent::Const(3)], divisor: 2 };
        Launch { entry: "run".to_owned(), threads: 256, blocks }
    }

    fn header() -> Header {
        let fast = Fast { alignments: vec![16, 8], multiples: vec![(0, 4)], launches: vec![launch(); 2] };
        let scratch = Some(Count { factor: 8, extents: vec![Extent::Scalar(0)], divisor: 1 });
        let (target, plain) = ("sm_90".to_owned(), vec![launch()]);
        Header { target, buffers: 2, scalars: 1, scratch, plain, fast: Some(fast), hash: [0; 32] }
    }

    #[test]
    fn round_trip() {
        let bytes = encode(header(), b"cubin");
        let hash = *blake3::hash(b"cubin").as_bytes();
        assert_eq!(decode(&bytes), Ok((Header { hash, ..header() }, &b"cubin"[..])));
    }

    #[test]
    fn every_cut_and_every_flipped_byte_of_the_cubin_is_refused() {
        let bytes = encode(header(), b"cubin");
        for end in 0..bytes.len() {
            assert!(decode(&bytes[..end]).is_err(), "{end}");
        }
        for at in bytes.len() - 5..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            assert_eq!(decode(&flipped).unwrap_err().0, "the artifact's cubin is damaged", "{at}");
        }
    }

    #[test]
    fn numbers_that_no_launch_can_have_are_refused() {
        let one = |change: fn(&mut Header)| {
            let mut wild = header();
            change(&mut wild);
            wild
        };
        for wild in [
            one(|header| header.scalars = 0),
            one(|header| header.plain.clear()),
            one(|header| header.plain[0].threads = 0),
            one(|header| header.plain[0].threads = 1025),
            one(|header| header.plain[0].entry = "run\0".to_owned()),
            one(|header| header.plain[0].blocks.divisor = 0),
            one(|header| header.scratch.as_mut().unwrap().extents[0] = Extent::Scalar(1)),
            one(|header| header.fast.as_mut().unwrap().alignments[0] = 3),
            one(|header| header.fast.as_mut().unwrap().alignments.push(16)),
            one(|header| header.fast.as_mut().unwrap().multiples[0] = (1, 4)),
            one(|header| header.fast.as_mut().unwrap().multiples[0] = (0, 0)),
            one(|header| header.fast.as_mut().unwrap().launches.clear()),
        ] {
            assert_eq!(decode(&encode(wild, b"cubin")).unwrap_err().0, "the artifact's launches are malformed");
        }
    }

    #[test]
    fn the_fast_launches_are_for_aligned_buffers_and_sizes_that_divide() {
        let header = header();
        assert_eq!(header.launches([32, 8], &[8]).len(), 2);
        for (addresses, size) in [([8, 8], 8), ([32, 4], 8), ([32, 8], 6)] {
            assert_eq!(header.launches(addresses, &[size]), &header.plain, "{addresses:?} {size}");
        }
    }
}
