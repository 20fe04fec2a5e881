//! A call's way through one compiled callable: bind, find a compiled frame whose guards hold, run it; else `compile`. A frame
//! that ends in a graph break is gone on from here, resume function after resume function, until one gives the value.

use crate::call::account::Account;
use crate::call::compile::{self, Outcome};
use crate::call::discover::Discovery;
use crate::call::table::Table;
use crate::describe::leaves;
use crate::exit::{Broken, Codes, Left, Next, Onward};
use crate::frame::installed::{Installed, RunError};
use crate::guard::Passed;
use crate::link::backends::Wanted;
use crate::process::counters;
use crate::process::fence::fence;
use crate::process::region::Region;
use crate::process::say;
use crate::process::thread::{self, Thread};
use crate::python::gil::{GilCell, Shared};
use crate::python::observers::{self, Observers};
use crate::python::raw::{self, Raw};
use flambeau_ir::code::CodeHash;
use flambeau_ir::exit::Varying;
use flambeau_ir::frame::TraceOptions;
use indexmap::IndexMap;
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ptr::null_mut;
use std::sync::Arc;

/// What one call of `flambeau.compile` made: the function's compiled frames, and those of the resume functions that take
/// it up after graph breaks.
pub struct Entry {
    /// Options of traces, but for what the place of a call and the back end of the moment decide.
    pub options: TraceOptions,
    /// The back end.
    pub backend: Wanted,
    /// `f(gm, example_inputs)`, for back ends that take FX.
    pub fx: Option<Py<PyAny>>,
    /// Whether plans are to be recorded and replayed where their device can.
    pub records: bool,
    /// Code objects of the functions that frames make, resume functions among them.
    pub codes: Codes,
    /// What is known of the function's present code.
    root: GilCell<Table>,
    /// What is known of resume functions, by their code: whichever frame breaks, the same code finds the same compiles.
    resumed: GilCell<IndexMap<CodeHash, Arc<GilCell<Table>>>>,
    /// What is known of functions that plain Python called below a break, by the addresses of their code objects, which
    /// the tables keep alive.
    discovered: GilCell<IndexMap<usize, Arc<GilCell<Table>>>>,
}

/// What became of a call.
enum Went {
    /// It gave a value, a new reference, or raised: null, and the error is set.
    Done(Raw),
    /// Its frame broke off.
    Broken(Box<Broken>),
    /// The original code has to run.
    Eager,
    /// It has to run, and is to raise this.
    Raises(String),
    /// It has to run because the compiled frame failed.
    Failed(Failed),
}

/// Why a compiled frame failed before anything could be seen of it.
pub struct Failed {
    why: String,
    kind: FailedFor,
}

/// What for.
#[derive(PartialEq)]
enum FailedFor {
    /// The original code has to raise too, or this is a mistake.
    Error,
    /// An op raised, and the original code may handle that.
    Handled,
    /// An int of more than 64 bits.
    LargeInt,
}

impl Entry {
    /// Compiles nothing yet.
    pub fn new(backend: Wanted, fx: Option<Py<PyAny>>, fullgraph: bool, dynamic: Option<bool>, records: bool) -> Self {
        let log = crate::process::settings::get().logs("trace");
        let options = TraceOptions { fullgraph, dynamic, log, ..TraceOptions::default() };
        Entry {
            options,
            backend,
            fx,
            records,
            codes: Codes::default(),
            root: GilCell::default(),
            resumed: GilCell::default(),
            discovered: GilCell::default(),
        }
    }

    /// Calls `visit` with each table: the function's first, then those of resume functions in the order they were reached,
    /// then those of functions that were discovered.
    pub fn each_table(&self, py: Python<'_>, visit: &mut dyn FnMut(&Table)) {
        visit(&self.root.borrow(py));
        let (resumed, discovered) = (self.resumed.borrow(py), self.discovered.borrow(py));
        for table in resumed.values().chain(discovered.values()) {
            let table = table.borrow(py);
            if table.is_reached() {
                visit(&table);
            }
        }
    }

    /// What is known of the function itself.
    pub fn root(&self) -> &GilCell<Table> {
        &self.root
    }

    /// The account of the function itself.
    pub fn account(&self, py: Python<'_>) -> Arc<Account> {
        self.root.borrow(py).account.clone()
    }

    /// What is known of resume functions with these codes; new ones find what varies in their arguments so, and count
    /// their compiles with those of the function that they belong to.
    #[expect(clippy::arc_with_non_send_sync, reason = "a table is only reached with the GIL held, as `Entry` is")]
    pub fn resumed(
        &self,
        py: Python<'_>,
        frames: CodeHash,
        varying: &[Varying],
        account: &Arc<Account>,
    ) -> Arc<GilCell<Table>> {
        let fresh = || Arc::new(GilCell::new(Table::resuming(frames, varying, account.clone())));
        self.resumed.borrow(py).entry(frames).or_insert_with(fresh).clone()
    }

