//! Artifacts as bytes that anybody may have written.

use flambeau_mutate::{Memory, bytes};
use flambeau_opencl_device::artifact::{Buffer, Header, decode, encode};
use flambeau_plugin::kernel::Extent;

/// The binary comes last: where only the header was changed, its hash is still right.
#[test]
fn artifacts() {
    let walks = vec![(Extent::Const(0), vec![Extent::Const(768), Extent::Const(1)])];
    let buffers =
        vec![Buffer { element: 4, written: true, walks }, Buffer { element: 8, written: false, walks: vec![] }];
    let dims = vec![Extent::Scalar(0), Extent::Const(768)];
    let header = Header { target: "opencl-0".to_owned(), buffers, scalars: 1, dims, split: 1, hash: [0; 32] };
    bytes("artifacts for OpenCL", vec![encode(header, b"binary")], Memory::per_byte(64), |bytes| {
        let Ok((header, binary)) = decode(bytes) else { return false };
        assert_eq!(decode(&encode(header.clone(), binary)), Ok((header, binary)));
        true
    });
}
