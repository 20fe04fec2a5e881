//! What the daemon and its commands forbid themselves, before anything else: none of it can be had back.

use rustix::fs::Mode;
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit, umask};

/// Open files that a daemon needs at most: clients, workers, the cache.
const DESCRIPTORS: u64 = 4096;

/// Sets the limits. What the kernel does not have is left out.
pub fn set() {
    // Files that libraries make are for this user alone.
    umask(Mode::RWXG | Mode::RWXO);
    // No set-user-id program that a plug-in starts gives anybody rights that the user does not have.
    let _ = rustix::thread::set_no_new_privs(true);
    // No core file with a user's constants, and no other process of the user's looks into this one.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let most = getrlimit(Resource::Nofile).maximum;
    let descriptors = most.map_or(DESCRIPTORS, |most| most.min(DESCRIPTORS));
    let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(descriptors), maximum: most });
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
}
