//! What happens when no compiled frame of a callable fits a call: ask the daemon for stored frames, then for a new one.
//! Whatever fails here ends in the original code running, with a counted reason.

use crate::call::account::Grant;
use crate::call::entry::Entry;
use crate::call::table::{Frame, Table};
use crate::describe::answer;
use crate::describe::leaves::{self, Dynamic, Place, Size};
use crate::describe::snapshot;
use crate::describe::snapshot::describe::Describer;
use crate::exit::assembled;
use crate::frame::breaks::{self, Kind, Noted, describe};
use crate::frame::installed::{InstallContext, Installed};
use crate::frame::record::{self, Record};
use crate::guard::Passed;
use crate::guard::ambient::number_of_state;
use crate::link::backends::Backend;
use crate::link::{self, LinkError, Pending};
use crate::process::counters;
use crate::process::region::Region;
use crate::process::say;
use crate::process::settings;
use crate::process::thread::{self, CaptureScope, Thread};
use crate::python::code;
use crate::python::gil::{GilCell, GilOnce, Shared};
use crate::python::lines::Lines;
use crate::python::raw::Raw;
use crate::python::structure;
use crate::run::step::launch;
use crate::run::training::subgradients;
use flambeau_ir::code::Code;
use flambeau_ir::frame::{BackendKind, FrameId, TraceOptions};
use flambeau_ir::plan::{Body, CompiledFrame};
use flambeau_ir::reason::{Reason, ReasonCode};
use flambeau_wire::from_client::{FrameKey, FromClient, KeyOptions};
use flambeau_wire::from_daemon::{Delivery, FromDaemon};
use flambeau_wire::registry::FIRST;
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::cell::RefCell;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Instant;

/// How a call without a compiled frame goes on.
pub enum Outcome {
    /// Run this frame; its guards held when it was made ready.
    Run(Shared<Installed>),
    /// Run the original code.
    Eager,
    /// Run the original code, which is to raise this.
    Raises(String),
    /// Run the original code: the way to a frame panicked, which is what this says.
    Bug(String),
    /// Raise: a signal handler's exception, or `fullgraph=True` and a break.
    Raise(PyErr),
}

/// What storage has for a call.
enum Stored {
    /// A frame whose guards hold.
    Frame(Shared<Installed>),
    /// Why calls like it are not compiled.
    Refusal(Reason),
}

/// A call that found no compiled frame.
struct Miss<'a, 'py> {
    py: Python<'py>,
    entry: &'a Entry,
    table: &'a GilCell<Table>,
    function: Raw,
    args: &'a [Raw],
    code: Arc<Code>,
    /// What compiles it.
    backend: Backend,
    options: TraceOptions,
    fingerprint: u64,
    begun: Instant,
    /// Seconds per stage so far.
    timings: RefCell<Vec<(String, f64)>>,
    /// Guards of known frames that failed, where this call is compiled in spite of them.
    recompiled: RefCell<Vec<String>>,
    /// The guard of a stored frame that did not hold.
    unfit: RefCell<Option<String>>,
}

