//! What a tensor is - sizes, strides, dtype, device, dispatch keys - as words of its `TensorImpl`, compared all at once.

use super::Handle;
use super::layout::{INLINE, Layout};
use flambeau_ir::kernel::DType;
use flambeau_ir::tensor::Device;

/// Words that are compared: from the sizes on, or the last that there are.
const SPAN: usize = 16;

/// Words of a `TensorImpl`, and which of their bits count.
pub struct Form {
    /// The first of them.
    start: usize,
    values: Words,
    masks: Words,
    /// Only those of [`FLAT`] do: of a tensor with two dimensions at most.
    flat: bool,
}

/// Pairs of words that are compared of tensors with few dimensions.
const FLAT: [usize; 5] = [0, 2, 6, 12, 14];
/// And of all others.
const WHOLE: [usize; 8] = [0, 2, 4, 6, 8, 10, 12, 14];

/// Aligned, so that they are operands of vector instructions.
#[repr(align(16))]
struct Words([u64; SPAN]);

/// What a [`Form`] is made of.
pub struct Facts<'a> {
    /// Sizes, in elements; `None` where any will do.
    pub sizes: &'a [Option<i64>],
    /// Strides, in elements; `None` where any will do.
    pub strides: &'a [Option<i64>],
    /// Element type.
    pub dtype: DType,
    /// Device.
    pub device: Device,
    /// Dispatch keys; `None` where any will do.
    pub keys: Option<u64>,
}

impl Layout {
    /// The words of tensors with these facts; `None` where they do not lie together. `keys` is the word of the dispatch keys.
    pub(super) fn form(&self, facts: &Facts<'_>, keys: usize) -> Option<Form> {
        if facts.sizes.len() > INLINE {
            return None;
        }
        let start = self.sizes.min(self.words.checked_sub(SPAN)?);
        let mut form = Form { start, values: Words([0; SPAN]), masks: Words([0; SPAN]), flat: false };
        let mut expect = |word: usize, value: u64, mask: u64| {
            let at = word.checked_sub(start).filter(|at| *at < SPAN)?;
            form.values.0[at] |= value & mask;
            form.masks.0[at] |= mask;
            Some(())
        };
        expect(self.sizes, facts.sizes.len() as u64, u64::MAX)?;
        for (at, extents) in [(1, facts.sizes), (1 + INLINE, facts.strides)] {
            for (i, extent) in extents.iter().enumerate().filter_map(|(i, extent)| Some((i, (*extent)?))) {
                expect(self.sizes + at + i, extent as u64, u64::MAX)?;
            }
        }
        // Two bytes of dtype, one each of the device's type and index; the CPU's index says nothing.
        let (device, index) = (facts.device, u64::from(facts.device.index as u8));
        let typed = u64::from(facts.dtype as u8) | u64::from(device.kind) << 16 | index << 24;
        let mask: u64 = if device.kind == 0 { 0xff_ffff } else { 0xffff_ffff };
        let shift = self.typed % 8 * 8;
        if shift > 32 {
            return None;
        }
        expect(self.typed / 8, typed << shift, mask << shift)?;
        if let Some(wanted) = facts.keys {
            expect(keys, wanted, u64::MAX)?;
        }
        form.flat = (0..SPAN).all(|at| FLAT.contains(&(at / 2 * 2)) || form.masks.0[at] == 0);
        Some(form)
    }
}

impl Form {
    /// Whether a tensor has the form.
    ///
    /// # Safety
    /// A live tensor.
    #[expect(clippy::inline_always, reason = "a call costs a third of what it does")]
    #[inline(always)]
    pub unsafe fn fits(&self, handle: Handle) -> bool {
        // SAFETY: a `TensorImpl` has the words, or there were no form (see `Layout::form`).
        unsafe {
            let words = &*(*handle.cast::<*const u64>()).add(self.start).cast();
            if self.flat { same(words, self, FLAT) } else { same(words, self, WHOLE) }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn same<const N: usize>(words: &[u64; SPAN], form: &Form, pairs: [usize; N]) -> bool {
    use std::arch::x86_64::{
        _mm_and_si128, _mm_cmpeq_epi8, _mm_load_si128, _mm_loadu_si128, _mm_movemask_epi8, _mm_or_si128,
        _mm_setzero_si128, _mm_xor_si128,
    };
    // SAFETY: every x86-64 processor has the instructions; each load is of two words within its array.
    unsafe {
        let known = |of: &Words, at: usize| _mm_load_si128(of.0.as_ptr().add(at).cast());
        let found = |at: usize| _mm_loadu_si128(words.as_ptr().add(at).cast());
        let differ = |at| _mm_and_si128(_mm_xor_si128(found(at), known(&form.values, at)), known(&form.masks, at));
        let all = pairs.into_iter().fold(_mm_setzero_si128(), |all, at| _mm_or_si128(all, differ(at)));
        _mm_movemask_epi8(_mm_cmpeq_epi8(all, _mm_setzero_si128())) == 0xffff
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn same<const N: usize>(words: &[u64; SPAN], form: &Form, pairs: [usize; N]) -> bool {
    let differ = |at: usize| (words[at] ^ form.values.0[at]) & form.masks.0[at];
    pairs.into_iter().fold(0, |all, at| all | differ(at) | differ(at + 1)) == 0
}
