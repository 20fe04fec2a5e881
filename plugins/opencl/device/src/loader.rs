//! OpenCL's functions, found in libOpenCL when they are first needed, so that the back end can say what is missing where there
//! is none. `ocl-core` calls them by their names.

use libloading::Library;
use ocl_core::ffi::{
    c_char, c_uchar, c_void, cl_command_queue, cl_command_queue_properties, cl_context, cl_context_properties,
    cl_device_id, cl_event, cl_int, cl_kernel, cl_mem, cl_platform_id, cl_program, cl_uint, cl_ulong, size_t,
};
use std::error::Error;
use std::sync::OnceLock;

/// The loader of drivers, under the name that it has on every Linux.
const LIBRARY: &str = "libOpenCL.so.1";

static TABLE: OnceLock<Result<Table, String>> = OnceLock::new();

/// Finds all functions. None of them may be called unless this has succeeded. The error is part of a sentence.
pub fn load() -> Result<(), String> {
    TABLE.get_or_init(Table::open).as_ref().map(|_| ()).map_err(Clone::clone)
}

macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        #[expect(non_snake_case, reason = "OpenCL's names")]
        struct Table {
            $($name: unsafe extern "C" fn($($type),*) $(-> $result)?,)*
        }

        impl Table {
            fn open() -> Result<Table, String> {
                // SAFETY: what runs when the loader of drivers is loaded asks nothing of the caller.
                let library = unsafe { Library::new(LIBRARY) };
                let why = |error: libloading::Error| error.source().map_or_else(|| error.to_string(), ToString::to_string);
                let library: &'static Library = Box::leak(Box::new(library.map_err(why)?));
                // SAFETY: OpenCL's specification has the functions' signatures.
                Ok(Table { $($name: unsafe {
                    *library.get(stringify!($name)).map_err(|_| concat!(stringify!($name), " is not in libOpenCL.so.1"))?
                },)* })
            }
        }

        $(
            // SAFETY: the name is OpenCL's, and so is the signature; other libraries do not look into plug-ins for names.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($argument: $type),*) $(-> $result)? {
                let Some(Ok(table)) = TABLE.get() else { unreachable!("OpenCL is called before it is loaded") };
                // SAFETY: passed on.
                unsafe { (table.$name)($($argument),*) }
            }
        )*
    };
}

type Notify<T> = Option<extern "C" fn(T, *mut c_void)>;
type NotifyContext = Option<extern "C" fn(*const c_char, *const c_void, size_t, *mut c_void)>;

functions! {
    clGetPlatformIDs(entries: cl_uint, platforms: *mut cl_platform_id, count: *mut cl_uint) -> cl_int;
    clGetPlatformInfo(of: cl_platform_id, what: cl_uint, size: size_t, value: *mut c_void, needed: *mut size_t) -> cl_int;
    clGetDeviceIDs(of: cl_platform_id, kind: cl_ulong, entries: cl_uint, devices: *mut cl_device_id, count: *mut cl_uint)
        -> cl_int;
    clGetDeviceInfo(of: cl_device_id, what: cl_uint, size: size_t, value: *mut c_void, needed: *mut size_t) -> cl_int;
    clCreateContext(properties: *const cl_context_properties, count: cl_uint, devices: *const cl_device_id,
        notify: NotifyContext, data: *mut c_void, status: *mut cl_int) -> cl_context;
    clRetainContext(context: cl_context) -> cl_int;
    clReleaseContext(context: cl_context) -> cl_int;
    clGetContextInfo(of: cl_context, what: cl_uint, size: size_t, value: *mut c_void, needed: *mut size_t) -> cl_int;
    clCreateCommandQueue(context: cl_context, device: cl_device_id, properties: cl_command_queue_properties,
        status: *mut cl_int) -> cl_command_queue;
    clRetainCommandQueue(queue: cl_command_queue) -> cl_int;
    clReleaseCommandQueue(queue: cl_command_queue) -> cl_int;
    clCreateBuffer(context: cl_context, flags: cl_ulong, size: size_t, host: *mut c_void, status: *mut cl_int) -> cl_mem;
    clReleaseMemObject(memory: cl_mem) -> cl_int;
    clEnqueueMapBuffer(queue: cl_command_queue, memory: cl_mem, blocking: cl_uint, flags: cl_ulong, offset: size_t,
        size: size_t, waits: cl_uint, wait_for: *const cl_event, event: *mut cl_event, status: *mut cl_int) -> *mut c_void;
    clEnqueueUnmapMemObject(queue: cl_command_queue, memory: cl_mem, mapped: *mut c_void, waits: cl_uint,
        wait_for: *const cl_event, event: *mut cl_event) -> cl_int;
    clCreateProgramWithSource(context: cl_context, count: cl_uint, strings: *const *const c_char, lengths: *const size_t,
        status: *mut cl_int) -> cl_program;
    clCreateProgramWithBinary(context: cl_context, count: cl_uint, devices: *const cl_device_id, lengths: *const size_t,
        binaries: *const *const c_uchar, statuses: *mut cl_int, status: *mut cl_int) -> cl_program;
    clRetainProgram(program: cl_program) -> cl_int;
    clReleaseProgram(program: cl_program) -> cl_int;
    clBuildProgram(program: cl_program, count: cl_uint, devices: *const cl_device_id, options: *const c_char,
        notify: Notify<cl_program>, data: *mut c_void) -> cl_int;
    clGetProgramInfo(of: cl_program, what: cl_uint, size: size_t, value: *mut c_void, needed: *mut size_t) -> cl_int;
    clGetProgramBuildInfo(of: cl_program, device: cl_device_id, what: cl_uint, size: size_t, value: *mut c_void,
        needed: *mut size_t) -> cl_int;
    clCreateKernel(program: cl_program, name: *const c_char, status: *mut cl_int) -> cl_kernel;
    clRetainKernel(kernel: cl_kernel) -> cl_int;
    clReleaseKernel(kernel: cl_kernel) -> cl_int;
    clSetKernelArg(kernel: cl_kernel, at: cl_uint, size: size_t, value: *const c_void) -> cl_int;
    clSetKernelArgSVMPointer(kernel: cl_kernel, at: cl_uint, value: *const c_void) -> cl_int;
    clEnqueueNDRangeKernel(queue: cl_command_queue, kernel: cl_kernel, dims: cl_uint, offset: *const size_t,
        global: *const size_t, local: *const size_t, waits: cl_uint, wait_for: *const cl_event, event: *mut cl_event)
        -> cl_int;
    clEnqueueReadBuffer(queue: cl_command_queue, memory: cl_mem, blocking: cl_uint, offset: size_t, size: size_t,
        host: *mut c_void, waits: cl_uint, wait_for: *const cl_event, event: *mut cl_event) -> cl_int;
    clFinish(queue: cl_command_queue) -> cl_int;
    clWaitForEvents(count: cl_uint, events: *const cl_event) -> cl_int;
    clReleaseEvent(event: cl_event) -> cl_int;
}
