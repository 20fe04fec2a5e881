//! Artifacts as bytes that anybody may have written.

use flambeau_cuda_artifact::{Count, Fast, Header, Launch, decode, encode};
use flambeau_mutate::{Memory, bytes};
use flambeau_plugin::kernel::Extent;

/// The cubin comes last: where only the header was changed, its hash is still right.
#[test]
fn artifacts() {
    let blocks = |extent| Count { factor: 4, extents: vec![Extent::Scalar(0), extent], divisor: 2 };
    let launch = |extent| Launch { entry: "run".to_owned(), threads: 256, blocks: blocks(extent) };
    let header = |extent, scalars| Header {
        target: "sm_90".to_owned(),
        buffers: 2,
        scalars,
        scratch: Some(blocks(extent)),
        plain: vec![launch(extent)],
        fast: Some(Fast { alignments: vec![16, 8], multiples: vec![(0, 4)], launches: vec![launch(extent); 2] }),
        hash: [0; 32],
    };
    let valid = vec![encode(header(Extent::Const(3), 1), b"cubin"), encode(header(Extent::Scalar(1), 2), b"cubin")];
    bytes("artifacts for CUDA", valid, Memory::per_byte(64), |bytes| {
        let Ok((header, cubin)) = decode(bytes) else { return false };
        assert_eq!(decode(&encode(header.clone(), cubin)), Ok((header.clone(), cubin)));
        // What the launch half computes at each call.
        for size in [i64::MIN, -1, 0, 7, i64::MAX] {
            let (addresses, scalars) = (vec![16_usize; header.buffers.min(64) as usize], scalars(&header, size));
            let Some(scalars) = scalars else { continue };
            for launch in header.launches(addresses, &scalars) {
                let _ = launch.grid(&scalars);
            }
            let _ = header.scratch.as_ref().map(|count| count.value(&scalars));
        }
        true
    });
}

/// So many scalars as kernels have.
fn scalars(header: &Header, value: i64) -> Option<Vec<i64>> {
    (header.scalars < 1024).then(|| vec![value; header.scalars as usize])
}