/// Gets a frame for the call, or says how to go on without.
pub fn miss(py: Python<'_>, entry: &Entry, table: &GilCell<Table>, function: Raw, args: &[Raw]) -> Outcome {
    if limit_reached(py, table, function) {
        return Outcome::Eager;
    }
    // SAFETY: live objects of the running call.
    let found = unsafe { leaves::of(py, args) };
    // SAFETY: as above.
    let fingerprint = unsafe { fingerprint(py, &found) };
    if left_alone(py, table, fingerprint) {
        return Outcome::Eager;
    }
    // Another try may be what it takes.
    thread::with(Thread::note_found);
    // SAFETY: a live function.
    let code = unsafe { code::encode(py, (*function.cast::<ffi::PyFunctionObject>()).func_code) };
    let Some(code) = code else {
        counters::eager_fallback(py, "code_not_encodable");
        return Outcome::Eager;
    };
    let region = Region::now();
    let backend = table.borrow(py).backend.clone();
    let options = TraceOptions {
        backend: backend.kind(),
        nested_breaks: region.nested,
        training: if settings::get().native_training { subgradients(py) } else { None },
        error_on_break: region.error,
        ..entry.options.clone()
    };
    let miss = Miss {
        py,
        entry,
        table,
        function,
        args,
        code,
        backend,
        options,
        fingerprint,
        begun: Instant::now(),
        timings: RefCell::default(),
        recompiled: RefCell::default(),
        unfit: RefCell::default(),
    };
    let _scope = CaptureScope::enter();
    match miss.resolve(&found) {
        Ok(outcome) => outcome,
        Err(LinkError::Interrupted(error)) => Outcome::Raise(error),
        Err(LinkError::Unavailable(cause, detail)) => {
            counters::eager_fallback(py, cause);
            say::warn_once(
                py,
                cause,
                &format!("flambeau runs code uncompiled, because of its daemon ({cause}): {detail}"),
            );
            Outcome::Eager
        }
    }
}

/// Types and sizes of the call and the thread's state: what decides whether a failed compile may go differently.
unsafe fn fingerprint(py: Python<'_>, found: &[(Place, Raw)]) -> u64 {
    let mut hasher = DefaultHasher::new();
    // SAFETY: the caller's promise.
    unsafe { leaves::fingerprint(py, found) }.hash(&mut hasher);
    number_of_state(py).hash(&mut hasher);
    Region::now().hash(&mut hasher);
    hasher.finish()
}

/// The fingerprint of a call with these arguments.
pub fn fingerprint_of(py: Python<'_>, args: &[Raw]) -> u64 {
    // SAFETY: live objects of the running call.
    unsafe { fingerprint(py, &leaves::of(py, args)) }
}

fn left_alone(py: Python<'_>, table: &GilCell<Table>, fingerprint: u64) -> bool {
    let mut table = table.borrow(py);
    match table.failed.get_mut(&fingerprint) {
        Some(retry) if retry.skip > 0 => {
            retry.skip -= 1;
            counters::bump(py, "left_alone");
            true
        }
        _ => false,
    }
}

/// True if the callable has as many compiled frames as it may; explains that once.
fn limit_reached(py: Python<'_>, known: &GilCell<Table>, function: Raw) -> bool {
    let limit = settings::get().recompile_limit;
    let mut table = known.borrow(py);
    // A resume function that was never reached before is not what keeps compiling.
    let spent = !table.frames.is_empty() && table.account.is_spent(limit);
    if table.frames.len() < limit && !spent {
        return false;
    }
    if !std::mem::replace(&mut table.limit_explained, true) {
        let account = table.account.clone();
        let worst = table.frames.iter().map(Frame::last_failure).max_by_key(|(count, _)| *count);
        drop(table);
        let (count, guard) = worst.unwrap_or_default();
        let name = name_of(function);
        let text = format!(
            "flambeau compiled {name} {limit} times (recompile_limit), or what goes on after its graph breaks, and stops: \
             calls that match none of the compiled frames run eagerly from now on, the compiled ones stay in use. The guard that keeps failing ({count} times): \
             {guard}. Pass what varies as a tensor, use flambeau.mark_dynamic or dynamic=True, or raise \
             flambeau.config.recompile_limit."
        );
        counters::bump(py, "recompile_limit_hits");
        say::log("recompiles", || text.clone());
        if account.explain() {
            // Resume functions stand where the function does, which is told of once.
            let place = place_of(py, function).unwrap_or_default();
            say::warn_once(py, &format!("recompile_limit:{place}"), &text);
        }
    }
    counters::eager_fallback(py, "recompile_limit");
    true
}

/// File and first line of a function's code.
fn place_of(py: Python<'_>, function: Raw) -> Option<String> {
    // SAFETY: a live Python function, which has code.
    let code = unsafe { Bound::from_borrowed_ptr(py, (*function.cast::<ffi::PyFunctionObject>()).func_code) };
    let (file, line) = (code.getattr("co_filename").ok()?, code.getattr("co_firstlineno").ok()?);
    Some(format!("{file}:{line}"))
}

