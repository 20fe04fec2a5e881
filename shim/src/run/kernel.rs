//! Launches of kernels, with buffers given by their addresses.

use super::extents::Extents;
use super::outside::outside;
use super::regs::Regs;
use crate::launch::LoadedKernel;
use smallvec::SmallVec;
use std::ffi::c_void;
use std::mem::MaybeUninit;

/// Kernels with more buffers have their pointers on the heap.
const FEW_BUFFERS: usize = 64;

/// A launch ready to be made.
pub struct Launch {
    /// Among those of the plan.
    pub kernel: u32,
    /// Registers.
    pub buffers: SmallVec<[u32; 4]>,
    /// Sizes and strides that the kernel takes, if any.
    pub scalars: Option<Box<Extents>>,
}

impl Launch {
    /// The frequent kind, which takes pointers that are known: its status. `None` of others.
    #[inline]
    pub fn run_plain(&self, kernel: &LoadedKernel, regs: &Regs<'_>) -> Option<i32> {
        let mut pointers = [MaybeUninit::uninit(); FEW_BUFFERS];
        if self.scalars.is_some() || self.buffers.len() > FEW_BUFFERS {
            return None;
        }
        for (pointer, reg) in pointers.iter_mut().zip(&self.buffers) {
            let data = regs.known_data(*reg as usize);
            if data.is_null() {
                return None;
            }
            pointer.write(data);
        }
        // SAFETY: as in `run`; the kernel's pointers are those that were written.
        Some(outside(|| unsafe { kernel.status(pointers.as_ptr().cast(), [].as_ptr(), regs.stream, regs.threads) }))
    }

    /// Makes it, whatever it takes.
    pub fn run(&self, kernel: &LoadedKernel, regs: &mut Regs<'_>, symbols: &[i64]) -> Result<(), String> {
        let mut pointers: SmallVec<[*mut c_void; FEW_BUFFERS]> = SmallVec::with_capacity(self.buffers.len());
        for reg in &self.buffers {
            pointers.push(regs.data(*reg as usize)?);
        }
        let computed;
        let scalars: &[i64] = match &self.scalars {
            None => &[],
            Some(scalars) => {
                computed = scalars.eval(symbols)?;
                &computed
            }
        };
        // SAFETY: the plan was lowered with this kernel for tensors of these sizes and strides, which the guards checked;
        // the registers keep the memory alive.
        outside(|| unsafe { kernel.launch(&pointers, scalars, regs.stream, regs.threads) })
    }
}
