//! NVRTC, the compiler of CUDA C: found at run time, in the folders that workers are told of or by the loader.
//!
//! Its few functions are declared here, as `cudarc` ends in a panic where the library is missing.

use libloading::Library;
use std::env;
use std::error::Error;
use std::ffi::{CString, OsStr, c_char, c_int, c_void};
use std::fs;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::OnceLock;

/// What the folders stand in, separated by colons.
const VARIABLE: &str = "FLAMBEAU_LIBRARY_PATH";

/// What a file of the library is called, before its major version.
const FILE: &str = "libnvrtc.so.";

/// The versions that the loader is asked for.
const VERSIONS: [u32; 2] = [13, 12];

const ADVICE: &str = "it comes with torch for CUDA; without that, `pip install nvidia-cuda-nvrtc` brings it";

/// A program on its way: `nvrtcProgram`.
type Handle = *mut c_void;

macro_rules! functions {
    ($($(#[$only:meta])? $name:ident($($argument:ident: $type:ty),*);)*) => {
        #[expect(non_snake_case, reason = "NVRTC's names")]
        struct Functions {
            $($(#[$only])? $name: unsafe extern "C" fn($($argument: $type),*) -> c_int,)*
        }

        impl Functions {
            fn of(library: &'static Library) -> Result<Functions, String> {
                // SAFETY: NVRTC's documentation has the functions' signatures.
                Ok(Functions { $($(#[$only])? $name: unsafe {
                    *library.get(stringify!($name)).map_err(|_| concat!("it has no ", stringify!($name)).to_owned())?
                },)* })
            }
        }
    };
}

functions! {
    nvrtcVersion(major: *mut c_int, minor: *mut c_int);
    nvrtcGetNumSupportedArchs(count: *mut c_int);
    nvrtcGetSupportedArchs(archs: *mut c_int);
    nvrtcCreateProgram(program: *mut Handle, source: *const c_char, name: *const c_char, headers: c_int,
        texts: *const *const c_char, names: *const *const c_char);
    nvrtcCompileProgram(program: Handle, count: c_int, options: *const *const c_char);
    nvrtcGetProgramLogSize(program: Handle, size: *mut usize);
    nvrtcGetProgramLog(program: Handle, log: *mut c_char);
    nvrtcGetCUBINSize(program: Handle, size: *mut usize);
    nvrtcGetCUBIN(program: Handle, cubin: *mut c_char);
    #[cfg(test)] nvrtcGetPTXSize(program: Handle, size: *mut usize);
    #[cfg(test)] nvrtcGetPTX(program: Handle, ptx: *mut c_char);
    nvrtcDestroyProgram(program: *mut Handle);
}

/// The library.
pub struct Nvrtc {
    functions: Functions,
    version: String,
    targets: Vec<String>,
}

/// The library of this process, or why there is none.
pub fn nvrtc() -> Result<&'static Nvrtc, String> {
    static NVRTC: OnceLock<Result<Nvrtc, String>> = OnceLock::new();
    let folders = env::var_os(VARIABLE).unwrap_or_default();
    NVRTC.get_or_init(|| Nvrtc::find(&folders)).as_ref().map_err(Clone::clone)
}

impl Nvrtc {
    /// The first one in these folders, separated by colons, else the loader's.
    pub fn find(folders: &OsStr) -> Result<Nvrtc, String> {
        let mut files: Vec<PathBuf> = env::split_paths(folders).flat_map(|folder| libraries(&folder)).collect();
        files.extend(VERSIONS.map(|version| format!("{FILE}{version}").into()));
        let mut why = String::new();
        for file in files {
            match Nvrtc::open(&file) {
                Ok(nvrtc) => return Ok(nvrtc),
                // What is said of the first one is what the user can do something about.
                Err(error) if why.is_empty() => why = error,
                Err(_) => {}
            }
        }
        Err(format!("NVRTC, CUDA's run-time compiler, cannot be loaded ({why}); {ADVICE}"))
    }

    fn open(file: &Path) -> Result<Nvrtc, String> {
        // SAFETY: what runs when the library is loaded asks nothing of the caller.
        let library = unsafe { Library::new(file) }
            .map_err(|error| error.source().map_or_else(|| error.to_string(), ToString::to_string))?;
        // It is never unloaded.
        let functions = Functions::of(Box::leak(Box::new(library)))?;
        let (mut major, mut minor, mut count) = (0, 0, 0);
        // SAFETY: all three are written to.
        let statuses = unsafe {
            [
                (functions.nvrtcVersion)(&raw mut major, &raw mut minor),
                (functions.nvrtcGetNumSupportedArchs)(&raw mut count),
            ]
        };
        statuses.into_iter().try_for_each(checked)?;
        let mut archs = vec![0; count as usize];
        // SAFETY: there is room for as many as there are.
        checked(unsafe { (functions.nvrtcGetSupportedArchs)(archs.as_mut_ptr()) })?;
        let targets = archs.into_iter().map(|arch| format!("sm_{arch}")).collect();
        Ok(Nvrtc { functions, version: format!("{major}.{minor}"), targets })
    }

    /// E.g. `13.0`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// What it compiles for, e.g. `sm_90`.
    pub fn targets(&self) -> &[String] {
        &self.targets
    }

    /// Compiles a program for a target.
    pub fn compile(&self, text: &str, target: &str) -> Result<Program<'_>, String> {
        self.compile_with(text, target, &[])
    }

    /// With further options.
    pub fn compile_with(&self, text: &str, target: &str, more: &[&str]) -> Result<Program<'_>, String> {
        let text = CString::new(text).map_err(|error| error.to_string())?;
        let mut program = Program { nvrtc: self, handle: ptr::null_mut() };
        // SAFETY: the program is copied; it has no headers.
        checked(unsafe {
            (self.functions.nvrtcCreateProgram)(
                &raw mut program.handle,
                text.as_ptr(),
                c"kernel.cu".as_ptr(),
                0,
                ptr::null(),
                ptr::null(),
            )
        })?;
        let architecture = format!("--gpu-architecture={target}");
        // Each step is rounded, as in eager.
        let fixed = [&architecture, "--std=c++17", "--fmad=false", "--disable-warnings"];
        let options = fixed.iter().chain(more).map(|option| CString::new(*option));
        let options = options.collect::<Result<Vec<CString>, _>>().map_err(|error| error.to_string())?;
        let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        // SAFETY: there are as many options, which end in zeros.
        let status =
            unsafe { (self.functions.nvrtcCompileProgram)(program.handle, pointers.len() as c_int, pointers.as_ptr()) };
        match checked(status) {
            Ok(()) => Ok(program),
            Err(error) => {
                let log = program.log().unwrap_or_default();
                let first = log.lines().find(|line| line.contains("error")).unwrap_or_default();
                Err(format!("NVRTC {} does not compile the kernel for {target}: {error}: {first}", self.version))
            }
        }
    }
}

/// A program that was compiled.
pub struct Program<'a> {
    nvrtc: &'a Nvrtc,
    handle: Handle,
}

