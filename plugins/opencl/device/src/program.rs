//! One compiled kernel: made from OpenCL C or from an artifact, and launched.
//!
//! A kernel takes its buffers, its scalars, how many units of work there are and how many of them a work-item does. Work-groups
//! have one work-item: on a CPU each is a thread's share, whose loops the driver turns into vector code.

use crate::DRIVER;
use crate::artifact::{Header, decode, encode};
use crate::device::{Buffers, Device, line, status};
use crate::memory::HostBuffers;
use crate::own::{STATUS_DEVICE, argument, set};
use flambeau_plugin::fork;
use flambeau_plugin::kernel::Extent;
use num_traits::FromPrimitive;
use ocl_core::ffi::{self, c_void, cl_event, cl_int, cl_uint, size_t};
use ocl_core::{Program, ProgramInfo, ProgramInfoResult, Status};
use std::ffi::CString;
use std::ptr;
use std::sync::{Mutex, PoisonError};

/// Name of the function in OpenCL C.
pub const ENTRY: &str = "run";

/// Fewer points than this on another thread cost more than they give.
const POINTS_PER_SHARE: i64 = 16_384;

/// Shares of each core, so that one that is slowed down keeps the others waiting no longer.
const SHARES: u32 = 4;

/// A status of ours: OpenCL's are negative.
pub const STATUS_FORKED: i32 = 1;

/// Things of which a launch needs one for itself. They are made as they are missed.
pub struct Spare<T>(Mutex<Vec<T>>);

impl<T> Default for Spare<T> {
    fn default() -> Self {
        Spare(Mutex::default())
    }
}

impl<T> Spare<T> {
    fn take<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let found = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        found.map_or_else(make, Ok)
    }

    fn give_back(&self, one: T) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(one);
    }
}

/// A kernel ready to run on its device.
pub struct Kernel {
    device: &'static Device,
    header: Header,
    program: Program,
    functions: Spare<ocl_core::Kernel>,
}

impl Kernel {
    /// The artifact of a kernel in OpenCL C. It is run once, over no units: some drivers complete their code only then.
    pub fn compile(device: &'static Device, source: &str, header: Header) -> Result<Vec<u8>, String> {
        let firsts = if device.has_own_memory() { header.buffers.len() } else { 0 };
        let arguments = header.buffers.len() + header.scalars as usize + firsts + 2;
        if arguments * size_of::<u64>() > device.argument_bytes {
            return Err(format!("{} takes no kernel of {arguments} arguments", device.name));
        }
        let source = CString::new(source).map_err(|error| error.to_string())?;
        let program = ocl_core::create_program_with_source(&device.context, &[source]).map_err(|e| line(&e))?;
        let rounding = if device.rounds_f32 { "-cl-fp32-correctly-rounded-divide-sqrt" } else { "" };
        let kernel = Kernel::build(device, header, program, &format!("-w -cl-std=CL1.2 {rounding}"))?;
        match ocl_core::get_program_info(&kernel.program, ProgramInfo::Binaries) {
            Ok(ProgramInfoResult::Binaries(binaries)) if binaries.len() == 1 && !binaries[0].is_empty() => {
                Ok(encode(kernel.header.clone(), &binaries[0]))
            }
            Ok(_) => Err(format!("{} gives no binary of a program", device.name)),
            Err(error) => Err(line(&error)),
        }
    }

    /// The kernel of an artifact that was made for this device and driver.
    pub fn load(device: &'static Device, artifact: &[u8]) -> Result<Kernel, String> {
        if fork::is_child() {
            return Err(fork::sentence(DRIVER));
        }
        let (header, binary) = decode(artifact).map_err(|error| error.to_string())?;
        if header.target != device.target {
            return Err(format!("the artifact is for {}, and this device is {}", header.target, device.target));
        }
        let program =
            ocl_core::create_program_with_binary(&device.context, &[device.id], &[binary]).map_err(|e| line(&e))?;
        Kernel::build(device, header, program, "")
    }

