//! The launch half of a back end whose memory is its own: what is imported is copied, and kernels only see the copies. The
//! template's launch half, in the same folder, runs them.
#![expect(unsafe_code, reason = "memory is allocated, copied and handed on by address")]

#[path = "faulty/own_file.rs"]
mod own_file;

use flambeau_plugin::abi::{MEMORY_EXTENSION, MEMORY_OWN, Region};
use flambeau_plugin::export::{LaunchBackend, OwnMemory, memory_table};
use flambeau_plugin::{Description, Executable, LaunchLibrary};
use std::ffi::c_void;
use std::ptr;

struct Elsewhere;

/// No memory of this device.
const STATUS_DEVICE: i32 = 1;
/// No room.
const STATUS_FULL: i32 = 2;
/// Most bytes of one allocation.
const ROOM: u64 = 1 << 26;

fn template() -> Result<LaunchLibrary, String> {
    LaunchLibrary::open(&own_file::path().with_file_name("libflambeau_template_launch.so")).map_err(|e| e.to_string())
}

/// A kernel, and how many regions it takes.
struct Loaded {
    executable: Executable,
    params: usize,
}

impl LaunchBackend for Elsewhere {
    type Executable = Loaded;

    fn describe() -> Result<Description, String> {
        Ok(Description { name: own_file::name().into(), memory: MEMORY_OWN, ..template()?.description().clone() })
    }

    fn load(artifact: &[u8], device: u32) -> Result<Loaded, String> {
        let executable = template()?.load(artifact, device)?;
        let (_, kernel): (&str, flambeau_plugin::kernel::Kernel) =
            postcard::from_bytes(artifact).map_err(|e| e.to_string())?;
        Ok(Loaded { executable, params: kernel.params.len() })
    }

    unsafe fn launch(
        loaded: &Loaded,
        buffers: *const *mut c_void,
        scalars: *const i64,
        stream: *mut c_void,
        threads: u32,
    ) -> i32 {
        let address = |param| {
            // SAFETY: with memory of its own a back end is handed a region for each parameter.
            let region = unsafe { &*(*buffers.add(param)).cast::<Region>() };
            // SAFETY: it lies in a vector that `import` made.
            unsafe { (*region.memory.cast::<Vec<u8>>()).as_mut_ptr().add(region.offset as usize).cast::<c_void>() }
        };
        let pointers: Vec<*mut c_void> = (0..loaded.params).map(address).collect();
        // SAFETY: the copies have all that the kernel reaches.
        unsafe { loaded.executable.launch(pointers.as_ptr(), scalars, stream, threads) }
    }

    fn explain(status: i32) -> String {
        match status {
            STATUS_DEVICE => "there is one device only".to_owned(),
            STATUS_FULL => "the device's memory is full".to_owned(),
            other => format!("there is no status {other}"),
        }
    }

    fn extension(name: &str) -> *const c_void {
        if name == MEMORY_EXTENSION { ptr::from_ref(memory_table::<Elsewhere>()).cast() } else { ptr::null() }
    }
}

impl OwnMemory for Elsewhere {
    fn allocate(device: u32, bytes: u64) -> Result<*mut c_void, i32> {
        if device != 0 {
            return Err(STATUS_DEVICE);
        }
        if bytes > ROOM {
            return Err(STATUS_FULL);
        }
        Ok(Box::into_raw(Box::new(vec![0_u8; bytes as usize])).cast())
    }

    unsafe fn import(device: u32, host: *mut c_void, bytes: u64) -> Result<*mut c_void, i32> {
        let memory = Self::allocate(device, bytes)?;
        if bytes > 0 {
            // SAFETY: both have so many bytes.
            unsafe { (*memory.cast::<Vec<u8>>()).as_mut_ptr().copy_from_nonoverlapping(host.cast(), bytes as usize) };
        }
        Ok(memory)
    }

    unsafe fn export(memory: *mut c_void, host: *mut c_void, bytes: u64) -> Result<(), i32> {
        if bytes > 0 {
            // SAFETY: as above.
            unsafe { (*memory.cast::<Vec<u8>>()).as_ptr().copy_to_nonoverlapping(host.cast(), bytes as usize) };
        }
        Ok(())
    }

    unsafe fn release(memory: *mut c_void) {
        // SAFETY: `allocate` made it, and it is not used again.
        drop(unsafe { Box::from_raw(memory.cast::<Vec<u8>>()) });
    }

    fn synchronize(_device: u32) -> Result<(), i32> {
        Ok(())
    }
}

flambeau_plugin::export_launch_half!(Elsewhere);
