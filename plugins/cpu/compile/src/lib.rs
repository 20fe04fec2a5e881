//! CPU back end, compile half: kernel IR to machine code through LLVM.
//!
//! `nest` (dimensions in their best form) -> `emit` with `memory`, `ops`, `math` (LLVM IR text) -> `llvm` (object file)
//! -> `link` (flat code) -> artifact. Runs in a worker process; nothing here maps or calls code.

mod cost;
mod emit;
mod found;
mod link;
mod llvm;
mod math;
mod memory;
mod nest;
mod ops;
mod reduce;
mod strided;
mod text;
mod tile;

#[cfg(test)]
mod tests;

use flambeau_cpu_artifact::{AxisFactor, Header, Isa, NAME, capabilities, encode};
use flambeau_plugin::Description;
use flambeau_plugin::export::CompileBackend;
use flambeau_plugin::kernel::{Extent, Kernel};
use llvm::Generator;
use nest::{Lanes, Nest, Split};

/// The compile half.
pub struct Cpu;

impl CompileBackend for Cpu {
    fn describe() -> Result<Description, String> {
        let targets = Isa::ALL.map(Isa::target);
        Ok(Description::of_compile_half(NAME, env!("CARGO_PKG_VERSION"), &targets, &capabilities()))
    }

    fn compile(kernels: &[Kernel], target: &str) -> Result<Vec<Result<Vec<u8>, String>>, String> {
        let isa = Isa::from_target(target).ok_or_else(|| format!("unknown target {target}"))?;
        let generator = Generator::new(isa)?;
        Ok(kernels.iter().map(|kernel| compile(kernel, isa, &generator)).collect())
    }
}

#[cfg(not(test))]
flambeau_plugin::export_compile_half!(Cpu);

/// The artifact of one kernel.
fn compile(kernel: &Kernel, isa: Isa, generator: &Generator) -> Result<Vec<u8>, String> {
    capabilities().check(kernel)?;
    let nest = Nest::new(kernel, isa)?;
    let module = emit::module(&nest, isa)?;
    let object = generator.object(&module)?;
    let flat = link::flatten(&object, emit::ENTRY)?;
    Ok(encode(&header(&nest, isa, flat.entry), &flat.code))
}

fn header(nest: &Nest, isa: Isa, entry: usize) -> Header {
    let kernel = &nest.kernel;
    let (outer, row) = kernel.dims.split_at(kernel.outer);
    let (axis, inner): (&[Extent], Vec<Extent>) = match nest.split {
        Split::Outer => (outer, row.to_vec()),
        Split::Row => (&row[row.len() - 1..], [outer, &row[..row.len() - 1]].concat()),
    };
    let mut axis: Vec<AxisFactor> = axis.iter().map(|extent| AxisFactor { extent: *extent, block: 1 }).collect();
    let mut lanes = 1;
    if let (true, Some(last)) = (nest.lanes == Lanes::Outer || nest.tiled.is_some(), axis.last_mut()) {
        last.block = nest.width;
        lanes = nest.width;
    }
    Header {
        isa,
        entry: entry as u32,
        buffers: kernel.params.len() as u32,
        scalars: kernel.scalars,
        axis,
        granule: if nest.split == Split::Row { 64 } else { 1 },
        inner,
        point_ps: cost::point_ps(nest).saturating_mul(lanes),
    }
}
