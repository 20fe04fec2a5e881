//! Time that runs spend in kernels and in torch, so that benchmarks can tell what flambeau itself costs. Off but there.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

static MEASURED: AtomicBool = AtomicBool::new(false);
static NANOSECONDS: AtomicU64 = AtomicU64::new(0);
static SECTIONS: AtomicU64 = AtomicU64::new(0);

/// Runs a kernel or a function of torch, and counts its time while measuring.
#[inline]
pub fn outside<T>(call: impl FnOnce() -> T) -> T {
    if !MEASURED.load(Ordering::Relaxed) {
        return call();
    }
    let begun = Instant::now();
    let made = call();
    NANOSECONDS.fetch_add(begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
    SECTIONS.fetch_add(1, Ordering::Relaxed);
    made
}

/// Starts or stops measuring: what was found since, in nanoseconds and in calls.
pub fn measure(on: bool) -> (u64, u64) {
    MEASURED.store(on, Ordering::Relaxed);
    (NANOSECONDS.swap(0, Ordering::Relaxed), SECTIONS.swap(0, Ordering::Relaxed))
}

/// What measuring a call adds around the time that it counts, in nanoseconds; the fastest of many rounds.
pub fn cost() -> f64 {
    const CALLS: u32 = 1000;
    let round = || {
        let begun = Instant::now();
        (0..CALLS).for_each(|_| outside(|| ()));
        let (counted, _) = measure(true);
        (begun.elapsed().as_nanos() as f64 - counted as f64) / f64::from(CALLS)
    };
    measure(true);
    let least = (0..100).map(|_| round()).fold(f64::INFINITY, f64::min);
    measure(false);
    least
}
