//! What is known of one code object: its compiled frames, the history that decides on more, and why calls were not compiled.

use crate::bind::Signature;
use crate::breaks::Noted;
use crate::counters;
use crate::gil::{GilCell, Shared};
use crate::guard::Passed;
use crate::installed::Installed;
use crate::leaves::{History, Place};
use crate::raw::Raw;
use crate::region::Region;
use crate::report::Record;
use flambeau_ir::code::{Code, CodeHash};
use flambeau_ir::exit::Varying;
use flambeau_ir::source::Step;
use pyo3::prelude::*;
use pyo3::types::PyCode;
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Generators, coroutines and async generators are not compiled as a whole.
pub const CO_SUSPENDS: i32 = 0x20 | 0x80 | 0x200;

/// Counts calls of `reset()`; tables of an older generation are dropped at their next use.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// Makes every callable forget its compiled frames.
pub fn reset_all() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// Compiled frames of one code object, and the history that decides on more.
#[derive(Default)]
pub struct Table {
    /// The code object, kept alive so that its address stays its own.
    code: Option<Py<PyAny>>,
    generation: u64,
    /// `None` where the code is never compiled.
    signature: Option<Signature>,
    /// Owns what `signature` points to.
    _names: Option<Py<PyAny>>,
    /// Latest compile first.
    pub frames: Vec<Frame>,
    /// Sizes seen.
    pub history: History,
    /// Calls that could not be compiled: fingerprint, and when to try again.
    pub failed: HashMap<u64, Retry>,
    /// The recompile limit was explained.
    pub limit_explained: bool,
    /// Why calls were not compiled, for `explain`.
    pub failures: Vec<Noted>,
    /// Of a resume function: what names its code and those of the resume functions it calls.
    pub resumes: Option<CodeHash>,
    /// Of a resume function: where its arguments hold what a loop changes.
    varying: Arc<[Place]>,
}

/// Tells how long a kind of call that failed to compile is left alone.
#[derive(Debug, Clone, Copy)]
pub struct Retry {
    /// Calls to let pass.
    pub skip: u32,
    /// Calls to let pass after the next failure.
    pub next: u32,
}

/// One compiled frame of a table.
pub struct Frame {
    /// Ready to run.
    pub installed: Shared<Installed>,
    /// For `explain`.
    pub record: Arc<Record>,
    /// Where it was compiled for: elsewhere breaks are taken in another way.
    region: Region,
    /// How often a guard of it failed, and the latest one.
    failures: Cell<(u32, u32)>,
}

impl Frame {
    /// A frame for the calling thread's region that was never checked.
    pub fn new(installed: Shared<Installed>, record: Record) -> Self {
        Frame { installed, record: Arc::new(record), region: Region::now(), failures: Cell::new((0, 0)) }
    }

    fn failed(&self, guard: usize) {
        let (count, _) = self.failures.get();
        self.failures.set((count.saturating_add(1), guard as u32));
    }

    /// The guard that failed last, in words, and how often guards of this frame failed.
    pub fn last_failure(&self) -> (u32, String) {
        let (count, index) = self.failures.get();
        (count, self.installed.explain_failure(index as usize))
    }
}

impl Table {
    /// For a resume function; ints at the places that vary are symbolic from the first compile on.
    pub fn resuming(frames: CodeHash, varying: &[Varying]) -> Table {
        let place = |varying: &Varying| match varying {
            Varying::Value => vec![Step::Arg(1)],
            Varying::State(path) => [Step::Arg(0)].into_iter().chain(path.iter().map(|i| Step::Index(*i))).collect(),
        };
        Table { resumes: Some(frames), varying: varying.iter().map(place).collect(), ..Table::default() }
    }

