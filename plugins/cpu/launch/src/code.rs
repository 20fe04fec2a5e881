//! Machine code in memory: written while writable, then executable and never both.

use rustix::io;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use std::ffi::c_void;
use std::ptr;

/// A kernel's function; works on units `[begin, end)` of its axis.
pub type Entry = unsafe extern "C" fn(buffers: *const *mut c_void, scalars: *const i64, begin: i64, end: i64);

/// A mapping that holds one kernel.
pub struct Code {
    start: *mut c_void,
    length: usize,
    entry: Entry,
}

// SAFETY: the mapping is read-only and executable; nothing in it changes until it is dropped.
unsafe impl Send for Code {}
// SAFETY: as above.
unsafe impl Sync for Code {}

impl Code {
    /// Copies `code` into a mapping of its own. `entry` is an offset within `code`.
    pub fn map(code: &[u8], entry: usize) -> io::Result<Code> {
        let length = code.len();
        // SAFETY: a fresh private mapping at an address of the kernel's choice aliases nothing.
        let start =
            unsafe { mmap_anonymous(ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)? };
        // SAFETY: the mapping is writable, `length >= code.len()`, and nobody else knows its address.
        unsafe { ptr::copy_nonoverlapping(code.as_ptr(), start.cast(), code.len()) };
        // SAFETY: the whole mapping is ours.
        if let Err(error) = unsafe { mprotect(start, length, MprotectFlags::READ | MprotectFlags::EXEC) } {
            // SAFETY: ours, and not used again.
            let _ = unsafe { munmap(start, length) };
            return Err(error);
        }
        // SAFETY: `decode` checked that `entry` lies within the code; the compile half put a function of this type there.
        let entry = unsafe { std::mem::transmute::<*const u8, Entry>(start.cast_const().cast::<u8>().add(entry)) };
        Ok(Code { start, length, entry })
    }

    /// The function; valid as long as `self`.
    #[inline]
    pub fn entry(&self) -> Entry {
        self.entry
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and no launch runs (rule of `unload`).
        let _ = unsafe { munmap(self.start, self.length) };
    }
}