    /// What is known of functions with this code that plain Python calls below a break.
    #[expect(clippy::arc_with_non_send_sync, reason = "a table is only reached with the GIL held, as `Entry` is")]
    pub fn for_discovered(&self, py: Python<'_>, code: Raw) -> Arc<GilCell<Table>> {
        let account = self.account(py);
        let fresh = || Arc::new(GilCell::new(Table::below(account)));
        self.discovered.borrow(py).entry(code as usize).or_insert_with(fresh).clone()
    }

    /// Takes a vectorcall of `function`.
    ///
    /// # Safety
    /// The vectorcall protocol; `function` is a Python function that lives during the call.
    pub unsafe fn call(&self, py: Python<'_>, function: Raw, args: *const Raw, nargsf: usize, kwnames: Raw) -> Raw {
        // SAFETY: the caller's promise, passed on.
        thread::with(|here| unsafe { self.call_here(py, here, function, args, nargsf, kwnames) })
    }

    /// # Safety
    /// As [`Entry::call`].
    unsafe fn call_here(
        &self,
        py: Python<'_>,
        here: &Thread,
        function: Raw,
        args: *const Raw,
        nargsf: usize,
        kwnames: Raw,
    ) -> Raw {
        // SAFETY: the caller's promise, passed on.
        let eager = || unsafe { ffi::PyObject_Vectorcall(function, args, nargsf, kwnames) };
        // SAFETY: as above.
        if here.is_capturing() || observers::lines_are_watched(py) || !unsafe { raw::runs_its_code(py, function) } {
            return eager();
        }
        // SAFETY: as above.
        let positional = unsafe { ffi::PyVectorcall_NARGS(nargsf) } as usize;
        let object = function.cast::<ffi::PyFunctionObject>();
        // SAFETY: a live function.
        let (signature, fresh) = unsafe { Table::signature(&self.root, py, (*object).func_code, &self.backend) };
        if fresh {
            self.forget_resumed(py);
        }
        let plain = || {
            // SAFETY: as above. The function's own frame is let through: it is known not to compile.
            let _discovery = self.discovery(py, here, &self.root, unsafe { (*object).func_code });
            eager()
        };
        let Some(signature) = signature else { return plain() };
        let quiet = Discovery::pause(here);
        let went = if kwnames.is_null() && signature.is_direct(positional) {
            // SAFETY: the protocol gives `positional` arguments.
            let slots = unsafe { std::slice::from_raw_parts(args, positional) };
            self.dispatch(py, here, &self.root, function, slots)
        } else {
            // SAFETY: as above; the signature is that of the function's code.
            let Some(bound) = (unsafe { signature.bind(object, args, positional, kwnames) }) else { return eager() };
            self.dispatch(py, here, &self.root, function, &bound.slots)
        };
        match went {
            Went::Done(value) => value,
            Went::Broken(broken) => self.go_on(py, here, &self.root, *broken),
            Went::Eager => {
                drop(quiet);
                plain()
            }
            Went::Raises(what) => {
                drop(quiet);
                say_unraised(py, &what, plain())
            }
            Went::Failed(failed) => {
                drop(quiet);
                say_failed(py, &failed, plain())
            }
        }
    }

    /// Takes a call that plain Python made; `slots` are the function's arguments as its frame has them. Null with an error set
    /// if the call raised.
    ///
    /// # Errors
    /// The frame has to run as it is; with the reason where its compiled one failed, see [`say_failed`].
    pub fn discovered(
        &self,
        py: Python<'_>,
        here: &Thread,
        function: Raw,
        slots: &[Raw],
    ) -> Result<Raw, Option<Failed>> {
        // SAFETY: a live function.
        if here.is_capturing() || observers::lines_are_watched(py) || !unsafe { raw::runs_its_code(py, function) } {
            return Err(None);
        }
        let _quiet = Discovery::pause(here);
        // SAFETY: a live function.
        let code = unsafe { (*function.cast::<ffi::PyFunctionObject>()).func_code };
        let known = self.discovered.borrow(py).get(&(code as usize)).cloned();
        let table = match known {
            Some(table) => table,
            // SAFETY: live arguments.
            None if !unsafe { leaves::has_tensors(py, slots) } => return Err(None),
            None => self.for_discovered(py, code),
        };
        // SAFETY: a live code object.
        let has_signature = unsafe { Table::signature(&table, py, code, &self.backend) }.0.is_some();
        if !has_signature || table.borrow(py).is_barren() {
            return Err(None);
        }
        let went = self.dispatch(py, here, &table, function, slots);
        if matches!(went, Went::Done(_) | Went::Broken(_)) {
            here.note_found();
        }
        match went {
            Went::Done(value) => Ok(value),
            Went::Broken(broken) => Ok(self.go_on(py, here, &table, *broken)),
            Went::Eager | Went::Raises(_) => Err(None),
            Went::Failed(failed) => Err(Some(failed)),
        }
    }

