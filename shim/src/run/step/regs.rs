//! Registers of a plan: inputs, borrowed from the call; then tensors of torch's C interface and Python tensors of its own.

use super::transfer::Places;
use crate::guard::Slot as Input;
use crate::python::raw::Raw;
use crate::torch::{Handle, Owned, Torch};
use pyo3::ffi;
use pyo3::prelude::*;
use smallvec::SmallVec;
use std::ffi::c_void;
use std::ptr::null_mut;

/// One register of the plan's own.
#[derive(Clone, Copy)]
struct Slot {
    /// Null while it holds nothing.
    handle: Handle,
    /// Address of the first element; null while nobody asked for it.
    data: *mut c_void,
    /// It is given up as a Python object.
    object: bool,
}

const EMPTY: Slot = Slot { handle: null_mut(), data: null_mut(), object: false };

/// All registers of one run.
pub struct Regs<'a> {
    /// The interface that all handles belong to.
    pub torch: &'static Torch,
    /// Threads that kernels may use.
    pub threads: u32,
    /// Stream of the device that kernels are put into; null where they run at once.
    pub stream: *mut c_void,
    /// What is in the memory of a back end that has its own.
    pub places: Option<Box<Places>>,
    inputs: &'a [Input],
    /// Objects that are no tensors.
    objects: &'a [Input],
    /// Whether the run has references to its inputs.
    held: bool,
    /// The registers after the inputs.
    slots: SmallVec<[Slot; 8]>,
}

impl<'a> Regs<'a> {
    /// The inputs are tensors that live until Python runs or the GIL is released; `count` registers in all.
    pub fn new(torch: &'static Torch, threads: u32, inputs: &'a [Input], count: usize) -> Regs<'a> {
        let slots = SmallVec::from_elem(EMPTY, count.saturating_sub(inputs.len()));
        Regs { torch, threads, stream: null_mut(), places: None, inputs, objects: &[], held: false, slots }
    }

    /// These are given as well; they live as long as the inputs.
    pub fn with(mut self, objects: &'a [Input]) -> Regs<'a> {
        self.objects = objects;
        self
    }

    /// One of the objects.
    pub fn given(&self, py: Python<'_>, at: usize) -> Result<Py<PyAny>, String> {
        let object = self.objects.get(at).map_or(null_mut(), |given| given.object);
        // SAFETY: alive, as the run holds it.
        unsafe { Py::from_borrowed_ptr_or_opt(py, object) }.ok_or_else(|| format!("object {at} of the plan is missing"))
    }

    /// Keeps the inputs alive from now on: to be called before Python may run or the GIL is released.
    pub fn hold(&mut self) {
        if !self.held {
            self.held = true;
            // SAFETY: so far they are alive (see `new`).
            self.inputs.iter().chain(self.objects).for_each(|input| unsafe { ffi::Py_XINCREF(input.object) });
        }
    }

    /// Fills a register with a tensor of the plan's own.
    #[inline]
    pub fn own(&mut self, reg: usize, tensor: Owned) {
        let handle = tensor.into_handle();
        // SAFETY: a live handle of a strided tensor.
        let data = unsafe { self.torch.quick_data(handle) };
        self.put(reg, Slot { handle, data, object: false });
    }

    /// Fills a register with a tensor that is a Python object.
    pub fn keep(&mut self, reg: usize, tensor: Py<PyAny>) {
        // SAFETY: only tensors are put into registers.
        let handle = unsafe { self.torch.handle(tensor.into_ptr()) };
        self.put(reg, Slot { handle, object: true, ..EMPTY });
    }

    /// Empties a register.
    #[inline]
    pub fn free(&mut self, reg: usize) {
        self.put(reg, EMPTY);
    }

    /// Inputs stay as they are: `NativeBody::new` refuses steps that write to them.
    #[inline]
    fn put(&mut self, reg: usize, slot: Slot) {
        let old = std::mem::replace(&mut self.slots[reg - self.inputs.len()], slot);
        if !old.handle.is_null() {
            self.give_up(old);
        }
    }

    fn give_up(&self, slot: Slot) {
        // SAFETY: the register owned it, and does no more.
        unsafe {
            if slot.object {
                ffi::Py_DECREF(self.torch.object(slot.handle));
            } else {
                drop(Owned::new(self.torch, slot.handle));
            }
        }
    }

    /// Does something with the back end's own memory.
    pub fn there<T>(&mut self, work: impl FnOnce(&mut Places, &mut Self) -> Result<T, String>) -> Result<T, String> {
        let mut places = self.places.take().ok_or("a plan for a back end with memory of its own")?;
        let done = work(&mut places, self);
        self.places = Some(places);
        done
    }

    /// The handle in a register, borrowed until the register changes.
    pub fn handle(&self, reg: usize) -> Result<Handle, String> {
        let handle = match self.inputs.get(reg) {
            Some(input) if input.object.is_null() => null_mut(),
            // SAFETY: only tensors are inputs of plans; their guards say so.
            Some(input) => unsafe { self.torch.handle(input.object) },
            None => self.slots[reg - self.inputs.len()].handle,
        };
        if handle.is_null() { Err(format!("register {reg} of the plan is empty")) } else { Ok(handle) }
    }

    /// The address of the first element of the tensor in a register.
    #[inline]
    pub fn data(&mut self, reg: usize) -> Result<*mut c_void, String> {
        let known = self.known_data(reg);
        if known.is_null() { self.find_data(reg) } else { Ok(known) }
    }

    /// The same where it is known, else null.
    #[expect(clippy::inline_always, reason = "a call costs a third of what it does")]
    #[inline(always)]
    pub fn known_data(&self, reg: usize) -> *mut c_void {
        match self.inputs.get(reg) {
            Some(input) if !self.held || input.object.is_null() => input.data,
            // Another thread or Python may have given the tensor other memory since. SAFETY: the run holds it; as `handle`.
            Some(input) => unsafe { self.torch.quick_data(self.torch.handle(input.object)) },
            None => self.slots[reg - self.inputs.len()].data,
        }
    }

    #[inline(never)]
    fn find_data(&mut self, reg: usize) -> Result<*mut c_void, String> {
        // SAFETY: a live handle of a strided tensor.
        let data = unsafe { self.torch.data(self.handle(reg)?) };
        if reg >= self.inputs.len() {
            self.slots[reg - self.inputs.len()].data = data;
        }
        Ok(data)
    }

    /// The Python tensor in a register; made if need be, and kept. Making one may run Python.
    pub fn python(&mut self, py: Python<'_>, reg: usize) -> Result<Py<PyAny>, String> {
        let handle = self.handle(reg)?;
        if reg < self.inputs.len() || self.slots[reg - self.inputs.len()].object {
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
        // Before the tensors that they are places of.
        self.places = None;
        while let Some(slot) = self.slots.pop() {
            if !slot.handle.is_null() {
                self.give_up(slot);
            }
        }
        if self.held {
            // SAFETY: the references that `hold` took.
            self.inputs.iter().chain(self.objects).for_each(|input| unsafe { ffi::Py_XDECREF(input.object) });
        }
    }
}
