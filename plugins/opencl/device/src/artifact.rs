//! The artifact format: a header, then the binary that the driver made of one program. No OpenCL here.
//!
//! Layout: [`MAGIC`], `u32` length of the header, the header in postcard, the binary. Drivers end the process at binaries that
//! are cut off, and run damaged ones: a binary is handed to one only if its hash is right and it is for that very device.

use flambeau_plugin::kernel::{Extent, Kernel, Role};
use flambeau_plugin::simplify::accesses;
use serde::{Deserialize, Serialize};

/// First bytes of an artifact; the digit is the version of the format.
pub const MAGIC: [u8; 8] = *b"FLMBOCL1";

/// What the launch half knows of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The device and driver that the binary is for: [`crate::Device::target`].
    pub target: String,
    /// In the order of the launch.
    pub buffers: Vec<Buffer>,
    /// Number of scalars.
    pub scalars: u32,
    /// Sizes of the dimensions.
    pub dims: Vec<Extent>,
    /// The units of work are the points of so many leading dimensions.
    pub split: usize,
    /// blake3 of the binary.
    pub hash: [u8; 32],
}

/// How a kernel uses a buffer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Buffer {
    /// Bytes of an element.
    pub element: u32,
    /// Whether it is written to.
    pub written: bool,
    /// Each way of walking through it: an offset, and a stride for each dimension; in elements.
    pub walks: Vec<(Extent, Vec<Extent>)>,
}

impl Header {
    /// Of a kernel that is compiled for this target.
    pub fn new(target: &str, kernel: &Kernel, split: usize) -> Header {
        let mut buffers: Vec<Buffer> = kernel
            .params
            .iter()
            .map(|p| Buffer { element: p.dtype.size() as u32, written: p.role != Role::In, walks: vec![] })
            .collect();
        for access in accesses(kernel) {
            let walk = (access.offset, access.strides.clone());
            let walks = &mut buffers[access.param as usize].walks;
            if !walks.contains(&walk) {
                walks.push(walk);
            }
        }
        let (dims, scalars) = (kernel.dims.clone(), kernel.scalars);
        Header { target: target.to_owned(), buffers, scalars, dims, split, hash: [0; 32] }
    }

    /// Whether every index is one of something that is there.
    fn is_whole(&self) -> bool {
        let walks = || self.buffers.iter().flat_map(|buffer| &buffer.walks);
        let strides = walks().flat_map(|(offset, strides)| strides.iter().chain([offset]));
        let known = |extent: &Extent| !matches!(extent, Extent::Scalar(at) if *at >= self.scalars);
        self.split <= self.dims.len()
            && walks().all(|(_, strides)| strides.len() == self.dims.len())
            && self.dims.iter().chain(strides).all(known)
    }
}

/// Bytes that are no artifact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(&'static str);

/// The artifact of a binary. Its hash is put into the header here.
pub fn encode(mut header: Header, binary: &[u8]) -> Vec<u8> {
    header.hash = *blake3::hash(binary).as_bytes();
    let header = postcard::to_stdvec(&header).unwrap_or_default();
    [&MAGIC[..], &(header.len() as u32).to_le_bytes(), &header, binary].concat()
}

/// Header and binary of an artifact, checked against each other.
pub fn decode(bytes: &[u8]) -> Result<(Header, &[u8]), Malformed> {
    let rest = bytes.strip_prefix(&MAGIC).ok_or(Malformed("no artifact of this version of the OpenCL back end"))?;
    let (length, rest) = rest.split_first_chunk().ok_or(Malformed("the artifact ends within its header"))?;
    let (header, binary) = rest
        .split_at_checked(u32::from_le_bytes(*length) as usize)
        .ok_or(Malformed("the artifact ends within its header"))?;
    let header: Header = postcard::from_bytes(header).map_err(|_| Malformed("the artifact's header is malformed"))?;
    if *blake3::hash(binary).as_bytes() != header.hash {
        return Err(Malformed("the artifact's binary is damaged"));
    }
    if !header.is_whole() {
        return Err(Malformed("the artifact's extents are malformed"));
    }
    Ok((header, binary))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        let walks = vec![(Extent::Const(0), vec![Extent::Const(768), Extent::Const(1)])];
        let buffers = vec![Buffer { element: 4, written: true, walks }];
        let dims = vec![Extent::Scalar(0), Extent::Const(768)];
        Header { target: "opencl-0".to_owned(), buffers, scalars: 1, dims, split: 1, hash: [0; 32] }
    }

    #[test]
    fn round_trip() {
        let bytes = encode(header(), b"binary");
        let hash = *blake3::hash(b"binary").as_bytes();
        assert_eq!(decode(&bytes), Ok((Header { hash, ..header() }, &b"binary"[..])));
    }

    #[test]
    fn every_cut_and_every_flipped_byte_of_the_binary_is_refused() {
        let bytes = encode(header(), b"binary");
        for end in 0..bytes.len() {
            assert!(decode(&bytes[..end]).is_err(), "{end}");
        }
        for at in bytes.len() - 6..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            assert!(decode(&flipped).is_err(), "{at}");
        }
    }

    #[test]
    fn extents_that_are_not_there_are_refused() {
        let of_another_dimension = Buffer { walks: vec![(Extent::Const(0), vec![])], ..header().buffers[0].clone() };
        for wild in [
            Header { scalars: 0, ..header() },
            Header { split: 3, ..header() },
            Header { buffers: vec![of_another_dimension], ..header() },
        ] {
            assert_eq!(decode(&encode(wild, b"binary")).unwrap_err().0, "the artifact's extents are malformed");
        }
    }
}