    /// Runs what a frame broke at and the resume functions that follow, until one gives the call's value. They call each
    /// other from here, so that a loop of the program runs at a constant depth of the stack. Nothing that ran is run again:
    /// a resume function that has no compiled frame runs as plain Python. `whole` is of the function that broke first.
    fn go_on(&self, py: Python<'_>, here: &Thread, whole: &GilCell<Table>, mut broken: Broken) -> Raw {
        let chain = here.begin_chain();
        let observers = Observers::now(py);
        // Of the resume function that broke last.
        let mut current: Option<Arc<GilCell<Table>>> = None;
        loop {
            let acted = {
                let of = current.as_deref().unwrap_or(whole);
                let _discovery = Discovery::start(py, here, self, of, null_mut());
                broken.act(py)
            };
            let next = match acted {
                Ok(Onward::Value(value)) => return value.into_ptr(),
                Ok(Onward::Next(next)) => next,
                Err(error) => return raise(py, error),
            };
            here.take_up_chain(chain);
            if Observers::now(py) != observers {
                // The program began to watch itself: it is to see all functions that it calls from here on.
                return next.call(py).map_or_else(|error| raise(py, error), Py::into_ptr);
            }
            let table = self.taken_up(py, whole, &next);
            broken = match self.take_up(py, here, &table, &next) {
                Went::Done(value) => return value,
                Went::Broken(broken) => *broken,
                went @ (Went::Eager | Went::Raises(_)) => {
                    let _discovery = self.discovery(py, here, &table, null_mut());
                    let result = next.call(py).map_or_else(|error| raise(py, error), Py::into_ptr);
                    return if let Went::Raises(what) = went { say_unraised(py, &what, result) } else { result };
                }
                Went::Failed(failed) => {
                    let result = next.call(py).map_or_else(|error| raise(py, error), Py::into_ptr);
                    return say_failed(py, &failed, result);
                }
            };
            current = Some(table);
        }
    }

    /// What is known of a resume function that was named at a break.
    fn taken_up(&self, py: Python<'_>, whole: &GilCell<Table>, next: &Next) -> Arc<GilCell<Table>> {
        let known = self.resumed.borrow(py).get(&next.frames).cloned();
        // Nothing in its arguments is known to vary, or `reset()` came in between.
        known.unwrap_or_else(|| self.resumed(py, next.frames, &[], &whole.borrow(py).account))
    }

    fn take_up(&self, py: Python<'_>, here: &Thread, table: &GilCell<Table>, next: &Next) -> Went {
        // SAFETY: a resume function is a live Python function.
        let code = unsafe { (*next.function().cast::<ffi::PyFunctionObject>()).func_code };
        // SAFETY: as above.
        match unsafe { Table::signature(table, py, code, &self.backend) } {
            (Some(signature), _) if signature.is_direct(next.args().len()) => {
                self.dispatch(py, here, table, next.function(), &next.args())
            }
            _ => Went::Eager,
        }
    }

