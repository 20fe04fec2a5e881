//! One kernel: its functions on a device, and launches of them in a stream. A launch waits for nothing, allocates nothing but
//! in the order of its stream, and so can be captured in a CUDA graph.

use crate::DRIVER;
use crate::device::{Current, Device};
use crate::driver::{self, Address, CAPTURE_RELAXED, Context, FOREIGN_CUBIN, Function, MAX_THREADS_PER_BLOCK, Module};
use crate::driver::{Driver, Status, Stream};
use flambeau_cuda_artifact::{Header, Launch, decode};
use flambeau_plugin::fork;
use smallvec::SmallVec;
use std::ffi::{CString, c_void};
use std::ptr;

/// A status of ours: CUDA's are positive, and -1 is a panic's.
pub const STATUS_FORKED: Status = -2;

/// `CUDA_ERROR_ILLEGAL_ADDRESS` to `CUDA_ERROR_LAUNCH_FAILED`: a kernel failed while it ran, perhaps one of before.
const FAILED_EARLIER: std::ops::RangeInclusive<Status> = 700..=719;

/// Kernels with more arguments have their addresses on the heap.
const FEW_ARGUMENTS: usize = 24;

/// A kernel ready to run on its device.
pub struct Kernel {
    driver: &'static Driver,
    context: Context,
    header: Header,
    plain: Vec<Function>,
    fast: Vec<Function>,
}

// SAFETY: the driver takes its handles from any thread.
unsafe impl Send for Kernel {}
// SAFETY: as above; nothing changes after loading.
unsafe impl Sync for Kernel {}

impl Kernel {
    /// The kernel of an artifact that was made for this device.
    pub fn load(device: &Device, artifact: &[u8]) -> Result<Kernel, String> {
        if fork::is_child() {
            return Err(fork::sentence(DRIVER));
        }
        let (header, cubin) = decode(artifact).map_err(|error| error.to_string())?;
        if header.target != device.target {
            return Err(format!("the artifact is for {}, and {} is {}", header.target, device.name, device.target));
        }
        let (driver, context) = (device.driver, device.context()?);
        let _current = Current::enter(driver, context).map_err(|status| driver.named(status))?;
        let _relaxed = Relaxed::enter(driver);
        let module = device.module(header.hash, || load_module(driver, cubin))?;
        let functions = |launches: &[Launch]| launches.iter().map(|launch| function(driver, module, launch)).collect();
        let plain = functions(&header.plain)?;
        let fast = header.fast.as_ref().map_or_else(|| Ok(Vec::new()), |fast| functions(&fast.launches))?;
        Ok(Kernel { driver, context, header, plain, fast })
    }

    /// Puts it into a stream; 0, or a status for [`explain`].
    ///
    /// # Safety
    /// There are as many buffers and scalars as the kernel has, good for what it reaches until the stream has drained; the
    /// stream is one of the device, or null for its default one.
    pub unsafe fn launch(&self, buffers: *const *mut c_void, scalars: *const i64, stream: Stream) -> Status {
        if fork::is_child() {
            return STATUS_FORKED;
        }
        let header = &self.header;
        // SAFETY: the caller's promise.
        let (buffers, scalars) =
            unsafe { (slice(buffers, header.buffers as usize), slice(scalars, header.scalars as usize)) };
        let fast = header.fast.as_ref().filter(|fast| fast.fits(buffers.iter().map(|b| b.addr()), scalars));
        let (launches, functions) = match fast {
            Some(fast) => (&fast.launches, &self.fast),
            None => (&header.plain, &self.plain),
        };
        let grids: SmallVec<[u32; 4]> = launches.iter().map(|launch| launch.grid(scalars)).collect();
        if grids.iter().all(|blocks| *blocks == 0) {
            return 0;
        }
        let run = || {
            let _current = Current::enter(self.driver, self.context)?;
            let scratch = Scratch::new(self.driver, header.scratch.as_ref().map(|bytes| bytes.value(scalars)), stream)?;
            let mut arguments: SmallVec<[*mut c_void; FEW_ARGUMENTS]> = SmallVec::new();
            arguments.extend(buffers.iter().map(|buffer| (&raw const *buffer).cast_mut().cast()));
            arguments.extend(scalars.iter().map(|scalar| (&raw const *scalar).cast_mut().cast()));
            arguments.extend(scratch.argument());
            let steps = launches.iter().zip(functions).zip(grids);
            for ((launch, function), blocks) in steps.filter(|(_, blocks)| *blocks > 0) {
                // SAFETY: the function takes these arguments, which are read before this returns.
                checked(unsafe {
                    (self.driver.cuLaunchKernel)(
                        *function,
                        blocks,
                        1,
                        1,
                        launch.threads,
                        1,
                        1,
                        0,
                        stream,
                        arguments.as_mut_ptr(),
                        ptr::null_mut(),
                    )
                })?;
            }
            scratch.free()
        };
        run().err().unwrap_or(0)
    }
}

