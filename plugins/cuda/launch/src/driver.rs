//! CUDA's driver API: the functions that are used, found in libcuda when they are first needed, so that the back end can say
//! what is missing where there is no driver.
//!
//! `cudarc` declares all of them. It looks for `libcuda.so` first, which may be a toolkit's stub, ends in a panic where one
//! function is missing, and reads statuses into an `enum`, which those of a newer driver are no value of.

use libloading::Library;
use std::error::Error;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::OnceLock;

/// The driver, under the name that it has on every Linux: torch has it loaded already.
pub const LIBRARY: &str = "libcuda.so.1";

/// The first CUDA with memory in the order of a stream (`cuMemAllocAsync`).
const OLDEST: c_int = 11020;

/// `CUresult`: 0, or what went wrong.
pub type Status = c_int;
/// `CUcontext`.
pub type Context = *mut c_void;
/// `CUmodule`.
pub type Module = *mut c_void;
/// `CUfunction`.
pub type Function = *mut c_void;
/// `CUstream`; torch's `cudaStream_t` is the same.
pub type Stream = *mut c_void;
/// `CUdeviceptr`.
pub type Address = u64;

/// `CUDA_ERROR_NOT_INITIALIZED`: in a child that was forked from a process that used CUDA, of the very first call.
pub const NOT_INITIALIZED: Status = 3;
/// `CUDA_ERROR_NO_DEVICE`.
pub const NO_DEVICE: Status = 100;
/// `CUDA_ERROR_INVALID_IMAGE`, `CUDA_ERROR_NO_BINARY_FOR_GPU`, `CUDA_ERROR_UNSUPPORTED_PTX_VERSION`.
pub const FOREIGN_CUBIN: [Status; 3] = [200, 209, 222];
/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR` and `..._MINOR`.
pub const COMPUTE_CAPABILITY: (c_uint, c_uint) = (75, 76);
/// `CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK`.
pub const MAX_THREADS_PER_BLOCK: c_uint = 0;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
pub const CAPTURE_RELAXED: c_uint = 2;

macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {
        /// The functions, by CUDA's names.
        #[expect(non_snake_case, reason = "CUDA's names")]
        pub struct Driver {
            $(pub $name: unsafe extern "C" fn($($argument: $type),*) -> Status,)*
        }

        impl Driver {
            /// Finds all functions in the library of this name, which stays loaded.
            pub fn open(library: &str) -> Result<Driver, String> {
                // SAFETY: what runs when the driver is loaded asks nothing of the caller.
                let library = unsafe { Library::new(library) };
                let library = library.map_err(|error| {
                    let why = error.source().map_or_else(|| error.to_string(), ToString::to_string);
                    format!("no CUDA driver was found ({why}); install NVIDIA's for the GPU of this machine")
                })?;
                let library: &'static Library = Box::leak(Box::new(library));
                // SAFETY: CUDA's documentation has the functions' signatures.
                Ok(Driver { $($name: unsafe {
                    *library.get(stringify!($name)).map_err(|_| too_old(concat!("has no ", stringify!($name))))?
                },)* })
            }
        }
    };
}

functions! {
    cuGetErrorName(error: Status, name: *mut *const c_char);
    cuGetErrorString(error: Status, text: *mut *const c_char);
    cuDriverGetVersion(version: *mut c_int);
    cuInit(flags: c_uint);
    cuDeviceGetCount(count: *mut c_int);
    cuDeviceGet(device: *mut c_int, ordinal: c_int);
    cuDeviceGetName(name: *mut c_char, length: c_int, device: c_int);
    cuDeviceGetAttribute(value: *mut c_int, attribute: c_uint, device: c_int);
    cuDevicePrimaryCtxRetain(context: *mut Context, device: c_int);
    cuCtxGetCurrent(context: *mut Context);
    cuCtxPushCurrent_v2(context: Context);
    cuCtxPopCurrent_v2(context: *mut Context);
    cuThreadExchangeStreamCaptureMode(mode: *mut c_uint);
    cuModuleLoadData(module: *mut Module, image: *const c_void);
    cuModuleGetFunction(function: *mut Function, module: Module, name: *const c_char);
    cuFuncGetAttribute(value: *mut c_int, attribute: c_uint, function: Function);
    cuLaunchKernel(function: Function, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared_bytes: c_uint, stream: Stream, arguments: *mut *mut c_void, extra: *mut *mut c_void);
    cuMemAllocAsync(address: *mut Address, bytes: usize, stream: Stream);
    cuMemFreeAsync(address: Address, stream: Stream);
}

fn too_old(what: &str) -> String {
    let (major, minor) = (OLDEST / 1000, OLDEST % 1000 / 10);
    format!("the CUDA driver {what}, so it is too old; install one for CUDA {major}.{minor} or later")
}

/// The driver of this machine, or one sentence that says why it cannot be used.
pub fn driver() -> Result<&'static Driver, String> {
    static DRIVER: OnceLock<Result<Driver, String>> = OnceLock::new();
    DRIVER.get_or_init(|| Driver::open(LIBRARY)?.recent()).as_ref().map_err(Clone::clone)
}

impl Driver {
    /// Itself, if it is not too old.
    pub fn recent(self) -> Result<Driver, String> {
        let version = self.version();
        if version < OLDEST {
            return Err(too_old(&format!("is for CUDA {}", words(version))));
        }
        Ok(self)
    }

    /// 1000 times the major version and 10 times the minor one of the CUDA that it is for.
    fn version(&self) -> c_int {
        let mut version = 0;
        // SAFETY: the number is written; this may be called before all else.
        unsafe { (self.cuDriverGetVersion)(&raw mut version) };
        version
    }

    /// `12.8`.
    pub fn cuda(&self) -> String {
        words(self.version())
    }

    /// Success, or the driver's name of what went wrong and its text.
    pub fn checked(&self, status: Status) -> Result<(), String> {
        if status == 0 { Ok(()) } else { Err(self.named(status)) }
    }

    /// `CUDA_ERROR_INVALID_VALUE (invalid argument)`.
    pub fn named(&self, status: Status) -> String {
        let text = |ask: unsafe extern "C" fn(Status, *mut *const c_char) -> Status| {
            let mut text = ptr::null();
            // SAFETY: a text that lives as long as the driver is written, or null for a status that it does not know.
            let text = unsafe {
                ask(status, &raw mut text);
                (!text.is_null()).then(|| CStr::from_ptr(text))
            };
            text.map(|text| text.to_string_lossy().into_owned())
        };
        match (text(self.cuGetErrorName), text(self.cuGetErrorString)) {
            (Some(name), Some(text)) => format!("{name} ({text})"),
            _ => format!("status {status}"),
        }
    }
}

fn words(version: c_int) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}
