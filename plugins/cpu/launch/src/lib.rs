//! CPU back end, launch half: maps and runs compiled kernels. No code generator here: every client loads this.
#![expect(unsafe_code, reason = "machine code is mapped and called here")]

mod code;
mod threads;

use code::{Code, Entry};
use flambeau_cpu_artifact::{Header, Isa, NAME, capabilities, decode};
use flambeau_plugin::Description;
use flambeau_plugin::abi::Device;
use flambeau_plugin::export::LaunchBackend;
use flambeau_plugin::kernel::Extent;
use std::ffi::c_void;

/// Below this much work per thread, another thread costs more than it gives. Picoseconds.
const WORK_PER_THREAD: u64 = 10_000_000;
/// Most work that a thread does at a time, so that one that is slowed down keeps the others waiting no longer. Picoseconds.
const WORK_PER_PIECE: u64 = 20_000_000;
/// Most pieces of a thread's share.
const PIECES: u64 = 16;

/// The launch half.
pub struct Cpu;

/// A mapped kernel.
pub struct Kernel {
    code: Code,
    header: Header,
    /// Length of the axis, if it does not depend on scalars.
    axis: Option<i64>,
    /// Picoseconds of one unit of the axis, if it does not depend on scalars.
    unit_ps: Option<u64>,
}

impl Kernel {
    /// # Safety
    /// `scalars` holds as many values as the header says.
    unsafe fn value(extent: Extent, scalars: *const i64) -> i64 {
        match extent {
            Extent::Const(value) => value,
            // SAFETY: `decode` checked the index against the number of scalars, which the caller vouches for.
            Extent::Scalar(index) => unsafe { *scalars.add(index as usize) },
        }
    }

    /// # Safety
    /// As [`Kernel::value`].
    unsafe fn axis(&self, scalars: *const i64) -> i64 {
        self.axis.unwrap_or_else(|| {
            let factors = self.header.axis.iter();
            factors.fold(1_i64, |product, factor| {
                // SAFETY: passed on.
                let extent = unsafe { Self::value(factor.extent, scalars) };
                product.saturating_mul(extent.max(0).div_ceil_block(factor.block))
            })
        })
    }

    /// # Safety
    /// As [`Kernel::value`].
    unsafe fn unit_ps(&self, scalars: *const i64) -> u64 {
        self.unit_ps.unwrap_or_else(|| {
            self.header.inner.iter().fold(u64::from(self.header.point_ps), |product, extent| {
                // SAFETY: passed on.
                product.saturating_mul(unsafe { Self::value(*extent, scalars) }.max(0) as u64)
            })
        })
    }
}

trait DivCeil {
    fn div_ceil_block(self, block: u32) -> i64;
}

impl DivCeil for i64 {
    fn div_ceil_block(self, block: u32) -> i64 {
        let block = i64::from(block);
        (self + block - 1) / block
    }
}

/// The best instruction set of this machine.
fn detect() -> Option<Isa> {
    #[cfg(target_arch = "x86_64")]
    {
        let avx2 = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("movbe");
        let avx512 = avx2
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512cd")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        if avx512 { Some(Isa::Avx512) } else { avx2.then_some(Isa::Avx2) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    None
}

impl LaunchBackend for Cpu {
    type Executable = Kernel;

    fn describe() -> Result<Description, String> {
        let best = detect().ok_or("the CPU has no AVX2, FMA and F16C")?;
        let usable: Vec<&str> = Isa::ALL.into_iter().skip_while(|isa| *isa != best).map(Isa::target).collect();
        let devices = vec![Device::new("CPU", &usable)];
        Ok(Description::of_launch_half(NAME, env!("CARGO_PKG_VERSION"), devices, &capabilities()))
    }

    fn load(artifact: &[u8], _device: u32) -> Result<Kernel, String> {
        let (header, code) = decode(artifact).map_err(|e| e.to_string())?;
        if !detect().is_some_and(|best| Isa::ALL.into_iter().skip_while(|isa| *isa != best).any(|i| i == header.isa)) {
            return Err(format!("the artifact is for {}, which this CPU is not", header.isa.target()));
        }
        let code = Code::map(code, header.entry as usize).map_err(|e| format!("the kernel cannot be mapped: {e}"))?;
        let mut kernel = Kernel { code, header, axis: None, unit_ps: None };
        let constant = |extent: &Extent| matches!(extent, Extent::Const(_));
        // SAFETY (both): no extent is a scalar, so none is read.
        if kernel.header.axis.iter().all(|f| constant(&f.extent)) {
            kernel.axis = Some(unsafe { kernel.axis(std::ptr::null()) });
        }
        if kernel.header.inner.iter().all(constant) {
            kernel.unit_ps = Some(unsafe { kernel.unit_ps(std::ptr::null()) });
        }
        Ok(kernel)
    }

    #[inline]
    unsafe fn launch(
        kernel: &Kernel,
        buffers: *const *mut c_void,
        scalars: *const i64,
        _stream: *mut c_void,
        threads: u32,
    ) -> i32 {
        // SAFETY (both): the caller passes the kernel's scalars.
        let (axis, unit_ps) = unsafe { (kernel.axis(scalars), kernel.unit_ps(scalars)) };
        if axis <= 0 {
            return 0;
        }
        let entry: Entry = kernel.code.entry();
        let granule = i64::from(kernel.header.granule);
        let useful = (unit_ps.saturating_mul(axis as u64) / WORK_PER_THREAD).min((axis / granule) as u64);
        let threads = u64::from(threads).min(useful) as u32;
        if threads <= 1 {
            // SAFETY: the code was made for these arguments; the caller vouches for them.
            unsafe { entry(buffers, scalars, 0, axis) };
        } else {
            let work = unit_ps.saturating_mul(axis as u64) / u64::from(threads);
            let pieces = (work / WORK_PER_PIECE).clamp(1, PIECES) as i64;
            // SAFETY: as above; pieces of the axis may run in any order and at once.
            unsafe { threads::run(entry, buffers, scalars, (axis, granule), threads, pieces) };
        }
        0
    }

    fn explain(status: i32) -> String {
        format!("unknown status {status}")
    }
}

flambeau_plugin::export_launch_half!(Cpu);