fn name_of(function: Raw) -> String {
    // SAFETY: a live Python function.
    unsafe {
        let function = function.cast::<ffi::PyFunctionObject>();
        let module = crate::python::raw::utf8((*function).func_module).unwrap_or("?");
        format!("{module}.{}", crate::python::raw::utf8((*function).func_qualname).unwrap_or("?"))
    }
}

impl Miss<'_, '_> {
    fn resolve(&self, found: &[(Place, Raw)]) -> Result<Outcome, LinkError> {
        let py = self.py;
        // SAFETY: live objects of the running call.
        let marked = unsafe { leaves::marked(py, found) };
        let key = match self.key(&marked) {
            Ok(key) => key,
            Err(why) => return Ok(self.unusable(&why)),
        };
        // Frames from the disk count as those that are compiled do: the next process goes as far as this one.
        let dynamic = self.charge(found, marked);
        // A recording is of a trace, which a stored frame would save.
        let records = settings::get().wire.record_dir.is_some();
        if !records {
            match self.lookup(&key)? {
                Some(Stored::Frame(installed)) => return Ok(Outcome::Run(installed)),
                Some(Stored::Refusal(reason)) => return Ok(self.failed(&reason)),
                None => {}
            }
        }
        let again = self.table.borrow(py).frames.iter().map(Frame::last_failure).collect::<Vec<_>>();
        if let Some((_, guard)) = again.first() {
            counters::bump(py, "recompiles");
            say::log("recompiles", || format!("{}: {guard}", name_of(self.function)));
        }
        // Frames for another region were not tried.
        *self.recompiled.borrow_mut() = again.into_iter().filter(|(n, _)| *n > 0).map(|(_, guard)| guard).collect();
        if let Some(outcome) = self.total_reached(&key) {
            return Ok(outcome);
        }
        self.compile(key, &dynamic)
    }

    /// Counts a frame more of this function; what is symbolic in it: what is marked, and what varied so far.
    fn charge(&self, found: &[(Place, Raw)], marked: Vec<Dynamic>) -> Vec<Dynamic> {
        let py = self.py;
        let mut dynamic = marked;
        let reached = self.sized_beyond(found);
        let mut table = self.table.borrow(py);
        let mut found = found.to_vec();
        for (place, object, size) in &reached {
            size.iter().for_each(|size| table.history.saw(place, size.clone()));
            found.push((place.clone(), object.as_ptr()));
        }
        // SAFETY: live objects of the running call; `reached` keeps its own.
        let varies = unsafe { table.history.note(py, &found) };
        if self.options.dynamic != Some(false) {
            let new = varies.into_iter().filter(|v| !dynamic.iter().any(|d| d.place == v.place && d.dim == v.dim));
            let new: Vec<_> = new.collect();
            dynamic.extend(new);
        }
        let progress = dynamic.len() > table.symbolic;
        table.symbolic = table.symbolic.max(dynamic.len());
        if !progress && let Some(latest) = table.frames.first() {
            let resumed = table.resumes.is_some();
            let call = thread::with(|here| here.call(resumed));
            // The caller's own floats are its choice.
            let float = latest.failed_by_float() && !self.is_root();
            table.account.charge(call, float, settings::get().recompile_limit);
        }
        dynamic
    }

