//! The launch half of a back end for tests: runs the grids of what was compiled for the processor, launch by launch as the
//! artifact says. Under a name that ends in `plain` it never takes the fast ones.
#![expect(unsafe_code, reason = "compiled kernels are called")]

#[path = "../../../../daemon/codegen/examples/faulty/own_file.rs"]
mod own_file;

use flambeau_cuda_artifact::{Header, Launch, capabilities, decode};
use flambeau_plugin::Description;
use flambeau_plugin::abi::Device;
use flambeau_plugin::export::LaunchBackend;
use libloading::Library;
use std::ffi::c_void;
use std::io::Write;

/// See `on_cpu/cuda.h`.
type RunGrid = unsafe extern "C" fn(kernel: *const c_void, blocks: u32, threads: u32, arguments: *mut i64);

/// As many as it hands on.
const MOST_ARGUMENTS: usize = 32;

struct OnCpu;

struct Loaded {
    header: Header,
    library: Library,
}

impl LaunchBackend for OnCpu {
    type Executable = Loaded;

    fn describe() -> Result<Description, String> {
        let device = Device::new("the processor, with the CUDA back end's code", &["sm_90"]);
        Ok(Description::of_launch_half(&own_file::name(), env!("CARGO_PKG_VERSION"), vec![device], &capabilities()))
    }

    fn load(artifact: &[u8], _device: u32) -> Result<Loaded, String> {
        let (mut header, code) = decode(artifact).map_err(|error| error.to_string())?;
        if own_file::name().ends_with("plain") {
            header.fast = None;
        }
        let mut file = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
        file.write_all(code).map_err(|error| error.to_string())?;
        // SAFETY: g++ made it; nothing runs when it is loaded.
        let library = unsafe { Library::new(file.path()) }.map_err(|error| error.to_string())?;
        Ok(Loaded { header, library })
    }

    unsafe fn launch(
        loaded: &Loaded,
        buffers: *const *mut c_void,
        scalars: *const i64,
        _stream: *mut c_void,
        threads: u32,
    ) -> i32 {
        let (buffer_count, scalar_count) = (loaded.header.buffers as usize, loaded.header.scalars as usize);
        // SAFETY: the caller's promise.
        let buffers: Vec<i64> = (0..buffer_count).map(|at| unsafe { *buffers.add(at) } as i64).collect();
        // SAFETY: the caller's promise.
        let scalars: Vec<i64> = (0..scalar_count).map(|at| unsafe { *scalars.add(at) }).collect();
        let bytes = loaded.header.scratch.as_ref().map_or(0, |scratch| scratch.value(&scalars));
        // No particular content: numbers that show where they are used.
        let mut scratch = vec![0xffff_ffff_ffff_ffff_u64; bytes.div_ceil(16) as usize * 2];
        let mut arguments = [&buffers[..], &scalars, &[scratch.as_mut_ptr() as i64]].concat();
        arguments.resize(MOST_ARGUMENTS, 0);
        for launch in loaded.header.launches(buffers.iter().map(|address| *address as usize), &scalars) {
            // SAFETY: the caller's promise.
            unsafe { loaded.run(launch, &scalars, &mut arguments, threads) };
        }
        0
    }

    fn explain(status: i32) -> String {
        format!("there is no status {status}")
    }
}

impl Loaded {
    /// # Safety
    /// The arguments are what the kernel was compiled for.
    unsafe fn run(&self, launch: &Launch, scalars: &[i64], arguments: &mut [i64], threads: u32) {
        let grid = launch.grid(scalars);
        // With fewer blocks than there is work for, each does more.
        let blocks = if threads == 1 { grid - grid / 3 } else { grid };
        if blocks == 0 {
            return;
        }
        // SAFETY: functions of the program, whose arguments the caller vouches for.
        unsafe {
            let run = self.library.get::<RunGrid>("run_grid").expect("cuda.h has it");
            let kernel = self.library.get::<*const c_void>(launch.entry.as_str()).expect("the program has it");
            run(*kernel, blocks, launch.threads, arguments.as_mut_ptr());
        }
    }
}

flambeau_plugin::export_launch_half!(OnCpu);
