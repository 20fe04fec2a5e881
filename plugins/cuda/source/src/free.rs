//! Kernels whose points are alike: one loop over all of them, which all threads of the grid share.

use crate::entry::Entry;
use crate::place::product_text;
use crate::vector::Vector;
use flambeau_c_text::Text;
use flambeau_cuda_artifact::{Count, Launch};
use flambeau_plugin::kernel::Kernel;

/// Threads of a block.
const THREADS: u32 = 256;

/// Writes the function.
pub fn write(kernel: &Kernel, name: &str, vector: &Vector, text: &mut Text) -> Launch {
    let each = u64::from(THREADS) * vector.width as u64;
    let mut entry = Entry::begin(kernel, vector, text, name, THREADS, &[]);
    let c = entry.index.ctype();
    let points = product_text(&kernel.dims);
    let first = format!("(({c})blockIdx.x * {THREADS} + ({c})threadIdx.x) * {}", vector.width);
    // Most threads go through it once.
    entry.line("#pragma unroll 1");
    entry.open(&format!("for ({c} at = {first}; at < {points}; at += ({c})gridDim.x * {each})"));
    entry.indices("at");
    for stage in &kernel.stages {
        entry.elements(stage, &[], "");
    }
    entry.close();
    entry.close();
    let blocks = Count { factor: 1, extents: kernel.dims.clone(), divisor: each };
    Launch { entry: name.to_owned(), threads: THREADS, blocks }
}