    /// Counts this compile over all callables of the user's function; the way on where there were as many as may be.
    fn total_reached(&self, key: &FrameKey) -> Option<Outcome> {
        let py = self.py;
        let limit = settings::get().accumulated_recompile_limit;
        let name = postcard::to_stdvec(key).map_or([0; 32], |bytes| *blake3::hash(&bytes).as_bytes());
        let account = self.table.borrow(py).account.clone();
        let Grant::Refused(first) = account.accumulate(name, limit) else { return None };
        if first {
            let varies = self.unfit.borrow().clone();
            let varies =
                varies.map_or_else(String::new, |guard| format!(" What varies is, in the latest one: {guard}."));
            let text = format!(
                "flambeau compiled {limit} frames of {} (accumulated_recompile_limit), over all callables made of it, and \
                 stops: calls that match none of them run eagerly from now on.{varies} Pass what varies as a tensor or an \
                 argument, or raise flambeau.config.accumulated_recompile_limit.",
                name_of(self.function)
            );
            counters::bump(py, "recompile_limit_hits");
            say::log("recompiles", || text.clone());
            let place = place_of(py, self.function).unwrap_or_default();
            say::warn_once(py, &format!("accumulated_recompile_limit:{place}"), &text);
        }
        self.leave_alone();
        counters::eager_fallback(py, "accumulated_recompile_limit");
        Some(Outcome::Eager)
    }

    /// Whether it is a call of the compiled function itself.
    fn is_root(&self) -> bool {
        std::ptr::eq(self.table, self.entry.root())
    }

    /// Tensors and ints that compiled frames read from objects of the call, beyond those in containers of its arguments.
    fn sized_beyond(&self, found: &[(Place, Raw)]) -> Vec<(Place, Py<PyAny>, Option<Size>)> {
        let known: Vec<_> = self.table.borrow(self.py).frames.iter().map(|f| f.installed.clone()).collect();
        let mut taken: HashSet<Place> = found.iter().map(|(place, _)| place.clone()).collect();
        let mut reached: Vec<(Place, Py<PyAny>, Option<Size>)> = Vec::new();
        for (place, object, size) in known.iter().flat_map(|f| f.sized(self.py, self.function, self.args)) {
            if taken.insert(place.clone()) {
                reached.push((place, object, size));
            }
        }
        reached
    }

    /// What the frame is stored under; the error is one of the back end.
    fn key(&self, marked: &[Dynamic]) -> Result<FrameKey, String> {
        let options = &self.options;
        // SAFETY: the first argument of the running call.
        let receiver = unsafe { structure::hash(self.py, self.args.first().copied().unwrap_or(std::ptr::null_mut())) };
        let marks: Vec<_> = marked.iter().map(|m| (m.place.as_slice(), m.dim, m.min, m.max)).collect();
        let resumes = self.table.borrow(self.py).resumes;
        let shaped = (&self.backend.name, marks, receiver, resumes);
        // Writing plain data to memory does not fail.
        let bytes = postcard::to_stdvec(&shaped).unwrap_or_default();
        let versions = versions(self.py);
        Ok(FrameKey {
            frame: FrameId { code: self.code.hash, path: Vec::new() },
            options: KeyOptions::of(options),
            shape: *blake3::hash(&bytes).as_bytes(),
            python: versions.0.clone(),
            torch: versions.1.clone(),
            target: match &options.backend {
                BackendKind::Native(name) if name != FIRST || !self.backend.is_shipped() => {
                    if let Some(why) = self.backend.missing() {
                        return Err(why);
                    }
                    launch::target(&self.backend.folders(), name)?
                }
                _ => target().to_owned(),
            },
        })
    }

