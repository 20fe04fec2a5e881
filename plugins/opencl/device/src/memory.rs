//! The host's memory as buffers of a device that computes in it but takes no pointers: nothing is copied.

use crate::artifact::{Buffer, Header};
use crate::device::Device;
use crate::program::{checked, value};
use ocl_core::ffi::{self, c_void, cl_int, cl_mem};
use std::ptr;

/// Buffers of one launch, null where the pointer is.
pub struct HostBuffers {
    memory: Vec<cl_mem>,
    /// Bytes of those that are written to, else 0.
    written: Vec<usize>,
}

impl HostBuffers {
    /// # Safety
    /// The pointers are good for what the kernel reaches, for as long as this lives.
    pub unsafe fn new(
        device: &Device,
        header: &Header,
        pointers: &[*mut c_void],
        scalars: &[i64],
    ) -> Result<HostBuffers, cl_int> {
        let sizes: Vec<i64> = header.dims.iter().map(|dim| value(*dim, scalars)).collect();
        let mut made = HostBuffers { memory: Vec::with_capacity(pointers.len()), written: Vec::new() };
        for (buffer, pointer) in header.buffers.iter().zip(pointers) {
            let bytes = reach(buffer, &sizes, scalars);
            let access = if buffer.written { ffi::CL_MEM_READ_WRITE } else { ffi::CL_MEM_READ_ONLY };
            let (mut status, mut memory) = (ffi::CL_SUCCESS, ptr::null_mut());
            if !pointer.is_null() {
                let (context, flags) = (device.context.as_ptr(), access | ffi::CL_MEM_USE_HOST_PTR);
                // SAFETY: the caller's promise.
                memory = unsafe { ffi::clCreateBuffer(context, flags, bytes, *pointer, &raw mut status) };
            }
            checked(status)?;
            made.memory.push(memory);
            made.written.push(if buffer.written && !memory.is_null() { bytes } else { 0 });
        }
        Ok(made)
    }

    /// In the order of the kernel's buffers.
    pub fn memory(&self) -> &[cl_mem] {
        &self.memory
    }

    /// Has what was written stand in the host's memory: mapping a buffer says so.
    ///
    /// # Safety
    /// Nothing else uses the queue, which all of the launch was done on.
    pub unsafe fn finish(self, queue: ffi::cl_command_queue) -> Result<(), cl_int> {
        for (memory, bytes) in self.memory.iter().zip(&self.written).filter(|(_, bytes)| **bytes > 0) {
            let (blocking, mut status) = (ffi::CL_TRUE, ffi::CL_SUCCESS);
            let (no, none) = (ptr::null(), ptr::null_mut());
            // SAFETY: the buffer has so many bytes, and is unmapped before it is released.
            unsafe {
                let flags = ffi::CL_MAP_READ;
                let mapped =
                    ffi::clEnqueueMapBuffer(queue, *memory, blocking, flags, 0, *bytes, 0, no, none, &raw mut status);
                checked(status)?;
                checked(ffi::clEnqueueUnmapMemObject(queue, *memory, mapped, 0, ptr::null(), ptr::null_mut()))?;
            }
        }
        Ok(())
    }
}

impl Drop for HostBuffers {
    fn drop(&mut self) {
        for memory in self.memory.iter().filter(|memory| !memory.is_null()) {
            // SAFETY: made by `new`, and released once.
            unsafe { ffi::clReleaseMemObject(*memory) };
        }
    }
}

/// Bytes from element 0 to the end of the last one that the kernel may reach.
fn reach(buffer: &Buffer, sizes: &[i64], scalars: &[i64]) -> usize {
    let last = buffer.walks.iter().map(|(offset, strides)| {
        let steps =
            strides.iter().zip(sizes).map(|(stride, size)| (value(*stride, scalars).max(0)) * (size - 1).max(0));
        value(*offset, scalars) + steps.sum::<i64>()
    });
    (last.max().unwrap_or(0).max(0) as usize + 1) * buffer.element as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use flambeau_plugin::kernel::Extent::{Const, Scalar};

    #[test]
    fn reach_is_to_the_end_of_the_furthest_walk() {
        let walks = vec![(Const(0), vec![Const(0), Const(1)]), (Const(7), vec![Scalar(0), Const(-1)])];
        let buffer = Buffer { element: 4, written: false, walks };
        assert_eq!(reach(&buffer, &[3, 8], &[100]), 4 * (7 + 200 + 1));
        assert_eq!(reach(&buffer, &[0, 8], &[100]), 4 * 8);
        assert_eq!(reach(&Buffer { walks: vec![], ..buffer }, &[3], &[]), 4);
    }
}
