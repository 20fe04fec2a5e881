//! Tensors brought to the memory of a back end that has its own, and kernels launched on them there.

use super::extents::Room;
use super::kernel::Launch;
use crate::run::step::launch::{LoadedKernel, OwnMemory};
use crate::run::step::regs::Regs;
use crate::torch::outside::{ending, outside};
use flambeau_plugin::abi::Region;
use smallvec::SmallVec;
use std::ffi::c_void;
use std::ptr::null_mut;

/// A step between the host's memory and the back end's. Tensors are registers.
#[derive(Clone, Copy)]
pub enum Transfer {
    /// Brings a tensor there.
    Import(usize),
    /// Makes room for one there.
    Reserve(usize),
    /// Brings it back.
    Export(usize),
    /// Gives its memory there back.
    Release(usize),
}

/// A launch on tensors there.
pub struct LaunchThere {
    /// What is launched.
    pub launch: Launch,
    /// Per buffer, the register of the tensor that it is a view of, or itself.
    pub roots: SmallVec<[u32; 4]>,
}

/// Where a tensor is in the back end's memory.
struct Place {
    reg: usize,
    memory: *mut c_void,
    /// Of the tensor in the host's memory.
    start: *mut c_void,
    bytes: u64,
}

/// The tensors of one run that are there.
pub struct Places {
    own: OwnMemory,
    places: Vec<Place>,
}

impl Places {
    /// None yet.
    pub fn new(own: OwnMemory) -> Places {
        Places { own, places: Vec::new() }
    }

    fn find(&self, reg: usize) -> Result<&Place, String> {
        let found = self.places.iter().find(|place| place.reg == reg);
        found.ok_or_else(|| format!("register {reg} of the plan has no memory in the back end's"))
    }

    fn add(&mut self, regs: &mut Regs<'_>, reg: usize, import: bool) -> Result<(), String> {
        let start = regs.data(reg)?;
        // SAFETY: a live handle of a strided tensor.
        let bytes = unsafe { regs.torch.bytes(regs.handle(reg)?) };
        let (table, device) = (self.own.table(), self.own.device());
        let memory = outside(|| {
            let mut memory = null_mut();
            // SAFETY: the tensor has so many bytes from its first element on, and the register keeps it alive.
            let status = unsafe {
                if import {
                    (table.import)(device, start, bytes, &raw mut memory)
                } else {
                    (table.allocate)(device, bytes, &raw mut memory)
                }
            };
            self.own.check(status).map(|()| memory)
        })?;
        self.places.push(Place { reg, memory, start, bytes });
        Ok(())
    }

    /// Makes a transfer.
    pub fn transfer(&mut self, regs: &mut Regs<'_>, transfer: Transfer) -> Result<(), String> {
        match transfer {
            Transfer::Import(reg) => self.add(regs, reg, true),
            Transfer::Reserve(reg) => self.add(regs, reg, false),
            Transfer::Export(reg) => {
                let place = self.find(reg)?;
                // SAFETY: the place was made for these bytes, which views or the register keep alive.
                self.own.check(outside(|| unsafe { (self.own.table().export)(place.memory, place.start, place.bytes) }))
            }
            Transfer::Release(reg) => {
                let at = self.places.iter().position(|place| place.reg == reg);
                let place = self.places.swap_remove(at.ok_or("a tensor is released that the back end does not have")?);
                self.release(&place);
                Ok(())
            }
        }
    }

    fn release(&self, place: &Place) {
        // SAFETY: made by the table, and no launch names it any more.
        ending(null_mut(), || unsafe { (self.own.table().release)(place.memory) });
    }

    /// Makes a launch.
    pub fn launch(
        &self,
        kernel: &LoadedKernel,
        regs: &mut Regs<'_>,
        of: &LaunchThere,
        symbols: &[i64],
    ) -> Result<(), String> {
        let mut regions: SmallVec<[Region; 8]> = SmallVec::with_capacity(of.roots.len());
        for (buffer, root) in of.launch.buffers.iter().zip(&of.roots) {
            let place = self.find(*root as usize)?;
            // Tensors without elements lie nowhere.
            let offset = if place.bytes == 0 { 0 } else { regs.data(buffer.reg as usize)? as u64 - place.start as u64 };
            regions.push(Region { memory: place.memory, offset, bytes: place.bytes.saturating_sub(offset) });
        }
        let pointers: SmallVec<[*mut c_void; 8]> = regions.iter_mut().map(|region| (&raw mut *region).cast()).collect();
        let mut room = Room::new();
        let scalars = of.launch.scalars.as_ref().map_or(Ok(&[][..]), |scalars| scalars.eval(symbols, &mut room))?;
        // SAFETY: as for other launches; regions are what such a back end takes.
        outside(|| unsafe { kernel.launch(&pointers, scalars, null_mut(), regs.threads) })
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        // A run that failed left some.
        self.places.iter().for_each(|place| self.release(place));
    }
}
