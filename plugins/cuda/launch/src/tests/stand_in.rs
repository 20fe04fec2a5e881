//! Functions that stand for a driver's, as no GPU is needed to see how they are called: each writes its call down. What a GPU
//! makes of the calls, nothing here knows.

use crate::driver::{Address, Context, Driver, Function, Module, Status, Stream};
use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

/// What the stand-in of this thread answers, and what it was asked.
#[derive(Default)]
pub struct Script {
    /// Calls in order, but for those that only look at something.
    pub calls: Vec<String>,
    /// Calls that fail, by the beginning of how they are written down, and their status.
    pub fails: Vec<(&'static str, Status)>,
    /// Addresses of contexts, the current one last.
    pub contexts: Vec<usize>,
    /// Arguments that a kernel takes, each of 8 bytes.
    pub arguments: usize,
    /// Compute capabilities of its devices.
    pub devices: Vec<(c_int, c_int)>,
    /// Of CUDA.
    pub version: c_int,
}

thread_local! {
    static SCRIPT: RefCell<Script> = RefCell::default();
}

/// Looks at the script or changes it.
pub fn script<T>(look: impl FnOnce(&mut Script) -> T) -> T {
    SCRIPT.with_borrow_mut(look)
}

/// Calls so far; they are forgotten.
pub fn calls() -> Vec<String> {
    script(|script| std::mem::take(&mut script.calls))
}

fn call(what: String) -> Status {
    script(|script| {
        let status = script.fails.iter().find(|(begin, _)| what.starts_with(begin)).map_or(0, |(_, status)| *status);
        script.calls.push(what);
        status
    })
}

/// A driver for good.
pub fn driver() -> &'static Driver {
    Box::leak(Box::new(owned()))
}

/// A driver that asks this thread's script.
pub fn owned() -> Driver {
    Driver {
        cuGetErrorName: error_name,
        cuGetErrorString: error_string,
        cuDriverGetVersion: driver_version,
        cuInit: init,
        cuDeviceGetCount: device_count,
        cuDeviceGet: device,
        cuDeviceGetName: device_name,
        cuDeviceGetAttribute: device_attribute,
        cuDevicePrimaryCtxRetain: retain,
        cuCtxGetCurrent: current,
        cuCtxPushCurrent_v2: push,
        cuCtxPopCurrent_v2: pop,
        cuThreadExchangeStreamCaptureMode: exchange_mode,
        cuModuleLoadData: load,
        cuModuleGetFunction: function,
        cuFuncGetAttribute: function_attribute,
        cuLaunchKernel: launch,
        cuMemAllocAsync: allocate,
        cuMemFreeAsync: free,
    }
}

fn handle(address: usize) -> *mut c_void {
    std::ptr::without_provenance_mut(address)
}

unsafe extern "C" fn error_name(error: Status, name: *mut *const c_char) -> Status {
    let known = if error == 719 { c"CUDA_ERROR_LAUNCH_FAILED" } else { c"CUDA_ERROR_OTHER" };
    // SAFETY (all of this file): pointers are those of the code under test, which has what is written there.
    unsafe { *name = if error == 12345 { std::ptr::null() } else { known.as_ptr() } };
    0
}

unsafe extern "C" fn error_string(_: Status, text: *mut *const c_char) -> Status {
    unsafe { *text = c"its text".as_ptr() };
    0
}

unsafe extern "C" fn driver_version(version: *mut c_int) -> Status {
    unsafe { *version = script(|script| script.version) };
    0
}

unsafe extern "C" fn init(flags: c_uint) -> Status {
    call(format!("init {flags}"))
}

unsafe extern "C" fn device_count(count: *mut c_int) -> Status {
    unsafe { *count = script(|script| script.devices.len() as c_int) };
    0
}

unsafe extern "C" fn device(device: *mut c_int, ordinal: c_int) -> Status {
    unsafe { *device = 40 + ordinal };
    0
}

unsafe extern "C" fn device_name(name: *mut c_char, length: c_int, device: c_int) -> Status {
    let text = format!("GPU {device}\0");
    assert!(text.len() <= length as usize);
    unsafe { name.copy_from_nonoverlapping(text.as_ptr().cast(), text.len()) };
    0
}

unsafe extern "C" fn device_attribute(value: *mut c_int, attribute: c_uint, device: c_int) -> Status {
    let (major, minor) = script(|script| script.devices[device as usize - 40]);
    unsafe { *value = [major, minor][attribute as usize - 75] };
    0
}

unsafe extern "C" fn retain(context: *mut Context, device: c_int) -> Status {
    unsafe { *context = handle(device as usize * 100) };
    call(format!("retain {device}"))
}

unsafe extern "C" fn current(context: *mut Context) -> Status {
    unsafe { *context = handle(script(|script| script.contexts.last().copied().unwrap_or(0))) };
    0
}

unsafe extern "C" fn push(context: Context) -> Status {
    script(|script| script.contexts.push(context.addr()));
    call(format!("push {}", context.addr()))
}

unsafe extern "C" fn pop(context: *mut Context) -> Status {
    unsafe { *context = handle(script(|script| script.contexts.pop().expect("popped more than was pushed"))) };
    call("pop".to_owned())
}

unsafe extern "C" fn exchange_mode(mode: *mut c_uint) -> Status {
    let wanted = unsafe { mode.replace(0) };
    call(format!("capture mode {wanted}"))
}

unsafe extern "C" fn load(module: *mut Module, image: *const c_void) -> Status {
    assert!(image.addr().is_multiple_of(8));
    unsafe { *module = handle(7000) };
    call("load".to_owned())
}

unsafe extern "C" fn function(function: *mut Function, module: Module, name: *const c_char) -> Status {
    assert_eq!(module.addr(), 7000);
    let name = unsafe { CStr::from_ptr(name) }.to_str().expect("a name");
    // Functions of the tests have names like `entry_8001`.
    unsafe { *function = handle(name["entry_".len()..].parse().expect("a number")) };
    call(format!("function {name}"))
}

unsafe extern "C" fn function_attribute(value: *mut c_int, attribute: c_uint, _: Function) -> Status {
    assert_eq!(attribute, 0);
    unsafe { *value = 512 };
    0
}

unsafe extern "C" fn launch(
    function: Function,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared_bytes: c_uint,
    stream: Stream,
    arguments: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Status {
    assert_eq!((grid_y, grid_z, block_y, block_z, shared_bytes), (1, 1, 1, 1, 0));
    assert!(extra.is_null());
    let count = script(|script| script.arguments);
    let given: Vec<u64> = (0..count).map(|at| unsafe { *(*arguments.add(at)).cast() }).collect();
    call(format!("launch {} of {grid_x} x {block_x} in {}: {given:?}", function.addr(), stream.addr()))
}

unsafe extern "C" fn allocate(address: *mut Address, bytes: usize, stream: Stream) -> Status {
    unsafe { *address = 0x9000 };
    call(format!("allocate {bytes} in {}", stream.addr()))
}

unsafe extern "C" fn free(address: Address, stream: Stream) -> Status {
    call(format!("free {address:#x} in {}", stream.addr()))
}