    /// A stored frame whose guards hold, or else why there is none for such calls.
    fn lookup(&self, key: &FrameKey) -> Result<Option<Stored>, LinkError> {
        let py = self.py;
        let request = link::next_request();
        let begun = Instant::now();
        let mut pending = link::send(
            py,
            request,
            &FromClient::Lookup { request, key: key.clone(), plugin: self.backend.plugin.clone() },
        )?;
        let answer = pending.wait(py)?;
        self.took("cache look-up", begun);
        match answer {
            FromDaemon::Candidates { frames, miss, .. } => {
                let count = frames.len();
                let whole = self.options.fullgraph;
                // In the order they were stored: this process then goes the way of the one that compiled them.
                for delivery in frames.into_iter().filter(|d| !whole || d.frame.exit.broken().is_none()) {
                    if delivery.frame.exit.refused().is_some() {
                        if let Some(reason) = self.refusal(delivery) {
                            counters::cache_hit(py, "daemon");
                            let name = name_of(self.function);
                            say::log("cache", || format!("{name}: it is known why it is not compiled"));
                            return Ok(Some(Stored::Refusal(reason)));
                        }
                        continue;
                    }
                    match self.install(delivery, "cache") {
                        Ok(Some(installed)) => {
                            counters::cache_hit(py, "daemon");
                            say::log("cache", || format!("{}: a stored frame fits", name_of(self.function)));
                            return Ok(Some(Stored::Frame(installed)));
                        }
                        Ok(None) => {}
                        Err(why) => say::log("cache", || format!("a stored frame cannot be used: {why}")),
                    }
                }
                counters::cache_miss(py, "daemon");
                say::log("cache", || {
                    let why = miss.unwrap_or_else(|| format!("none of {count} stored frames fits"));
                    format!("{}: {why}", name_of(self.function))
                });
                Ok(None)
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Why calls like this one are not compiled, if the facts that this follows from hold.
    fn refusal(&self, delivery: Delivery) -> Option<Reason> {
        let frame = delivery.frame.clone();
        // SAFETY: a live function.
        let function = unsafe { Bound::from_borrowed_ptr(self.py, self.function) };
        let installed = Installed::install(self.py, delivery, &function, self.args, &self.context()).ok()?;
        if let Err(guard) = installed.check(self.py, self.function, self.args, &mut Passed::default()) {
            say::log("guards", || format!("a refusal does not fit: {}", installed.explain_failure(guard)));
            return None;
        }
        frame.exit.refused().cloned()
    }

    fn compile(&self, key: FrameKey, dynamic: &[Dynamic]) -> Result<Outcome, LinkError> {
        let py = self.py;
        let begun = Instant::now();
        let mut describer = Describer::new(py);
        // Rounds of a loop that differ in their items, and calls with other items in a heap, would be compiled one by one:
        // Python advances the iterator then, and goes through the heap.
        let limit = settings::get().recompile_limit;
        let cautious = {
            let table = self.table.borrow(py);
            table.frames.len() * 2 >= limit || table.account.is_spent(limit.div_ceil(2) + 1)
        };
        describer.tells_items_ahead = !cautious;
        let options = TraceOptions { cautious, ..self.options.clone() };
        let snapshot = snapshot::take(&mut describer, self.function, self.args, options, dynamic);
        let snapshot = match snapshot {
            Ok(snapshot) => Box::new(snapshot),
            Err(error) => {
                counters::eager_fallback(py, "snapshot");
                say::warn_once(py, "snapshot", &format!("a frame could not be described: {error}"));
                return Ok(Outcome::Eager);
            }
        };
        say::log("snapshot", || {
            let described = &snapshot.described;
            format!(
                "{} objects, {} codes, {} items, {} look-ups",
                described.objects.len(),
                described.codes.len(),
                described.items.len(),
                described.lookups.len()
            )
        });
        self.took("snapshot", begun);
        counters::bump(py, "frames_traced");
        let request = link::next_request();
        let plugin = self.backend.plugin.clone();
        let mut pending = link::send(py, request, &FromClient::Compile { request, key, plugin, snapshot })?;
        match self.converse(&mut pending, &mut describer)? {
            FromDaemon::Compiled { delivery, timings, .. } => {
                self.timings.borrow_mut().extend(timings);
                Ok(self.compiled(*delivery))
            }
            FromDaemon::Failed { reason, .. } => Ok(self.failed(&reason)),
            FromDaemon::Later { .. } => {
                counters::eager_fallback(py, "daemon_busy");
                Ok(Outcome::Eager)
            }
            other => Err(unexpected(&other)),
        }
    }

    fn compiled(&self, delivery: Delivery) -> Outcome {
        let py = self.py;
        let frame = delivery.frame.clone();
        if self.options.fullgraph
            && let Some(end) = frame.exit.broken()
        {
            return self.failed(&end.reason);
        }
        match self.install(delivery, "compiled") {
            Ok(Some(installed)) => {
                if let Some(reason) = frame.fallback.as_ref().filter(|r| r.code == ReasonCode::BackendUnavailable) {
                    let text = format!("flambeau runs a graph op by op, without kernels: {}", reason.detail);
                    say::warn_once(py, &format!("backend:{}", reason.detail), &text);
                }
                Outcome::Run(installed)
            }
            Ok(None) => {
                // Another thread changed something meanwhile.
                counters::eager_fallback(py, "changed_during_compile");
                Outcome::Eager
            }
            Err(why) => self.unusable(&why),
        }
    }

    /// What was or would be compiled cannot run here.
    fn unusable(&self, why: &str) -> Outcome {
        self.leave_alone();
        counters::eager_fallback(self.py, "install_failed");
        say::warn_once(self.py, &format!("install:{why}"), &format!("a compiled frame cannot be used: {why}"));
        Outcome::Eager
    }

    /// Answers questions until the outcome comes.
    fn converse(&self, pending: &mut Pending, describer: &mut Describer<'_>) -> Result<FromDaemon, LinkError> {
        loop {
            match pending.wait(self.py)? {
                FromDaemon::Questions { request, questions } => {
                    say::log("questions", || format!("{questions:?}"));
                    let answers = answer::answer(describer, &questions);
                    pending.write(self.py, &FromClient::Answers { request, answers })?;
                }
                message => return Ok(message),
            }
        }
    }

    /// Notes how long a stage of this call took.
    fn took(&self, stage: &str, begun: Instant) {
        self.timings.borrow_mut().push((stage.to_owned(), begun.elapsed().as_secs_f64()));
    }

    fn context(&self) -> InstallContext<'_> {
        InstallContext {
            codes: &self.entry.codes,
            fx_backend: self.entry.fx.as_ref().map(|f| f.clone_ref(self.py)),
            plugin_dirs: self.backend.folders(),
            records: self.entry.records,
        }
    }

    /// Makes a delivery ready and keeps it if its guards hold now.
    fn install(&self, delivery: Delivery, origin: &'static str) -> Result<Option<Shared<Installed>>, String> {
        let py = self.py;
        let begun = Instant::now();
        let frame = delivery.frame.clone();
        // SAFETY: a live function.
        let function = unsafe { Bound::from_borrowed_ptr(py, self.function) };
        let installed = Shared::new(Installed::install(py, delivery, &function, self.args, &self.context())?);
        // It runs Python, so it comes before the guards are checked.
        let logged = settings::get().logs("code");
        let listing = logged.then(|| assembled::listing(py, &frame, &self.entry.codes, &function));
        if let Err(guard) = installed.check(py, self.function, self.args, &mut Passed::default())
            && !(flambeau_ir::mutated!("stored_frames_unchecked") && origin == "cache")
        {
            let failure = installed.explain_failure(guard);
            say::log("guards", || format!("does not fit: {failure}"));
            *self.unfit.borrow_mut() = Some(failure);
            return Ok(None);
        }
        let ops = match &frame.body {
            Body::Eager(graph) | Body::Fx(graph) => graph.calls(),
            Body::Native(plan) => plan.steps.len(),
            Body::Training(training) => training.forward.steps.len(),
        };
        self.took("install", begun);
        let record = Record {
            ops,
            timings: self.timings.borrow().clone(),
            origin,
            begun: record::clock(self.begun),
            recompiled: self.recompiled.borrow().clone(),
        };
        self.announce(&frame, ops, listing);
        let account = self.table.borrow(py).account.clone();
        for (frames, varying) in frame.exit.broken().into_iter().flat_map(|end| &end.varying) {
            self.entry.resumed(py, *frames, varying, &account);
        }
        // SAFETY: as above.
        let code = unsafe { (*self.function.cast::<ffi::PyFunctionObject>()).func_code };
        let mut table = self.table.borrow(py);
        // Meanwhile it may have moved to another back end, or have been reset.
        if table.is_for(code) && table.backend == self.backend {
            table.frames.insert(0, Frame::new(installed.clone(), record));
        }
        Ok(Some(installed))
    }

    /// Counts and logs a frame that is ready. Runs no Python.
    fn announce(&self, frame: &CompiledFrame, ops: usize, listing: Option<String>) {
        let py = self.py;
        let resumed = if self.table.borrow(py).resumes.is_some() { ", resumed" } else { "" };
        let name = name_of(self.function) + resumed;
        let lines = &mut Lines::default();
        say::log("graph", || format!("{name} ({ops} ops)\n{}", record::python(py, frame, lines)));
        say::log("code", || format!("{name}\n{}", listing.unwrap_or_default()));
        say::log("guards", || format!("{name}\n{}", record::guards(frame).join("\n")));
        if ops > 0 {
            counters::bump(py, "graphs");
            counters::add(py, "ops", ops as u64);
        }
        if let Some(reason) = &frame.fallback {
            counters::eager_graph(py, reason.code.name());
            say::log("breaks", || format!("{name} runs op by op: {}", describe(py, reason, lines)));
        }
        if let Some(end) = frame.exit.broken() {
            counters::graph_break(py, end.reason.code.name());
            say::log_once(py, "breaks", &breaks::place(&end.reason), || {
                format!("{name} breaks off and goes on: {}", describe(py, &end.reason, lines))
            });
        }
    }

    fn failed(&self, reason: &Reason) -> Outcome {
        let py = self.py;
        let text = describe(py, reason, &mut Lines::default());
        counters::graph_break(py, reason.code.name());
        let seconds = self.begun.elapsed().as_secs_f64();
        let noted = Noted { reason: reason.clone(), kind: Kind::Eager, count: 1, seconds };
        breaks::note(&mut self.table.borrow(py).failures, noted);
        let place = breaks::place(reason);
        say::log_once(py, "breaks", &place, || format!("{} is not compiled: {text}", name_of(self.function)));
        let eager_raises = matches!(reason.code, ReasonCode::Exception | ReasonCode::Shape);
        if reason.code == ReasonCode::Internal {
            say::warn_once(py, &format!("internal:{place}"), &format!("flambeau met a bug of its own: {text}"));
        }
        let raises = if self.options.fullgraph {
            Some("fullgraph=True")
        } else {
            (self.options.error_on_break || reason.raises).then_some("error_on_graph_break is on")
        };
        if let Some(why) = raises.filter(|_| !eager_raises) {
            let name = name_of(self.function);
            return Outcome::Raise(PyRuntimeError::new_err(format!("{why}, but {name} cannot be one graph: {text}")));
        }
        self.leave_alone();
        if reason.escapes { Outcome::Raises(reason.detail.clone()) } else { Outcome::Eager }
    }

    /// Lets calls like this one run eagerly for a growing number of times.
    fn leave_alone(&self) {
        self.table.borrow(self.py).leave_alone(self.fingerprint);
    }
}

fn unexpected(message: &FromDaemon) -> LinkError {
    LinkError::Unavailable("protocol", format!("unexpected answer: {message:?}").chars().take(200).collect())
}

/// Versions of Python and torch, for keys.
fn versions(py: Python<'_>) -> &'static (String, String) {
    static VERSIONS: GilOnce<(String, String)> = GilOnce::new();
    VERSIONS.get_or_init(py, || {
        let python = py.version_info();
        let torch = py.import("torch").and_then(|t| t.getattr("__version__")?.str()?.extract::<String>());
        (format!("{}.{}.{}", python.major, python.minor, python.patch), torch.unwrap_or_default())
    })
}

/// The best target that kernels may be compiled for here, as the CPU back end names it. The launch half of the CPU back end
/// tests for the same features.
fn target() -> &'static str {
    macro_rules! has {
        ($($feature:tt)*) => { true $(&& std::arch::is_x86_feature_detected!($feature))* };
    }
    let avx2 = has!("avx2" "fma" "f16c" "bmi1" "bmi2" "lzcnt" "movbe");
    match avx2 {
        true if has!("avx512f" "avx512bw" "avx512cd" "avx512dq" "avx512vl") => "x86-64-avx512",
        true => "x86-64-avx2",
        false => "x86-64",
    }
}
