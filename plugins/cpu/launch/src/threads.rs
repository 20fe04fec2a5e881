//! Several threads, from the OpenMP runtime that torch already loaded: a pool of our own would fight with torch's
//! spinning workers for the cores. Without one, or in a forked child, one thread does all.

use crate::code::Entry;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::mem::transmute;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// Teams up to this size need no memory from the heap.
const FEW: usize = 16;

/// The three functions of GCC's OpenMP ABI that are needed; LLVM's and Intel's runtimes have them too.
#[derive(Clone, Copy)]
struct OpenMp {
    parallel: unsafe extern "C" fn(unsafe extern "C" fn(*mut c_void), *mut c_void, c_uint, c_uint),
    thread_num: unsafe extern "C" fn() -> c_int,
    num_threads: unsafe extern "C" fn() -> c_int,
}

/// libgomp hangs in the child of a process whose parent used it.
static FORKED: AtomicBool = AtomicBool::new(false);

extern "C" fn in_forked_child() {
    FORKED.store(true, Ordering::Relaxed);
}

/// The loaded runtime. Asked again until torch has loaded one, since a kernel may be loaded before torch is.
fn openmp() -> Option<OpenMp> {
    static FOUND: OnceLock<OpenMp> = OnceLock::new();
    if FORKED.load(Ordering::Relaxed) {
        return None;
    }
    if let Some(found) = FOUND.get() {
        return Some(*found);
    }
    let found = find()?;
    // SAFETY: the handler only stores to a static, and this library is never unloaded.
    unsafe { libc::pthread_atfork(None, None, Some(in_forked_child)) };
    Some(*FOUND.get_or_init(|| found))
}

/// Collects the path of the first loaded library whose file name looks like an OpenMP runtime.
unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
    // SAFETY: the loader passes a valid record; a null name is checked for.
    let name: *const c_char = unsafe { (*info).dlpi_name };
    if name.is_null() {
        return 0;
    }
    // SAFETY: names of loaded libraries are NUL-terminated.
    let path = unsafe { CStr::from_ptr(name) };
    let bytes = path.to_bytes();
    let file = bytes.rsplit(|b| *b == b'/').next().unwrap_or(bytes);
    if [&b"libgomp"[..], b"libiomp5", b"libomp"].iter().any(|prefix| file.starts_with(prefix)) {
        // SAFETY: `find` passes a pointer to this type.
        let found = unsafe { &mut *data.cast::<Option<CString>>() };
        *found = Some(path.to_owned());
        return 1;
    }
    0
}

fn find() -> Option<OpenMp> {
    let mut path: Option<CString> = None;
    // SAFETY: `visit` keeps to the callback's contract, and `path` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut path).cast()) };
    // SAFETY: the library is loaded already; NOLOAD only takes a handle, which is kept for good.
    let library = unsafe { libc::dlopen(path?.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    if library.is_null() {
        return None;
    }
    let symbol = |name: &CStr| {
        // SAFETY: the handle is valid, the name NUL-terminated.
        let address = unsafe { libc::dlsym(library, name.as_ptr()) };
        (!address.is_null()).then_some(address)
    };
    let (parallel, thread_num, num_threads) =
        (symbol(c"GOMP_parallel")?, symbol(c"omp_get_thread_num")?, symbol(c"omp_get_num_threads")?);
    // SAFETY: these are the signatures of GCC's documented OpenMP ABI, on which compiled programs rely.
    unsafe {
        Some(OpenMp {
            parallel: transmute::<
                *mut c_void,
                unsafe extern "C" fn(unsafe extern "C" fn(*mut c_void), *mut c_void, c_uint, c_uint),
            >(parallel),
            thread_num: transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(thread_num),
            num_threads: transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(num_threads),
        })
    }
}

/// How many of its pieces were taken, on a cache line of its own.
#[derive(Default)]
#[repr(align(64))]
struct Taken(AtomicI64);

struct Job<'a> {
    entry: Entry,
    buffers: *const *mut c_void,
    scalars: *const i64,
    axis: i64,
    granule: i64,
    /// Of each thread.
    pieces: i64,
    taken: &'a [Taken],
    openmp: OpenMp,
}

impl Job<'_> {
    /// Where piece `piece` of all begins, as the axis is cut for a team of `team`.
    fn at(&self, piece: i64, team: i64) -> i64 {
        let granules = (self.axis + self.granule - 1) / self.granule;
        (granules * piece / (team * self.pieces) * self.granule).min(self.axis)
    }
}

/// One thread's share: the same part of the axis in every kernel, so that it finds what it wrote in its own cache; then
/// pieces of threads that are slower. The team may be smaller than asked for (nested regions), so its real size counts.
unsafe extern "C" fn share(job: *mut c_void) {
    // SAFETY: `run` passes a job that lives until all threads are done.
    let job = unsafe { &*job.cast::<Job>() };
    // SAFETY (both): called from a thread of the team.
    let (me, team) = unsafe { (i64::from((job.openmp.thread_num)()), i64::from((job.openmp.num_threads)()).max(1)) };
    for owner in (0..team).map(|other| (me + other) % team) {
        loop {
            let piece = job.taken[owner as usize].0.fetch_add(1, Ordering::Relaxed);
            if piece >= job.pieces {
                break;
            }
            let first = owner * job.pieces + piece;
            let (begin, end) = (job.at(first, team), job.at(first + 1, team));
            if begin < end {
                // SAFETY: the caller of `run` vouches for the arguments; pieces do not overlap.
                unsafe { (job.entry)(job.buffers, job.scalars, begin, end) };
            }
        }
    }
}

/// Runs `entry` over `[0, axis)` on up to `threads` threads, in `pieces` pieces of each.
///
/// # Safety
/// `entry` may be called with these arguments and any piece of the axis, from several threads at once.
pub unsafe fn run(
    entry: Entry,
    buffers: *const *mut c_void,
    scalars: *const i64,
    (axis, granule): (i64, i64),
    threads: u32,
    pieces: i64,
) {
    let Some(openmp) = openmp() else {
        // SAFETY: passed on.
        return unsafe { entry(buffers, scalars, 0, axis) };
    };
    let few: [Taken; FEW];
    let many: Vec<Taken>;
    let taken = if threads as usize <= FEW {
        few = Default::default();
        &few[..]
    } else {
        many = (0..threads).map(|_| Taken::default()).collect();
        &many
    };
    let mut job = Job { entry, buffers, scalars, axis, granule, pieces, taken, openmp };
    // SAFETY: `share` gets the job it expects; the region ends before `job` does.
    unsafe { (openmp.parallel)(share, (&raw mut job).cast(), threads, 0) };
}
