//! Artifacts as bytes that anybody may have written.

use flambeau_cpu_artifact::{AxisFactor, Header, Isa, decode, encode};
use flambeau_mutate::{Memory, bytes};
use flambeau_plugin::kernel::Extent;

#[test]
fn artifacts() {
    let header = |scalars| Header {
        isa: Isa::Avx2,
        entry: 64,
        buffers: 2,
        scalars,
        axis: vec![
            AxisFactor { extent: Extent::Scalar(0), block: 1 },
            AxisFactor { extent: Extent::Const(9), block: 4 },
        ],
        granule: 64,
        inner: vec![Extent::Const(768)],
        point_ps: 70,
    };
    let valid = [1, 3].map(|scalars| encode(&header(scalars), &[0xc3; 100])).to_vec();
    bytes("artifacts for the CPU", valid, Memory::per_byte(32), |bytes| {
        let Ok((header, code)) = decode(bytes) else { return false };
        assert_eq!(decode(&encode(&header, code)), Ok((header.clone(), code)));
        assert!((header.entry as usize) < code.len() && header.granule > 0);
        true
    });
}
