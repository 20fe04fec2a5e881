//! How often a function was compiled anew, its resume functions included: the account that `recompile_limit` closes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Recompiles of a function and of the resume functions that take it up. Read and written with the GIL held.
#[derive(Debug, Default)]
pub struct Account {
    /// Calls that had to recompile, floats counted twice.
    spent: AtomicU64,
    /// The latest of them.
    call: AtomicU64,
    /// The limit was explained.
    explained: AtomicBool,
}

impl Account {
    /// Counts a recompile that made nothing more symbolic. Of one call, several count as one: they are for one change.
    /// A float that plain Python gave is likely to be another one each time.
    pub fn charge(&self, call: u64, float: bool) {
        if self.call.swap(call, Ordering::Relaxed) != call {
            self.spent.fetch_add(1 + u64::from(float), Ordering::Relaxed);
        }
    }

    /// Whether as many recompiles were counted as there may be, beside the first compile.
    pub fn is_spent(&self, limit: usize) -> bool {
        self.spent.load(Ordering::Relaxed) + 1 >= limit as u64
    }

    /// True the first time.
    pub fn explain(&self) -> bool {
        !self.explained.swap(true, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_counts_once() {
        let account = Account::default();
        for _ in 0..5 {
            account.charge(1, false);
        }
        assert!(!account.is_spent(3) && account.is_spent(2));
        account.charge(2, true);
        assert!(account.is_spent(4) && !account.is_spent(5));
        assert!(account.explain() && !account.explain());
    }
}
