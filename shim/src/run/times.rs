//! What each step of native plans takes, for benchmarks. Of plans made ready while it is off nothing is counted.

use crate::torch::outside::ticks;
use flambeau_ir::plan::Plan;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

static ON: AtomicBool = AtomicBool::new(false);
static ALL: Mutex<Vec<Arc<Times>>> = Mutex::new(Vec::new());

/// Of one plan: each step in words, ticks and runs.
pub struct Times(Vec<(String, AtomicU64, AtomicU64)>);

impl Times {
    /// Of the steps of a plan that are at these places in it, if times are wanted.
    pub fn of(plan: &Plan, places: &[usize]) -> Option<Arc<Times>> {
        if !cfg!(feature = "testing") || !ON.load(Ordering::Relaxed) {
            return None;
        }
        let named = |at: &usize| (plan.step_text(&plan.steps[*at]), AtomicU64::new(0), AtomicU64::new(0));
        let times = Arc::new(Times(places.iter().map(named).collect()));
        ALL.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(times.clone());
        Some(times)
    }

    /// Counts one run of a step.
    pub fn count<T>(&self, step: usize, run: impl FnOnce() -> T) -> T {
        let begun = ticks();
        let done = run();
        if let Some((_, spent, runs)) = self.0.get(step) {
            spent.fetch_add(ticks() - begun, Ordering::Relaxed);
            runs.fetch_add(1, Ordering::Relaxed);
        }
        done
    }
}

/// Whether plans that are made ready from now on are timed; counts of those before go.
#[cfg(feature = "testing")]
pub fn time_steps(on: bool) {
    ON.store(on, Ordering::Relaxed);
    ALL.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clear();
}

/// Of each plan its steps in order: text, ticks, runs. What was counted is counted anew from here.
#[cfg(feature = "testing")]
pub fn taken() -> Vec<Vec<(String, u64, u64)>> {
    let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
    let of_plan =
        |times: &Arc<Times>| times.0.iter().map(|(t, spent, runs)| (t.clone(), take(spent), take(runs))).collect();
    ALL.lock().unwrap_or_else(std::sync::PoisonError::into_inner).iter().map(of_plan).collect()
}
