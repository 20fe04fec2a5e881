//! A call's way through one compiled callable: bind, find a compiled frame whose guards hold, run it; else `compile`.

use crate::bind::Signature;
use crate::compile::{self, Outcome};
use crate::counters;
use crate::gil::GilCell;
use crate::installed::{Checked, Installed, RunError};
use crate::leaves::History;
use crate::raw::Raw;
use crate::say;
use flambeau_ir::frame::{BackendKind, TraceOptions};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCode;
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Generators, coroutines and async generators are not compiled as a whole.
const CO_SUSPENDS: i32 = 0x20 | 0x80 | 0x200;

thread_local! {
    /// Above zero while this thread captures a frame: compiled calls made meanwhile run eagerly.
    static CAPTURING: Cell<u32> = const { Cell::new(0) };
}

/// Counts calls of `reset()`; tables of an older generation are dropped at their next use.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// While it lives, compiled calls of this thread run eagerly.
pub struct CaptureScope(());

impl CaptureScope {
    /// Enters.
    pub fn enter() -> Self {
        CAPTURING.set(CAPTURING.get() + 1);
        CaptureScope(())
    }
}

impl Drop for CaptureScope {
    fn drop(&mut self) {
        CAPTURING.set(CAPTURING.get() - 1);
    }
}

/// Makes every callable forget its compiled frames.
pub fn reset_all() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// What one call of `flambeau.compile` made.
pub struct Entry {
    /// Options of the trace.
    pub options: TraceOptions,
    /// The back end's name.
    pub backend: String,
    /// `f(gm, example_inputs)`, for back ends that take FX.
    pub fx: Option<Py<PyAny>>,
    /// What is known of the function's present code.
    pub table: GilCell<Table>,
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
    /// Reasons why calls were not compiled, for `explain`.
    pub breaks: Vec<String>,
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
    pub installed: Arc<Installed>,
    /// For `explain`.
    pub record: Arc<Record>,
    /// How often a guard of it failed, and the latest one.
    failures: Cell<(u32, u32)>,
}

/// What `explain` and logs say of a compiled frame.
#[derive(Debug, Default)]
pub struct Record {
    /// The graph as text.
    pub graph: String,
    /// Calls in the graph.
    pub ops: usize,
    /// Guards in words.
    pub guards: Vec<String>,
    /// Seconds per stage.
    pub timings: Vec<(String, f64)>,
    /// Where it came from: `compiled` or `cache`.
    pub origin: &'static str,
}

impl Frame {
    /// A frame that was never checked.
    pub fn new(installed: Arc<Installed>, record: Record) -> Self {
        Frame { installed, record: Arc::new(record), failures: Cell::new((0, 0)) }
    }

    /// The guard that failed last, in words, and how often guards of this frame failed.
    pub fn last_failure(&self) -> (u32, String) {
        let (count, index) = self.failures.get();
        (count, self.installed.explain_failure(index as usize))
    }
}

impl Entry {
    /// Compiles nothing yet.
    pub fn new(backend: String, fx: Option<Py<PyAny>>, fullgraph: bool, dynamic: Option<bool>) -> Self {
        let kind = match backend.as_str() {
            "eager" => BackendKind::Eager,
            name if name.starts_with("fx:") => BackendKind::Fx,
            name => BackendKind::Native(name.to_owned()),
        };
        let options = TraceOptions {
            backend: kind,
            fullgraph,
            dynamic,
            dynamic_dims: Vec::new(),
            log: crate::settings::get().logs("trace"),
        };
        Entry { options, backend, fx, table: GilCell::new(Table::default()) }
    }

    /// Takes a vectorcall of `function`.
    ///
    /// # Safety
    /// The vectorcall protocol; `function` is a Python function that lives during the call.
    pub unsafe fn call(&self, py: Python<'_>, function: Raw, args: *const Raw, nargsf: usize, kwnames: Raw) -> Raw {
        // SAFETY: the caller's promise, passed on.
        let eager = || unsafe { ffi::PyObject_Vectorcall(function, args, nargsf, kwnames) };
        if CAPTURING.get() != 0 {
            return eager();
        }
        // SAFETY: as above.
        let positional = unsafe { ffi::PyVectorcall_NARGS(nargsf) } as usize;
        let object = function.cast::<ffi::PyFunctionObject>();
        // SAFETY: a live function.
        let Some(signature) = (unsafe { self.signature(py, (*object).func_code) }) else { return eager() };
        let result = if kwnames.is_null() && signature.is_direct(positional) {
            // SAFETY: the protocol gives `positional` arguments.
            let slots = unsafe { std::slice::from_raw_parts(args, positional) };
            self.dispatch(py, function, slots)
        } else {
            // SAFETY: as above; the signature is that of the function's code.
            let Some(bound) = (unsafe { signature.bind(object, args, positional, kwnames) }) else { return eager() };
            self.dispatch(py, function, &bound.slots)
        };
        match result {
            Some(Ok(value)) => value.into_ptr(),
            Some(Err(error)) => {
                error.restore(py);
                std::ptr::null_mut()
            }
            None => eager(),
        }
    }

