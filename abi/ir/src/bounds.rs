//! Bounds of work on what a client sent: how deep decoding goes, how much of its stack a stage's thread uses, and how long
//! a stage takes. They end in an error or a panic that the stage's fence turns into a reason, never in the end of the
//! process or in a thread that is busy for ever.

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

/// Deepest nesting of what is decoded: constants in constants, code in code, sizes in sizes.
pub const MAX_DEPTH: u32 = 200;

/// What the panic of [`check`] says where the stack is used up.
pub const EXHAUSTED: &str = "objects are nested too deep for the compiler's stack";

/// What the panic of [`check`] says where the time is over.
pub const LATE: &str = "the compiler took longer than FLAMBEAU_TIMEOUT";

/// How many checks there are to a look at the clock.
const CHECKS_A_LOOK: u32 = 256;

/// Left for what follows on the way out: unwinding, destructors, the log. Unit: bytes.
const RESERVE: usize = 1 << 20;

thread_local! {
    static LOWEST: Cell<usize> = const { Cell::new(0) };
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    static END: Cell<Option<Instant>> = const { Cell::new(None) };
    static CHECKS: Cell<u32> = const { Cell::new(0) };
}

fn address() -> usize {
    let here = 0_u8;
    std::hint::black_box(&raw const here).addr()
}

/// Notes that the calling thread, which just started, has a stack of so many bytes.
pub fn bound(bytes: usize) {
    LOWEST.set(address().saturating_sub(bytes).saturating_add(RESERVE.min(bytes / 2)));
}

/// Bounds the time of what the calling thread does until this is dropped.
pub struct TimeLimit(());

impl TimeLimit {
    /// Starts with so much time.
    pub fn new(time: Duration) -> TimeLimit {
        END.set(Instant::now().checked_add(time));
        TimeLimit(())
    }
}

impl Drop for TimeLimit {
    fn drop(&mut self) {
        END.set(None);
    }
}

/// Does not count so much time of the running [`TimeLimit`], which was spent waiting for others.
pub fn waited(time: Duration) {
    END.set(END.get().and_then(|end| end.checked_add(time)));
}

/// Panics where the thread's stack is nearly used up or its time is over. Bounds neither on a thread that called neither
/// [`bound`] nor [`TimeLimit::new`]. Costs two nanoseconds: for each step of work whose amount a client decides.
///
/// # Panics
/// With [`EXHAUSTED`] or [`LATE`].
#[inline]
pub fn check() {
    assert!(address() >= LOWEST.get(), "{EXHAUSTED}");
    let checks = CHECKS.get().wrapping_add(1);
    CHECKS.set(checks);
    if checks.is_multiple_of(CHECKS_A_LOOK) {
        check_time();
    }
}

/// As [`check`] for the time alone, at once: for steps that are long by themselves.
///
/// # Panics
/// With [`LATE`].
pub fn check_time() {
    assert!(END.get().is_none_or(|end| Instant::now() < end), "{LATE}");
}

/// One level of decoding; the level ends when it is dropped.
struct Level;

impl Drop for Level {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Decodes what may hold values of its own kind, for `#[serde(deserialize_with)]`.
pub fn nested<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    let depth = DEPTH.get();
    if depth >= MAX_DEPTH {
        return Err(D::Error::custom("nested too deep"));
    }
    DEPTH.set(depth + 1);
    let _level = Level;
    T::deserialize(from)
}

/// As [`nested`], for items that may hold items of their own kind.
pub fn nested_items<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    nested::<D, Items<T>>(from).map(|items| items.0)
}

/// Items of which some may hold further items, for `#[serde(deserialize_with)]`.
pub fn items<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    Items::deserialize(from).map(|items| items.0)
}

/// A list that is decoded with room for what came. Serde's own makes room for a mebibyte of what a long message announces, at
/// each level of lists in lists.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub struct Items<T>(pub Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Items<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Each<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Each<T> {
            type Value = Items<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a sequence")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Items<T>, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = from.next_element()? {
                    items.push(item);
                }
                Ok(Items(items))
            }
        }

        from.deserialize_seq(Each(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::Const;

    fn deep(levels: usize) -> Vec<u8> {
        // A tuple of one item: the variant's number, the length; then `None`.
        let tuple = postcard::to_stdvec(&Const::Tuple(vec![Const::None])).unwrap();
        let (head, none) = tuple.split_at(tuple.len() - 1);
        [head.repeat(levels), none.to_vec()].concat()
    }

    #[test]
    fn decoding_ends_at_a_depth() {
        assert!(postcard::from_bytes::<Const>(&deep(100)).is_ok());
        for levels in [MAX_DEPTH as usize + 1, 300_000] {
            assert!(postcard::from_bytes::<Const>(&deep(levels)).is_err());
        }
        // Depth is not used up by what failed.
        assert!(postcard::from_bytes::<Const>(&deep(100)).is_ok());
    }

    fn down(levels: u64) -> u64 {
        check();
        if levels == 0 { 0 } else { std::hint::black_box(down(levels - 1) + 1) }
    }

    #[test]
    fn work_ends_with_its_time() {
        let endless = || {
            loop {
                check();
            }
        };
        let limit = TimeLimit::new(Duration::from_millis(20));
        let panic = std::panic::catch_unwind(endless).unwrap_err();
        assert_eq!(panic.downcast_ref::<String>().map(String::as_str), Some(LATE));
        waited(Duration::from_secs(3600));
        check_time();
        drop(limit);
        assert!(END.get().is_none());
    }

    #[test]
    fn an_exhausted_stack_is_a_panic() {
        let bytes = 4 << 20;
        let run = move || {
            bound(bytes);
            (down(100), std::panic::catch_unwind(|| down(u64::MAX)).is_err(), down(100))
        };
        let thread = std::thread::Builder::new().stack_size(bytes).spawn(run).unwrap();
        assert_eq!(thread.join().unwrap(), (100, true, 100));
    }
}
