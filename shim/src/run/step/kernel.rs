//! Launches of kernels, with buffers given by their addresses.

use super::extents::{Extents, Room};
use crate::run::step::launch::LoadedKernel;
use crate::run::step::regs::Regs;
use crate::torch::outside::outside;
use smallvec::SmallVec;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::rc::Rc;

/// Kernels with more buffers have their pointers on the heap.
const FEW_BUFFERS: usize = 64;

/// A buffer of a launch.
#[derive(Clone, Copy)]
pub struct Operand {
    /// The register whose tensor's memory it lies in.
    pub reg: u32,
    /// Bytes from that one's first element to its own.
    pub offset: u32,
}

/// A launch ready to be made.
pub struct Launch {
    /// Among those of the plan.
    pub kernel: u32,
    /// Where they lie.
    pub buffers: SmallVec<[Operand; 4]>,
    /// Sizes and strides that the kernel takes, if any.
    pub scalars: Option<Rc<Extents>>,
}

impl Launch {
    /// The frequent kind, which takes pointers that are known and the same sizes on every call: its status. `None` of
    /// others.
    #[expect(clippy::inline_always, reason = "a call costs a third of what it does")]
    #[inline(always)]
    pub fn run_plain(&self, kernel: &LoadedKernel, regs: &Regs<'_>) -> Option<i32> {
        let mut pointers = [MaybeUninit::uninit(); FEW_BUFFERS];
        let scalars: &[i64] = match self.scalars.as_deref() {
            None => &[],
            Some(Extents::Fixed(scalars)) => scalars,
            Some(Extents::Dynamic(_)) => return None,
        };
        if self.buffers.len() > FEW_BUFFERS {
            return None;
        }
        for (pointer, buffer) in pointers.iter_mut().zip(&self.buffers) {
            let data = regs.known_data(buffer.reg as usize);
            if data.is_null() {
                return None;
            }
            pointer.write(data.wrapping_byte_add(buffer.offset as usize));
        }
        // SAFETY: as in `run`; the kernel's pointers are those that were written.
        Some(outside(|| unsafe {
            kernel.status(pointers.as_ptr().cast(), scalars.as_ptr(), regs.stream, regs.threads)
        }))
    }

    /// Makes it, whatever it takes.
    pub fn run(&self, kernel: &LoadedKernel, regs: &mut Regs<'_>, symbols: &[i64]) -> Result<(), String> {
        let mut pointers: SmallVec<[*mut c_void; FEW_BUFFERS]> = SmallVec::new();
        for buffer in &self.buffers {
            pointers.push(regs.data(buffer.reg as usize)?.wrapping_byte_add(buffer.offset as usize));
        }
        let mut room = Room::new();
        let scalars = self.scalars.as_ref().map_or(Ok(&[][..]), |scalars| scalars.eval(symbols, &mut room))?;
        // SAFETY: the plan was lowered with this kernel for tensors of these sizes and strides, which the guards checked;
        // the registers keep the memory alive.
        outside(|| unsafe { kernel.launch(&pointers, scalars, regs.stream, regs.threads) })
    }
}
