//! Registers of a plan: borrowed inputs, tensors of torch's C interface, Python tensors.

use crate::raw::Raw;
use crate::torch_abi::{Handle, Owned, Torch};
use pyo3::ffi;
use pyo3::prelude::*;
use smallvec::SmallVec;
use std::marker::PhantomData;
use std::ptr::null_mut;

/// One register.
#[derive(Clone, Copy)]
struct Slot {
    /// Null while it holds nothing.
    handle: Handle,
    owner: Owner,
}

/// Who gives up a register's tensor.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// Whoever called.
    Caller,
    /// The plan, a handle of torch's C interface.
    Plan,
    /// The plan, a Python object.
    Object,
}

const EMPTY: Slot = Slot { handle: null_mut(), owner: Owner::Caller };

/// All registers of one run.
pub struct Regs<'a> {
    /// The interface that all handles belong to.
    pub torch: &'static Torch,
    /// Threads that kernels may use.
    pub threads: u32,
    /// Whether the GIL was released since this was last set.
    pub detached: bool,
    slots: SmallVec<[Slot; 24]>,
    /// Registers that the plan has to give up.
    owned: usize,
    inputs: PhantomData<&'a Py<PyAny>>,
}

impl<'a> Regs<'a> {
    /// Empty registers.
    pub fn new(torch: &'static Torch, threads: u32, count: usize) -> Regs<'a> {
        let slots = SmallVec::from_elem(EMPTY, count);
        Regs { torch, threads, detached: false, slots, owned: 0, inputs: PhantomData }
    }

    /// Runs a call with the GIL released.
    pub fn detach<T: Send>(&mut self, py: Python<'_>, call: impl Send + FnOnce() -> T) -> T {
        self.detached = true;
        py.detach(call)
    }

    /// Fills a register with an input, a tensor that outlives the run.
    pub fn borrow(&mut self, reg: usize, input: &'a Py<PyAny>) {
        // SAFETY: only tensors are inputs of plans; their guards say so.
        self.slots[reg] = Slot { handle: unsafe { self.torch.handle(input.as_ptr()) }, owner: Owner::Caller };
    }

    /// Fills a register with a tensor of the plan's own.
    pub fn own(&mut self, reg: usize, tensor: Owned) {
        self.put(reg, Slot { handle: tensor.into_handle(), owner: Owner::Plan });
    }

    /// Fills a register with a tensor that is a Python object.
    pub fn keep(&mut self, reg: usize, tensor: Py<PyAny>) {
        // SAFETY: only tensors are put into registers.
        let handle = unsafe { self.torch.handle(tensor.into_ptr()) };
        self.put(reg, Slot { handle, owner: Owner::Object });
    }

    /// Empties a register.
    pub fn free(&mut self, reg: usize) {
        self.put(reg, EMPTY);
    }

    fn put(&mut self, reg: usize, slot: Slot) {
        let old = std::mem::replace(&mut self.slots[reg], slot);
        self.owned += usize::from(slot.owner != Owner::Caller);
        self.give_up(old);
    }

    fn give_up(&mut self, slot: Slot) {
        if slot.owner == Owner::Caller {
            return;
        }
        self.owned -= 1;
        // SAFETY: the register owned it, and does no more.
        unsafe {
            match slot.owner {
                Owner::Caller => {}
                Owner::Plan => drop(Owned::new(self.torch, slot.handle)),
                Owner::Object => ffi::Py_DECREF(self.torch.object(slot.handle)),
            }
        }
    }

    /// The handle in a register, borrowed until the register changes.
    pub fn handle(&self, reg: usize) -> Result<Handle, String> {
        let handle = self.slots[reg].handle;
        if handle.is_null() { Err(format!("register {reg} of the plan is empty")) } else { Ok(handle) }
    }

    /// The Python tensor in a register; made if need be, and kept.
    pub fn python(&mut self, py: Python<'_>, reg: usize) -> Result<Py<PyAny>, String> {
        let handle = self.handle(reg)?;
        if self.slots[reg].owner != Owner::Plan {
            let object: Raw = self.torch.object(handle);
            // SAFETY: the register's tensor is a live Python object.
            return Ok(unsafe { Py::from_borrowed_ptr(py, object) });
        }
        // SAFETY: a live handle, GIL held.
        let object = unsafe { self.torch.to_python(py, handle)? };
        self.keep(reg, object.clone_ref(py));
        Ok(object)
    }
}

impl Drop for Regs<'_> {
    fn drop(&mut self) {
        for reg in 0..self.slots.len() {
            if self.owned == 0 {
                return;
            }
            let slot = std::mem::replace(&mut self.slots[reg], EMPTY);
            self.give_up(slot);
        }
    }
}
