//! How often a function was compiled anew, its resume functions included: the account that `recompile_limit` closes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Recompiles of a function and of the resume functions that take it up. Read and written with the GIL held.
#[derive(Debug, Default)]
pub struct Account {
    /// Calls that had to recompile, floats counted twice.
    spent: AtomicU64,
    /// The latest of them.
    call: AtomicU64,
    /// The limit was explained.
    explained: AtomicBool,
    /// Of a function that plain Python called below a break: the account of the one that broke.
    above: Option<Arc<Account>>,
    /// The key that the function was first compiled under, hashed: callables of one user function have the same.
    function: OnceLock<[u8; 32]>,
}

/// Compiles of each user function, by all callables together. Locked only with the GIL held.
static TOTALS: Mutex<Option<HashMap<[u8; 32], Total>>> = Mutex::new(None);

/// What is counted of one user function.
#[derive(Debug, Default, Clone, Copy)]
struct Total {
    compiles: usize,
    explained: bool,
}

/// Whether a function may be compiled once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grant {
    /// It may, and the compile is counted.
    Granted,
    /// It may not; told for the first time if true.
    Refused(bool),
}

/// Forgets all totals.
pub fn forget() {
    *TOTALS.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

impl Account {
    /// For a function that is called below a break of another.
    pub fn below(above: Arc<Account>) -> Self {
        Account { above: Some(above), ..Account::default() }
    }

    /// An empty one in its place.
    pub fn renewed(&self) -> Self {
        Account { above: self.above.clone(), function: self.function.clone(), ..Account::default() }
    }

    /// Counts a recompile that made nothing more symbolic. Of one call, several count as one: they are for one change.
    /// A float that plain Python gave is likely to be another one each time.
    /// Where floats were too many already, those that are handed on to functions below are not tried again.
    pub fn charge(&self, call: u64, float: bool, limit: usize) {
        if float && self.above.as_ref().is_some_and(|above| above.is_spent(limit)) {
            self.explained.store(true, Ordering::Relaxed);
            self.spent.store(u64::MAX / 2, Ordering::Relaxed);
        }
        if self.call.swap(call, Ordering::Relaxed) != call {
            self.spent.fetch_add(1 + u64::from(float), Ordering::Relaxed);
        }
    }

    /// Counts a compile over all callables of the function. `key` is what this one is stored under; that of the first
    /// compile names the function: a resume function counts for the one that it takes up.
    pub fn accumulate(&self, key: [u8; 32], limit: usize) -> Grant {
        let function = *self.function.get_or_init(|| key);
        let mut totals = TOTALS.lock().unwrap_or_else(PoisonError::into_inner);
        let total = totals.get_or_insert_default().entry(function).or_default();
        if total.compiles >= limit {
            return Grant::Refused(!std::mem::replace(&mut total.explained, true));
        }
        total.compiles += 1;
        Grant::Granted
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
            account.charge(1, false, 8);
        }
        assert!(!account.is_spent(3) && account.is_spent(2));
        account.charge(2, true, 8);
        assert!(account.is_spent(4) && !account.is_spent(5));
        assert!(account.explain() && !account.explain());
    }

    #[test]
    fn callables_of_one_function_share_a_total() {
        let key = [7; 32];
        let grants: Vec<Grant> = (0..4).map(|_| Account::default().accumulate(key, 2)).collect();
        assert_eq!(grants, [Grant::Granted, Grant::Granted, Grant::Refused(true), Grant::Refused(false)]);
        assert_eq!(Account::default().accumulate([8; 32], 2), Grant::Granted);
        // What takes up the function has another key of its own.
        let resumed = Account::default();
        assert_eq!(resumed.accumulate(key, 2), Grant::Refused(false));
        assert_eq!(resumed.accumulate([9; 32], 2), Grant::Refused(false));
    }

    #[test]
    fn floats_below_a_spent_account_are_left_alone_quietly() {
        let above = Arc::new(Account::default());
        let below = Account::below(above.clone());
        below.charge(1, true, 3);
        assert!(!below.is_spent(4));
        above.charge(2, true, 3);
        below.charge(2, true, 3);
        assert!(below.is_spent(100) && !below.explain());
    }
}