    fn build(device: &'static Device, header: Header, program: Program, options: &str) -> Result<Kernel, String> {
        let options = CString::new(options).map_err(|error| error.to_string())?;
        ocl_core::build_program(&program, Some(&[device.id]), &options, None, None).map_err(|e| line(&e))?;
        let kernel = Kernel { device, header, program, functions: Spare::default() };
        let buffers = vec![ptr::null_mut(); kernel.header.buffers.len()];
        let scalars = vec![0; kernel.header.scalars as usize];
        // SAFETY: with no units the kernel touches no buffer.
        let run = unsafe { kernel.run(&buffers, &scalars, Shares { units: 0, chunk: 0, count: 1 }) };
        match run.and_then(|()| device.finish()) {
            Ok(()) => Ok(kernel),
            Err(status) => Err(format!("the kernel does not start: {}", explain(status))),
        }
    }

    /// Runs it over all of its units; 0, or a status for [`explain`].
    ///
    /// # Safety
    /// There are as many buffers and scalars as the kernel has, good for what it reaches.
    pub unsafe fn launch(&self, buffers: *const *mut c_void, scalars: *const i64, threads: u32) -> i32 {
        if fork::is_child() {
            return STATUS_FORKED;
        }
        let header = &self.header;
        // SAFETY: the caller's promise.
        let (buffers, scalars) =
            unsafe { (slice(buffers, header.buffers.len()), slice(scalars, header.scalars as usize)) };
        let (outer, inner) = header.dims.split_at(header.split);
        let units = product(outer, scalars);
        if units <= 0 {
            return 0;
        }
        let shares = self.shares(units, product(inner, scalars), threads);
        // SAFETY: the caller's promise.
        unsafe { self.run(buffers, scalars, shares) }.err().unwrap_or(0)
    }

    fn shares(&self, units: i64, points: i64, threads: u32) -> Shares {
        if self.device.is_wide {
            return Shares { units, chunk: 1, count: units as usize };
        }
        let cores = self.device.cores;
        let most = if threads >= cores { cores.saturating_mul(SHARES) } else { threads };
        let useful = units.saturating_mul(points.max(1)) / POINTS_PER_SHARE;
        let chunk = div_ceil(units, useful.clamp(1, i64::from(most.max(1))).min(units));
        Shares { units, chunk, count: div_ceil(units, chunk) as usize }
    }

    /// # Safety
    /// As [`Kernel::launch`].
    unsafe fn run(&self, buffers: &[*mut c_void], scalars: &[i64], shares: Shares) -> Result<(), cl_int> {
        let device = self.device;
        let function = self.functions.take(|| ocl_core::create_kernel(&self.program, ENTRY).map_err(status))?;
        // SAFETY (both): the caller's promise; the function is this launch's alone.
        let done = if device.has_own_memory() {
            unsafe { self.enqueue(function.as_ptr(), buffers, scalars, shares) }
        } else {
            let queue = device
                .queues
                .take(|| ocl_core::create_command_queue(&device.context, device.id, None).map_err(status))?;
            let done = unsafe { self.run_with(queue.as_ptr(), function.as_ptr(), buffers, scalars, shares) };
            device.queues.give_back(queue);
            done
        };
        self.functions.give_back(function);
        done
    }

    /// Puts it into the queue of the device's own memory.
    ///
    /// # Safety
    /// As [`Kernel::launch`]; nothing else uses the function meanwhile.
    unsafe fn enqueue(
        &self,
        function: ffi::cl_kernel,
        regions: &[*mut c_void],
        scalars: &[i64],
        shares: Shares,
    ) -> Result<(), cl_int> {
        let mut firsts = Vec::with_capacity(regions.len());
        for ((at, region), buffer) in (0..).zip(regions).zip(&self.header.buffers) {
            // SAFETY: the caller's promise.
            let (memory, bytes) = unsafe { argument(*region) };
            firsts.push(bytes as i64 / i64::from(buffer.element));
            // SAFETY: the kernel's parameter is a buffer.
            unsafe { set(function, at, &memory)? };
        }
        let units = [shares.units, shares.chunk];
        let numbers = scalars.iter().chain(&firsts).chain(&units);
        for (number, at) in numbers.zip(regions.len() as cl_uint..) {
            // SAFETY: the kernel's parameter is a `long`.
            unsafe { set(function, at, number)? };
        }
        // SAFETY: all arguments are set; the queue keeps them.
        unsafe { enqueue(self.device.queue()?, function, shares.count, self.device.is_wide, ptr::null_mut()) }
    }