    /// The signature of the function's present code; drops what is known of another code object.
    unsafe fn signature(&self, py: Python<'_>, code: Raw) -> Option<Signature> {
        let mut table = self.table.borrow(py);
        let generation = GENERATION.load(Ordering::Relaxed);
        if table.code.as_ref().is_some_and(|c| c.as_ptr() == code) && table.generation == generation {
            return table.signature;
        }
        // SAFETY: a live function's code.
        let fresh = unsafe { Table::of(py, code, generation) };
        let signature = fresh.signature;
        let old = std::mem::replace(&mut *table, fresh);
        drop(table);
        // May run finalizers, so not under the borrow.
        drop(old);
        signature
    }

    /// Runs the first frame whose guards hold; compiles if there is none. `None`: run eagerly.
    fn dispatch(&self, py: Python<'_>, function: Raw, slots: &[Raw]) -> Option<PyResult<Py<PyAny>>> {
        if let Some((installed, checked)) = self.find(py, function, slots) {
            counters::process_hit();
            return self.run(py, &installed, checked, function, slots);
        }
        match compile::miss(py, self, function, slots) {
            Outcome::Run(installed, checked) => self.run(py, &installed, checked, function, slots),
            Outcome::Eager => None,
            Outcome::Raise(error) => Some(Err(error)),
        }
    }

    /// The first frame whose guards hold, moved to the front.
    fn find(&self, py: Python<'_>, function: Raw, slots: &[Raw]) -> Option<(Arc<Installed>, Checked)> {
        let mut table = self.table.borrow(py);
        let found =
            table.frames.iter().enumerate().find_map(|(i, frame)| match frame.installed.check(py, function, slots) {
                Ok(checked) => Some((i, frame.installed.clone(), checked)),
                Err(guard) => {
                    let (count, _) = frame.failures.get();
                    frame.failures.set((count.saturating_add(1), guard as u32));
                    None
                }
            });
        let (index, installed, checked) = found?;
        if index > 0 {
            table.frames[..=index].rotate_right(1);
        }
        Some((installed, checked))
    }

    fn run(
        &self,
        py: Python<'_>,
        installed: &Arc<Installed>,
        checked: Checked,
        function: Raw,
        slots: &[Raw],
    ) -> Option<PyResult<Py<PyAny>>> {
        match installed.run(py, checked, function, slots) {
            Ok(value) => Some(Ok(value)),
            Err(RunError::Python(error)) => Some(Err(error)),
            Err(RunError::Fallback(reason)) => {
                counters::eager_fallback(py, "run_failed");
                say::warn_once(py, &format!("run_failed:{reason}"), &format!("a compiled frame ran eagerly: {reason}"));
                None
            }
            Err(RunError::Wrong(what, error)) => {
                self.give_up(py, installed, slots);
                counters::eager_fallback(py, "output_mismatch");
                let text = format!("flambeau gives up a compiled frame, because its prediction failed: {what}");
                say::warn_once(py, "output_mismatch", &text);
                error.map(Err)
            }
        }
    }

    /// Drops a frame that turned out to be wrong, and leaves calls like this one alone: the daemon would give it again.
    fn give_up(&self, py: Python<'_>, wrong: &Arc<Installed>, slots: &[Raw]) {
        let fingerprint = compile::fingerprint_of(py, slots);
        let mut table = self.table.borrow(py);
        table.failed.insert(fingerprint, Retry { skip: u32::MAX, next: u32::MAX });
        let at = table.frames.iter().position(|frame| Arc::ptr_eq(&frame.installed, wrong));
        let dropped = at.map(|at| table.frames.remove(at));
        drop(table);
        // May run finalizers, so not under the borrow.
        drop(dropped);
    }
}

impl Table {
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

    /// Whether this table is for that code object.
    pub fn is_for(&self, code: Raw) -> bool {
        self.code.as_ref().is_some_and(|c| c.as_ptr() == code)
    }
}
