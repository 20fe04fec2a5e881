//! The artifact format that the halves of the CPU back end share: a header, then position-independent machine code with
//! its constants. No code generator and no launching here.
//!
//! Layout: [`MAGIC`], `u32` length of the header, the header in postcard, zeros up to a multiple of [`CODE_ALIGN`],
//! code. All little-endian.

mod capabilities;

pub use capabilities::capabilities;

use flambeau_plugin::kernel::Extent;
use serde::{Deserialize, Serialize};

/// First bytes of an artifact; the digit is the version of the format.
pub const MAGIC: [u8; 8] = *b"FLMBCPU1";

/// Alignment of the code within the artifact and in memory, bytes.
pub const CODE_ALIGN: usize = 64;

/// Name of the back end.
pub const NAME: &str = "cpu";

/// An instruction set that kernels are compiled for, best first in [`Isa::ALL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Isa {
    /// x86-64-v4: AVX-512 F, BW, DQ, VL, CD and all of v3.
    Avx512,
    /// x86-64-v3: AVX2, FMA, F16C, BMI.
    Avx2,
}

impl Isa {
    /// Best first.
    pub const ALL: [Isa; 2] = [Isa::Avx512, Isa::Avx2];

    /// Name of the target.
    pub fn target(self) -> &'static str {
        match self {
            Isa::Avx512 => "x86-64-avx512",
            Isa::Avx2 => "x86-64-avx2",
        }
    }

    /// The instruction set of a target's name.
    pub fn from_target(target: &str) -> Option<Isa> {
        Isa::ALL.into_iter().find(|isa| isa.target() == target)
    }

    /// Bytes of a vector register.
    pub fn vector_bytes(self) -> usize {
        match self {
            Isa::Avx512 => 64,
            Isa::Avx2 => 32,
        }
    }
}

/// One factor of the length of the parallel axis: `ceil(extent / block)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AxisFactor {
    /// Size of the dimension.
    pub extent: Extent,
    /// Points of the dimension in one unit of the axis.
    pub block: u32,
}

/// What the launch half knows of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Instructions used.
    pub isa: Isa,
    /// Bytes from the start of the code to the function `void(ptr buffers, ptr scalars, i64 begin, i64 end)`.
    pub entry: u32,
    /// Number of buffers.
    pub buffers: u32,
    /// Number of scalars.
    pub scalars: u32,
    /// The axis that may be split is `[0, product of these)`; empty: one unit.
    pub axis: Vec<AxisFactor>,
    /// Pieces of the axis begin at multiples of this.
    pub granule: u32,
    /// Extents whose product is the number of points in one unit of the axis.
    pub inner: Vec<Extent>,
    /// Estimated time of one point on one core, picoseconds.
    pub point_ps: u32,
}

/// Bytes that are no artifact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(&'static str);

/// The artifact of a header and code.
pub fn encode(header: &Header, code: &[u8]) -> Vec<u8> {
    let header = postcard::to_stdvec(header).unwrap_or_default();
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&(header.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&header);
    bytes.resize(bytes.len().next_multiple_of(CODE_ALIGN), 0);
    bytes.extend_from_slice(code);
    bytes
}

/// Header and code of an artifact, checked against each other.
pub fn decode(bytes: &[u8]) -> Result<(Header, &[u8]), Malformed> {
    let rest = bytes.strip_prefix(&MAGIC).ok_or(Malformed("no artifact of this version of the CPU back end"))?;
    let (length, rest) = rest.split_first_chunk().ok_or(Malformed("the artifact ends within its header"))?;
    let length = u32::from_le_bytes(*length) as usize;
    let header = rest.get(..length).ok_or(Malformed("the artifact ends within its header"))?;
    let header: Header = postcard::from_bytes(header).map_err(|_| Malformed("the artifact's header is malformed"))?;
    let start = (MAGIC.len() + 4 + length).next_multiple_of(CODE_ALIGN);
    let code = bytes.get(start..).ok_or(Malformed("the artifact ends before its code"))?;
    if header.entry as usize >= code.len() {
        return Err(Malformed("the artifact's entry lies outside of its code"));
    }
    let scalar_ok = |extent: &Extent| !matches!(extent, Extent::Scalar(i) if *i >= header.scalars);
    if !header.axis.iter().all(|f| scalar_ok(&f.extent) && f.block > 0) || !header.inner.iter().all(scalar_ok) {
        return Err(Malformed("the artifact's extents are malformed"));
    }
    if header.granule == 0 {
        return Err(Malformed("the artifact's granule is zero"));
    }
    Ok((header, code))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            isa: Isa::Avx2,
            entry: 64,
            buffers: 2,
            scalars: 1,
            axis: vec![AxisFactor { extent: Extent::Scalar(0), block: 1 }],
            granule: 1,
            inner: vec![Extent::Const(768)],
            point_ps: 70,
        }
    }

    #[test]
    fn round_trip_is_aligned() {
        let bytes = encode(&header(), &[0xc3; 100]);
        assert_eq!(bytes.len() % CODE_ALIGN, 100 % CODE_ALIGN);
        assert_eq!(decode(&bytes), Ok((header(), &[0xc3; 100][..])));
    }

    #[test]
    fn truncation_at_any_byte_is_refused() {
        let bytes = encode(&header(), &[0xc3; 100]);
        for end in 0..bytes.len() - 100 + 65 {
            assert!(decode(&bytes[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn wild_entries_and_scalars_are_refused() {
        let wild =
            [Header { entry: 100, ..header() }, Header { scalars: 0, ..header() }, Header { granule: 0, ..header() }];
        for header in wild {
            assert!(decode(&encode(&header, &[0xc3; 100])).is_err(), "{header:?}");
        }
    }
}
