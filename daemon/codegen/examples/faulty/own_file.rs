//! Where the file of a plug-in lies and what it is called.
#![expect(unsafe_code, reason = "the loader is asked for the name of this file")]

use std::ffi::CStr;
use std::path::PathBuf;

/// The file that this is compiled into.
pub fn path() -> PathBuf {
    // SAFETY: `dladdr` fills the struct for an address inside this library, whose path outlives it.
    let file = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        libc::dladdr(path as *const libc::c_void, &raw mut info);
        CStr::from_ptr(info.dli_fname).to_string_lossy().into_owned()
    };
    file.into()
}

/// The name in `libflambeau_<name>_compile.so` and `libflambeau_<name>_launch.so`.
pub fn name() -> String {
    let stem = path().file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let name = stem.trim_start_matches("libflambeau_");
    name.trim_end_matches("_compile").trim_end_matches("_launch").to_owned()
}
