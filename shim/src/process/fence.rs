//! The fence round what may panic: a panic of ours becomes a sentence, and the call runs as plain Python. None of them may
//! reach a program, where it would be a `BaseException` that nobody expects.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// What `work` gives, or the message of its panic. What it changed before stays changed: callers throw it away or leave it
/// in a state that the next call finds in order.
#[inline]
pub fn fence<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message");
        format!("flambeau met a bug of its own: {text}")
    })
}

#[cfg(test)]
mod tests {
    use super::fence;

    #[test]
    fn a_panic_is_a_sentence() {
        assert_eq!(fence(|| 3), Ok(3));
        let none: Vec<u8> = vec![];
        let told = fence(|| none[0]).unwrap_err();
        assert!(told.contains("index out of bounds"), "{told}");
    }
}
