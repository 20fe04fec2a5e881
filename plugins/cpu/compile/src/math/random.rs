//! Random numbers for LLVM, which names temporary files by them. It calls `arc4random` where it was built with a C library
//! that has it; with one of our own the plug-in loads where the C library is older (glibc before 2.36).

use std::hash::{BuildHasher, Hasher, RandomState};

/// In place of the C library's.
// SAFETY: the C library's function takes nothing and returns a 32-bit number too; its own calls do not come here.
#[expect(unsafe_code, reason = "the linker must find it by this name")]
#[unsafe(no_mangle)]
extern "C" fn arc4random() -> u32 {
    RandomState::new().build_hasher().finish() as u32
}

#[cfg(test)]
#[test]
fn numbers_differ() {
    assert!((0..4).any(|_| arc4random() != arc4random()));
}