impl Program<'_> {
    /// The device's code, an ELF file.
    pub fn cubin(&self) -> Result<Vec<u8>, String> {
        let functions = &self.nvrtc.functions;
        self.bytes(functions.nvrtcGetCUBINSize, functions.nvrtcGetCUBIN)
    }

    /// What the device's code was made of.
    #[cfg(test)]
    pub fn ptx(&self) -> Result<String, String> {
        let functions = &self.nvrtc.functions;
        self.bytes(functions.nvrtcGetPTXSize, functions.nvrtcGetPTX).map(text)
    }

    /// What the compiler said.
    pub fn log(&self) -> Result<String, String> {
        let functions = &self.nvrtc.functions;
        self.bytes(functions.nvrtcGetProgramLogSize, functions.nvrtcGetProgramLog).map(text)
    }

    fn bytes(
        &self,
        size_of: unsafe extern "C" fn(Handle, *mut usize) -> c_int,
        get: unsafe extern "C" fn(Handle, *mut c_char) -> c_int,
    ) -> Result<Vec<u8>, String> {
        let mut size = 0;
        // SAFETY: the program is there, and the size is written to.
        checked(unsafe { size_of(self.handle, &raw mut size) })?;
        let mut bytes = vec![0_u8; size];
        // SAFETY: there is room for as many as NVRTC said.
        checked(unsafe { get(self.handle, bytes.as_mut_ptr().cast()) })?;
        Ok(bytes)
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle is not used again; NVRTC says so itself if it is none.
        unsafe { (self.nvrtc.functions.nvrtcDestroyProgram)(&raw mut self.handle) };
    }
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned()
}

/// Files of NVRTC in a folder, newest first.
fn libraries(folder: &Path) -> Vec<PathBuf> {
    let version = |path: &Path| {
        let name = path.file_name()?.to_str()?.strip_prefix(FILE)?;
        name.split('.').map(|number| number.parse().ok()).collect::<Option<Vec<u32>>>()
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<(Vec<u32>, PathBuf)> = entries.filter_map(|path| Some((version(&path)?, path))).collect();
    found.sort();
    found.into_iter().rev().map(|(_, path)| path).collect()
}

/// `nvrtcResult`: 0 is success.
fn checked(status: c_int) -> Result<(), String> {
    let said = match status {
        0 => return Ok(()),
        1 => "it has no memory left",
        5 => "it does not know an option",
        6 => "the program has errors",
        7 => "it does not find its own file libnvrtc-builtins",
        _ => return Err(format!("NVRTC said {status}")),
    };
    Err(said.to_owned())
}
