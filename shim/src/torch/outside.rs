//! What runs spend in kernels and in torch, so that benchmarks can tell what flambeau itself costs: these sections can be
//! timed, or left out. Off except in benchmarks, and not in builds for users.

use crate::torch::{Handle, Torch};
use pyo3::prelude::*;
use std::cell::RefCell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

static MODE: AtomicU8 = AtomicU8::new(OFF);
static TICKS: AtomicU64 = AtomicU64::new(0);
static SECTIONS: AtomicU64 = AtomicU64::new(0);

const OFF: u8 = 0;
const TIMED: u8 = 1;
const RECORDED: u8 = 2;
const LEFT_OUT: u8 = 3;

/// Which of them it is now.
#[inline]
fn mode() -> u8 {
    if cfg!(feature = "testing") { MODE.load(Ordering::Relaxed) } else { OFF }
}

thread_local! {
    static RECORD: RefCell<Record> = const { RefCell::new(Record::new(None)) };
}

/// What the sections of one call made, in order. It is never freed.
pub struct Record {
    words: Vec<usize>,
    next: usize,
    /// Tensors that ended in that call.
    ended: Vec<Handle>,
    torch: Option<&'static Torch>,
}

impl Record {
    const fn new(torch: Option<&'static Torch>) -> Record {
        Record { words: Vec::new(), next: 0, ended: Vec::new(), torch }
    }

    /// Of tensors alike the one that ended last, if one did, as an allocator gives again what it got back: so calls that
    /// leave it out touch no more memory than others do.
    fn reuse(&mut self, made: Handle) -> Handle {
        // SAFETY: the record keeps both alive.
        let metadata = |torch: &Torch, tensor| unsafe {
            (torch.dtype(tensor), torch.device(tensor), torch.sizes(tensor), torch.strides(tensor))
        };
        let alike = |torch: &Torch, ended: Handle| metadata(torch, ended) == metadata(torch, made);
        let last = self.torch.and_then(|torch| self.ended.iter().rposition(|ended| alike(torch, *ended)));
        last.map_or(made, |at| self.ended.remove(at))
    }

    /// After the last word comes the first: of the next call.
    fn next(&mut self) -> usize {
        let word = self.words.get(self.next).copied().unwrap_or_default();
        self.next = if self.next + 1 < self.words.len() { self.next + 1 } else { 0 };
        word
    }
}

/// What a section makes.
pub trait Outcome {
    /// Puts it into the record, to be given again.
    fn record(&self, record: &mut Record);
    /// As it was in the record.
    fn again(record: &mut Record) -> Self;
}

impl Outcome for () {
    fn record(&self, _: &mut Record) {}

    fn again(_: &mut Record) -> Self {}
}

/// A status; zero is success.
impl Outcome for i32 {
    fn record(&self, _: &mut Record) {}

    fn again(_: &mut Record) -> Self {
        0
    }
}

/// New tensors.
impl<const N: usize> Outcome for [Handle; N] {
    fn record(&self, record: &mut Record) {
        for tensor in self {
            let given = record.reuse(*tensor);
            record.words.push(given as usize);
        }
    }

    fn again(record: &mut Record) -> Self {
        std::array::from_fn(|_| record.next() as Handle)
    }
}

/// Memory of a back end that has its own.
impl Outcome for *mut c_void {
    fn record(&self, record: &mut Record) {
        record.words.push(*self as usize);
    }

    fn again(record: &mut Record) -> Self {
        record.next() as *mut c_void
    }
}

impl Outcome for Py<PyAny> {
    fn record(&self, record: &mut Record) {
        // SAFETY: only sections that hold the GIL make objects.
        let object = self.clone_ref(unsafe { Python::assume_attached() });
        record.words.push(object.into_ptr() as usize);
    }

    fn again(record: &mut Record) -> Self {
        // SAFETY: as above, of an object that the record keeps.
        unsafe { Py::from_borrowed_ptr(Python::assume_attached(), record.next() as *mut pyo3::ffi::PyObject) }
    }
}

impl<T: Outcome, E> Outcome for Result<T, E> {
    fn record(&self, record: &mut Record) {
        if let Ok(made) = self {
            made.record(record);
        }
    }

    fn again(record: &mut Record) -> Self {
        Ok(T::again(record))
    }
}

