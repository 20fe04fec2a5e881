//! What the file of a plug-in is called, by which it goes wrong.
#![expect(unsafe_code, reason = "the loader is asked for the name of this file")]

use std::ffi::CStr;

/// The name in `libflambeau_<name>_compile.so` and `libflambeau_<name>_launch.so`.
pub fn name() -> String {
    // SAFETY: `dladdr` fills the struct for an address inside this library, whose path outlives it.
    let file = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        libc::dladdr(name as *const libc::c_void, &raw mut info);
        CStr::from_ptr(info.dli_fname).to_string_lossy().into_owned()
    };
    let file = file.rsplit('/').next().unwrap_or_default();
    let stem = file.trim_start_matches("libflambeau_").trim_end_matches(".so");
    stem.trim_end_matches("_compile").trim_end_matches("_launch").to_owned()
}
