//! What is known of one code object: its compiled frames, the history that decides on more, and why calls were not compiled.

use crate::call::account::Account;
use crate::call::discover::Searches;
use crate::describe::leaves::{History, Place};
use crate::frame::breaks::Noted;
use crate::frame::installed::Installed;
use crate::frame::record::Record;
use crate::guard::Passed;
use crate::link::backends::{self, Backend, Wanted};
use crate::process::counters;
use crate::process::region::Region;
use crate::python::bind::Signature;
use crate::python::code;
use crate::python::gil::{GilCell, Shared};
use crate::python::raw::Raw;
use flambeau_ir::code::{Code, CodeHash};
use flambeau_ir::exit::Varying;
use flambeau_ir::source::Step;
use pyo3::prelude::*;
use pyo3::types::PyCode;
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts calls of `reset()`; tables from before are dropped.
static RESETS: AtomicU64 = AtomicU64::new(0);

/// Makes every callable forget its compiled frames.
pub fn reset_all() {
    RESETS.fetch_add(1, Ordering::Relaxed);
    backends::look_again();
}

/// Compiled frames of one code object, and the history that decides on more.
#[derive(Default)]
pub struct Table {
    /// The code object, kept alive so that its address stays its own.
    code: Option<Py<PyAny>>,
    generation: u64,
    resets: u64,
    /// What its frames were compiled by.
    pub backend: Backend,
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
    /// What the function and its resume functions recompiled so far.
    pub account: Arc<Account>,
    /// The most sizes that were symbolic in one compile.
    pub symbolic: usize,
    /// Why calls were not compiled, for `explain`.
    pub failures: Vec<Noted>,
    /// Of a resume function: what names its code and those of the resume functions it calls.
    pub resumes: Option<CodeHash>,
    /// Of a resume function: where its arguments hold what a loop changes.
    varying: Arc<[Place]>,
    /// What came of looking for frames to compile below its own.
    pub searches: Searches,
}

/// What a table is as of.
struct Stamp {
    generation: u64,
    resets: u64,
    backend: Backend,
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

    /// Whether the guard that failed last asks for one float.
    pub fn failed_by_float(&self) -> bool {
        let (count, index) = self.failures.get();
        count > 0 && self.installed.wants_float(index as usize)
    }

    /// The guard that failed last, in words, and how often guards of this frame failed.
    pub fn last_failure(&self) -> (u32, String) {
        let (count, index) = self.failures.get();
        (count, self.installed.explain_failure(index as usize))
    }
}

impl Table {
    /// Lets calls with this fingerprint run eagerly for a growing number of times.
    pub fn leave_alone(&mut self, fingerprint: u64) {
        let retry = self.failed.entry(fingerprint).or_insert(Retry { skip: 0, next: 32 });
        *retry = Retry { skip: retry.next, next: retry.next.saturating_mul(8) };
    }

    /// For a resume function; ints at the places that vary are symbolic from the first compile on.
    pub fn resuming(frames: CodeHash, varying: &[Varying], account: Arc<Account>) -> Table {
        let place = |varying: &Varying| match varying {
            Varying::Value => vec![Step::Arg(1)],
            Varying::State(path) => [Step::Arg(0)].into_iter().chain(path.iter().map(|i| Step::Index(*i))).collect(),
        };
        let varying = varying.iter().map(place).collect();
        Table { resumes: Some(frames), varying, account, ..Table::default() }
    }

    /// For a function that plain Python called below a break of another.
    pub fn below(above: Arc<Account>) -> Table {
        Table { account: Arc::new(Account::below(above)), ..Table::default() }
    }

    unsafe fn of(py: Python<'_>, code: Raw) -> Table {
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
            Ok(((flags & code::SUSPENDS == 0).then_some(signature), names.unbind()))
        };
        let (signature, names) = match read(&code) {
            Ok((signature, names)) => (signature, Some(names)),
            Err(_) => (None, None),
        };
        if signature.is_none() {
            counters::graph_break(py, "generator");
        }
        Table { code: Some(code.unbind()), signature, _names: names, ..Table::default() }
    }

    /// The code object, in a form that can be read.
    pub fn described(&self, py: Python<'_>) -> Option<Arc<Code>> {
        // SAFETY: a live code object.
        self.code.as_ref().and_then(|code| unsafe { crate::python::code::encode(py, code.as_ptr()) })
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
    /// than the last `reset()`. Its frames are those of the back end that is wanted now.
    ///
    /// # Safety
    /// A live code object.
    #[inline]
    pub unsafe fn signature(
        table: &GilCell<Table>,
        py: Python<'_>,
        code: Raw,
        wanted: &Wanted,
    ) -> (Option<Signature>, bool) {
        let known = table.borrow(py);
        let generation = backends::generation(Ordering::Relaxed);
        if known.is_for(code) && known.generation == generation {
            return (known.signature, false);
        }
        drop(known);
        // SAFETY: the caller's promise.
        unsafe { Table::look(table, py, code, wanted) }
    }

    #[cold]
    unsafe fn look(table: &GilCell<Table>, py: Python<'_>, code: Raw, wanted: &Wanted) -> (Option<Signature>, bool) {
        let (generation, resets) = (backends::generation(Ordering::Acquire), RESETS.load(Ordering::Relaxed));
        // May warn, so not under the borrow.
        let backend = backends::now(py, wanted);
        let mut known = table.borrow(py);
        known.generation = generation;
        if known.is_for(code) && known.resets == resets {
            let signature = known.signature;
            let old = known.follow(py, backend);
            drop(known);
            // May run finalizers, so not under the borrow either.
            drop(old);
            return (signature, false);
        }
        drop(known);
        // SAFETY: the caller's promise.
        (unsafe { Table::renew(table, py, code, Stamp { generation, resets, backend }) }, true)
    }

    /// Goes on with a back end. What another one compiled, or could not, is given out to be dropped; sizes seen stay known.
    fn follow(&mut self, py: Python<'_>, backend: Backend) -> (Vec<Frame>, Vec<Noted>) {
        if self.backend == backend {
            return (Vec::new(), Vec::new());
        }
        counters::bump(py, "backend_moves");
        self.backend = backend;
        self.failed.clear();
        self.limit_explained = false;
        (std::mem::take(&mut self.frames), std::mem::take(&mut self.failures))
    }

    unsafe fn renew(table: &GilCell<Table>, py: Python<'_>, code: Raw, stamp: Stamp) -> Option<Signature> {
        let known = table.borrow(py);
        let (resumes, varying) = (known.resumes, known.varying.clone());
        let account = if resumes.is_some() { known.account.clone() } else { Arc::new(known.account.renewed()) };
        drop(known);
        let Stamp { generation, resets, backend } = stamp;
        // SAFETY: the caller's promise.
        let mut fresh = Table { generation, resets, backend, account, resumes, ..unsafe { Table::of(py, code) } };
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