    unsafe fn of(py: Python<'_>, code: Raw, generation: u64) -> Table {
        // SAFETY: a live code object.
        let code = unsafe { Bound::from_borrowed_ptr(py, code) };
        let read = |code: &Bound<'_, PyAny>| -> PyResult<(Option<Signature>, Py<PyAny>)> {
            let code = code.cast::<PyCode>()?;
            let number = |name: &str| -> PyResult<usize> { code.getattr(name)?.extract() };
            let flags: i32 = code.getattr("co_flags")?.extract()?;
            let names = code.getattr("co_varnames")?;
            let signature = Signature::new(
                number("co_argcount")?,
                number("co_posonlyargcount")?,
                number("co_kwonlyargcount")?,
                flags,
                names.as_ptr(),
            );
            Ok(((flags & CO_SUSPENDS == 0).then_some(signature), names.unbind()))
        };
        let (signature, names) = match read(&code) {
            Ok((signature, names)) => (signature, Some(names)),
            Err(_) => (None, None),
        };
        if signature.is_none() {
            counters::graph_break(py, "generator");
        }
        Table { code: Some(code.unbind()), generation, signature, _names: names, ..Table::default() }
    }

    /// The code object, in a form that can be read.
    pub fn described(&self, py: Python<'_>) -> Option<Arc<Code>> {
        // SAFETY: a live code object.
        self.code.as_ref().and_then(|code| unsafe { crate::code::encode(py, code.as_ptr()) })
    }

    /// Whether a call came to its code.
    pub fn is_reached(&self) -> bool {
        self.code.is_some()
    }

    /// Whether this table is for that code object.
    pub fn is_for(&self, code: Raw) -> bool {
        self.code.as_ref().is_some_and(|c| c.as_ptr() == code)
    }

    /// The signature of `code`, and whether `table` had to be made anew for it: it knew another code object, or is older
    /// than the last `reset()`.
    ///
    /// # Safety
    /// A live code object.
    #[inline]
    pub unsafe fn signature(table: &GilCell<Table>, py: Python<'_>, code: Raw) -> (Option<Signature>, bool) {
        let known = table.borrow(py);
        let generation = GENERATION.load(Ordering::Relaxed);
        if known.is_for(code) && known.generation == generation {
            return (known.signature, false);
        }
        drop(known);
        // SAFETY: the caller's promise.
        (unsafe { Table::renew(table, py, code, generation) }, true)
    }

    #[cold]
    unsafe fn renew(table: &GilCell<Table>, py: Python<'_>, code: Raw, generation: u64) -> Option<Signature> {
        let known = table.borrow(py);
        let (resumes, varying) = (known.resumes, known.varying.clone());
        drop(known);
        // SAFETY: the caller's promise.
        let mut fresh = Table { resumes, ..unsafe { Table::of(py, code, generation) } };
        fresh.history.expect(varying.iter().cloned());
        fresh.varying = varying;
        let signature = fresh.signature;
        let old = std::mem::replace(&mut *table.borrow(py), fresh);
        // May run finalizers, so not under the borrow.
        drop(old);
        signature
    }

    /// The first frame for a region whose guards hold, moved to the front; `passed` has the call's values then.
    pub fn find(
        &mut self,
        py: Python<'_>,
        region: Region,
        function: Raw,
        slots: &[Raw],
        passed: &mut Passed,
    ) -> Option<Shared<Installed>> {
        let mut here = self.frames.iter().enumerate().filter(|(_, frame)| frame.region == region);
        let found = here.find(|(index, frame)| {
            let (count, guard) = frame.failures.get();
            // Of frames but the latest one, the guard that failed last comes first: most calls differ in the same.
            if *index > 0 && count > 0 && !frame.installed.may_hold(py, function, slots, guard as usize) {
                frame.failed(guard as usize);
                return false;
            }
            frame.installed.check(py, function, slots, passed).map_err(|guard| frame.failed(guard)).is_ok()
        });
        let (index, frame) = found?;
        let installed = frame.installed.clone();
        if index > 0 {
            self.frames[..=index].rotate_right(1);
        }
        Some(installed)
    }

    /// Whether calls run eagerly because of what its code does, or how often it compiled.
    pub fn is_given_up(&self) -> bool {
        self.signature.is_none() || self.limit_explained || !self.failures.is_empty()
    }

    /// Whether its code was compiled to no tensor operation and no break: plain Python does it as well.
    pub fn is_barren(&self) -> bool {
        self.frames.iter().any(|frame| frame.record.ops == 0 && !frame.installed.breaks())
    }

    /// Takes out a frame that turned out to be wrong, and leaves calls like this one alone: the daemon would give it again.
    pub fn give_up(&mut self, wrong: &Shared<Installed>, fingerprint: u64) -> Option<Frame> {
        self.failed.insert(fingerprint, Retry { skip: u32::MAX, next: u32::MAX });
        let at = self.frames.iter().position(|frame| Shared::is(&frame.installed, wrong));
        at.map(|at| self.frames.remove(at))
    }
}