    /// For a frame that runs eagerly: looks for others below it, if it was given up for a reason of its own.
    fn discovery<'a>(
        &self,
        py: Python<'a>,
        here: &'a Thread,
        table: &'a GilCell<Table>,
        known: Raw,
    ) -> Option<Discovery<'a>> {
        let is_given_up = table.borrow(py).is_given_up();
        is_given_up.then(|| Discovery::start(py, here, self, table, known))
    }

    /// Forgets resume functions and discovered ones: the function has other code, or `reset()` was called.
    fn forget_resumed(&self, py: Python<'_>) {
        self.codes.clear(py);
        let old = std::mem::take(&mut *self.resumed.borrow(py));
        let found = std::mem::take(&mut *self.discovered.borrow(py));
        // May run finalizers, so not under the borrows.
        drop((old, found));
    }

    /// Runs the first frame whose guards hold; compiles if there is none.
    fn dispatch(&self, py: Python<'_>, here: &Thread, table: &GilCell<Table>, function: Raw, slots: &[Raw]) -> Went {
        let mut passed = Passed::default();
        let found = table.borrow(py).find(py, Region::of(here), function, slots, &mut passed);
        if let Some(installed) = found {
            counters::process_hit(py);
            return run(py, table, &installed, &mut passed, function, slots);
        }
        let missed = fence(|| compile::miss(py, self, table, function, slots));
        match missed.unwrap_or_else(Outcome::Bug) {
            // Finalizers may have run since it was checked.
            Outcome::Run(installed) => match installed.check(py, function, slots, &mut passed) {
                Ok(()) => run(py, table, &installed, &mut passed, function, slots),
                Err(_) => {
                    counters::eager_fallback(py, "changed_meanwhile");
                    Went::Eager
                }
            },
            Outcome::Eager => Went::Eager,
            Outcome::Raises(what) => Went::Raises(what),
            Outcome::Bug(text) => {
                table.borrow(py).leave_alone(compile::fingerprint_of(py, slots));
                counters::eager_fallback(py, "panic");
                say::warn_once(py, &format!("panic:{text}"), &format!("a call runs uncompiled: {text}"));
                Went::Eager
            }
            Outcome::Raise(error) => Went::Done(raise(py, error)),
        }
    }
}

/// Sets the error, as the C interface wants it.
#[cold]
fn raise(py: Python<'_>, error: PyErr) -> Raw {
    error.restore(py);
    null_mut()
}

fn run(
    py: Python<'_>,
    table: &GilCell<Table>,
    installed: &Shared<Installed>,
    passed: &mut Passed,
    function: Raw,
    slots: &[Raw],
) -> Went {
    match fence(|| installed.run(py, passed, function, slots)) {
        Ok(Ok(Left::Value(value))) => Went::Done(value.into_ptr()),
        Ok(Ok(Left::Broken(broken))) => Went::Broken(broken),
        Ok(Err(error)) => failed(py, table, installed, slots, *error),
        Err(text) => {
            // What was done cannot be told any more, if anything could be.
            let error = installed.changes().then(|| PyRuntimeError::new_err(text.clone()));
            failed(py, table, installed, slots, RunError::Wrong(text, error))
        }
    }
}

/// Counts a failure of a frame, and says why it failed, unless the original code raised as well, or may have handled what
/// was raised: then that was why.
#[cold]
pub fn say_failed(py: Python<'_>, failed: &Failed, result: Raw) -> Raw {
    let Failed { why, kind } = failed;
    if *kind == FailedFor::Handled || *kind == FailedFor::Error && result.is_null() {
        counters::eager_fallback(py, "raises");
    } else {
        counters::eager_fallback(py, if *kind == FailedFor::LargeInt { "large_int" } else { "run_failed" });
        say::warn_once(py, &format!("run_failed:{why}"), &format!("a compiled frame ran eagerly: {why}"));
    }
    result
}

/// Says that the original code did not raise what its trace ended in.
#[cold]
fn say_unraised(py: Python<'_>, what: &str, result: Raw) -> Raw {
    if !result.is_null() {
        counters::eager_fallback(py, "output_mismatch");
        let text = format!("a trace ended in an exception that the original code does not raise: {what}");
        say::warn_once(py, &format!("unraised:{what}"), &text);
    }
    result
}

/// What a run that gave no value means for the call.
#[cold]
fn failed(
    py: Python<'_>,
    table: &GilCell<Table>,
    installed: &Shared<Installed>,
    slots: &[Raw],
    error: RunError,
) -> Went {
    match error {
        RunError::Python(error) => Went::Done(raise(py, error)),
        RunError::Fallback(why) => Went::Failed(Failed { why, kind: FailedFor::Error }),
        RunError::Raised(why) => {
            let kind = if installed.frame().exit.handles { FailedFor::Handled } else { FailedFor::Error };
            Went::Failed(Failed { why, kind })
        }
        RunError::MayRaise(why) => Went::Failed(Failed { why: why.to_owned(), kind: FailedFor::Handled }),
        RunError::LargeInt => {
            let why = "an int of more than 64 bits is computed with".to_owned();
            Went::Failed(Failed { why, kind: FailedFor::LargeInt })
        }
        RunError::Wrong(what, error) => {
            let fingerprint = compile::fingerprint_of(py, slots);
            let dropped = table.borrow(py).give_up(installed, fingerprint);
            // May run finalizers, so not under the borrow.
            drop(dropped);
            counters::eager_fallback(py, "output_mismatch");
            let text = format!("flambeau gives up a compiled frame, because its prediction failed: {what}");
            say::warn_once(py, "output_mismatch", &text);
            error.map_or(Went::Eager, |error| Went::Done(raise(py, error)))
        }
    }
}
