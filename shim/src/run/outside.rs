//! Time that runs spend in kernels and in torch, so that benchmarks can tell what flambeau itself costs. Off but there.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

static MEASURED: AtomicBool = AtomicBool::new(false);
static TICKS: AtomicU64 = AtomicU64::new(0);
static SECTIONS: AtomicU64 = AtomicU64::new(0);

/// Runs a kernel or a function of torch, and counts its time while measuring.
#[inline]
pub fn outside<T>(call: impl FnOnce() -> T) -> T {
    if MEASURED.load(Ordering::Relaxed) { counted(call) } else { call() }
}

#[cold]
fn counted<T>(call: impl FnOnce() -> T) -> T {
    let begun = ticks();
    let made = call();
    TICKS.fetch_add(ticks() - begun, Ordering::Relaxed);
    SECTIONS.fetch_add(1, Ordering::Relaxed);
    made
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
    static BEGUN: OnceLock<Instant> = OnceLock::new();
    BEGUN.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

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
    MEASURED.store(on, Ordering::Relaxed);
    (TICKS.swap(0, Ordering::Relaxed) as f64 * tick(), SECTIONS.swap(0, Ordering::Relaxed))
}

/// Nanoseconds that an empty section counts, and nanoseconds that it takes; the least of many rounds.
pub fn of_nothing() -> (f64, f64) {
    const CALLS: u32 = 1000;
    let round = || {
        measure(true);
        let begun = ticks();
        (0..CALLS).for_each(|_| outside(|| ()));
        let took = (ticks() - begun) as f64 * tick();
        (measure(false).0 / f64::from(CALLS), took / f64::from(CALLS))
    };
    (0..100).map(|_| round()).fold((f64::INFINITY, f64::INFINITY), |a, b| (a.0.min(b.0), a.1.min(b.1)))
}