/// Runs a kernel or a function of torch.
#[inline]
pub fn outside<T: Outcome>(call: impl FnOnce() -> T) -> T {
    if mode() == OFF { call() } else { measured(call) }
}

/// The same for a function that ends what another section made: a tensor, or null for anything else.
#[inline]
pub fn ending(tensor: Handle, call: impl FnOnce()) {
    match mode() {
        OFF => call(),
        TIMED => measured(call),
        RECORDED if !tensor.is_null() => RECORD.with_borrow_mut(|record| record.ended.push(tensor)),
        _ => {}
    }
}

#[cold]
fn measured<T: Outcome>(call: impl FnOnce() -> T) -> T {
    match mode() {
        LEFT_OUT => RECORD.with_borrow_mut(T::again),
        RECORDED => {
            let made = call();
            RECORD.with_borrow_mut(|record| made.record(record));
            made
        }
        _ => {
            let begun = ticks();
            let made = call();
            TICKS.fetch_add(ticks() - begun, Ordering::Relaxed);
            SECTIONS.fetch_add(1, Ordering::Relaxed);
            made
        }
    }
}

/// The processor's clock: reading it takes a third of the time that reading the system's takes.
#[cfg(target_arch = "x86_64")]
pub fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the instruction.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// The system's clock.
#[cfg(not(target_arch = "x86_64"))]
pub fn ticks() -> u64 {
    static BEGUN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    BEGUN.get_or_init(std::time::Instant::now).elapsed().as_nanos() as u64
}

#[cfg(feature = "testing")]
pub use measuring::{leave_nothing_out, leave_out, measure, of_nothing, tick};

#[cfg(feature = "testing")]
mod measuring {
    use super::*;
    use std::sync::OnceLock;
    use std::time::Instant;

    /// Nanoseconds of a tick.
    pub fn tick() -> f64 {
        static TICK: OnceLock<f64> = OnceLock::new();
        *TICK.get_or_init(|| {
            let (begun, first) = (Instant::now(), ticks());
            while begun.elapsed().as_millis() < 20 {}
            begun.elapsed().as_nanos() as f64 / (ticks() - first) as f64
        })
    }

    /// Starts or stops measuring: nanoseconds and sections found since.
    pub fn measure(on: bool) -> (f64, u64) {
        MODE.store(if on { TIMED } else { OFF }, Ordering::Relaxed);
        (TICKS.swap(0, Ordering::Relaxed) as f64 * tick(), SECTIONS.swap(0, Ordering::Relaxed))
    }

    /// What an empty section costs, in nanoseconds: the least of many rounds.
    pub struct Empty {
        /// What is counted of it.
        pub counted: f64,
        /// What it takes where it is timed.
        pub timed: f64,
        /// What it takes where it is left out.
        pub left_out: f64,
    }

    /// Finds that out.
    pub fn of_nothing() -> Empty {
        const CALLS: u32 = 1000;
        let round = |mode| {
            MODE.store(mode, Ordering::Relaxed);
            let begun = ticks();
            (0..CALLS).for_each(|_| outside(|| ()));
            let took = (ticks() - begun) as f64 * tick();
            (measure(false).0 / f64::from(CALLS), took / f64::from(CALLS))
        };
        let mut least = Empty { counted: f64::INFINITY, timed: f64::INFINITY, left_out: f64::INFINITY };
        for _ in 0..100 {
            let (counted, timed) = round(TIMED);
            let (_, left_out) = round(LEFT_OUT);
            least.counted = least.counted.min(counted);
            least.timed = least.timed.min(timed);
            least.left_out = least.left_out.min(left_out);
        }
        least
    }

    /// Makes one call with its sections on record; from then on, this thread's calls of the same kind leave them out and get
    /// what they made then.
    pub fn leave_out<E>(torch: Option<&'static Torch>, call: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        RECORD.set(Record::new(torch));
        MODE.store(RECORDED, Ordering::Relaxed);
        let made = call();
        MODE.store(if made.is_ok() { LEFT_OUT } else { OFF }, Ordering::Relaxed);
        made
    }

    /// Ends [`leave_out`].
    pub fn leave_nothing_out() {
        MODE.store(OFF, Ordering::Relaxed);
    }
}
