//! Memory of devices that have their own: buffers, and copies between them and the host's memory. All goes through the device's
//! one queue, in order.

use crate::device::{Device, devices};
use crate::program::{STATUS_FORKED, checked};
use flambeau_plugin::abi::Region;
use flambeau_plugin::export::OwnMemory;
use flambeau_plugin::fork;
use ocl_core::ffi::{self, c_void, cl_int, cl_mem};
use std::ptr;

/// A status of ours: OpenCL's are negative.
pub const STATUS_DEVICE: i32 = 2;

/// A buffer, and the device that it is on.
struct Allocation {
    memory: cl_mem,
    device: &'static Device,
}

/// [`OwnMemory`] of all devices.
pub struct Memory;

impl Memory {
    /// A buffer; with a copy of what is at `host` if that is not null.
    fn create(device: u32, host: *mut c_void, bytes: u64) -> Result<*mut c_void, i32> {
        if fork::is_child() {
            return Err(STATUS_FORKED);
        }
        let device = devices().ok().and_then(|known| known.get(device as usize)).ok_or(STATUS_DEVICE)?;
        let copies = !host.is_null() && bytes > 0;
        let (flags, host) = if copies { (ffi::CL_MEM_COPY_HOST_PTR, host) } else { (0, ptr::null_mut()) };
        let mut status = ffi::CL_SUCCESS;
        let size = bytes.max(1) as usize;
        // SAFETY: the context is alive; the caller of `import` vouches for the host's memory.
        let memory = unsafe {
            let context = device.context.as_ptr();
            ffi::clCreateBuffer(context, ffi::CL_MEM_READ_WRITE | flags, size, host, &raw mut status)
        };
        checked(status)?;
        Ok(Box::into_raw(Box::new(Allocation { memory, device })).cast())
    }
}

impl OwnMemory for Memory {
    fn allocate(device: u32, bytes: u64) -> Result<*mut c_void, i32> {
        Memory::create(device, ptr::null_mut(), bytes)
    }

    unsafe fn import(device: u32, host: *mut c_void, bytes: u64) -> Result<*mut c_void, i32> {
        Memory::create(device, host, bytes)
    }

    unsafe fn export(memory: *mut c_void, host: *mut c_void, bytes: u64) -> Result<(), i32> {
        if fork::is_child() {
            return Err(STATUS_FORKED);
        }
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the caller's promise: `create` made it.
        let Allocation { memory, device } = unsafe { &*memory.cast::<Allocation>() };
        let queue = device.queue()?;
        let (blocking, none) = (ffi::CL_TRUE, ptr::null_mut());
        // SAFETY: both have so many bytes; the call returns when they are copied.
        checked(unsafe {
            ffi::clEnqueueReadBuffer(queue, *memory, blocking, 0, bytes as usize, host, 0, ptr::null(), none)
        })
    }

    unsafe fn release(memory: *mut c_void) {
        // SAFETY: the caller's promise. Drivers keep the buffer until what is in the queue is done with it.
        unsafe {
            let allocation = Box::from_raw(memory.cast::<Allocation>());
            if !fork::is_child() {
                ffi::clReleaseMemObject(allocation.memory);
            }
        }
    }

    fn synchronize(device: u32) -> Result<(), i32> {
        let device = devices().ok().and_then(|known| known.get(device as usize)).ok_or(STATUS_DEVICE)?;
        device.finish()
    }
}

/// The buffer of a kernel's parameter, and the bytes before its element 0; nothing for no parameter.
///
/// # Safety
/// `region` is null, or the address of a [`Region`] in memory of [`Memory`].
pub unsafe fn argument(region: *const c_void) -> (cl_mem, u64) {
    // SAFETY: the caller's promise.
    unsafe {
        let Some(region) = region.cast::<Region>().as_ref() else { return (ptr::null_mut(), 0) };
        ((*region.memory.cast::<Allocation>()).memory, region.offset)
    }
}

/// Sets a kernel's argument to a value.
///
/// # Safety
/// The function's parameter has that type, and nothing else uses the function meanwhile.
pub unsafe fn set<T>(function: ffi::cl_kernel, at: u32, value: &T) -> Result<(), cl_int> {
    // SAFETY: the caller's promise; the value is copied.
    checked(unsafe { ffi::clSetKernelArg(function, at, size_of::<T>(), ptr::from_ref(value).cast()) })
}