    /// Runs it, and waits for it.
    ///
    /// # Safety
    /// As [`Kernel::launch`]; nothing else uses queue and function meanwhile.
    unsafe fn run_with(
        &self,
        queue: ffi::cl_command_queue,
        function: ffi::cl_kernel,
        buffers: &[*mut c_void],
        scalars: &[i64],
        shares: Shares,
    ) -> Result<(), cl_int> {
        let mut made = None;
        if self.device.buffers == Buffers::Pointers {
            for (at, buffer) in (0..).zip(buffers) {
                // SAFETY: the device uses the host's memory as it is.
                checked(unsafe { ffi::clSetKernelArgSVMPointer(function, at, *buffer) })?;
            }
        } else {
            // SAFETY: the caller's promise.
            let host = made.insert(unsafe { HostBuffers::new(self.device, &self.header, buffers, scalars)? });
            for (at, memory) in (0..).zip(host.memory()) {
                // SAFETY: the kernel's parameter is a buffer.
                unsafe { set(function, at, memory)? };
            }
        }
        for (number, at) in scalars.iter().chain(&[shares.units, shares.chunk]).zip(buffers.len() as cl_uint..) {
            // SAFETY: the kernel's parameter is a `long`.
            unsafe { set(function, at, number)? };
        }
        let mut event: cl_event = ptr::null_mut();
        // SAFETY: all arguments are set, and good until this returns; the event is not used after it was released.
        unsafe {
            enqueue(queue, function, shares.count, self.device.is_wide, &raw mut event)?;
            let waited = ffi::clWaitForEvents(1, &raw const event);
            ffi::clReleaseEvent(event);
            checked(waited)?;
        }
        // SAFETY: the launch is done.
        made.map_or(Ok(()), |host| unsafe { host.finish(queue) })
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // Drivers end the process where a program goes while the queue still has launches of it.
        if !fork::is_child() {
            let _ = self.device.finish();
        }
    }
}

/// How the units of a launch are divided.
#[derive(Clone, Copy)]
struct Shares {
    units: i64,
    /// Units of a share.
    chunk: i64,
    /// Shares, and so work-items.
    count: usize,
}

/// Puts work-items into a queue: in groups as the driver likes them if `is_wide`, else each in a group of its own.
///
/// # Safety
/// The function's arguments are set, and good until the event, if one is asked for, or the queue is done.
unsafe fn enqueue(
    queue: ffi::cl_command_queue,
    function: ffi::cl_kernel,
    count: size_t,
    is_wide: bool,
    event: *mut cl_event,
) -> Result<(), cl_int> {
    let one: size_t = 1;
    let group = if is_wide { ptr::null() } else { &raw const one };
    // SAFETY: one dimension each; the caller's promise.
    checked(unsafe {
        ffi::clEnqueueNDRangeKernel(queue, function, 1, ptr::null(), &raw const count, group, 0, ptr::null(), event)
    })
}

/// OpenCL's success, or its status.
pub fn checked(status: cl_int) -> Result<(), cl_int> {
    if status == ffi::CL_SUCCESS { Ok(()) } else { Err(status) }
}

/// # Safety
/// `start` points to so many, which nothing changes; it may be anything where that is none.
unsafe fn slice<'a, T>(start: *const T, length: usize) -> &'a [T] {
    // SAFETY: the caller's promise.
    if length == 0 { &[] } else { unsafe { std::slice::from_raw_parts(start, length) } }
}

/// An extent's value in a launch.
pub fn value(extent: Extent, scalars: &[i64]) -> i64 {
    match extent {
        Extent::Const(value) => value,
        Extent::Scalar(at) => scalars[at as usize],
    }
}

fn product(extents: &[Extent], scalars: &[i64]) -> i64 {
    extents.iter().fold(1, |product: i64, extent| product.saturating_mul(value(*extent, scalars)))
}

fn div_ceil(a: i64, b: i64) -> i64 {
    a / b + i64::from(a % b != 0)
}

/// A sentence for a status of [`Kernel::launch`].
pub fn explain(status: i32) -> String {
    if status == STATUS_FORKED {
        return fork::sentence(DRIVER);
    }
    if status == STATUS_DEVICE {
        return "there is no such OpenCL device".to_owned();
    }
    match Status::from_i32(status) {
        Some(known) => format!("the OpenCL driver said {known:?}"),
        None => format!("the OpenCL driver said {status}"),
    }
}
