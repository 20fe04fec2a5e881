//! Registers of a plan: borrowed inputs, tensors of torch's C interface, Python tensors.

use crate::torch_abi::{Handle, Owned, Torch};
use pyo3::prelude::*;

/// What a register holds.
pub enum Slot {
    /// Nothing (yet, or any more).
    Empty,
    /// A tensor of the plan's own.
    Owned(Owned),
    /// A tensor that also is a Python object.
    Python(Py<PyAny>),
}

/// All registers of one run.
pub struct Regs {
    /// The interface that all handles belong to.
    pub torch: &'static Torch,
    slots: Vec<Slot>,
}

impl Regs {
    /// Empty registers.
    pub fn new(torch: &'static Torch, count: usize) -> Regs {
        let mut slots = Vec::with_capacity(count);
        slots.resize_with(count, || Slot::Empty);
        Regs { torch, slots }
    }

    /// Fills a register.
    pub fn set(&mut self, reg: usize, slot: Slot) {
        self.slots[reg] = slot;
    }

    /// The handle in a register, borrowed until the register changes.
    pub fn handle(&self, reg: usize) -> Result<Handle, String> {
        match &self.slots[reg] {
            Slot::Empty => Err(format!("register {reg} of the plan is empty")),
            Slot::Owned(owned) => Ok(owned.handle()),
            // SAFETY: only tensors are put into registers.
            Slot::Python(object) => Ok(unsafe { self.torch.handle(object.as_ptr()) }),
        }
    }

    /// The Python tensor in a register; made if need be, and kept.
    pub fn python(&mut self, py: Python<'_>, reg: usize) -> Result<Py<PyAny>, String> {
        if let Slot::Python(object) = &self.slots[reg] {
            return Ok(object.clone_ref(py));
        }
        let handle = self.handle(reg)?;
        // SAFETY: a live handle, GIL held.
        let object = unsafe { self.torch.to_python(py, handle)? };
        self.slots[reg] = Slot::Python(object.clone_ref(py));
        Ok(object)
    }
}