/// Memory that the launches of one call share; given back in the order of the stream, whatever becomes of them.
struct Scratch {
    driver: &'static Driver,
    stream: Stream,
    /// `None` if the kernel takes none. Null where it takes no bytes.
    address: Option<Address>,
}

impl Scratch {
    fn new(driver: &'static Driver, bytes: Option<u64>, stream: Stream) -> Result<Scratch, Status> {
        let mut address = 0;
        if let Some(bytes @ 1..) = bytes {
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            // SAFETY: the address is written.
            checked(unsafe { (driver.cuMemAllocAsync)(&raw mut address, bytes, stream) })?;
        }
        Ok(Scratch { driver, stream, address: bytes.map(|_| address) })
    }

    /// Where its address is, if the kernel takes one.
    fn argument(&self) -> Option<*mut c_void> {
        self.address.as_ref().map(|address| (&raw const *address).cast_mut().cast())
    }

    fn free(mut self) -> Result<(), Status> {
        checked(self.give_back())
    }

    fn give_back(&mut self) -> Status {
        match self.address.take() {
            // SAFETY: allocated above, and used by nothing that comes later in the stream.
            Some(address @ 1..) => unsafe { (self.driver.cuMemFreeAsync)(address, self.stream) },
            _ => 0,
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// While this lives, this thread may load modules though another stream of it is being captured in a graph.
struct Relaxed {
    driver: &'static Driver,
    mode: u32,
}

impl Relaxed {
    fn enter(driver: &'static Driver) -> Relaxed {
        let mut relaxed = Relaxed { driver, mode: CAPTURE_RELAXED };
        relaxed.exchange();
        relaxed
    }

    /// Swaps the thread's mode and this one.
    fn exchange(&mut self) {
        // SAFETY: a mode is read and one is written.
        unsafe { (self.driver.cuThreadExchangeStreamCaptureMode)(&raw mut self.mode) };
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        self.exchange();
    }
}

/// The context is current.
fn load_module(driver: &Driver, cubin: &[u8]) -> Result<Module, String> {
    // An ELF file's numbers are at multiples of eight bytes.
    let mut image = vec![0_u64; cubin.len().div_ceil(size_of::<u64>())];
    // SAFETY: there is room for the cubin, and both are plain bytes.
    unsafe { image.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(cubin.as_ptr(), cubin.len()) };
    let mut module = ptr::null_mut();
    // SAFETY: the image is a whole cubin, as its hash says, and is copied.
    let status = unsafe { (driver.cuModuleLoadData)(&raw mut module, image.as_ptr().cast()) };
    driver.checked(status).map(|()| module).map_err(|why| {
        let advice = if FOREIGN_CUBIN.contains(&status) {
            format!("; the driver is for CUDA {}: update it if the compiler, NVRTC, is of a later one", driver.cuda())
        } else {
            String::new()
        };
        format!("the driver does not load the kernel: {why}{advice}")
    })
}

/// The function of a launch, which takes as many threads as that has.
fn function(driver: &Driver, module: Module, launch: &Launch) -> Result<Function, String> {
    let entry = &launch.entry;
    let name = CString::new(entry.as_str()).map_err(|error| error.to_string())?;
    let mut function = ptr::null_mut();
    // SAFETY: the function is written; names end in a zero.
    let status = unsafe { (driver.cuModuleGetFunction)(&raw mut function, module, name.as_ptr()) };
    driver.checked(status).map_err(|why| format!("the artifact's cubin has no {entry}: {why}"))?;
    let mut most = 0;
    // SAFETY: the number is written.
    let status = unsafe { (driver.cuFuncGetAttribute)(&raw mut most, MAX_THREADS_PER_BLOCK, function) };
    driver.checked(status).map_err(|why| format!("{entry} cannot be looked at: {why}"))?;
    if i64::from(most) < i64::from(launch.threads) {
        return Err(format!("{entry} is for blocks of {} threads, and takes {most} at most", launch.threads));
    }
    Ok(function)
}

fn checked(status: Status) -> Result<(), Status> {
    if status == 0 { Ok(()) } else { Err(status) }
}

/// # Safety
/// `start` points to so many, which nothing changes; it may be anything where that is none.
unsafe fn slice<'a, T>(start: *const T, length: usize) -> &'a [T] {
    // SAFETY: the caller's promise.
    if length == 0 { &[] } else { unsafe { std::slice::from_raw_parts(start, length) } }
}

/// A sentence for a status of [`Kernel::launch`].
pub fn explain(status: Status) -> String {
    if status == STATUS_FORKED {
        return fork::sentence(DRIVER);
    }
    let name = driver::driver().map_or_else(|_| format!("status {status}"), |driver| driver.named(status));
    let earlier = if FAILED_EARLIER.contains(&status) {
        "; a kernel that was launched before may have failed, run with CUDA_LAUNCH_BLOCKING=1 to see which"
    } else {
        ""
    };
    format!("the CUDA driver said {name}{earlier}")
}
